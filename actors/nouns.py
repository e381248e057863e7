"""What is declared, as the nouns that rights are on."""

from __future__ import annotations

from typing import Final

from protocol.rights import Kind, Noun
from storage.catalog import Database, Namespace, Space, Table
from storage.functions import Function
from storage.topics import Topic
from storage.vaults import Vault

Thing = Namespace | Database | Table | Topic | Space | Function | Vault | Noun
"""What can be judged: what is declared, and the nouns `STORE` and `NODE`. A function is judged as
its database: it holds nothing, and tells nothing but what whoever calls it gives it."""

_KINDS: Final[dict[type, Kind]] = {
    Table: Kind.TABLE, Topic: Kind.TOPIC, Space: Kind.SPACE, Vault: Kind.VAULT,
}  # fmt: skip


def noun_of(thing: Thing) -> Noun:
    """The noun that a declared thing is."""
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
    """What tells a thing from every other one, by all that rights go by. Its id does not: it is
    given again, to something else elsewhere, once the commit that declared the first was taken
    back."""
    if isinstance(thing, (Table, Topic, Space, Vault)):
        within = thing.database
        around = within.namespace
        ids = (thing.id, within.id, around.id)
        return (type(thing), ids, thing.name, within.name, around.name)
    noun = noun_of(thing)
    return (noun.kind, noun.ids, noun.path)
