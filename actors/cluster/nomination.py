"""Nomination, DEFINE NODE LEADS STORE: whether a node may be named to lead, and why not.
Each text says what helps instead."""

from __future__ import annotations

from actors.cluster.courses import UNDECLARED, Wait, course
from actors.cluster.following import History
from actors.cluster.member import Member
from protocol.agreement import Agreed, Lead
from protocol.errors import NotWritable
from storage.cluster_file import Cluster


def has_lead(member: Member, *, force: bool) -> bool:
    """Whether this node leads, and nothing is to be done. An order to go on alone is answered as
    done only where nothing waits for others.

    :raises NotWritable: it has the lead, and can't use it
    """
    leadership = member.leadership
    if leadership is None:
        return False
    if leadership.is_settled and not (force and leadership.is_stuck):
        return True
    raise waits_with_lead(member)


def waits_with_lead(member: Member) -> NotWritable:
    """What who names a node hears that has the lead, and is not there yet."""
    waits_for = member.waits_for or (
        "those in the set who are not there: DEFINE FAILOVER with fewer ACKS has it go on without"
        " them"
    )
    return NotWritable(f"this node has the lead, and waits for {waits_for}", leader=[])


def check_vacant(
    member: Member, agreed: Agreed, known: Cluster, here: History, *, force: bool
) -> None:
    """:raises NotWritable: another leads, or this node may not

    :param known: what was remembered before what is agreed was asked
    :param here: of the log here
    """
    if agreed.lead is not None:
        raise leads_already(member, agreed.lead)
    if member.is_stranded:
        raise NotWritable(member.stranded, leader=[])
    coordinates = member.coordinates
    if not force:
        found = course(
            known, agreed, member.node, here, coordinates=coordinates, asked=True,
            name=member.name_of,
        )  # fmt: skip
        if isinstance(found, Wait):
            raise NotWritable(found.why, leader=[])
    elif not coordinates:
        raise NotWritable(UNDECLARED, leader=[])


def leads_already(member: Member, lead: Lead, when: str = "") -> NotWritable:
    """What who names a node hears while another leads.

    :param when: since when it does, in words
    """
    if lead.node == member.node:
        return NotWritable(
            "this node led before it was started, and has the lead until that lease lapses: it"
            " takes it again by itself then, or say this again",
            leader=[],
        )
    why = f"{member.name_of(lead.node)} leads{when}: a lead is taken when nobody has it"
    if member.is_stranded:
        why = f"{why}. {member.stranded}"
    else:
        why = f"{why}. Where that one should not lead, stop it, and say this again"
    return NotWritable(why, leader=list(member.endpoints_of(lead.node)))
