"""DEFINE FAILOVER: puts the first failover policy into force, or replaces the one in force.

On a node in no cluster the order of steps matters: a crash between any two leaves a store that goes
on as before, or has no leader, and never two leaders.

1. Enough followers are in sync; etcd answers and holds no ISR yet. Otherwise nothing is done.
2. From here on nothing is released that those followers don't hold, and no other commit is
   accepted. The policy is committed and the followers show it, so a later leader among them has it.
3. The file CLUSTER is written, with the policy and the first ISR. From here on this node leads only
   with a lead in etcd. A crash before this step leaves a store that takes no changes until the
   statement is repeated. After a crash behind it, the next start continues.
4. The lead is taken while etcd holds no ISR: no other node takes it then.
5. The first ISR is written to etcd: this node and those followers. It leads from here on.

Steps 4 and 5 are in `election.py`. Nothing was released since step 3. So the members of step 3
still hold everything, however late the ISR is written, and by whichever request.

A leader uses a new policy at once, and returns to the old one if its commit is rolled back. The
next leader uses the policy in its own log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from actors.cluster.leader_state import Leadership
from actors.cluster.replica_senders import ReplicaSenders
from actors.cluster.role import Alone, ClusterMember, Founder
from actors.commits.committer import NODE, Author, Committer, released_at_once
from protocol.agreement import AgreedState, Agreement, NotAnswered
from protocol.environment import Clock
from protocol.errors import BadRequest, Busy, NotEnoughReplicas, NotWritable
from protocol.failover import Policy
from storage.catalog import failover
from storage.files.cluster_file import BootstrapState as Founded
from storage.files.cluster_file import ClusterState
from storage.txn.tickets import CommitTicket

# --- the first policy -----------------------------------------------------------------------------


log = structlog.get_logger("cluster")

SHOWN_SECONDS: Final = 20.0
"""Time that followers in sync have to show the policy (s)."""


class ClusterBootstrap:
    """Handles a first DEFINE FAILOVER. On the loop only.

    :param who: issuer of the statement
    """

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        member: ClusterMember,
        replica_senders: ReplicaSenders,
        policy: Policy,
        who: Author,
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._replica_senders = replica_senders
        self._policy = policy
        self._who = who

    async def begin_founding(self, agreement: Agreement) -> None:
        """Take steps 1 to 3; `Election.first` goes on from there.

        :raises BadRequest, Busy, NotEnoughReplicas, NotWritable, DiskFull: nothing was done, or it
            was undone
        """
        member, committer = self._member, self._committer
        if not member.coordinates:
            raise BadRequest(
                "this node was not declared coordinating, so it would not take the lead: run"
                " DEFINE NODE ROLES serving, writable, coordinating first"
            )
        # Step 1: both checks come before the first change.
        agreed = await self._read_agreed(agreement)
        members = self._members()
        # Step 2: the bound comes before the commit, whose release has to wait for the members.
        committer.releasable = partial(self._releasable, members)
        member.become(Founder())
        try:
            sequence = await self._commit(members)
            founded = Founded(members | {member.node}, self._policy, sequence)
            # Step 3: until the file is written, the policy can be dropped again.
            await self._note(agreed, founded)
        # Cancellation too: without a file CLUSTER the node must not stay a founder.
        except BaseException:
            # A cancellation of step 3 arrives after the file was written: the node is in the
            # cluster then, and goes on at its next start.
            if self._memory.stored is None:
                await self._drop_policy()
            raise
        # Nothing is undone from here on: a request to etcd may take effect at any later moment.
        member.read_rows()

    def _releasable(self, members: frozenset[str], durable: int) -> int:
        """Return the highest frame that all members of the first ISR hold.

        A follower that reconnects starts from a lower acknowledgement; the commit index never goes
        back.
        """
        held = self._member.followers.held_by(members, durable)
        return max(held, self._committer.commit_index)

    async def _read_agreed(self, agreement: Agreement) -> AgreedState:
        try:
            agreed = await agreement.read()
        except NotAnswered as silence:
            raise Busy(f"etcd does not answer, so nothing was changed: {silence}") from silence
        if agreed.insync is not None or agreed.lead is not None:
            raise BadRequest(
                "etcd already holds the in-sync replicas of this store, which are created only once"
            )
        return agreed

    def _members(self) -> frozenset[str]:
        """Return the followers of the first ISR. :raises NotEnoughReplicas: there are too few"""
        # Attached and in sync, and with a row: a dropped node must not enter the first ISR.
        found = self._replica_senders.in_sync & self._member.nodes
        if len(found) < self._policy.acks:
            raise NotEnoughReplicas(
                f"{len(found)} followers are in sync, but ACKS is {self._policy.acks}: the policy"
                " was not stored",
                followers=len(found),
                acks=self._policy.acks,
            )
        return found

    async def _commit(self, members: frozenset[str]) -> int:
        """Commit the policy and wait until all members show it. Return its sequence."""
        member, committer = self._member, self._committer
        ticket = commit_policy(committer, member, self._policy, self._who)
        try:
            async with asyncio.timeout(SHOWN_SECONDS):
                await committer.released(ticket)
                while not member.followers.shown_by(members, ticket.sequence):
                    # No report is lost: check and `clear` are in one loop iteration.
                    member.news.clear()
                    await member.news.wait()
        except TimeoutError:
            raise NotEnoughReplicas(
                "a follower that was in sync did not confirm the policy within"
                f" {SHOWN_SECONDS:.0f} s: the policy was dropped",
                acks=self._policy.acks,
            ) from None
        return ticket.sequence

    async def _drop_policy(self) -> None:
        """Drop the policy and go on alone: only followers have seen it."""
        member, committer = self._member, self._committer
        try:
            commit_policy(committer, member, None, NODE, "the policy did not come into force")
        # Also if that commit is refused: this node is in no cluster then.
        finally:
            member.become(Alone())
            committer.releasable = released_at_once
            # Commits that waited for the members need only this disk.
            committer.release_more()
            member.read_rows()

    async def _note(self, agreed: AgreedState, founded: Founded) -> None:
        """Write the file CLUSTER: from here on this node is in a cluster, even after a crash.
        :raises DiskFull:
        """
        # The present epoch counts as promised: every elected leader needs a later one.
        epoch = self._committer.ledger.epoch
        noted = ClusterState(agreed.cluster, agreed.revision, epoch, True, founding=founded)
        await self._memory.join(noted)


def commit_policy(
    committer: Committer,
    member: ClusterMember,
    policy: Policy | None,
    who: Author,
    reason: str | None = None,
) -> CommitTicket:
    """Commit a policy, or its removal. Return the ticket that the answer has to wait for.

    :raises NotWritable, NotEnoughReplicas, Busy, DiskFull: as for any commit
    """
    # Nothing below waits, so only this commit passes `ClusterMember.check_writable`.
    member.commits_policy = True
    try:
        with committer.begin_transaction() as tx:
            if policy is None:
                failover.drop(tx)
            else:
                failover.define(tx, member.store, policy)
            word = "DROP" if policy is None else "DEFINE"
            ticket = committer.commit(tx, who, f"{word} FAILOVER", reason)
    finally:
        member.commits_policy = False
    member.read_rows()
    return ticket


# --- the next policies ----------------------------------------------------------------------------


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
        end_replacement = leadership.amend(policy)
        self._replica_senders.hurry()
        try:
            ticket = commit_policy(self._committer, self._member, policy, who)
        except BaseException:
            end_replacement(False)
            raise
        leadership.amended(ticket.sequence)

        def on_released(lost: BaseException | None) -> None:
            end_replacement(lost is None)
            if lost is None and policy.lease != before.lease:
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
