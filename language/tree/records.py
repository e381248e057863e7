"""Where rows come from, and the statements that read and write records."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from protocol.paths import Path

if TYPE_CHECKING:
    from language.tree.expressions import Expression


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
    only: bool = False
    """FROM ONLY: one value and no array of them."""
    distinct: bool = False
    """Of rows that are equal in the answer only the first."""
    back: Path | None = None
    """Of a subquery that is written `<-table.path`: that path. An index has to begin with it."""
    current: bool = False
    """CURRENT: the script is run behind all that was released anywhere when it came."""
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Content:
    value: Expression


@dataclass(frozen=True, slots=True)
class Merge:
    value: Expression


@dataclass(frozen=True, slots=True)
class Assignment:
    """`path = value`, or one that adds to what stands there, or takes from it."""

    path: Path
    value: Expression
    operator: Literal["=", "+=", "-="] = "="
    at: int = field(default=0, compare=False)
    """Where the operator stands."""


@dataclass(frozen=True, slots=True)
class Set:
    assignments: tuple[Assignment, ...]


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
    limit: Expression | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    target: Target
    where: Expression | None = None
    returning: Return | None = None
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)
    limit: Expression | None = None
