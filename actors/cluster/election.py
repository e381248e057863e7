"""Election of a leader: takes a vacant lead in etcd, as an ISR member, as founder, or by an
operator's order.

| node | condition |
|---|---|
| an ISR member | the ISR is unchanged, and this log holds the published commit index |
| the founder | etcd holds no ISR yet; the founder writes the first one next |
| a node named by an operator | the lead is vacant; the new ISR is this node alone |

An unanswered request may have taken effect, or may do so later. So its lease is revoked, which
undoes all that was taken with it, and the election starts over.

There is no vote: cluster rules 3 and 9 (`actors/cluster/__init__.py`) decide the election.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from actors.cluster.leadership import Leadership
from actors.cluster.lease import LeadLease
from actors.cluster.member import ClusterMember
from actors.cluster.next_role import (
    NAME_ONE,
    StayWaiting,
    distrust_reason,
    epoch_distrust_reason,
    missing_entries,
)
from actors.commits import Committer
from protocol.agreement import (
    AgreedState,
    Agreement,
    CompareAndSetResult,
    InSyncReplicas,
    LeaseLapsed,
    NotAnswered,
)
from protocol.environment import Clock
from protocol.errors import DiskFull
from protocol.failover import Policy
from storage.files.cluster_file import BootstrapState

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
        """Write the first ISR, or find that an earlier, unanswered request has written it.

        :raises NotAnswered: as in `vacant`
        :raises DiskFull: the success can't be saved; the next iteration finds it in etcd
        """
        why = distrust_reason(self._memory.now, agreed)
        if why is not None:
            self._wait(StayWaiting(f"{why}; {NAME_ONE}", distrust_reason=True))
            return None
        if agreed.insync is not None:
            await self._memory.founded(agreed)
            return None
        if agreed.lead is not None:
            # An epoch belongs to one run of one process: the lease of an earlier run has to lapse.
            self._wait(
                StayWaiting("the lead was taken before: the lease of that time has not expired yet")
            )
            return None
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
