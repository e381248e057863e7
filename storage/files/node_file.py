"""The file NODE: the node's own settings, which are its id, roles, endpoints and origins.

They are no part of the store: no backup contains them and no follower receives them. The file is
replaced whole, so a crash leaves the old or the new version.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from storage.faults import StoreDamaged
from storage.files.directory import StoreDirectory, new_uuid


@dataclass(frozen=True, slots=True)
class NodeFileContents:
    """Contents of NODE."""

    node_id: UUID
    roles: tuple[str, ...] | None = None
    """Declared roles. None: never declared. Empty: declared to have none, to drain the node."""
    endpoints: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


def load_node(directory: StoreDirectory) -> NodeFileContents:
    """Load the node's facts. On the first start they are created, with a new id, and saved.

    :raises StoreDamaged: the file is not as written
    :raises StoreTooNew: a later version wrote it
    """
    path = f"{directory.path}/NODE"
    if not directory.fs.exists(path):
        facts = NodeFileContents(new_uuid(directory.rng))
        # Durable before its first use: rows of the cluster name the node by this id.
        save_node(directory, facts)
        return facts
    stored = directory.read(path)
    roles, endpoints = stored.get("roles"), stored.get("endpoints")
    origins = stored.get("origins", [])  # files of earlier versions have none
    try:
        node_id = UUID(str(stored["node"]))
    except (KeyError, ValueError):
        raise StoreDamaged(f"{path} is damaged: it holds no node id") from None
    if (
        not isinstance(endpoints, list)
        or not isinstance(origins, list)
        or not isinstance(roles, list | None)
    ):
        raise StoreDamaged(f"{path} is damaged: it holds no roles or endpoints")
    words = None if roles is None else tuple(str(role) for role in roles)
    return NodeFileContents(node_id, words, tuple(map(str, endpoints)), tuple(map(str, origins)))


def save_node(directory: StoreDirectory, facts: NodeFileContents) -> None:
    """Replace the facts. Durable on return.

    :raises OSError: the disk fails
    """
    stored = {
        "node": str(facts.node_id),
        "roles": None if facts.roles is None else list(facts.roles),
        "endpoints": list(facts.endpoints),
        "origins": list(facts.origins),
    }
    directory.write(f"{directory.path}/NODE", stored)
