"""Statements on topics: their declarations, messages, readers, consumer groups and deliveries.

Each works in the current transaction. Work after a commit (waking consumers, positions that only
the commit assigns) is left to `Execution.afterwards`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from actors.messages import operations
from actors.scripts.execution import Execution
from actors.scripts.handlers import RequiredWhen, Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from actors.topics.service import DeliveredMessages
from actors.topics.waiting import StatementWait, WaitQueue, WaitTarget
from language import tree
from protocol import limits
from protocol.errors import Unknown
from protocol.messages import (
    AckMessages,
    ExtendMessages,
    GiveUpMessages,
    NackMessages,
    PublishMessages,
    Settling,
    TakeMessages,
    integer,
    lasting,
    moment,
    receipts,
    text,
    values,
    waiting,
)
from protocol.rights import CONSUME, DEFINE, INFO, NOTHING, READ, WRITE, SecurableKind
from protocol.text import duration
from protocol.values import MICROSECOND, NONE, Value
from storage.catalog.places import Database
from storage.topics import groups, topics
from storage.topics.deliveries import group as group_deliveries
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import Group
from storage.topics.message_rows import NOTHING_HELD, TopicContents, held_by_all
from storage.topics.messages import TopicMessages, bounded_bytes, redrive
from storage.topics.topics import START, StartPosition, Topic

_CONSUMES: Final = [Requires(TakeMessages.needs, SecurableKind.TOPIC, ("topic",))]
_DEFINES_GROUP: Final = [
    Requires(DEFINE, SecurableKind.TOPIC, ("topic",)),
    # Readers of the dead letter topic get messages of this one: with a short deadline all of them.
    Requires(READ, SecurableKind.TOPIC, ("topic",), RequiredWhen.BRINGS),
    Requires(WRITE, SecurableKind.TOPIC, ("dead_letter",)),
]

# --- topics ---------------------------------------------------------------------------------------


@handles(tree.DefineTopic, "none", writes=True, needs=[Requires(DEFINE, SecurableKind.DATABASE)])
def define_topic(run: Execution, statement: tree.DefineTopic, database: Database) -> Value:
    """Define a topic.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    """
    made = topics.define_topic(
        run.transaction,
        database,
        statement.name,
        keep_us=_microseconds(statement.keep),
        max_bytes=statement.max_bytes,
        largest=limits.MESSAGE_BYTES if statement.largest is None else statement.largest,
        dedup_us=_microseconds(statement.dedup),
        full=statement.full,
        comment=statement.comment,
        taken=IF_TAKEN[statement.exists],
    )
    # A new topic has no due work; an overwritten one may have another KEEP.
    if statement.exists is tree.Exists.OVERWRITE:
        _look_after(run, made)
    return NONE


_TOPIC_SETTINGS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "keep": ("keep_us", lambda value: _microseconds(value)),
    "max_bytes": ("max_bytes", lambda value: value),
    "largest": ("largest", lambda value: limits.MESSAGE_BYTES if value is None else value),
    "dedup": ("dedup_us", lambda value: _microseconds(value)),
    "full": ("full", lambda value: "DROP" if value is None else value),
    "comment": ("comment", lambda value: value),
}


@handles(
    tree.AlterTopic, "none", writes=True, needs=[Requires(DEFINE, SecurableKind.TOPIC, ("name",))]
)
def alter_topic(run: Execution, statement: tree.AlterTopic, topic: Topic) -> Value:
    """Change the named settings of a topic; keep the others."""
    fields = {_TOPIC_SETTINGS[name][0]: _TOPIC_SETTINGS[name][1](value)
              for name, value in statement.changes}  # fmt: skip
    changed = replace(topic, **fields)
    topics.alter_topic(run.transaction, changed)
    _look_after(run, changed)
    return NONE


@handles(
    tree.DropTopic,
    "none",
    writes=True,
    needs=[
        # The database decides; the topic is looked up, and needs no privilege of its own.
        Requires(DEFINE, SecurableKind.DATABASE),
        Requires(NOTHING, SecurableKind.TOPIC, ("name",)),
    ],
)
def drop_topic(
    run: Execution, statement: tree.DropTopic, _database: Database, topic: Topic
) -> Value:
    """Drop a topic with its messages, readers and groups."""
    run.reason = statement.reason
    topics.drop_topic(run.transaction, topic, run.tick)
    run.afterwards.append(run.services.topics.declarations_changed)
    return NONE


@handles(
    tree.TrimTopic, "value", writes=True, needs=[Requires(DEFINE, SecurableKind.TOPIC, ("name",))]
)
def trim_topic(run: Execution, statement: tree.TrimTopic, topic: Topic) -> Value:
    """Delete every message before a position."""
    run.reason = statement.reason
    trimmed = 0
    for part in TopicMessages(run.transaction, topic).trim(
        _integer(run, statement.before, "BEFORE")
    ):
        trimmed += part
        run.tick()
    run.afterwards.append(lambda: run.services.topics.waits.trimmed(topic.id))
    return {"trimmed": trimmed}


def _look_after(run: Execution, topic: Topic) -> None:
    """Reschedule the topic's due work, which may have changed."""
    run.afterwards.append(
        lambda: run.services.topics.schedules.expects(topic, run.transaction.now_us, exact=True)
    )


