"""The rules of groups and their hand-outs, on a manual clock."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from protocol import limits
from protocol.errors import AlreadyExists, BadRequest, NameRefused, TooLarge, Unknown
from storage.catalog.places import IfExists
from storage.engine.memory import MemoryEngine
from storage.formats import keys
from storage.formats.keys import Pair
from storage.topics import groups, topics
from storage.topics.deliveries import acks, expiry, fetch
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import Group, state_of
from storage.topics.messages import TopicMessages
from storage.topics.topics import END, StartPosition, Topic
from storage.txn.transaction import Transaction
from tests.receipts import STORE, named, settled
from tests.simulation.environment import START_US
from tests.storage.queue_model import moment
from tests.storage.queues import SECOND, Queues, operate


@pytest.fixture
def queues() -> Queues:
    return Queues()


@pytest.fixture
def topic(queues: Queues) -> Topic:
    """A topic with ten messages, 1 to 10."""
    made = queues.topic("t")
    queues.publish(made, *range(1, 11))
    return made


def values(taken: list[tuple[Any, str]]) -> list[Any]:
    return [value for value, _ in taken]


def receipts(taken: list[tuple[Any, str]]) -> list[str]:
    return [receipt for _, receipt in taken]


def receipt_of(group: Group, handed_out: str, store: str = STORE) -> str:
    """:param handed_out: epoch, position and attempt"""
    return f"{named(group.topic.id, store)}.{group.id}.{handed_out}"


# --- declaring ----------------------------------------------------------------------------------


def test_a_group_is_declared_once(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic, "g", in_flight=3, deliveries=2, backoff_us=(1, 0, 2), place=END)
    with pytest.raises(AlreadyExists):
        queues.group(topic, "g")
    assert queues.group(topic, "g", taken=IfExists.SKIP) == made
    other = queues.group(topic, "a")
    assert queues.do(lambda tx: groups.groups(tx, topic)) == [other, made]
    assert queues.do(lambda tx: groups.group(tx, topic, "g")) == made
    assert queues.do(lambda tx: groups.find_group(tx, topic, "x")) is None
    with pytest.raises(Unknown):
        queues.do(lambda tx: groups.group(tx, topic, "x"))
    assert queues.figures(made) == (10, 10, 0, 0, 0)
    assert queues.figures(other) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"deadline_us": 0}, {"deadline_us": 1001 * 365 * 86_400 * SECOND}, {"in_flight": 0},
        {"in_flight": 100_001}, {"deliveries": 0}, {"backoff_us": (1,) * 33},
        {"backoff_us": (-1,)}, {"dead_letter": "t"},
    ],
)  # fmt: skip
def test_settings_have_their_ranges(queues: Queues, topic: Topic, settings: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        queues.group(topic, **settings)
    made = queues.group(topic)
    with pytest.raises(BadRequest):
        queues.do(lambda tx: groups.alter_group(tx, replace(made, **settings)))
    with pytest.raises(NameRefused):
        queues.group(topic, "no name")
    with pytest.raises(Unknown):
        queues.group(topic, "other", dead_letter="none")
    with pytest.raises(BadRequest):
        queues.group(topic, "other", place=StartPosition("AFTER", 11))


def test_one_that_is_overwritten_keeps_what_it_has_handed_out(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic)
    first, second = queues.take(made, 2)
    over = queues.group(topic, in_flight=2, deadline_us=SECOND, taken=IfExists.OVERWRITE)
    assert over.id == made.id
    assert queues.take(over) == []
    assert queues.call(over, "ack", [first[1]]) == settled("acked", 1)
    assert values(queues.take(over, 9)) == [3]
    moved = queues.group(topic, place=StartPosition("AFTER", 7), taken=IfExists.OVERWRITE)
    assert queues.call(moved, "ack", [second[1]]) == settled("acked", 0, [second[1]])
    assert values(queues.take(moved, 9)) == [8, 9, 10]
    ordered = queues.group(topic, ordered=True, taken=IfExists.OVERWRITE)
    assert values(queues.take(ordered, 9)) == [8, 9, 10], "from what was committed"


def test_a_group_of_an_old_name_takes_no_old_receipts(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic)
    old = queues.take(made)
    queues.do(lambda tx: groups.drop_group(tx, made))
    anew = queues.group(topic)
    assert queues.take(anew) != old
    assert queues.call(anew, "ack", receipts(old)) == settled("acked", 0, receipts(old))


def test_a_receipt_is_good_in_its_own_topic_alone(queues: Queues, topic: Topic) -> None:
    other = queues.topic("other")
    queues.publish(other, "another's")
    made, others = queues.group(topic), queues.group(other)
    [mine], [good] = receipts(queues.take(made)), receipts(queues.take(others))
    _is_stale(queues, others, mine)
    assert queues.call(others, "ack", [mine, good]) == settled("acked", 1, [mine])
    assert queues.call(made, "ack", [mine]) == settled("acked", 1)


def test_a_topic_of_an_old_name_takes_no_old_receipts(queues: Queues, topic: Topic) -> None:
    [old] = receipts(queues.take(queues.group(topic)))
    queues.do(lambda tx: topics.drop_topic(tx, topic))
    anew = queues.topic(topic.name)
    queues.publish(anew, "new")
    made = queues.group(anew)
    [good] = receipts(queues.take(made))
    _is_stale(queues, made, old)
    assert queues.call(made, "ack", [old, good]) == settled("acked", 1, [old])


def _is_stale(queues: Queues, group: Group, receipt: str) -> None:
    """Whatever is answered with it."""
    for method, word, *more in (
        ("ack", "acked"), ("nack", "nacked"), ("give_up", "given_up"), ("extend", "extended", 1)
    ):  # fmt: skip
        said = queues.call(group, str(method), [receipt], *more)
        assert said == settled(str(word), 0, [receipt])


# --- taking and acknowledging -------------------------------------------------------------------


def test_receipts_count_the_groups_of_their_topic_alone(queues: Queues, topic: Topic) -> None:
    """Else a tenant would learn from its own receipts how many groups the others make."""
    other = queues.topic("other")
    for name in ("a", "b", "c"):
        queues.group(other, name)
    assert queues.group(topic, "g").id == 1
    assert queues.group(topic, "h").id == 2


def test_ids_go_on_where_they_were_given_out_for_the_whole_store(
    queues: Queues, topic: Topic
) -> None:
    queues.do(lambda tx: tx.put(keys.ALL_GROUP_IDS, keys.pack_counter(7)))
    assert [queues.group(topic, name).id for name in ("g", "h")] == [8, 9]
    assert queues.group(queues.topic("other"), "g").id == 8


def test_what_take_answers(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic)
    queues.advance(1)
    (taken,) = queues.call(made, "take", 1, "worker 1")
    assert taken == {
        "position": 1, "at": moment(START_US), "key": None, "id": None, "headers": {},
        "value": 1, "bytes": 33, "receipt": receipt_of(made, "1.1.1"), "attempt": 1,
        "deadline": moment(START_US + 11 * SECOND), "member": "worker 1",
    }  # fmt: skip
    assert queues.call(made, "take", 1)[0]["member"] is None


def test_a_take_that_finds_nothing_writes_nothing(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic, place=END)
    before = queues.book.ledger.state.committed
    assert queues.take(made) == []
    assert queues.book.ledger.state.committed == before
    queues.publish(topic, 11)
    queues.take(made)
    queues.advance(5)
    before = queues.book.ledger.state.committed
    assert queues.take(made) == []
    assert queues.call(made, "expire") == 0
    assert queues.book.ledger.state.committed == before


def test_committed_is_found_behind_many_that_are_done(queues: Queues) -> None:
    topic = queues.topic()
    made = queues.group(topic, in_flight=5000)
    queues.publish(topic, *range(3000))
    taken = [receipt for _ in range(3) for receipt in receipts(queues.take(made, 1000))]
    queues.call(made, "ack", taken[1:2000])
    assert queues.figures(made)[1] == 0
    queues.call(made, "ack", taken[:1])
    assert queues.figures(made)[1] == 2000


@pytest.mark.parametrize(
    "wrong", ["", "1.1.1.1", "1.1.1.1.1", *[
        text.replace("S", STORE) for text in (
            "S.1.1.1", "S.1.1.1.1.1", "S.a.1.1.1", "S.1.1.1.-1", " S.1.1.1.1", "S.1.1.1.1\n",
            "S.1.1.1.x", "S.1.1.1.١", f"S.{'9' * 40}.1.1.1", "0S.1.1.1.1",
        )
    ], "A0000000.1.1.1.1", 1, None]
)  # fmt: skip
def test_what_is_no_receipt_is_refused(queues: Queues, topic: Topic, wrong: Any) -> None:
    made = queues.group(topic)
    good = receipts(queues.take(made))
    for method, *more in (("ack",), ("nack",), ("give_up",), ("extend", 1)):
        with pytest.raises(BadRequest):
            queues.call(made, str(method), [*good, wrong], *more)
    assert queues.call(made, "ack", good) == settled("acked", 1)


def test_a_receipt_of_another_store_is_stale(queues: Queues, topic: Topic) -> None:
    """A store that was restored hands out other messages under the same numbers."""
    made = queues.group(topic)
    [good] = receipts(queues.take(made))
    other = receipt_of(made, "1.1.1", store="1" * 8)
    assert good == receipt_of(made, "1.1.1")
    _is_stale(queues, made, other)
    assert queues.call(made, "ack", [other, good]) == settled("acked", 1, [other])


def test_arguments_have_their_ranges(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic)
    good = receipts(queues.take(made))
    thousand_years = 1001 * 365 * 86_400 * SECOND
    wrong: list[tuple[Any, ...]] = [
        ("take", 0), ("take", 1001), ("take", 1, ""), ("take", 1, "x" * 257),
        ("ack", [f"{STORE}.1.1.1.1"] * 10_001), ("nack", good, -1), ("nack", good, thousand_years),
        ("nack", good, 0, "x" * 4097), ("give_up", good, "x" * 4097), ("extend", good, 0),
        ("extend", good, thousand_years),
    ]  # fmt: skip
    for method, *arguments in wrong:
        with pytest.raises(BadRequest):
            queues.call(made, method, *arguments)
    assert queues.call(made, "ack", good)["acked"] == 1


def test_an_answer_has_room_for_8_mib_or_one_message(queues: Queues) -> None:
    topic = queues.topic()
    made = queues.group(topic)
    large = "x" * (3 << 20)
    for value in (large, large, large, "small", large):
        queues.publish(topic, value)
    assert len(queues.take(made, 10)) == 2
    again = queues.take(made, 10)
    assert len(again) == 3
    queues.advance(10)
    assert [len(queues.take(made, 10)) for _ in range(3)] == [2, 3, 0]


# --- deadlines ----------------------------------------------------------------------------------


def test_a_deadline_is_exact_whoever_looks(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic)
    (first,) = queues.take(made)
    queues.advance(10)
    queues.book.clock.advance(-1)
    assert values(queues.take(made)) == [2]
    queues.book.clock.advance(1)
    assert queues.call(made, "ack", [first[1]]) == settled("acked", 0, [first[1]])
    assert queues.call(made, "extend", [first[1]], SECOND) == settled("extended", 0, [first[1]])
    assert queues.figures(made)[2] == 1, "in flight is what has a deadline to come"
    ((value, receipt),) = queues.take(made)
    assert (value, receipt) == (1, receipt_of(made, "1.1.2"))
    assert queues.figures(made) == (2, 0, 2, 1, 0)
    assert queues.call(made, "ack", [receipt]) == settled("acked", 1)


def test_no_deadline_passes_of_what_nobody_has_been_shown(queues: Queues, topic: Topic) -> None:
    """Not for its own receipt, for INFO, or for another TAKE; but for what was shown, beside it."""
    made = queues.group(topic, deliveries=1)
    queues.take(made)

    def commit(method: str, *arguments: Any) -> Any:
        with queues.book.begin_transaction() as tx:
            answer = operate(DeliveryIndex(tx, made), method, *arguments)
            if tx.size:
                queues.book.commit(tx)
        queues.check()
        return answer

    taken = commit("take", 3)
    queues.advance(10)
    assert commit("figures")["in_flight"] == 3
    assert commit("expire") == 1, "the one that was shown"
    assert commit("ack", [taken[0]["receipt"]]) == settled("acked", 1)
    assert commit("extend", [taken[1]["receipt"]], SECOND) == settled("extended", 1)
    assert [message["value"] for message in commit("take", 1)] == [5]
    queues.advance(10)
    assert (commit("expire"), commit("figures")["in_flight"]) == (0, 3)
    queues.book.durable()
    assert commit("figures")["in_flight"] == 0
    assert commit("restart_deadlines", [taken[1]["receipt"]]) == {3}, "nobody has taken it back yet"
    assert commit("expire") == 2
    assert commit("restart_deadlines", [taken[2]["receipt"]]) == set(), "it has lapsed"
    assert commit("figures")["in_flight"] == 1


def test_a_timer_takes_back_in_slices(queues: Queues) -> None:
    topic = queues.topic()
    made = queues.group(topic)
    queues.publish(topic, *range(20))
    for _ in range(4):
        queues.take(made, 5)
        queues.advance(1)
    queues.advance(20)

    def expire_overdue() -> tuple[int, bool, bool]:
        def work(tx: Any) -> tuple[int, bool, bool]:
            here = DeliveryIndex(tx, made)
            return expiry.expire(here, 8), here.more, here.wakes

        found: tuple[int, bool, bool] = queues.do(work)
        return found

    assert queues.figures(made)[2] == 0, "none has time left, taken back or not"
    assert expire_overdue() == (10, True, True)
    assert expire_overdue() == (10, False, True)
    assert expire_overdue() == (0, False, False)
    assert queues.figures(made)[2] == 0


def test_backoff_grows_from_the_deadline_on(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic, backoff_us=(SECOND, 3 * SECOND), in_flight=1)
    queues.take(made)
    queues.advance(10.5)
    assert values(queues.take(made)) == [2], "1 waits until 11"
    queues.call(made, "ack", [receipt_of(made, "1.2.1")])
    queues.advance(0.5)
    assert values(queues.take(made)) == [1]
    for attempt in (2, 3, 4):
        queues.call(made, "nack", [receipt_of(made, f"1.1.{attempt}")])
        queues.advance(3)
        queues.book.clock.advance(-1)
        state = queues.call(made, "next_due_us")
        assert state == queues.book.clock.wall_us() + 1
        queues.book.clock.advance(1)
        assert values(queues.take(made)) == [1]


# --- refusing -----------------------------------------------------------------------------------


def test_one_deadline_for_two_that_were_once_together(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic)
    taken = receipts(queues.take(made, 2))
    queues.call(made, "nack", taken[:1])
    assert values(queues.take(made, 1)) == [1], "at the same moment"
    assert queues.call(made, "ack", taken[1:])["acked"] == 1
    queues.advance(10)
    assert values(queues.take(made, 1)) == [1]


def test_dead_letters(queues: Queues, topic: Topic) -> None:
    dead = queues.topic("dead", largest=1, max_bytes=1, full="REFUSE", dedup_us=SECOND)
    queues.publish(topic, "v", key="k", id="i", headers={"h": "1", "dead-error": "older"})
    made = queues.group(topic, deliveries=2, dead_letter="dead", place=StartPosition("AFTER", 9))
    first, second = queues.take(made, 2)
    queues.call(made, "nack", [second[1]], None, "bad")
    queues.call(made, "give_up", [first[1]], "worse")
    assert queues.values(dead) == [10], "never lost, whatever its topic refuses"
    assert queues.figures(made) == (11, 10, 0, 0, 1)
    queues.take(made)
    queues.advance(10)
    assert queues.call(made, "expire") == 1
    assert queues.figures(made) == (11, 11, 0, 1, 2)
    letter, other = queues.read(dead)[1], queues.read(dead)[0]
    assert (letter["key"], letter["id"], letter["value"]) == ("k", "i", "v")
    assert letter["headers"] == {
        "h": "1", "dead-error": "bad", "dead-topic": "t", "dead-group": "g",
        "dead-position": "11", "dead-attempts": "2", "dead-at": "2026-09-21T14:13:30Z",
    }  # fmt: skip
    assert other["headers"]["dead-error"] == "worse"
    queues.publish(topic, "lapses")
    queues.take(made)
    queues.advance(10)
    queues.take(made)
    queues.advance(10)
    queues.call(made, "expire")
    assert queues.read(dead)[2]["headers"]["dead-error"] == "the deadline passed"


def test_dead_letters_that_fall_due_together_are_cut_by_their_bytes(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of one TAKE, which share an entry of the index of deadlines."""
    monkeypatch.setattr(limits, "LAPSE_BYTES", 1_000)
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 4_000)
    topic, dead = queues.topic(), queues.topic("dead")
    made = queues.group(topic, deliveries=1, dead_letter="dead")
    for number in range(40):
        queues.publish(topic, f"{number} " + "x" * 300)
    for _ in range(4):
        assert len(queues.take(made, 8)) == 8
        queues.advance(1)
    queues.advance(10)
    assert queues.figures(made)[2] == 0

    def expire_overdue(tx: Transaction) -> tuple[int, bool]:
        hand_outs = DeliveryIndex(tx, made)
        return expiry.expire(hand_outs), hand_outs.more

    done, lapses = 0, 0
    while True:
        count, more = queues.do(expire_overdue)
        assert 1 <= count <= 4
        done, lapses = done + count, lapses + 1
        if not more:
            break
        if lapses == 2:
            (taken,) = queues.take(made)
            assert taken[0].startswith("32 "), "what is new is handed out meanwhile"
    assert lapses >= 8
    assert queues.figures(made) == (33, 32, 1, 0, 32)
    letters = queues.read(dead)
    assert [letter["value"].split()[0] for letter in letters] == [str(n) for n in range(32)]
    assert {letter["headers"]["dead-error"] for letter in letters} == {"the deadline passed"}


