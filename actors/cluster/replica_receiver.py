"""Replica receiver, the follower's end of a link: writes the leader's frames, shows released ones.

| the leader sends | the follower |
|---|---|
| `Attached` | promises the epoch, truncates its log to the last common frame, acknowledges that |
| `Frames` | writes and syncs them, acknowledges, shows the released ones |
| `Frames` without frames and with no new commit index | acknowledges: a heartbeat |
| `Compare` | hashes its state (`state_check.py`) |
| `CopyNeeded`, `Refused` | ends; the reason is in the exception of `run` |

`LeaderConnector` goes through these states, by these steps alone (`RECEIVER_STEPS`):

| from | to | when |
|---|---|---|
| CONNECTING | ATTACHING | there is a link: promise the epoch in etcd, send the history |
| CONNECTING | BACKOFF | there is none |
| ATTACHING | STREAMING | `Attached`: the new epoch is promised, the log truncated |
| ATTACHING | BACKOFF | an older epoch, more than this log holds, a refusal, silence |
| ATTACHING | COPY_FAILED | `CopyNeeded` |
| ATTACHING | STRANDED | `Refused` with Stranded; or the truncation would reach shown frames |
| STREAMING | BACKOFF | the link ends, another epoch, silence, a failed write |
| STREAMING | COPY_FAILED | `CopyNeeded` |
| STREAMING | STRANDED | the states differ, here or by its `Refused` |
| BACKOFF | CONNECTING | the pause is over |

Each state but COPY_FAILED and STRANDED may be cancelled: CLOSED. In sync or not is no state, but a
value of `Lag`.

Invariants:

- Nothing is acknowledged before the epoch is promised on this disk. If the leader's epoch is known,
  the epoch history is not sent before that either.
- Only synced frames are acknowledged. Frames synced together are acknowledged in one message.
- Frames are taken only in the attached epoch, and only while no later one is promised. Frames sent
  before a promise are not acknowledged after it.
- Only frames that the leader has released are shown.

Statement-log and sign-in entries that can't be committed here (`actors/backlog.py`) are forwarded
to the leader over the same link. The next batch goes out once the leader has confirmed the last
one.

`LeaderConnector` gives up only when another attempt is useless: this node is stranded, or needs a
snapshot copy. Pauses grow exponentially, with jitter, so that nodes that lost a connection together
do not all come back at once.

`FollowTask` follows one leader in one epoch; `coordinator.py` decides which. A follower keeps
following a leader that has vanished until another one leads: frames received before still count,
and the leader may come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

import structlog

from actors.backlog import Backlog
from actors.cluster.log_matching import Lag, SyncStatus, accepts_epoch, frame_at
from actors.cluster.replica_senders import message_of
from actors.cluster.state_check import FollowerComparison
from actors.commits.committer import Committer
from actors.execution.blocking import FutureWait, NumberedQueue, raise_error
from actors.runtime import Runtime
from actors.runtime.tasks import end
from protocol import limits
from protocol.environment import Rng
from protocol.errors import CATALOGUE, BadRequest, Busy, DiskFull, Failed, Refusal, Stranded
from protocol.links import (
    Acknowledge,
    Attach,
    Attached,
    Compare,
    CopyNeeded,
    Entries,
    Frames,
    Link,
    LinkClosed,
    Refused,
    Told,
)
from storage.formats.frames import FRAME_HEADER_BYTES, Frame

# --- backoff --------------------------------------------------------------------------------------


FIRST_MS: Final = 100
LONGEST_MS: Final = 10_000


class Backoff:
    """Pauses between the attempts of one client."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._next_ms = FIRST_MS

    def next_seconds(self) -> float:
        """Return the pause before the next attempt (s)."""
        at_most, self._next_ms = self._next_ms, min(2 * self._next_ms, LONGEST_MS)
        least = at_most // 2
        # `below` excludes its bound, so the longest pause is possible.
        return (least + self._rng.below(at_most - least + 1)) / 1_000

    def over(self) -> None:
        """Reset after a success: the next pause is a short one."""
        self._next_ms = FIRST_MS


