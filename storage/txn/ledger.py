"""Ledger: turns transactions into commits, and commits into state.

    begin → commit → handed over to the log → durable → released → applied to the engine

A commit is one frame. A transaction has no id: its commit gets the sequence `committed + 1`. Every
transaction that begins later reads it, although the log is still writing it: it is *in flight*
(pending). It is *durable* once this node's log has fsynced it. It is *released* once it may be
shown to clients: at or below the commit index (Raft §5.3). On a single node that is the same
moment. Then it is applied to the engine, so the engine never holds a commit that could be rolled
back. A response that depends on a pending commit (`Transaction.saw`) is delayed until that commit
is released.

Isolation is optimistic: a transaction that paused is validated at its commit, by comparing its read
set with the commits made since (`validation.py`).

On a follower the leader's frames become pending like its commits did there (`follow`), and take the
same way from there on.

All methods run on one thread and none blocks, so a commit is atomic: no other commit can come
between its validation and its place among the pending ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from protocol.environment import Clock, Rng
from protocol.errors import Conflict
from storage.engine.engine import Batch, Engine
from storage.formats import effects, keys
from storage.formats.effects import Attribution, Effect
from storage.formats.frames import NO_DIGEST, Frame
from storage.formats.keys import INDEX_ENTRY, SEQUENCE_BYTES, STAMPED, TAG_AT
from storage.formats.positions import LogEnd
from storage.txn import applied_position, trail_rows
from storage.txn.applied_position import Lineage
from storage.txn.catalog_cache import CatalogCache
from storage.txn.committed_state import CommittedState
from storage.txn.log_time import LogTime
from storage.txn.priority_lock import PriorityLock
from storage.txn.replay import FrameDecoder, IndexesOf, Replay, needs_own_write
from storage.txn.snapshots import PinnedSnapshot
from storage.txn.tickets import CommitTicket, Why, rolled_back
from storage.txn.transaction import NEVER, Transaction
from storage.txn.write_set import WriteSet, apply_writes

REPLAY_BATCH_BYTES: Final = 1 << 20
"""Bytes of frame bodies replayed per write batch of the engine."""
APPLY_KEYS: Final = 4_096
"""Keys applied to the engine per step: about a millisecond of the loop."""
PREPARE_KEYS: Final = 2_048
"""Keys encoded per step of `prepare`."""


class StateUnusable(Exception):
    """State and log don't belong together: the log can't bring the state up to date."""


class Ledger:
    """Commits of one store: validation, sequences, pending commits, application to the engine.

    :param engine: the state; it may lag behind the log, never lead it
    :param end: position at which the log ends; the frames that the engine lacks must be passed to
        `replay`
    :param hand_over: takes each new frame, in order, for the log. An exception that it raises
        refuses the commit, which then leaves no trace.
    :param derived: indexes whose entries are derived when frames are replayed or followed
    :raises StateUnusable: the engine is beyond the end of the log
    :raises StateForeign: the engine holds another store's state
    """

    def __init__(
        self,
        engine: Engine,
        end: LogEnd,
        clock: Clock,
        rng: Rng,
        hand_over: Callable[[Frame], None],
        derived: IndexesOf,
    ) -> None:
        # Only durable frames are applied, so no crash leaves the state ahead of its log.
        if engine.applied > end.sequence:
            raise StateUnusable(
                f"the state is at sequence {engine.applied}, beyond the end of the log at"
                f" {end.sequence}: the log was cut, or the state belongs to another log"
            )
        self.state = CommittedState(engine, rng, end.store_id)
        """State that transactions and pinned snapshots read."""
        self.epoch = end.next_epoch
        """Leader epoch of the next frame."""
        self._since = end.sequence + 1
        """First sequence of that epoch."""
        self._epochs: list[tuple[int, int]] = [(0, end.epoch)]
        """First sequences and epochs of the earlier epochs, as far as known."""
        self._end = end.sequence
        # Later frames of the log are durable too, but count here once they are replayed.
        self._durable = engine.applied
        self._applied_seq = applied_position.read(engine, end.store_id)
        self._digests: deque[bytes] = deque()
        """Frame digests of the commits that are durable but not applied, in order."""
        self._hand_over = hand_over
        self._log_time = LogTime(clock, end.time)
        # Log time of the newest commit, and of the newest commit that the engine has.
        self._frame_time = self._settled_time = end.time
        self._following = False
        """True while a leader's commit is being decoded, which reads the commits before it."""
        self._replay = Replay(
            engine,
            lambda: Transaction(self.state, self.state.committed, self._frame_time),
            derived,
        )
        self._folding = FrameDecoder(derived)
        self._replayed_last: Frame | None = None
        self._replaying_bytes = 0
        self.heard: Callable[[WriteSet], None] | None = None
        """Callback for each commit as it becomes pending, on leader and follower alike. Must be
        short and not raise."""
        self.barrier: PriorityLock | None = None
        """Priority lock in force; None: none."""
        self._part_of: list[bytes] = []
        self._part_at = 0
        """Keys of a commit that is applied in parts (`_part_of`), and the number applied so far
        (`_part_at`)."""
        self._gone: list[dict[bytes, bytes | None] | list[bytes]] = []
        """Containers of applied large commits, to be freed in steps."""

    # --- positions ------------------------------------------------------------------------------

    @property
    def synced_seq(self) -> int:
        """Sequence of the newest commit known to be fsynced to the local log."""
        return self._durable

    def epoch_at(self, sequence: int) -> int:
        """Return the leader epoch of a commit.

        :param sequence: not before the log's end at the start
        """
        if sequence >= self._since:
            return self.epoch
        return next(epoch for first, epoch in reversed(self._epochs) if first <= sequence)

    def log_time(self) -> int:
        """Return the log time (µs since 1970), see `LogTime`."""
        return self._log_time.now()

    def adopt_log_time(self, epoch: int, time: int) -> None:
        """Adopt the log time that the leader of an epoch reported."""
        self._log_time.follows(epoch, max(time, self._frame_time))

    # --- start ----------------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        """Replay a frame of the log into the engine. Frames come in order, from
        `state.committed` + 1.

        :raises EffectsDamaged: the body is no commit
        :raises StateUnusable: the frame is not the next one
        """
        state = self.state
        if frame.sequence != state.committed + 1:
            raise StateUnusable(
                f"the state is at sequence {state.committed}, but the log continues at"
                f" {frame.sequence}"
            )
        commit, replay, sequence = effects.decode(frame.body), self._replay, frame.sequence
        alone = self._applied_seq.begun != NO_DIGEST or needs_own_write(commit.effects)
        if alone:
            # `add_alone` reads the engine, which must hold all frames before this one.
            self._replayed()
        add = replay.add_alone if alone else replay.add
        if add(commit.effects, sequence):
            state.catalog_cache = CatalogCache(sequence)
        replay.put(trail_rows.rows(sequence, frame.time, commit.attribution))
        state.committed, self._replayed_last = sequence, frame
        self._frame_time = self._settled_time = max(self._frame_time, frame.time)
        self._replaying_bytes += len(frame.body)
        # The last frame always completes a batch: no replayed frame stays outside the engine.
        if alone or self._replaying_bytes > REPLAY_BATCH_BYTES or sequence >= self._end:
            self._replayed()

    def _replayed(self) -> None:
        """Write the batch of replayed frames to the engine."""
        last, self._replayed_last = self._replayed_last, None
        if last is not None:
            stands = Lineage(self._applied_seq.store_id, last.sequence, last.digest())
            self._write(self._replay.take(), stands)
            self._replaying_bytes = 0
            # A single node may have shown every frame. In a cluster only released ones come.
            self._durable = self.state.commit_index = self.state.committed

    def _write(self, batch: Batch, stands: Lineage) -> None:
        """Write a batch, with a note of the log position that it brings the state to."""
        # In the same batch: no crash separates the state from its position.
        stands.note(batch)
        self.state.engine.write(batch, stands.sequence)
        self._applied_seq = stands

    # --- transactions ---------------------------------------------------------------------------

    def begin_transaction(self) -> Transaction:
        """Begin a transaction on the newest state."""
        assert self.state.committed >= self._end, "the log has not been replayed to its end"
        return Transaction(self.state, self.state.committed, self.log_time())

    def moment(self) -> PinnedSnapshot:
        """Pin a snapshot at the commit index, for several transactions to read. The caller must
        `end` it."""
        assert self.state.committed >= self._end, "the log has not been replayed to its end"
        return PinnedSnapshot(self.state, self.log_time())

    def commit(self, tx: Transaction, attribution: Attribution) -> CommitTicket:
        """Validate and commit a transaction, and end it (optimistic concurrency control).

        :returns: the commit that must be visible before the response is sent: its own; for a
            read-only transaction the newest pending one that it read
        :raises Conflict: validation failed: a later commit changed a key that the transaction read,
            or a key that it changes has expired. Or a priority lock blocks it (`blocked_by_lock`);
            it may retry once `barrier` is gone
        """
        assert not tx.reads.ended, "a transaction is committed once"
        try:
            if not (_changes_something(tx) or attribution.entry):
                return tx.ticket  # read-only: no frame, but the response waits for its reads
            if self.barrier is not None and self.barrier.blocks_commit(tx):
                tx.blocked_by_lock = True
                raise Conflict(
                    "a key of this transaction is locked until another transaction has ended"
                )
            if tx.paused:
                if 0 < tx.alive_until_us <= self.log_time():
                    raise Conflict("a key that this transaction changes has expired meanwhile")
                self.state.conflicts.validate(tx.reads)
            else:
                # Without a pause no commit came in between: there is nothing to validate.
                assert tx.sequence == self.state.committed, "control was given away without a pause"
            return CommitTicket(self._commit(tx, attribution), self.state.roll_backs.generation)
        finally:
            tx.release()

    def _commit(self, tx: Transaction, attribution: Attribution) -> int:
        own, sequence = tx.own, self.state.committed + 1
        # An unpaused transaction keeps its time, so its appended values mostly stay as written.
        now_us = self.log_time() if tx.paused else tx.now_us
        # Log time never falls, and completes timed values with one later than any earlier frame's.
        time = tx.time = max(self._frame_time + (tx.timed is not None), now_us)
        # Before the encoding, which needs the final numbers and times.
        for append in tx.appends.values():
            append.renumber(own, self._present(append.counter), time)
        if tx.timed is not None:
            for key, make in tx.timed.items():
                value = own.writes.get(key)
                if value is not None:
                    own.write(key, make(value, time))
        if tx.prepared is None:
            # Sums last: they are written to `own` too, and would be encoded twice.
            changes = [*tx.first_effects(), *_write_effects(tx, own.writes.items())]
            body = effects.encode(attribution, changes + self._sums(tx))
        else:
            late = _write_effects(tx, ((key, own.writes[key]) for key in tx.late_keys()))
            some = effects.encode_some(late + self._sums(tx))
            body = effects.join(attribution, [*tx.prepared, some])
        # After the encoding: every replay derives these rows from the frame itself.
        if attribution.entry is not None:
            own = tx.fold(trail_rows.rows(sequence, time, attribution))
        # May raise to refuse the commit, so the ledger changes only after it.
        self._hand_over(Frame(sequence, self.epoch, time, 0, body))
        own.sequence, own.size, own.built = sequence, tx.size, bool(tx.derives)
        # `paused` has this transaction too, if it has paused.
        self._put_in_flight(own, time, len(self.state.paused) > tx.paused)
        return sequence

    def _put_in_flight(self, write_set: WriteSet, time: int, others_paused: bool) -> None:
        """Add a commit to the pending ones, and make it readable to transactions that begin later.

        :param others_paused: True if any other transaction is paused, so that validation needs this
            commit
        """
        state, sequence = self.state, write_set.sequence
        write_set.time = time
        state.flight.add(write_set)
        state.committed, self._frame_time = sequence, time
        if others_paused:
            state.conflicts.remember(write_set)
        if write_set.catalog:
            state.catalog_cache.changed(sequence, write_set.declared, write_set.ranges)
            if state.users_version == sequence:
                self._end_moments()
        if self.heard is not None:
            self.heard(write_set)

    def _end_moments(self) -> None:
        """End all pinned snapshots, because privileges have changed: a snapshot is checked against
        its own."""
        for moment in list(self.state.moments):
            moment.end()

    def follow(self, frame: Frame) -> Iterator[None]:
        """Make a leader's commit pending on a follower, in steps of about a millisecond.

        It counts as `committed` after the last step. The caller may yield control in between, but
        nothing else may commit.

        :raises EffectsDamaged: the body is no commit
        """
        sequence = frame.sequence
        assert sequence == self.state.committed + 1, "frames are followed without a gap"
        self._following = True
        try:
            # Nothing commits between the steps, so it reads the live state without a pause.
            with Transaction(self.state, self.state.committed, frame.time) as tx:
                write_set = tx.own = WriteSet(sequence)
                write_set.size = len(frame.body)
                who = yield from self._folding.follow(frame.body, tx)
        finally:
            self._following = False
        write_set.write_all(trail_rows.rows(sequence, frame.time, who))
        if self.state.paused:
            yield from write_set.put_in_order(
                PREPARE_KEYS
            )  # for the validation of paused transactions
        # Before `committed` advances: the epoch begins with this frame.
        if frame.epoch != self.epoch:
            self._begin_epoch(frame.epoch)
        self._put_in_flight(write_set, max(self._frame_time, frame.time), bool(self.state.paused))
        self._log_time.reaches(frame.time)

    def lead(self, epoch: int) -> None:
        """Become the leader: later commits are this node's own, of a higher epoch than before."""
        self._begin_epoch(epoch)
        self._log_time.leads(self._frame_time)

    def _begin_epoch(self, epoch: int) -> None:
        self._epochs.append((self._since, self.epoch))
        self._since, self.epoch = self.state.committed + 1, epoch

    def prepare(self, tx: Transaction) -> Iterator[None]:
        """Encode and validate a large or paused transaction ahead of its commit.

        Each step takes about a millisecond.

        Validation compares its reads with the commits made since. The caller may yield control
        between steps, after a `pause`; the transaction must not change any more.

        :raises Conflict: as `commit`
        """
        chunks = [effects.encode_some(tx.first_effects())]
        # The commit completes the values of these keys, and encodes them.
        late = frozenset(tx.late_keys())
        for part in tx.own.in_steps(PREPARE_KEYS):
            rows = [row for row in part if row[0] not in late] if late else part
            chunks.append(effects.encode_some(_write_effects(tx, rows)))
            if len(part) == PREPARE_KEYS:
                yield
        if self.barrier is not None or len(self.state.paused) > tx.paused:
            yield from tx.own.put_in_order(PREPARE_KEYS)  # for the validation of the others
        tx.prepared = chunks
        if _changes_something(tx):
            yield from self.state.conflicts.compare(tx.reads)

    def _sums(self, tx: Transaction) -> list[Effect]:
        """Resolve counter increments to absolute values. Write them, and return them as effects."""
        found: list[Effect] = []
        for key, delta in tx.adds.items():
            # The newest value, not that of the snapshot: concurrent increments do not conflict.
            # A range delete of its own has removed that value; the sum begins at 0.
            base = None if _covered(tx.own, key) else self._present(key)
            value = keys.pack_counter(keys.unpack_counter(base) + delta)
            tx.own.write(key, value)
            found.append((effects.PUT, key, value))
        return found

    def _present(self, key: bytes) -> bytes | None:
        state = self.state
        found = state.flight.get(key)
        return state.engine.get(key) if found is None else found[1]

    def durable(self, upto: int, digests: Sequence[bytes]) -> None:
        """Mark commits as durable, make them visible and apply them to the engine.

        :param digests: as for `mark_durable`
        :raises EngineFailed: unapplied commits stay pending; nothing is lost
        """
        self.mark_durable(upto, digests)
        self.release(upto)
        while self.apply_next():
            pass

    def mark_durable(self, upto: int, digests: Sequence[bytes]) -> None:
        """Mark commits as fsynced to the local log; a full disk can no longer roll them back.

        :param digests: those of the last frames up to `upto`, at least of all newly durable ones
        """
        assert upto <= self.state.committed, "durable before it was committed"
        news = upto - self._durable
        if news > 0:
            assert len(digests) >= news, "a frame without its digest"
            self._digests.extend(digests[len(digests) - news :])
            self._durable = upto

    def release(self, upto: int) -> None:
        """Advance the commit index: commits up to `upto` become visible. `apply_next` applies them
        later, in short steps."""
        assert upto <= self._durable, "what is not durable is not shown"
        self.state.commit_index = max(self.state.commit_index, upto)

    @property
    def may_apply(self) -> bool:
        """True if `apply_next` would not block on the engine's disk (write stall)."""
        return self.state.engine.takes_writes()

    @property
    def applies_part(self) -> bool:
        """True while the engine has some effects of a commit and not yet the others."""
        return bool(self._part_of)

    def apply_next(self) -> bool:
        """Apply the next part of the visible commits to the engine. True if there is more to apply.

        A commit too large for one part stays pending until its last part is written. A crash in
        between leaves the engine at the commit before, with some of this one's effects. Replaying
        it from its beginning is idempotent: effects are absolute, and index entries are derived as
        if none had been there.

        :raises EngineFailed: this part is not in the engine and stays pending
        """
        write_sets = self._next_part()
        if not write_sets:
            return self._let_go()
        if len(write_sets[0].writes) > APPLY_KEYS:
            return self._apply_large(write_sets[0])
        batch = self.state.engine.batch()
        _apply_together(write_sets, batch)
        for write_set in write_sets:
            self.state.note_applied(write_set.writes, write_set.ranges, write_set.sequence)
        self._write_applied(batch, write_sets)
        return self._has_more()

    def _write_applied(self, batch: Batch, write_sets: list[WriteSet]) -> None:
        """Write the batch that completes these write sets, and drop them."""
        count = len(write_sets)
        digest = self._digests[count - 1]
        self._write(batch, Lineage(self._applied_seq.store_id, write_sets[-1].sequence, digest))
        # Only after the write: if it fails, all stay pending, with their digests.
        self._settled_time = write_sets[-1].time
        for _ in range(count):
            self._digests.popleft()
        self.state.flight.drop(count)

    def _next_part(self) -> list[WriteSet]:
        """Return the oldest visible write sets that fit into one step, or a single larger one."""
        found: list[WriteSet] = []
        count = 0
        for write_set in self.state.flight.write_sets:
            count += len(write_set.writes) + len(write_set.ranges)
            # Never beyond the commit index: the engine cannot undo a commit.
            if write_set.sequence > self.state.commit_index or (found and count > APPLY_KEYS):
                break
            if found and (write_set.built or found[-1].built):
                break  # merging them costs more than a write of its own
            found.append(write_set)
        return found

    def _apply_large(self, write_set: WriteSet) -> bool:
        batch, begun, writes = self.state.engine.batch(), self._part_at, write_set.writes
        if begun == 0:
            self.state.note_applied((), write_set.ranges, write_set.sequence)
            write_set.apply_ranges(batch)
            self._part_of = list(
                write_set.ordered() if write_set.built else writes
            )  # its own: it is freed
        # Index entries first, so two passes over all keys. A replay on top of a part of the commit
        # takes a record's index entries as done when the record itself is there (derived.py).
        count = len(self._part_of)
        # Without index entries the first pass is left out.
        at = begun if write_set.entries else begun + count
        part = looked = self._part_of[at % count : at % count + APPLY_KEYS]
        if write_set.entries:
            first = at < count
            part = [key for key in looked if (key[TAG_AT] == INDEX_ENTRY) is first]
        self.state.note_applied(part, (), write_set.sequence)
        apply_writes([(key, writes[key]) for key in part], write_set.sequence, batch)
        if at + len(looked) < 2 * count:
            # Incomplete: note the frame as begun, and leave `applied` at the commit before.
            self._write(batch, self._applied_seq._replace(begun=self._digests[0]))
            self._part_at += len(looked)
            return True
        self._write_applied(batch, [write_set])
        # Emptied only if no transaction or snapshot reads through it any more.
        if not (self._following or self.state.is_frozen(write_set)):
            self._gone += [*write_set.hollow(), self._part_of]
        self._part_at, self._part_of = 0, []
        return self._has_more()

    def _has_more(self) -> bool:
        return bool(self._gone) or bool(self._next_part())

    def _let_go(self) -> bool:
        """Free a part of the applied large commits. True if there is more to do.

        Freeing a million small objects at once would block the loop for a tenth of a second.
        """
        if self._gone:
            last = self._gone[-1]
            if isinstance(last, dict):
                for _ in range(min(APPLY_KEYS, len(last))):
                    last.popitem()
            else:
                del last[-APPLY_KEYS:]
            if not last:
                self._gone.pop()
        return self._has_more()

    def roll_back(self, upto: int | None = None, why: Why = rolled_back) -> None:
        """Roll back the pending commits after `upto`; their sequences will be assigned again.

        The log had no room for them, or another leader took over. Transactions that paused on top
        of them fail to commit.

        :param upto: a durable commit at or beyond the commit index; None: keep all durable ones
        :param why: makes the error for requests that wait for a rolled-back commit
        """
        state, upto = self.state, self._durable if upto is None else upto
        assert state.commit_index <= upto <= self._durable, "what was shown is not taken back"
        for _ in range(self._durable - upto):
            self._digests.pop()
        state.roll_backs.add(upto, why)
        # Before the pending writes go: their ids must not be assigned again.
        for write_set in state.flight.write_sets:
            if write_set.sequence > upto:
                state.rolled_back_ids.add(write_set)
        state.flight.keep(upto)
        state.committed = self._durable = upto
        # No later frame may be earlier than the newest commit that stays.
        left = state.flight.write_sets
        self._frame_time = left[-1].time if left else self._settled_time
        while self._since > upto + 1 and self._epochs:
            self._since, self.epoch = self._epochs.pop()
        state.conflicts.roll_back(upto)
        # The rolled-back sequences are assigned again: validate against the new commits.
        for reads in state.paused:
            reads.compared = min(reads.compared, upto)
        state.catalog_cache.roll_back(upto)
        # Its cached indexes may come from a declaration that was rolled back.
        self._folding.forget()


