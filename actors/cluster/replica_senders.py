"""Replica senders: the links of all followers of this node, and their progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

import structlog

from actors.cluster.sync_status import SyncStatus
from actors.cluster.tasks import end
from actors.cluster.window import Window
from protocol.environment import Clock
from protocol.errors import BadRequest, NotWritable, Refusal
from protocol.links import AskWay, Attach, Copy, Link, LinkClosed, Refused, Way

log = structlog.get_logger("cluster")

BEAT_SECONDS = 1.0
"""Heartbeat interval (s), where no policy limits the silence of a follower."""


class FollowerSender(Protocol):
    """Replica sender of a follower: `replica_sender.py`."""

    epoch: int
    synced: int
    applied: int
    window: Window

    @property
    def sync_status(self) -> SyncStatus:
        """Sync status of the follower."""

    @property
    def said(self) -> int:
        """Newest round that the follower has echoed; see `read_index.py`."""

    def hurry(self) -> None:
        """Send a message soon."""

    def compare(self, sequence: int, digest: bytes) -> None:
        """Send the digest of the state at a frame."""

    def run(self, asked: Attach) -> Awaitable[None]:
        """Send frames until the link ends. Raises only bugs."""


class Unsynced(NamedTuple):
    """Frames that a follower was sent over an ended link, and has not synced."""

    epoch: int
    """Leader epoch of the sender; another leader never waits for these frames."""
    since_us: int
    """Monotonic time of sending (µs)."""
    after: int
    """Last frame that it has synced."""


class CopyProvider(Protocol):
    """Snapshot copies for empty nodes: `snapshot_transfer.py`."""

    @property
    def given(self) -> Collection[str]:
        """Ids of the nodes that are sent a copy, or were, and have not attached yet."""

    def serve(self, link: Link, asked: Copy) -> Awaitable[None]:
        """Serve a request to its end."""

    def attached(self, node: str) -> None:
        """Drop the copy of a node: it has attached."""


class SendingMember(Protocol):
    """The role of this node, as its replica senders see it: `ClusterMember`."""

    @property
    def sender_epoch(self) -> int | None:
        """Epoch in which other nodes may follow it; None: none may."""

    @property
    def beat_seconds(self) -> float:
        """Interval of heartbeats to followers (s)."""

    def check_copied(self) -> None:
        """Check that the store may be copied from this node. :raises NotWritable: it may not"""

    def attached(self, node: str, upto: int) -> None:
        """Note that a follower has attached, and up to which frame both logs agree."""

    def on_report(self, node: str, synced: int, applied: int, heard_us: int) -> None:
        """Note a follower's progress report."""

    def said(self, node: str, number: int) -> None:
        """Note that a follower has echoed the number of a read index round."""

    def left(self, node: str) -> None:
        """Note that a follower has detached."""


Heard = Callable[[str, int], None]
Begin = Callable[[Link, int, Heard, Heard, Callable[[], float]], FollowerSender]
"""Makes a replica sender from a link, an epoch, the callbacks for attaching and acknowledgements,
and the heartbeat interval (s)."""


