"""Election: decides the next role of a node that does not lead, and takes a vacant lead.

There is no vote: etcd gives a lease, and an ISR member takes it. The node checks the state in etcd
against its own memory on disk (the file CLUSTER). An etcd that was emptied, restored or rebuilt has
lost the ISR, and could elect a node without all released frames. The node also checks its own log
against etcd: an older copy of its directory has the same node id.

`decide_role` looks at everything each time, so lost news does no harm. The first rule that fits
decides; rules 1 to 3 are the coordinator's, since no state of etcd is known there.

| rule | fits if | next role | as in |
|---|---|---|---|
| 1 | no file CLUSTER, or a command that only reads | sleep | |
| 2 | no policy is in force | FOLLOW the upstream; without one WAIT | PostgreSQL standby |
| 3 | etcd does not answer | as before; find another etcd, unless attached | |
| 4 | order with FORCE, vacant lead, may coordinate | CLAIM by order | Kafka unclean election |
| 5 | etcd is distrusted, but a leader was named since | trust it again | |
| 6a | founder, not declared, no ISR | WAIT | |
| 6b | founder, etcd is distrusted | WAIT for an operator | etcd revisions |
| 6c | founder, an ISR exists | note that the cluster is founded | |
| 6d | founder, the lead is taken | WAIT | Gray & Cheriton 1989 |
| 6e | founder | CLAIM as founder | Patroni initialize key |
| 7 | etcd is distrusted | WAIT for an operator | etcd revisions |
| 8 | no ISR | FOLLOW the upstream if nothing was ever agreed; else WAIT | |
| 9a | another node leads in an epoch below the promised one | WAIT for an operator | Raft §5.1 |
| 9b | another node leads | FOLLOW | Patroni leader key |
| 10 | an earlier run of this node leads | WAIT | Gray & Cheriton 1989 |
| 11a | not in the ISR | WAIT | Kafka ISR |
| 11b | the log lacks frames that were published as released | WAIT | Raft §5.4.1 |
| 12a | may not coordinate: undeclared, stranded or stopping | WAIT | Patroni nofailover |
| 12b | PROMOTE MANUAL, and no order | WAIT | Patroni pause |
| 12c | just started, and the vacancy is younger than 2 s | WAIT | Raft §5.2 timeouts |
| 13 | – | CLAIM | Patroni leader race |

Before any rule, a state of etcd that was set back is remembered as such (rules 5 and 7).

Rule 12c, succession: a member that has shown something since its start holds everything released by
then. A node that was just started may have an older copy of its directory: frames after the last
published commit index may be missing (`docs/decisions/older-copies.md`). So it leaves the lead to
the others for a moment; they take it as soon as they learn of the vacancy.

`Election` takes a vacant lead in etcd:

| node | condition |
|---|---|
| an ISR member | the ISR is unchanged, and this log holds the published commit index |
| the founder | etcd holds no ISR yet; the founder writes the first one next |
| a node named by an operator | the lead is vacant; the new ISR is this node alone |

An unanswered request may have taken effect, or may do so later. So its lease is revoked, which
undoes all that was taken with it, and the election starts over.

Cluster rules 3 and 9 (`actors/cluster/__init__.py`) decide it.

DEFINE NODE LEADS STORE: each refusal to name a node says which action helps instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from actors.cluster.leader_state import Leadership, LeadLease, may_take
from actors.cluster.log_matching import EpochHistory, accepts_epoch, holds
from actors.cluster.role import ClusterMember
from actors.commits.committer import Committer
from protocol.agreement import (
    AgreedState,
    Agreement,
    CompareAndSetResult,
    InSyncReplicas,
    LeaderEntry,
    LeaseLapsed,
    NotAnswered,
)
from protocol.environment import Clock
from protocol.errors import DiskFull, NotWritable
from protocol.failover import Policy
from storage.files.cluster_file import BootstrapState, ClusterState, Upstream

# --- decide_role ----------------------------------------------------------------------------------


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
class FollowUpstream:
    """Follow the node that the store was copied from: no first leader is known yet."""

    upstream: Upstream
    why: str
    """Reason why no node leads."""


@dataclass(frozen=True, slots=True)
class ClaimLead:
    """The lead is vacant: take it, if the ISR in etcd is still this one."""

    insync: InSyncReplicas


@dataclass(frozen=True, slots=True)
class ClaimByOrder:
    """The lead is vacant: take it with an ISR of this node alone."""


@dataclass(frozen=True, slots=True)
class ClaimAsFounder:
    """The lead is vacant and etcd has no ISR: take it, and write the first ISR."""

    founding: BootstrapState


@dataclass(frozen=True, slots=True)
class NoteFounded:
    """The first ISR is in etcd, maybe by an unanswered request of this founder: it is founded."""


@dataclass(frozen=True, slots=True)
class TrustAgain:
    """An operator has named a leader since: accept the state in etcd as the reference."""


@dataclass(frozen=True, slots=True)
class StayWaiting:
    """There is no leader to follow, and nothing to do."""

    why: str
    distrust_reason: bool = False
    """True if an operator has to decide."""
    lacks: bool = False
    """True if this node is in the ISR, but lacks frames that each member holds."""


NextRole = (
    FollowLeader
    | FollowUpstream
    | ClaimLead
    | ClaimByOrder
    | ClaimAsFounder
    | NoteFounded
    | TrustAgain
    | StayWaiting
)


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


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that the rules look at."""

    memory: ClusterState
    """Memory of this node, from before the request to etcd."""
    agreed: AgreedState
    """State in etcd."""
    node: str
    """Id of this node."""
    log: EpochHistory
    """Epoch history of this node's log."""
    coordinates: bool
    """True if the node may lead: declared coordinating, not stranded, not stopping."""
    asked: bool
    """True if it may take a vacant lead: PROMOTE is AUTO, or a statement has ordered it."""
    forced: bool
    """True if that statement has FORCE."""
    yields: Callable[[frozenset[str]], bool]
    """True if it leaves a vacant lead to the other members of this ISR."""
    name: Callable[[str], str]
    """Display name of a node id."""


