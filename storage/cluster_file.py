"""The file CLUSTER: what a node keeps for itself of the cluster that it is in.

It stands beside NODE, is no part of the store, and is replaced whole. That it is there says that
the node is in a cluster: a start brings the state no further than the log says was released.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.directory import StoreDirectory
from storage.faults import StoreDamaged


class Upstream(NamedTuple):
    """Whom a node attaches to as long as nobody was agreed on."""

    node: str
    """The id made with its directory."""
    peers: tuple[str, ...]
    """Addresses at which other nodes reach it."""
    fingerprint: str
    """Of the certificate that it shows them, 64 hexadecimal digits."""


class Cluster(NamedTuple):
    """What one node has to remember."""

    agreement: str | None = None
    """Names the agreement that it has heard of last; None: there was none yet."""
    revision: int = 0
    """The highest revision that it has heard from there: a lower one was set back."""
    promised: int = 0
    """The highest epoch that it follows or has led in: nobody of an older one is listened to."""
    coordinating: bool = False
    """Whether it was ever declared to be: else it never leads, and takes no changes."""
    upstream: Upstream | None = None
    """None: it has none, or needs none any more."""


def load(directory: StoreDirectory) -> Cluster | None:
    """What a node remembers; None: it is in no cluster.

    :raises StoreDamaged: the file is not what was written
    :raises StoreTooNew: a later version wrote it
    """
    path = _path(directory)
    if not directory.fs.exists(path):
        return None
    stored = directory.read(path)
    try:
        agreement, upstream = stored["agreement"], stored["upstream"]
        return Cluster(
            None if agreement is None else str(agreement),
            int(str(stored["revision"])),
            int(str(stored["promised"])),
            stored["coordinating"] is True,
            None if upstream is None else _upstream(upstream),
        )
    except (KeyError, ValueError) as error:
        raise StoreDamaged(f"{path} does not say what a cluster's file does: {error}") from None


def save(directory: StoreDirectory, cluster: Cluster) -> None:
    """Replace it; durable on return. :raises OSError: the old one is still there"""
    upstream = cluster.upstream
    stored: dict[str, object] = {
        **cluster._asdict(),
        "upstream": None if upstream is None else upstream._asdict(),
    }
    directory.write(_path(directory), stored)


def _upstream(stored: object) -> Upstream:
    if not isinstance(stored, dict) or not isinstance(stored.get("peers"), list):
        raise ValueError("its upstream is none")
    peers = tuple(map(str, stored["peers"]))
    return Upstream(str(stored["node"]), peers, str(stored["fingerprint"]))


def _path(directory: StoreDirectory) -> str:
    return f"{directory.path}/CLUSTER"
