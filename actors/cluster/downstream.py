"""Downstream replicas of a node, as INFO FOR NODE lists them.

Shows only this node's view of them; each follower reports its own view itself.
"""

from __future__ import annotations

from datetime import timedelta

from actors.cluster.member import ClusterMember
from actors.cluster.replica_senders import ReplicaSenders
from actors.cluster.sync_status import SyncStatus
from protocol.environment import Clock
from protocol.values import Value


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
