"""TOPIC messages: what they ask, that they are the statements without a script, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actors.execution.units import SharedUnit
from actors.messages import operations
from protocol import limits
from protocol.errors import Busy, Draining, Refusal
from protocol.frames import MessageKind, WireMessage, encode
from protocol.rights import Verb
from protocol.values import NONE
from storage.topics.messages import TopicMessages as Rows
from surfaces.long_work import LongWork
from tests.actors.scripts.test_stalled_disk import Stall
from tests.callers import Granted, declare
from tests.logbook import Logbook
from tests.nodes import PASSWORD
from tests.receipts import settled
from tests.surfaces.wire.halls import Hall, code, hall_of
from tests.surfaces.wire.peers import Peer, until
from tests.tables import case

DECLARED = """
DEFINE TOPIC t DEDUP 1h;
DEFINE TOPIC small BYTES 400 FULL REFUSE;
DEFINE TOPIC dead;
DEFINE GROUP g ON t DEADLINE 1h IN FLIGHT 6;
DEFINE GROUP o ON t DEADLINE 1h DELIVERIES 2 DEAD LETTER dead ORDERED BY KEY
"""
SECOND = timedelta(seconds=1)
AT = {"topic": "t", "group": "g"}


class TopicHall(Hall):
    """With one peer that is signed in."""

    asker: Peer
    _last = 0

    def frame(self, op: str, db: str = "main", **fields: Any) -> bytes:
        self._last += 1
        return encode(MessageKind.TOPIC, self._last, {"op": op, "ns": "shop", "db": db, **fields})

    def say(self, op: str, **fields: Any) -> int:
        """Ask without waiting; the id."""
        self.asker.writer.write(self.frame(op, **fields))
        return self._last

    async def hear(self, id: int) -> Any:
        message = await self.asker.hear()
        assert message is not None and message.id == id, message
        return shown(message)

    async def ask(self, op: str, **fields: Any) -> Any:
        return await self.hear(self.say(op, **fields))

    async def resting(self, count: int) -> None:
        await until(lambda: self.here.node.registry.resting == count)


def shown(message: WireMessage | None) -> Any:
    """An answer's fields; of an error its code."""
    assert message is not None, "closed instead of an answer"
    if message.kind is MessageKind.ERROR:
        return code(message)
    assert message.kind is MessageKind.VALUE and message.body is not None, message
    return message.body


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[TopicHall]:
    async with hall_of(TopicHall, tmp_path / "store", DECLARED) as hall:
        hall.asker = await hall.peer()
        yield hall


# --- what is asked and answered -------------------------------------------------------------------


