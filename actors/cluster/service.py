"""Cluster service: the interface of the cluster for statements and the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from actors.cluster.coordination import CoordinationActor
from actors.cluster.downstream import downstream
from actors.cluster.linearizable_reads import LinearizableReads
from actors.cluster.member import ClusterMember
from actors.cluster.replica_senders import CopyProvider, ReplicaSenders
from actors.cluster.requests import (
    DropPolicy,
    GiveUpLead,
    PutPolicyInForce,
    RemoveFromIsr,
    RunIteration,
    TakeLead,
)
from actors.commits import Author
from actors.runtime import Supervised, ask, stop, tell
from protocol.environment import Clock
from protocol.errors import Draining
from protocol.failover import Policy
from protocol.values import Value
from storage.catalog.failover import StoredPolicy
from storage.txn.tickets import CommitTicket


class ClusterService:
    """On the loop only.

    :param place: supervisor of the coordination actor
    """

    def __init__(
        self,
        clock: Clock,
        member: ClusterMember,
        replica_senders: ReplicaSenders,
        present: LinearizableReads,
        place: Supervised[CoordinationActor],
    ) -> None:
        self._clock = clock
        self._member = member
        self._replica_senders = replica_senders
        self._place = place
        self._present = present

    def copy_with(self, copies: CopyProvider) -> None:
        """Give copies of the store to nodes that join."""
        self._replica_senders.copies = copies

    def info(self) -> dict[str, Value]:
        """Return the cluster fields of INFO FOR NODE."""
        about = downstream(self._member, self._replica_senders, self._clock)
        return {**self._member.info(), "downstream": about}

    def present(self) -> int | asyncio.Future[int]:
        """Return the read index, or a future of it. :raises Busy: see `linearizable_reads.py`"""
        return self._present.ask()

    def in_force(self, kept: StoredPolicy) -> bool:
        """True if a stored policy is in force on this node."""
        return self._member.is_in_force(kept)

    def define_failover(self, policy: Policy, who: Author) -> asyncio.Future[CommitTicket | None]:
        """Return a future that is done once this node leads by the policy, or has committed it.

        :raises: as `CoordinationActor.found`
        """
        return ask(self._place.ref, PutPolicyInForce(policy, who))

    def drop_failover(self, who: Author) -> asyncio.Future[CommitTicket | None]:
        """Return a future that is done once the removal is committed.

        :raises: as `CoordinationActor.drop_policy`
        """
        return ask(self._place.ref, DropPolicy(who))

    def lead(self, *, force: bool) -> asyncio.Future[None]:
        """Return a future that is done once this node leads.

        :raises: as `CoordinationActor.take_lead`
        """
        return ask(self._place.ref, TakeLead(force))

    @property
    def epoch(self) -> int | None:
        """Epoch of the present lead, to which a removal from the ISR applies; None: this node does
        not lead."""
        leadership = self._member.leadership
        return None if leadership is None else leadership.leading.epoch

    def take_out(
        self, nodes: Collection[str], is_over: Callable[[], bool]
    ) -> asyncio.Future[None] | None:
        """Take nodes out of the ISR, until the statement that drops their rows has ended.

        Return a future that is done once no release waits for them; None: none does.

        :raises BadRequest, NotEnoughReplicas, NotWritable: as `CoordinationActor.take_out`
        """
        leadership, gone = self._member.leadership, frozenset(nodes)
        if leadership is None or not gone:
            return None
        if leadership.leading.waited_for.isdisjoint(gone):
            # No release waits for these nodes, but one could enter the ISR during the statement.
            leadership.keep_out_of_isr(gone, is_over)
            return None
        return ask(self._place.ref, RemoveFromIsr(gone, is_over))

    async def stop(self) -> None:
        """Stop the coordination actor. The role of this node stays."""
        await stop(self._place.ref)

    async def give_up_lead(self) -> None:
        """Give up the lead since the node stops, so that another may lead at once."""
        with suppress(Draining):  # the actor has stopped
            await ask(self._place.ref, GiveUpLead())

    def look_again(self) -> None:
        """Trigger an iteration: the roles of this node have changed."""
        tell(self._place.ref, RunIteration())
