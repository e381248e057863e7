"""The syntax tree. Every node is frozen; lists are tuples; nothing here knows how it is run.

Positions (`at`) are offsets into the script's text and take no part in equality, so that
parse → print → parse is the identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Literal

from protocol.paths import Path
from protocol.values import Value

# --- expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of any type but array, object and record, whose parts may be expressions."""

    value: Value


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name`: bound with the request, by LET, by FOR, or by the node (`$value`, `$parent`)."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Array:
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Object:
    fields: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class RecordLiteral:
    """`table:id`; the id is a constant or an array whose items are expressions."""

    table: str
    id: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A bare name: the field of the row at hand (an idiom's head)."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Attribute:
    """`of.name`; follows a record link."""

    of: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """`of[index]`: an array's item (from 0, negative from the end) or an object's field."""

    of: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Each:
    """`of[*]` or `of.*`: the paths after it are taken of every item."""

    of: Expression


UnaryOperator = Literal["NOT", "-", "+"]
BinaryOperator = Literal[
    "OR", "AND", "=", "!=", "<", "<=", ">", ">=", "IN", "NOT IN", "CONTAINS", "~", "??",
    "+", "-", "*", "/", "%",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unary:
    operator: UnaryOperator
    operand: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    operator: BinaryOperator
    left: Expression
    right: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Range:
    """`low..high` (end exclusive) or `low..=high`; as a value: an array of ints."""

    low: Expression
    high: Expression
    inclusive: bool
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its full name, `count`, `string::len`."""

    name: str
    arguments: tuple[Expression, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Subquery:
    """`(SELECT …)`: an array of what it selects, computed in the same transaction."""

    select: Select


@dataclass(frozen=True, slots=True)
class If:
    """IF as an expression or a statement: the value is that of the last statement of the branch
    taken, NONE when none was."""

    branches: tuple[tuple[Expression, Block], ...]
    otherwise: Block | None
    at: int = field(default=0, compare=False)


Expression = (
    Constant | Parameter | Array | Object | RecordLiteral | Name | Attribute | Index | Each
    | Unary | Binary | Range | Call | Subquery
)  # fmt: skip

# --- where rows come from -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableTarget:
    """Every record of a table; as the target of CREATE, a new record."""

    table: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RecordRange:
    """`t:a..b`: the records of a table whose ids lie in a range. A missing bound is open."""

    table: str
    low: Expression | None
    high: Expression | None
    inclusive: bool
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ExpressionTarget:
    """Anything that evaluates to a record, an array of records or rows, an object, or a subquery.
    A `RecordLiteral` alone is the commonest."""

    expression: Expression


Target = TableTarget | RecordRange | ExpressionTarget

# --- statements on records ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """One column of SELECT or RETURN. `alias` None: named after the expression's own text path."""

    expression: Expression
    alias: str | None


@dataclass(frozen=True, slots=True)
class Order:
    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True)
class Select:
    """`value`: SELECT VALUE, one column. `everything`: `*` stands among the columns."""

    value: bool
    everything: bool
    columns: tuple[Column, ...]
    omit: tuple[Path, ...]
    sources: tuple[Target, ...]
    where: Expression | None = None
    split: Path | None = None
    group: tuple[Expression, ...] | None = None
    """None: no GROUP; empty: GROUP ALL."""
    having: Expression | None = None
    order: tuple[Order, ...] = ()
    limit: Expression | None = None
    start: Expression | None = None
    fetch: tuple[Path, ...] = ()
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Content:
    value: Expression


@dataclass(frozen=True, slots=True)
class Merge:
    value: Expression


@dataclass(frozen=True, slots=True)
class Set:
    assignments: tuple[tuple[Path, Expression], ...]


@dataclass(frozen=True, slots=True)
class Unset:
    paths: tuple[Path, ...]


Data = Content | Merge | Set | Unset


@dataclass(frozen=True, slots=True)
class Return:
    """What a writing statement answers for each record. `columns` only when kind is FIELDS."""

    kind: Literal["NONE", "BEFORE", "AFTER", "DIFF", "FIELDS"]
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    """The target is a table (a new id is made) or something that evaluates to one record."""

    target: TableTarget | ExpressionTarget
    data: Data | None
    returning: Return | None = None
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Insert:
    table: str
    rows: Expression
    ignore: bool = False
    on_duplicate: Set | None = None
    returning: Return | None = None
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Upsert:
    target: ExpressionTarget
    data: Data
    returning: Return | None = None
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Update:
    target: Target
    data: Data
    where: Expression | None = None
    returning: Return | None = None
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    target: Target
    where: Expression | None = None
    returning: Return | None = None
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


# --- flow -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expression | Answering
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReturnStatement:
    """Ends the script (or the transaction's block) with a value."""

    value: Expression | Answering
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """An expression standing as a statement."""

    value: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class For:
    variable: str
    items: Expression
    body: Block
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Throw:
    value: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Begin:
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Commit:
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Cancel:
    at: int = field(default=0, compare=False)


# --- places ---------------------------------------------------------------------------------------


class Exists(Enum):
    """What a DEFINE does when the name is taken."""

    REFUSE = ""
    SKIP = "IF NOT EXISTS"
    OVERWRITE = "OVERWRITE"


@dataclass(frozen=True, slots=True)
class Use:
    """At least one is set."""

    namespace: str | None
    database: str | None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineNamespace:
    name: str
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineDatabase:
    """`namespace` None: the one in use."""

    namespace: str | None
    name: str
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineTable:
    name: str
    exists: Exists = Exists.REFUSE
    schemafull: bool = False
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropNamespace:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropDatabase:
    namespace: str | None
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropTable:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


# --- cache spaces ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DefineSpace:
    """`expire`: what a key lives that is written without an expiry; None: for ever."""

    name: str
    exists: Exists = Exists.REFUSE
    expire: timedelta | None = None
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropSpace:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class GetKey:
    key: Expression
    space: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SetKey:
    """At most one of `expire` and `keep` is set."""

    key: Expression
    space: str
    value: Expression
    expire: Expression | None = None
    keep: bool = False
    when: Literal["ABSENT", "PRESENT"] | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SwapKey:
    key: Expression
    space: str
    expect: Expression
    value: Expression
    expire: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IncrKey:
    key: Expression
    space: str
    by: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DeleteKey:
    key: Expression
    space: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ExpireKey:
    key: Expression
    space: str
    expire: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PersistKey:
    key: Expression
    space: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LockKey:
    key: Expression
    space: str
    holder: Expression
    expire: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class UnlockKey:
    key: Expression
    space: str
    holder: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ListKeys:
    """`KEYS FROM …`"""

    space: str
    prefix: Expression | None = None
    after: Expression | None = None
    limit: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropKeys:
    space: str
    prefix: Expression
    reason: str | None = None
    at: int = field(default=0, compare=False)


# --- topics ---------------------------------------------------------------------------------------


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


# --- fields ---------------------------------------------------------------------------------------

Kind = Literal[
    "any", "bool", "int", "float", "decimal", "number", "string", "bytes", "datetime", "duration",
    "uuid", "object",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainType:
    """A type by its word."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class OptionType:
    """`option<T>`: a T, or absent."""

    of: FieldType


@dataclass(frozen=True, slots=True)
class ArrayType:
    """`array<T, most>`; `most` None: of any length."""

    of: FieldType
    most: int | None = None


@dataclass(frozen=True, slots=True)
class RecordType:
    """`record<t | u>`: a link into one of these tables; none named: into any."""

    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiteralType:
    """Exactly this value."""

    value: Value


@dataclass(frozen=True, slots=True)
class UnionType:
    """`T | U`. At least two members, none of them a union."""

    members: tuple[FieldType, ...]


FieldType = PlainType | OptionType | ArrayType | RecordType | LiteralType | UnionType


@dataclass(frozen=True, slots=True)
class DefineField:
    """`path` has names and `*` only. What `assertion` calls `$value` is the field's value."""

    path: Path
    table: str
    type: FieldType
    exists: Exists = Exists.REFUSE
    default: Expression | None = None
    assertion: Expression | None = None
    readonly: bool = False
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """Exactly one part is set. `comment` empty: there is none any more."""

    name: str
    schemafull: bool | None = None
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterField:
    """Exactly one part is set. `Constant(NONE)` as `default` or `assertion`, an empty `comment`:
    there is none any more."""

    path: Path
    table: str
    type: FieldType | None = None
    default: Expression | None = None
    assertion: Expression | None = None
    readonly: bool | None = None
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropField:
    path: Path
    table: str
    at: int = field(default=0, compare=False)


# --- indexes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DefineIndex:
    """At least one path."""

    name: str
    table: str
    fields: tuple[Path, ...]
    unique: bool = False
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropIndex:
    name: str
    table: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    name: str
    table: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Explain:
    """How a statement finds its records. `analyze`: find them, and say what that took; nothing is
    written either way."""

    statement: Select | Update | Delete
    analyze: bool = False
    at: int = field(default=0, compare=False)


# --- users and the node ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DefineUser:
    """Exactly one of `password` and `passhash` is set; neither is ever printed."""

    name: str
    role: str
    password: str | None = field(default=None, repr=False)
    passhash: str | None = field(default=None, repr=False)
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    space: tuple[str, ...] = ()
    """What the user belongs to: (), (namespace,) or (namespace, database)."""
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterUser:
    """Exactly one of `password` and `role` is set."""

    name: str
    password: str | None = field(default=None, repr=False)
    role: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropUser:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineNode:
    """`roles` None: not named; empty: ROLES NONE, the drain. At least one of the two is set.
    Role words are checked by the node, not by the parser: an unknown one is `Unknown`."""

    roles: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    at: int = field(default=0, compare=False)


InfoSubject = Literal[
    "STORE", "NAMESPACE", "DATABASE", "TABLE", "INDEX", "SPACE", "TOPIC", "GROUP", "USERS", "USER",
    "NODE", "RUNNING",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Info:
    """`INFO FOR …`. `names` is what follows the subject: (), (ns,), (ns, db), (db,), (table,),
    (space,), (index, table), (topic,), (group, topic)."""

    subject: InfoSubject
    names: tuple[str, ...] = ()
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Kill:
    """End a running script by the id that INFO FOR RUNNING shows."""

    id: str
    at: int = field(default=0, compare=False)


Answering = (
    Create | Insert | Upsert | Update | Delete | Select | If | GetKey | SetKey | SwapKey | IncrKey
    | DeleteKey | ExpireKey | PersistKey | LockKey | UnlockKey | ListKeys | TrimTopic | Publish
    | ReadTopic | Take | Ack | Nack | Extend | GiveUp | Redrive
)  # fmt: skip
"""Statements whose answer LET and RETURN take."""

Statement = (
    Create | Insert | Upsert | Update | Delete | Select | Let | ReturnStatement | Evaluate | If
    | For | Throw | Begin | Commit | Cancel | Use | DefineNamespace | DefineDatabase | DefineTable
    | DropNamespace | DropDatabase | DropTable | DefineSpace | DropSpace | GetKey | SetKey | SwapKey
    | IncrKey | DeleteKey | ExpireKey | PersistKey | LockKey | UnlockKey | ListKeys | DropKeys
    | DefineTopic | AlterTopic | DropTopic | TrimTopic | Publish | ReadTopic | DefineReader
    | CommitReader | AlterReader | DropReader | DefineGroup | AlterGroup | DropGroup | Take | Ack
    | Nack | Extend | GiveUp | Redrive
    | DefineField | AlterTable | AlterField | DropField
    | DefineIndex | DropIndex | RebuildIndex | Explain
    | DefineUser | AlterUser | DropUser | DefineNode | Info | Kill
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed text. `text` is kept to show the line of a refusal."""

    statements: tuple[Statement, ...]
    text: str = field(default="", compare=False, repr=False)

    def position(self, at: int) -> tuple[int, int]:
        """Line and column, both from 1, of an offset."""
        before = self.text[:at]
        return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


Node = Any
"""Some node of the tree, where a walker does not care which."""