class ReplicaSenders:
    """On the loop only.

    :param begin: makes the replica sender of a link
    :param way: returns the answer to nodes that ask for the addresses of the leader and of etcd
    """

    def __init__(
        self,
        clock: Clock,
        member: SendingMember,
        begin: Begin,
        way: Callable[[], Way] = Way,
    ) -> None:
        self._clock = clock
        self._member = member
        self._begin = begin
        self._way = way
        self.copies: CopyProvider | None = None
        """Gives copies of the store to empty nodes; None: none are given."""
        self._by_node: dict[str, tuple[FollowerSender, asyncio.Task[None]]] = {}
        self._unsynced: dict[str, Unsynced] = {}
        """Unsynced frames by node. A follower that reconnects again and again, but syncs nothing
        since its disk is full, counts as silent all the time."""

    def __iter__(self) -> Iterator[FollowerSender]:
        """Iterate over the present replica senders."""
        return iter([ships for ships, _ in self._by_node.values()])

    @property
    def by_node(self) -> Mapping[str, FollowerSender]:
        """Present replica senders, by node id."""
        return {node: ships for node, (ships, _) in self._by_node.items()}

    @property
    def copied(self) -> frozenset[str]:
        """Nodes that are given a copy of the store."""
        return frozenset() if self.copies is None else frozenset(self.copies.given)

    @property
    def in_sync(self) -> frozenset[str]:
        """Nodes that hold everything that was on this disk a second ago."""
        return frozenset(
            node for node, (ships, _) in self._by_node.items()
            if ships.sync_status is SyncStatus.IN_SYNC
        )  # fmt: skip

    async def accept(self, link: Link) -> None:
        """Serve a link that another node has opened; the caller closes it afterwards."""
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
                raise BadRequest("the first message of a link must be Attach or Copy")
        except NotWritable as refusal:
            # The refusal names the leader, so that the node finds it without etcd.
            leads = self._way().leader
            detail = {} if leads is None else leads.detail
            link.send(Refused(refusal.code, refusal.message, detail))
        except Refusal as refusal:
            link.send(Refused(refusal.code, refusal.message))
        except LinkClosed as closed:
            log.debug("a node has gone", node=link.peer.node, why=str(closed))

    async def _ship(self, link: Link, asked: Attach) -> None:
        """Replicate to a follower until its link ends.

        :raises NotWritable: this node does not lead
        """
        node = link.peer.node
        while node in self._by_node:  # its earlier link is dead, and not yet timed out
            gone, before = self._by_node.pop(node)
            self._remember(node, gone)
            await end(before)
        epoch = self._member.sender_epoch  # after the await: the lead may be lost since
        if epoch is None:
            raise NotWritable("this node does not lead: it follows another, or waits for a leader")
        ships = self._begin(
            link, epoch, lambda _, upto: self._on_attached(node, ships, upto),
            lambda _, upto: self._on_progress(node, ships, upto), lambda: self._member.beat_seconds,
        )  # fmt: skip
        task = asyncio.ensure_future(ships.run(asked))
        self._by_node[node] = ships, task
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        finally:
            await end(task)
            # A newer link of the node may have taken its place.
            if self._by_node.get(node, (None, None))[0] is ships:
                del self._by_node[node]
                self._remember(node, ships)
                self._member.left(node)

    def _is_current(self, node: str, ships: FollowerSender) -> bool:
        """True if a link counts: it has not been replaced, and its epoch is the present one."""
        found = self._by_node.get(node)
        return found is not None and found[0] is ships and ships.epoch == self._member.sender_epoch

    def _on_attached(self, node: str, ships: FollowerSender, upto: int) -> None:
        if not self._is_current(node, ships):
            return
        self._member.attached(node, upto)
        # Attaching counted as a sign of life. The debt of an earlier link overrides it.
        if node in self._unsynced:
            self._on_progress(node, ships, upto)
        if self.copies is not None:
            self.copies.attached(node)

    def _on_progress(self, node: str, ships: FollowerSender, upto: int) -> None:
        if not self._is_current(node, ships):
            return
        owed_us = ships.window.owed_since_us
        unsynced = self._unsynced.get(node)
        # No progress since the last link ended: the debt counts from the sending over that link.
        if unsynced is not None and (unsynced.epoch, unsynced.after) == (ships.epoch, upto):
            owed_us = unsynced.since_us
        elif unsynced is not None and (unsynced.epoch != ships.epoch or unsynced.after < upto):
            del self._unsynced[node]  # it has synced something since
        heard_us = self._clock.monotonic_us() if owed_us is None else owed_us
        self._member.on_report(node, upto, ships.applied, heard_us)
        if ships.said:
            self._member.said(node, ships.said)

    def hurry(self) -> None:
        """Send a message to each follower soon."""
        for ships in self:
            ships.hurry()

    def _remember(self, node: str, ships: FollowerSender) -> None:
        since_us, before = ships.window.unsynced_since_us, self._unsynced.get(node)
        at = ships.epoch, ships.synced
        for other in [each for each, one in self._unsynced.items() if one.epoch != ships.epoch]:
            del self._unsynced[other]  # sent in an epoch that is over
        # Without progress the oldest time stays: a new link must not hide a disk without syncs.
        if since_us is not None and (before is None or (before.epoch, before.after) != at):
            self._unsynced[node] = Unsynced(ships.epoch, since_us, ships.synced)

    def end_all(self) -> None:
        """End all links: this node no longer leads. Its followers attach to another leader, or
        again."""
        for _, task in self._by_node.values():
            task.cancel()