# --- follow task ----------------------------------------------------------------------------------


def detached() -> Busy:
    """Return the refusal of a linearizable read while this node is attached to no leader."""
    return Busy("cannot serve a linearizable read: this node is not connected to a leader")


class ReceiverLink(Protocol):
    """A link to the leader: `ReplicaReceiver`."""

    epoch: int
    """Leader epoch in which this node is attached; 0: not yet."""

    @property
    def has_caught_up(self) -> bool:
        """True if this node shows every frame that it may have shown before it attached."""

    async def request_read_index(self) -> int:
        """Ask the leader for its read index. :raises Busy: it can't be asked, or gave no answer"""


class FollowsLeader(Protocol):
    """Repeated attaching to one leader: `LeaderConnector`."""

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

    async def request_read_index(self) -> int:
        """Ask the leader for its read index: its commit index, once it has confirmed that it still
        leads.

        :raises Busy: the leader can't be asked, or the link to it has ended
        """
        receiving = self._follows.receiving
        if receiving is None:
            raise detached()
        return await receiving.request_read_index()

    def check(self) -> None:
        """Raise the bug that ended the task, if there is one."""
        # Called in each iteration of `coordinator.py`: otherwise a bug ends replication unnoticed.
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def end(self) -> None:
        """Cancel the task. Nothing from the leader is in progress once this returns."""
        # Waited for: no frame of this leader may be taken after the promise of a later epoch.
        await end(self._task)


# --- one link -------------------------------------------------------------------------------------


log = structlog.get_logger("cluster")

LOOKS: Final = 4
"""Checks for silence per silence timeout."""
UNSYNCED_BYTES: Final = 2 * limits.SHIP_WINDOW_BYTES
"""Limit of unsynced bytes (backpressure): above it, nothing is read from the link. A leader stays
below it."""


class PromisedEpochs(Protocol):
    """Promised epochs of this node, durable."""

    @property
    def promised(self) -> int:
        """Highest promised epoch, already on the disk. Older leaders are ignored."""

    async def promise(self, epoch: int) -> None:
        """Promise to ignore leaders of older epochs; durable on return. An epoch not above the
        promised one changes nothing.

        :raises OSError: the disk failed
        :raises DiskFull: no room to write it down
        """


class CopyMissing(Exception):
    """The leader's log begins after this node's last frame: the node needs a snapshot copy."""

    def __init__(self, begins: int) -> None:
        super().__init__(
            f"the leader's log begins at {begins}, and this node lacks the commits before that"
        )
        self.begins = begins


