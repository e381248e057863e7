"""AST of user-defined functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from language.tree.fields import FieldType
from language.tree.places import Exists

if TYPE_CHECKING:
    from language.tree.expressions import Expression


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """`$name: type`."""

    name: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class DefineFunction:
    """`DEFINE FUNCTION`. `returns` None: any value."""

    name: str
    parameters: tuple[FunctionParameter, ...]
    body: Expression
    returns: FieldType | None = None
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropFunction:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)
