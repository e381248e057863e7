"""Replica senders, the leader's ends of the links: log replication to each follower.

| the follower sends | the leader answers |
|---|---|
| `Attach` | `Attached`, then the frames after the last common one |
| | `CopyNeeded`: that part of the log is pruned; or `Refused` |
| `Acknowledge` | nothing: it opens the window for more frames |
| `Entries` | nothing: each message says which ones are committed |
| `Refused` | nothing: the follower stops, and has given the reason |

It goes through these states, by these steps alone (`SENDER_STEPS`):

| from | to | when |
|---|---|---|
| ATTACHING | UNCONFIRMED | the last common frame is found, and `Attached` sent |
| ATTACHING | STRANDED | the follower shows frames that are not in this history |
| ATTACHING | COPY_FAILED | frames that it lacks are pruned |
| UNCONFIRMED | STREAMING | the first `Acknowledge`: its log is truncated, and it counts |
| UNCONFIRMED | STRANDED | its `Refused` says so |
| UNCONFIRMED | COPY_FAILED | the frames were pruned meanwhile |
| STREAMING | STRANDED | its `Refused` says so: the states differ |
| STREAMING | COPY_FAILED | the frames were pruned meanwhile |

Each state but STRANDED and COPY_FAILED ends with the link: CLOSED. The frames come from the tail,
or are read from the log.

Invariants:

- Frames are sent in order and without a gap, from the last common frame on. None is sent before it
  is durable here, and none of a later epoch than this leader's.
- Sent and unacknowledged bytes are at most `limits.SHIP_WINDOW_BYTES` and one batch (flow control).
  Other missing frames are in the tail, which all followers share, or are read from the log in turn.
- Each message carries the commit index. If it advances with no frame to send, it is sent alone, in
  the next loop iteration.
- Only acknowledged frames count as held by a follower, never sent ones. Even the common frames
  count only after the follower has promised the epoch, truncated its log, and acknowledged.

Entry forwarding: the leader commits statement-log and audit entries of followers. It trusts a
follower only about events at that follower; its node id comes from the link. The rate for each node
is limited across reconnects, and one message of each node is held at most. So a faulty or hostile
follower fills only its own share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import structlog

from actors.backlog import EntryBatch, PendingEntry, commit
from actors.cluster.log_matching import (
    EpochEnd,
    Lag,
    SyncStatus,
    Window,
    accepts_epoch,
    last_common_frame,
)
from actors.commits.committer import Committer
from actors.commits.tail import FellBehind, TailFollower
from actors.log_pins import Pin
from actors.log_reads import LogReads
from actors.runtime import Runtime
from actors.runtime.tasks import end
from protocol import limits
from protocol.environment import Clock
from protocol.errors import (
    BadRequest,
    Diverged,
    Failed,
    LogPruned,
    NotWritable,
    Refusal,
    Stranded,
)
from protocol.links import (
    Acknowledge,
    AskWay,
    Attach,
    Attached,
    Compare,
    Copy,
    CopyNeeded,
    Entries,
    EntryTold,
    Frames,
    FrameTold,
    Link,
    LinkClosed,
    Refused,
    Way,
)
from storage.catalog.replicas import is_id
from storage.faults import LogDamaged
from storage.formats.entries import Entry
from storage.formats.frames import FRAME_HEADER_BYTES, Frame

# --- entries of followers -------------------------------------------------------------------------


AGAIN_SECONDS: Final = 1.0
"""Interval of retrying a refused commit (s): the disk is full, or too few followers are attached.
"""


class EntryForwarding:
    """On the loop only."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._allowed: dict[str, tuple[float, int]] = {}
        """Token bucket of each node: entries it may still send at once, and the time of that count
        (µs). One for each row at most."""

    async def keep(self, node: str, said: Entries) -> None:
        """Commit the entries of a follower; return once they are released. Idempotent.

        Cancel it when this node no longer leads.

        :param node: id of the follower
        """
        # The wait slows the follower too: it sends no batch until this one is confirmed.
        await self._wait_for_allowance(node, len(said.entries))
        batch = EntryBatch(said.life, said.first, tuple(map(_from_message, said.entries)))
        while True:
            try:
                await self._committer.released(commit(self._committer, node, batch))
                return
            except Refusal:
                # Repeating is safe: commits record the entry numbers, so an entry is stored once.
                await asyncio.sleep(AGAIN_SECONDS)

    async def _wait_for_allowance(self, node: str, count: int) -> None:
        rate, now_us = limits.ENTRIES_CARRIED_A_SECOND, self._monotonic_us()
        left, since_us = self._allowed.get(node, (limits.ENTRIES_CARRIED_AT_ONCE, now_us))
        gained = (now_us - since_us) / 1_000_000 * rate
        # The count may fall below zero: a large batch is paid for by the wait after it.
        left = min(limits.ENTRIES_CARRIED_AT_ONCE, left + gained) - count
        self._allowed[node] = left, now_us
        if left < 0:
            await asyncio.sleep(-left / rate)


