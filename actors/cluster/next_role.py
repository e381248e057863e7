"""Decides the next role of a node that does not lead: follow, take the lead, or wait.

The node checks the state in etcd against its own memory on disk (the file CLUSTER). An etcd that
was emptied, restored or rebuilt has lost the ISR, and could elect a node without all released
frames. It also checks its own log against etcd: an older copy of its directory has the same node
id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from actors.cluster.following import EpochHistory, holds
from actors.cluster.leader_state import may_take
from protocol.agreement import AgreedState, InSyncReplicas, LeaderEntry
from storage.files.cluster_file import ClusterState

NAME_ONE: Final = (
    "no node leads until an operator names one: on the node with the most log, by log_ends in"
    " INFO FOR NODE of each, run DEFINE NODE LEADS STORE FORCE REASON 's'"
)
UNDECLARED: Final = (
    "this node is not declared coordinating: to let it lead, run DEFINE NODE ROLES serving,"
    " writable, coordinating on it"
)


@dataclass(frozen=True, slots=True)
class FollowLeader:
    """Follow the leader."""

    lead: LeaderEntry


@dataclass(frozen=True, slots=True)
class ClaimLead:
    """The lead is vacant: take it, if the ISR in etcd is still this one."""

    insync: InSyncReplicas


@dataclass(frozen=True, slots=True)
class StayWaiting:
    """There is no leader to follow, and nothing to do."""

    why: str
    distrust_reason: bool = False
    """True if an operator has to decide."""
    lacks: bool = False
    """True if this node is in the ISR, but lacks frames that each member holds."""


NextRole = FollowLeader | ClaimLead | StayWaiting


def distrust_reason(memory: ClusterState, agreed: AgreedState) -> str | None:
    """Return the reason to distrust the state in etcd, or None."""
    if memory.agreement is not None and agreed.cluster != memory.agreement:
        return "VIA leads to another etcd cluster, or etcd was rebuilt"
    # Durable: the comparison below passes once other clients have raised the revision.
    if memory.doubts:
        return f"etcd was set back: its content at revision {agreed.revision} may be outdated"
    if agreed.revision < memory.revision:
        return f"etcd was set back from revision {memory.revision} to {agreed.revision}"
    # Only a founder may have seen this etcd without an ISR: it writes the first one.
    if memory.agreement is not None and agreed.insync is None and not memory.founds:
        return "etcd was emptied: it names no in-sync replicas"
    return None


def was_set_back(memory: ClusterState, agreed: AgreedState) -> bool:
    """True if etcd was set back to a state older than this node has seen.

    It is distrusted from then on, even when its revision has grown past the one seen. Another etcd
    cluster is not set back: it holds no earlier state of this one.
    """
    return memory.agreement == agreed.cluster and distrust_reason(memory, agreed) is not None


def was_ordered_since(memory: ClusterState, agreed: AgreedState) -> bool:
    """True if an operator has named a leader after everything that this node has seen.

    A promised epoch above the seen revision came over a link, perhaps from the named leader, which
    this node was still following. If the revision in etcd has reached that epoch, the epoch is one
    of this etcd.
    """
    is_of_it = memory.revision < memory.promised <= agreed.revision
    return agreed.lineage > (memory.revision if is_of_it else max(memory.promised, memory.revision))


def epoch_distrust_reason(memory: ClusterState, ended: int, epoch: int) -> str | None:
    """Return the reason why an epoch must not be led in, or None.

    :param ended: the newest epoch in this node's log
    """
    # With one epoch of two leaders, log matching would take different frames for equal.
    if epoch <= max(ended, memory.promised):
        return (
            f"etcd was set back: it gives epoch {epoch}, but epoch {max(ended, memory.promised)}"
            " was used before"
        )
    return None


def missing_entries(log: EpochHistory, agreed: AgreedState) -> str | None:
    """Cluster rule 9: return the reason why this log lacks frames that the ISR holds, or None.

    None also where etcd has no published commit index.

    :param log: epoch history of this node's log
    """
    if agreed.released is None or holds(log, agreed.released):
        return None
    epoch, sequence = agreed.released
    ends = log[-1].last if log else 0
    return (
        f"this node lost frames that it had acknowledged: frame {sequence} of epoch {epoch} was"
        f" released, but its log ends at {ends}. An older copy of its directory was put back, or"
        " its disk lost writes. Another in-sync replica may lead and bring it up to date; with"
        " FORCE this node leads, and the missing frames are lost"
    )


def decide_role(
    memory: ClusterState,
    agreed: AgreedState,
    node: str,
    log: EpochHistory,
    *,
    coordinates: bool,
    asked: bool,
    name: Callable[[str], str] = str,
) -> NextRole:
    """Decide the next role of a node that does not lead.

    :param log: epoch history of this node's log
    :param coordinates: True if the node was declared coordinating. No other node takes the lead, so
        a copy of a node's files never leads
    :param asked: True if it may take a vacant lead: PROMOTE is AUTO, or a statement has ordered it
    :param name: returns the display name of a node id
    """
    why = distrust_reason(memory, agreed)
    if why is not None:
        return StayWaiting(f"{why}; {NAME_ONE}", distrust_reason=True)
    if agreed.insync is None:
        return StayWaiting("the first leader has not named the in-sync replicas yet")
    if agreed.lead is not None:
        if agreed.lead.node != node:
            # Cluster rule 5: a rightful leader has no epoch below a promised one.
            if agreed.lead.epoch < memory.promised:
                why = "the leader uses an epoch that had ended before: etcd was set back"
                return StayWaiting(f"{why}; {NAME_ONE}", distrust_reason=True)
            return FollowLeader(agreed.lead)
        # An epoch belongs to one run of one process: the lease of an earlier run has to lapse.
        return StayWaiting(
            "this node led before it was restarted: the lease of that time has not expired yet"
        )
    if not may_take(agreed, node):
        members = ", ".join(sorted(map(name, agreed.insync.members)))
        return StayWaiting(
            "no node leads, and this node may lack commits: start the in-sync replicas"
            f" {members}. If they are lost, DEFINE NODE LEADS STORE FORCE REASON 's' makes this"
            " node lead with the commits that it has"
        )
    why = missing_entries(log, agreed)
    if why is not None:
        return StayWaiting(why, lacks=True)
    if not coordinates:
        return StayWaiting(f"no node leads, and {UNDECLARED}")
    if not asked:
        return StayWaiting(
            "no node leads, and this node needs an order to lead: DEFINE NODE LEADS STORE"
        )
    return ClaimLead(agreed.insync)
