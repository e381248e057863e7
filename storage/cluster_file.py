"""The file CLUSTER: what a node keeps for itself of the cluster that it is in.

It stands beside NODE, is no part of the store, and is replaced whole. That it is there says that
the node is in a cluster: a start brings the state no further than the log says was released.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.failover import Policy
from storage import failover
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


class Founding(NamedTuple):
    """What a node has to go on with that was to found the set, and has not heard that it is."""

    members: frozenset[str]
    """Of the first set, itself among them: they hold all that was released when this was written,
    and nothing is released since. None: it was founded."""
    policy: Policy
    """That comes into force with it, …"""
    sequence: int
    """… which is in this frame: a start may not show it yet."""


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
    founding: Founding | None = None
    """None: it founds none."""
    doubts: bool = False
    """Whether that agreement was found set back: whatever it says since may be what was long gone
    by, until an operator has named who leads."""

    @property
    def founds(self) -> bool:
        """Whether it has not heard yet that the set is founded which it was to found."""
        return self.founding is not None and bool(self.founding.members)

    def policy(self, shown: Policy | None) -> Policy | None:
        """The one that the node goes by: what it founds with, until that is founded and the state
        shows a policy.

        :param shown: that this state shows for its store; None: none
        """
        if self.founding is not None and (self.founds or shown is None):
            return self.founding.policy
        return shown


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
            _founding(stored.get("founding")),
            stored.get("doubts") is True,
        )
    except KeyError as error:
        why = f"it has no {error} where a cluster's file has one"
        raise StoreDamaged(f"{path} is damaged: {why}") from None
    except ValueError as error:
        raise StoreDamaged(f"{path} is damaged: {error}") from None


def save(directory: StoreDirectory, cluster: Cluster) -> None:
    """Replace it; durable on return. :raises OSError: the old one is still there"""
    upstream, founding = cluster.upstream, cluster.founding
    stored: dict[str, object] = {
        **cluster._asdict(),
        "upstream": None if upstream is None else upstream._asdict(),
        "founding": None if founding is None else _described(founding),
    }
    directory.write(_path(directory), stored)


def _upstream(stored: object) -> Upstream:
    if not isinstance(stored, dict) or not isinstance(stored.get("peers"), list):
        raise ValueError("its upstream is none")
    peers = tuple(map(str, stored["peers"]))
    return Upstream(str(stored["node"]), peers, str(stored["fingerprint"]))


def _described(founding: Founding) -> dict[str, object]:
    """The policy is written as the store has it."""
    policy = failover.packed(founding.policy).hex()
    return {**founding._asdict(), "members": sorted(founding.members), "policy": policy}


def _founding(stored: object) -> Founding | None:
    if stored is None:
        return None
    if not isinstance(stored, dict) or not isinstance(stored.get("members"), list):
        raise ValueError("what it founds is nothing")
    policy = failover.unpacked(bytes.fromhex(str(stored["policy"])))
    return Founding(frozenset(map(str, stored["members"])), policy, int(str(stored["sequence"])))


def _path(directory: StoreDirectory) -> str:
    return f"{directory.path}/CLUSTER"