async def test_every_operation_and_its_answer(hall: TopicHall) -> None:
    assert await hall.ask("publish", topic="t", value=1) == {"position": 1, "duplicate": False}
    more = {"key": "k", "id": "i", "headers": {"a": "b"}, "delay": timedelta(0), "expect": 1}
    assert (await hall.ask("publish", topic="t", value=None, **more))["position"] == 2
    assert await hall.ask("publish", topic="t", value=0, id="i") == {
        "position": 2,
        "duplicate": True,
    }
    assert await hall.ask("publish", topic="t", values=[3, 4, 5]) == {
        "first": 3,
        "last": 5,
        "count": 3,
    }
    (one,) = (await hall.ask("take", **AT))["messages"]
    assert (one["position"], one["value"], one["attempt"], one["member"]) == (1, 1, 1, None)
    two = (await hall.ask("take", **AT, count=2, member="ana"))["messages"]
    assert [each["value"] for each in two] == [None, 3]
    assert (two[0]["key"], two[0]["id"], two[0]["headers"]) == ("k", "i", {"a": "b"})
    assert two[0]["member"] == "ana"
    receipts = [each["receipt"] for each in two]
    assert await hall.ask("extend", **AT, receipts=receipts, by=SECOND * 9) == settled(
        "extended", 2
    )
    assert await hall.ask("ack", **AT, receipts=[one["receipt"], one["receipt"]]) == settled(
        "acked", 1, [one["receipt"]]
    )
    assert await hall.ask("nack", **AT, receipts=receipts[:1], error="no") == settled("nacked", 1)
    assert await hall.ask("give_up", **AT, receipts=receipts[1:]) == settled("given_up", 1)
    (again,) = (await hall.ask("take", **AT))["messages"]
    assert (again["position"], again["attempt"]) == (2, 2)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("~~~", {}, "op"),
    ("publish", {"value": 1}, "topic"),
    ("publish", {"topic": "t"}, "value"),
    ("publish", {"topic": "t", "value": 1, "values": [1]}, "value"),
    ("publish", {"topic": "t", "value": 1, "group": "g"}, "group"),
    ("publish", {"topic": "t", "value": 1, "delay": SECOND, "at": datetime.now(UTC)}, "at"),
    ("publish", {"topic": "x" * 65, "value": 1}, "topic"),
    ("take", {"topic": "t"}, "group"),
    ("take", {**AT, "counts": 1}, "counts"),
    ("take", {**AT, "timeout": 5}, "timeout"),
    ("take", {**AT, "timeout": timedelta(0)}, "timeout"),
    ("take", {**AT, "db": 5}, "db"),
    ("ack", dict(AT), "receipts"),
    ("ack", {**AT, "receipts": [], "by": SECOND}, "by"),
    ("extend", {**AT, "receipts": []}, "by"),
]


async def test_a_body_is_read_strictly(hall: TopicHall) -> None:
    for number, (op, fields, field) in enumerate(BAD, 1):
        with case(op, fields):
            id = hall.say(op, **fields)
            error = (await hall.asker.must_hear(MessageKind.ERROR, id))["error"]
            assert (error["code"], error["detail"].get("field")) == ("BadRequest", field)
            published = await hall.ask("publish", topic="t", value=1)
            assert published["position"] == number, "the connection is well"


# --- the statement and the message are one --------------------------------------------------------

WORDS = {"ack": "ACK", "nack": "NACK", "extend": "EXTEND", "give_up": "GIVE UP"}
Given = Callable[[list[str]], list[Any]]


def statement(op: str, fields: dict[str, Any]) -> str:
    """The statement that says what a TOPIC does."""
    placed = {"value", "values", "count", "receipts", "topic", "group"}
    clauses = "".join(f" {name.upper()} ${name}" for name in fields if name not in placed)
    topic, group = fields.get("topic", "t"), fields.get("group", "g")
    if op == "publish":
        many = "VALUES $values" if "values" in fields else "VALUE $value"
        return f"PUBLISH INTO {topic} {many}{clauses}"
    if op == "take":
        count = "$count " if "count" in fields else ""
        return f"TAKE {count}FROM {topic} AS {group}{clauses}"
    return f"{WORDS[op]} {topic} AS {group} RECEIPTS $receipts{clauses}"


def of(*numbers: int) -> Given:
    return lambda receipts: [receipts[number] for number in numbers]


