"""Transaction: snapshot reads, read set and write set, under optimistic concurrency control.

A transaction reads the state as of the commit `sequence`, through its own changes, the pending
commits and the engine, in this order (snapshot isolation). It buffers its changes, and
`ledger.Ledger.commit` makes a commit of them. Nothing here blocks or reads a clock: time and
randomness are passed in.

Invariant that makes reads consistent: until a transaction calls `pause`, no other commit may
happen, so the live state is the one that it began with. It must call `pause` before control is
yielded. From then on it reads a frozen view (MVCC): an engine snapshot, and the write sets that
were pending at the pause. Its commit validates the whole read set against the commits made since.
Read-only transactions are never refused: they have read one consistent state of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import Any, Final, TypeVar

from protocol import limits
from protocol.errors import TooLarge
from protocol.values import Tick, instant
from storage.columns.projections import Projections
from storage.engine.engine import EngineSnapshot
from storage.formats import keys
from storage.formats.effects import DELETE_RANGE, DERIVE, Chunk, Derive, Effect
from storage.formats.keys import SEQUENCE_BYTES, Pair
from storage.txn.appends import Append, Mark
from storage.txn.catalog_cache import CachedLookup
from storage.txn.committed_state import CommittedState
from storage.txn.ids import RolledBackIds
from storage.txn.marked_records import IndexMarks
from storage.txn.read_set import ReadSet
from storage.txn.tickets import CommitTicket
from storage.txn.write_set import UNCHANGED, Overlay, WriteSet, lookup

T = TypeVar("T")

NEVER: Final = bytes(SEQUENCE_BYTES)
"""Sequence before the first change of a record."""
_NO_APPENDS: Final[Mapping[bytes, Append]] = MappingProxyType({})
_OVERHEAD_BYTES: Final = 16
"""Maximum bytes of an effect in a frame beside its key and value."""


def too_large() -> TooLarge:
    """Return the refusal of a transaction that changes too much."""
    return TooLarge(
        f"a transaction changes at most {limits.TRANSACTION_BYTES} bytes",
        limit=limits.TRANSACTION_BYTES,
    )


class Transaction:
    """Transaction with a read set and a write set.

    Made by `Ledger.begin_transaction`; ended by `Ledger.commit` or `release`, or by leaving a
    `with`.
    """

    def __init__(self, state: CommittedState, sequence: int, now_us: int) -> None:
        self._state = state
        self._engine = state.engine
        self._flight = state.flight
        self._reads = reads = ReadSet(sequence, state.roll_backs)
        self._looked = reads.looked
        self._mine: dict[Hashable, CachedLookup] = {}
        """Catalog look-ups that other transactions can't share."""
        self.sequence = sequence
        """Sequence of the commit whose state is read."""
        self.released = state.commit_index
        """Commit index when this began: newest commit that may have been shown to a client."""
        self.now_us = now_us
        """Log time at the beginning (µs since 1970), which `time::now()` returns."""
        self.rng = state.rng
        # Increments of counters, by key. The commit makes absolute values of them.
        self.adds: dict[bytes, int] = {}

    @property
    def store(self) -> str:
        """First eight digits of the store's id, for tokens that clients keep and present again."""
        return self._state.store

    @property
    def rolled_back_ids(self) -> RolledBackIds:
        """Declaration ids that must not be assigned again."""
        return self._state.rolled_back_ids

    # Defaults at class level: most transactions read one record, and setting these for each
    # instance would cost more than that.

    own = UNCHANGED
    """Write set. Replaced by one of its own at the first change: `_changing`."""
    saw = 0
    """Highest pending sequence that a read depended on; the response waits until it is released.

    0: none. A paused transaction may name a later one than strictly needed.
    """
    prepared: list[Chunk] | None = None
    """Changes as encoded effects, if `Ledger.prepare` ran after the last change."""
    size = 0
    """Approximate bytes of the changes in the log."""
    time = 0
    """Log time of its frame (µs), once it is committed."""
    is_past = False
    """True if it reads a past snapshot and must not change anything."""
    blocked_by_lock = False
    """True if its commit was refused because of a priority lock; see `priority_lock.py`."""
    ignores_locks = False
    """True if its commit ignores priority locks, because no caller would retry it."""
    appends: Mapping[bytes, Append] = _NO_APPENDS
    """Appends by their counters."""
    derives: Sequence[Derive] = ()
    """Index builds in this transaction."""
    noted: list[Any] | None = None
    """Opaque notes of the current statement; see `note`."""
    _noted_bytes = 0
    scanned: Any = None
    """Collects the records that scans read, see `records.Scanned`; None: nothing does."""
    place: object = None
    """Namespace or database touched last."""
    touched: Collection[object] = ()
    """All touched namespaces and databases, see `touch`."""
    alive_until_us = 0
    """Earliest expiry (µs) of the cache keys on whose existence a change depends; 0: none.

    After that time, another client may have been answered that the key is gone, so the commit
    conflicts.
    """
    timed: dict[bytes, Callable[[bytes, int], bytes]] | None = None
    """Functions that make a key's final value from the written one and `time`; see `put_time`."""
    _view: EngineSnapshot | None = None
    _frozen: Sequence[WriteSet] = ()
    _folded = 0
    """Version of the changes by folds that the view has, see `MarkedRecords.version`."""
    _gone: dict[bytes, int]
    """Previous sequences of deleted records; exists from the first change on."""

    def _changing(self) -> WriteSet:
        """Return the write set for modification."""
        if self.own is UNCHANGED:
            self.own = WriteSet()
            self._gone = {}
        return self.own

    @property
    def now(self) -> datetime:
        """`now_us` as a datetime."""
        return instant(self.now_us)

    @property
    def ticket(self) -> CommitTicket:
        """Ticket of the newest pending commit that a read depended on."""
        return CommitTicket(self.saw, self._reads.generation)

    # --- reading --------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, and add the key to the read set.

        The value of a record begins with the sequence of its last committed change, also after this
        transaction itself has changed it.
        """
        own = self.own
        # Its own write hides the committed value, which is not read then.
        if own.writes and key in own.writes:
            return own.writes[key]
        if own.ranges:
            for start, end in own.ranges:
                if start <= key < end:
                    return self._added(key, None)
        self._reads.add_key(key)
        value = self._read_committed(key)
        return self._added(key, value) if self.adds else value

    def _added(self, key: bytes, value: bytes | None) -> bytes | None:
        if key in self.adds:
            return keys.pack_counter(keys.unpack_counter(value) + self.adds[key])
        return value

    def hint(self, key: bytes) -> bytes | None:
        """Return the approximate value of a key, without adding it to the read set.

        Use it to choose an access path, never as a result.
        """
        # The newest state, even for a paused transaction: an estimate needs no fixed one.
        return self._engine.get(key)

    def _read_committed(self, key: bytes) -> bytes | None:
        """Return the committed value of a key, without adding it to the read set."""
        # Paused: the frozen view. Otherwise the live state is still that of `sequence`.
        if self._view is not None:
            found = lookup(self._frozen, key) if self._frozen else None
            if found is None:
                return self._view.get(key)
        else:
            found = self._flight.get(key) if self._flight.write_sets else None
            if found is None:
                return self._engine.get(key)
        sequence, value = found
        if sequence > self.saw:
            self.saw = sequence
        return value

    def beneath(self, key: bytes) -> bytes | None:
        """Return the value of a key before this transaction's changes, in the form of `get`.

        None if this transaction deletes a range around it. The key is not added to the read set.
        """
        if any(start <= key < end for start, end in self.own.ranges):
            return None
        return self._read_committed(key)

    def is_unreleased(self, key: bytes) -> bool:
        """True if the value of a key came from a commit that was unreleased when this began.

        Unlike `get`, this does not add the key to the read set.
        """
        # All that it reads was released when it began.
        if self.sequence <= self.released:
            return False
        found = self._flight.get(key) if self._view is None else lookup(self._frozen, key)
        return found is not None and found[0] > self.released

    def none_of(self, wanted: Collection[bytes]) -> bool:
        """True if no key exists, and none was changed by this transaction or a pending commit.

        Then the engine alone decides, and all keys are added to the read set. False proves nothing
        about any of them. For keys that lie close together it costs about as much as for one.

        :param wanted: at least one key
        """
        if self.own.touches(wanted):
            return False
        if self._view is None:
            if self._flight.touches(wanted):
                return False
            get, now = self._engine.get, True
        else:
            if any(write_set.touches(wanted) for write_set in self._frozen):
                return False
            # A key that no commit has changed since the view was taken has the same value in both.
            get, now = self._view.get, self._state.conflicts.is_untouched(self._reads, wanted)
        # One seek for keys that lie close together; without its proof, each key is read.
        absent = now and self._engine.none_in(min(wanted), max(wanted) + b"\0")
        if absent or all(get(key) is None for key in wanted):
            self._reads.add_keys(wanted)
            return True
        return False

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        """Scan pairs with start <= key < end in key order, or reversed.

        The lists are never empty.

        The scan sees the state at this call: later changes, including this transaction's own, don't
        affect it.
        """
        if start >= end:
            return iter(())
        return self.scan_over(self.scan_applied(start, end, reverse), start, end, reverse)

    def scan_applied(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        """Scan the pairs that the engine has, without pending and own changes: see `scan_over`."""
        engine = self._engine if self._view is None else self._view
        return engine.scan(start, end, reverse)

    def scan_over(
        self, rows: Iterator[list[Any]], start: bytes, end: bytes, reverse: bool = False
    ) -> Iterator[list[Any]]:
        """Merge pending and own changes into the rows of a range, as `scan` does.

        :param rows: keys of `scan_applied`, with any values
        """
        # The whole range at once: a reader that stops early only risks a false conflict.
        self._reads.add_range(start, end)
        if self._view is not None:
            over = Overlay()
            # Oldest first: each write set lies over those before it.
            for write_set in reversed(self._frozen):
                over.lay(write_set, start, end)
        else:
            over = self._flight.overlay(start, end) if self._flight.write_sets else Overlay()
        if over.newest > self.saw:
            self.saw = over.newest
        # Last: its own changes lie over all committed ones.
        over.lay(self.own, start, end)
        for key in self.adds:
            if start <= key < end:
                over.put(key, self.get(key))
        return over.over(rows, reverse)

    def rows(self, start: bytes, end: bytes, tick: Tick) -> Iterator[Pair]:
        """Yield the pairs of `scan` one by one.

        :param tick: called for each, since there may be very many
        """
        for pairs in self.scan(start, end):
            for pair in pairs:
                tick()
                yield pair

    @property
    def projections(self) -> Projections:
        """Column projections of the records that the engine has."""
        return self._state.projections

    def marks(self, prefix: bytes) -> IndexMarks | None:
        """Return the fresh markers of an index in memory. None: not followed, or a fold has
        changed the index since the state that is read. :param prefix: of the markers"""
        state = self._state.marked
        found = state.indexes.get(prefix)
        folded = state.version if self._view is None else self._folded
        return found if found is not None and found.version <= folded else None

    @property
    def applied(self) -> int:
        """Sequence of the newest commit that the engine has."""
        return self._engine.applied

    def changed_over(self, start: bytes, end: bytes, most: int) -> set[bytes] | None:
        """Return the keys of a range that this transaction, or a commit that was pending when its
        view was taken, has changed. Adds the range to the read set.

        None if there are more than `most`, or a range was deleted.
        """
        self._reads.add_range(start, end)
        found: set[bytes] = set()
        write_sets = self._flight.write_sets if self._view is None else self._frozen
        for write_set in (*write_sets, self.own):
            if any(low < end and high > start for low, high in write_set.ranges):
                return None
            if write_set.writes:
                found.update(write_set.within(start, end))
                if len(found) > most:
                    return None
        return found

    def value_over(self, key: bytes) -> bytes | None:
        """Return the value of a key in a range that `changed_over` has added to the read set."""
        writes = self.own.writes
        return writes[key] if key in writes else self._read_committed(key)

    @property
    def reads(self) -> ReadSet:
        """Read set: all keys and ranges read so far below its own changes."""
        return self._reads

    # --- changing -------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key.

        :raises TooLarge: the transaction is over `limits.TRANSACTION_BYTES`
        """
        assert not keys.is_stamped(key), "what is stamped is put with put_record"
        self._write(key, value)
        # The absolute value replaces the increments so far.
        if self.adds:
            self.adds.pop(key, None)

    def put_time(self, key: bytes, make: Callable[[bytes, int], bytes]) -> None:
        """Have the value of a key completed at the commit, by its frame's log time.

        :param make: gets the written value and that time, which is later than that of any earlier
            frame. Not called if the key is not written
        """
        if self.timed is None:
            self.timed = {}
        self.timed[key] = make

    def delete(self, key: bytes) -> None:
        """Delete a key, which may be absent.

        :raises TooLarge:
        """
        assert not keys.is_stamped(key), "what is stamped is deleted with delete_record"
        self._write(key, None)
        if self.adds:
            self.adds.pop(key, None)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete all keys with start <= key < end.

        :raises TooLarge:
        """
        if start >= end:
            return
        # Effects encoded by `prepare` are stale after a change.
        self.prepared = None
        # The range covers single deletions inside it, which need no previous sequence any more.
        for key in self._changing().delete_range(start, end):
            self._gone.pop(key, None)
        for key in [key for key in self.adds if start <= key < end]:
            del self.adds[key]
        if keys.touches_catalog(start, end):
            self._declares()
        self._grow(len(start) + len(end) + _OVERHEAD_BYTES)

    def add(self, key: bytes, delta: int) -> None:
        """Add to a counter without reading it. Transactions that only add to it don't conflict.

        An absent counter counts as 0.

        :raises TooLarge:
        """
        own = self.own
        if key in own.writes:
            self._write(key, keys.pack_counter(keys.unpack_counter(own.writes[key]) + delta))
            return
        if key not in self.adds:
            self._changing()
            self._grow(len(key) + 8 + _OVERHEAD_BYTES)
        self.adds[key] = self.adds.get(key, 0) + delta

    def append(self, counter: bytes, prefix: bytes, bodies: Sequence[bytes]) -> Append:
        """Append values under the next numbers of a counter, in keys that begin with `prefix`.

        Their heads are added here; the numbers are final at the commit: see `appends.py`.
        Transactions that only append don't conflict.

        :raises TooLarge:
        """
        append = self.appends.get(counter)
        if append is None:
            # Not in the read set: the commit renumbers instead of a conflict.
            append = Append(counter, prefix, self._read_committed(counter), self.now_us)
            # A new mapping: all transactions share the empty one.
            self.appends = {**self.appends, counter: append}
        self.put_new(append.add(bodies))
        self._write(counter, append.row)
        return append

    def mark(self, append: Append, number: int, mark: Mark) -> None:
        """Put rows that depend on the final number of an appended value.

        :raises TooLarge:
        """
        self.put_new(append.mark(number, mark))

    def appended(self, counter: bytes, exactly: bool = True) -> bytes | None:
        """Return the value of an append counter, including this transaction's own appends.

        :param exactly: False: don't add it to the read set, as the result's use is valid whatever
            others append
        """
        append = self.appends.get(counter)
        if exactly:
            self._reads.add_key(counter)
        return self._read_committed(counter) if append is None else append.row

    def put_new(self, rows: Mapping[bytes, bytes]) -> None:
        """Set many keys that this transaction has not changed.

        :raises TooLarge:
        """
        assert not self._reads.ended, "a transaction that has ended was written to"
        self._changing().write_all(rows)
        self.prepared = None
        self._grow(sum(map(len, rows)) + sum(map(len, rows.values())) + _OVERHEAD_BYTES * len(rows))

    def undo_writes(self, start: bytes, end: bytes) -> None:
        """Undo this transaction's own writes in a range."""
        own = self._changing()
        for key in own.within(start, end):
            value = own.writes[key]
            own.forget(key)
            self.size -= len(key) + (0 if value is None else len(value)) + _OVERHEAD_BYTES
        self.prepared = None

    def derive(self, entries: bytes, start: bytes, end: bytes) -> None:
        """Record an index build: its entries for records from `start` to `end` have been put.

        The frame names only this range, and replay derives the entries again.

        :param entries: key prefix of the entries
        """
        self.derives = (*self.derives, Derive(entries, start, end))

    def fold(self, rows: Mapping[bytes, bytes]) -> WriteSet:
        """Add rows that the frame itself implies, without effects. Return the write set of all
        changes.

        Called by the ledger at the commit.
        """
        own = self._changing()
        for key, row in rows.items():
            own.write(key, row)
            self.size += len(key) + len(row)
        return own

    def put_all(self, rows: Mapping[bytes, bytes]) -> None:
        """Set many keys that are no counters and not stamped.

        :raises TooLarge:
        """
        if self.own.writes.keys().isdisjoint(rows):
            self.put_new(rows)
        else:
            for key, value in rows.items():
                self._write(key, value)

    def delete_all(self, gone: Sequence[bytes]) -> None:
        """Delete many keys that are no counters and not stamped.

        :raises TooLarge:
        """
        assert not self._reads.ended, "a transaction that has ended was written to"
        self._changing().write_all(dict.fromkeys(gone))
        self.prepared = None
        self._grow(sum(map(len, gone)) + _OVERHEAD_BYTES * len(gone))

    def put_record(self, key: bytes, fields: bytes, previous: int) -> None:
        """Set a record, or another key with a stamped value.

        :param fields: its packed object, or other value
        :param previous: sequence at the head of the value when it was read; 0: there was none
        :raises TooLarge:
        """
        if self.own is not UNCHANGED:
            # Deleted and put again is one change: the sequence before the deletion counts.
            previous = self._gone.pop(key, previous)
        self._write(key, previous.to_bytes(SEQUENCE_BYTES, "big") + fields)

    def note(self, note: object, size: int) -> None:
        """Keep a note for the end of the statement, see `storage/records/change_notes.py`.

        :param size: bytes that it holds
        :raises TooLarge: the notes exceed `limits.TRANSACTION_BYTES`
        """
        self._noted_bytes += size
        if self._noted_bytes > limits.TRANSACTION_BYTES:
            raise too_large()
        if self.noted is None:
            self.noted = []
        self.noted.append(note)

    def take_noted(self) -> list[Any]:
        """Return and clear the notes since the last call, in order."""
        found, self.noted, self._noted_bytes = self.noted or [], None, 0
        return found

    def put_new_records(self, fields: dict[bytes, bytes]) -> None:
        """Create records, given by key, which `none_of` has shown to be absent.

        :raises TooLarge: as `put`
        """
        self.put_new({key: NEVER + packed for key, packed in fields.items()})

    def put_records(self, fields: dict[bytes, bytes], previous: Sequence[int]) -> None:
        """Replace many records, given by key, that were read before.

        :param previous: of each, as in `put_record`
        :raises TooLarge: as `put`
        """
        own = self._changing()
        if self._gone or not own.writes.keys().isdisjoint(fields):
            # This transaction may have written one of them already.
            for (key, packed), sequence in zip(fields.items(), previous, strict=True):
                self.put_record(key, packed, sequence)
            return
        self.put_new({
            key: sequence.to_bytes(SEQUENCE_BYTES, "big") + packed
            for (key, packed), sequence in zip(fields.items(), previous, strict=True)
        })  # fmt: skip

    def delete_record(self, key: bytes, previous: int) -> None:
        """Delete a record that was read before.

        :param previous: as in `put_record`
        :raises TooLarge:
        """
        created = self.own.writes.get(key) if previous == 0 else None
        if created is not None:
            # Created by this transaction: creation and deletion cancel out.
            self.own.forget(key)
            self.prepared = None
            self.size -= len(key) + len(created) + _OVERHEAD_BYTES
            return
        self._changing()
        self._gone[key] = previous
        self._write(key, None)

    def delete_records(self, gone: Sequence[bytes], previous: Sequence[int]) -> None:
        """Delete many records that were read before.

        :param previous: of each, as in `put_record`
        :raises TooLarge:
        """
        own = self._changing()
        if 0 in previous or not own.writes.keys().isdisjoint(gone):
            # This transaction has written one of them already.
            for key, sequence in zip(gone, previous, strict=True):
                self.delete_record(key, sequence)
            return
        self._gone.update(zip(gone, previous, strict=True))
        self.delete_all(gone)

    def _write(self, key: bytes, value: bytes | None) -> None:
        assert not self._reads.ended, "a transaction that has ended was written to"
        own = self._changing()
        writes = own.writes
        grown = len(value) if value is not None else 0
        if key in writes:
            old = writes[key]
            grown -= len(old) if old is not None else 0
        else:
            grown += len(key) + _OVERHEAD_BYTES
        own.write(key, value)
        self.prepared = None
        if keys.is_catalog(key):
            self._declares().update(keys.declared(key))
        self._grow(grown)

    def _grow(self, count: int) -> None:
        self.size += count
        if self.size > limits.TRANSACTION_BYTES:
            raise too_large()

    def touch(self, place: object) -> None:
        """Record a namespace or database that the transaction touches, for its statement log entry.

        :param place: any hashable value; alternating between a few is cheap
        """
        if place is not self.place:
            self.place = place
            if not self.touched:
                self.touched = (place,)  # usually the only one, which saves hashing it
                return
            if not isinstance(self.touched, dict):
                self.touched = dict.fromkeys(self.touched)
            self.touched[place] = None

    # --- looking up declarations ----------------------------------------------------------------

    def known(self, at: Hashable) -> Any:
        """Return the cached result of a catalog look-up; None: look it up, and `remember` it.

        :param at: name of the look-up, chosen by the caller
        """
        found = self._mine.get(at) if self._mine else None
        if found is None:
            if self.own.catalog or self._reads.rolled_back:
                return None  # the shared cache does not match this transaction's catalog
            found = self._state.catalog_cache.get(at)
            # Valid only from a later commit on than this transaction reads.
            if found is None or found.since > self.sequence:
                return None
            # The declaration may be pending: the answer then waits for its release.
            since = found.since
            if since > self.released and since > self.saw and since > self._state.commit_index:
                self.saw = since
        self._looked.add(found)
        return found.value

    def remember(self, at: Hashable, value: T, *rests_on: bytes) -> T:
        """Cache the result of a catalog look-up until a declaration that it depends on changes.

        :param rests_on: the declared keys it depends on, as `keys.declared` returns them
        """
        catalog_cache = self._state.catalog_cache
        # Found with its own or with outdated declarations: not for other transactions.
        if self.own.catalog or self._reads.rolled_back or catalog_cache.since > self.sequence:
            made = self._mine[at] = CachedLookup(value, rests_on, self.sequence)
        else:
            made = catalog_cache.add(at, value, rests_on)
        self._looked.add(made)
        return value

    def rest_on(self, declared: bytes) -> None:
        """Make this transaction depend on a declaration, as a look-up would."""
        self._looked.add(CachedLookup(None, (declared,), self.sequence))

    @property
    def users_version(self) -> int:
        """Commit that last changed a user, as this transaction sees it.

        While it stays the same, no user has changed. A pending one counts as read.
        """
        version = self._state.catalog_cache.users_since
        if version > self.sequence or self.own.catalog or self._reads.rolled_back:
            return self.sequence
        if version > self._state.commit_index:
            self.saw = max(self.saw, version)
        return version

    def _declares(self) -> set[bytes]:
        """Mark declarations as changed; this transaction's own cached look-ups are void."""
        self._mine.clear()
        return self._changing().declares()

    # --- yielding control -----------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """True if this transaction reads a frozen view."""
        return self._view is not None

    def pause(self) -> None:
        """Freeze the view that is read. Call before yielding control; cheap from the second time
        on."""
        if self._view is None and not self._reads.ended:
            self._view, self._frozen = self._state.freeze(self._reads)
            self._folded = self._state.marked.version

    def first_effects(self) -> list[Effect]:
        """Return the effects at the head of its frame: range deletes and index builds."""
        return [
            *((DELETE_RANGE, start, end) for start, end in self.own.ranges),
            *((DERIVE, *derive) for derive in self.derives),
        ]

    def late_keys(self) -> list[bytes]:
        """Return the keys whose values may change at the commit."""
        found = [key for key in self.timed or () if key in self.own.writes]
        for append in self.appends.values():
            found += append.late_keys(self.own)
        return found

    def previous(self, key: bytes) -> int:
        """Return the sequence of a record before this transaction deleted it."""
        return self._gone[key]

    def deleted(self, key: bytes) -> int:
        """Return the sequence as `previous` does; 0 if this transaction has not deleted the key."""
        return 0 if self.own is UNCHANGED else self._gone.get(key, 0)

    def release(self) -> None:
        """End without a commit. Idempotent."""
        if not self._reads.ended:
            self._reads.ended = True
            if self._view is not None:
                self._state.thaw(self._reads)
                self._view.close()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