def message_of(noted: PendingEntry) -> EntryTold:
    """Return an entry in the form of a link message."""
    entry = noted.entry
    return EntryTold(
        noted.at_us, noted.user, noted.surface, noted.statement, noted.reason,  # type: ignore[arg-type]
        entry.kept, entry.request, entry.address, entry.namespace, entry.database, entry.places,
        entry.action, entry.refused, entry.needs, entry.more,
    )  # fmt: skip


def _from_message(told: EntryTold) -> PendingEntry:
    entry = Entry(
        told.kept, told.request, told.address, told.namespace, told.database, told.places,
        told.action, told.refused, told.needs, told.more,
    )  # fmt: skip
    return PendingEntry(told.user, told.surface, told.statement, told.reason, entry, told.at)


# --- one link -------------------------------------------------------------------------------------


log = structlog.get_logger("cluster")

READ_INDEXES_AT_ONCE: Final = 64
"""Read index requests of a follower that run at once. They stand still while a member of the ISR is
silent, and its clients go on asking."""

Heard = Callable[[str, int], None]
"""Called with the id of a follower and the last frame on its disk."""
Keep = Callable[[str, Entries], Awaitable[None]]
"""Commits the forwarded entries of a follower: see `EntryForwarding.keep`."""


class SenderState(Enum):
    """States of a replica sender; the table at the head of this file has the steps."""

    ATTACHING = auto()
    UNCONFIRMED = auto()
    STREAMING = auto()
    COPY_FAILED = auto()
    STRANDED = auto()
    CLOSED = auto()


SENDER_STEPS: Final = {
    SenderState.ATTACHING: frozenset({
        SenderState.UNCONFIRMED, SenderState.STRANDED, SenderState.COPY_FAILED,
    }),
    SenderState.UNCONFIRMED: frozenset({
        SenderState.STREAMING, SenderState.STRANDED, SenderState.COPY_FAILED,
    }),
    SenderState.STREAMING: frozenset({SenderState.STRANDED, SenderState.COPY_FAILED}),
    SenderState.COPY_FAILED: frozenset[SenderState](),
    SenderState.STRANDED: frozenset[SenderState](),
    SenderState.CLOSED: frozenset[SenderState](),
}  # fmt: skip
"""States that may come next, by state; CLOSED may come after each but the last three."""
_FAILED: Final = {
    SenderState.COPY_FAILED: SyncStatus.COPY_FAILED,
    SenderState.STRANDED: SyncStatus.STRANDED,
}


