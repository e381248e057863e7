"""AST of statements on topics, readers and consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from language.tree.places import Exists

if TYPE_CHECKING:
    from language.tree.expressions import Expression


@dataclass(frozen=True, slots=True)
class Position:
    """Cursor position of a reader or group.

    START is before the first retained message, END at the last one. NUMBER is at the message of
    that number, which counts as done. TIME is before the first message at or after a time. `value`
    is the expression for NUMBER and TIME.
    """

    kind: Literal["START", "END", "NUMBER", "TIME"]
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class DefineTopic:
    """`DEFINE TOPIC`. `keep` and `max_bytes` None: messages are retained for ever, in any number.

    `largest` None: message size is bounded by the limits only. `dedup` None: ids are stored and not
    compared.
    """

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
    """`ALTER TOPIC` with at least one change, each setting at most once. None resets a setting."""

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
    """`TRIM TOPIC`: delete every message before the position."""

    name: str
    before: Expression
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Publish:
    """`PUBLISH`. `many`: VALUES, whose `value` is an array of message values; there is no `id`
    then.

    At most one of `delay` and `at_time` is set.
    """

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
    """`READ FROM`. Exactly one of `after` and `reader` is set."""

    topic: str
    after: Expression | None = None
    reader: str | None = None
    limit: Expression | None = None
    wait: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineReader:
    """`DEFINE READER`. `position` None: START, or the position of the overwritten reader."""

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
    """`DEFINE GROUP`. `deadline` is the ack deadline (visibility timeout).

    `in_flight` None: the node's default. `deliveries` None: unlimited deliveries. `dead_letter`
    None: given-up messages are dropped. `backoff` empty: redelivered at once. `position` None:
    START, or the position of the group that is overwritten.
    """

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
    """`ALTER GROUP`. At least one of `position` and `changes`, each setting at most once.

    None (for `backoff`: an empty tuple) resets a setting.
    """

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
    """`TAKE`. `count` None: one message."""

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
    """`EXTEND`. `by`: new time to the ack deadline, counted from now, whatever was left."""

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
    """`REDRIVE`: move messages from the dead letter topic `dead` to `topic`."""

    dead: str
    topic: str
    limit: Expression | None = None
    at: int = field(default=0, compare=False)
