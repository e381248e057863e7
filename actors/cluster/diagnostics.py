"""Diagnostics of etcd for operators: polls etcd for known faults and logs new ones.

Downstream replicas of a node, as INFO FOR NODE lists them.

Shows only this node's view of them; each follower reports its own view itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog

from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_senders import ReplicaSenders
from actors.cluster.role import ClusterMember
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
