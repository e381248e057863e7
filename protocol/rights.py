"""What can be done, and what it is done to: the words of rights, as values.

Which verb means what on which noun is the table `VERBS`; what a role holds without any grant is
`ROLES`. Whether a caller may do something is judged in one place only, `actors/rights.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Verb(Enum):
    """What somebody may do."""

    READ = "READ"
    WRITE = "WRITE"
    CONSUME = "CONSUME"
    DEFINE = "DEFINE"
    INFO = "INFO"
    UNSEAL = "UNSEAL"
    OWN = "OWNER"
    """What only the role owner brings, and no grant: users, grants, the node, dropping a place."""


class Kind(Enum):
    """What it may be done to."""

    STORE = "STORE"
    """All of it: namespaces, and the users that belong to none."""
    NODE = "NODE"
    NAMESPACE = "NAMESPACE"
    DATABASE = "DATABASE"
    TABLE = "TABLE"
    TOPIC = "TOPIC"
    SPACE = "SPACE"
    VAULT = "VAULT"
    VAULTS = "ALL VAULTS IN"
    """All vaults of a place, those to come among them: what a grant on the place does not reach."""
    FUNCTION = "FUNCTION"
    """Of a database: it is seen by who sees that, and judged as that."""
    USER = "USER"
    """As what is needed: an owner of the place that the user belongs to."""
    REPLICA = "REPLICA"
    """A row of the cluster: it is judged as the store."""


Verbs = frozenset[Verb]

NOTHING: Final[Verbs] = frozenset()
"""No verb. As what is needed: that the caller may see it."""
READ: Final[Verbs] = frozenset({Verb.READ})
WRITE: Final[Verbs] = frozenset({Verb.WRITE})
CONSUME: Final[Verbs] = frozenset({Verb.CONSUME})
DEFINE: Final[Verbs] = frozenset({Verb.DEFINE})
INFO: Final[Verbs] = frozenset({Verb.INFO})
UNSEAL: Final[Verbs] = frozenset({Verb.UNSEAL})
OWN: Final[Verbs] = frozenset({Verb.OWN})
ALL: Final[Verbs] = frozenset(Verb)

_DATA: Final = READ | WRITE | DEFINE | INFO

VERBS: Final[dict[Kind, Verbs]] = {
    Kind.STORE: DEFINE | INFO | OWN,
    Kind.NODE: INFO | OWN | UNSEAL,
    Kind.NAMESPACE: _DATA | CONSUME | OWN,
    Kind.DATABASE: _DATA | CONSUME | OWN,
    Kind.TABLE: _DATA,
    Kind.TOPIC: _DATA | CONSUME,
    Kind.SPACE: READ | WRITE | INFO,
    Kind.VAULT: READ | WRITE | INFO | UNSEAL,
    Kind.VAULTS: READ | WRITE | INFO | UNSEAL,
    Kind.USER: OWN,
}
"""The verbs that mean something on each kind of noun."""

ROLES: Final[dict[str, Verbs]] = {
    "owner": ALL,
    "editor": READ | WRITE | CONSUME | DEFINE,
    "viewer": READ | INFO,
    "member": NOTHING,
}
"""What each role holds on everything inside its user's space. Of a vault only the owner's holds."""


@dataclass(frozen=True, slots=True)
class Noun:
    """One thing that something is done to.

    Two nouns are the same when their kinds and ids are: a thing that was dropped and one declared
    anew under its name have nothing to do with each other.
    """

    kind: Kind
    ids: tuple[int, ...] = ()
    """Of the namespace, the database and the thing itself, as far down as it stands."""
    path: str = field(default="", compare=False)
    """How people write it, `ns.db.name`; empty for the store and the node."""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.path}" if self.path else self.kind.value

    def covers(self, other: Noun) -> bool:
        """Whether a grant on this one is about another: itself, or a place around it. No place is
        around a vault: only a grant on the vault reaches it, or on all vaults of a place."""
        if self.kind is Kind.VAULTS:
            inside = other.kind is Kind.VAULT and other.ids[: len(self.ids)] == self.ids
            return inside or self == other
        if self.kind not in PLACES:
            return self == other
        return other.kind not in _VAULTS and other.ids[: len(self.ids)] == self.ids


@dataclass(frozen=True, slots=True)
class Grant:
    """A verb that a user holds on something, beside what its role brings."""

    verb: Verb
    noun: Noun


_VAULTS: Final = frozenset({Kind.VAULT, Kind.VAULTS})
PLACES: Final = frozenset({Kind.NAMESPACE, Kind.DATABASE})

STORE: Final = Noun(Kind.STORE)
NODE: Final = Noun(Kind.NODE)


def is_inside(path: str, place: str | None) -> bool:
    """Whether a path is that of a place, or of something in it; None: of the whole store. Names
    hold no dots."""
    return place is None or path == place or path.startswith(f"{place}.")


def needed(verbs: Verbs, noun: Noun) -> str:
    """What is needed, in the words of GRANT where a grant would do: `READ, WRITE ON TABLE a.b.t`,
    `OWNER OF DATABASE a.b`."""
    words = ", ".join(verb.value for verb in Verb if verb in verbs)
    return f"{words} {'OF' if Verb.OWN in verbs else 'ON'} {noun}"
