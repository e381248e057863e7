"""Privileges as values: verbs, securables, roles and grants.

`VERBS` lists the verbs that apply to each kind of securable, `ROLES` the verbs of a role without
any grant. Authorization itself happens in one place, `actors/rights.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Verb(Enum):
    """A privilege, as in SQL GRANT."""

    READ = "READ"
    WRITE = "WRITE"
    CONSUME = "CONSUME"
    DEFINE = "DEFINE"
    INFO = "INFO"
    UNSEAL = "UNSEAL"
    OWN = "OWNER"
    """Held only through the role owner, never granted: users, grants, the node, dropping a
    namespace or database."""


class SecurableKind(Enum):
    """Kinds of securables."""

    STORE = "STORE"
    """The whole store: namespaces, and store-wide users."""
    NODE = "NODE"
    NAMESPACE = "NAMESPACE"
    DATABASE = "DATABASE"
    TABLE = "TABLE"
    TOPIC = "TOPIC"
    SPACE = "SPACE"
    VAULT = "VAULT"
    VAULTS = "ALL VAULTS IN"
    """All vaults of a namespace or database, future ones included. A grant on the namespace or
    database does not cover vaults."""
    FUNCTION = "FUNCTION"
    """A function of a database: visible to users that see the database, and authorized as it."""
    ANALYZER = "ANALYZER"
    """An analyzer of a database: as a function."""
    USER = "USER"
    """Requirement: an owner of the store, namespace or database that the user belongs to."""
    REPLICA = "REPLICA"
    """A row of the cluster: authorized as the store."""


Verbs = frozenset[Verb]

NOTHING: Final[Verbs] = frozenset()
"""No verb. As a requirement: the caller may see the securable."""
READ: Final[Verbs] = frozenset({Verb.READ})
WRITE: Final[Verbs] = frozenset({Verb.WRITE})
CONSUME: Final[Verbs] = frozenset({Verb.CONSUME})
DEFINE: Final[Verbs] = frozenset({Verb.DEFINE})
INFO: Final[Verbs] = frozenset({Verb.INFO})
UNSEAL: Final[Verbs] = frozenset({Verb.UNSEAL})
OWN: Final[Verbs] = frozenset({Verb.OWN})
ALL: Final[Verbs] = frozenset(Verb)

_DATA: Final = READ | WRITE | DEFINE | INFO

VERBS: Final[dict[SecurableKind, Verbs]] = {
    SecurableKind.STORE: DEFINE | INFO | OWN,
    SecurableKind.NODE: INFO | OWN | UNSEAL,
    SecurableKind.NAMESPACE: _DATA | CONSUME | OWN,
    SecurableKind.DATABASE: _DATA | CONSUME | OWN,
    SecurableKind.TABLE: _DATA,
    SecurableKind.TOPIC: _DATA | CONSUME,
    SecurableKind.SPACE: READ | WRITE | INFO,
    SecurableKind.VAULT: READ | WRITE | INFO | UNSEAL,
    SecurableKind.VAULTS: READ | WRITE | INFO | UNSEAL,
    SecurableKind.USER: OWN,
}
"""Verbs that apply to each kind of securable."""

ROLES: Final[dict[str, Verbs]] = {
    "owner": ALL,
    "editor": READ | WRITE | CONSUME | DEFINE,
    "viewer": READ | INFO,
    "member": NOTHING,
}
"""Verbs that each role holds on everything inside its user's space. On vaults only the owner's role
counts."""


@dataclass(frozen=True, slots=True)
class Securable:
    """A securable: one object that privileges apply to.

    Two securables are equal if their kinds and ids are. An object that was dropped and another
    declared later under its name are unrelated.
    """

    kind: SecurableKind
    ids: tuple[int, ...] = ()
    """Ids of the namespace, the database and the object itself, as far as they apply."""
    path: str = field(default="", compare=False)
    """Display name, `ns.db.name`; empty for the store and the node."""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.path}" if self.path else self.kind.value

    def covers(self, other: Securable) -> bool:
        """True if a grant on this securable applies to the other: itself, or one inside it. A
        grant on a namespace or database does not cover its vaults. Those need a grant on the vault,
        or on all vaults of a namespace or database."""
        if self.kind is SecurableKind.VAULTS:
            inside = other.kind is SecurableKind.VAULT and other.ids[: len(self.ids)] == self.ids
            return inside or self == other
        if self.kind not in PLACES:
            return self == other
        return other.kind not in _VAULTS and other.ids[: len(self.ids)] == self.ids


@dataclass(frozen=True, slots=True)
class Grant:
    """A verb that a user holds on a securable, in addition to its role."""

    verb: Verb
    securable: Securable


_VAULTS: Final = frozenset({SecurableKind.VAULT, SecurableKind.VAULTS})
PLACES: Final = frozenset({SecurableKind.NAMESPACE, SecurableKind.DATABASE})

STORE: Final = Securable(SecurableKind.STORE)
NODE: Final = Securable(SecurableKind.NODE)


def is_inside(path: str, place: str | None) -> bool:
    """True if a path is `place` or inside it; None: the whole store. Names contain no dots."""
    return place is None or path == place or path.startswith(f"{place}.")


def needed(verbs: Verbs, securable: Securable) -> str:
    """Return a missing privilege in the words of GRANT where a grant would provide it: `READ, WRITE
    ON TABLE a.b.t`, `OWNER OF DATABASE a.b`."""
    words = ", ".join(verb.value for verb in Verb if verb in verbs)
    return f"{words} {'OF' if Verb.OWN in verbs else 'ON'} {securable}"
