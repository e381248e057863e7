"""Puts a failover policy into force: DEFINE FAILOVER, and what is made of one that is changed.

On a node that others copy, in this order, so that a stop anywhere in between leaves a store that
either goes on as before or is led by nobody, and never by two:

1. Enough followers are in sync, etcd answers and knows of no set: else nothing is done.
2. From here on nothing is released that they don't hold, and nobody else commits. The policy is
   committed, and they show it: whichever of them leads one day knows by what.
3. The file CLUSTER is written, with the policy and who holds everything. From here on this node
   leads only what it has taken the lead of. A stop before leaves a store that takes no changes
   until the statement is said again; one behind it is gone on from by the next start.
4. The lead is taken, while there is no set: nobody else takes it then.
5. The set is founded in etcd: this node and those followers. It is led from here on.

4 and 5 are `takeover.py`. Nothing was released since 3, so those who held everything then still do,
however much later the set is written, and whoever asked for it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import structlog

from actors.cluster.member import Member
from actors.cluster.role import Alone, Founder
from actors.cluster.shippings import Shippings
from actors.commits import NODE, Committer, Who
from actors.commits.committer import released_at_once
from protocol.agreement import Agreed, Agreement, NotAnswered
from protocol.doors import Clock
from protocol.errors import BadRequest, Busy, NotEnoughReplicas
from protocol.failover import Policy
from storage import failover
from storage.cluster_file import Cluster
from storage.cluster_file import Founding as Founded
from storage.tickets import CommitTicket

log = structlog.get_logger("cluster")

SHOWN_SECONDS: Final = 20.0
"""How long followers that were in sync have to show the policy."""


class Founding:
    """One DEFINE FAILOVER. On the loop only.

    :param who: whose statement it is
    """

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        member: Member,
        shippings: Shippings,
        policy: Policy,
        who: Who,
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._shippings = shippings
        self._policy = policy
        self._who = who

    async def begin(self, agreement: Agreement) -> None:
        """What comes before etcd is asked for anything; `Taking.first` goes on from there.

        :raises BadRequest, Busy, NotEnoughReplicas, NotWritable, DiskFull: nothing was done, or it
            was undone
        """
        member, committer = self._member, self._committer
        if not member.coordinates:
            raise BadRequest(
                "this node was never declared coordinating, so it would not take the lead: DEFINE"
                " NODE ROLES serving, writable, coordinating"
            )
        agreed = await self._look(agreement)
        members = self._members()
        committer.releasable = partial(self._releasable, members)
        member.become(Founder())
        try:
            sequence = await self._commit(members)
            founded = Founded(members | {member.node}, self._policy, sequence)
            await self._note(agreed, founded)
        except BaseException:
            await self._undo()
            raise
        # Nothing is undone from here on: what etcd is asked for may be done at any later moment.
        member.look_at_rows()

    def _releasable(self, members: frozenset[str], durable: int) -> int:
        """What all of the first set hold. A follower that comes back says what it holds anew: what
        is released stays so."""
        held = self._member.followers.held_by(members, durable)
        return max(held, self._committer.released_upto)

    async def _look(self, agreement: Agreement) -> Agreed:
        try:
            agreed = await agreement.look()
        except NotAnswered as silence:
            raise Busy(f"etcd does not answer, so nothing was done: {silence}") from silence
        if agreed.insync is not None or agreed.lead is not None:
            raise BadRequest(
                "the nodes of this store have agreed there already on who holds everything: that"
                " is written once"
            )
        return agreed

    def _members(self) -> frozenset[str]:
        """The followers of the first set. :raises NotEnoughReplicas: there are too few"""
        found = self._shippings.in_sync & self._member.nodes
        if len(found) < self._policy.acks:
            raise NotEnoughReplicas(
                f"{len(found)} followers are in sync, and ACKS is {self._policy.acks}: no policy"
                " was kept",
                followers=len(found),
                acks=self._policy.acks,
            )
        return found

    async def _commit(self, members: frozenset[str]) -> int:
        """Have the policy in the store, and have all members show it; answers where it stands."""
        member, committer = self._member, self._committer
        ticket = commit_policy(committer, member, self._policy, self._who)
        try:
            async with asyncio.timeout(SHOWN_SECONDS):
                await committer.released(ticket)
                while not member.followers.shown_by(members, ticket.sequence):
                    member.news.clear()
                    await member.news.wait()
        except TimeoutError:
            raise NotEnoughReplicas(
                f"a follower that was in sync did not show the policy in {SHOWN_SECONDS:.0f} s: it"
                " is taken back",
                acks=self._policy.acks,
            ) from None
        return ticket.sequence

    async def _undo(self) -> None:
        """Go on as before: nobody was told of the policy but followers."""
        member, committer = self._member, self._committer
        try:
            commit_policy(committer, member, None, NODE, "the policy did not come into force")
        finally:
            member.become(Alone())
            committer.releasable = released_at_once
            committer.release_more()
            member.look_at_rows()

    async def _note(self, agreed: Agreed, founded: Founded) -> None:
        """From here on this node is in a cluster, whatever happens to it. :raises DiskFull:"""
        epoch = self._committer.ledger.epoch
        noted = Cluster(agreed.cluster, agreed.revision, epoch, True, founding=founded)
        await self._memory.begin(noted)


def commit_policy(
    committer: Committer, member: Member, policy: Policy | None, who: Who, reason: str | None = None
) -> CommitTicket:
    """Commit a policy, or that there is none; what an answer has to wait for.

    :raises NotWritable, NotEnoughReplicas, Busy, DiskFull: as of any commit
    """
    member.commits_policy = True
    try:
        with committer.begin() as tx:
            if policy is None:
                failover.drop(tx)
            else:
                failover.define(tx, member.store, policy)
            word = "DROP" if policy is None else "DEFINE"
            ticket = committer.commit(tx, who, f"{word} FAILOVER", reason)
    finally:
        member.commits_policy = False
    member.look_at_rows()
    return ticket