LARGE = 256 * limits.KIB


@pytest.fixture
def much(queues: Queues) -> tuple[Group, Topic]:
    """A group that hands out forty large messages, once each; and where their dead letters go."""
    topic, dead = queues.topic(), queues.topic("dead")
    made = queues.group(topic, deliveries=1, dead_letter="dead")
    for _ in range(40):
        queues.publish(topic, "x" * LARGE)
    return made, dead


@pytest.mark.parametrize("method", ["give_up", "nack"])
def test_dead_letters_beyond_a_transaction_are_refused_before_all_are_made(
    queues: Queues,
    much: tuple[Group, Topic],
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, dead = much
    taken = receipts([one for _ in range(2) for one in queues.take(made, 20)])
    assert len(taken) == 40
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 4 * LARGE)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            queues.call(made, method, taken)
        assert tracemalloc.get_traced_memory()[1] < 16 * LARGE
    finally:
        tracemalloc.stop()
    assert queues.figures(made)[2:] == (40, 0, 0), "nothing of it was done"
    assert queues.call(made, method, taken[:3])["stale"] == 0
    assert [letter["headers"]["dead-position"] for letter in queues.read(dead)] == ["1", "2", "3"]


@pytest.mark.parametrize("method", ["give_up", "nack"])
def test_others_have_their_turn_while_large_dead_letters_are_made(
    queues: Queues, much: tuple[Group, Topic], method: str
) -> None:
    made, _ = much
    taken = receipts(queues.take(made, 20))
    ticks: list[int] = []

    def work(tx: Transaction) -> Any:
        return operate(DeliveryIndex(tx, made, lambda: ticks.append(tx.size)), method, taken)

    assert queues.do(work)["stale"] == 0
    steps = [after - before for before, after in pairwise([0, *ticks])]
    assert len(steps) >= 5 and max(steps) < 2 * limits.MIB