WRONG: tuple[Any, ...] = (True, 1.5, "x", [1], {"a": 1}, SECOND, datetime.now(UTC), -1, 2**62)
AWKWARD: list[tuple[str, dict[str, Any]]] = [
    *[("publish", {"value": 1, name: wrong}) for name in ("key", "id", "headers")
      for wrong in WRONG],
    *[("publish", {"value": 1, name: wrong}) for name in ("delay", "at", "expect")
      for wrong in WRONG],
    *[("publish", {"values": wrong}) for wrong in (*WRONG, [], [NONE], list(range(10_001)))],
    ("publish", {"value": NONE}),
    ("publish", {"value": 1, "key": ""}),
    ("publish", {"value": 1, "key": "k" * 2_000}),
    ("publish", {"value": 1, "id": "i"}),
    ("publish", {"value": 1, "id": "i"}),
    ("publish", {"values": [1, 2], "id": "j"}),
    ("publish", {"value": 1, "headers": {"a": 1}}),
    ("publish", {"value": 1, "headers": {str(n): "" for n in range(65)}}),
    ("publish", {"value": 1, "delay": timedelta(days=400_000)}),
    ("publish", {"value": 1, "at": datetime(9999, 1, 1, tzinfo=UTC)}),
    ("publish", {"value": 1, "at": datetime(1960, 1, 1, tzinfo=UTC)}),
    ("publish", {"topic": "small", "value": "x" * 200}),
    ("publish", {"topic": "small", "value": "x" * 200}),
    ("publish", {"topic": "small", "value": "x" * 900}),
    ("publish", {"topic": "nowhere", "value": 1}),
    *[("take", {name: wrong}) for name in ("count", "member", "wait") for wrong in WRONG],
    ("take", {"count": 0}),
    ("take", {"count": 1_001}),
    ("take", {"member": ""}),
    ("take", {"member": "m" * 300}),
    ("take", {"wait": timedelta(seconds=301)}),
    ("take", {"wait": timedelta(0), "group": "o", "count": 2}),
    ("take", {"group": "nobody"}),
    ("take", {"topic": "nowhere"}),
    *[(op, {"receipts": wrong, **more}) for op, more in (
        ("ack", {}), ("nack", {}), ("extend", {"by": SECOND}), ("give_up", {}))
      for wrong in (*WRONG, [], ["x"], [None], ["1.1.1.1"], ["00000000.1.1.1.1"] * 10_001)],
    *[("nack", {"receipts": of(0), "delay": wrong}) for wrong in WRONG if wrong != SECOND],
    *[(op, {"receipts": of(0), "error": wrong}) for op in ("nack", "give_up") for wrong in WRONG
      if wrong != "x"],
    ("nack", {"receipts": of(0), "error": "x" * 5_000}),
    *[("extend", {"receipts": of(0), "by": wrong}) for wrong in (*WRONG, timedelta(0))
      if wrong != SECOND],
    ("extend", {"receipts": of(0, 1), "by": SECOND * 100}),
    ("ack", {"receipts": of(0, 0)}),
    ("ack", {"receipts": lambda receipts: [receipts[0]] * 300}),
    ("nack", {"receipts": of(0, 1), "delay": timedelta(0)}),
    ("give_up", {"receipts": of(2), "error": "broken"}),
    ("ack", {"receipts": of(3), "group": "o"}),
    ("ack", {"receipts": of(3), "group": "nobody"}),
    ("take", {"count": 9}),
]  # fmt: skip


def same(found: Any, db: str) -> Any:
    """What an answer says, without times and what tells one database from the other."""
    if isinstance(found, dict):
        gone = ("at", "deadline", "due", "statement", "line", "column", "near", "request")
        return {name: same(one, db) for name, one in found.items() if name not in gone}
    if isinstance(found, list):
        return [same(one, db) for one in found]
    if isinstance(found, str):
        parts = found.split(".")
        if len(parts) == 5 and all(part.isdigit() for part in parts[1:]):
            return ".".join(parts[1:])  # a receipt begins with digits of its topic
        # A text that does not parse is shown with the place in it.
        return found.replace(f"shop.{db}", "shop.x").partition(" (line ")[0]
    return found


async def differences(hall: TopicHall) -> list[str]:
    """Where statement and message answer otherwise, each in a database of its own."""
    receipts: dict[str, list[str]] = {}
    for db in ("one", "two"):
        await hall.here.values(f"DEFINE DATABASE shop.{db}; USE shop.{db}; {DECLARED}")
        taken = await hall.here.values(
            f"USE shop.{db}; PUBLISH INTO t VALUES 1..9; TAKE 5 FROM t AS g"
        )
        receipts[db] = [each["receipt"] for each in taken[-1]]
    found = []
    for op, given in AWKWARD:
        told: list[Any] = []
        for db in ("one", "two"):
            fields = {
                name: one(receipts[db]) if callable(one) else one for name, one in given.items()
            }
            if db == "one":
                params = {
                    name: one for name, one in fields.items() if name not in ("topic", "group")
                }
                answer = await hall.here.answer(statement(op, fields), params, place=("shop", db))
                if answer.refusal is not None:
                    error = answer.refusal.answer(None)
                else:
                    error = None
                    value = answer.results[-1].value
                    value = {"messages": value} if op == "take" else value
            else:
                at = {"topic": "t"} if op == "publish" else AT
                hall.say(op, db=db, **{**at, **fields})
                message = await hall.asker.hear()
                assert message is not None and message.body is not None
                error = message.body["error"] if message.kind is MessageKind.ERROR else None
                value = None if error else message.body
            told.append(same(error or value, db))
        if told[0] != told[1]:
            found.append(f"{op} {given!r:.120}: {told[0]!r} and {told[1]!r:.300}")
    return found