def _changes_something(tx: Transaction) -> bool:
    return bool(tx.own.writes or tx.own.ranges or tx.adds)


def _write_effects(tx: Transaction, writes: Iterable[tuple[bytes, bytes | None]]) -> list[Effect]:
    found: list[Effect] = []
    add, has_entries = found.append, False
    for key, value in writes:
        tag = key[TAG_AT]
        if tag == INDEX_ENTRY:
            has_entries = True  # see derived.py
        elif tag not in STAMPED:
            add((effects.DELETE, key) if value is None else (effects.PUT, key, value))
        elif value is None:
            add((effects.DELETE_RECORD, key, tx.previous(key)))
        else:
            # The head of an uncommitted value is the sequence of the change before.
            head = value[:SEQUENCE_BYTES]
            previous = 0 if head == NEVER else int.from_bytes(head, "big")
            add((effects.PUT_RECORD, key, value[SEQUENCE_BYTES:], previous))
    if has_entries:
        tx.own.entries = True
    return found


def _apply_together(write_sets: list[WriteSet], batch: Batch) -> None:
    """Add several write sets to a batch. A key changed by more than one (mostly a table's count) is
    written once."""
    if len(write_sets) == 1:
        write_sets[0].apply(batch)
        return
    together: dict[bytes, tuple[int, bytes | None]] = {}
    for write_set in write_sets:
        for start, end in write_set.ranges:
            # `together` is written behind all range deletes, and must not revive older writes.
            for key in [key for key in together if start <= key < end]:
                del together[key]
            batch.delete_range(start, end)
        sequence = write_set.sequence
        for key, value in write_set.writes.items():
            together[key] = sequence, value
    for key, (sequence, value) in together.items():
        if value is None:
            batch.delete(key)
        elif key[TAG_AT] in STAMPED:
            batch.put(key, sequence.to_bytes(SEQUENCE_BYTES, "big") + value[SEQUENCE_BYTES:])
        else:
            batch.put(key, value)


def _covered(write_set: WriteSet, key: bytes) -> bool:
    return any(start <= key < end for start, end in write_set.ranges)
