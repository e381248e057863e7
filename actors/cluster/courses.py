"""What a node that does not lead makes of what is agreed: whom it follows, or that it may lead.

What it remembers on its disk of the agreement is what it is held against: an etcd that was emptied,
restored or made anew knows nothing of what was released, and would let anybody lead. And what is
agreed is what its own log is held against: an older copy of its directory has its id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from actors.cluster.following import History, holds
from actors.cluster.leading import may_take
from protocol.agreement import Agreed, InSync, Lead
from storage.cluster_file import Cluster

NAME_ONE: Final = (
    "nobody leads until an operator names a node: the one that holds most, by log_ends in INFO FOR"
    " NODE of each, with DEFINE NODE LEADS STORE FORCE REASON 's' on it"
)
UNDECLARED: Final = (
    "this node is not declared coordinating: DEFINE NODE ROLES serving, writable, coordinating on"
    " it lets it lead"
)


@dataclass(frozen=True, slots=True)
class Follow:
    """Somebody leads."""

    lead: Lead


@dataclass(frozen=True, slots=True)
class Take:
    """Nobody leads, and this node may: if the set is still what it was."""

    insync: InSync


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nobody to follow, and nothing to do."""

    why: str
    doubt: bool = False
    """Whether it takes an operator to go on."""
    lacks: bool = False
    """Whether this node is in the set, and lacks what everybody in it holds."""


Course = Follow | Take | Wait


def doubt(memory: Cluster, agreed: Agreed) -> str | None:
    """Why what is agreed is not to be believed; None: nothing speaks against it."""
    if memory.agreement is not None and agreed.cluster != memory.agreement:
        return "the agreement is another one: etcd was made anew, or VIA leads to another"
    if memory.doubts:
        return f"the agreement was set back: what it says at {agreed.revision} may be of before"
    if agreed.revision < memory.revision:
        return f"the agreement was set back, from {memory.revision} to {agreed.revision}"
    if memory.agreement is not None and agreed.insync is None and not memory.founds:
        return "the agreement knows of no node that holds everything: it was emptied"
    return None


def was_set_back(memory: Cluster, agreed: Agreed) -> bool:
    """Whether what is agreed was gone by long since: it is doubted from now on, also when its
    revision has grown past what was heard. Another agreement says nothing of the one that was
    known."""
    return memory.agreement == agreed.cluster and doubt(memory, agreed) is not None


def was_ordered_since(memory: Cluster, agreed: Agreed) -> bool:
    """Whether an operator has named who leads since all that this node has heard of.

    An epoch above what it has heard was promised over a link, perhaps to who was named, whom this
    node had not ceased to follow: where the agreement knows of so many, it is of that one.
    """
    is_of_it = memory.revision < memory.promised <= agreed.revision
    return agreed.lineage > (memory.revision if is_of_it else max(memory.promised, memory.revision))


def doubt_of_epoch(memory: Cluster, ended: int, epoch: int) -> str | None:
    """Why nobody may lead in an epoch; None: nothing speaks against it.

    :param ended: the newest epoch in the log here
    """
    if epoch <= max(ended, memory.promised):
        return (
            f"the agreement gives epoch {epoch}, and {max(ended, memory.promised)} was there"
            " before: it was set back"
        )
    return None


def lack(log: History, agreed: Agreed) -> str | None:
    """Rule 9: why who is in the set does not hold what its members hold; None: as far as was told,
    it does.

    :param log: what is on the disk here
    """
    if agreed.released is None or holds(log, agreed.released):
        return None
    epoch, sequence = agreed.released
    ends = log[-1].last if log else 0
    return (
        f"this node lacks what it held: frame {sequence} of epoch {epoch} was released, and its log"
        f" ends at {ends}. An older copy of its directory was put back, or its disk has lost"
        " writes. Another node of the set may lead, and brings it up to date; with FORCE it leads"
        " itself, and what it lacks is lost"
    )


def course(
    memory: Cluster,
    agreed: Agreed,
    node: str,
    log: History,
    *,
    coordinates: bool,
    asked: bool,
    name: Callable[[str], str] = str,
) -> Course:
    """What a node does that does not lead.

    :param log: what is on the disk here
    :param coordinates: whether it was declared to: who never was never takes the lead, so that a
        copy of a node's files leads nothing
    :param asked: whether it takes a vacant lead at all: by itself, or since it was told to
    :param name: what to call a node by its id
    """
    why = doubt(memory, agreed)
    if why is not None:
        return Wait(f"{why}; {NAME_ONE}", doubt=True)
    if agreed.insync is None:
        return Wait("the first leader has not said yet who holds everything")
    if agreed.lead is not None:
        if agreed.lead.node != node:
            if agreed.lead.epoch < memory.promised:
                why = "who leads does so in an epoch that was over already: etcd was set back"
                return Wait(f"{why}; {NAME_ONE}", doubt=True)
            return Follow(agreed.lead)
        # An epoch belongs to one run of one process: what another had is let lapse.
        return Wait("this node led before it was started: its lease has not lapsed yet")
    if not may_take(agreed, node):
        members = ", ".join(sorted(map(name, agreed.insync.members)))
        return Wait(
            "nobody leads, and this node may not hold everything: start those who do,"
            f" {members}. Where these are gone for good, DEFINE"
            " NODE LEADS STORE FORCE REASON 's' has this one lead with what it has"
        )
    why = lack(log, agreed)
    if why is not None:
        return Wait(why, lacks=True)
    if not coordinates:
        return Wait(f"nobody leads, and {UNDECLARED}")
    if not asked:
        return Wait(
            "nobody leads, and this node takes the lead when it is told to: DEFINE NODE LEADS STORE"
        )
    return Take(agreed.insync)
