"""AST of record statements and their targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from protocol.paths import Path

if TYPE_CHECKING:
    from language.tree.expressions import Expression


@dataclass(frozen=True, slots=True)
class TableTarget:
    """All records of a table; as the target of CREATE, a new record."""

    table: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RecordRange:
    """`t:a..b`: the records of a table with ids in a range. A missing bound is open."""

    table: str
    low: Expression | None
    high: Expression | None
    inclusive: bool
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ExpressionTarget:
    """An expression that evaluates to a record, an array of records or rows, or an object; or a
    subquery.

    Most often a single `RecordLiteral`.
    """

    expression: Expression


Target = TableTarget | RecordRange | ExpressionTarget


@dataclass(frozen=True, slots=True)
class Column:
    """A column of SELECT or RETURN. `alias` None: named after its expression's path or text."""

    expression: Expression
    alias: str | None


@dataclass(frozen=True, slots=True)
class Order:
    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True)
class Select:
    """`SELECT`. `value`: SELECT VALUE with one column. `everything`: the columns include `*`."""

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
    only: bool = False
    """FROM ONLY: the result is one value instead of an array."""
    distinct: bool = False
    """DISTINCT: of equal result rows only the first is kept."""
    back: Path | None = None
    """Path of a subquery written as `<-table.path`; an index must start with it."""
    current: bool = False
    """CURRENT: the script runs after everything committed anywhere in the cluster when it arrived
    (linearizable read)."""
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Content:
    value: Expression


@dataclass(frozen=True, slots=True)
class Merge:
    value: Expression


@dataclass(frozen=True, slots=True)
class Assignment:
    """`path = value`, or an assignment that adds to or subtracts from the current value."""

    path: Path
    value: Expression
    operator: Literal["=", "+=", "-="] = "="
    at: int = field(default=0, compare=False)
    """Offset of the operator."""


@dataclass(frozen=True, slots=True)
class Set:
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Unset:
    paths: tuple[Path, ...]


Data = Content | Merge | Set | Unset


@dataclass(frozen=True, slots=True)
class Return:
    """RETURN: the result of a writing statement for each record. `columns` is for FIELDS only."""

    kind: Literal["NONE", "BEFORE", "AFTER", "DIFF", "FIELDS"]
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    """`CREATE`. The target is a table (a new id is generated) or evaluates to one record."""

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
    columns: bool = False
    """True if `rows` is an object of arrays: one for each field, with its value in every row."""


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
    limit: Expression | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    target: Target
    where: Expression | None = None
    returning: Return | None = None
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)
    limit: Expression | None = None
