"""Those who follow this node: their links, what becomes of each, and how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from actors.cluster.sync_status import SyncStatus
from actors.cluster.tasks import end
from actors.cluster.window import Window
from protocol.doors import Clock
from protocol.errors import BadRequest, NotWritable, Refusal
from protocol.links import AskWay, Attach, Copy, Link, LinkClosed, Refused, Way

if TYPE_CHECKING:
    from actors.cluster.member import Member

log = structlog.get_logger("cluster")

BEAT_SECONDS = 1.0
"""How often something is said to a follower, at least, where no policy says how long it may be
silent."""


class Ships(Protocol):
    """One follower's link: `shipping.py`."""

    epoch: int
    synced: int
    applied: int
    window: Window

    @property
    def standing(self) -> SyncStatus:
        """How the follower stands to this node."""

    @property
    def said(self) -> int:
        """The newest number that the follower has said back; see `rounds.py`."""

    def hurry(self) -> None:
        """Say something soon."""

    def compare(self, sequence: int, digest: bytes) -> None:
        """Say which digest the state has here at a frame."""

    def run(self, asked: Attach) -> Awaitable[None]:
        """Ship until the link ends. Raises nothing but bugs."""


class Unsynced(NamedTuple):
    """What a follower was sent over a link that has ended, and does not have on its disk."""

    epoch: int
    """Of who sent it: what another leader's log lacks is never waited for."""
    since_us: int
    """On the monotonic clock."""
    after: int
    """The last frame that it has."""


class Copies(Protocol):
    """What a node is given that holds nothing yet: `copying.py`."""

    @property
    def given(self) -> Collection[str]:
        """The ids of those that are being given one, or were and have not attached yet."""

    def serve(self, link: Link, asked: Copy) -> Awaitable[None]:
        """Answer all of one request."""

    def attached(self, node: str) -> None:
        """That node goes on by itself from here."""


Heard = Callable[[str, int], None]
Begin = Callable[[Link, int, Heard, Heard, Callable[[], float]], Ships]
"""Begins to ship: over a link, in an epoch, telling of who attached and of who was heard, with a
word after so many seconds at least."""


class Shippings:
    """On the loop only.

    :param begin: makes one for a link
    :param way: what others are told who ask where they are to turn to
    """

    def __init__(
        self,
        clock: Clock,
        member: Member,
        begin: Begin,
        way: Callable[[], Way] = Way,
    ) -> None:
        self._clock = clock
        self._member = member
        self._begin = begin
        self._way = way
        self.copies: Copies | None = None
        """What gives nodes a copy of the store that hold nothing yet; None: nothing does."""
        self._by_node: dict[str, tuple[Ships, asyncio.Task[None]]] = {}
        self._unsynced: dict[str, Unsynced] = {}
        """By node. Who comes back again and again and brings nothing to its disk, since that is
        full, is as good as silent all the time."""

    def __iter__(self) -> Iterator[Ships]:
        """Those that there are at the moment."""
        return iter([ships for ships, _ in self._by_node.values()])

    @property
    def by_node(self) -> Mapping[str, Ships]:
        """Those that there are, by the ids of the followers."""
        return {node: ships for node, (ships, _) in self._by_node.items()}

    @property
    def copied(self) -> frozenset[str]:
        """The nodes that are given a copy of the store."""
        return frozenset() if self.copies is None else frozenset(self.copies.given)

    @property
    def in_sync(self) -> frozenset[str]:
        """The nodes that hold all that this one had on its disk a second ago."""
        return frozenset(
            node for node, (ships, _) in self._by_node.items()
            if ships.standing is SyncStatus.IN_SYNC
        )  # fmt: skip

    async def accept(self, link: Link) -> None:
        """What becomes of a link that another node has made; it is closed when this returns."""
        try:
            asked = await link.receive()
            if isinstance(asked, Attach):
                await self._ship(link, asked)
            elif isinstance(asked, AskWay):
                link.send(self._way())
            elif isinstance(asked, Copy) and self.copies is not None:
                self._member.check_copied()
                await self.copies.serve(link, asked)
            else:
                raise BadRequest("a node that links begins with Attach or Copy")
        except NotWritable as refusal:
            leads = self._way().leader
            detail = {} if leads is None else leads.detail
            link.send(Refused(refusal.code, refusal.message, detail))
        except Refusal as refusal:
            link.send(Refused(refusal.code, refusal.message))
        except LinkClosed as closed:
            log.debug("a node has gone", node=link.peer.node, why=str(closed))

    async def _ship(self, link: Link, asked: Attach) -> None:
        """:raises NotWritable: this node leads nobody"""
        node = link.peer.node
        while node in self._by_node:  # its link is dead, and nobody has noticed yet
            gone, before = self._by_node.pop(node)
            self._remember(node, gone)
            await end(before)
        epoch = self._member.ships_in  # not before: the lead may have been lost meanwhile
        if epoch is None:
            raise NotWritable("this node leads nobody: it follows another, or waits for one")
        ships = self._begin(
            link, epoch, lambda _, upto: self._attached(node, ships, upto),
            lambda _, upto: self._heard(node, ships, upto), lambda: self._member.beat_seconds,
        )  # fmt: skip
        task = asyncio.ensure_future(ships.run(asked))
        self._by_node[node] = ships, task
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        finally:
            await end(task)
            if self._by_node.get(node, (None, None))[0] is ships:
                del self._by_node[node]
                self._remember(node, ships)
                self._member.left(node)

    def _is_current(self, node: str, ships: Ships) -> bool:
        """True if a link counts: another one may have replaced it, or its epoch may be over."""
        found = self._by_node.get(node)
        return found is not None and found[0] is ships and ships.epoch == self._member.ships_in

    def _attached(self, node: str, ships: Ships, upto: int) -> None:
        if not self._is_current(node, ships):
            return
        self._member.attached(node, upto)
        if node in self._unsynced:
            self._heard(node, ships, upto)
        if self.copies is not None:
            self.copies.attached(node)

    def _heard(self, node: str, ships: Ships, upto: int) -> None:
        if not self._is_current(node, ships):
            return
        owed_us = ships.window.owed_since_us
        unsynced = self._unsynced.get(node)
        if unsynced is not None and (unsynced.epoch, unsynced.after) == (ships.epoch, upto):
            owed_us = unsynced.since_us
        elif unsynced is not None and (unsynced.epoch != ships.epoch or unsynced.after < upto):
            del self._unsynced[node]  # it has brought something to its disk since
        heard_us = self._clock.monotonic_us() if owed_us is None else owed_us
        self._member.heard(node, upto, ships.applied, heard_us)
        if ships.said:
            self._member.said(node, ships.said)

    def hurry(self) -> None:
        """Say something to each follower soon."""
        for ships in self:
            ships.hurry()

    def _remember(self, node: str, ships: Ships) -> None:
        since_us, before = ships.window.unsynced_since_us, self._unsynced.get(node)
        at = ships.epoch, ships.synced
        for other in [each for each, one in self._unsynced.items() if one.epoch != ships.epoch]:
            del self._unsynced[other]  # of a lead that is over
        if since_us is not None and (before is None or (before.epoch, before.after) != at):
            self._unsynced[node] = Unsynced(ships.epoch, since_us, ships.synced)

    def end_all(self) -> None:
        """Nobody follows this node any more: who did, attaches to another, or again."""
        for _, task in self._by_node.values():
            task.cancel()