class ReplicaSender:
    """A follower's link, from its `Attach` to its end. On the loop only.

    :param epoch: leader epoch of this node; the task of `run` has to be cancelled when it ends
    :param attached: called once, when the follower has truncated its log to the last common frame
    :param heard: called for each acknowledgement after that
    :param beat_seconds: returns the heartbeat interval of the present policy
    :param round: returns the read index round to echo
    :param present: returns the read index, or a future of it; see `read_index.py`
    :param keep: commits the follower's entries; None: it may send none
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        reads: LogReads,
        link: Link,
        epoch: int,
        attached: Heard,
        heard: Heard,
        beat_seconds: Callable[[], float] = lambda: limits.SHIP_BEAT_SECONDS,
        round: Callable[[], int] = lambda: 0,
        present: Callable[[], int | asyncio.Future[int]] = lambda: 0,
        keep: Keep | None = None,
    ) -> None:
        self._loop = runtime.loop
        self._monotonic_us = runtime.clock.monotonic_us
        self._committer = committer
        self._reads = reads
        self._link = link
        self.node = link.peer.node
        """Id of the follower."""
        self.epoch = epoch
        self._attached = attached
        self._heard = heard
        self._beat_seconds = beat_seconds
        self._round = round
        self._present = present
        self._keep = keep
        self._keeping: asyncio.Future[None] | None = None
        """Runs while a batch of the follower's entries is being committed."""
        self._kept = 0
        """Last of its entries that is committed."""
        self.said = 0
        """Newest round that the follower has echoed."""
        self._asked = 0
        """Its newest read index request …"""
        self._answered = 0
        """… and the newest one answered."""
        self._found: deque[tuple[int, int]] = deque()
        """Read index requests that wait for a release, each with its sequence, oldest first. A new
        leader knows the read index before it may show that frame."""
        self._asking: set[asyncio.Future[int]] = set()
        """Read index requests under way."""
        self._asks_again = False
        """True if its newest request waits for one of these to end."""
        self.reason = ""
        """Reason why it is stranded or needs a copy, or why the link ended."""
        self.synced = 0
        """Last frame that the follower has acknowledged; before that, the last common frame."""
        self.applied = 0
        """Last frame that it shows, by its own report."""
        self.window = Window(limits.SHIP_WINDOW_BYTES)
        self.state = SenderState.ATTACHING
        self._lag = Lag(1, 0)
        self._position = 0
        """Last frame sent."""
        self._told = 0
        """Commit index that was sent last."""
        self._tail: TailFollower | None = None
        """Position in the tail; None: the next frames have to be read from the log."""
        self._pin: Pin | None = None
        self._pinned_us = 0
        self._woken = asyncio.Event()
        self._beat: asyncio.TimerHandle | None = None
        self._beat_due = False
        self._heard_us = self._monotonic_us()

    # --- for those who look -----------------------------------------------------------------------

    @property
    def lag(self) -> int:
        """Frames on this disk that are, as far as known, not on the follower's."""
        return max(self._committer.synced_seq - self.synced, 0)

    @property
    def sync_status(self) -> SyncStatus:
        """Sync status of the follower, as far as known here."""
        failed = _FAILED.get(self.state)
        if failed is not None:
            return failed
        is_late = self._lag.is_late(self._monotonic_us())
        return SyncStatus.CATCHING_UP if is_late or not self.is_attached else SyncStatus.IN_SYNC

    @property
    def is_attached(self) -> bool:
        """True once the follower has acknowledged that its log is truncated to the last common
        frame, while the link lasts."""
        return self.state is SenderState.STREAMING

    # --- the link ---------------------------------------------------------------------------------

    async def run(self, asked: Attach) -> None:
        """Send frames until the link ends, or until cancelled. Raises bugs, and exceptions of the
        acknowledgement callbacks.

        :param asked: the follower's first message
        """
        hearing: asyncio.Task[None] | None = None
        try:
            self._attach(asked)
            hearing = self._loop.create_task(self._read_messages())
            hearing.add_done_callback(lambda _: self._woken.set())
            self._tick()
            while not hearing.done():
                await self._step()
            await hearing
        except LinkClosed as closed:
            self._end(str(closed))
        except LogPruned:
            self._has_pruned_log()
        except Refusal as refusal:
            self._refuse(refusal)
        except LogDamaged as damage:
            self._refuse(Failed(f"cannot read a frame that the follower needs: {damage}"))
        finally:
            if self.state not in _FAILED:
                self.state = SenderState.CLOSED
            await self._leave(hearing)

    def _enter(self, state: SenderState) -> None:
        assert state in SENDER_STEPS[self.state], f"no step from {self.state} to {state}"
        self.state = state

    def compare(self, sequence: int, digest: bytes) -> None:
        """Send a state comparison to the follower; see `state_check.py`."""
        self._link.send(Compare(sequence, digest))

    def hurry(self) -> None:
        """Send a message soon, even without news; then at the heartbeat interval of the present
        policy."""
        if self._beat is not None:
            self._beat.cancel()
            self._tick()

    async def _leave(self, hearing: asyncio.Task[None] | None) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if self._tail is not None:
            self._tail.leave()
        self._release_pin()
        for asking in list(self._asking):
            asking.cancel()
        if self._keeping is not None:
            self._keeping.cancel()
        self._link.close(self.reason)
        if hearing is not None:
            hearing.cancel()
            with suppress(asyncio.CancelledError, LinkClosed, Refusal):
                await hearing

    def _end(self, why: str) -> None:
        self.reason = self.reason or why
        log.info("a follower is gone", node=self.node, reason=self.reason, synced=self.synced)

    def _refuse(self, refusal: Refusal) -> None:
        self._link.send(Refused(refusal.code, refusal.message))
        if isinstance(refusal, Stranded):
            self._strand(refusal.message)
        else:
            self._end(refusal.message)

    def _strand(self, why: str) -> None:
        self._enter(SenderState.STRANDED)
        self.reason = why
        log.error("a follower is stranded", node=self.node, reason=why)

    def _has_pruned_log(self) -> None:
        begins = self._reads.begins
        self._link.send(CopyNeeded(begins))
        # Its follower may have reported meanwhile that it is stranded: that stays.
        if self.state not in _FAILED:
            self._enter(SenderState.COPY_FAILED)
        self._end(f"the log begins at {begins}, but the follower is at {self._position}")

    # --- attaching --------------------------------------------------------------------------------

    def _attach(self, asked: Attach) -> None:
        """Find the last common frame and answer `Attached`.

        :raises LogPruned: frames that the follower lacks are gone
        :raises Refusal: sent to the follower. `Stranded`: it shows frames that are not in this
            history
        """
        # The follower has promised a later leader: this one is deposed, and may not know.
        if not accepts_epoch(asked.promised, self.epoch):
            raise NotWritable(
                f"this node leads in epoch {self.epoch}, but epoch {asked.promised} was promised"
            )
        theirs = [EpochEnd(*told) for told in asked.history]
        # Log matching searches by bisection: ends out of order would give a wrong common frame.
        if any(a.epoch >= b.epoch or a.last >= b.last for a, b in pairwise(theirs)):
            raise BadRequest("the epochs and sequences of a history must increase")
        try:
            agree = last_common_frame(self._committer.history(), theirs)
        except Diverged as why:
            raise Stranded(why.message) from why
        # Cluster rule 6: clients have seen those frames, so they can't be truncated.
        if agree < asked.applied:
            raise Stranded(
                f"it shows commits up to {asked.applied}, but its log agrees with the leader's"
                f" only up to {agree}"
            )
        # Before the answer: retention must not remove the frames that the answer announces.
        self._pin_log(agree + 1)
        self._position = self.synced = agree
        self._told = self._committer.commit_index
        self._lag = Lag(self._committer.synced_seq, agree)
        now, keeps = self._committer.log_time(), self._keep is not None
        self._link.send(Attached(self.epoch, agree, self._told, keeps, now))
        self._enter(SenderState.UNCONFIRMED)
        log.info("a follower attaches", node=self.node, agree=agree, end=asked.end)

    # --- what the follower says -------------------------------------------------------------------

    async def _read_messages(self) -> None:
        """Handle the messages of the follower.

        :raises LinkClosed:
        :raises BadRequest: it sends a message that no follower sends
        """
        while True:
            message = await self._link.receive()
            self._heard_us = self._monotonic_us()
            if isinstance(message, Acknowledge):
                self._acknowledged(message)
            elif isinstance(message, Entries):
                self._commit_forwarded(message)
            elif isinstance(message, Refused):
                if message.code == Stranded.__name__:
                    self._strand(message.message)
                raise LinkClosed(message.message)
            else:
                raise BadRequest(f"{type(message).__name__} is not a message of a follower")

    def _acknowledged(self, said: Acknowledge) -> None:
        # Beyond the frames sent, an acknowledgement would release frames that only this disk has.
        if said.epoch != self.epoch or not self.synced <= said.synced <= self._position:
            raise BadRequest(
                f"frame {said.synced} of epoch {said.epoch} was acknowledged, but the last one"
                f" sent was {self._position} of epoch {self.epoch}"
            )
        self.synced, self.applied = said.synced, said.applied
        self.window.acknowledged(said.synced)
        self._lag.synced(said.synced)
        self.said = max(self.said, said.round)
        if said.asks > self._asked:
            self._asked = said.asks
            self._find_read_index(said.asks)
        if self.is_attached:
            self._heard(self.node, said.synced)
        else:
            self._enter(SenderState.STREAMING)
            self._attached(self.node, said.synced)
        self._woken.set()

    def _find_read_index(self, question: int) -> None:
        """Find the read index and answer the follower. If it is unknown, there is no answer: the
        follower waits until its own timeout, or for another leader."""
        if len(self._asking) >= READ_INDEXES_AT_ONCE:
            # The answer to a later request answers all before it.
            self._asks_again = True
            return
        try:
            found = self._present()
        except Refusal:
            return
        if isinstance(found, int):
            self._answer(question, found)
            return
        self._asking.add(found)

        def told(done: asyncio.Future[int]) -> None:
            self._asking.discard(done)
            if done.cancelled():
                return
            error = done.exception()
            if error is None:
                self._answer(question, done.result())
            elif not isinstance(error, Refusal):
                raise error  # a bug: asyncio logs it
            if self._asks_again:
                self._asks_again = False
                self._find_read_index(self._asked)

        found.add_done_callback(told)

    def _answer(self, question: int, present: int) -> None:
        """Answer with the next message whose commit index covers the read index."""
        if self._found and self._found[-1][1] == present:  # new lead, not settled
            question = max(question, self._found.pop()[0])
        self._found.append((question, present))
        self.hurry()

    def _commit_forwarded(self, said: Entries) -> None:
        """Start to commit entries of the follower. :raises BadRequest: it may send none now"""
        if self._keep is None or not self.is_attached or said.epoch != self.epoch:
            raise BadRequest(f"entries for the leader of epoch {said.epoch} are not accepted now")
        if not is_id(self.node):
            raise BadRequest("entries are accepted only from a node that has an id")
        if self._keeping is not None:
            raise BadRequest("entries were sent before the last ones were kept")
        self._keeping = keeping = asyncio.ensure_future(self._keep(self.node, said))
        upto = said.first + len(said.entries) - 1

        def kept(done: asyncio.Future[None]) -> None:
            if done.cancelled():
                return
            self._keeping = None
            done.result()  # an exception is a bug: asyncio logs it
            self._kept = upto
            self.hurry()

        keeping.add_done_callback(kept)

    # --- what it is sent --------------------------------------------------------------------------

    async def _step(self) -> None:
        """Send frames or a heartbeat, or wait until there is something to send."""
        # Cleared before the checks: a wake-up during them is not lost.
        self._woken.clear()
        frames = await self._next_batch() if self.window.is_open else []
        if frames or self._beat_due or self._committer.commit_index > self._told:
            self._send(frames)
            await self._link.drained()
            await asyncio.sleep(0)  # a fast link never blocks: yield to others
        else:
            await self._woken.wait()

    def _send(self, frames: list[Frame]) -> None:
        released, now_us = self._committer.commit_index, self._monotonic_us()
        if frames:
            if frames[-1].epoch > self.epoch:
                raise self._is_deposed()
            size = sum(len(frame.body) + FRAME_HEADER_BYTES for frame in frames)
            self._position = frames[-1].sequence
            self.window.sent(self._position, size, now_us)
        elif released == self._told:
            self.window.asked(now_us)  # a follower answers a message without news
        # Counts frames on this disk, as `lag` does, not released ones: the commit index may stand
        # still just because this follower is waited for.
        self._lag.ends(self._committer.synced_seq, self.synced, now_us)
        self._told, self._beat_due = released, False
        while self._found and self._found[0][1] <= released:
            self._answered = max(self._answered, self._found.popleft()[0])
        told: list[FrameTold] = [*frames]
        self._link.send(
            Frames(self.epoch, released, told, self._round(), self._answered, self._kept)
        )

    def _is_deposed(self) -> NotWritable:
        return NotWritable(f"this node no longer leads in epoch {self.epoch}")

    def _tick(self) -> None:
        """Heartbeat timer: close a silent link, and have a message sent."""
        silent_us = self._monotonic_us() - self._heard_us
        if silent_us > limits.SHIP_SILENT_SECONDS * 1_000_000:
            self._link.close(f"it has sent nothing for {limits.SHIP_SILENT_SECONDS} s")
        self._beat_due = True
        self._woken.set()
        self._beat = self._loop.call_later(self._beat_seconds(), self._tick)

    # --- where the frames come from ---------------------------------------------------------------

    async def _next_batch(self) -> list[Frame]:
        """Return the next batch of frames; empty: there are no more.

        :raises NotWritable: this node has stopped leading, and rolled back its unreleased frames
        :raises LogPruned: the frames are gone
        :raises LogDamaged: they can't be read
        :raises Busy: too many log reads are waiting
        """
        if self._committer.follows:
            raise self._is_deposed()
        if self._tail is None:
            self._follow()
        if self._tail is not None:
            try:
                return self._tail.take(limits.SHIP_BATCH_BYTES)
            except FellBehind:
                self._tail = None
        self._pin_log(self._position + 1)
        upto = self._committer.synced_seq
        return await self._reads.frames(self._position, upto, limits.SHIP_BATCH_BYTES)

    def _follow(self) -> None:
        """Switch to the tail, if it reaches back far enough."""
        with suppress(FellBehind):
            self._tail = self._committer.tail.follow(
                self._position, self._woken.set, unreleased=True
            )
            self._release_pin()

    def _pin_log(self, sequence: int) -> None:
        """Pin the log from a frame on. A follower that advances keeps its pin; one that stands
        still loses it after `limits.LOG_PIN_SECONDS`.

        :raises LogPruned: the log begins later
        """
        now_us = self._monotonic_us()
        if self._pin is not None:
            # Half the lifetime of a pin (µs): renewed well before it expires.
            if now_us - self._pinned_us < limits.LOG_PIN_SECONDS * 500_000:
                self._pin.move(sequence)
                return
            if sequence == self._pin.sequence:
                return
        # The new pin comes first: in a gap, the log thread could prune the log.
        fresh = self._reads.pin(sequence)
        self._release_pin()
        self._pin, self._pinned_us = fresh, now_us

    def _release_pin(self) -> None:
        if self._pin is not None:
            self._pin.release()
            self._pin = None


# --- all links ------------------------------------------------------------------------------------


BEAT_SECONDS = 1.0
"""Heartbeat interval (s), where no policy limits the silence of a follower."""


class FollowerSender(Protocol):
    """Replica sender of a follower: `ReplicaSender`."""

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
            self._member.left(node)  # until this link is confirmed, which may be of an older copy
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
