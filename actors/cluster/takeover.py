"""Takeover of a lead that nobody has: by who held everything, by who founds, by an order.

| who | takes it where |
|---|---|
| a member of the set | the set is still the one that it was found in, and it holds what was told |
| who was to found | there is no set yet; it writes the first one behind it |
| who was named by an operator | nobody leads, whatever the set is; the set is itself alone then |

What etcd does not answer may have been done, or may be still. So the lease that the lead was asked
for with is given back, which takes along whatever was taken with it, and all of it is begun again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from actors.cluster.courses import NAME_ONE, Wait, doubt, doubt_of_epoch, lack
from actors.cluster.leadership import Leadership
from actors.cluster.lease import Lease
from actors.cluster.member import Member
from actors.commits import Committer
from protocol.agreement import Agreed, Agreement, Answered, InSync, LeaseLapsed, NotAnswered
from protocol.doors import Clock
from protocol.errors import DiskFull
from protocol.failover import Policy
from storage.cluster_file import Founding

log = structlog.get_logger("cluster")

NO_SET: Final = 0
"""The revision of a set that was never written."""
BEYOND: Final = 1_000
"""An etcd that knows less than this node is brought so far beyond it: others may know more."""
GROWN_BY: Final = 1_000
"""How much of that is asked for at a time."""


class Taken(NamedTuple):
    """A lead that was taken."""

    policy: Policy
    """By which it is led."""
    lease: Lease
    agreed: Agreed
    """What was agreed then."""
    by_order: bool = False
    """Whether a new lineage begins with it."""


class Takeover:
    """On the loop only. Each way answers None where nothing came of it: it is looked again then.

    :param wait: told why it was not taken
    """

    def __init__(
        self, clock: Clock, committer: Committer, member: Member, wait: Callable[[Wait], None]
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._wait = wait

    async def vacant(self, agreement: Agreement, policy: Policy, insync: InSync) -> Taken | None:
        """Take it as a member of the set.

        :raises NotAnswered: nothing came of it
        """
        lease, answer = await self._ask(agreement, policy, insync.revision)
        if answer is None or answer.agreed.lead is None:
            return None
        why = doubt_of_epoch(self._memory.now, self._newest_epoch, answer.agreed.lead.epoch)
        if why is not None:
            await self.give_back(agreement, lease)
            self._wait(Wait(f"{why}; {NAME_ONE}", doubt=True))
            return None
        # Rule 9, again: another may have led since it was looked at, and have told of more.
        why = lack(self._committer.history(), answer.agreed)
        if why is not None:
            await self.give_back(agreement, lease)
            self._wait(Wait(why, lacks=True))
            return None
        return self._completed(Taken(policy, lease, answer.agreed))

    def _completed(self, taken: Taken) -> Taken:
        """A lineage whose first leader was stopped before it had said that nothing waits for others
        is gone on with: the set is as it was begun with."""
        insync, lineage = taken.agreed.insync, taken.agreed.lineage
        assert insync is not None, "it was taken as a member of it"
        if lineage and insync.epoch == lineage and insync.members == {self._member.node}:
            return taken._replace(policy=taken.policy._replace(acks=0), by_order=True)
        return taken

    async def first(self, agreement: Agreement, founding: Founding, agreed: Agreed) -> Taken | None:
        """Found the set, or hear that it was: by a request that was answered to nobody.

        :raises NotAnswered: as `vacant`
        :raises DiskFull: it can't be noted that it was; it is heard of again
        """
        why = doubt(self._memory.now, agreed)
        if why is not None:
            self._wait(Wait(f"{why}; {NAME_ONE}", doubt=True))
            return None
        if agreed.insync is not None:
            await self._memory.founded(agreed)
            return None
        if agreed.lead is not None:
            # An epoch belongs to one run of one process: what another had is let lapse.
            self._wait(Wait("the lead was taken before this: its lease has not lapsed yet"))
            return None
        await self._bring_beyond(agreement, agreed, self._newest_promised)
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
            log.error("another has founded the set", members=sorted(insync.members))
        if lead is None or lead.node != self._member.node:
            return None
        log.info("a failover policy is in force", insync=sorted(insync.members))
        return Taken(founding.policy, lease, answer.agreed)

    async def by_order(self, agreement: Agreement, policy: Policy, agreed: Agreed) -> Taken | None:
        """Begin a new lineage, as an operator has said: the set is this node alone, and nothing
        waits for others until another policy says so. What comes back of the old one and shows what
        is not here is stranded.

        :raises NotAnswered: as `vacant`
        :raises DiskFull: it was begun, and is heard of again
        """
        known = self._memory.now
        taken = await self._alone(agreement, policy, agreed)
        if taken is not None and agreed.revision < max(self._newest_promised, known.revision):
            # Who has heard of more would not go by what it says. It is raised while the set is this
            # node alone: by an older one somebody might lead as soon as the revision is high again.
            await self._bring_beyond(agreement, agreed, max(self._newest_promised, known.revision))
            await self.give_back(agreement, taken.lease)
            taken = await self._alone(agreement, policy, await agreement.look())
        if taken is None:
            return None
        try:
            await self._memory.goes_by(taken.agreed)
        except DiskFull:
            await self.give_back(agreement, taken.lease)
            raise
        left = () if agreed.insync is None else sorted(agreed.insync.members)
        log.warning("a new lineage begins, by order", left=left)
        return taken

    async def _alone(self, agreement: Agreement, policy: Policy, agreed: Agreed) -> Taken | None:
        """The lead, a set of this node alone, and that a lineage begins with it."""
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
        return Taken(policy._replace(acks=0), lease, answer.agreed, by_order=True)

    async def give_up(self, agreement: Agreement, leadership: Leadership) -> None:
        """Have a lead end that was led by; what is released is told before."""
        released = leadership.untold(self._committer.history())
        with suppress(NotAnswered):
            if released is not None:
                answer = await agreement.tell(leadership.epoch, released)
                leadership.heard_told(answer.agreed)
        await self.give_back(agreement, leadership.lease)

    async def give_back(self, agreement: Agreement, lease: Lease) -> None:
        """Have a lease end, and what was taken with it."""
        with suppress(NotAnswered):  # then it lapses by itself
            await agreement.revoke(lease.id)

    # --- how --------------------------------------------------------------------------------------

    async def _ask(
        self, agreement: Agreement, policy: Policy, insync: int
    ) -> tuple[Lease, Answered | None]:
        """None: it was not vacant, or the set was another one.

        :param insync: the revision of the set that this node was found in
        """
        sent_us, seconds = self._clock.boottime_us(), policy.lease_seconds
        lease = Lease(await agreement.grant(seconds), seconds, sent_us)
        try:
            # Rule 3: one transaction, which also compares the set that this node was found in.
            answer = await agreement.take_lead(self._member.node, lease.id, insync)
        except NotAnswered:
            # It may have been done. Who leads then is this node, without knowing: the lease goes.
            log.warning("the lead may have been taken, or not")
            await self.give_back(agreement, lease)
            raise
        except LeaseLapsed:  # and with it what it was taken for
            return lease, None
        if not answer.done:
            await self.give_back(agreement, lease)
            return lease, None
        return lease, answer

    async def _bring_beyond(self, agreement: Agreement, agreed: Agreed, known: int) -> None:
        """Rule 3: an epoch is above all that were, also in an etcd that was made anew.

        :param known: what it has to be above
        """
        wanted = known + BEYOND if agreed.revision < known else 0
        while agreed.revision < wanted:
            log.warning("etcd knows less than this node", revision=agreed.revision, wanted=wanted)
            self._wait(Wait(f"the revision of etcd is raised: {agreed.revision} of {wanted}"))
            agreed = await agreement.grow(min(GROWN_BY, wanted - agreed.revision))

    @property
    def _newest_epoch(self) -> int:
        history = self._committer.history()
        return history[-1].epoch if history else 0

    @property
    def _newest_promised(self) -> int:
        """The highest epoch that this node knows of."""
        return max(self._newest_epoch, self._memory.promised)
