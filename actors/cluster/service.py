"""The cluster as statements see it: what this node is at, and what it is asked to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from actors.cluster.coordination import CoordinationActor
from actors.cluster.downstream import downstream
from actors.cluster.member import Member
from actors.cluster.present import PresentReads
from actors.cluster.requests import Found, GiveUpLead, LookAgain, TakeLead, TakeOut, Unfound
from actors.cluster.shippings import Copies, Shippings
from actors.commits import Who
from actors.runtime import Supervised, ask, stop, tell
from protocol.doors import Clock
from protocol.errors import Draining
from protocol.failover import Policy
from protocol.values import Value
from storage.failover import Kept
from storage.tickets import CommitTicket


class ClusterService:
    """On the loop only.

    :param place: who coordinates
    """

    def __init__(
        self,
        clock: Clock,
        member: Member,
        shippings: Shippings,
        present: PresentReads,
        place: Supervised[CoordinationActor],
    ) -> None:
        self._clock = clock
        self._member = member
        self._shippings = shippings
        self._place = place
        self._present = present

    def copy_with(self, copies: Copies) -> None:
        """Give copies of the store to nodes that join."""
        self._shippings.copies = copies

    def info(self) -> dict[str, Value]:
        """What INFO FOR NODE says of it."""
        about = downstream(self._member, self._shippings, self._clock)
        return {**self._member.info(), "downstream": about}

    def present(self) -> int | asyncio.Future[int]:
        """A sequence that shows all that was released anywhere. :raises Busy: see `present.py`"""
        return self._present.ask()

    def in_force(self, kept: Kept) -> bool:
        """Whether this node goes by a policy that is kept."""
        return self._member.is_in_force(kept)

    def define_failover(self, policy: Policy, who: Who) -> asyncio.Future[CommitTicket | None]:
        """Done once this node leads by it, or once it is committed.

        :raises: as `CoordinationActor.found`
        """
        return ask(self._place.ref, Found(policy, who))

    def drop_failover(self, who: Who) -> asyncio.Future[CommitTicket | None]:
        """Done once that is committed. :raises: as `CoordinationActor.unfound`"""
        return ask(self._place.ref, Unfound(who))

    def lead(self, *, force: bool) -> asyncio.Future[None]:
        """Done once this node leads. :raises: as `CoordinationActor.take_lead`"""
        return ask(self._place.ref, TakeLead(force))

    @property
    def epoch(self) -> int | None:
        """Of the lead that this node has: what was taken out, was out of that one's set."""
        leadership = self._member.leadership
        return None if leadership is None else leadership.leading.epoch

    def take_out(
        self, nodes: Collection[str], is_over: Callable[[], bool]
    ) -> asyncio.Future[None] | None:
        """Done once nothing waits for any of some nodes; None: nothing does. Until what drops their
        rows has ended nothing will.

        :raises BadRequest, NotEnoughReplicas, NotWritable: as `CoordinationActor.take_out`
        """
        leadership, gone = self._member.leadership, frozenset(nodes)
        if leadership is None or not gone:
            return None
        if leadership.leading.waited_for.isdisjoint(gone):
            leadership.keeps_out(gone, is_over)
            return None
        return ask(self._place.ref, TakeOut(gone, is_over))

    async def stop(self) -> None:
        """Coordinate no more: this node stays what it is."""
        await stop(self._place.ref)

    async def give_up_lead(self) -> None:
        """The node stops: another may lead at once."""
        with suppress(Draining):  # nobody coordinates any more
            await ask(self._place.ref, GiveUpLead())

    def look_again(self) -> None:
        """The roles of this node have changed."""
        tell(self._place.ref, LookAgain())
