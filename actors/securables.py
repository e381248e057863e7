"""Securables: maps declared objects to the securables that privileges are granted on."""

from __future__ import annotations

from typing import Final

from protocol.rights import Securable, SecurableKind
from storage.catalog.analyzers import Analyzer
from storage.catalog.functions import Function
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.catalog.tables import Table
from storage.topics.topics import Topic
from storage.vaults.vaults import Vault

SecurableObject = (
    Namespace | Database | Table | Topic | Space | Function | Analyzer | Vault | Securable
)
"""Object of an authorization: a declared object, or the securables `STORE` and `NODE`.

A function or an analyzer is authorized as its database: it holds no data, and works only on its
caller's arguments.
"""

_KINDS: Final[dict[type, SecurableKind]] = {
    Table: SecurableKind.TABLE, Topic: SecurableKind.TOPIC, Space: SecurableKind.SPACE,
    Vault: SecurableKind.VAULT,
}  # fmt: skip


def securable_of(target: SecurableObject) -> Securable:
    """Return the securable of a declared object."""
    match target:
        case Securable():
            return target
        case Namespace():
            return Securable(SecurableKind.NAMESPACE, (target.id,), target.path)
        case Database():
            return Securable(SecurableKind.DATABASE, (target.namespace.id, target.id), target.path)
        case Function() | Analyzer():
            return securable_of(target.database)
    within = target.database
    ids = (within.namespace.id, within.id, target.id)
    kind = _KINDS[type(target)]
    return Securable(kind, ids, target.path)


def told_apart(target: SecurableObject) -> tuple[object, ...]:
    """Return a key that identifies an object by all that authorization depends on.

    The id alone is not enough: after a roll back of the declaring commit, another object may get
    it.
    """
    if isinstance(target, (Table, Topic, Space, Vault)):
        within = target.database
        around = within.namespace
        ids = (target.id, within.id, around.id)
        return (type(target), ids, target.name, within.name, around.name)
    securable = securable_of(target)
    return (securable.kind, securable.ids, securable.path)