class Rule(NamedTuple):
    """Rule of `decide_role`."""

    number: str
    """Its number in the table at the head of this file."""
    decide: Callable[[Situation], NextRole | None]
    """Returns the next role; None: the rule does not fit."""


def _by_order(at: Situation) -> NextRole | None:
    if at.forced and at.agreed.lead is None and at.coordinates:
        return ClaimByOrder()
    return None


def _ordered_since(at: Situation) -> NextRole | None:
    distrusted = distrust_reason(at.memory, at.agreed) is not None
    return TrustAgain() if distrusted and was_ordered_since(at.memory, at.agreed) else None


def _founding(at: Situation) -> BootstrapState | None:
    return at.memory.founding if at.memory.founds else None


def _founding_undeclared(at: Situation) -> NextRole | None:
    if _founding(at) is None or at.coordinates or at.agreed.insync is not None:
        return None
    return StayWaiting(f"no node leads yet, and {UNDECLARED}")


def _founding_distrusted(at: Situation) -> NextRole | None:
    return None if _founding(at) is None else _distrusted(at)


def _founded(at: Situation) -> NextRole | None:
    # It may be this founder's ISR, from an unanswered request.
    return None if _founding(at) is None or at.agreed.insync is None else NoteFounded()


def _founding_led(at: Situation) -> NextRole | None:
    if _founding(at) is None or at.agreed.lead is None:
        return None
    # An epoch belongs to one run of one process: the lease of an earlier run has to lapse.
    return StayWaiting("the lead was taken before: the lease of that time has not expired yet")


def _found(at: Situation) -> NextRole | None:
    founding = _founding(at)
    return None if founding is None else ClaimAsFounder(founding)


def _distrusted(at: Situation) -> NextRole | None:
    why = distrust_reason(at.memory, at.agreed)
    return None if why is None else StayWaiting(f"{why}; {NAME_ONE}", distrust_reason=True)


def _no_isr(at: Situation) -> NextRole | None:
    if at.agreed.insync is not None:
        return None
    why, upstream = "the first leader has not named the in-sync replicas yet", at.memory.upstream
    if at.memory.agreement is not None or upstream is None:
        return StayWaiting(why)
    # etcd is empty yet. The node that the store was copied from may have crashed while it put the
    # policy into force, and may drop the policy next.
    return FollowUpstream(upstream, why)


def _old_epoch(at: Situation) -> NextRole | None:
    lead = at.agreed.lead
    # Cluster rule 5: a rightful leader has no epoch below a promised one.
    if lead is None or lead.node == at.node or accepts_epoch(at.memory.promised, lead.epoch):
        return None
    why = "the leader uses an epoch that had ended before: etcd was set back"
    return StayWaiting(f"{why}; {NAME_ONE}", distrust_reason=True)


