"""Committer: the only entry by which state changes, and where answers wait for the release.

`begin_transaction`, `commit` without an await, wait until its ticket is `released`, then
answer. No other code commits, attributes a change, or decides if the node takes it.

Invariants:

- A waiter is released only after the log has synced its sequence and `releasable` allows it (the
  in-sync replicas have it).
- The state engine holds no commit above the commit index.
- A follower commits nothing: it applies frames of its leader's log (`following.py`).
- After a failed log nothing is committed or released: each waiter gets UnknownOutcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from pykka import ActorRef

from actors.commits.applier import Applier
from actors.commits.following import FollowedLog, Stored, rolled_back_outcome
from actors.commits.group_commit import GroupCommit
from actors.commits.idle_marks import IdleMarks
from actors.commits.priority_locks import PriorityLocks
from actors.commits.tail import Tail
from actors.commits.tickets import CommitTickets, Stall, left_over, unknown
from actors.execution.blocking import NumberedQueue, Wait
from actors.execution.registry import Registry
from actors.log import AppendFrames, FindEnd, FramesSynced, NoteCommitIndex, TruncateLog, WriteMark
from actors.runtime import Runtime, ask, tell
from protocol import limits
from protocol.errors import Busy, Conflict, DiskFull, Draining, Failed, NotWritable, Refusal
from storage.columns.projections import Projections
from storage.files.disk_reserve import disk_full
from storage.formats import keys, positions
from storage.formats.effects import Attribution, only_removes
from storage.formats.entries import STATEMENTS, Entry
from storage.formats.frames import Frame
from storage.formats.positions import EpochEnd, EpochHistory
from storage.log.reader import LogReader
from storage.txn.ledger import Ledger
from storage.txn.snapshots import read_released
from storage.txn.tickets import CommitTicket, Why
from storage.txn.transaction import Transaction


class Author(Protocol):
    """Author of a change: a caller, or the node itself."""

    @property
    def user(self) -> str:
        """The user's name."""

    @property
    def surface(self) -> str:
        """Surface that the change came by."""


class NamedAuthor(NamedTuple):
    """Author of a change whose session was opened on another surface."""

    user: str
    surface: str


NODE: Final = NamedAuthor("node", "node")
"""The node itself as author: expiry, index builds, setup."""


@dataclass(frozen=True, slots=True)
class ApplyMore:
    """Said to the commits actor by itself: more is released than went to the engine at once."""


@dataclass(frozen=True, slots=True)
class ReleaseFollowed:
    """Said to the commits actor by itself: more of a leader's log is to be shown."""


