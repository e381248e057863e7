"""AST of statements on cache spaces and their keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from language.tree.places import Exists

if TYPE_CHECKING:
    from language.tree.expressions import Expression


@dataclass(frozen=True, slots=True)
class DefineSpace:
    """`DEFINE SPACE`. `expire`: default time to live of a key; None: keys do not expire."""

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
    """`SET`. At most one of `expire` (a duration), `expire_at` (a datetime) and `keep` is set."""

    key: Expression
    space: str
    value: Expression
    expire: Expression | None = None
    keep: bool = False
    when: Literal["ABSENT", "PRESENT"] | None = None
    expire_at: Expression | None = None
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