def _led_by_another(at: Situation) -> NextRole | None:
    lead = at.agreed.lead
    return None if lead is None or lead.node == at.node else FollowLeader(lead)


def _led_before(at: Situation) -> NextRole | None:
    if at.agreed.lead is None:
        return None
    # An epoch belongs to one run of one process: the lease of an earlier run has to lapse.
    return StayWaiting(
        "this node led before it was restarted: the lease of that time has not expired yet"
    )


def _out_of_isr(at: Situation) -> NextRole | None:
    insync = at.agreed.insync
    if insync is None or may_take(at.agreed, at.node):
        return None
    members = ", ".join(sorted(map(at.name, insync.members)))
    return StayWaiting(
        "no node leads, and this node may lack commits: start the in-sync replicas"
        f" {members}. If they are lost, DEFINE NODE LEADS STORE FORCE REASON 's' makes this"
        " node lead with the commits that it has"
    )


def _lacks_entries(at: Situation) -> NextRole | None:
    why = missing_entries(at.log, at.agreed)
    return None if why is None else StayWaiting(why, lacks=True)


def _undeclared(at: Situation) -> NextRole | None:
    return None if at.coordinates else StayWaiting(f"no node leads, and {UNDECLARED}")


def _without_order(at: Situation) -> NextRole | None:
    if at.asked:
        return None
    return StayWaiting(
        "no node leads, and this node needs an order to lead: DEFINE NODE LEADS STORE"
    )


def _yields(at: Situation) -> NextRole | None:
    insync = at.agreed.insync
    return StayWaiting(JUST_STARTED) if insync is not None and at.yields(insync.members) else None


def _claim(at: Situation) -> NextRole | None:
    return None if at.agreed.insync is None else ClaimLead(at.agreed.insync)


ORDER_RULES: Final = (
    Rule("4", _by_order),
    Rule("5", _ordered_since),
    Rule("6a", _founding_undeclared),
    Rule("6b", _founding_distrusted),
    Rule("6c", _founded),
    Rule("6d", _founding_led),
    Rule("6e", _found),
)
"""Rules of orders, and of a founder."""
LEAD_RULES: Final = (
    Rule("7", _distrusted),
    Rule("8", _no_isr),
    Rule("9a", _old_epoch),
    Rule("9b", _led_by_another),
    Rule("10", _led_before),
    Rule("11a", _out_of_isr),
    Rule("11b", _lacks_entries),
    Rule("12a", _undeclared),
    Rule("12b", _without_order),
    Rule("12c", _yields),
    Rule("13", _claim),
)
"""Rules of a node in a cluster; a nomination is judged by these alone."""
RULES: Final = (*ORDER_RULES, *LEAD_RULES)


def decide_role(
    memory: ClusterState,
    agreed: AgreedState,
    node: str,
    log: EpochHistory,
    *,
    coordinates: bool,
    asked: bool,
    forced: bool = False,
    yields: Callable[[frozenset[str]], bool] = lambda _members: False,
    name: Callable[[str], str] = str,
    rules: Sequence[Rule] = RULES,
) -> NextRole:
    """Decide the next role of a node that does not lead, by the first rule that fits; `Situation`
    has the parameters."""
    at = Situation(memory, agreed, node, log, coordinates, asked, forced, yields, name)
    return next(found for rule in rules if (found := rule.decide(at)) is not None)


# --- order of succession --------------------------------------------------------------------------


LEFT_SECONDS: Final = 2.0
"""Time for which a node that was just started leaves a vacant lead to other ISR members (s)."""
JUST_STARTED: Final = "this node was just started: other in-sync replicas take the lead before it"


