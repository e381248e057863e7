"""Nomination, DEFINE NODE LEADS STORE: checks whether a node may be named leader.

Each refusal says which action helps instead.
"""

from __future__ import annotations

from actors.cluster.following import EpochHistory
from actors.cluster.member import ClusterMember
from actors.cluster.next_role import UNDECLARED, StayWaiting, decide_role
from protocol.agreement import AgreedState, LeaderEntry
from protocol.errors import NotWritable
from storage.files.cluster_file import ClusterState


def has_lead(member: ClusterMember, *, force: bool) -> bool:
    """True if this node leads already, and nothing is to be done. With FORCE: only if its commits
    wait for no other node.

    :raises NotWritable: it has the lead, and can't use it
    """
    leadership = member.leadership
    if leadership is None:
        return False
    # FORCE is refused to a leader that lacks followers: fewer ACKS go on without a new lineage.
    if leadership.is_settled and not (force and leadership.lacks_followers):
        return True
    raise waits_with_lead(member)


def waits_with_lead(member: ClusterMember) -> NotWritable:
    """Return the refusal of a node that has the lead, but can't use it yet."""
    waits_for = member.waits_for or (
        "in-sync replicas that do not answer: to go on without them, DEFINE FAILOVER with fewer"
        " ACKS"
    )
    return NotWritable(f"this node has the lead, and waits for {waits_for}", leader=[])


def check_vacant(
    member: ClusterMember,
    agreed: AgreedState,
    known: ClusterState,
    here: EpochHistory,
    *,
    force: bool,
) -> None:
    """Check that the lead is vacant and this node may take it.

    :raises NotWritable: another node leads, or this node may not
    :param known: this node's memory from before the request to etcd
    :param here: epoch history of this node's log
    """
    if agreed.lead is not None:
        raise leads_already(member, agreed.lead)
    if member.is_stranded:
        raise NotWritable(member.stranded, leader=[])
    coordinates = member.coordinates
    # FORCE overrules the distrust of etcd, the ISR and missing frames, but not cluster rule 8.
    if not force:
        found = decide_role(
            known, agreed, member.node, here, coordinates=coordinates, asked=True,
            name=member.name_of,
        )  # fmt: skip
        if isinstance(found, StayWaiting):
            raise NotWritable(found.why, leader=[])
    elif not coordinates:
        raise NotWritable(UNDECLARED, leader=[])


def leads_already(member: ClusterMember, lead: LeaderEntry, when: str = "") -> NotWritable:
    """Return the refusal while another node leads.

    :param when: since when it leads, as text
    """
    # An epoch belongs to one run of one process: this run can't use that lead.
    if lead.node == member.node:
        return NotWritable(
            "this node led before it was restarted, and has the lead until the lease of that"
            " time expires: it then takes the lead again by itself, or try again",
            leader=[],
        )
    why = (
        f"{member.name_of(lead.node)} leads{when}: the lead can only be taken while no node has it"
    )
    if member.is_stranded:
        why = f"{why}. {member.stranded}"
    else:
        why = f"{why}. If that node should not lead, stop it and try again"
    return NotWritable(why, leader=list(member.endpoints_of(lead.node)))