async def test_statement_and_message_answer_alike(
    hall: TopicHall, figure: Callable[[str, object], None]
) -> None:
    assert not await differences(hall)
    figure("operations on messages, asked in both ways", len(AWKWARD))


# --- many at once ---------------------------------------------------------------------------------


async def test_those_of_a_turn_share_commits(
    hall: TopicHall, figure: Callable[[str, object], None]
) -> None:
    node = hall.here.node
    peers = [await hall.peer() for _ in range(8)]
    before = node.committer.committed
    for number, peer in enumerate(peers):
        peer.writer.write(b"".join(hall.frame("publish", topic="t", value=number)
                                   for _ in range(50)))  # fmt: skip
    positions: list[int] = []
    for peer in peers:
        mine = []
        for _ in range(50):
            message = await peer.hear()
            assert message is not None
            mine.append((message.id, shown(message)["position"]))
        assert mine == sorted(mine), "messages of one connection are appended in their order"
        positions += [position for _, position in mine]
    assert sorted(positions) == list(range(1, 401))
    commits = node.committer.committed - before
    assert commits <= 40, "what comes together is not gathered"
    figure("400 publishes of 8 connections", f"{commits} commits")


async def test_what_is_refused_spoils_nothing_beside_it(hall: TopicHall) -> None:
    asked = [
        hall.frame("publish", topic="t", value=1),
        hall.frame("publish", topic="t", value=2, expect=7),
        hall.frame("publish", topic="small", value="x" * 600),
        hall.frame("ack", **AT, receipts=["nonsense"]),
        hall.frame("publish", topic="nowhere", value=1),
        hall.frame("publish", topic="t", value=3),
        hall.frame("take", **AT, count=5),
    ]
    hall.asker.writer.write(b"".join(asked))
    told = [shown(await hall.asker.hear()) for _ in asked]
    assert [one if isinstance(one, str) else one.get("position") for one in told] == [
        1, "AssertFailed", "TooLarge", "BadRequest", "Unknown", 2, None,
    ]  # fmt: skip
    assert [each["value"] for each in told[-1]["messages"]] == [1, 3]


