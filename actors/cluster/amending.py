"""Puts another failover policy in place of the one that a node leads by: DEFINE FAILOVER again.

The node goes by it at once, and takes that back where its commit is. Who leads next goes by what
stands in its own log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from actors.cluster.founding import commit_policy
from actors.cluster.leadership import Leadership
from actors.cluster.member import Member
from actors.cluster.shippings import Shippings
from actors.commits import Committer, Who
from protocol.agreement import Agreement, NotAnswered
from protocol.errors import BadRequest, Busy, NotWritable
from protocol.failover import Policy
from storage.tickets import CommitTicket

log = structlog.get_logger("cluster")

HEARD_SECONDS: Final = 1.0
"""How long followers have to say something by the new policy."""
PAUSE_SECONDS: Final = 0.02
"""How often it is looked whether they have."""


class Amending:
    """One DEFINE FAILOVER on a node that has a policy. On the loop only.

    :param known: the etcd that is agreed in, as this node knows it
    :param agreement: the door to one, from the addresses of a policy
    """

    def __init__(
        self,
        committer: Committer,
        member: Member,
        shippings: Shippings,
        known: str | None,
        agreement: Callable[[Sequence[str]], Agreement],
    ) -> None:
        self._committer = committer
        self._member = member
        self._shippings = shippings
        self._known = known
        self._agreement = agreement

    async def amend(self, policy: Policy, who: Who) -> CommitTicket:
        """Commit the policy, and go by it; what the answer has to wait for. That may be those whom
        the next policy does without, so nothing waits for it here.

        :raises BadRequest, Busy, NotEnoughReplicas, NotWritable: nothing has changed
        """
        leadership = self._leadership()
        before = leadership.policy
        if policy.via != before.via:
            await self._check_same(policy)
        await self._heard(leadership, policy)
        if self._member.leadership is not leadership:
            # The lead was lost meanwhile. Whoever has it now knows nothing of this policy, be it
            # this node again.
            raise self._not_leading()
        take_back = leadership.amend(policy)
        self._shippings.hurry()
        try:
            ticket = commit_policy(self._committer, self._member, policy, who)
        except BaseException:
            take_back()
            raise
        leadership.amended(ticket.sequence)

        def on_released(lost: BaseException | None) -> None:
            if lost is not None:
                take_back()
            elif policy.lease != before.lease:
                log.warning(
                    "the lease lasts as it did until the lead is taken another time",
                    lease=leadership.lease.seconds,
                    then=policy.lease_seconds,
                )

        self._committer.when_released(ticket, on_released)
        return ticket

    def _leadership(self) -> Leadership:
        if self._member.leadership is None:
            raise self._not_leading()
        return self._member.leadership

    def _not_leading(self) -> NotWritable:
        return self._member.not_leading("a policy is changed on the node that leads")

    async def _check_same(self, policy: Policy) -> None:
        """:raises BadRequest: other addresses lead to another agreement
        :raises Busy: nobody answers there
        """
        try:
            agreed = await self._agreement(policy.via).look()
        except NotAnswered as silence:
            raise Busy(f"etcd does not answer, so nothing was done: {silence}") from silence
        if agreed.cluster != self._known:
            raise BadRequest("these addresses lead to another etcd than the one that is agreed in")

    async def _heard(self, leadership: Leadership, policy: Policy) -> None:
        """Wait for followers: who spoke in time by the policy before may be silent by this one."""
        self._shippings.hurry()
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARD_SECONDS):
                while not leadership.hears_enough(policy):
                    await asyncio.sleep(PAUSE_SECONDS)