# --- messages -------------------------------------------------------------------------------------


@handles(
    tree.Publish,
    "value",
    writes=True,
    needs=[Requires(PublishMessages.needs, SecurableKind.TOPIC, ("topic",))],
)
def publish(run: Execution, statement: tree.Publish, topic: Topic) -> Value:
    """Append one message or several. Their positions are final with the commit."""
    value = run.evaluate(statement.value)
    operation = PublishMessages(
        topic.name,
        values(value) if statement.many else [value],
        statement.many,
        _evaluated(run, statement.key),
        _evaluated(run, statement.id),
        _evaluated(run, statement.headers),
        None if statement.delay is None else lasting(run.evaluate(statement.delay), "DELAY"),
        None if statement.at_time is None else moment(run.evaluate(statement.at_time), "AT"),
        None if statement.expect is None else _integer(run, statement.expect, "EXPECT"),
    )
    # A nested statement's positions are visible to the rest of its transaction.
    # Pinned: a concurrent publish is a conflict, instead of moving them at the commit.
    done = operations.publish(
        run.services.topics, run.transaction, topic, operation, pin=run.is_nested, tick=run.tick
    )
    run.afterwards.append(done.follow_up)
    return done.answer  # type: ignore[no-any-return]


@handles(
    tree.ReadTopic,
    "value",
    writes=False,
    needs=[
        Requires(READ, SecurableKind.TOPIC, ("topic",), RequiredWhen.BARE),
        Requires(CONSUME, SecurableKind.TOPIC, ("topic",), RequiredWhen.AS_READER),
    ],
)
def read_topic(run: Execution, statement: tree.ReadTopic, topic: Topic) -> Value:
    """Return messages after a position, or after that of a reader; no reader is moved."""
    messages, reader = TopicMessages(run.transaction, topic), b""
    if statement.reader is not None:
        after = messages.reader(statement.reader)
        reader = messages.key_of_reader(statement.reader)
    else:
        assert statement.after is not None, "READ without AFTER has a reader"
        after = _integer(run, statement.after, "AFTER")
    limit = limits.MESSAGES_READ_DEFAULT
    if statement.limit is not None:
        limit = _integer(run, statement.limit, "LIMIT")
    # Before the read: the wait needs the newest state, and may have the transaction run again.
    wait = None
    if statement.wait is not None:
        waits, last = run.services.topics.waits, topic.last
        of = topic.id, 0
        wait = _wait(run, statement.wait, of, lambda: waits.readers(topic.id, last))
    found = messages.read(after, limit)
    if wait is not None and not found:
        wait.after, wait.reader = after, reader
        run.waits = not wait.over
    return found


