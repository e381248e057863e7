"""Replication into the commit pipeline: commits are a leader's, and come as frames of its log.

    received → in this log, synced → released by the leader → pending here → in the engine

Frames are written unchanged and acknowledged once synced. They enter the ledger only when the
leader has released them, so nothing shown here is ever rolled back; from there on they are handled
as this node's own commits. A node that comes to lead makes the rest pending too: durable, and not
released before its own first frame is.

Received frames stay in memory until released, up to `limits.RECEIVED_BYTES`; beyond that, and after
a start, they are read from the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from actors.runtime import Runtime
from protocol import limits
from protocol.errors import Diverged, Refusal, Stranded, UnknownOutcome
from storage.formats.frames import BODY_BYTES_MAX, LOG_FLAGS, Frame
from storage.formats.positions import EpochEnd
from storage.log.reader import LogReader
from storage.txn.ledger import Ledger

Stored = Callable[[int, int, int], Awaitable[list[tuple[Frame, bytes]]]]
"""Reads frames of the log with their digests, as `LogReads.stored` does."""
READ_BYTES: Final = limits.MIB
"""Read from the log at a time."""


def rolled_back_outcome(sequence: int) -> UnknownOutcome:
    """Return the refusal of waiters when another node may lead."""
    return UnknownOutcome(
        f"the node no longer leads, and commit {sequence} was not released: its outcome is unknown",
        sequence=sequence,
    )


class FollowedLog:
    """Received frames and the part of them that is shown; on the loop only.

    :param log: reads frames in memory
    :param stored: reads frames of files
    :param ledger: takes released frames
    :param go_on: schedules `step` in a later loop iteration
    """

    def __init__(
        self,
        runtime: Runtime,
        log: LogReader,
        stored: Stored,
        ledger: Ledger,
        go_on: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._stored = stored
        self._ledger = ledger
        self._go_on = go_on
        self.log_upto = log.last
        """The last frame that is synced in this log."""
        self.told = ledger.state.commit_index
        """Commit index of the leader, as last heard."""
        self._said = log.state.released
        """The highest that a leader has said was released."""
        self._handed = log.last
        """The last frame that was given to the log, …"""
        self._epoch, self._time = log.state.last_epoch, log.state.last_time
        """… its epoch, and its log time."""
        self._frames: deque[Frame] = deque()
        """The newest, up to `_handed`, without a gap …"""
        self._digests: deque[bytes] = deque()
        """… and the digests of the first of them, as far as they are synced."""
        self._bytes = 0
        self._fetched: deque[tuple[Frame, bytes]] = deque()
        """Frames read from the log, older than `_frames`."""
        self._fetching: asyncio.Future[None] | None = None
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        """Waiters for a synced frame, in order."""
        self._frame: tuple[Frame, bytes] | None = None
        self._steps: Iterator[None] = iter(())
        """The frame that is on its way into the ledger, and the rest of it."""
        self._all: asyncio.Future[None] | None = None
        """Waiter until the ledger has all of the log; no release is waited for then."""
        self._turn = False
        self._failed: BaseException | None = None

    # --- received -------------------------------------------------------------------------------

    def take(
        self, frames: Sequence[Frame], released: int, hand_over: Callable[[], None]
    ) -> asyncio.Future[int]:
        """Accept the next frames.

        :param released: the leader's commit index; shows nothing by itself
        :param hand_over: gives the frames to the log thread
        :raises Diverged: they do not continue the log
        :raises Busy: the log takes no more at present; no frame was accepted
        """
        self._check(frames)
        self._said = max(self._said, released)
        # `Busy` of the log is raised here, before any of the frames counts as accepted.
        hand_over()
        waiter: asyncio.Future[int] = self._runtime.loop.create_future()
        if frames:
            last = frames[-1]
            self._handed, self._epoch, self._time = last.sequence, last.epoch, last.time
            self._frames.extend(frames)
            self._bytes += sum(len(frame.body) for frame in frames)
            if self._bytes > limits.RECEIVED_BYTES:
                self._forget_frames()
        # Also true of a message without frames, once all before it is synced.
        if self._handed <= self.log_upto:
            waiter.set_result(self.log_upto)
        else:
            self._waiting.append((self._handed, waiter))
        return waiter

    def _check(self, frames: Sequence[Frame]) -> None:
        # Log matching (Raft §5.3): sequences have no gap, epoch and log time never fall. Each log
        # sets its `LOG_FLAGS` for itself.
        sequence, epoch, time = self._handed, self._epoch, self._time
        for frame in frames:
            sequence += 1
            if (
                frame.sequence != sequence
                or frame.epoch < epoch
                or frame.time < time
                or frame.flags & LOG_FLAGS
                or len(frame.body) > BODY_BYTES_MAX
            ):
                raise Diverged(
                    f"frame {frame.sequence} of epoch {frame.epoch} does not follow"
                    f" {sequence - 1} of epoch {epoch}",
                    seq=sequence - 1,
                )
            epoch, time = frame.epoch, frame.time

    def _forget_frames(self) -> None:
        self._frames.clear()
        self._digests.clear()
        self._bytes = 0

    def synced(self, upto: int, digests: Sequence[bytes]) -> None:
        """The log holds all up to a frame.

        :param digests: of the last of them, those at least that are news
        """
        self.log_upto = upto
        # Newest sequence whose digest is known.
        known = self._handed - len(self._frames) + len(self._digests)
        if upto > known:
            # Counted from the end: a report may repeat digests that are known.
            self._digests.extend(digests[known - upto :])
        while self._waiting and self._waiting[0][0] <= upto:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(upto)
        self.wake()

    def on_rolled_back(self, refusal: Refusal) -> None:
        """Drop frames that are not synced: the log had no room."""
        self._end_waiting(refusal)
        self.ends(self._log.state.present)

    def ends(self, epoch_end: EpochEnd) -> None:
        """The log ends here, and nothing is on its way to it."""
        last = epoch_end.last
        first = self._handed - len(self._frames) + 1
        while self._frames and self._frames[-1].sequence > last:
            self._bytes -= len(self._frames.pop().body)
        while len(self._digests) > len(self._frames):
            self._digests.pop()
        # The second case: a report of an older generation was ignored, so digests are missing.
        # Frames without them are read from the log again.
        if first > last + 1 or len(self._digests) < len(self._frames):
            self._forget_frames()
        self._forget_fetched()
        self.log_upto = self._handed = last
        # What a leader has said of frames behind that, it said of its own, which are not here: what
        # comes there next may be another's.
        self.told, self._said = min(self.told, last), min(self._said, last)
        self._epoch, self._time = epoch_end.epoch, self._log.state.last_time
        while self._waiting:
            upto, waiter = self._waiting.popleft()
            if waiter.done():
                continue
            # A waiter behind the end has lost its frame: it was cut off, or not written.
            if upto <= last:
                waiter.set_result(last)
            else:
                _fail(waiter, rolled_back_outcome(upto))
        self.wake()

    def start_following(self) -> None:
        """Start to follow: the commit index is what was shown; the end of the log is unknown until
        `ends`."""
        self.leads()
        self._end_waiting(rolled_back_outcome(self._handed))
        # Frames that were not shown count for nothing until `ends` has the answer of the log.
        self.told = self._said = self.log_upto = self._ledger.state.commit_index

    def lose(self, error: BaseException) -> None:
        """The node has failed."""
        self._end_waiting(error)
        self._failed = error
        if self._all is not None:
            _fail(self._all, error)

    def close(self) -> None:
        """Stop fetching frames from the log."""
        if self._fetching is not None:
            self._fetching.cancel()

    def _end_waiting(self, error: BaseException) -> None:
        while self._waiting:
            _, waiter = self._waiting.popleft()
            _fail(waiter, error)

    def require_above(self, after: int) -> None:
        """Check that the log may be truncated behind a frame.

        :raises Stranded: a frame behind it was shown here, or may be at any time
        """
        floor = max(self._ledger.state.commit_index, self.released)
        if after < floor:
            raise Stranded(
                f"the leader's log differs after {after}, but this node has shown commits up to"
                f" {floor}",
                released=floor,
            )

    # --- shown ----------------------------------------------------------------------------------

    @property
    def released(self) -> int:
        """Commit index as far as this log reaches, shown or not."""
        return min(max(self.told, self._said), self.log_upto)

    def show(self, upto: int) -> None:
        """Note the leader's commit index; frames of this log up to it are shown."""
        if upto > self.told:
            self.told = upto
            self.wake()

    def load_all(self) -> asyncio.Future[None]:
        """Put all that the log holds in flight, released or not; done when it is there."""
        # A state comparison may hold `show` back; a takeover waits for none.
        self.told = max(self.told, self._said)
        self._all = self._runtime.loop.create_future()
        # The ledger has all of it: no step would come to resolve this.
        if self._ledger.state.committed >= self.log_upto:
            self._all.set_result(None)
        self.wake()
        return self._all

    def leads(self) -> None:
        """Nothing is followed any more."""
        if self._all is not None:
            _fail(self._all, rolled_back_outcome(self._handed))
        self._all = None
        self._frame, self._steps, self._turn = None, iter(()), False
        self._forget_frames()
        self._forget_fetched()

    def _forget_fetched(self) -> None:
        """Forget frames that were read, or are being read: the log may not hold them any more."""
        self._fetched.clear()
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None

    def wake(self) -> None:
        """Go on if there is anything to show, and room for it."""
        # A scheduled step, or a fetch that ends, looks again by itself.
        if not self._turn and self._fetching is None and self._may_go_on:
            self._turn = True
            self._go_on()

    @property
    def _may_go_on(self) -> bool:
        ledger = self._ledger
        # A takeover ignores the bound: unreleased frames are not applied, so no room would come.
        has_room = (
            self._all is not None or ledger.state.flight.memory_bytes <= limits.IN_FLIGHT_BYTES
        )
        return has_room and ledger.state.committed < self._upto

    @property
    def _upto(self) -> int:
        return min(self.told, self.log_upto) if self._all is None else self.log_upto

    def step(self, until_us: int) -> list[tuple[Frame, bytes]]:
        """Make released frames pending, one slice of them; `wake` schedules the rest. Return the
        frames that are complete, with their digests.

        :param until_us: end of the slice, on the monotonic clock
        """
        self._turn = False
        if self._failed is not None:
            raise self._failed
        shown: list[tuple[Frame, bytes]] = []
        ledger, monotonic_us = self._ledger, self._runtime.clock.monotonic_us
        while self._frame is not None or self._next():
            assert self._frame is not None
            # The iterator keeps its place: the next slice goes on inside the same frame.
            for _ in self._steps:
                if monotonic_us() >= until_us:
                    break
            # A frame is pending with its last step, and not in part.
            if ledger.state.committed < self._frame[0].sequence:
                break
            shown.append(self._frame)
            self._frame = None
            if monotonic_us() >= until_us:
                break
        return shown

    def shown(self) -> None:
        """Publish the frames that `step` returned."""
        has_all = self._ledger.state.committed >= self.log_upto
        if has_all and self._all is not None and not self._all.done():
            self._all.set_result(None)
        self.wake()

    def _next(self) -> bool:
        """Begin the next frame, if it is at hand."""
        if not self._may_go_on:
            return False
        ledger = self._ledger
        sequence = ledger.state.committed + 1
        found = self._at_hand(sequence)
        if found is None:
            self._fetch(sequence)
            return False
        self._frame, self._steps = found, ledger.follow(found[0])
        return True

    def _at_hand(self, sequence: int) -> tuple[Frame, bytes] | None:
        # Older ones entered from the log while these were received.
        while self._frames and self._digests and self._frames[0].sequence < sequence:
            self._take_first()
        # With a digest only: the engine notes it beside the sequence that it has reached.
        if self._frames and self._digests and self._frames[0].sequence == sequence:
            return self._take_first()
        while self._fetched:
            found = self._fetched.popleft()
            if found[0].sequence == sequence:
                return found
        return None

    def _take_first(self) -> tuple[Frame, bytes]:
        frame = self._frames.popleft()
        self._bytes -= len(frame.body)
        return frame, self._digests.popleft()

    def _fetch(self, sequence: int) -> None:
        """Read on in the log."""
        upto = self._upto

        async def fetch() -> None:
            try:
                self._fetched.extend(await self._stored(sequence - 1, upto, READ_BYTES))
            except asyncio.CancelledError:
                # `_forget_fetched` has reset `_fetching`, which may be a newer read by now.
                raise
            except BaseException as error:  # told where the next step is made: it is the node's end
                self._failed = error
            self._fetching = None
            self.wake()

        self._fetching = asyncio.ensure_future(fetch(), loop=self._runtime.loop)


def _fail(waiter: asyncio.Future[Any], error: BaseException) -> None:
    """Fail the waiter, if there is one."""
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # nobody may be left to ask, and then it is no news
