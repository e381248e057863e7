"""The task that follows one node in one epoch, for as long as that is the one to follow.

Whom to follow is decided in `coordination.py`. A follower keeps to a leader that has vanished until
somebody else leads: what that one sent before still counts, and it may come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from actors.cluster.sync_status import SyncStatus
from actors.cluster.tasks import end
from protocol.errors import Busy


def detached() -> Busy:
    """What who asks for the present is refused with, where nobody who leads is attached to."""
    return Busy("nobody can say what is current: this node is attached to nobody who leads")


class Receives(Protocol):
    """One link to who leads: `receiving.py`."""

    epoch: int
    """In which this node is attached; 0: it is not yet."""

    @property
    def is_told(self) -> bool:
        """True if this node shows all that it may have shown before it attached."""

    def ask_present(self) -> asyncio.Future[int]:
        """What is present. :raises Busy: nobody can say, also from the future"""


class Follows(Protocol):
    """Attaching again and again to one node: `attaching.py`."""

    @property
    def standing(self) -> SyncStatus:
        """How this node stands to it."""

    @property
    def reason(self) -> str:
        """Why it follows no more, or why the last link has ended."""

    @property
    def receiving(self) -> Receives | None:
        """The link that there is."""

    @property
    def heard_us(self) -> int:
        """When who leads was heard last, by any link; never: when this began."""

    @property
    def was_attached(self) -> bool:
        """True if this node is attached, or was."""

    @property
    def is_told(self) -> bool:
        """True once this node shows all that it may have shown before it attached."""

    def run(self) -> Awaitable[None]:
        """Follow, until this is cancelled or another attempt would bring nothing."""


class FollowTask:
    """On the loop only. It begins when it is made.

    :param node: the id of who is followed
    :param epoch: in which that node leads; None: nobody has agreed on it
    """

    def __init__(self, node: str, epoch: int | None, follows: Follows) -> None:
        self.node = node
        self.epoch = epoch
        self._follows = follows
        self._task = asyncio.ensure_future(follows.run())

    @property
    def standing(self) -> SyncStatus:
        """How this node stands to who is followed."""
        return self._follows.standing

    @property
    def is_attached(self) -> bool:
        """Whether it is, at the moment: it knows what was released then."""
        receiving = self._follows.receiving
        return receiving is not None and receiving.epoch > 0

    @property
    def was_attached(self) -> bool:
        """True if this node is attached, or was by this task."""
        return self._follows.was_attached

    @property
    def is_told(self) -> bool:
        """True once this node shows all that it may have shown before it attached."""
        return self._follows.is_told

    @property
    def why(self) -> str | None:
        """Why it is not attached, as was last found out; None: it is, or nothing is known yet."""
        return None if self.is_attached else self._follows.reason or None

    @property
    def heard_us(self) -> int:
        """When who is followed was heard last, on the monotonic clock; never: when this began."""
        return self._follows.heard_us

    def silent_us(self, now_us: int) -> int:
        """How long nothing was heard from who is followed."""
        return now_us - self.heard_us

    def ask_present(self) -> asyncio.Future[int]:
        """What who is followed has released, once it is sure that it leads.

        :raises Busy: it can't be asked; also what the future is refused with
        """
        receiving = self._follows.receiving
        if receiving is None:
            raise detached()
        return receiving.ask_present()

    def check(self) -> None:
        """Raises the bug that it has ended of, if it has."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def end(self) -> None:
        """Take nothing from it any more: nothing of its is on its way once this has returned."""
        await end(self._task)
