"""AST of field definitions and field types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from language.tree.expressions import same_constant
from language.tree.places import Exists, OnChange
from protocol.paths import Path
from protocol.values import Value

if TYPE_CHECKING:
    from language.tree.expressions import Expression


Kind = Literal[
    "any", "bool", "int", "float", "decimal", "number", "string", "bytes", "datetime", "duration",
    "uuid", "object",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainType:
    """A type named by one word."""

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
    """A type with exactly one value."""

    value: Value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LiteralType) and same_constant(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class UnionType:
    """`T | U`. At least two members, none of them a union."""

    members: tuple[FieldType, ...]


FieldType = PlainType | OptionType | ArrayType | RecordType | LiteralType | UnionType


@dataclass(frozen=True, slots=True)
class DefineField:
    """`DEFINE FIELD`. `path` has names and `*` only.

    In `assertion`, `$value` is the field's value. `value` computes the field at each write, and
    sees the given value as `$value`. `unchecked`: existing records are not validated.
    """

    path: Path
    table: str
    type: FieldType
    exists: Exists = Exists.REFUSE
    default: Expression | None = None
    value: Expression | None = None
    assertion: Expression | None = None
    readonly: bool = False
    comment: str | None = None
    unchecked: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """`ALTER TABLE`. Exactly one part is set. An empty `comment` removes the comment."""

    name: str
    schemafull: bool | None = None
    comment: str | None = None
    on_change: OnChange | None = None
    at: int = field(default=0, compare=False)

    @property
    def topic(self) -> str | None:
        """Topic that receives the table's changes; None if not set."""
        return None if self.on_change is None else self.on_change.topic


@dataclass(frozen=True, slots=True)
class AlterField:
    """`ALTER FIELD`. Exactly one part is set.

    `Constant(NONE)` as `default`, `value` or `assertion`, or an empty `comment`, removes it.
    """

    path: Path
    table: str
    type: FieldType | None = None
    default: Expression | None = None
    value: Expression | None = None
    assertion: Expression | None = None
    readonly: bool | None = None
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropField:
    path: Path
    table: str
    at: int = field(default=0, compare=False)