class Committer(CommitTickets):
    """Transactions, commits and their release; on the loop only."""

    tail: Tail
    """Newest frames, for feeds and replicas."""
    _commits: ActorRef[Any]
    _log: ActorRef[Any]
    _following: FollowedLog
    _reader: LogReader

    def __init__(self, runtime: Runtime, registry: Registry) -> None:
        super().__init__(runtime)
        self.registry = registry
        """Live requests; answers that wait for a commit are among them."""
        self.on_roll_back: list[Callable[[], None]] = []
        """Called after a roll back. A component that saw pending writes and found nothing to do
        looks again."""
        self.on_lead_lost: list[Callable[[], None]] = []
        """Called when this node stops leading and its unreleased commits are rolled back."""
        self.on_users_followed: list[Callable[[Sequence[Frame]], None]] = []
        """Called on a follower when released commits have changed users or grants; with the frames
        released together, these changes among them."""
        self.on_release_notified: list[Callable[[], None]] = []
        """Called after every waiter of this release has been notified, so that responses leave in
        one write."""
        self.on_group_returned: list[Callable[[], None]] = []
        """Called when the log has returned a batch, its answers said: the next one can go."""
        self._applier = Applier(runtime.loop, self._apply_later)
        self._batches = GroupCommit(runtime, self._send)
        self.on_turn_end = self._batches.on_turn_end
        """Called by a surface once it has handled all it read in this loop iteration."""
        self.priority_locks = PriorityLocks(runtime)
        self.sequence_waiters = NumberedQueue(self.report_error)
        """Waits for sequences to be shown (causal tokens). A follower receives the commit later, so
        there is no ticket, and a roll back ends no wait: the sequence is assigned again. Callers
        bound their number."""
        self._idle_marks = IdleMarks(runtime.loop, self._mark)
        self.conflicts = 0
        """Commits refused by validation, since the start."""
        self.unflushed_bytes = 0
        """Log written since the state was last flushed."""
        self.disk_full = False
        """True if the log had no room at its last write."""
        self.has_room: Callable[[int], bool] = lambda _bytes: True
        """True if a full disk seems to have room again for a commit of so many bytes."""
        self.releasable: Callable[[int], int] = released_at_once
        """Return the highest sequence that may be released, given the sequence synced here. Never
        falls."""
        self.check_replicated: Callable[[], None] = lambda: None
        """Asks whether there are enough followers. :raises NotEnoughReplicas:"""
        self.stall: Stall | None = None
        """Set while nothing is released: reads then see the released state
        (`begin_released_read`)."""
        self._present: EpochEnd | None = None
        """Last known epoch and end of the log; None: as at the start."""
        self._follows = False
        """True if this node does not lead."""
        self._takes_over = False
        """True if it follows and is about to lead."""
        self._refusal: Refusal | None = None
        """Refusal of commits while it does not lead."""

    def attach(
        self,
        ledger: Ledger,
        commits: ActorRef[Any],
        log: ActorRef[Any],
        check_writable: Callable[[], None],
    ) -> None:
        """Begin work on a ledger that has replayed the log."""
        self.ledger = self.priority_locks.ledger = ledger
        self._applier.ledger = self._idle_marks.ledger = ledger
        self._check_declared = check_writable
        self._commits = commits
        self._log = log
        self.commit_index = ledger.state.commit_index
        self.tail = Tail(ledger.state.committed, self.report_error)

    def check_writable(self) -> None:
        """Check that this node takes changes. `commit` does so itself; call it early before long
        work or a wait.

        :raises NotWritable, Busy: it takes none
        :raises Draining: it stops
        """
        self._check_declared()
        if self._refusal is not None:
            raise self._refusal.also()

    def not_writable(self) -> NotWritable | None:
        """Why this node takes no changes; None: it does, now or in a moment."""
        try:
            self.check_writable()
        except NotWritable as refusal:
            return refusal
        except Draining as refusal:
            return NotWritable(refusal.message)
        except Busy:
            return None
        return None

    def set_log_readers(self, log: LogReader, stored: Stored) -> None:
        """Set the log readers that replication needs.

        :param log: what the log has in memory
        :param stored: reads its files
        """
        self._reader = log
        self._following = FollowedLog(
            self._runtime, log, stored, self.ledger, lambda: tell(self._commits, ReleaseFollowed())
        )

    @property
    def synced_seq(self) -> int:
        """The newest sequence that is on this node's disk."""
        return self.ledger.synced_seq

    @property
    def committed(self) -> int:
        """The newest sequence given out."""
        return self.ledger.state.committed

    @property
    def projections(self) -> Projections:
        """Column projections of the state."""
        return self.ledger.state.projections

    def begin_transaction(self) -> Transaction:
        """A transaction on the state as it is now, commits in flight included."""
        return self.ledger.begin_transaction()

    def begin_read_only(self) -> Transaction:
        """A transaction that changes nothing: on the state as it is now, or, while nothing that is
        in flight is released, on all that was."""
        is_late = self.stall is not None and self.stall.shows_all
        return self.begin_released_read() if is_late else self.begin_transaction()

    def begin_released_read(self) -> Transaction:
        """Begin a read-only transaction on the released state: it waits for no commit."""
        return read_released(self.ledger.state, self.ledger.log_time())

    def prepare(self, transaction: Transaction) -> Iterator[None]:
        """Validate and encode a large or paused transaction in steps before its commit. It may not
        change any more.

        :raises Conflict: as `commit`
        """
        try:
            yield from self.ledger.prepare(transaction)
        except Conflict:
            self.conflicts += 1
            raise

    def commit(
        self,
        transaction: Transaction,
        who: Author,
        statement: str | None = None,
        reason: str | None = None,
        entry: Entry | None = None,
    ) -> CommitTicket:
        """Commit the changes of a transaction, and end it; never waits.

        :param who: author: a caller, or `NODE`
        :param statement: its text without secrets, or the statement it stands for
        :param reason: REASON of the caller, or the node's own reason
        :param entry: row of the statement log or audit trail; with one, a transaction without
            changes is a commit too
        :returns: ticket that the answer waits for: of this commit, or, without changes, of the
            newest pending commit that it read
        :raises NotWritable: it has changes and the node takes none
        :raises Draining: likewise: it stops
        :raises NotEnoughReplicas: fewer replicas in sync than ACKS asks for
        :raises Conflict: its read set is stale; or another's priority lock blocks it: it is
            `blocked_by_lock` then, and may run again when `priority_locks.block` resumes it
        :raises Busy: too many commits wait for the log, or for the state engine
        :raises Failed: the log has failed
        """
        if self._lost is not None:
            raise Failed("the log has failed: the node takes no more changes")
        if transaction.size or entry is not None:
            self.check_writable()
            self.check_replicated()
            self._check_room()
        if transaction.paused and who is not NODE:
            # Nothing of a caller's is committed behind what took its right away meanwhile.
            transaction.rest_on(keys.user(who.user))
        return self._commit(
            transaction, Attribution(who.user, who.surface, statement, reason, entry)
        )

    def _commit(self, transaction: Transaction, attribution: Attribution) -> CommitTicket:
        before = self._batches.taken
        try:
            return self.ledger.commit(transaction, attribution)
        except BaseException as error:
            if isinstance(error, Conflict):
                self.conflicts += 1
            # Before its frame was taken a bug costs one answer. Behind that the log would get what
            # the ledger may not hold, and the next commit would have the same sequence.
            if self._batches.taken != before:
                self.lose(error)
            raise

    def _check_room(self) -> None:
        # Backpressure: pending writes are held in memory until the engine has taken them.
        if self.ledger.state.flight.memory_bytes > limits.IN_FLIGHT_BYTES:
            raise Busy("too many commits wait to be written to the state: the disk is slow")

    @property
    def log_is_busy(self) -> bool:
        """True while a group is at the log: a commit of now leaves no sooner than one at its return
        (`on_group_returned`)."""
        return self._batches.out

    # --- following and leading ------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """True if this node does not lead: it commits nothing."""
        return self._follows

    @property
    def log_upto(self) -> int:
        """The last frame that is synced in this log."""
        return self._following.log_upto if self._follows else self.ledger.synced_seq

    def block_until_shown(self, wait: Wait, sequence: int) -> None:
        """Resume a wait once this node shows a sequence; at once if it does."""
        if sequence <= self.commit_index:
            wait.resume(None)
        else:
            self.sequence_waiters.block(wait, sequence)

    def history(self) -> EpochHistory:
        """Return the ends of all epochs of this log, the present one included."""
        return positions.whole_history(self._reader.state.epoch_ends, self.present)

    @property
    def present(self) -> EpochEnd:
        """End of the epoch that this log ends in."""
        return self._present or self._reader.state.present

    def release_more(self) -> None:
        """Release up to what `releasable` allows now. Nothing on a follower.

        :raises EngineFailed: the state engine failed
        """
        upto = 0 if self._follows else self.releasable(self.ledger.synced_seq)
        if self._lost is None and upto > self.commit_index:
            self._advance_commit_index(upto)
            self._idle_marks.on_progress()
            self._apply()

    def log_time(self) -> int:
        """Return log time, by which keys and messages expire, in µs since 1970."""
        return self.ledger.log_time()

    def adopt_log_time(self, epoch: int, time: int) -> None:
        """Set log time as the leader of an epoch had it when this node attached."""
        if self._follows:
            self.ledger.adopt_log_time(epoch, time)

    def follow_first(self, refusal: Refusal) -> None:
        """Follow from the start on, before any commit.

        :param refusal: of commits
        """
        assert self.ledger.state.committed == self.commit_index, "there are commits already"
        self._follows = True
        self._refusal = refusal

    async def begin_following(self, refusal: Refusal) -> None:
        """Stop leading. Unreleased commits are rolled back in memory and their waiters get
        UnknownOutcome; the log keeps them until it is `cut`. Done when nothing is on its way to the
        log.

        :param refusal: of commits from now on; replaces that of a node that follows already
        :raises Draining: the node stops
        """
        # Set before the roll back: a waiter that it calls may try to commit at once.
        self._refusal = refusal
        if self._follows and not self._takes_over:
            return
        self._follows, self._takes_over = True, False
        self._following.start_following()
        # This begins a new generation even if no commit is pending. So reports on frames that are
        # still at the log are ignored.
        self._roll_back_after(self.commit_index, rolled_back_outcome)
        for look in self.on_lead_lost:
            look()
        # The mailbox of the log is in order: the answer comes after all frames handed over before.
        self._ends(await ask(self._log, FindEnd()))

    async def stop_waiting_for_replicas(self, refusal: Refusal) -> None:
        """Stop waiting for replicas, since the node stops.

        :param refusal: of commits from now on, where there are replicas
        """
        # On a node without replicas every pending commit is released by its own sync.
        if self.releasable is not released_at_once:
            await self.begin_following(refusal)

    def _ends(self, epoch_end: EpochEnd) -> None:
        self._present = epoch_end
        self._following.ends(epoch_end)

    async def find_end(self) -> int:
        """Ask the log where it ends: a link that has ended may have left frames, or a truncation,
        on their way to it. Return the last synced frame.

        :raises Draining: the node stops
        """
        assert self._follows, "who leads knows where its log ends"
        await self._find_end(FindEnd())
        return self.log_upto

    async def cut(self, after: int) -> None:
        """Truncate the log behind a frame, where the leader's log differs.

        :raises Stranded: a frame behind it was shown here, or released. Nothing was truncated
        :raises DiskFull: nothing was truncated
        :raises Draining: the node stops
        """
        assert self._follows, "who leads cuts nothing"
        self._following.require_above(after)
        await self._find_end(TruncateLog(after))

    async def _find_end(self, asked: FindEnd | TruncateLog) -> None:
        # A new generation: reports on earlier frames are ignored, since the answer covers them.
        self._roll_back_after(self.commit_index, rolled_back_outcome)
        self._ends(await ask(self._log, asked))

    def receive(self, frames: list[Frame], released: int) -> asyncio.Future[int]:
        """Append frames of the leader's log unchanged.

        :param released: the leader's commit index, noted in the log; `show` applies it
        :returns: done when these and all before are synced: the end of the synced log
        :raises Diverged: they don't continue the frames received last
        :raises Busy: too many wait for the log
        """
        assert self._follows, "who leads receives nothing"
        return self._following.take(frames, released, partial(self._log_received, frames))

    def _log_received(self, frames: list[Frame]) -> None:
        # A message without frames only carries the commit index: the log gets nothing.
        if frames:
            tell(self._log, AppendFrames(frames, self.generation, self._following.released))

    def show(self, upto: int) -> None:
        """Advance the commit index to the leader's. Frames of this log up to it are applied in
        slices, others when they are synced."""
        if self._follows:
            self._following.show(upto)

    def show_more(self) -> None:
        """Show more released frames of the leader, one slice of them.

        :raises EngineFailed, EffectsDamaged, LogDamaged:
        """
        # The message may be late: the node may have failed or taken the lead since.
        if self._lost is not None or not self._follows:
            return
        following, users = self._following, self.ledger.state.users_version
        shown = following.step(self._runtime.clock.monotonic_us() + limits.SLICE_US)
        for frame, _ in shown:
            self.tail.add(frame)
        if shown:
            # Only frames that are synced here are followed, so they are durable already.
            self.ledger.mark_durable(self.ledger.state.committed, [digest for _, digest in shown])
            # In a takeover `committed` runs ahead of the commit index, and the rest stays
            # unreleased.
            self._advance_commit_index(
                max(self.commit_index, min(self.ledger.state.committed, following.told))
            )
            self._idle_marks.on_progress()
            self._apply()
        # A frame of this slice has changed users or grants.
        if self.ledger.state.users_version != users:
            frames = [frame for frame, _ in shown]
            for look in self.on_users_followed:
                look(frames)
        # Last: a takeover that waits for the whole log goes on once this slice is complete.
        following.shown()

    async def begin_leading(self, epoch: int) -> CommitTicket:
        """Lead. The log's unreleased frames become pending commits again; the first commit of the
        epoch is an entry of the statement log.

        :param epoch: higher than that of every frame in the log
        :returns: ticket of that commit
        :raises UnknownOutcome: the lead was lost meanwhile
        """
        if self._follows:
            await self._take_over()
            self._following.leads()
            self._follows = self._takes_over = False
            self._refusal = None
        assert epoch > self.ledger.epoch, "an epoch is given once"
        self.ledger.lead(epoch)
        # Raft §5.4.2: frames of earlier epochs are released with the first frame of this one. So it
        # is committed at once, whether or not clients write.
        entry = Entry(STATEMENTS, "", "", None, None, ((),))
        statement, reason = "DEFINE NODE LEADS STORE", f"epoch {epoch}"
        leads = Attribution(NODE.user, NODE.surface, statement, reason, entry)
        return self._commit(self.begin_transaction(), leads)

    async def _take_over(self) -> None:
        """Have all that is in the log in flight. :raises UnknownOutcome: it follows again"""
        # During the awaits below `begin_following` may run, and rolls back again.
        self._takes_over = True
        self._roll_back_after(self.commit_index, rolled_back_outcome)
        taking = self.generation
        self._ends(await ask(self._log, FindEnd()))
        # Any roll back meanwhile moves the generation: a lost lead, or a full disk.
        if self.generation == taking:
            await self._following.load_all()
        if self.generation != taking:
            raise rolled_back_outcome(self._following.log_upto)

    # --- called by the ledger -----------------------------------------------------------------

    def hand_over(self, frame: Frame) -> None:
        """Give a commit to the log, grouped with others of its time.

        :raises Busy: too many wait
        :raises DiskFull: it adds data and the disk is full. No pending commit is rolled back, so
            that further write attempts don't disturb a DELETE that makes room
        """
        if self.disk_full and not (self.has_room(len(frame.body)) or only_removes(frame.body)):
            raise disk_full()
        # May refuse with `Busy`: the tail must not hold a frame that the log never gets.
        self._batches.add(frame)
        self.tail.add(frame)

    def _send(self, batch: list[Frame]) -> None:
        tell(self._log, AppendFrames(batch, self.generation, self.commit_index))

    def hand_over_rest(self) -> None:
        """Send the group being formed: the log is about to close."""
        self._batches.send_all()
        # Without replicas there is nothing to note: all that is durable is released.
        if self._follows or self.releasable is not released_at_once:
            tell(self._log, NoteCommitIndex(self._known_released))

    @property
    def _known_released(self) -> int:
        """Commit index as far as this log reaches."""
        following = self._following.released if self._follows else 0
        return max(self.commit_index, following)

    # --- called by the commits actor ----------------------------------------------------------

    def durable(self, message: FramesSynced) -> None:
        """Handle a sync: all up to `message.upto` is durable; release what may be."""
        # A report of an older generation: its sequences may belong to other commits by now.
        if self._lost is not None or message.generation != self.generation:
            return
        upto, digests = message.upto, message.digests
        self.disk_full = message.reserved
        self.unflushed_bytes += message.written_bytes
        self._present = EpochEnd(message.epoch, upto, digests[-1])
        # Frames of a leader pass through no group here, and the leader decides on their release.
        if self._follows:
            self._following.synced(upto, digests)
            return
        # Before the waiters: commits that they make join the next group.
        self._batches.returned()
        self.ledger.mark_durable(upto, digests)
        self._idle_marks.on_progress()
        self._advance_commit_index(self.releasable(upto))
        # After the waiters: operations held for this return run when all answers are out.
        for go_on in self.on_group_returned:
            go_on()
        self.on_turn_end()
        self._apply()

    def _advance_commit_index(self, upto: int) -> None:
        """Advance the commit index to `upto`, and resume the waits for these commits."""
        # The ledger first: only released commits are applied.
        self.ledger.release(upto)
        # Before the waits: one that waits again for a released commit is resumed at once.
        self.commit_index = upto
        self.tail.advance(self.ledger.synced_seq, upto)
        self.blocked.unblock_upto(upto)
        self.sequence_waiters.unblock_upto(upto)
        for follow_up in self.on_release_notified:
            follow_up()

    def _apply(self) -> None:
        """Apply released commits, one slice of them. It comes last: their answers have been sent,
        and until then every read finds them among the pending ones."""
        if self._lost is None and self._applier.some():
            self._flight_has_room()

    def _apply_later(self) -> None:
        tell(self._commits, ApplyMore())

    def apply_more(self) -> None:
        """Apply more released commits, one slice of them."""
        if self._lost is None and self._applier.more():
            self._flight_has_room()

    def _flight_has_room(self) -> None:
        """Have a follower apply more: the pending writes have room again."""
        if self._follows:
            self._following.wake()

    @property
    def unapplied_bytes(self) -> int:
        """Bytes of pending commits that the state engine does not take yet and needs disk room for.
        Thread-safe."""
        return self._applier.waiting_bytes

    def roll_back(self, generation: int, refusal: Refusal) -> None:
        """Roll back all pending commits: the disk is full."""
        # Stale: a change of the lead has begun another generation.
        if generation != self.generation:
            return
        self.disk_full = True
        if self._follows:
            self._following.on_rolled_back(refusal)
        known = isinstance(refusal, DiskFull)
        why, told = (_no_room, refusal) if known else (left_over, None)
        # Synced commits stay, although unreleased: they only wait for replicas.
        self._roll_back_after(self.ledger.synced_seq, why, told)

    def _roll_back_after(self, upto: int, why: Why, refusal: Refusal | None = None) -> None:
        """Roll back all commits behind a sequence.

        :param refusal: for their waiters; None: that of `why`
        """
        # Taken first: the roll back lowers `committed`.
        anything = self.ledger.state.committed > upto
        # Ledger, group and tail before the waiters. A waiter may commit at once, under a sequence
        # that was rolled back.
        self.ledger.roll_back(upto, why)
        self._batches.roll_back()
        self.tail.roll_back(upto)
        self.blocked.fail(upto, why if refusal is None else lambda _: refusal)
        self._idle_marks.on_progress()
        if anything:
            for look_again in self.on_roll_back:
                look_again()

    def lose(self, error: BaseException) -> None:
        """The log or the ledger has failed: nothing more is taken or answered."""
        if self._lost is None:
            self._lost = error
            self._batches.roll_back()
            # All waiters: no commit index moves after this.
            self.blocked.fail(0, unknown)
            if self._follows:
                self._following.lose(error)
            self.close()

    def finish(self) -> None:
        """Bring all that is released to the engine: the node stops. :raises EngineFailed:"""
        while self._lost is None and self.ledger.apply_next():
            pass
        self.close()
        self.deadlines.close()

    def close(self) -> None:
        """Cancel timers."""
        self._idle_marks.close()
        self._applier.close()
        if self._follows:
            self._following.close()
        self.priority_locks.close()

    def _mark(self) -> None:
        tell(self._log, WriteMark(self._known_released))


def released_at_once(synced_seq: int) -> int:
    """Return the commit index of a node without replicas: all that is synced."""
    return synced_seq


def _no_room(_sequence: int) -> DiskFull:
    return DiskFull("no room left on the disk for the log: the commit was rolled back")