@handles(
    tree.Redrive,
    "value",
    writes=True,
    needs=[
        Requires(CONSUME, SecurableKind.TOPIC, ("dead",)),
        Requires(WRITE, SecurableKind.TOPIC, ("topic",)),
    ],
)
def redrive_(run: Execution, statement: tree.Redrive, dead: Topic, topic: Topic) -> Value:
    """Move the oldest messages of one topic into another. Their positions are final with the
    commit."""
    limit = limits.MESSAGES_READ
    if statement.limit is not None:
        limit = _integer(run, statement.limit, "LIMIT")
    done = redrive(run.transaction, dead, topic, limit, run.tick)
    answer: dict[str, Value] = {"moved": done.moved, "first": None, "last": None}
    published = done.published
    if published is None:
        return answer
    if run.is_nested:
        TopicMessages(run.transaction, topic).pin()
    # Provisional, unless pinned: the commit assigns the positions, and `follow_up` reads them.
    answer["first"], answer["last"] = published.first, published.last

    def follow_up() -> None:
        answer["first"], answer["last"] = published.first, published.last
        run.services.topics.published(topic)
        run.services.topics.waits.trimmed(dead.id)

    run.afterwards.append(follow_up)
    return answer


# --- readers --------------------------------------------------------------------------------------


@handles(tree.DefineReader, "none", writes=True, needs=_CONSUMES)
def define_reader(run: Execution, statement: tree.DefineReader, topic: Topic) -> Value:
    """Define a reader of a topic.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    """
    messages = TopicMessages(run.transaction, topic)
    place = START if statement.position is None else _place(run, statement.position)
    messages.define_reader(statement.name, place, IF_TAKEN[statement.exists])
    return NONE


@handles(tree.CommitReader, "value", writes=True, needs=_CONSUMES)
def commit_reader(run: Execution, statement: tree.CommitReader, topic: Topic) -> Value:
    """Commit a reader's cursor: all messages up to a position are done."""
    messages = TopicMessages(run.transaction, topic)
    position = _integer(run, statement.position, "AT")
    return {"position": messages.commit_reader(statement.name, position)}


@handles(tree.AlterReader, "none", writes=True, needs=_CONSUMES)
def alter_reader(run: Execution, statement: tree.AlterReader, topic: Topic) -> Value:
    """Move a reader's cursor."""
    messages = TopicMessages(run.transaction, topic)
    run.reason = statement.reason
    messages.move_reader(statement.name, _place(run, statement.position))
    return NONE


@handles(tree.DropReader, "none", writes=True, needs=_CONSUMES)
def drop_reader(run: Execution, statement: tree.DropReader, topic: Topic) -> Value:
    """Drop a reader. :raises Unknown: the topic has none of that name"""
    messages = TopicMessages(run.transaction, topic)
    run.reason = statement.reason
    messages.drop_reader(statement.name)
    run.afterwards.append(run.services.topics.declarations_changed)
    return NONE


# --- groups ---------------------------------------------------------------------------------------


