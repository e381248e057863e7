"""Released commits as feeds follow them: read from the log, and decoded once for all tables.

Feeds and pipelines that are at the same commit share what was decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from actors.execution.fiber import Fiber
from actors.feeds.before_images import BeforeImages
from actors.feeds.request import FeedCursor
from actors.log_reads import LogReads
from protocol import limits
from protocol.errors import LogPruned
from storage.formats.frames import Frame
from storage.records import commit_changes
from storage.records.commit_changes import FeedCommit

READ_BYTES: Final = limits.MIB
"""Bytes read from the log at once."""
SHORT_KEPT: Final = 16
LONG_KEPT: Final = 1
"""Decoded commits kept: of up to `limits.FEED_PART_BYTES`, and longer ones."""
Decoded = dict[int, tuple[FeedCommit, frozenset[bytes]]]
"""Decoded commits by sequence, with the tables' prefixes that each was searched for."""


class FollowedCommits:
    """Commits that feeds follow. :param reads: of the log"""

    def __init__(self, reads: LogReads) -> None:
        self.reads = reads
        self.place = FeedCursor(0, 0)
        """The last commit that the hub has processed whole."""
        self.prefixes: frozenset[bytes] = frozenset()
        """Prefixes of the tables that are followed."""
        self.images = BeforeImages()
        self.told = 0
        """Commits delivered, counted once for each feed."""
        self._short: Decoded = {}
        """Commits decoded last: feeds that each read the log share them."""
        self._long: Decoded = {}
        """The same for long commits, which feeds go through at their readers' pace."""

    @property
    def position(self) -> int:
        """Sequence of the last commit that the hub has processed whole."""
        return self.place.sequence

    def forget(self) -> None:
        """Forget what was decoded: no feed is left."""
        self._short.clear()
        self._long.clear()
        self.images = BeforeImages()

    def after(self, position: int, fiber: Fiber) -> Iterator[FeedCommit]:
        """Yield the commits after a position, at most up to `place`.

        :raises LogPruned: the log begins later by now
        """
        upto = self.place.sequence
        if position >= upto:
            return
        frames = deque(fiber.wait(self.reads.frames(position, upto, READ_BYTES)))
        while frames:
            fiber.tick()
            yield self.decode(frames.popleft(), fiber)  # no reference is kept here: it may be large

    def commit(self, sequence: int, fiber: Fiber) -> FeedCommit:
        """Return a commit delivered in part. :raises LogPruned: the log no longer has it"""
        known = self._known(self._long, sequence)
        return known or self.decode(fiber.wait(self.reads.frame(sequence)), fiber)

    def fetcher(self, fiber: Fiber) -> Callable[[int], Frame | None]:
        """Return a function that reads one commit of the log, for a view."""

        def fetch(sequence: int) -> Frame | None:
            try:
                return fiber.wait(self.reads.frame(sequence))
            except LogPruned:
                return None

        return fetch

    def decode(self, frame: Frame, fiber: Fiber) -> FeedCommit:
        """Return a commit, decoded for all tables that are followed."""
        long = len(frame.body) > limits.FEED_PART_BYTES
        decoded, most = (self._long, LONG_KEPT) if long else (self._short, SHORT_KEPT)
        known = self._known(decoded, frame.sequence)
        if known is not None:
            return known
        wanted = self.prefixes
        commit = commit_changes.read(frame, wanted, fiber.tick)
        decoded[frame.sequence] = commit, wanted
        while len(decoded) > most:
            del decoded[next(iter(decoded))]
        return commit

    def _known(self, decoded: Decoded, sequence: int) -> FeedCommit | None:
        """Return a commit decoded already, if it was decoded for all tables followed now."""
        found = decoded.get(sequence)
        return found[0] if found is not None and self.prefixes <= found[1] else None
