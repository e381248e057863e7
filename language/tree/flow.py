"""AST of control flow: LET, IF, FOR, RETURN, THROW, blocks and transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from language.tree import Answering, Statement
    from language.tree.expressions import Expression


@dataclass(frozen=True, slots=True)
class If:
    """IF as an expression or a statement.

    Its value is that of the last statement in the branch taken, or NONE if no branch was taken.
    """

    branches: tuple[tuple[Expression, Block], ...]
    otherwise: Block | None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expression | Answering
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReturnStatement:
    """Ends the script, or the transaction's block, with a value."""

    value: Expression | Answering
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """An expression used as a statement."""

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