class ReplicaReceiver:
    """A follower's link, from attaching to its end. On the loop only.

    :param link: link to the leader; closed at the end
    :param epoch: leader epoch in etcd; None: etcd knows of no leader
    :param backlog: entries to forward to the leader; None: none are
    :param attached: called once the epoch is promised and the log is truncated
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        epochs: PromisedEpochs,
        link: Link,
        epoch: int | None = None,
        backlog: Backlog | None = None,
        attached: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = runtime.loop
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._epochs = epochs
        self._link = link
        self._expected = epoch
        self._attached = attached
        self.epoch = 0
        """Epoch in which it is attached; 0: not yet."""
        self._caught_up_at = 0
        """Last frame that this node may have shown before it attached."""
        self.released = 0
        """The leader's commit index, as last received."""
        self.heard_us = self._monotonic_us()
        """Monotonic time of the leader's last message (µs)."""
        self._lag = Lag(1, 0)
        self._synced = 0
        """Last frame that may be acknowledged."""
        self._unsynced_bytes = 0
        self._fewer = asyncio.Event()
        self._acknowledges = False
        """True if an acknowledgement is scheduled for the end of this loop iteration."""
        self._round = 0
        """Newest read index round to echo."""
        self._asks = 0
        """Number of read index requests so far."""
        self._asking = NumberedQueue(raise_error)
        self._backlog = backlog
        self._carries = 0
        """Last forwarded entry that the leader has not confirmed; 0: none."""
        self._failed: Exception | None = None
        """Local reason for the end of the link."""
        self._over = False
        self._compared = FollowerComparison(
            runtime, committer, self._release_frames, self._on_state_differs
        )
        self._watch: asyncio.TimerHandle | None = None

    @property
    def is_in_sync(self) -> bool:
        """True if it has everything that was released a moment ago."""
        return self.epoch > 0 and not self._lag.is_late(self._monotonic_us())

    @property
    def has_caught_up(self) -> bool:
        """True if this node shows every frame that it may have shown before it attached."""
        return self.epoch > 0 and self._committer.commit_index >= self._caught_up_at

    async def run(self) -> None:
        """Follow until the link ends, or until cancelled.

        :raises LinkClosed: it has ended
        :raises CopyMissing: this node needs a snapshot copy first
        :raises Stranded: it shows frames that the leader's history does not hold
        :raises Refusal: the leader refuses it; or its own disk is full; or the leader's frames do
            not follow its log
        :raises OSError: the promise could not be written
        """
        self._look_for_silence()
        try:
            await self._attach()
            while True:
                await self._on_message(await self._link.receive())
                await asyncio.sleep(0)  # one message per loop iteration, even if more are here
        except LinkClosed:
            if self._failed is not None:
                raise self._failed from None
            raise
        except Stranded as why:
            self._link.send(Refused(why.code, why.message))
            raise
        finally:
            self._over = True
            self._asking.fail(0, lambda _: detached())
            if self._backlog is not None and self._backlog.on_more == self._forward_entries:
                self._backlog.on_more = None
            if self._watch is not None:
                self._watch.cancel()
            self._compared.close()
            self._link.close()

    def _look_for_silence(self) -> None:
        if self._monotonic_us() - self.heard_us > limits.SHIP_SILENT_SECONDS * 1_000_000:
            self._link.close(f"the leader has sent nothing for {limits.SHIP_SILENT_SECONDS} s")
        pause = limits.SHIP_SILENT_SECONDS / LOOKS
        self._watch = self._loop.call_later(pause, self._look_for_silence)

    # --- attaching --------------------------------------------------------------------------------

    async def _attach(self) -> None:
        # Cluster rule 5: from here on no frame of an older leader is acknowledged.
        if self._expected is not None:
            await self._epochs.promise(self._expected)
        committer, promised = self._committer, self._epochs.promised
        # Frames from an earlier link may still be on their way to the disk, and are shown later:
        # wait for them, so that the history includes them. It excludes truncated frames.
        end = await committer.find_end()
        history: list[Told] = [*committer.history()]
        self._link.send(Attach(history, end, committer.commit_index, promised))
        answer = await self._link.receive()
        if not isinstance(answer, Attached):
            raise _unexpected_message(answer)
        if not accepts_epoch(self._epochs.promised, answer.epoch):
            raise LinkClosed(
                f"the leader has epoch {answer.epoch}, but epoch {self._epochs.promised} was"
                " promised"
            )
        if answer.agree > end:
            raise LinkClosed(
                f"the logs agree up to {answer.agree}, but the log of this node ends at {end}"
            )
        # The epoch may be new here: it is promised before any acknowledgement to its leader.
        await self._epochs.promise(answer.epoch)
        await committer.cut(answer.agree)
        if answer.time:
            committer.adopt_log_time(answer.epoch, answer.time)
        self._synced = answer.agree
        # Cluster rule 7: a leader knows the commit index once a frame of its own epoch is released.
        # Before that, every frame of this log may have been released, and shown here.
        at = frame_at(committer.history(), answer.released)
        knows = at is not None and at.epoch == answer.epoch
        self._caught_up_at = answer.released if knows else answer.agree
        self.epoch, self.heard_us = answer.epoch, self._monotonic_us()
        self._lag = Lag(answer.released, answer.agree)
        self._attached()
        log.info("attached", leader=self._link.peer.node, epoch=self.epoch, agree=answer.agree)
        self._acknowledge_soon()
        self._on_commit_index(answer.released)
        if answer.keeps and self._backlog is not None:
            # After the acknowledgement, which makes this node attached: earlier ones are refused.
            self._loop.call_soon(self._start_forwarding, self._backlog)

    # --- what the leader says ---------------------------------------------------------------------

    async def _on_message(self, message: object) -> None:
        self.heard_us = self._monotonic_us()
        if isinstance(message, Frames):
            self._check_epoch(message.epoch)
            if message.frames:
                self._on_frames(_frames(message), message.released)
            # A message without news is a heartbeat. Without an answer, this node counts as silent.
            elif message.released <= self.released:
                self._acknowledge_soon()
            if message.round > self._round:
                self._round = message.round
                self._acknowledge_soon()
            self._on_commit_index(message.released)
            # The commit index of this message covers the read index. A later one is valid too.
            self._asking.unblock_upto(message.present)
            if self._carries and message.kept >= self._carries and self._backlog is not None:
                kept, self._carries = self._carries, 0
                self._backlog.done(kept)
                self._forward_entries()
            # Only a leader that ignores its window gets here: its frames must not fill the memory.
            while self._unsynced_bytes > UNSYNCED_BYTES and self._failed is None:
                self._fewer.clear()
                await self._fewer.wait()
        elif isinstance(message, Compare):
            self._compared.on_compare(message)
        else:
            raise _unexpected_message(message)

    def _check_epoch(self, epoch: int) -> None:
        promised = self._epochs.promised
        if epoch != self.epoch or not accepts_epoch(promised, epoch):
            raise LinkClosed(
                f"received frames of epoch {epoch}, but the link has epoch {self.epoch}, and"
                f" {promised} was promised"
            )

    def _on_frames(self, frames: list[Frame], released: int) -> None:
        size = sum(len(frame.body) + FRAME_HEADER_BYTES for frame in frames)
        synced = self._committer.receive(frames, released)
        self._unsynced_bytes += size
        synced.add_done_callback(partial(self._on_synced, size))

    def _on_synced(self, size: int, synced: asyncio.Future[int]) -> None:
        self._unsynced_bytes -= size
        self._fewer.set()
        error = None if synced.cancelled() else synced.exception()
        # The next link finds these frames by `find_end`.
        if self._over:
            return
        if error is not None or synced.cancelled():
            self._give_up(error if isinstance(error, Exception) else LinkClosed("not written"))
            return
        self._synced = max(self._synced, synced.result())
        self._lag.synced(self._synced)
        self._acknowledge_soon()

    def _give_up(self, why: Exception) -> None:
        self._failed = self._failed or why
        self._link.close(str(why))

    # --- what it says and shows -------------------------------------------------------------------

    def _acknowledge_soon(self) -> None:
        """Acknowledge the synced frames, once in this loop iteration."""
        if not self._acknowledges:
            self._acknowledges = True
            self._loop.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        self._acknowledges = False
        # A promise to a later leader ends the acknowledgements to this one.
        if not self._over and self._epochs.promised == self.epoch:
            applied = self._committer.commit_index
            said = Acknowledge(self.epoch, self._synced, applied, self._round, self._asks)
            self._link.send(said)

    def _start_forwarding(self, backlog: Backlog) -> None:
        if not self._over:
            backlog.on_more = self._forward_entries
            self._forward_entries()

    def _forward_entries(self) -> None:
        """Forward the next batch of entries, if the last one is confirmed."""
        if self._over or self._carries or self._backlog is None:
            return
        batch = self._backlog.oldest()
        if batch is not None:
            self._carries = batch.last
            entries = [message_of(one) for one in batch.noted]
            self._link.send(Entries(self.epoch, batch.life, batch.first, entries))

    async def request_read_index(self) -> int:
        """Ask the leader for its read index: its commit index, once the ISR has confirmed that it
        still leads.

        :raises Busy: this node is not attached, or the link ends first
        """
        if self._over or self.epoch == 0:
            raise detached()
        self._asks += 1
        wait = FutureWait(self._loop.create_future())
        self._asking.block(wait, self._asks)
        self._acknowledge_soon()
        try:
            await wait.future
        finally:
            wait.cancel()  # its caller may have given up
        return self.released

    def _on_commit_index(self, released: int) -> None:
        self.released = max(self.released, released)
        self._lag.ends(self.released, self._synced, self._monotonic_us())
        self._release_frames()

    def _release_frames(self) -> None:
        """Show released frames, up to the frame of a state comparison. The committer limits it to
        synced ones."""
        if not self._over:
            self._committer.show(self._compared.bound(self.released))

    def _on_state_differs(self, why: str) -> None:
        log.error("this node's state is not its leader's", leader=self._link.peer.node, reason=why)
        stranded = Stranded(why)
        self._link.send(Refused(stranded.code, why))
        self._give_up(stranded)


