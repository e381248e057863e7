"""Tail: the newest frames in memory, for feeds and replicas.

A feed takes released frames, a replica synced ones: each is a `TailFollower` with its own position
and takes frames when it is ready. Frames are held once for all followers. A slow follower holds
nothing up: it reads frames that the tail has dropped from the log, then follows on.

Invariants:

- The frames are consecutive, and end with the newest commit.
- A frame is kept until it is released; of released ones the newest `limits.TAIL_BYTES`.
- A follower gets each frame behind its position once, in order, and none before it is released, or
  synced, as the follower asked.
- No released frame is rolled back. A full disk undoes only unsynced frames, a new leader unreleased
  ones; a follower that was given such a frame is ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from protocol import limits
from storage.formats.frames import Frame

FRAME_BYTES: Final = 256
"""Memory of a frame beside its body, about (bytes)."""


class FellBehind(Exception):
    """The tail does not reach back so far: the frames before `begins` have to come from the log."""

    def __init__(self, begins: int) -> None:
        super().__init__(f"the tail begins at {begins}")
        self.begins = begins


class TailFollower:
    """Position in the tail; made by `Tail.follow`.

    Call `take` until it gives nothing, then wait for `wake`.
    """

    __slots__ = ("_released", "_tail", "_waiting", "_wake", "position", "unreleased")

    def __init__(
        self, tail: Tail, position: int, wake: Callable[[], None], unreleased: bool
    ) -> None:
        self._tail = tail
        self._wake = wake
        self._waiting = False
        self.position = position
        """The newest frame it was given."""
        self.unreleased = unreleased
        """True if it gets synced frames before their release; it is then also woken when only the
        commit index has advanced."""
        self._released = tail.commit_index
        """Commit index when it looked last."""

    def take(self, bytes_max: int) -> list[Frame]:
        """The next frames, at least one if there is any; none: `wake` is called when there is.

        :raises FellBehind: the tail has let go of the next one, and of this follower
        """
        try:
            found = self._tail.after(self.position, self.upto, bytes_max)
        except FellBehind:
            self.leave()
            raise
        self._released = self._tail.commit_index
        if found:
            self.position = found[-1].sequence
        else:
            # Only after an empty look, and on the loop: no wake-up is lost in between.
            self._waiting = True
        return found

    @property
    def upto(self) -> int:
        """The newest frame that it may have."""
        return self._tail.synced_seq if self.unreleased else self._tail.commit_index

    def wake_if_more(self) -> None:
        """Called by the tail: there may be more."""
        if self._waiting and (self.upto > self.position or self._hears_of_release):
            # Reset first: `wake` may take at once, and wait again.
            self._waiting = False
            self._wake()

    @property
    def _hears_of_release(self) -> bool:
        return self.unreleased and self._tail.commit_index > self._released

    def leave(self) -> None:
        """Follow no more; `wake` is not called again. Leaving twice is fine."""
        self._waiting = False
        self._tail.left(self)


class Tail:
    """Newest frames and their followers.

    :param at: the newest commit; all up to it is released
    :param report_error: receives the exceptions of a follower's `wake`
    """

    def __init__(self, at: int, report_error: Callable[[BaseException], None]) -> None:
        self.synced_seq = at
        self.commit_index = at
        self.bytes = 0
        """Bytes of released frames that are kept."""
        self._report_error = report_error
        self.first = at + 1
        """The sequence of the first frame kept, or of the next one."""
        self._frames: deque[Frame] = deque()
        self._followers: list[TailFollower] = []

    def __len__(self) -> int:
        return len(self._frames)

    # --- for whoever follows --------------------------------------------------------------------

    def follow(
        self, after: int, wake: Callable[[], None], *, unreleased: bool = False
    ) -> TailFollower:
        """Return a follower that begins behind a frame.

        :param after: the newest frame already known
        :param wake: called on the loop when there is more, after `take` has given nothing; short
        :param unreleased: give synced frames before their release: for replicas
        :raises FellBehind: the tail begins later
        """
        if after + 1 < self.first:
            raise FellBehind(self.first)
        follower = TailFollower(self, after, wake, unreleased)
        assert after <= follower.upto, "nobody knows a frame that was not shown"
        self._followers.append(follower)
        return follower

    def after(self, position: int, upto: int, bytes_max: int) -> list[Frame]:
        """The frames that follow a position, up to another one."""
        if position + 1 < self.first:
            raise FellBehind(self.first)
        found, held = list[Frame](), 0
        # By index, since a follower mostly stands near the end: a deque is quick at both of them.
        for at in range(position + 1 - self.first, upto + 1 - self.first):
            frame = self._frames[at]
            held += len(frame.body)
            # The first frame is given whatever its size, or the follower would never get on.
            if found and held > bytes_max:
                break
            found.append(frame)
        return found

    def left(self, follower: TailFollower) -> None:
        """Remove a follower."""
        if follower in self._followers:
            self._followers.remove(follower)

    # --- for the committer ----------------------------------------------------------------------

    def add(self, frame: Frame) -> None:
        """Take the newest commit."""
        self._frames.append(frame)

    def advance(self, synced_seq: int, commit_index: int) -> None:
        """More is durable, or released, or both."""
        self.synced_seq = synced_seq
        # Only released frames count as bytes, so only they are dropped below.
        for at in range(self.commit_index + 1 - self.first, commit_index + 1 - self.first):
            self.bytes += len(self._frames[at].body) + FRAME_BYTES
        self.commit_index = commit_index
        while self.bytes > limits.TAIL_BYTES:
            self.bytes -= len(self._frames.popleft().body) + FRAME_BYTES
            self.first += 1
        # A copy: a woken follower may leave.
        for follower in tuple(self._followers):
            self._notify_follower(follower)

    def roll_back(self, upto: int) -> None:
        """Drop the frames behind a sequence: they were rolled back. :param upto: last one kept"""
        self.synced_seq = upto
        # They were given a frame that is gone, and its sequence comes again.
        for follower in [one for one in self._followers if one.position > upto]:
            follower.leave()
        while len(self._frames) > self.synced_seq + 1 - self.first:
            self._frames.pop()

    def _notify_follower(self, follower: TailFollower) -> None:
        try:
            follower.wake_if_more()
        except Exception as error:  # a bug of one follower's is not the others'
            self._report_error(error)
