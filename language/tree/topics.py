"""Statements on topics, readers and groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from language.tree.places import Exists

if TYPE_CHECKING:
    from language.tree.expressions import Expression


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader or group is to stand: before the first message that is held, at the last one,
    at the message of a number (which then counts as done), or before the first message of a moment
    or later. `value` is what NUMBER and TIME evaluate to theirs from."""

    kind: Literal["START", "END", "NUMBER", "TIME"]
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class DefineTopic:
    """`keep` and `max_bytes` None: kept for ever, and as many as come; `largest` None: as large as
    the limits allow; `dedup` None: ids are kept and not compared."""

    name: str
    exists: Exists = Exists.REFUSE
    keep: timedelta | None = None
    max_bytes: int | None = None
    largest: int | None = None
    dedup: timedelta | None = None
    full: Literal["DROP", "REFUSE"] = "DROP"
    comment: str | None = None
    at: int = field(default=0, compare=False)


TopicSetting = Literal["keep", "max_bytes", "largest", "dedup", "full", "comment"]
"""A setting of a topic, by its field in `DefineTopic`."""


@dataclass(frozen=True, slots=True)
class AlterTopic:
    """At least one change, each setting at most once. None: it is as if never given."""

    name: str
    changes: tuple[tuple[TopicSetting, timedelta | int | str | None], ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropTopic:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TrimTopic:
    """Every message before the position goes."""

    name: str
    before: Expression
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Publish:
    """`many`: VALUES, whose `value` is an array of messages' values; there is no `id` then. At most
    one of `delay` and `at_time` is set."""

    topic: str
    value: Expression
    many: bool = False
    key: Expression | None = None
    id: Expression | None = None
    headers: Expression | None = None
    delay: Expression | None = None
    at_time: Expression | None = None
    expect: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReadTopic:
    """Exactly one of `after` and `reader` is set."""

    topic: str
    after: Expression | None = None
    reader: str | None = None
    limit: Expression | None = None
    wait: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineReader:
    """`position` None: START, or where the reader stands that is overwritten."""

    name: str
    topic: str
    exists: Exists = Exists.REFUSE
    position: Position | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CommitReader:
    name: str
    topic: str
    position: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterReader:
    name: str
    topic: str
    position: Position
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropReader:
    name: str
    topic: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineGroup:
    """`in_flight` None: the default of the node; `deliveries` None: as often as it takes;
    `dead_letter` None: what is given up is dropped; `backoff` empty: handed out again at once;
    `position` None: START, or where the group stands that is overwritten."""

    name: str
    topic: str
    deadline: timedelta
    exists: Exists = Exists.REFUSE
    in_flight: int | None = None
    deliveries: int | None = None
    dead_letter: str | None = None
    backoff: tuple[timedelta, ...] = ()
    ordered: bool = False
    position: Position | None = None
    at: int = field(default=0, compare=False)


GroupSetting = Literal["deadline", "in_flight", "deliveries", "dead_letter", "backoff"]
"""A setting of a group, by its field in `DefineGroup`."""


@dataclass(frozen=True, slots=True)
class AlterGroup:
    """At least one of `position` and `changes`, each setting at most once. None (of `backoff`: an
    empty tuple): it is as if never given."""

    name: str
    topic: str
    position: Position | None = None
    changes: tuple[
        tuple[GroupSetting, timedelta | int | str | tuple[timedelta, ...] | None], ...
    ] = ()
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropGroup:
    name: str
    topic: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Take:
    """`count` None: one."""

    topic: str
    group: str
    count: Expression | None = None
    member: Expression | None = None
    wait: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Ack:
    topic: str
    group: str
    receipts: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Nack:
    topic: str
    group: str
    receipts: Expression
    delay: Expression | None = None
    error: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Extend:
    """`by`: until so long from now, whatever was left."""

    topic: str
    group: str
    receipts: Expression
    by: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class GiveUp:
    topic: str
    group: str
    receipts: Expression
    error: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Redrive:
    """From the topic `dead` into the topic `topic`."""

    dead: str
    topic: str
    limit: Expression | None = None
    at: int = field(default=0, compare=False)
