"""The file NODE: what a node is told about itself.

It is no part of the store: no backup carries it and no follower inherits it. It is replaced whole,
so a crash leaves the old facts or the new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from storage.directory import StoreDirectory, new_uuid
from storage.faults import StoreDamaged


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node."""

    node_id: UUID
    roles: tuple[str, ...] | None = None
    """None: never declared. Empty: declared to have none, the drain."""
    endpoints: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


def load_node(directory: StoreDirectory) -> NodeFacts:
    """The facts of this node; at its first start they are made, with a new id, and saved.

    :raises StoreDamaged: the file is not what was written
    :raises StoreTooNew: a later version wrote it
    """
    path = f"{directory.path}/NODE"
    if not directory.fs.exists(path):
        facts = NodeFacts(new_uuid(directory.rng))
        save_node(directory, facts)
        return facts
    stored = directory.read(path)
    roles, endpoints = stored.get("roles"), stored.get("endpoints")
    origins = stored.get("origins", [])  # what an earlier version wrote has none
    try:
        node_id = UUID(str(stored["node"]))
    except (KeyError, ValueError):
        raise StoreDamaged(f"{path} names no node") from None
    if (
        not isinstance(endpoints, list)
        or not isinstance(origins, list)
        or not isinstance(roles, list | None)
    ):
        raise StoreDamaged(f"{path} holds no roles or endpoints")
    words = None if roles is None else tuple(str(role) for role in roles)
    return NodeFacts(node_id, words, tuple(map(str, endpoints)), tuple(map(str, origins)))


def save_node(directory: StoreDirectory, facts: NodeFacts) -> None:
    """Replace the facts; durable on return. Raises OSError."""
    stored = {
        "node": str(facts.node_id),
        "roles": None if facts.roles is None else list(facts.roles),
        "endpoints": list(facts.endpoints),
        "origins": list(facts.origins),
    }
    directory.write(f"{directory.path}/NODE", stored)
