"""The rules of topics and their messages, on a manual clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from protocol import limits
from protocol.errors import (
    AlreadyExists,
    AssertFailed,
    BadRequest,
    Conflict,
    Full,
    NameRefused,
    Refusal,
    StillHeld,
    TooLarge,
    TypeRefused,
    Unknown,
)
from protocol.values import NONE, RecordId, unpaced
from storage.catalog import places
from storage.catalog.places import IfExists
from storage.topics import groups, messages, topics
from storage.topics.messages import TopicMessages
from storage.topics.topics import END, START, Topic
from storage.txn.transaction import Transaction
from tests.simulation.environment import START_US
from tests.storage.queue_model import moment
from tests.storage.queues import SECOND, Queues


@pytest.fixture
def queues() -> Queues:
    return Queues()


# --- declaring ----------------------------------------------------------------------------------


def test_a_topic_is_declared_once(queues: Queues) -> None:
    made = queues.topic("t", keep_us=5, max_bytes=7, largest=9, dedup_us=11, full="REFUSE")
    with pytest.raises(AlreadyExists):
        queues.topic("t")
    assert queues.topic("t", taken=IfExists.SKIP) == made
    over = queues.topic("t", comment="anew", taken=IfExists.OVERWRITE)
    assert (over.id, over.keep_us, over.full, over.comment) == (made.id, None, "DROP", "anew")
    with queues.book.begin_transaction() as tx:
        assert topics.topic(tx, queues.database, "t") == over
        assert topics.find_topic(tx, queues.database, "other") is None
        with pytest.raises(Unknown):
            topics.topic(tx, queues.database, "other")
    second = queues.topic("a")
    assert second.id > made.id
    assert queues.do(lambda tx: list(topics.each_topic(tx, queues.database, unpaced))) == [
        second,
        over,
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"keep_us": 0}, {"keep_us": -1}, {"keep_us": 1001 * 365 * 86_400 * SECOND},
        {"dedup_us": 0}, {"max_bytes": 0}, {"max_bytes": 2**63}, {"largest": 0},
        {"largest": limits.MESSAGE_BYTES + 1},
    ],
)  # fmt: skip
def test_settings_have_their_ranges(queues: Queues, settings: dict[str, int]) -> None:
    with pytest.raises(BadRequest):
        queues.topic("t", **settings)
    made = queues.topic("t")
    with pytest.raises(BadRequest):
        queues.do(lambda tx: topics.alter_topic(tx, replace(made, **settings)))  # type: ignore[arg-type]
    with pytest.raises(NameRefused):
        queues.topic("no name")


def filled(queues: Queues) -> Topic:
    """A topic that holds something in every way there is."""
    made = queues.topic("t", dedup_us=SECOND)
    group = queues.group(made, ordered=True)
    for number in range(4):
        queues.publish(made, number, id=str(number), key="k")
    queues.do(lambda tx: TopicMessages(tx, made).define_reader("r"))
    receipts = [receipt for _, receipt in queues.take(group, 2)]
    queues.call(group, "nack", receipts)
    queues.publish(made, "other")
    queues.take(group, 2)
    queues.do(lambda tx: sum(TopicMessages(tx, made).trim(1)))
    return made


def test_what_is_dropped_leaves_nothing(queues: Queues) -> None:
    allocators = 1  # of topics; that of groups goes with theirs
    before = queues.stored() + allocators
    made = filled(queues)
    queues.do(lambda tx: topics.drop_topic(tx, made))
    assert queues.stored() == before
    assert filled(queues).id > made.id, "numbers are never given again"
    queues.do(lambda tx: places.drop_database(tx, queues.database))
    assert queues.stored() == before - 1
    queues.database = queues.do(lambda tx: places.define_database(tx, queues.namespace, "d"))
    filled(queues)
    queues.do(lambda tx: places.drop_namespace(tx, queues.namespace))
    assert queues.stored() == before - 2


def test_what_is_published_and_dropped_in_one_transaction_leaves_nothing(queues: Queues) -> None:
    made = queues.topic("t")
    before = queues.stored()

    def publish_and_drop(tx: Transaction) -> None:
        TopicMessages(tx, made).publish([1])
        topics.drop_topic(tx, made)
        tx.pause()
        queues.book.clock.advance(SECOND)  # what is appended gets its time at the commit

    queues.do(publish_and_drop)
    assert queues.stored() < before


def test_a_dead_letter_topic_is_held_by_its_groups(queues: Queues) -> None:
    dead, made = queues.topic("dead"), queues.topic("t")
    group = queues.group(made, "g", dead_letter="dead")
    with pytest.raises(StillHeld, match="group g on topic t"):
        queues.do(lambda tx: topics.drop_topic(tx, dead))
    queues.do(lambda tx: groups.alter_group(tx, replace(group, dead_letter=None)))
    queues.do(lambda tx: topics.drop_topic(tx, dead))
    dead = queues.topic("dead")
    queues.do(lambda tx: groups.alter_group(tx, replace(group, dead_letter="dead")))
    queues.do(lambda tx: topics.drop_topic(tx, made))
    queues.do(lambda tx: topics.drop_topic(tx, dead))


# --- publishing ---------------------------------------------------------------------------------

VALUES: list[Any] = [
    None, True, 0, -(2**63), 1.5, Decimal("12.30"), "naïve ☃", b"\0\xff", timedelta(minutes=5),
    datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC), RecordId("person", ["a", 1]),
    [1, [Decimal("1.0")], NONE], {"a": {"b c": 1}},
]  # fmt: skip


def test_what_a_message_shows(queues: Queues) -> None:
    made = queues.topic()
    queues.advance(3)
    queues.publish(made, "v", key="kä", id="i", headers={"h": "ü"})
    queues.publish(made, "w", due_us=START_US + 5 * SECOND)
    queues.publish(made, "x", due_us=START_US + 3 * SECOND)
    at = moment(START_US + 3 * SECOND)
    first, second, third = queues.read(made)
    assert first == {
        "position": 1, "at": at, "key": "kä", "id": "i", "headers": {"h": "ü"}, "value": "v",
        "bytes": 32 + 3 + 1 + 6 + 2,
    }  # fmt: skip
    assert second == {
        "position": 2, "at": at, "key": None, "id": None, "headers": {}, "value": "w",
        "bytes": 34, "due": moment(START_US + 5 * SECOND),
    }  # fmt: skip
    assert "due" not in third, "what is due already is not delayed"


REFUSED: list[tuple[type[Refusal], dict[str, Any]]] = [
    (BadRequest, {"values": []}), (BadRequest, {"values": [1] * (limits.MESSAGES_PUBLISHED + 1)}),
    (BadRequest, {"values": [1, 2], "id": "i"}), (BadRequest, {"key": ""}),
    (BadRequest, {"key": "k" * 1025}), (BadRequest, {"key": "é" * 513}),
    (BadRequest, {"id": "a\0b"}), (BadRequest, {"due_us": START_US + 1001 * 365 * 86_400 * SECOND}),
    (TypeRefused, {"values": [NONE]}), (TypeRefused, {"values": [1, float("nan")]}),
    (TypeRefused, {"key": 1}), (TypeRefused, {"id": "\ud800"}),
    (TypeRefused, {"headers": {"h": 1}}), (TypeRefused, {"headers": []}),
    (TooLarge, {"headers": {str(n): "" for n in range(65)}}),
    (TooLarge, {"headers": {"h": "x" * 65_536}}), (TooLarge, {"values": ["small", "x" * 1000]}),
    (AssertFailed, {"expect": 1}),
]  # fmt: skip


@pytest.mark.parametrize("error, arguments", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_changes_nothing(
    queues: Queues, error: type[Refusal], arguments: dict[str, Any]
) -> None:
    made = queues.topic(largest=1000, dedup_us=SECOND)
    with queues.book.begin_transaction() as tx:
        named = {"values": [1], **arguments}
        with pytest.raises(error):
            TopicMessages(tx, made).publish(**named)
        assert not tx.size


def test_the_largest_message_fits(queues: Queues) -> None:
    made = queues.topic(largest=100)
    queues.publish(made, "x" * 66)
    assert queues.read(made)[0]["bytes"] == 100
    with pytest.raises(TooLarge) as refused:
        queues.publish(made, "x" * 67)
    assert refused.value.detail == {"limit": 100, "size": 101}


# --- publishing beside others -------------------------------------------------------------------


@pytest.mark.parametrize("prepared", [False, True])
def test_publishers_that_pause_do_not_conflict(queues: Queues, prepared: bool) -> None:
    made, other = queues.topic(dedup_us=10 * SECOND), queues.topic("other")
    queues.publish(made, "before")
    slow = queues.book.begin_transaction()
    here = TopicMessages(slow, made)
    first = here.publish(["slow 1", "slow 2"], key="k")
    slow.pause()
    assert queues.publish(made, "fast 1", "fast 2", "fast 3") == 2
    queues.advance(2)
    second = here.publish(["slow 3"], id="i")
    again = here.publish(["slow 4"], id="i")
    elsewhere = TopicMessages(slow, other).publish(["x"])
    if prepared:
        for _ in queues.book.ledger.prepare(slow):
            pass
    queues.book.commit(slow)
    assert (first.first, first.last, second.first, again.first) == (5, 6, 7, 7)
    assert again.duplicate
    assert elsewhere.first == 1
    queues.check()
    assert queues.values(made) == [
        "before", "fast 1", "fast 2", "fast 3", "slow 1", "slow 2", "slow 3",
    ]  # fmt: skip
    late = moment(START_US + 2 * SECOND)
    assert [message["at"] for message in queues.read(made, 4)] == [late] * 3
    assert queues.read(other)[0]["at"] == late, "the time of the commit, not of the beginning"
    assert queues.publish(made, "anew", id="i") == 7
    queues.advance(9)
    assert queues.publish(made, "anew", id="i") == 7, "remembered since the commit"
    queues.advance(1)
    assert queues.publish(made, "anew", id="i") == 8


def test_one_that_has_looked_at_the_end_conflicts(queues: Queues) -> None:
    made = queues.topic()
    queues.publish(made, 1)

    def read_end(here: TopicMessages) -> object:
        return here.read(1)

    def read_more(here: TopicMessages) -> object:
        return here.read(0, 100)

    def expect(here: TopicMessages) -> object:
        return here.publish([1], expect=here.last)

    def own(here: TopicMessages) -> object:
        here.publish([1])
        return here.last

    def trim(here: TopicMessages) -> object:
        here.publish([1])
        return list(here.trim(99))

    def own_message(here: TopicMessages) -> object:
        return here.read(here.publish([1]).first - 1, 1)

    for look in (read_end, read_more, expect, own, own_message, trim):
        slow = queues.book.begin_transaction()
        here = TopicMessages(slow, made)
        look(here)
        here.publish(["slow"])
        slow.pause()
        queues.publish(made, "fast")
        with pytest.raises(Conflict):
            queues.book.commit(slow)


# --- ids ----------------------------------------------------------------------------------------


def test_an_id_is_published_once_in_its_window(queues: Queues) -> None:
    made = queues.topic(dedup_us=5 * SECOND)

    def publish(id: str) -> tuple[int, bool]:
        found = queues.do(lambda tx: TopicMessages(tx, made).publish([1], id=id))
        return found.first, found.duplicate

    assert publish("a") == (1, False)
    queues.advance(5)
    queues.book.clock.advance(-1)
    assert publish("a") == (1, True)
    assert publish("b") == (2, False)
    queues.book.clock.advance(1)
    assert publish("a") == (3, False), "the window is over"
    queues.do(lambda tx: list(TopicMessages(tx, made).trim(99)))
    assert publish("a") == (3, True), "trimmed, and still known"


def test_ids_are_forgotten_in_slices(queues: Queues) -> None:
    made = queues.topic(dedup_us=5 * SECOND)
    for number in range(5):
        queues.publish(made, 1, id=str(number))
        queues.advance(1)

    def sweep(begin: bytes) -> tuple[int, bytes]:
        found: tuple[int, bytes] = queues.do(lambda tx: TopicMessages(tx, made).sweep_ids(2, begin))
        return found

    def next_us(begin: bytes = b"") -> int | None:
        found: int | None = queues.do(lambda tx: TopicMessages(tx, made).next_id_us(begin))
        return found

    assert next_us() == START_US + 5 * SECOND
    done, place = sweep(b"")
    assert done == 1
    assert sweep(place) == (0, place)
    assert next_us(place) == START_US + 6 * SECOND
    queues.advance(2)
    assert sweep(place)[0] == 2
    queues.advance(99)
    assert queues.do(lambda tx: TopicMessages(tx, made).sweep_ids(99))[0] == 2
    assert next_us() is None


# --- room ---------------------------------------------------------------------------------------


def test_a_full_topic_drops_the_oldest(queues: Queues) -> None:
    made = queues.topic(max_bytes=100)
    queues.publish(made, *range(10))
    assert queues.do(lambda tx: TopicMessages(tx, made).next_trim_us()) == START_US
    assert queues.do(lambda tx: TopicMessages(tx, made).trim_due()) == (7, False)
    assert queues.values(made) == [7, 8, 9]
    assert queues.do(lambda tx: TopicMessages(tx, made).next_trim_us()) is None
    figures = queues.do(lambda tx: TopicMessages(tx, made).figures(unpaced))
    assert (figures["first_position"], figures["bytes"], figures["messages"]) == (8, 99, 3)


@pytest.mark.parametrize("full", ["DROP", "REFUSE"])
def test_a_message_that_bytes_would_not_hold_is_refused(queues: Queues, full: Any) -> None:
    """It was acknowledged, and trimmed in the next moment."""
    made = queues.topic(max_bytes=100, full=full)
    queues.publish(made, 1)
    for values in (["x" * 200], ["y", "x" * 200]):
        with pytest.raises(TooLarge) as refused:
            queues.publish(made, *values)
        assert refused.value.detail == {"limit": 100, "size": 234}
    assert queues.values(made) == [1]
    queues.do(lambda tx: list(TopicMessages(tx, made).trim(2)))
    queues.publish(made, "x" * 66)

    def alter(size: int) -> None:
        queues.do(lambda tx: topics.alter_topic(tx, replace(made, max_bytes=size)))

    for smaller in (50, 99):
        with pytest.raises(TooLarge) as refused:
            alter(smaller)
        assert refused.value.detail == {"limit": smaller, "size": 100}
    with pytest.raises(TooLarge):
        queues.topic("t", max_bytes=99, taken=IfExists.OVERWRITE)
    alter(101)
    queues.do(lambda tx: list(TopicMessages(tx, made).trim(3)))
    alter(50)


def test_the_newest_message_stays_whatever_it_takes(queues: Queues) -> None:
    """A dead letter is taken whatever its topic holds: then it must not go in the next moment."""
    dead, made = queues.topic("dead", max_bytes=100), queues.topic("t")
    group = queues.group(made, dead_letter="dead", deliveries=1)
    queues.publish(made, "first", "second")
    for name in ("first", "second"):
        ((value, receipt),) = queues.take(group)
        assert value == name
        queues.call(group, "give_up", [receipt])
        for _ in range(3):
            queues.do(lambda tx: TopicMessages(tx, dead).trim_due())
        assert queues.values(dead) == [name]
        assert queues.do(lambda tx: TopicMessages(tx, dead).next_trim_us()) is None
    queues.do(lambda tx: topics.alter_topic(tx, replace(dead, comment="not about its size")))
    queues.publish(dead, 1)
    assert queues.do(lambda tx: TopicMessages(tx, dead).trim_due()) == (1, False)
    assert queues.values(dead) == [1]


def test_old_messages_are_trimmed_to_the_microsecond(queues: Queues) -> None:
    made = queues.topic(keep_us=5 * SECOND)
    queues.publish(made, 1)
    queues.advance(2)
    queues.publish(made, 2)
    assert queues.do(lambda tx: TopicMessages(tx, made).next_trim_us()) == START_US + 5 * SECOND
    queues.advance(3)
    queues.book.clock.advance(-1)
    assert queues.do(lambda tx: TopicMessages(tx, made).trim_due()) == (0, False)
    queues.book.clock.advance(1)
    assert queues.do(lambda tx: TopicMessages(tx, made).trim_due()) == (1, False)
    assert queues.values(made) == [2]
    assert queues.do(lambda tx: TopicMessages(tx, made).next_trim_us()) == START_US + 7 * SECOND


def test_retention_goes_in_slices(queues: Queues) -> None:
    made = queues.topic(keep_us=SECOND)
    count = limits.TRIM_MESSAGES + 10
    queues.publish(made, *range(count))
    queues.advance(1)
    queues.publish(made, "new")
    assert queues.do(lambda tx: TopicMessages(tx, made).trim_due()) == (limits.TRIM_MESSAGES, True)
    assert queues.do(lambda tx: TopicMessages(tx, made).trim_due()) == (10, False)
    assert queues.values(made) == ["new"]


# --- reading ------------------------------------------------------------------------------------


def test_trim(queues: Queues) -> None:
    made = queues.topic()
    count = limits.TRIM_MESSAGES * 3
    queues.publish(made, *range(count))

    def trim(before: int) -> int:
        return sum(queues.do(lambda tx: list(TopicMessages(tx, made).trim(before))))

    assert trim(0) == trim(1) == 0
    assert trim(3) == 2
    assert trim(3) == 0
    assert trim(count - 1) == count - 4
    assert queues.values(made) == [count - 2, count - 1]
    with pytest.raises(BadRequest):
        trim(-1)
    assert trim(2**62) == 2
    assert queues.read(made) == []
    assert queues.publish(made, "next") == count + 1
    assert queues.do(lambda tx: TopicMessages(tx, made).first) == count + 1


def test_reading_has_its_limits(queues: Queues) -> None:
    made = queues.topic()
    queues.publish(made, *range(2000))
    assert len(queues.do(lambda tx: TopicMessages(tx, made).read(0))) == 100
    assert [m["value"] for m in queues.read(made, 1995, 1000)] == [1995, 1996, 1997, 1998, 1999]
    assert queues.read(made, 99_999) == []
    for after, limit in ((0, 0), (0, 1001), (-1, 1)):
        with pytest.raises(BadRequest):
            queues.read(made, after, limit)
    queues.do(lambda tx: list(TopicMessages(tx, made).trim(500)))
    assert queues.read(made, 3, 1)[0]["position"] == 500


def test_an_answer_has_room_for_8_mib_or_one_message(queues: Queues) -> None:
    made = queues.topic()
    mib = "x" * (1 << 20)
    for _ in range(3):
        queues.publish(made, mib, mib, mib, mib, mib, "small")
    for after in range(18):
        found = queues.read(made, after)
        size = sum(message["bytes"] for message in found)
        following = queues.read(made, found[-1]["position"], 1)
        assert size <= limits.MESSAGES_READ_BYTES
        assert not following or size + following[0]["bytes"] > limits.MESSAGES_READ_BYTES
    whole = queues.publish(made, "x" * (limits.MESSAGE_BYTES - 40))
    assert [m["position"] for m in queues.read(made, whole - 1)] == [whole]
    assert [m["position"] for m in queues.read(made, whole - 2)] == [whole - 1]


# --- readers ------------------------------------------------------------------------------------


# --- redrive ------------------------------------------------------------------------------------


def test_readers(queues: Queues) -> None:
    made = queues.topic()
    queues.publish(made, *range(5))

    def do(method: str, *arguments: Any) -> Any:
        return queues.do(lambda tx: getattr(TopicMessages(tx, made), method)(*arguments))

    assert do("define_reader", "r") == 0
    with pytest.raises(AlreadyExists):
        do("define_reader", "r")
    assert do("define_reader", "r", END, IfExists.SKIP) == 0
    assert do("define_reader", "s", END) == 5
    assert do("commit_reader", "r", 3) == 3
    assert do("commit_reader", "r", 2) == 2
    for wrong in (-1, 6):
        with pytest.raises(BadRequest):
            do("commit_reader", "r", wrong)
    assert list(do("readers", unpaced)) == [("r", 2), ("s", 5)]
    queues.do(lambda tx: list(TopicMessages(tx, made).trim(5)))
    assert do("figures", unpaced)["readers"] == [
        {"name": "r", "position": 2, "lag": 1}, {"name": "s", "position": 5, "lag": 0},
    ]  # fmt: skip
    assert do("figures", unpaced)["lag"] == 1
    assert do("define_reader", "r", END, IfExists.OVERWRITE) == 5
    assert do("move_reader", "r", START) == 4
    do("drop_reader", "r")
    for method, *more in (("reader",), ("commit_reader", 1), ("drop_reader",)):
        with pytest.raises(Unknown):
            do(str(method), "r", *more)
    with pytest.raises(NameRefused):
        do("define_reader", "no name")


def test_redrive(queues: Queues) -> None:
    dead, made = queues.topic("dead"), queues.topic("t", dedup_us=SECOND)
    group = queues.group(made, dead_letter="dead", deliveries=1)
    queues.publish(made, "v", key="k", id="i", headers={"h": "1"}, due_us=START_US + 1)
    queues.advance(1)
    ((_, receipt),) = queues.take(group)
    queues.call(group, "nack", [receipt], None, "no")
    headers = queues.read(dead)[0]["headers"]
    assert headers == {
        "h": "1", "dead-topic": "t", "dead-group": "g", "dead-position": "1",
        "dead-attempts": "1", "dead-error": "no", "dead-at": "2026-09-21T14:13:21Z",
    }  # fmt: skip
    queues.publish(dead, *range(3))

    def redrive(limit: int) -> Any:
        return queues.do(lambda tx: messages.redrive(tx, dead, made, limit))

    moved = redrive(1)
    assert (moved.moved, moved.published.first, moved.published.last) == (1, 2, 2)
    back = queues.read(made, 1)[0]
    assert {**back, "at": None, "bytes": 0} == {
        "position": 2, "at": None, "key": "k", "id": "i", "headers": {"h": "1"}, "value": "v",
        "bytes": 0,
    }  # fmt: skip
    moved = redrive(10_000)
    assert (moved.moved, moved.published.first, moved.published.last) == (3, 3, 5)
    assert queues.values(dead) == []
    moved = redrive(1)
    assert (moved.moved, moved.published) == (0, None)
    for wrong in (0, 10_001):
        with pytest.raises(BadRequest):
            redrive(wrong)
    with pytest.raises(BadRequest):
        queues.do(lambda tx: messages.redrive(tx, dead, dead))


def test_redrive_into_a_full_topic_moves_nothing(queues: Queues) -> None:
    dead, made = queues.topic("dead"), queues.topic("t", max_bytes=50, full="REFUSE")
    queues.publish(dead, 1, 2)
    with pytest.raises(Full):
        queues.do(lambda tx: messages.redrive(tx, dead, made))
    assert queues.do(lambda tx: messages.redrive(tx, dead, made, 1)).moved == 1
    assert (queues.values(dead), queues.values(made)) == ([2], [1])


@pytest.mark.parametrize("bound", [{"largest": 50}, {"max_bytes": 50}])
def test_redrive_moves_nothing_that_is_too_large_for_the_other_topic(
    queues: Queues, bound: dict[str, int]
) -> None:
    dead, made = queues.topic("dead"), queues.topic("t", **bound)
    queues.publish(dead, 1, "x" * 50, 3)
    with pytest.raises(TooLarge) as refused:
        queues.do(lambda tx: messages.redrive(tx, dead, made))
    assert refused.value.detail == {"limit": 50, "size": 84, "position": 2}
    assert (len(queues.values(dead)), queues.values(made)) == (3, [])
    assert queues.do(lambda tx: messages.redrive(tx, dead, made, 1)).moved == 1
    assert queues.values(made) == [1]


def test_many_messages_are_worked_on_in_parts(queues: Queues) -> None:
    dead, made = queues.topic("dead"), queues.topic("t")
    ticks: list[None] = []

    def tick() -> None:
        ticks.append(None)

    queues.do(lambda tx: TopicMessages(tx, dead).publish(list(range(1000)), tick=tick))
    assert len(ticks) == 4
    ticks.clear()
    assert queues.do(lambda tx: messages.redrive(tx, dead, made, 900, tick)).moved == 900
    assert len(ticks) >= 4
    assert queues.values(made) == list(range(900))
    assert queues.values(dead) == list(range(900, 1000))
