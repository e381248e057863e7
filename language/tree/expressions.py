"""AST of expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import copysign
from typing import TYPE_CHECKING, Literal

from protocol.values import Value, identical

if TYPE_CHECKING:
    from language.tree.records import Select


def same_constant(left: Value, right: Value) -> bool:
    """True if two constants have the same type and value, including the sign of zero.

    In Python `true`, `1`, `1.0` and `1dec` are equal, so that different ASTs would be equal.
    """
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_constant, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            same_constant(left[name], right[name]) for name in left
        )
    if isinstance(left, float) and isinstance(right, float):
        return left == right and copysign(1, left) == copysign(1, right)
    return identical(left, right)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of any type except array, object and record, whose parts may be expressions."""

    value: Value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and same_constant(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name`: bound by the request, LET, FOR, or the node (`$value`, `$parent`)."""

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
    """A bare name: a field of the current row (the head of a path)."""

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
    """`of[*]` or `of.*`: later steps apply to every item."""

    of: Expression


@dataclass(frozen=True, slots=True)
class Collected:
    """`(of)` before `[index]` or `[*]`: ends a path. The next step applies to the collected array,
    not to every item."""

    of: Expression


def collects(node: Expression) -> bool:
    """True if a path may apply later steps to every item of an array: by `[*]`, or by a name."""
    while isinstance(node, Attribute | Index | Each):
        if not (
            isinstance(node, Index)
            and isinstance(node.index, Constant)
            and isinstance(node.index.value, int)
        ):
            return True
        node = node.of
    return False


UnaryOperator = Literal["NOT", "-", "+"]


BinaryOperator = Literal[
    "OR", "AND", "=", "!=", "<", "<=", ">", ">=", "IN", "NOT IN", "CONTAINS", "~", "@@", "??",
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
    """`low..high` (end exclusive) or `low..=high`; its value is an array of ints."""

    low: Expression
    high: Expression
    inclusive: bool
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Nearest:
    """`f NEAREST k TO v [PROBES n]`: the k rows whose vectors are nearest to one."""

    of: Expression
    count: Expression
    to: Expression
    probes: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function call by full name: `count`, `string::len`."""

    name: str
    arguments: tuple[Expression, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Closure:
    """`|$x, $y| body`: a function applied to each item; only as an argument of a call."""

    parameters: tuple[str, ...]
    body: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Subquery:
    """`(SELECT …)`: the array of its result rows, computed in the same transaction."""

    select: Select


@dataclass(frozen=True, slots=True)
class Choice:
    """`CASE WHEN c THEN e … ELSE e END`, also `IF c { e } ELSE { e }`.

    Its value is that of the first branch whose condition holds or, with a subject, whose value
    equals it.
    """

    subject: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None
    """ELSE; None: the value is NONE."""
    at: int = field(default=0, compare=False)


Expression = (
    Constant | Parameter | Array | Object | RecordLiteral | Name | Attribute | Index | Each
    | Collected
    | Unary | Binary | Nearest | Range | Call | Closure | Subquery | Choice
)  # fmt: skip
