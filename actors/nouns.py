"""Nouns: maps declared objects to the securables that privileges are granted on."""

from __future__ import annotations

from typing import Final

from protocol.rights import Securable, SecurableKind
from storage.catalog.functions import Function
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.catalog.tables import Table
from storage.topics.topics import Topic
from storage.vaults.vaults import Vault

SecurableObject = Namespace | Database | Table | Topic | Space | Function | Vault | Securable
"""Object of an authorization: a declared object, or the nouns `STORE` and `NODE`.

A function is authorized as its database: it holds no data, and works only on its caller's
arguments.
"""

_KINDS: Final[dict[type, SecurableKind]] = {
    Table: SecurableKind.TABLE, Topic: SecurableKind.TOPIC, Space: SecurableKind.SPACE,
    Vault: SecurableKind.VAULT,
}  # fmt: skip


def noun_of(thing: SecurableObject) -> Securable:
    """Return the noun of a declared object."""
    match thing:
        case Securable():
            return thing
        case Namespace():
            return Securable(SecurableKind.NAMESPACE, (thing.id,), thing.path)
        case Database():
            return Securable(SecurableKind.DATABASE, (thing.namespace.id, thing.id), thing.path)
        case Function():
            return noun_of(thing.database)
    within = thing.database
    ids = (within.namespace.id, within.id, thing.id)
    kind = _KINDS[type(thing)]
    return Securable(kind, ids, thing.path)


def told_apart(thing: SecurableObject) -> tuple[object, ...]:
    """Return a key that identifies an object by all that authorization depends on.

    The id alone is not enough: after a roll back of the declaring commit, another object may get
    it.
    """
    if isinstance(thing, (Table, Topic, Space, Vault)):
        within = thing.database
        around = within.namespace
        ids = (thing.id, within.id, around.id)
        return (type(thing), ids, thing.name, within.name, around.name)
    noun = noun_of(thing)
    return (noun.kind, noun.ids, noun.path)
