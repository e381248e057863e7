"""Whether a follower's state is its leader's: from time to time both are hashed at one frame.

1. The leader keeps its state as it is at what it has just released, and says at which frame that is
   (`Compare` without a digest). Whatever it had said before was released then or earlier, so no
   follower shows anything later.
2. A follower that comes to that frame keeps its state there too, before it shows more.
3. Both go through what they kept, a step at a time with long pauses, and the leader says what it
   has found (`Compare` with a digest). A follower that finds something else is stranded.

What both hash is what the log tells of (`storage/state_hash.py`): indexes are each node's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

import structlog

from actors.cluster.shippings import Ships
from actors.cluster.sync_status import SyncStatus
from actors.commits import Committer
from actors.runtime import Runtime
from protocol import limits
from protocol.doors import Clock
from protocol.links import Compare
from storage.engine import EngineFailed
from storage.state_hash import hash_in_slices
from storage.transactions import Transaction

log = structlog.get_logger("cluster")

ANNOUNCED = b""
"""The digest of a `Compare` that only says where."""


def keep(committer: Committer) -> Transaction:
    """What is released now, to be read for a while; whoever keeps it has to `release` it."""
    moment = committer.ledger.moment()
    kept = moment.begin()
    moment.end()  # it stays for who reads it
    return kept


async def hashed(kept: Transaction, clock: Clock) -> bytes:
    """The digest of what was kept, and let it go. Takes a small part of the loop.

    :raises EngineFailed: it can't be read
    """
    try:
        slices = hash_in_slices(kept)
        while True:
            began_us = clock.monotonic_us()
            try:
                next(slices)
            except StopIteration as done:
                return bytes.fromhex(done.value)
            spent_us = clock.monotonic_us() - began_us
            await asyncio.sleep(limits.COMPARE_REST * spent_us / 1_000_000)
    finally:
        kept.release()


class Comparing:
    """A leader's part.

    :param shippings: the links of the followers, as they are when it is called
    """

    def __init__(
        self, runtime: Runtime, committer: Committer, shippings: Callable[[], Iterable[Ships]]
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._shippings = shippings
        self.compared = 0
        """How often a digest was said."""

    async def run(self) -> None:
        """Compare every so often, until this is cancelled."""
        while True:
            await asyncio.sleep(limits.COMPARE_SECONDS)
            try:
                await self.compare()
            except EngineFailed as error:
                self._runtime.noticed("comparing states", error)

    async def compare(self) -> None:
        """Have all who are in sync compare their states with this one, unless it is large.

        :raises EngineFailed: this one can't be read
        """
        followers = [each for each in self._shippings() if each.standing is SyncStatus.IN_SYNC]
        if not followers or self._committer.ledger.engine.stored_bytes() > limits.COMPARE_BYTES:
            return
        kept, sequence = keep(self._committer), self._committer.released_upto
        for each in followers:
            each.compare(sequence, ANNOUNCED)
        digest = await hashed(kept, self._runtime.clock)
        for each in followers:
            each.compare(sequence, digest)
        self.compared += 1


class Compared:
    """A follower's part, as long as one link lasts.

    :param kept: called when what `bound` had held back may be shown
    :param differs: told why, once, when the states differ
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        kept: Callable[[], None],
        differs: Callable[[str], None],
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._tell_kept = kept
        self._differs = differs
        self._at: int | None = None
        """The frame that was announced."""
        self._kept = False
        """Whether the state at that frame was kept."""
        self._theirs: bytes | None = None
        self._ours: bytes | None = None
        self._hashing: asyncio.Task[None] | None = None

    def hear(self, said: Compare) -> None:
        """The leader has said where it compares, or what it has found."""
        if said.digest == ANNOUNCED:
            self.close()
            if said.seq >= self._committer.released_upto:
                self._at = said.seq
                ticket = self._committer.ticket(said.seq)
                self._committer.when_released(ticket, partial(self._released, said.seq))
        elif said.seq == self._at:
            self._theirs = said.digest
            self._judge()

    def bound(self, upto: int) -> int:
        """How far may be shown now, of what may be: not past a frame whose state is to be kept."""
        return upto if self._at is None or self._kept else min(upto, self._at)

    def _released(self, sequence: int, lost: BaseException | None) -> None:
        """What was announced is shown, or will not be."""
        if self._at != sequence or self._kept:
            return
        if lost is None and self._committer.released_upto == sequence:
            self._kept = True
            kept = keep(self._committer)
            self._hashing = self._runtime.loop.create_task(self._hash(kept))
        else:
            self._at = None
        self._runtime.loop.call_soon(self._tell_kept)

    def close(self) -> None:
        """Give up what is under way."""
        if self._hashing is not None:
            self._hashing.cancel()
        self._at = self._theirs = self._ours = self._hashing = None
        self._kept = False

    async def _hash(self, kept: Transaction) -> None:
        try:
            self._ours = await hashed(kept, self._runtime.clock)
        except EngineFailed as error:
            self._runtime.noticed("comparing states", error)
        else:
            self._judge()

    def _judge(self) -> None:
        ours, theirs, at = self._ours, self._theirs, self._at
        if ours is None or theirs is None:
            return
        self._at = None
        if ours == theirs:
            log.info("the state is the leader's", sequence=at, digest=ours.hex())
        else:
            self._differs(
                f"the state at frame {at} has digest {ours.hex()}, and the leader's {theirs.hex()}"
            )