# --- delays -------------------------------------------------------------------------------------


def test_a_take_looks_at_a_bounded_number_of_delayed_messages(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUP_LOOKED", 100)
    topic = queues.topic()
    made = queues.group(topic)
    queues.publish(topic, *range(250), due_us=START_US + SECOND)
    queues.publish(topic, "now")

    def take() -> tuple[list[Any], bool]:
        def work(tx: Any) -> tuple[list[Any], bool]:
            here = DeliveryIndex(tx, made)
            return [message["value"] for message in fetch.take(here, 1)], here.more

        found: tuple[list[Any], bool] = queues.do(work)
        return found

    answers = [take()]
    while answers[-1] == ([], True):
        answers.append(take())
    assert answers[-1] == (["now"], False)
    assert len(answers) in (2, 3)
    queues.advance(1)
    assert values(queues.take(made, 1000)) == list(range(250))


# --- order --------------------------------------------------------------------------------------


def test_a_hot_key_holds_up_no_other(queues: Queues) -> None:
    topic = queues.topic()
    made = queues.group(topic, ordered=True)
    hot = 12_000
    for start in range(0, hot, 4_000):
        queues.publish(topic, *range(start, start + 4_000), key="a")
    queues.publish(topic, "b", key="b")
    taken = queues.take(made)
    assert values(taken) == [0]

    def another(tx: Transaction) -> tuple[int, list[Any]]:
        hand_outs, looks = DeliveryIndex(tx, made), 1
        while not (found := fetch.take(hand_outs)) and hand_outs.more:
            looks += 1
        return looks, [message["value"] for message in found]

    looks, found = queues.do(another)
    assert found == ["b"], "however many wait behind the first of their key"
    assert looks > hot // (2 * limits.GROUP_LOOKED), "in slices"
    queues.call(made, "ack", receipts(taken))
    assert values(queues.take(made, 9)) == [1]


# --- moving and trimming ------------------------------------------------------------------------


def test_one_stuck_message_is_told_from_work(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic)
    taken = receipts(queues.take(made, 8))
    queues.call(made, "ack", taken[1:7])
    figures = queues.call(made, "figures")
    named = ("lag", "pending", "waiting", "in_flight")
    assert [figures[name] for name in named] == [10, 4, 2, 2]
    queues.call(made, "nack", taken[:1], 5 * SECOND)
    figures = queues.call(made, "figures")
    assert [figures[name] for name in named] == [10, 4, 3, 1], "it waits for its delay"
    queues.call(made, "ack", taken[7:])
    queues.call(made, "ack", receipts(queues.take(made, 9)))
    figures = queues.call(made, "figures")
    assert [figures[name] for name in named] == [10, 1, 1, 0], "one is stuck, and all else done"
    queues.do(lambda tx: sum(TopicMessages(tx, topic).trim(2)))
    figures = queues.call(made, "figures")
    assert [figures[name] for name in named] == [0, 0, 0, 0]


# --- what actors are told -----------------------------------------------------------------------


def told(queues: Queues, group: Group, method: str, *arguments: Any) -> tuple[bool, int]:
    """Whether somebody is to be woken, and what time is to be waited for, after now."""

    def work(tx: Any) -> tuple[bool, int]:
        here = DeliveryIndex(tx, group)
        operate(here, method, *arguments)
        return here.wakes, here.soonest_us and here.soonest_us - tx.now_us

    found: tuple[bool, int] = queues.do(work)
    return found


def test_who_is_to_be_woken_and_when(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic, in_flight=2)
    assert told(queues, made, "take", 2) == (False, 10 * SECOND)
    one, two = receipt_of(made, "1.1.1"), receipt_of(made, "1.2.1")
    assert told(queues, made, "extend", [one], SECOND) == (True, SECOND)
    assert told(queues, made, "ack", [one]) == (True, 0), "there was no room before"
    assert told(queues, made, "ack", [one]) == (False, 0)
    assert told(queues, made, "nack", [two], 3 * SECOND) == (True, 3 * SECOND)
    queues.take(made, 1)
    assert told(queues, made, "ack", [receipt_of(made, "1.3.1")]) == (False, 0), "there was room"
    assert told(queues, made, "move", END) == (True, 0)
    assert queues.call(made, "next_due_us") is None


def test_next_due(queues: Queues, topic: Topic) -> None:
    made = queues.group(topic, in_flight=2)
    taken = receipts(queues.take(made, 2))
    assert queues.call(made, "next_due_us") == START_US + 10 * SECOND
    queues.call(made, "nack", taken[:1], 3 * SECOND)
    assert queues.call(made, "next_due_us") == START_US + 3 * SECOND
    assert queues.call(made, "next_due_us", ready=False) == START_US + 10 * SECOND
    queues.advance(1)
    queues.take(made, 1)
    assert queues.call(made, "next_due_us") == START_US + 10 * SECOND, "no room for it"


# --- beside others ------------------------------------------------------------------------------


# --- cost ---------------------------------------------------------------------------------------


class CountingEngine(MemoryEngine):
    """Counts what is read, and what is passed over since it was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.gone: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        self.reads += 1 + sum(start <= key < end for key in self.gone)
        for pairs in super().scan(start, end, reverse):
            self.reads += len(pairs)
            yield pairs


def test_a_take_costs_the_same_whatever_lies_before_and_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.storage.books.MemoryEngine", CountingEngine)
    queues = Queues()
    engine = queues.book.engine
    assert isinstance(engine, CountingEngine)
    topic = queues.topic()
    made = queues.group(topic)

    def cost() -> tuple[int, int]:
        """Of a TAKE and an ACK of ten."""
        queues.book.durable()
        engine.reads = 0
        taken = receipts(queues.do(lambda tx: _pairs(fetch.take(DeliveryIndex(tx, made), 10))))
        queues.book.durable()
        took, engine.reads = engine.reads, 0
        queues.do(lambda tx: acks.ack(DeliveryIndex(tx, made), taken))
        queues.book.durable()
        engine.gone |= {made.hand_outs + int(r.split(".")[2]).to_bytes(8, "big") for r in taken}
        return took, engine.reads

    monkeypatch.setattr(queues, "check", lambda: None)
    queues.publish(topic, *range(20))
    first = cost()
    for _ in range(3):
        queues.publish(topic, *range(2000))
    assert cost() == first
    for _ in range(200):
        queues.advance(0.01)
        last = cost()
    queues.advance(60)
    assert last == cost() == first
    assert first[0] <= 25, "ten messages, and a few rows about them"
    assert first[1] <= 15


def _pairs(taken: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    return [(message["value"], message["receipt"]) for message in taken]


def test_the_indexes_are_looked_at_from_where_something_stands(
    queues: Queues, topic: Topic
) -> None:
    made = queues.group(topic)

    def since() -> tuple[int, int]:
        with queues.book.begin_transaction() as tx:
            state, _ = state_of(tx, made)
        return state.deadlines_from_us - START_US, state.ready_from_us - START_US

    taken = receipts(queues.take(made, 2))
    assert since()[0] == 10 * SECOND
    queues.call(made, "nack", taken)
    queues.advance(5)
    queues.take(made, 3)
    assert since() == (15 * SECOND, 6 * SECOND)


def test_many_receipts_are_worked_on_in_parts(queues: Queues) -> None:
    topic, dead = queues.topic(), queues.topic("dead")
    made = queues.group(topic, in_flight=5000, dead_letter="dead")
    queues.publish(topic, *range(2000))
    taken = [receipt for _ in range(2) for receipt in receipts(queues.take(made, 1000))]
    ticks: list[None] = []

    def work(method: str, *arguments: Any) -> tuple[dict[str, Any], int]:
        ticks.clear()
        answer = queues.do(
            lambda tx: operate(
                DeliveryIndex(tx, made, lambda: ticks.append(None)), method, *arguments
            )
        )
        return answer, len(ticks)

    twice = taken[:1000] + taken[:1000]
    assert work("extend", twice, 99 * SECOND) == (settled("extended", 1000, taken[:1000]), 4)
    assert work("ack", taken[1200:]) == (settled("acked", 800), 4)
    assert work("give_up", taken[600:1200]) == (settled("given_up", 600), 3)
    assert queues.values(dead) == list(range(600, 1200))
    assert work("nack", taken) == (settled("nacked", 600, taken[600:]), 8)
    assert values(queues.take(made, 1000)) == list(range(600))