def _frames(message: Frames) -> list[Frame]:
    """Return the frames of a message. The committer checks that they follow the log.

    :raises LinkClosed: their epoch is above that of their leader
    """
    frames = [Frame(*told) for told in message.frames]
    if any(frame.epoch > message.epoch for frame in frames):
        raise LinkClosed(
            f"received frames with a later epoch than that of their leader, {message.epoch}"
        )
    return frames


def _unexpected_message(message: object) -> Exception:
    """Return the exception for a message that is neither frames nor a comparison."""
    if isinstance(message, CopyNeeded):
        return CopyMissing(message.begins)
    if not isinstance(message, Refused):
        return BadRequest(f"{type(message).__name__} is not a message of a leader")
    return CATALOGUE.get(message.code, Failed)(message.message)


# --- attaching again and again --------------------------------------------------------------------


class ReceiverState(Enum):
    """States of the connector; the table at the head of this file has the steps."""

    CONNECTING = auto()
    ATTACHING = auto()
    STREAMING = auto()
    BACKOFF = auto()
    COPY_FAILED = auto()
    STRANDED = auto()
    CLOSED = auto()


RECEIVER_STEPS: Final = {
    ReceiverState.CONNECTING: frozenset({ReceiverState.ATTACHING, ReceiverState.BACKOFF}),
    ReceiverState.ATTACHING: frozenset({
        ReceiverState.STREAMING, ReceiverState.BACKOFF, ReceiverState.COPY_FAILED,
        ReceiverState.STRANDED,
    }),
    ReceiverState.STREAMING: frozenset({
        ReceiverState.BACKOFF, ReceiverState.COPY_FAILED, ReceiverState.STRANDED,
    }),
    ReceiverState.BACKOFF: frozenset({ReceiverState.CONNECTING}),
    ReceiverState.COPY_FAILED: frozenset[ReceiverState](),
    ReceiverState.STRANDED: frozenset[ReceiverState](),
    ReceiverState.CLOSED: frozenset[ReceiverState](),
}  # fmt: skip
"""States that may come next, by state; CLOSED may come after each but the last three."""
_FAILED: Final = {
    ReceiverState.COPY_FAILED: SyncStatus.COPY_FAILED,
    ReceiverState.STRANDED: SyncStatus.STRANDED,
}