async def test_one_that_is_refused_half_done_takes_nobody_with_it(
    hall: TopicHall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction has grown too large, or it met a bug, when it had written already: the others
    are run once more, each alone, and each exactly once."""
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 20_000)
    asked = [
        hall.frame("publish", topic="t", value=number) if number % 3
        else hall.frame("publish", topic="t", values=["x" * 300] * 100)
        for number in range(12)
    ]  # fmt: skip
    hall.asker.writer.write(b"".join(asked))
    told = [shown(await hall.asker.hear()) for _ in asked]
    assert [one for one in told if isinstance(one, str)] == ["TooLarge"] * 4
    found = await hall.here.value("READ FROM t AFTER 0")
    assert [each["value"] for each in found] == [1, 2, 4, 5, 7, 8, 10, 11]


async def test_a_bug_in_one_takes_nobody_with_it(
    hall: TopicHall, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("handler failed")
    publish = operations.publish

    def broken(service: Any, tx: Any, topic: Any, operation: Any, **named: Any) -> Any:
        done = publish(service, tx, topic, operation, **named)
        if operation.values[0] == "bug":
            raise RuntimeError("planted")
        return done

    monkeypatch.setattr(operations, "publish", broken)
    values = [1, "bug", 2, "bug", 3]
    hall.asker.writer.write(b"".join(hall.frame("publish", topic="t", value=one) for one in values))
    told = [shown(await hall.asker.hear()) for _ in values]
    assert [one if isinstance(one, str) else one["position"] for one in told] == [
        1, "Failed", 2, "Failed", 3,
    ]  # fmt: skip
    assert [each["value"] for each in await hall.here.value("READ FROM t AFTER 0")] == [1, 2, 3]


async def test_half_done_work_that_is_committed_is_seen(
    hall: TopicHall, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """The test above sees an engine that commits what was left half done."""
    work = SharedUnit.work

    def careless(self: SharedUnit[Any], tx: Any) -> None:
        try:
            work(self, tx)
        except Refusal as refusal:
            self.done[-1].refusal = refusal
            self.wrote = tx.size > 0

    monkeypatch.setattr(SharedUnit, "work", careless)
    with pytest.raises(AssertionError):
        await test_a_bug_in_one_takes_nobody_with_it(hall, monkeypatch, logbook)


async def test_a_batch_for_many_workers_is_few_commits(
    hall: TopicHall, figure: Callable[[str, object], None]
) -> None:
    """Each that has taken lets the next look in the same transaction."""
    await hall.here.value("ALTER GROUP g ON t SET IN FLIGHT 100")
    peers = [await hall.peer() for _ in range(30)]
    for peer in peers:
        peer.writer.write(hall.frame("take", **AT, wait=SECOND * 60))
    await hall.resting(30)
    before = hall.here.node.committer.committed
    assert (await hall.ask("publish", topic="t", values=list(range(30))))["count"] == 30
    taken = []
    for peer in peers:
        (one,) = shown(await peer.hear())["messages"]
        taken.append(one["value"])
    assert taken == list(range(30)), "in the order in which they stood"
    commits = hall.here.node.committer.committed - before
    assert commits <= 3
    figure("30 messages for 30 waiting workers", f"{commits} commits")


# --- waiting --------------------------------------------------------------------------------------


async def test_scripts_and_messages_wait_in_one_line(hall: TopicHall) -> None:
    first = hall.say("take", **AT, wait=SECOND * 60, member="first")
    await hall.resting(1)
    script = asyncio.ensure_future(hall.here.value("TAKE FROM t AS g MEMBER 'second' WAIT 1m"))
    await until(lambda: hall.here.node.registry.waiting("http") == 1)
    third = hall.say("take", **AT, wait=SECOND * 60, member="third")
    await hall.resting(2)
    await hall.here.value("PUBLISH INTO t VALUES [1, 2, 3]")
    assert [one["value"] for one in (await hall.hear(first))["messages"]] == [1]
    assert [one["value"] for one in await script] == [2]
    assert [one["value"] for one in (await hall.hear(third))["messages"]] == [3]


async def test_a_wait_that_is_over_is_answered_with_nothing(hall: TopicHall) -> None:
    assert await hall.ask("take", **AT, wait=timedelta(milliseconds=20)) == {"messages": []}
    assert await hall.ask("take", **AT, wait=SECOND * 60, timeout=SECOND / 50) == "StatementTimeout"
    assert len(hall.here.node.topics.waits) == 0


async def test_what_waits_is_seen_and_ended(hall: TopicHall) -> None:
    ids = [hall.say("take", **AT, wait=SECOND * 60) for _ in range(2)]
    await hall.resting(2)
    shown_as = await hall.here.value("INFO FOR RUNNING")
    mine = [one for one in shown_as if one["waiting"]]
    assert {one["text"] for one in mine} == {"TAKE $count FROM t AS g WAIT $wait"}
    assert {one["user"] for one in mine} == {"root"} and mine[0]["left"] is None
    await hall.here.value(f"KILL '{mine[0]['id']}'")
    assert await hall.hear(ids[0]) == "Cancelled"
    hall.asker.say(MessageKind.CANCEL, ids[1])
    assert await hall.hear(ids[1]) == "Cancelled"
    assert len(hall.here.node.topics.waits) == 0


async def test_who_goes_away_waits_no_more_and_takes_nothing(hall: TopicHall) -> None:
    goes = await hall.peer()
    goes.writer.write(hall.frame("take", **AT, wait=SECOND * 60))
    await hall.resting(1)
    stays = hall.say("take", **AT, wait=SECOND * 60)
    await hall.resting(2)
    await goes.close()
    await hall.resting(1)
    await hall.here.value("PUBLISH INTO t VALUE 1")
    (one,) = (await hall.hear(stays))["messages"]
    assert (one["value"], one["attempt"]) == (1, 1)


@pytest.mark.parametrize(
    "what, code",
    [
        ("DROP GROUP g ON t", "Unknown"),
        ("DROP TOPIC t", "Unknown"),
        ("DROP GROUP g ON t; DEFINE GROUP g ON t DEADLINE 1h", "Unknown"),
        ("DEFINE NODE ROLES serving", None),
    ],
)
async def test_what_it_waits_for_goes(hall: TopicHall, what: str, code: str | None) -> None:
    id = hall.say("take", **AT, wait=SECOND * 60)
    await hall.resting(1)
    told = await hall.here.answer(what)
    assert told.refusal is None
    found = await hall.hear(id)
    assert found == code if code is not None else found in ("NotWritable", {"messages": []})
    assert len(hall.here.node.topics.waits) == 0


async def test_a_stop_ends_what_waits(hall: TopicHall) -> None:
    id = hall.say("take", **AT, wait=SECOND * 60)
    await hall.resting(1)
    hall.here.node.registry.end_all(Draining("the node is stopping"))
    assert await hall.hear(id) == "Draining"
    hall.here.node.messages.stop()
    assert await hall.ask("publish", topic="t", value=1) == "Draining"


# --- rights ---------------------------------------------------------------------------------------


async def test_rights_are_the_statements(hall: TopicHall) -> None:
    node = hall.here.node
    granted = Granted(node)
    await declare(node, "eve", "member", "shop.main", password=PASSWORD)
    eve = await hall.peer("eve")

    async def as_eve(op: str, **fields: Any) -> Any:
        eve.writer.write(hall.frame(op, **fields))
        return shown(await eve.hear())

    assert await as_eve("publish", topic="t", value=1) == "Unknown"
    assert await as_eve("take", **AT) == "Unknown"
    granted.grant("eve", Verb.WRITE, "shop", "main", "t", kind="topic")
    assert (await as_eve("publish", topic="t", value=1))["position"] == 1
    assert await as_eve("take", **AT) == "NotAllowed"
    granted.grant("eve", Verb.CONSUME, "shop", "main", "t", kind="topic")
    (one,) = (await as_eve("take", **AT))["messages"]
    assert (await as_eve("ack", **AT, receipts=[one["receipt"]]))["acked"] == 1
    # What is taken away while it waits is not handed out.
    eve.writer.write(hall.frame("take", **AT, wait=SECOND * 60))
    await hall.resting(1)
    granted.revoke("eve")
    await hall.here.value("PUBLISH INTO t VALUE 2")
    assert shown(await eve.hear()) == "Unknown"


# --- what they hold -------------------------------------------------------------------------------


async def test_takes_are_held_to_the_room_of_their_answers(hall: TopicHall) -> None:
    """A peer asks for a hundred megabytes and does not read: what is handed out stays within the
    room, and all of it comes once it reads."""
    await hall.here.value("ALTER GROUP g ON t SET IN FLIGHT 1000")
    for _ in range(6):
        await hall.here.value("PUBLISH INTO t VALUES $v", {"v": ["x" * 500_000] * 20})
    peer = await hall.peer()
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(120):
        peer.writer.write(hall.frame("take", **AT))
    await until(lambda: hall.surface._wire.answers.total > 0)
    info = await hall.here.value("INFO FOR GROUP g ON t")
    assert info["in_flight"] < 60, "handed out beyond the room"
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
    positions = []
    for _ in range(120):
        (one,) = shown(await peer.hear())["messages"]
        positions.append(one["position"])
    assert sorted(positions) == list(range(1, 121))


@pytest.mark.parametrize("said", [True, False])
async def test_what_is_being_encoded_takes_room_until_it_is_said(
    hall: TopicHall, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the TAKEs behind it hand out more, as long as that lasts; and what then finds no room
    on the connection is with nobody until its deadline."""
    encoding, go_on = asyncio.Event(), asyncio.Event()
    run, refused = LongWork.run, [] if said else [Busy("not now")]

    async def waits(work: LongWork, user: str, call: Callable[[Any], Any]) -> Any:
        encoding.set()
        await go_on.wait()
        if refused:
            raise refused.pop()
        return await run(work, user, call)

    for _ in range(6):
        await hall.ask("publish", topic="t", value="x" * 900_000)
    with monkeypatch.context() as patched:
        patched.setattr(LongWork, "run", waits)
        first = hall.say("take", **AT, count=5)
        await encoding.wait()
        second = hall.say("take", **AT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hall.asker.hear(), 0.2)
        assert (await hall.here.value("INFO FOR GROUP g ON t"))["in_flight"] == 5
        go_on.set()
        answer = await hall.hear(first)
    assert answer == "Busy" if not said else len(answer["messages"]) == 5
    assert [one["position"] for one in (await hall.hear(second))["messages"]] == [6]
    connection = hall.only_connection
    await until(lambda: not connection.outgoing.unsent)
    assert connection._messages._room.left == connection.outgoing.room


async def test_what_was_handed_out_and_lost_holds_no_room(hall: TopicHall) -> None:
    """The disk keeps a TAKE waiting beyond its time: nothing of it will be said, so the next one
    has all the room that there is, and the connection goes on."""
    for _ in range(8):
        await hall.ask("publish", topic="t", value="x" * 900_000)
    await hall.here.value("ALTER GROUP g ON t SET IN FLIGHT 7")
    stall = Stall(hall.here.node)
    try:
        lost = hall.say("take", **AT, count=7, timeout=timedelta(milliseconds=50))
        assert await hall.hear(lost) == "UnknownOutcome"
    finally:
        stall.end()
    assert await hall.ask("publish", topic="t", value=1)
    assert (await hall.ask("take", **AT))["messages"] == [], "all are handed out"
    hall.asker.say(MessageKind.PING, 999)
    await hall.asker.must_hear(MessageKind.PONG, 999)
    connection = hall.only_connection
    assert connection._messages._room.left == connection.outgoing.room


# --- cancelled, and who asks ----------------------------------------------------------------------


def body(op: str, **fields: Any) -> dict[str, Any]:
    return {"op": op, "ns": "shop", "db": "main", **fields}


async def test_what_was_cancelled_is_not_done_in_the_name_of_the_next(hall: TopicHall) -> None:
    """An id is free once its request is answered: another one may have it in the same read."""
    frames = [
        encode(MessageKind.TOPIC, 5, body("publish", topic="t", value="cancelled")),
        encode(MessageKind.CANCEL, 5),
        encode(MessageKind.TOPIC, 5, body("publish", topic="t", value="published")),
    ]
    hall.asker.writer.write(b"".join(frames))
    assert await hall.hear(5) == "Cancelled"
    assert (await hall.hear(5))["position"] == 1
    (one,) = (await hall.ask("take", **AT, count=6))["messages"]
    assert one["value"] == "published"


async def test_a_take_that_is_done_is_not_cancelled(
    hall: TopicHall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CANCEL comes while the answer is being encoded, in turns with other work: the messages are
    handed out, and are said."""
    encoding, go_on = asyncio.Event(), asyncio.Event()
    run = LongWork.run

    async def waits(work: LongWork, user: str, call: Callable[[Any], Any]) -> Any:
        encoding.set()
        await go_on.wait()
        return await run(work, user, call)

    for _ in range(2):
        await hall.ask("publish", topic="t", value="x" * 9_000)
    monkeypatch.setattr(LongWork, "run", waits)
    taking = hall.say("take", **AT, count=2)
    await encoding.wait()
    hall.asker.say(MessageKind.CANCEL, taking)
    hall.asker.say(MessageKind.PING, 999)
    await hall.asker.must_hear(MessageKind.PONG, 999)  # the CANCEL has been read
    go_on.set()
    assert [one["position"] for one in (await hall.hear(taking))["messages"]] == [1, 2]


@pytest.mark.parametrize("then", [{"user": "eve", "password": PASSWORD}, {}])
async def test_what_found_no_room_is_run_by_whom_it_was_sent(
    hall: TopicHall, then: dict[str, str]
) -> None:
    """An AUTH stands behind a TAKE that finds no room before the peer has taken more."""
    await declare(hall.here.node, "eve", "member", "shop.main", password=PASSWORD)
    for _ in range(7):
        await hall.ask("publish", topic="t", value="x" * 900_000)
    peer = await hall.peer()
    frames = [
        encode(MessageKind.TOPIC, 1, body("take", **AT, count=5)),
        encode(MessageKind.TOPIC, 2, body("take", **AT)),
        encode(MessageKind.AUTH, 3, then),
    ]
    peer.writer.write(b"".join(frames))
    positions = []
    for _ in range(2):
        positions += [one["position"] for one in shown(await peer.hear())["messages"]]
    assert positions == [1, 2, 3, 4, 5, 6]
    welcome = await peer.must_hear(MessageKind.WELCOME, 3)
    assert (welcome["user"] or {}).get("name") == then.get("user")


async def test_an_open_one_counts_more_than_its_frame(hall: TopicHall) -> None:
    peer = await hall.peer()
    for _ in range(64):
        peer.writer.write(hall.frame("take", **AT, wait=SECOND * 60))
    await hall.resting(64)
    assert hall.surface._wire.requests.total >= 64 * limits.KIB


async def test_publishes_are_what_the_rules_say(
    hall: TopicHall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id seen twice in one commit is published once."""
    frames = [hall.frame("publish", topic="t", value=number, id="same") for number in range(5)]
    hall.asker.writer.write(b"".join(frames))
    told = [shown(await hall.asker.hear()) for _ in frames]
    assert told == [{"position": 1, "duplicate": number > 0} for number in range(5)]
    monkeypatch.setattr(Rows, "_known", lambda self, id: None)
    assert (await hall.ask("publish", topic="t", value=1, id="same"))["duplicate"] is False


# --- sequences ------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", [7, 8])
async def test_what_has_changed_something_says_at_which_commit(hall: TopicHall, minor: int) -> None:
    hall.asker = await hall.peer(minor=[0, minor])
    upto, on_t = hall.here.node.committer, {"topic": "t"}

    def tells(answer: dict[str, Any]) -> bool:
        assert answer.get("seq") in (None, upto.commit_index)
        return "seq" in answer

    new = minor >= 8
    assert tells(await hall.ask("publish", **on_t, value=1, id="once")) == new
    assert not tells(await hall.ask("publish", **on_t, value=1, id="once")), "a duplicate"
    assert tells(await hall.ask("publish", **on_t, values=[0] * 300)) == new, "run as a script"
    taken = await hall.ask("take", **on_t, group="g", count=2)
    assert tells(taken) == new
    one, other = [message["receipt"] for message in taken["messages"]]
    assert tells(await hall.ask("ack", **on_t, group="g", receipts=[one])) == new
    assert not tells(await hall.ask("ack", **on_t, group="g", receipts=[one])), "stale"
    many = [one] * 300
    assert not tells(await hall.ask("ack", **on_t, group="g", receipts=many)), "run as a script"
    assert tells(await hall.ask("nack", **on_t, group="g", receipts=[other])) == new
