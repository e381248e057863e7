"""Diagnostics for operators: known faults of etcd; a node's state in INFO FOR NODE and /metrics.

Downstream replicas are listed as this node sees them; each reports its own view itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from actors.cluster.leader_state import follower_lags
from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_senders import ReplicaSenders
from actors.cluster.role import ClusterMember, RoleName
from actors.runtime.tasks import end
from protocol.agreement import Agreement, NotAnswered
from protocol.environment import Clock
from protocol.values import Value

# --- faults of etcd -------------------------------------------------------------------------------


log = structlog.get_logger("cluster")

LOOK_SECONDS: Final = 3_600.0
"""Interval of polls (s): an operator may have replaced etcd by another release."""
AGAIN_SECONDS: Final = 60.0


class Diagnostics:
    """On the loop only.

    :param tell: called with all known faults after each poll
    """

    def __init__(self, tell: Callable[[tuple[str, ...]], None]) -> None:
        self._tell = tell
        self._task: asyncio.Future[None] | None = None

    def poll_door(self, door: Agreement) -> None:
        """Poll this etcd from now on, instead of the one before."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._poll_faults(door))

    async def end(self) -> None:
        """Stop polling."""
        if self._task is not None:
            await end(self._task)

    async def _poll_faults(self, door: Agreement) -> None:
        """Poll until cancelled; log each new fault once."""
        said: frozenset[str] = frozenset()
        while True:
            seconds = LOOK_SECONDS
            try:
                found = await door.faults()
            except NotAnswered:
                # Silence says nothing of faults: ask again sooner.
                seconds = AGAIN_SECONDS
            else:
                for fault in found:
                    if fault not in said:
                        log.warning("etcd has a known fault", fault=fault)
                # Only the newest answer counts: a fault that comes back is logged again.
                said = frozenset(found)
                self._tell(found)
            await asyncio.sleep(seconds)


# --- this node ------------------------------------------------------------------------------------


class ClusterFigures(NamedTuple):
    """Cluster metrics, as this node knows them."""

    leads: bool
    epoch: int
    lease_seconds: float
    """Remaining time of the leader's lease (s)."""
    followers: int
    """Number of attached followers."""
    lags: tuple[tuple[str, int], ...]
    """Lag of each follower, in commits."""
    in_sync: bool
    """True if it follows, and has all released frames."""
    held_up: bool
    """True if its cluster accepts no changes, as far as it knows."""


def cluster_info(member: ClusterMember) -> dict[str, Value]:
    """Return the cluster fields of INFO FOR NODE."""
    leadership, followers, follow_task = (
        member.leadership,
        member.all_followers,
        member.follow_task,
    )
    silent_us = None if follow_task is None else follow_task.silent_us(member.clock.monotonic_us())
    return {
        "life": str(member.life),
        "waits_for": member.waits_for,
        "leader": member.leader,
        "coordinates": member.is_declared_coordinating,
        "lease": None if leadership is None else timedelta(microseconds=_lease_left_us(member)),
        "followers": len(followers.linked),
        "furthest_lag": followers.furthest_lag(member.committer.synced_seq),
        "upstream": None if member.sync_status is None else str(member.sync_status),
        "upstream_silent": None if silent_us is None else timedelta(microseconds=silent_us),
        "upstream_why": None if follow_task is None else follow_task.why,
        "etcd_faults": list(member.agreement_faults),
    }


def cluster_figures(member: ClusterMember) -> ClusterFigures | None:
    """Return the values for /metrics; None: it is in no cluster and has no followers."""
    followers, synced_seq = member.all_followers, member.committer.synced_seq
    if member.life is RoleName.ALONE and not followers.by_node:
        return None
    return ClusterFigures(
        leads=member.life is RoleName.LEADING,
        epoch=member.committer.ledger.epoch,
        lease_seconds=_lease_left_us(member) / 1_000_000,
        followers=len(followers.linked),
        lags=tuple(follower_lags(followers, member.nodes, synced_seq)),
        in_sync=member.sync_status is SyncStatus.IN_SYNC,
        held_up=member.held_up is not None,
    )


def _lease_left_us(member: ClusterMember) -> int:
    if member.leadership is None:
        return 0
    # The boot-time clock also runs while the machine is suspended.
    return max(member.leadership.lease.ends_us - member.clock.boottime_us(), 0)


# --- replicas of this node ------------------------------------------------------------------------


def downstream(member: ClusterMember, replica_senders: ReplicaSenders, clock: Clock) -> list[Value]:
    """Return one entry for each follower, by node id.

    Listed are attached nodes, nodes that followed during this leadership and still have a row,
    nodes being copied, and members of the ISR.
    """
    now_us, leadership = clock.monotonic_us(), member.leadership
    heard = member.all_followers.by_node
    attached, copied = replica_senders.by_node, replica_senders.copied
    members = None if leadership is None else leadership.leading.members - {member.node}
    found: list[Value] = []
    there = attached.keys() | copied | (members or frozenset())
    for node in sorted(there | (heard.keys() & member.nodes)):
        one, ships = heard.get(node), attached.get(node)
        if ships is not None:
            sync_status: SyncStatus | None = ships.sync_status
        else:
            sync_status = SyncStatus.COPYING if node in copied else None
        # A member that has not attached to this leader has no known position, and so no lag.
        is_known = one is not None and (one.linked or one.synced > 0)
        found.append(
            {
                "node": node,
                "standing": None if sync_status is None else str(sync_status),
                "lag": member.lag_of(one.synced) if one is not None and is_known else None,
                "silent": None if one is None else timedelta(microseconds=now_us - one.heard_us),
                "in_set": None if members is None else node in members,
            }
        )
    return found
