"""The file CLUSTER: a node's local cluster metadata.

It lies beside NODE, is not part of the store, and is replaced whole. Its presence means that the
node is in a cluster. At start such a node applies its log only up to the commit index found there.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.failover import Policy, packed, unpacked
from storage.faults import StoreDamaged
from storage.files.directory import StoreDirectory


class Upstream(NamedTuple):
    """The node to attach to as long as no leader was agreed on."""

    node: str
    """Node id, created with its directory."""
    peers: tuple[str, ...]
    """Addresses at which other nodes reach it."""
    fingerprint: str
    """Fingerprint of the certificate it presents, 64 hexadecimal digits."""


class BootstrapState(NamedTuple):
    """State of a node that bootstraps the first in-sync replicas (ISR)."""

    members: frozenset[str]
    """The first in-sync replicas, this node included. They hold all that was visible when this was
    written, and nothing was released since. Empty: the bootstrap succeeded."""
    policy: Policy
    """Failover policy that takes effect with the bootstrap."""
    sequence: int
    """Sequence of the frame that contains the policy; a start may not apply it yet."""


class ClusterState(NamedTuple):
    """Persistent cluster state of one node."""

    agreement: str | None = None
    """Id of the agreement service (etcd) last heard from; None: none yet."""
    revision: int = 0
    """Highest revision seen there; a lower one means it was set back."""
    promised: int = 0
    """Highest leader epoch that the node followed or led; leaders of older epochs are rejected."""
    coordinating: bool = False
    """True if the node was ever declared coordinating; otherwise it never leads or takes writes."""
    upstream: Upstream | None = None
    """None: it has none, or needs none any more."""
    founding: BootstrapState | None = None
    """None: this node does not bootstrap."""
    doubts: bool = False
    """True if the agreement service was found set back, as by a restore from a backup. Its answers
    may be stale until an operator names the leader."""

    @property
    def founds(self) -> bool:
        """True if this node bootstraps the in-sync replicas and has no confirmation yet."""
        return self.founding is not None and bool(self.founding.members)

    def policy(self, shown: Policy | None) -> Policy | None:
        """Return the failover policy in force. That is the bootstrap policy until the bootstrap is
        confirmed and the state holds a policy.

        :param shown: policy in the state for this store; None: none
        """
        # The policy names the etcd servers. A start needs it before it may apply the frame
        # that contains it.
        if self.founding is not None and (self.founds or shown is None):
            return self.founding.policy
        return shown


def load(directory: StoreDirectory) -> ClusterState | None:
    """Read the file; None: the node is in no cluster.

    :raises StoreDamaged: the file is corrupt
    :raises StoreTooNew: a later version wrote it
    """
    path = _path(directory)
    if not directory.fs.exists(path):
        return None
    stored = directory.read(path)
    try:
        agreement, upstream = stored["agreement"], stored["upstream"]
        return ClusterState(
            None if agreement is None else str(agreement),
            # Through `str`: `int` alone would accept the fractions and booleans of a damaged file.
            int(str(stored["revision"])),
            int(str(stored["promised"])),
            stored["coordinating"] is True,
            None if upstream is None else _upstream(upstream),
            _founding(stored.get("founding")),
            stored.get("doubts") is True,
        )
    except KeyError as error:
        why = f"field {error} is missing"
        raise StoreDamaged(f"{path} is damaged: {why}") from None
    except ValueError as error:
        raise StoreDamaged(f"{path} is damaged: {error}") from None


def save(directory: StoreDirectory, cluster: ClusterState) -> None:
    """Replace the file; durable on return. :raises OSError: the old file is still there"""
    upstream, founding = cluster.upstream, cluster.founding
    stored: dict[str, object] = {
        **cluster._asdict(),
        "upstream": None if upstream is None else upstream._asdict(),
        "founding": None if founding is None else _described(founding),
    }
    directory.write(_path(directory), stored)


def _upstream(stored: object) -> Upstream:
    if not isinstance(stored, dict) or not isinstance(stored.get("peers"), list):
        raise ValueError("field upstream is invalid")
    peers = tuple(map(str, stored["peers"]))
    return Upstream(str(stored["node"]), peers, str(stored["fingerprint"]))


def _described(founding: BootstrapState) -> dict[str, object]:
    """Encode; the policy is encoded as in the store."""
    policy = packed(founding.policy).hex()
    return {**founding._asdict(), "members": sorted(founding.members), "policy": policy}


def _founding(stored: object) -> BootstrapState | None:
    if stored is None:
        return None
    if not isinstance(stored, dict) or not isinstance(stored.get("members"), list):
        raise ValueError("field founding is invalid")
    policy = unpacked(bytes.fromhex(str(stored["policy"])))
    return BootstrapState(
        frozenset(map(str, stored["members"])), policy, int(str(stored["sequence"]))
    )


def _path(directory: StoreDirectory) -> str:
    return f"{directory.path}/CLUSTER"
