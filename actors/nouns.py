"""Nouns: maps declared objects to the securables that privileges are granted on."""

from __future__ import annotations

from typing import Final

from protocol.rights import Kind, Noun
from storage.catalog.catalog import Database, Namespace, Space, Table
from storage.catalog.functions import Function
from storage.topics.topics import Topic
from storage.vaults.vaults import Vault

Thing = Namespace | Database | Table | Topic | Space | Function | Vault | Noun
"""Object of an authorization: a declared object, or the nouns `STORE` and `NODE`.

A function is authorized as its database: it holds no data, and works only on its caller's
arguments.
"""

_KINDS: Final[dict[type, Kind]] = {
    Table: Kind.TABLE, Topic: Kind.TOPIC, Space: Kind.SPACE, Vault: Kind.VAULT,
}  # fmt: skip


def noun_of(thing: Thing) -> Noun:
    """Return the noun of a declared object."""
    match thing:
        case Noun():
            return thing
        case Namespace():
            return Noun(Kind.NAMESPACE, (thing.id,), thing.path)
        case Database():
            return Noun(Kind.DATABASE, (thing.namespace.id, thing.id), thing.path)
        case Function():
            return noun_of(thing.database)
    within = thing.database
    ids = (within.namespace.id, within.id, thing.id)
    kind = _KINDS[type(thing)]
    return Noun(kind, ids, thing.path)


def told_apart(thing: Thing) -> tuple[object, ...]:
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
