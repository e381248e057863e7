"""AST of statements on users, privileges, the node and INFO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from language.tree.expressions import Expression
from language.tree.places import Exists

SECRET: Final[Mapping[str, Any]] = {"secret": True}
"""Marks a field whose text is never printed, logged or stored; see `language.secrets`."""


@dataclass(frozen=True, slots=True)
class SecurableRef:
    """Securable of a privilege as named in a statement: `TABLE shop.main.item`.

    `names` holds the given names of the enclosing namespace and database, then its own. It is empty
    for the node.
    """

    kind: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefineUser:
    """`DEFINE USER`. Exactly one of `password`, `passhash` and `bound` is set.

    `bound` is the name of the parameter that holds the password. The other two are never printed.
    """

    name: str
    role: str
    password: str | None = field(default=None, repr=False, metadata=SECRET)
    passhash: str | None = field(default=None, repr=False, metadata=SECRET)
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    space: SecurableRef | None = None
    """Namespace or database that the user belongs to; None: the whole store."""
    bound: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AlterUser:
    """`ALTER USER`. Exactly one of `password`, `bound` (a parameter's name) and `role` is set."""

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
    """`GRANT`. Verbs are kept in the order written and are checked by the node."""

    verbs: tuple[str, ...]
    securable: SecurableRef
    user: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Revoke:
    """`REVOKE`. Fields as in `Grant`."""

    verbs: tuple[str, ...]
    securable: SecurableRef
    user: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineNode:
    """`DEFINE NODE`. At least one of the three is set; None: the clause is absent.

    Empty `roles`: ROLES NONE, which drains the node. Empty `origins`: ORIGINS NONE. Role words,
    addresses and origins are checked by the node, not by the parser.
    """

    roles: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    origins: tuple[str, ...] | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LeadStore:
    """Make this node the leader of a store without one. `force`: even if it may lack entries."""

    force: bool = False
    reason: str | None = None
    at: int = field(default=0, compare=False)


InfoSubject = Literal[
    "STORE", "NAMESPACE", "DATABASE", "TABLE", "INDEX", "SPACE", "TOPIC", "GROUP", "USERS", "USER",
    "NODE", "STATE", "RUNNING", "FUNCTION", "ANALYZER", "GRANTS", "BACKUPS", "VAULT",
    "CLUSTER",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Info:
    """`INFO FOR …`. `names` are the names after the subject.

    They are (), (ns,), (ns, db), (db,), (table,), (space,), (function,), (analyzer,), (vault,),
    (index, table), (topic,), (group, topic) or (user,).
    """

    subject: InfoSubject
    names: tuple[str, ...] = ()
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class InfoEntries:
    """`INFO FOR STATEMENTS` and `INFO FOR AUDIT`: entries of the statement log or the audit trail,
    newest first."""

    subject: Literal["STATEMENTS", "AUDIT"]
    before: Expression | None = None
    """Only entries of commits before this sequence."""
    limit: Expression | None = None
    user: str | None = None
    """Only entries of this user."""
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class InfoHistory:
    """`INFO FOR HISTORY OF`: the changes of a record, newest first."""

    of: Expression | SecurableRef
    """Expression that denotes the record; or a namespace, database or table, which has no history.
    """
    before: Expression | None = None
    """Only changes of commits before this sequence."""
    limit: Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Kill:
    """`KILL`: end a running script by the id that INFO FOR RUNNING shows."""

    id: Expression
    at: int = field(default=0, compare=False)