@handles(tree.DefineGroup, "none", writes=True, needs=_DEFINES_GROUP)
def define_group(
    run: Execution, statement: tree.DefineGroup, topic: Topic, _dead: Topic | None
) -> Value:
    """Define a consumer group.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    """
    in_flight = statement.in_flight
    made = groups.define_group(
        run.transaction,
        topic,
        statement.name,
        deadline_us=statement.deadline // MICROSECOND,
        in_flight=limits.GROUP_IN_FLIGHT_DEFAULT if in_flight is None else in_flight,
        deliveries=statement.deliveries,
        dead_letter=statement.dead_letter,
        backoff_us=tuple(each // MICROSECOND for each in statement.backoff),
        ordered=statement.ordered,
        place=None if statement.position is None else _place(run, statement.position),
        taken=IF_TAKEN[statement.exists],
    )
    # Takers of an overwritten group wait by its old settings: they look again.
    run.afterwards.append(lambda: run.services.topics.waits.may_take(made.topic.id, made.id))
    return NONE


_GROUP_SETTINGS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "deadline": ("deadline_us", lambda value: _microseconds(value)),
    "in_flight": (
        "in_flight",
        lambda value: limits.GROUP_IN_FLIGHT_DEFAULT if value is None else value,
    ),
    "deliveries": ("deliveries", lambda value: value),
    "dead_letter": ("dead_letter", lambda value: value),
    "backoff": ("backoff_us", lambda value: tuple(each // MICROSECOND for each in value or ())),
}


@handles(tree.AlterGroup, "none", writes=True, needs=_DEFINES_GROUP)
def alter_group(
    run: Execution, statement: tree.AlterGroup, topic: Topic, _dead: Topic | None
) -> Value:
    """Move a group, change its named settings, or both."""
    run.reason = statement.reason
    group = groups.group(run.transaction, topic, statement.name)
    fields = {_GROUP_SETTINGS[name][0]: _GROUP_SETTINGS[name][1](value)
              for name, value in statement.changes}  # fmt: skip
    if fields:
        group = replace(group, **fields)
        groups.alter_group(run.transaction, group)
    if statement.position is not None:
        # The group moves with its new settings.
        index = DeliveryIndex(run.transaction, group)
        group_deliveries.move(index, _place(run, statement.position))
    run.afterwards.append(lambda: run.services.topics.waits.may_take(group.topic.id, group.id))
    return NONE


@handles(
    tree.DropGroup, "none", writes=True, needs=[Requires(DEFINE, SecurableKind.TOPIC, ("topic",))]
)
def drop_group(run: Execution, statement: tree.DropGroup, topic: Topic) -> Value:
    """Drop a group with its deliveries."""
    run.reason = statement.reason
    groups.drop_group(run.transaction, groups.group(run.transaction, topic, statement.name))
    run.afterwards.append(run.services.topics.declarations_changed)
    return NONE


# --- deliveries -----------------------------------------------------------------------------------


@handles(tree.Take, "value", writes=True, needs=_CONSUMES)
def take(run: Execution, statement: tree.Take, topic: Topic) -> Value:
    """Deliver messages to the caller."""
    service, group = run.services.topics, _group(run, topic, statement.group)
    operation = TakeMessages(
        topic.name,
        statement.group,
        1 if statement.count is None else _integer(run, statement.count, "TAKE"),
        text(_evaluated(run, statement.member), "MEMBER"),
    )
    wait = None
    if statement.wait is not None:
        of = topic.id, group.id
        wait = _wait(run, statement.wait, of, lambda: service.waits.line(*of))
        # At the end of its time it looks without the turn: an empty answer has to mean that there
        # was no message, and the one with the turn may not take those there are.
        if not service.waits.line(topic.id, group.id).may_look(wait) and not wait.over:
            run.waits = True
            return []

    def stops() -> bool:
        # Millions of expired deliveries may precede the first message: parts are committed.
        # A transaction of several statements can't be divided.
        if run.may_run_again and run.transaction.size > limits.TAKE_BYTES:
            return True
        run.tick()
        return False

    done = operations.take(service, run.transaction, group, operation, wait, stops, run.tick)
    run.waits, run.goes_on = done.waits, done.goes_on
    handed_out = done.handed_out
    if handed_out is not None:
        run.hands_out = True
        # After the commit: a lost attempt must not add its deliveries to the answer.
        run.afterwards.append(partial(_answers, run, handed_out))
    run.afterwards.append(done.follow_up)
    return done.answer  # type: ignore[no-any-return]


def _answers(run: Execution, handed_out: DeliveredMessages) -> None:
    run.handed_out = (*run.handed_out, handed_out)


@handles(tree.Ack, "value", writes=True, needs=_CONSUMES)
def ack(run: Execution, statement: tree.Ack, topic: Topic) -> Value:
    """Acknowledge deliveries."""
    group = _group(run, topic, statement.group)
    given = receipts(run.evaluate(statement.receipts))
    return _settled(run, group, AckMessages(topic.name, group.name, given))


@handles(tree.Nack, "value", writes=True, needs=_CONSUMES)
def nack(run: Execution, statement: tree.Nack, topic: Topic) -> Value:
    """Return deliveries for redelivery."""
    group = _group(run, topic, statement.group)
    delay_us = None
    if statement.delay is not None:
        delay_us = lasting(run.evaluate(statement.delay), "DELAY")
    given = receipts(run.evaluate(statement.receipts))
    error = text(_evaluated(run, statement.error), "ERROR")
    return _settled(run, group, NackMessages(topic.name, group.name, given, delay_us, error))


@handles(tree.Extend, "value", writes=True, needs=_CONSUMES)
def extend(run: Execution, statement: tree.Extend, topic: Topic) -> Value:
    """Extend the ack deadline of deliveries."""
    group = _group(run, topic, statement.group)
    by_us = lasting(run.evaluate(statement.by), "BY", least_us=1)
    given = receipts(run.evaluate(statement.receipts))
    return _settled(run, group, ExtendMessages(topic.name, group.name, given, by_us))


@handles(tree.GiveUp, "value", writes=True, needs=_CONSUMES)
def give_up(run: Execution, statement: tree.GiveUp, topic: Topic) -> Value:
    """Move delivered messages to the dead letters."""
    group = _group(run, topic, statement.group)
    given = receipts(run.evaluate(statement.receipts))
    error = text(_evaluated(run, statement.error), "ERROR")
    return _settled(run, group, GiveUpMessages(topic.name, group.name, given, error))


def _settled(run: Execution, group: Group, operation: Settling) -> Value:
    done = operations.apply_receipts(
        run.services.topics, run.transaction, group, operation, tick=run.tick
    )
    run.afterwards.append(done.follow_up)
    return done.answer  # type: ignore[no-any-return]


# --- INFO -----------------------------------------------------------------------------------------


@informs("TOPIC", needs=[Requires(INFO, SecurableKind.TOPIC, (0,))])
def info_for_topic(run: Execution, statement: tree.Info, topic: Topic) -> Value:
    """Describe a topic with its readers and groups."""
    return TopicMessages(run.transaction, topic).figures(run.tick)


@informs("GROUP", needs=[Requires(INFO, SecurableKind.TOPIC, (1,))])
def info_for_group(run: Execution, statement: tree.Info, topic: Topic) -> Value:
    """Describe a group of a topic."""
    group = groups.group(run.transaction, topic, statement.names[0])
    return group_deliveries.figures(DeliveryIndex(run.transaction, group, run.tick))


def described_topics(run: Execution, database: Database) -> list[Value]:
    """Describe topics for INFO FOR DATABASE, without their readers and groups."""
    tx, tick = run.transaction, run.tick
    # One pass for all topics, not a look-up for each.
    held = held_by_all(tx, database, tick)
    every = topics.each_topic(tx, database, tick)
    return [_described(topic, held.get(topic.id, NOTHING_HELD)) for topic in every]


def _described(topic: Topic, held: TopicContents) -> dict[str, Value]:
    return {
        "name": topic.name,
        "comment": topic.comment,
        "messages": held.messages,
        "last_position": held.last,
        **bounded_bytes(topic, held.size),
        "keep": None if topic.keep_us is None else duration(topic.keep_us),
        "max_bytes": topic.max_bytes,
        "largest": topic.largest,
        "dedup": None if topic.dedup_us is None else duration(topic.dedup_us),
        "full": topic.full,
    }


# --- shared by statements -------------------------------------------------------------------------


def _group(run: Execution, topic: Topic, name: str) -> Group:
    return groups.group(run.transaction, topic, name)


def _place(run: Execution, position: tree.Position) -> StartPosition:
    if position.value is None:
        return StartPosition("START" if position.kind == "START" else "END")
    if position.kind == "TIME":
        return StartPosition("TIME", moment(run.evaluate(position.value), "TIME"))
    return StartPosition("AFTER", _integer(run, position.value, "AT"))


def _evaluated(run: Execution, expression: tree.Expression | None) -> Any:
    """Return the value of a clause; None: it is not given."""
    return None if expression is None else run.evaluate(expression)


def _integer(run: Execution, expression: tree.Expression, what: str) -> int:
    return integer(run.evaluate(expression), what)


def _wait(
    run: Execution, expression: tree.Expression, of: WaitTarget, queue: Callable[[], WaitQueue]
) -> StatementWait:
    """Return the wait of the current statement, which may have begun already.

    :param of: object of the wait
    :param queue: returns the place to wait in, which exists as long as a script waits there
    :raises NotInTransaction: it may not wait here
    :raises BadRequest: it may not wait for so long
    :raises Unknown: the object was dropped, and another has its name
    """
    # A statement that runs again keeps its wait, with its end and its place in line.
    if run.wait is None:
        run.check_may_wait()
        for_us = waiting(run.evaluate(expression))
        run.need_newest()  # on released state it would miss the wake-ups of pending commits
        return run.begin_wait(queue(), for_us)
    run.need_newest()
    if run.wait.place.of != of:
        raise Unknown("the topic or group that this waited for was dropped")
    return run.wait


def _microseconds(lasting: timedelta | None) -> int | None:
    return None if lasting is None else lasting // MICROSECOND
