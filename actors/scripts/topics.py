"""Statements on topics: their declarations, messages, readers, groups and hand-outs.

Each works on the transaction at hand; what follows a commit (waking who waits, positions that only
the commit gave) is left to `Execution.afterwards`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from actors.scripts.execution import Execution
from actors.scripts.handlers import Need, When, handles, informs
from actors.scripts.taken import TAKEN
from actors.topics import HandedOut, Of, Wait
from language import tree
from protocol import limits
from protocol.errors import BadRequest, TypeRefused, Unknown
from protocol.rights import CONSUME, DEFINE, INFO, NOTHING, READ, WRITE, Kind
from protocol.text import duration
from protocol.values import MICROSECOND, NONE, Value, type_name
from storage import groups, topics
from storage.catalog import Database
from storage.groups import Group
from storage.hand_outs import HandOuts
from storage.messages import Messages, bounded_bytes, redrive
from storage.topics import START, Place, Topic

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CONSUMES: Final = [Need(CONSUME, Kind.TOPIC, ("topic",))]
_DEFINES_GROUP: Final = [
    Need(DEFINE, Kind.TOPIC, ("topic",)),
    Need(WRITE, Kind.TOPIC, ("dead_letter",)),
]

# --- topics ---------------------------------------------------------------------------------------


@handles(tree.DefineTopic, "none", writes=True, needs=[Need(DEFINE, Kind.DATABASE)])
def define_topic(run: Execution, statement: tree.DefineTopic, database: Database) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
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
        taken=TAKEN[statement.exists],
    )
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


@handles(tree.AlterTopic, "none", writes=True, needs=[Need(DEFINE, Kind.TOPIC, ("name",))])
def alter_topic(run: Execution, statement: tree.AlterTopic, topic: Topic) -> Value:
    """Change what the statement names and leave the rest."""
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
    needs=[Need(DEFINE, Kind.DATABASE), Need(NOTHING, Kind.TOPIC, ("name",))],
)
def drop_topic(
    run: Execution, statement: tree.DropTopic, _database: Database, topic: Topic
) -> Value:
    """The topic with its messages, readers and groups."""
    run.reason = statement.reason
    topics.drop_topic(run.transaction, topic)
    run.afterwards.append(run.services.topics.look)
    return NONE


@handles(tree.TrimTopic, "value", writes=True, needs=[Need(DEFINE, Kind.TOPIC, ("name",))])
def trim_topic(run: Execution, statement: tree.TrimTopic, topic: Topic) -> Value:
    """Every message before a position."""
    run.reason = statement.reason
    trimmed = 0
    for part in Messages(run.transaction, topic).trim(_integer(run, statement.before, "BEFORE")):
        trimmed += part
        run.tick()
    run.afterwards.append(lambda: run.services.topics.trimmed(topic))
    return {"trimmed": trimmed}


def _look_after(run: Execution, topic: Topic) -> None:
    """What is to be done for the topic by itself may have changed."""
    run.afterwards.append(
        lambda: run.services.topics.expects(topic, run.transaction.now_us, exact=True)
    )


# --- messages -------------------------------------------------------------------------------------


@handles(tree.Publish, "value", writes=True, needs=[Need(WRITE, Kind.TOPIC, ("topic",))])
def publish(run: Execution, statement: tree.Publish, topic: Topic) -> Value:
    """Append one message or several. The positions answered are those that the commit gives."""
    value = run.evaluate(statement.value)
    if statement.many and not isinstance(value, list):
        raise TypeRefused(f"VALUES takes an array, not {type_name(value)}", found=type_name(value))
    messages = Messages(run.transaction, topic)
    published = messages.publish(
        value if statement.many else [value],
        key=_evaluated(run, statement.key),
        id=_evaluated(run, statement.id),
        headers=_evaluated(run, statement.headers),
        due_us=_due_us(run, statement),
        expect=None if statement.expect is None else _integer(run, statement.expect, "EXPECT"),
        tick=run.tick,
    )
    if run.is_nested:
        messages.pin()
    answer: dict[str, Value] = {}

    def fill_in() -> None:
        if statement.many:
            answer["first"], answer["last"] = published.first, published.last
            answer["count"] = published.count
        else:
            answer["position"], answer["duplicate"] = published.first, published.duplicate

    fill_in()
    over = None
    if topic.max_bytes is not None:
        over = topic.full == "DROP" and messages.size > topic.max_bytes

    def follow_up() -> None:
        fill_in()
        if messages.wakes:
            run.services.topics.published(topic, published.last, over=over)

    run.afterwards.append(follow_up)
    return answer


def _due_us(run: Execution, statement: tree.Publish) -> int:
    """Log time before which no group hands it out; 0: at once."""
    if statement.delay is not None:
        return run.transaction.now_us + _lasting(run, statement.delay, "DELAY")
    if statement.at_time is not None:
        return _moment(run, statement.at_time, "AT")
    return 0


@handles(
    tree.ReadTopic,
    "value",
    writes=False,
    needs=[
        Need(READ, Kind.TOPIC, ("topic",), When.BARE),
        Need(CONSUME, Kind.TOPIC, ("topic",), When.AS_READER),
    ],
)
def read_topic(run: Execution, statement: tree.ReadTopic, topic: Topic) -> Value:
    """Messages after a position, or after that of a reader; nobody is moved."""
    messages = Messages(run.transaction, topic)
    if statement.reader is not None:
        after = messages.reader(statement.reader)
    else:
        assert statement.after is not None, "READ without AFTER has a reader"
        after = _integer(run, statement.after, "AFTER")
    limit = limits.MESSAGES_READ_DEFAULT
    if statement.limit is not None:
        limit = _integer(run, statement.limit, "LIMIT")
    wait = None
    if statement.wait is not None:
        wait = _wait(run, statement.wait, (topic.id, 0))
    found = messages.read(after, limit)
    if wait is not None and not found:
        wait.after = after
        run.waits = not wait.over
    return found


@handles(
    tree.Redrive,
    "value",
    writes=True,
    needs=[Need(CONSUME, Kind.TOPIC, ("dead",)), Need(WRITE, Kind.TOPIC, ("topic",))],
)
def redrive_(run: Execution, statement: tree.Redrive, dead: Topic, topic: Topic) -> Value:
    """Move the oldest messages of one topic into another."""
    limit = limits.MESSAGES_READ
    if statement.limit is not None:
        limit = _integer(run, statement.limit, "LIMIT")
    done = redrive(run.transaction, dead, topic, limit, run.tick)
    answer: dict[str, Value] = {"moved": done.moved, "first": None, "last": None}

    def follow_up() -> None:
        if done.published is not None:
            answer["first"], answer["last"] = done.published.first, done.published.last
            run.services.topics.published(topic, done.published.last)
            run.services.topics.trimmed(dead)

    run.afterwards.append(follow_up)
    return answer


# --- readers --------------------------------------------------------------------------------------


@handles(tree.DefineReader, "none", writes=True, needs=_CONSUMES)
def define_reader(run: Execution, statement: tree.DefineReader, topic: Topic) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    messages = Messages(run.transaction, topic)
    place = START if statement.position is None else _place(run, statement.position)
    messages.define_reader(statement.name, place, TAKEN[statement.exists])
    return NONE


@handles(tree.CommitReader, "value", writes=True, needs=_CONSUMES)
def commit_reader(run: Execution, statement: tree.CommitReader, topic: Topic) -> Value:
    """All up to a position is done."""
    messages = Messages(run.transaction, topic)
    position = _integer(run, statement.position, "AT")
    return {"position": messages.commit_reader(statement.name, position)}


@handles(tree.AlterReader, "none", writes=True, needs=_CONSUMES)
def alter_reader(run: Execution, statement: tree.AlterReader, topic: Topic) -> Value:
    """Stand somewhere else."""
    messages = Messages(run.transaction, topic)
    run.reason = statement.reason
    messages.move_reader(statement.name, _place(run, statement.position))
    return NONE


@handles(tree.DropReader, "none", writes=True, needs=_CONSUMES)
def drop_reader(run: Execution, statement: tree.DropReader, topic: Topic) -> Value:
    """:raises Unknown: the topic has none of that name"""
    messages = Messages(run.transaction, topic)
    run.reason = statement.reason
    messages.drop_reader(statement.name)
    run.afterwards.append(run.services.topics.look)
    return NONE


# --- groups ---------------------------------------------------------------------------------------


@handles(tree.DefineGroup, "none", writes=True, needs=_DEFINES_GROUP)
def define_group(
    run: Execution, statement: tree.DefineGroup, topic: Topic, _dead: Topic | None
) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
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
        taken=TAKEN[statement.exists],
    )
    run.afterwards.append(lambda: run.services.topics.may_take(made))
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
    """Move a group, change what the statement names of it, or both."""
    run.reason = statement.reason
    group = groups.group(run.transaction, topic, statement.name)
    fields = {_GROUP_SETTINGS[name][0]: _GROUP_SETTINGS[name][1](value)
              for name, value in statement.changes}  # fmt: skip
    if fields:
        group = replace(group, **fields)
        groups.alter_group(run.transaction, group)
    if statement.position is not None:
        HandOuts(run.transaction, group).move(_place(run, statement.position))
    run.afterwards.append(lambda: run.services.topics.may_take(group))
    return NONE


@handles(tree.DropGroup, "none", writes=True, needs=[Need(DEFINE, Kind.TOPIC, ("topic",))])
def drop_group(run: Execution, statement: tree.DropGroup, topic: Topic) -> Value:
    """The group with what it has handed out."""
    run.reason = statement.reason
    groups.drop_group(run.transaction, groups.group(run.transaction, topic, statement.name))
    run.afterwards.append(run.services.topics.look)
    return NONE


# --- hand-outs ------------------------------------------------------------------------------------


@handles(tree.Take, "value", writes=True, needs=_CONSUMES)
def take(run: Execution, statement: tree.Take, topic: Topic) -> Value:
    """Hand messages out to the caller."""
    hand_outs = _hand_outs(run, topic, statement.group)
    group = hand_outs.group
    count = 1 if statement.count is None else _integer(run, statement.count, "TAKE")
    member = _string(run, statement.member, "MEMBER")
    wait = None
    if statement.wait is not None:
        wait = _wait(run, statement.wait, (group.topic.id, group.id))
        line = run.services.topics.waits.line(group.topic.id, group.id)
        # At the end of its time it looks whoever stands before it: an answer of nothing says that
        # there was nothing, and those with the turn may yet leave what there is.
        if not line.may_look(wait) and not wait.over:
            run.waits = True
            return []
    found = hand_outs.take(count, member)
    while not found and hand_outs.more:
        if run.may_run_again and run.transaction.size > limits.TAKE_BYTES:
            run.goes_on = True
            break
        run.tick()
        found = hand_outs.take(count, member)
    if wait is not None and not found:
        run.waits = not wait.over
    if found:
        run.hands_out = True
        handed_out = HandedOut(group, found)
        run.afterwards.append(lambda: _answers(run, handed_out))
    _handed_out(run, hand_outs, group.deadline_us if found else None, waited=run.waits)
    return found


def _answers(run: Execution, handed_out: HandedOut) -> None:
    run.handed_out = (*run.handed_out, handed_out)


@handles(tree.Ack, "value", writes=True, needs=_CONSUMES)
def ack(run: Execution, statement: tree.Ack, topic: Topic) -> Value:
    """Messages are done with."""
    hand_outs = _hand_outs(run, topic, statement.group)
    answer = hand_outs.ack(_receipts(run, statement.receipts))
    _handed_out(run, hand_outs)
    return answer


@handles(tree.Nack, "value", writes=True, needs=_CONSUMES)
def nack(run: Execution, statement: tree.Nack, topic: Topic) -> Value:
    """Messages are to be handed out again."""
    hand_outs = _hand_outs(run, topic, statement.group)
    delay_us = None if statement.delay is None else _lasting(run, statement.delay, "DELAY")
    receipts = _receipts(run, statement.receipts)
    answer = hand_outs.nack(receipts, delay_us, _string(run, statement.error, "ERROR"))
    _handed_out(run, hand_outs)
    return answer


@handles(tree.Extend, "value", writes=True, needs=_CONSUMES)
def extend(run: Execution, statement: tree.Extend, topic: Topic) -> Value:
    """More time for messages that are out."""
    hand_outs = _hand_outs(run, topic, statement.group)
    by_us = _lasting(run, statement.by, "BY")
    answer = hand_outs.extend(_receipts(run, statement.receipts), by_us)
    _handed_out(run, hand_outs, by_us if answer["extended"] else None)
    return answer


@handles(tree.GiveUp, "value", writes=True, needs=_CONSUMES)
def give_up(run: Execution, statement: tree.GiveUp, topic: Topic) -> Value:
    """Messages become dead letters."""
    hand_outs = _hand_outs(run, topic, statement.group)
    receipts = _receipts(run, statement.receipts)
    answer = hand_outs.give_up(receipts, _string(run, statement.error, "ERROR"))
    _handed_out(run, hand_outs)
    return answer


def _handed_out(
    run: Execution, hand_outs: HandOuts, out_us: int | None = None, *, waited: bool = False
) -> None:
    """What has to be done once the transaction has committed.

    :param out_us: for how long something is out from now on
    :param waited: the statement itself will wait
    """
    service, group = run.services.topics, hand_outs.group
    now_us = run.transaction.now_us
    at_us = None if out_us is None else now_us + out_us
    exact = waited or service.waits.is_taken_from(group.topic.id, group.id)
    if exact:
        at_us = hand_outs.next_due_us()
        # What can't be handed out although it is due waits for something else than time.
        exact = at_us is not None and at_us > now_us
    elif at_us is not None:
        exact = service.is_awaited(run.transaction, group)

    def follow_up() -> None:
        if at_us is not None:
            service.expects(group.topic, at_us, exact=exact)
        if hand_outs.wakes:
            service.may_take(group)
        if hand_outs.dead is not None:
            service.published(hand_outs.dead)

    run.afterwards.append(follow_up)


# --- INFO -----------------------------------------------------------------------------------------


@informs("TOPIC", needs=[Need(INFO, Kind.TOPIC, (0,))])
def info_for_topic(run: Execution, statement: tree.Info, topic: Topic) -> Value:
    """A topic with its readers and groups."""
    return Messages(run.transaction, topic).figures()


@informs("GROUP", needs=[Need(INFO, Kind.TOPIC, (1,))])
def info_for_group(run: Execution, statement: tree.Info, topic: Topic) -> Value:
    """One group of a topic."""
    group = groups.group(run.transaction, topic, statement.names[0])
    return HandOuts(run.transaction, group).figures()


def described_topic(run: Execution, topic: Topic) -> dict[str, Value]:
    """What INFO FOR DATABASE shows of a topic, without looking at its readers and groups."""
    messages = Messages(run.transaction, topic)
    return {
        "name": topic.name,
        "comment": topic.comment,
        "messages": messages.count,
        "last_position": messages.last,
        **bounded_bytes(topic, messages.size),
        "keep": None if topic.keep_us is None else duration(topic.keep_us),
        "max_bytes": topic.max_bytes,
        "largest": topic.largest,
        "dedup": None if topic.dedup_us is None else duration(topic.dedup_us),
        "full": topic.full,
    }


# --- what statements have in common ---------------------------------------------------------------


def _hand_outs(run: Execution, topic: Topic, group: str) -> HandOuts:
    found: Group = groups.group(run.transaction, topic, group)
    return HandOuts(run.transaction, found, run.tick)


def _place(run: Execution, position: tree.Position) -> Place:
    if position.value is None:
        return Place("START" if position.kind == "START" else "END")
    if position.kind == "TIME":
        return Place("TIME", _moment(run, position.value, "TIME"))
    return Place("AFTER", _integer(run, position.value, "AT"))


def _receipts(run: Execution, expression: tree.Expression) -> list[str]:
    value = run.evaluate(expression)
    if not isinstance(value, list):
        raise _wrong("RECEIPTS", "an array of receipts", value)
    return value


def _evaluated(run: Execution, expression: tree.Expression | None) -> Any:
    """None where the clause is not given."""
    return None if expression is None else run.evaluate(expression)


def _string(run: Execution, expression: tree.Expression | None, what: str) -> str | None:
    """None where the clause is not given, and where it says NULL."""
    value = _evaluated(run, expression)
    if value is not None and not isinstance(value, str):
        raise _wrong(what, "a string", value)
    return value


def _integer(run: Execution, expression: tree.Expression, what: str) -> int:
    value = run.evaluate(expression)
    if type(value) is not int:
        raise _wrong(what, "an integer", value)
    return value


def _lasting(run: Execution, expression: tree.Expression, what: str) -> int:
    """A duration in microseconds; whether it may be that long is for the rules to say, as far as
    it can be counted."""
    value = run.evaluate(expression)
    if not isinstance(value, timedelta):
        raise _wrong(what, "a duration", value)
    microseconds = value // MICROSECOND
    if not 0 <= microseconds <= limits.SPAN_SECONDS * 1_000_000:
        raise BadRequest(f"{what} is a duration from 0 to {limits.SPAN_SECONDS} s")
    return microseconds


def _moment(run: Execution, expression: tree.Expression, what: str) -> int:
    value = run.evaluate(expression)
    if not isinstance(value, datetime):
        raise _wrong(what, "a datetime", value)
    return (value - _EPOCH) // MICROSECOND


def _wait(run: Execution, expression: tree.Expression, of: Of) -> Wait:
    """The wait of the statement at hand, which may have begun already.

    :param of: what it waits for
    :raises NotInTransaction: it may not wait here
    :raises BadRequest: it may not wait for so long
    :raises Unknown: what it waited for was dropped, and something else has its name
    """
    if run.wait is None:
        run.check_may_wait()
        for_us = _lasting(run, expression, "WAIT")
        if for_us > limits.WAIT_SECONDS * 1_000_000:
            raise BadRequest(f"WAIT is at most {limits.WAIT_SECONDS} s")
        return run.begin_wait(run.services.topics.waits.queue(of), for_us)
    if run.wait.queue.of != of:
        raise Unknown("what this waited for was dropped")
    return run.wait


def _wrong(what: str, wanted: str, value: Any) -> TypeRefused:
    found = type_name(value)
    return TypeRefused(f"{what} takes {wanted}, not {found}", wanted=wanted, found=found)


def _microseconds(lasting: timedelta | None) -> int | None:
    return None if lasting is None else lasting // MICROSECOND
