"""Users, the node, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from language.tree.expressions import Expression
from language.tree.places import Exists

SECRET: Final[Mapping[str, Any]] = {"secret": True}
"""Marks a field whose text is never printed, logged or kept; see `language.secrets`."""


@dataclass(frozen=True, slots=True)
class NounRef:
    """What a right is on, as a statement names it: `TABLE shop.main.item`.

    `names` are those of the places around it, as far as they are said, and its own last; the node
    has none."""

    kind: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefineUser:
    """Exactly one of `password`, `passhash` and `bound`, the name of the parameter that holds the
    password, is set; the first two are never printed."""

    name: str
    role: str
    password: str | None = field(default=None, repr=False, metadata=SECRET)
    passhash: str | None = field(default=None, repr=False, metadata=SECRET)
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    space: NounRef | None = None
    """The namespace or database that the user belongs to; None: store-wide."""
    bound: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterUser:
    """Exactly one of `password`, `bound`, the name of a parameter, and `role` is set."""

    name: str
    password: str | None = field(default=None, repr=False, metadata=SECRET)
    role: str | None = None
    bound: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropUser:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """Words of verbs, in the order in which they are written, are checked by the node."""

    verbs: tuple[str, ...]
    noun: NounRef
    user: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Revoke:
    """As `Grant`."""

    verbs: tuple[str, ...]
    noun: NounRef
    user: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineNode:
    """`roles` None: not named; empty: ROLES NONE, the drain. `origins` None: not named; empty:
    ORIGINS NONE. At least one of the three is set. Role words, addresses and
    origins are checked by the node, not by the parser."""

    roles: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    origins: tuple[str, ...] | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LeadStore:
    """Have this node take the lead, which nobody has. `force`: also where it may not hold all."""

    force: bool = False
    reason: str | None = None
    at: int = field(default=0, compare=False)


InfoSubject = Literal[
    "STORE", "NAMESPACE", "DATABASE", "TABLE", "INDEX", "SPACE", "TOPIC", "GROUP", "USERS", "USER",
    "NODE", "STATE", "RUNNING", "FUNCTION", "GRANTS", "BACKUPS", "VAULT",
    "CLUSTER",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Info:
    """`INFO FOR …`. `names` is what follows the subject: (), (ns,), (ns, db), (db,), (table,),
    (space,), (function,), (vault,), (index, table), (topic,), (group, topic), (user,)."""

    subject: InfoSubject
    names: tuple[str, ...] = ()
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class InfoEntries:
    """`INFO FOR STATEMENTS` and `INFO FOR AUDIT`: what was kept of them, newest first."""

    subject: Literal["STATEMENTS", "AUDIT"]
    before: Expression | None = None
    """Only of commits before that sequence."""
    limit: Expression | None = None
    user: str | None = None
    """Only of what that user has done."""
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class InfoHistory:
    """`INFO FOR HISTORY OF`: the changes of a record, newest first."""

    of: Expression | NounRef
    """What names the record; or a place or table, which has no history."""
    before: Expression | None = None
    """Only those of commits before that sequence."""
    limit: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Kill:
    """End a running script by the id that INFO FOR RUNNING shows."""

    id: Expression
    at: int = field(default=0, compare=False)
