"""AST of statements on vaults and the records in them.

Ids and values are expressions, so that they can be bound. One written as a literal is a secret; see
`language.secrets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from language.tree.node import SECRET

if TYPE_CHECKING:
    from language.tree.expressions import Expression

UNLESS_BOUND: Final[Mapping[str, Any]] = {"secret": "unless bound"}
"""Marks a field that is a secret unless it is a parameter."""


@dataclass(frozen=True, slots=True)
class DefineVault:
    """`DEFINE VAULT`. At most one of `passphrase` and `bound` (the name of a parameter) is set.

    With neither, the store's passphrase opens it. `unless_there`: IF NOT EXISTS; a vault is never
    overwritten.
    """

    name: str
    unless_there: bool = False
    passphrase: str | None = field(default=None, repr=False, metadata=SECRET)
    bound: str | None = None
    versions: int | None = None
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterVault:
    """`ALTER VAULT`. Exactly one of `versions` and `comment` is set."""

    name: str
    versions: int | None = None
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropVault:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RotateVault:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class WriteSecret:
    """`WRITE`. At most one of `absent` and `expect` is set."""

    id: Expression = field(repr=False, metadata=UNLESS_BOUND)
    vault: str
    value: Expression = field(repr=False, metadata=UNLESS_BOUND)
    absent: bool = False
    expect: Expression | None = None
    """Required current version of the record; 0: the record must not exist."""
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RevealSecret:
    id: Expression = field(repr=False, metadata=UNLESS_BOUND)
    vault: str
    version: Expression | None = None
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EraseSecret:
    id: Expression = field(repr=False, metadata=UNLESS_BOUND)
    vault: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ListSecrets:
    vault: str
    prefix: Expression | None = field(default=None, repr=False, metadata=UNLESS_BOUND)
    after: Expression | None = field(default=None, repr=False, metadata=UNLESS_BOUND)
    limit: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class InfoTrail:
    """`INFO FOR AUDIT OF VAULT v` or `OF ALL VAULTS`: the audit trail of a vault or of the store.

    Without `vault` it is the store's own trail or, with `number`, that of the vault with this
    number, dropped or not. `check`: verify the whole trail instead of listing entries; without
    `before` and `limit`.
    """

    vault: str | None
    number: Expression | None = None
    before: Expression | None = None
    limit: Expression | None = None
    check: bool = False
    at: int = field(default=0, compare=False)
