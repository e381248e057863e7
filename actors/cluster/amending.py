"""Replaces the failover policy in force: DEFINE FAILOVER on a leader.

The leader uses the new policy at once, and returns to the old one if its commit is rolled back. The
next leader uses the policy in its own log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from actors.cluster.founding import commit_policy
from actors.cluster.leadership import Leadership
from actors.cluster.member import ClusterMember
from actors.cluster.replica_senders import ReplicaSenders
from actors.commits import Author, Committer
from protocol.agreement import Agreement, NotAnswered
from protocol.errors import BadRequest, Busy, NotWritable
from protocol.failover import Policy
from storage.txn.tickets import CommitTicket

log = structlog.get_logger("cluster")

HEARD_SECONDS: Final = 1.0
"""Time that followers have to acknowledge under the new policy (s)."""
PAUSE_SECONDS: Final = 0.02
"""Interval of checking whether they have (s)."""


class PolicyReplacement:
    """Handles DEFINE FAILOVER on a node that has a policy. On the loop only.

    :param known: id of the etcd cluster in use
    :param agreement: makes an etcd client from the addresses of a policy
    """

    def __init__(
        self,
        committer: Committer,
        member: ClusterMember,
        replica_senders: ReplicaSenders,
        known: str | None,
        agreement: Callable[[Sequence[str]], Agreement],
    ) -> None:
        self._committer = committer
        self._member = member
        self._replica_senders = replica_senders
        self._known = known
        self._agreement = agreement

    async def amend(self, policy: Policy, who: Author) -> CommitTicket:
        """Commit the policy and use it. Return the ticket that the answer has to wait for.

        This method does not wait for the release: that may depend on nodes which the new policy no
        longer needs.

        :raises BadRequest, Busy, NotEnoughReplicas, NotWritable: nothing has changed
        """
        leadership = self._leadership()
        before = leadership.policy
        if policy.via != before.via:
            await self._check_same(policy)
        await self._wait_for_followers(leadership, policy)
        if self._member.leadership is not leadership:
            # The lead was lost meanwhile. The present leadership does not know this policy, even
            # if it is this node's again.
            raise self._not_leading()
        # Before the commit, whose own release may depend on the new policy.
        restore_policy = leadership.amend(policy)
        self._replica_senders.hurry()
        try:
            ticket = commit_policy(self._committer, self._member, policy, who)
        except BaseException:
            restore_policy()
            raise
        leadership.amended(ticket.sequence)

        def on_released(lost: BaseException | None) -> None:
            if lost is not None:
                restore_policy()
            elif policy.lease != before.lease:
                log.warning(
                    "the new lease time applies from the next election",
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
        return self._member.not_leading("only the leader can change the failover policy")

    async def _check_same(self, policy: Policy) -> None:
        """Check that the new addresses lead to the same etcd.

        :raises BadRequest: they lead to another etcd
        :raises Busy: etcd does not answer there
        """
        try:
            agreed = await self._agreement(policy.via).read()
        except NotAnswered as silence:
            raise Busy(f"etcd does not answer, so nothing was changed: {silence}") from silence
        if agreed.cluster != self._known:
            raise BadRequest("VIA leads to another etcd cluster than the one in use")

    async def _wait_for_followers(self, leadership: Leadership, policy: Policy) -> None:
        """Wait for followers to report: one that is recent under the old BEHIND may be silent under
        the new."""
        self._replica_senders.hurry()
        with suppress(TimeoutError):  # too few followers: the commit is refused then
            async with asyncio.timeout(HEARD_SECONDS):
                while not leadership.has_enough_followers(policy):
                    await asyncio.sleep(PAUSE_SECONDS)
