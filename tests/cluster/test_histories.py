"""What is said of histories of a cluster: good ones are let pass, and each way to break a promise
is found in one that was made to break it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.asking import ClusterClient, NodeRefused, ResultUnknown, ScriptResults
from tests.cluster.histories import banks, locks, topics
from tests.cluster.histories.banks import ACCOUNTS, EACH, Bank, BankRead, Ending, Move
from tests.cluster.histories.counters import Counters
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.histories.linear import ABSENT, Operation
from tests.cluster.histories.locks import BelievedLease, Guarded, Locks
from tests.cluster.histories.records import Records
from tests.cluster.histories.registers import Registers
from tests.cluster.histories.topics import Ack, AcknowledgedMessage, TopicDelivery, TopicHistory
from tests.cluster.plan import ClusterPlan, Failover, NodeAt

WHOLE = (EACH,) * ACCOUNTS
MOVED = Move(1, 0, 1, 5)
AFTER = (EACH - 5, EACH + 5, *WHOLE[2:])


def op(name: str, *arguments: Any, answer: Any, at: tuple[float, float]) -> Operation:
    return Operation("0.0", name, arguments, answer, *at)


def records() -> Records:
    found = Records()
    found.acknowledged, found.tried = {1, 2}, {1, 2, 3}
    found.shown = {"n1": {1, 2}, "n2": {1, 2, 3}}
    return found


def registers() -> Registers:
    found = Registers()
    found.history = [
        op("set", 1, answer=True, at=(0, 1)), op("swap", 1, 2, answer=True, at=(2, 4)),
        op("get", answer=2, at=(3, 5)),
    ]  # fmt: skip
    return found


def counters() -> Counters:
    found = Counters()
    found.history = [
        op("incr", answer=1, at=(0, 1)), op("incr", answer=2, at=(2, 3)),
        op("get", answer=2, at=(4, 5)),
    ]  # fmt: skip
    return found


def bank() -> Bank:
    found = Bank()
    found.acknowledged, found.tried = {MOVED}, {MOVED, Move(2, 1, 2, 7)}
    found.looks = [BankRead("n1 at 5", WHOLE), BankRead("n2 in moments of 6 and 6", AFTER)]
    found.endings = [Ending("n1", AFTER, frozenset({MOVED}))]
    return found


def lock() -> Locks:
    found = Locks()
    found.leases = [BelievedLease(0, 1, 5, "a"), BelievedLease(2, 3, 7, "b")]
    found.guarded = [Guarded(1, 5, "a"), Guarded(2, 5, "a"), Guarded(4, 7, "b")]
    found.ends = {"n1": Guarded(4, 7, "b"), "n2": Guarded(5, 7, "b")}
    return found


def topic() -> TopicHistory:
    found = TopicHistory()
    found.published, found.tried = [AcknowledgedMessage("m1", 1)], {"m1", "i2"}
    found.shown = {"n1": ((1, "m1"), (2, "i2"))}
    found.handed = [
        TopicDelivery(1, "m1", 1.0),
        TopicDelivery(2, "i2", 1.0),
        TopicDelivery(1, "m1", 4.0),
    ]
    found.acked = [Ack(1, 5.0), Ack(2, 6.0)]
    return found


GOOD: list[Callable[[], OperationHistory]] = [records, registers, counters, bank, lock, topic]


@pytest.mark.parametrize("made", GOOD)
def test_what_can_be_true_is_let_pass(made: Callable[[], OperationHistory]) -> None:
    assert made().wrong() == []


def planted(made: Callable[[], Any], said: str, **changed: Any) -> Any:
    return pytest.param(made, changed, said, id=said)


@pytest.mark.parametrize(
    ("made", "changed", "said"),
    [
        planted(records, "n2 has lost 1 records", shown={"n2": {1}}),
        planted(records, "n2 has records that were never written", shown={"n2": {1, 2, 4}}),
        planted(records, "never written: [3]", tried={1, 2}, shown={"n1": {1, 2, 3}}),
        planted(
            registers, "register 0.0 can't have been so: set(1,) = True [0.000, 1.000]; get()",
            history=[op("set", 1, answer=True, at=(0, 1)), op("get", answer=ABSENT, at=(2, 3))],
        ),
        planted(
            registers, "register 0.0 can't have been so: set(1,) = True [0.000, 1.000]; set(2,)",
            history=[
                op("set", 1, answer=True, at=(0, 1)), op("set", 2, answer=True, at=(2, 3)),
                op("get", answer=1, at=(4, 5)),
            ],
        ),
        planted(
            registers, "swap(1, 2) = True [2.000, 3.000]; swap(1, 3) = True [2.000, 3.000]",
            history=[
                op("set", 1, answer=True, at=(0, 1)), op("swap", 1, 2, answer=True, at=(2, 3)),
                op("swap", 1, 3, answer=True, at=(2, 3)),
            ],
        ),
        planted(
            counters, "incr() = 1 [0.000, 1.000]; incr() = 1 [2.000, 3.000]",
            history=[op("incr", answer=1, at=(0, 1)), op("incr", answer=1, at=(2, 3))],
        ),
        planted(bank, "n3 at 9", looks=[BankRead("n3 at 9", (EACH - 5, *WHOLE[1:]))]),
        planted(bank, "7 accounts have", looks=[BankRead("n3 at 9", WHOLE[1:])]),
        planted(bank, "n1 has lost 1 moves", endings=[Ending("n1", WHOLE, frozenset())]),
        planted(
            bank, "n1 has moves that were never made",
            endings=[Ending("n1", (*AFTER[:2], EACH - 1, EACH + 1, *AFTER[4:]),
                            frozenset({MOVED, Move(9, 2, 3, 1)}))],
        ),
        planted(bank, "its moves leave", endings=[Ending("n1", WHOLE, frozenset({MOVED}))]),
        planted(lock, "held by two: BelievedLease(began=0, ended=2",
                leases=[BelievedLease(0, 2, 5, "a"), BelievedLease(1, 3, 7, "b")]),
        planted(lock, "held by two: BelievedLease(began=0, ended=1",
                leases=[BelievedLease(0, 1, 7, "a"), BelievedLease(2, 3, 6, "b")]),
        planted(lock, "fences go back", guarded=[Guarded(1, 7, "b"), Guarded(2, 5, "a")]),
        planted(lock, "fences go back: Guarded(number=1, fence=5",
                guarded=[Guarded(1, 5, "a"), Guarded(2, 5, "b")]),
        planted(lock, "fences go back: Guarded(number=2, fence=5",
                guarded=[Guarded(2, 5, "a"), Guarded(2, 7, "b")]),
        planted(lock, "n2 has lost guarded writes", ends={"n2": Guarded(3, 5, "a")}),
        planted(topic, "n1 has lost 1 messages", shown={"n1": ((1, "i2"),)}),
        planted(topic, "n1 has messages twice", shown={"n1": ((1, "m1"), (2, "m1"), (3, "i2"))}),
        planted(topic, "that were never published", shown={"n1": ((1, "m1"), (2, "i2"), (3, "x"))}),
        planted(topic, "positions with gaps", shown={"n1": ((1, "m1"), (3, "i2"))}),
        planted(topic, "1 messages of n1 were never handed out",
                handed=[TopicDelivery(1, "m1", 1.0)]),
        planted(topic, "messages were handed out that n1 does not have",
                handed=[TopicDelivery(1, "m1", 1.0), TopicDelivery(2, "i2", 1.0),
                        TopicDelivery(3, "x", 1.0)]),
        planted(topic, "came after its acknowledgement", acked=[Ack(1, 3.0)]),
    ],
)  # fmt: skip
def test_what_was_planted_is_found(
    made: Callable[[], OperationHistory], changed: Mapping[str, Any], said: str
) -> None:
    history = made()
    for name, value in changed.items():
        setattr(history, name, value)
    assert said in str(history.wrong())


def test_where_clocks_differ_fences_alone_are_judged() -> None:
    history = Locks(clocks_agree=False)
    history.leases = [BelievedLease(0, 2, 5, "a"), BelievedLease(1, 3, 7, "b")]
    assert history.wrong() == []
    history.guarded = [Guarded(1, 7, "b"), Guarded(2, 5, "a")]
    assert history.wrong()


# --- what is remembered of what came of it --------------------------------------------------------


PLAN = ClusterPlan(
    Path(),
    tuple(NodeAt(f"n{n}", 1, 1, 1, 1) for n in (1, 2, 3)), 1, 1, 1, "root", "", Failover(1),
)  # fmt: skip


@dataclass(frozen=True)
class Saying(ClusterClient):
    """Nodes that say to everything what a test has them say."""

    says: Callable[[str, dict[str, Any]], ScriptResults] = field(kw_only=True)

    def ask(self, node: NodeAt, text: str, **fields: Any) -> ScriptResults:
        return self.says(text, fields)


def acting(
    history: OperationHistory,
    says: Callable[[str, dict[str, Any]], ScriptResults],
    times: int = 100,
) -> ClientRequests:
    asking = ClientRequests(Saying(PLAN, says=says))
    chance = random.Random(1)
    for _ in range(times):
        try:
            history.act(asking, PLAN.nodes[0], chance, "c1")
        except (NodeRefused, ResultUnknown):
            continue
    return asking


def refuses(text: str, fields: dict[str, Any]) -> ScriptResults:
    raise NodeRefused({"code": "NotWritable", "message": "it follows"})


def is_silent(text: str, fields: dict[str, Any]) -> ScriptResults:
    raise ResultUnknown("nothing came")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TRIES_MOST", 2)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.mark.usefixtures("no_pauses")
def test_what_was_refused_was_never_there() -> None:
    records, bank, topic = Records(), Bank(), TopicHistory()
    for history in (records, bank, topic):
        acting(history, refuses)
    assert not records.tried
    assert not bank.tried
    assert all(mark.startswith("i") for mark in topic.tried)
    for linear in (Registers(), Counters()):
        acting(linear, refuses)
        assert linear.history == []


@pytest.mark.usefixtures("no_pauses")
def test_what_has_an_unknown_end_may_be_there() -> None:
    records, bank, topic = Records(), Bank(), TopicHistory()
    for history in (records, bank, topic):
        acting(history, is_silent)
    assert records.tried and bank.tried and topic.tried
    for linear in (Registers(), Counters()):
        acting(linear, is_silent)
        assert linear.history
        assert {one.ended for one in linear.history} == {float("inf")}


def test_a_read_without_after_counts_from_who_leads_alone() -> None:
    def answers(lease: str) -> Callable[[str, dict[str, Any]], ScriptResults]:
        def says(text: str, fields: dict[str, Any]) -> ScriptResults:
            if "INFO" in text:
                assert "after" not in fields
                return ScriptResults([[7], {"lease": {"$dur": lease}}], 9, None)
            if text.startswith("SELECT"):
                raise ResultUnknown("a read of another kind")
            raise NodeRefused({"code": "Busy", "message": ""})

        return says

    led, not_led = Registers(), Registers()
    acting(led, answers("2s"))
    acting(not_led, answers("0s"))
    assert {one.answer for one in led.history} == {7}
    assert not_led.history == []


def test_a_read_asks_for_what_was_newest_when_it_began() -> None:
    history, asked, current = Registers(), list[int](), list[str]()
    sequence = 0

    def says(text: str, fields: dict[str, Any]) -> ScriptResults:
        nonlocal sequence
        if text.endswith("CURRENT"):
            current.append(text)
            assert "after" not in fields
        if "after" in fields:
            asked.append(fields["after"])
            assert fields["after"] == sequence
        sequence += 1
        values = [[], {"lease": None}] if "INFO" in text else [[]]
        return ScriptResults(values, sequence, None)

    acting(history, says)
    assert len(asked) > 10
    assert len(current) > 10


def test_money_is_looked_at_in_one_moment() -> None:
    history, asked = Bank(), list[tuple[Any, Any]]()
    half = [EACH] * (banks.ACCOUNTS // 2)

    def says(text: str, fields: dict[str, Any]) -> ScriptResults:
        if "moment" in fields:
            asked.append((fields["moment"], fields["keep"]))
            return ScriptResults([half], 5, "m-1")
        return ScriptResults([[EACH] * ACCOUNTS], 5, None)

    acting(history, says)
    assert set(asked) == {("new", "10s"), ("m-1", "0s")}
    assert history.wrong() == []


def test_a_lease_is_believed_in_no_longer_than_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history, now = Locks(), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def says(text: str, fields: dict[str, Any]) -> ScriptResults:
        nonlocal now
        now += 0.7
        if text.startswith("LOCK"):
            return ScriptResults([{"held": True, "fence": round(now * 10)}], 5, None)
        if text.startswith("UPDATE"):
            return ScriptResults([[]], 5, None)
        return ScriptResults([{"released": True}], 5, None)

    acting(history, says)
    assert history.refused >= 100
    assert {round(lease.ended - lease.began, 3) for lease in history.leases} == {
        round(locks.LEASE_SECONDS - 0.7, 3)
    }


# --- from what is asked to what is judged ---------------------------------------------------------


class LyingStore:
    """Registers and a bank as a node keeps them, but for one lie in so many answers.

    :param lies: what is wrong now and then
    """

    def __init__(self, lies: str) -> None:
        self._lies = lies
        self._asked = 0
        self.registers: dict[str, int] = {}
        self.older: dict[str, int] = {}
        """Each register before its last change."""
        self.money = dict.fromkeys(range(ACCOUNTS), EACH)
        self.moves: list[dict[str, Any]] = []

    def __call__(self, text: str, fields: dict[str, Any]) -> ScriptResults:
        self._asked += 1
        does = self._of_a_bank if "account" in text else self._of_a_register
        values = does(text, fields.get("params", {}))
        if "INFO" in text:
            values.append({"lease": {"$dur": "2s"}})
        return ScriptResults(values, 1, "m")

    def _is_lie(self, kind: str) -> bool:
        return bool(kind) and kind == self._lies and self._asked % 2 == 0

    def _of_a_register(self, text: str, params: dict[str, Any]) -> list[Any]:
        key = params.get("key", "")
        if text.startswith("SELECT k"):
            return [[{"k": key, "v": value} for key, value in self.registers.items()]]
        if text.startswith("SELECT"):
            kind = "a stale CURRENT" if text.endswith("CURRENT") else ""
            is_stale = self._is_lie("a stale read") or self._is_lie(kind)
            shown = self.older if is_stale else self.registers
            return [[shown[key]] if key in shown else []]
        if text.startswith("UPDATE") and self.registers.get(key) != params["old"]:
            return [[{}] if self._is_lie("a lost race is won") else []]
        if not self._is_lie("a write is lost"):
            self.older[key] = self.registers.get(key, 0)
            self.registers[key] = params["v"]
        return [[{}]]

    def _of_a_bank(self, text: str, params: dict[str, Any]) -> list[Any]:
        if "BEGIN" not in text:
            half = ACCOUNTS // 2
            all_of_it = list(self.money.values())
            if self._is_lie("money goes") and "WHERE" not in text:
                all_of_it[0] -= 1
            if self._is_lie("a moment moves on") and "n >= " in text:
                all_of_it[-1] -= 1
            some = all_of_it[:half] if "n < " in text else all_of_it[half:]
            return [some if "WHERE" in text else all_of_it]
        if not self._is_lie("a move is lost"):
            self.moves.append(params)
            self.money[params["source"]] -= params["much"]
        if not self._is_lie("half of a move is done"):
            self.money[params["to"]] += params["much"]
        return [None]


def judged(history: OperationHistory, lies: str) -> list[str]:
    """What is found of a client that has acted a few hundred times on such a store."""
    store = LyingStore(lies)
    asking = acting(history, store, times=400)
    if isinstance(history, Bank):
        moves = frozenset(banks._read(store.moves))
        history.endings.append(Ending("n1", tuple(store.money.values()), moves))
    else:
        history.look(asking, PLAN.nodes[0])
    return history.wrong()


@pytest.mark.parametrize(
    ("made", "lies"),
    [
        (Registers, "a stale read"), (Registers, "a stale CURRENT"),
        (Registers, "a lost race is won"), (Registers, "a write is lost"),
        (Bank, "money goes"), (Bank, "a moment moves on"), (Bank, "a move is lost"),
        (Bank, "half of a move is done"),
    ],
)  # fmt: skip
def test_a_store_that_lies_now_and_then_is_found_out(
    made: type[OperationHistory], lies: str
) -> None:
    assert judged(made(), "") == []
    assert judged(made(), lies)