class LeaderConnector:
    """Follows one leader in one epoch. On the loop only.

    :param connect: opens a link to the leader at one of its addresses. :raises LinkClosed:
    :param epoch: leader epoch; None: etcd knows of no leader
    :param backlog: entries to forward to the leader; None: none are
    """

    def __init__(
        self,
        runtime: Runtime,
        rng: Rng,
        committer: Committer,
        epochs: PromisedEpochs,
        connect: Callable[[], Awaitable[Link]],
        epoch: int | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._epochs = epochs
        self._connect = connect
        self._epoch = epoch
        self._backlog = backlog
        self._backoff = Backoff(rng)
        self._receiving: ReplicaReceiver | None = None
        self._heard_us = runtime.clock.monotonic_us()
        self._was_attached = self._has_caught_up = False
        """True for the links that have ended."""
        self.state = ReceiverState.CONNECTING
        self.reason = ""
        """Reason why it is stranded or needs a copy, or why the last link ended."""
        self.copy_from: int | None = None
        """First frame of the leader's log, if this node needs a copy because it begins too late."""

    @property
    def sync_status(self) -> SyncStatus:
        """Sync status of this node."""
        failed, at = _FAILED.get(self.state), self._receiving
        if failed is not None:
            return failed
        return SyncStatus.IN_SYNC if at is not None and at.is_in_sync else SyncStatus.CATCHING_UP

    @property
    def receiving(self) -> ReplicaReceiver | None:
        """The current link; None: there is none."""
        return self._receiving

    @property
    def heard_us(self) -> int:
        """Monotonic time of the leader's last message on any link (µs); at first, the time of
        creation."""
        at = self._receiving
        # A link that is not attached yet has only the time of its creation.
        return self._heard_us if at is None or not at.epoch else at.heard_us

    @property
    def was_attached(self) -> bool:
        """True if this node is attached, or was."""
        at = self._receiving
        return self._was_attached or (at is not None and at.epoch > 0)

    @property
    def has_caught_up(self) -> bool:
        """True once this node shows every frame that it may have shown before it attached."""
        at = self._receiving
        return self._has_caught_up or (at is not None and at.has_caught_up)

    async def run(self) -> None:
        """Follow until cancelled, or until another attempt is useless; `sync_status` tells which.
        Raises bugs."""
        try:
            while self.state not in _FAILED:
                try:
                    await self._follow()
                # Before its base class `Refusal`: a stranded node must not attach again.
                except Stranded as why:
                    self._give_up(ReceiverState.STRANDED, why.message)
                except CopyMissing as why:
                    self.copy_from = why.begins
                    self._give_up(ReceiverState.COPY_FAILED, str(why))
                # All of these may pass, with time or with the next leader.
                except (LinkClosed, Refusal, OSError) as why:
                    await self._pause(str(why))
        finally:
            if self.state not in _FAILED:
                self.state = ReceiverState.CLOSED

    def _enter(self, state: ReceiverState) -> None:
        assert state in RECEIVER_STEPS[self.state], f"no step from {self.state} to {state}"
        self.state = state

    async def _follow(self) -> None:
        link = await self._connect()
        self._enter(ReceiverState.ATTACHING)
        receiving = ReplicaReceiver(
            self._runtime, self._committer, self._epochs, link, self._epoch, self._backlog,
            partial(self._enter, ReceiverState.STREAMING),
        )  # fmt: skip
        self._receiving, full = receiving, False
        try:
            await receiving.run()
        except DiskFull:
            full = True
            raise
        finally:
            # Read from the ended link before it is dropped.
            self._was_attached, self._has_caught_up = self.was_attached, self.has_caught_up
            self._heard_us, self._receiving = self.heard_us, None
            # With a full disk each link attaches and then fails: the pauses have to grow.
            if receiving.epoch and not full:
                self._backoff.over()

    def _give_up(self, state: ReceiverState, why: str) -> None:
        self._enter(state)
        self.reason, standing = why, _FAILED[state].value
        log.error("this node stopped following the leader", standing=standing, reason=why)

    async def _pause(self, why: str) -> None:
        self._enter(ReceiverState.BACKOFF)
        seconds = self._backoff.next_seconds()
        self.reason = why
        log.info("no link to the leader", reason=why, again_after_ms=round(seconds * 1_000))
        await asyncio.sleep(seconds)
        self._enter(ReceiverState.CONNECTING)
