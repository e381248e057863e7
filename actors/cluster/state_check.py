"""State comparison: leader and followers hash their states at the same frame, every so often.

1. The leader pins a snapshot at its commit index and announces the frame (a `Compare` without
   digest). Every commit index it sent before was the same or lower, so no follower shows more.
2. A follower that reaches that frame pins a snapshot there, before it shows more.
3. Both hash their snapshots in steps with long pauses. The leader sends its digest (a `Compare`
   with digest). A follower with another digest is stranded.

The digest covers only state that comes from the log (`storage/engine/state_hash.py`); indexes are
local to each node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import structlog

from actors.cluster.log_matching import SyncStatus
from actors.commits.committer import Committer
from actors.runtime import Runtime
from protocol import limits
from protocol.environment import Clock
from protocol.links import Compare
from storage.engine.engine import EngineFailed
from storage.engine.state_hash import hash_in_slices
from storage.txn.transaction import Transaction

log = structlog.get_logger("cluster")

ANNOUNCED = b""
"""Digest of a `Compare` that only announces the frame."""


def pin_released(committer: Committer) -> Transaction:
    """Pin a snapshot at the commit index. The caller has to `release` it."""
    moment = committer.ledger.moment()
    kept = moment.begin_transaction()
    moment.end()  # the snapshot stays pinned until its reader releases it
    return kept


async def hashed(kept: Transaction, clock: Clock) -> bytes:
    """Return the digest of a pinned snapshot. Takes a small share of the loop.

    :raises EngineFailed: the state can't be read
    """
    slices = hash_in_slices(kept)
    while True:
        began_us = clock.monotonic_us()
        try:
            next(slices)
        except StopIteration as done:
            return bytes.fromhex(done.value)
        spent_us = clock.monotonic_us() - began_us
        await asyncio.sleep(limits.COMPARE_REST * spent_us / 1_000_000)


class ComparedFollower(Protocol):
    """Replica sender of a follower: `replica_senders.py`."""

    @property
    def sync_status(self) -> SyncStatus:
        """Sync status of the follower."""

    def compare(self, sequence: int, digest: bytes) -> None:
        """Send the digest of the state at a frame."""


class StateComparison:
    """The leader's part.

    :param shippings: returns the current replica senders
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        replica_senders: Callable[[], Iterable[ComparedFollower]],
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._replica_senders = replica_senders
        self.compared = 0
        """Number of completed comparisons."""

    async def run(self) -> None:
        """Compare every `limits.COMPARE_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(limits.COMPARE_SECONDS)
            try:
                await self.compare()
            except EngineFailed as error:
                self._runtime.report_error("comparing states", error)

    async def compare(self) -> None:
        """Compare with all followers in sync, unless the state is above `limits.COMPARE_BYTES`.

        :raises EngineFailed: the state of this node can't be read
        """
        followers = [
            each for each in self._replica_senders() if each.sync_status is SyncStatus.IN_SYNC
        ]
        if (
            not followers
            or self._committer.ledger.state.engine.stored_bytes() > limits.COMPARE_BYTES
        ):
            return
        # Read and pinned in one loop iteration: the snapshot is of exactly this commit index.
        sequence = self._committer.commit_index
        with pin_released(self._committer) as kept:
            # A link keeps its order: no follower has a later commit index before the announcement.
            for each in followers:
                each.compare(sequence, ANNOUNCED)
            digest = await hashed(kept, self._runtime.clock)
        for each in followers:
            each.compare(sequence, digest)
        self.compared += 1


class FollowerComparison:
    """The follower's part, for one link.

    :param kept: called when frames that `bound` held back may be applied
    :param differs: called once with the reason, when the states differ
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
        """The announced frame."""
        self._kept = False
        """True if a snapshot was pinned at that frame."""
        self._theirs: bytes | None = None
        self._ours: bytes | None = None
        self._hashing: asyncio.Task[None] | None = None

    def on_compare(self, said: Compare) -> None:
        """Handle a `Compare` of the leader: an announcement or a digest."""
        if said.digest == ANNOUNCED:
            self.close()
            # A follower that shows more has no snapshot of that frame: it skips this comparison.
            if said.seq >= self._committer.commit_index:
                self._at = said.seq
                ticket = self._committer.ticket(said.seq)
                self._committer.when_released(ticket, partial(self._released, said.seq))
        elif said.seq == self._at:
            self._theirs = said.digest
            self._judge()

    def bound(self, upto: int) -> int:
        """Limit a commit index to the announced frame, until its snapshot is pinned."""
        return upto if self._at is None or self._kept else min(upto, self._at)

    def _released(self, sequence: int, lost: BaseException | None) -> None:
        """The announced frame is shown here, or its release failed."""
        if self._at != sequence or self._kept:
            return
        # A state after that frame has another digest without any fault.
        if lost is None and self._committer.commit_index == sequence:
            self._kept = True
            kept = pin_released(self._committer)
            self._hashing = self._runtime.loop.create_task(self._hash(kept))
            # Not in the task: one that `close` cancels before its first step runs nothing.
            self._hashing.add_done_callback(lambda _done: kept.release())
        else:
            self._at = None
        # This runs in the middle of a release: the next frames get an iteration of their own.
        self._runtime.loop.call_soon(self._tell_kept)

    def close(self) -> None:
        """Abandon the comparison under way."""
        if self._hashing is not None:
            self._hashing.cancel()
        self._at = self._theirs = self._ours = self._hashing = None
        self._kept = False

    async def _hash(self, kept: Transaction) -> None:
        try:
            self._ours = await hashed(kept, self._runtime.clock)
        except EngineFailed as error:
            self._runtime.report_error("comparing states", error)
        else:
            self._judge()

    def _judge(self) -> None:
        ours, theirs, at = self._ours, self._theirs, self._at
        if ours is None or theirs is None:
            return
        # Judged once: a repeated digest of this frame is ignored.
        self._at = None
        if ours == theirs:
            log.info("the state is the leader's", sequence=at, digest=ours.hex())
        else:
            self._differs(
                f"the state at frame {at} has digest {ours.hex()}, and the leader's {theirs.hex()}"
            )