class LeadVacancy:
    """Present vacancy, as this node has seen it. On the loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_us: int | None = None

    def ends(self) -> None:
        """Note that a node leads, this one or another, or that etcd does not answer."""
        self._since_us = None

    def is_left(self, member: ClusterMember, members: frozenset[str]) -> bool:
        """True if this node leaves the vacant lead to others.

        :param members: members of the ISR
        """
        # Alone in the ISR, it has no other member to wait for.
        if member.has_caught_up or members <= {member.node}:
            return False
        now_us = self._clock.monotonic_us()
        # The time counts from the first sight of the vacancy, not from the end of the lease.
        if self._since_us is None:
            self._since_us = now_us
        return now_us - self._since_us < LEFT_SECONDS * 1_000_000


# --- claiming the lead ----------------------------------------------------------------------------


log = structlog.get_logger("cluster")

NO_SET: Final = 0
"""Revision of an ISR that was never written."""
BEYOND: Final = 1_000
"""Margin (revisions) by which an outdated etcd is raised above this node's knowledge: other nodes
may know later revisions."""
GROWN_BY: Final = 1_000
"""Revisions added in one request."""


class AcquiredLead(NamedTuple):
    """A lead that was taken."""

    policy: Policy
    """Policy to lead by."""
    lease: LeadLease
    agreed: AgreedState
    """State in etcd after it was taken."""
    by_order: bool = False
    """True if it begins a new lineage."""


class Election:
    """On the loop only. Each attempt returns None if it took nothing; the next iteration retries
    then.

    :param wait: called with the reason why nothing was taken
    """

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        member: ClusterMember,
        wait: Callable[[StayWaiting], None],
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._wait = wait

    async def vacant(
        self, agreement: Agreement, policy: Policy, insync: InSyncReplicas
    ) -> AcquiredLead | None:
        """Take the lead as an ISR member.

        :raises NotAnswered: nothing was taken
        """
        lease, answer = await self._ask(agreement, policy, insync.revision)
        if answer is None or answer.agreed.lead is None:
            return None
        why = epoch_distrust_reason(self._memory.now, self._newest_epoch, answer.agreed.lead.epoch)
        if why is not None:
            await self.give_back(agreement, lease)
            self._wait(StayWaiting(f"{why}; {NAME_ONE}", distrust_reason=True))
            return None
        # Cluster rule 9, again: another node may have led meanwhile, and published a higher commit
        # index.
        why = missing_entries(self._committer.history(), answer.agreed)
        if why is not None:
            await self.give_back(agreement, lease)
            self._wait(StayWaiting(why, lacks=True))
            return None
        return self._completed(AcquiredLead(policy, lease, answer.agreed))

    def _completed(self, taken: AcquiredLead) -> AcquiredLead:
        """Complete a lineage whose first leader stopped before it committed its policy without
        ACKS. The ISR is still that of its beginning: this node alone."""
        insync, lineage = taken.agreed.insync, taken.agreed.lineage
        assert insync is not None, "it was taken as a member of it"
        if lineage and insync.epoch == lineage and insync.members == {self._member.node}:
            return taken._replace(policy=taken.policy._replace(acks=0), by_order=True)
        return taken

    async def first(
        self, agreement: Agreement, founding: BootstrapState, agreed: AgreedState
    ) -> AcquiredLead | None:
        """Write the first ISR, or find that an unanswered request has written it meanwhile.

        :raises NotAnswered: as in `vacant`
        :raises DiskFull: the success can't be saved; the next iteration finds it in etcd
        """
        await self._bring_beyond(agreement, agreed, self._newest_promised)
        # The lead comes before the ISR: while etcd holds no ISR, no other node takes the lead.
        lease, answer = await self._ask(agreement, founding.policy, NO_SET)
        if answer is None:
            return None
        try:
            answer = await agreement.found(founding.members)
            await self._memory.founded(answer.agreed)
        except (NotAnswered, DiskFull):
            await self.give_back(agreement, lease)
            raise
        insync, lead = answer.agreed.insync, answer.agreed.lead
        assert insync is not None, "one was written just now, or before"
        if insync.members != founding.members:
            log.error(
                "another node has written the first in-sync replicas",
                members=sorted(insync.members),
            )
        if lead is None or lead.node != self._member.node:
            return None
        log.info("a failover policy is in force", insync=sorted(insync.members))
        return AcquiredLead(founding.policy, lease, answer.agreed)

    async def by_order(
        self, agreement: Agreement, policy: Policy, agreed: AgreedState
    ) -> AcquiredLead | None:
        """Begin a new lineage by an operator's order: the ISR is this node alone, and nothing waits
        for other nodes until another policy demands it. A node of the old lineage that shows other
        frames is stranded when it returns.

        :raises NotAnswered: as in `vacant`
        :raises DiskFull: the lineage was begun; the next iteration finds it in etcd
        """
        known = self._memory.now
        taken = await self._alone(agreement, policy, agreed)
        if taken is not None and agreed.revision < max(self._newest_promised, known.revision):
            # Nodes that have seen a higher revision would distrust etcd. Raise it while the ISR is
            # this node alone: with an older ISR another node might lead once the revision is high.
            try:
                await self._bring_beyond(
                    agreement, agreed, max(self._newest_promised, known.revision)
                )
            finally:
                await self.give_back(agreement, taken.lease)
            taken = await self._alone(agreement, policy, await agreement.read())
        if taken is None:
            return None
        try:
            await self._memory.adopt(taken.agreed)
        except DiskFull:
            await self.give_back(agreement, taken.lease)
            raise
        left = () if agreed.insync is None else sorted(agreed.insync.members)
        log.warning("a new lineage begins, by order", left=left)
        return taken

    async def _alone(
        self, agreement: Agreement, policy: Policy, agreed: AgreedState
    ) -> AcquiredLead | None:
        """Take the lead with an ISR of this node alone, and record the start of a lineage."""
        insync = NO_SET if agreed.insync is None else agreed.insync.revision
        lease, answer = await self._ask(agreement, policy, insync)
        if answer is None or answer.agreed.lead is None:
            return None
        epoch = answer.agreed.lead.epoch
        try:
            answer = await agreement.begin_lineage(epoch, insync, self._member.node)
        except NotAnswered:
            await self.give_back(agreement, lease)
            raise
        if not answer.done:
            await self.give_back(agreement, lease)
            return None
        return AcquiredLead(policy._replace(acks=0), lease, answer.agreed, by_order=True)

    async def give_up(self, agreement: Agreement, leadership: Leadership) -> None:
        """Give up the lead; publish the commit index before."""
        released = leadership.unpublished(self._committer.history())
        with suppress(NotAnswered):
            if released is not None:
                answer = await agreement.report_released(leadership.epoch, released)
                leadership.on_published(answer.agreed)
        await self.give_back(agreement, leadership.lease)

    async def give_back(self, agreement: Agreement, lease: LeadLease) -> None:
        """Revoke a lease; all that was taken with it ends."""
        with suppress(NotAnswered):  # then the lease lapses by itself
            await agreement.revoke(lease.id)

    # --- how --------------------------------------------------------------------------------------

    async def _ask(
        self, agreement: Agreement, policy: Policy, insync: int
    ) -> tuple[LeadLease, CompareAndSetResult | None]:
        """Grant a lease and take the lead with it. None: the lead was not vacant, or the ISR has
        changed.

        :param insync: revision of the ISR that has this node
        """
        # Read before the request: etcd counts the lease from a later moment.
        sent_us, seconds = self._clock.boottime_us(), policy.lease_seconds
        lease = LeadLease(await agreement.grant(seconds), seconds, sent_us)
        try:
            # Cluster rule 3: one transaction, which also compares the ISR that has this node.
            answer = await agreement.take_lead(self._member.node, lease.id, insync)
        except NotAnswered:
            # It may have succeeded, and this node would lead without knowing: revoke the lease.
            log.warning("unknown outcome of a request to take the lead")
            await self.give_back(agreement, lease)
            raise
        except LeaseLapsed:  # and the lead with it
            return lease, None
        if not answer.done:
            await self.give_back(agreement, lease)
            return lease, None
        return lease, answer

    async def _bring_beyond(self, agreement: Agreement, agreed: AgreedState, known: int) -> None:
        """Cluster rule 3: raise the revision of an outdated etcd, so that a new epoch is above all
        earlier ones.

        :param known: highest revision or epoch to exceed
        """
        wanted = known + BEYOND if agreed.revision < known else 0
        while agreed.revision < wanted:
            log.warning(
                "the revision of etcd is behind that of this node",
                revision=agreed.revision,
                wanted=wanted,
            )
            self._wait(StayWaiting(f"raising the revision of etcd: {agreed.revision} of {wanted}"))
            agreed = await agreement.grow(min(GROWN_BY, wanted - agreed.revision))

    @property
    def _newest_epoch(self) -> int:
        history = self._committer.history()
        return history[-1].epoch if history else 0

    @property
    def _newest_promised(self) -> int:
        """Highest epoch that this node knows."""
        return max(self._newest_epoch, self._memory.promised)


# --- nomination by a statement --------------------------------------------------------------------


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
            name=member.name_of, rules=LEAD_RULES,
        )  # fmt: skip
        if isinstance(found, StayWaiting | FollowUpstream):
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
