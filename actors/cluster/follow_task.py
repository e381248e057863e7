"""The task that follows one leader in one epoch.

`coordination.py` decides which leader to follow. A follower keeps following a leader that has
vanished until another one leads: frames received before still count, and the leader may come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from actors.cluster.sync_status import SyncStatus
from actors.cluster.tasks import end
from protocol.errors import Busy


def detached() -> Busy:
    """Return the refusal of a linearizable read while this node is attached to no leader."""
    return Busy("cannot serve a linearizable read: this node is not connected to a leader")


class ReceiverLink(Protocol):
    """A link to the leader: `replica_receiver.py`."""

    epoch: int
    """Leader epoch in which this node is attached; 0: not yet."""

    @property
    def has_caught_up(self) -> bool:
        """True if this node shows every frame that it may have shown before it attached."""

    def request_read_index(self) -> asyncio.Future[int]:
        """Ask the leader for its read index. :raises Busy: can't ask; also from the future"""


class FollowsLeader(Protocol):
    """Repeated attaching to one leader: `attaching.py`."""

    @property
    def sync_status(self) -> SyncStatus:
        """Sync status of this node."""

    @property
    def reason(self) -> str:
        """Reason why it has stopped following, or why the last link ended."""

    @property
    def receiving(self) -> ReceiverLink | None:
        """The current link; None: there is none."""

    @property
    def heard_us(self) -> int:
        """Monotonic time of the leader's last message on any link (µs); at first, the time of
        creation."""

    @property
    def was_attached(self) -> bool:
        """True if this node is attached, or was."""

    @property
    def has_caught_up(self) -> bool:
        """True once this node shows every frame that it may have shown before it attached."""

    def run(self) -> Awaitable[None]:
        """Follow until cancelled, or until another attempt is useless."""


class FollowTask:
    """Starts when constructed. On the loop only.

    :param node: id of the leader
    :param epoch: leader epoch; None: etcd knows of no leader
    """

    def __init__(self, node: str, epoch: int | None, follows: FollowsLeader) -> None:
        self.node = node
        self.epoch = epoch
        self._follows = follows
        self._task = asyncio.ensure_future(follows.run())

    @property
    def sync_status(self) -> SyncStatus:
        """Sync status of this node."""
        return self._follows.sync_status

    @property
    def is_attached(self) -> bool:
        """True while this node is attached: it knows the leader's commit index at that time."""
        receiving = self._follows.receiving
        # The epoch is set after the log is truncated to the last common frame.
        return receiving is not None and receiving.epoch > 0

    @property
    def was_attached(self) -> bool:
        """True if this node is attached, or was by this task."""
        return self._follows.was_attached

    @property
    def has_caught_up(self) -> bool:
        """True once this node shows every frame that it may have shown before it attached."""
        return self._follows.has_caught_up

    @property
    def why(self) -> str | None:
        """Last known reason why it is not attached; None: it is, or no reason is known yet."""
        return None if self.is_attached else self._follows.reason or None

    @property
    def heard_us(self) -> int:
        """Monotonic time of the leader's last message (µs); at first, the time of creation."""
        return self._follows.heard_us

    def silent_us(self, now_us: int) -> int:
        """Return the time since the leader's last message (µs)."""
        return now_us - self.heard_us

    def request_read_index(self) -> asyncio.Future[int]:
        """Ask the leader for its read index: its commit index, once it has confirmed that it still
        leads.

        :raises Busy: the leader can't be asked; the future may fail with it too
        """
        receiving = self._follows.receiving
        if receiving is None:
            raise detached()
        return receiving.request_read_index()

    def check(self) -> None:
        """Raise the bug that ended the task, if there is one."""
        # Called in each iteration of `coordination.py`: otherwise a bug ends replication unnoticed.
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def end(self) -> None:
        """Cancel the task. Nothing from the leader is in progress once this returns."""
        # Waited for: no frame of this leader may be taken after the promise of a later epoch.
        await end(self._task)
