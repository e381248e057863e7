"""One transaction: what it reads, what it has read, and what it will change.

A transaction reads the state as of the commit `sequence`, through its own changes, the commits in
flight and the engine, in this order. It buffers its changes; `ledger.Ledger.commit` makes a commit
of them. Nothing here waits, and nothing looks at a clock: time and randomness come with it.

The invariant that makes reads true: as long as a transaction has not called `pause`, no commit may
happen beside it, so what is live is what it began with. One that is going to give control away
calls `pause` first. From then on it reads a frozen view, and at commit all it has ever read is
compared with what others committed since. Commits that only read are never refused: they have seen
one state of the store, as it was at one moment since they began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from protocol import limits
from protocol.errors import TooLarge
from protocol.values import Tick, instant
from storage import keys
from storage.appends import Append, Mark
from storage.effects import DELETE_RANGE, DERIVE, SEQUENCE_BYTES, Chunk, Derive, Effect
from storage.engine import Pair, View
from storage.layers import UNCHANGED, Layer, Overlay, lookup
from storage.lookups import Lookup
from storage.read_set import ReadSet
from storage.tickets import CommitTicket

if TYPE_CHECKING:
    from storage.announcing import Noted
    from storage.ids import RolledBackIds
    from storage.ledger import Ledger

T = TypeVar("T")

_NEVER: Final = bytes(SEQUENCE_BYTES)
"""The sequence before the first change of a record."""
_NO_APPENDS: Final[Mapping[bytes, Append]] = MappingProxyType({})
_OVERHEAD_BYTES: Final = 16
"""What an effect takes in a frame beside its key and value, at most."""


def too_large() -> TooLarge:
    """What a transaction that changes more than it may is refused with."""
    return TooLarge(
        f"a transaction changes at most {limits.TRANSACTION_BYTES} bytes",
        limit=limits.TRANSACTION_BYTES,
    )


class Transaction:
    """Made by `Ledger.begin`; ended by `Ledger.commit` or `release`, or by leaving a `with`."""

    def __init__(self, ledger: Ledger, sequence: int, now_us: int) -> None:
        self._ledger = ledger
        self._engine = ledger.engine
        self._flight = ledger.flight
        self._reads = reads = ReadSet()
        self._looked = reads.looked
        self._mine: dict[Hashable, Lookup] = {}
        """Those that others can't share."""
        self.sequence = sequence
        """The commit whose state is read."""
        self.generation = ledger.roll_backs.generation
        """That of the state it reads; see `CommitTicket`."""
        self.released = ledger.released_upto
        """The newest commit that anybody may have been shown when this began."""
        self.now_us = now_us
        """Log time at the beginning, microseconds since 1970: what `time::now()` says."""
        self.rng = ledger.rng
        self.adds: dict[bytes, int] = {}

    @property
    def store(self) -> str:
        """How the store's id begins, eight digits: of what clients keep to come back with."""
        return self._ledger.store

    @property
    def rolled_back_ids(self) -> RolledBackIds:
        """Ids of declarations that are not given again."""
        return self._ledger.rolled_back_ids

    # What a short one never changes stands here: most transactions read one record, and to make
    # them cost more than that.

    own = UNCHANGED
    """What it changes. A layer of its own from the first change on: `_changing`."""
    saw = 0
    """The highest sequence in flight that a read depended on; an answer waits until it is
    durable. 0: none. A paused transaction may name a later one than it strictly needs."""
    prepared: list[Chunk] | None = None
    """The changes as encoded effects, if `Ledger.prepare` was run after the last of them."""
    size = 0
    """Bytes that the changes will take in the log, about."""
    time = 0
    """Log time of its frame, once it is committed."""
    ended = False
    is_past = False
    """Whether it reads what was, and may change nothing."""
    barred = False
    """Whether its commit was refused for another's barrier; see `barriers.py`."""
    passes = False
    """Whether no barrier holds its commit back: for what nobody would run again."""
    appends: Mapping[bytes, Append] = _NO_APPENDS
    """By their counters."""
    derives: Sequence[Derive] = ()
    """What it has built of indexes."""
    noted: list[Noted] | None = None
    """What tables are to tell of, and have not yet; see `announcing.py`."""
    _noted_bytes = 0
    place: object = None
    """Of what it touches, the last."""
    touched: Collection[object] = ()
    """Of what it touches, all: see `touch`."""
    alive_until_us = 0
    """When the first expires of the cache keys whose change rests on their being there; 0: none
    does. Where that is over before the commit, others may have been told that the key is gone."""
    timed: dict[bytes, Callable[[bytes, int], bytes]] | None = None
    """How a value is made of what was written under a key and of `time`; see `put_time`."""
    _view: View | None = None
    _frozen: Sequence[Layer] = ()
    _gone: dict[bytes, int]
    """What it has deleted; there once it changes something."""

    def _changing(self) -> Layer:
        """The layer of its changes, to be changed."""
        if self.own is UNCHANGED:
            self.own = Layer()
            self._gone = {}
        return self.own

    @property
    def now(self) -> datetime:
        """`now_us` as a datetime."""
        return instant(self.now_us)

    @property
    def ticket(self) -> CommitTicket:
        """The newest commit in flight that a read depended on."""
        return CommitTicket(self.saw, self.generation)

    @property
    def withdrawn(self) -> bool:
        """Whether a commit it reads from was taken back; also of one that has ended."""
        roll_backs = self._ledger.roll_backs
        if self.generation == roll_backs.generation:
            return False
        return roll_backs.why(CommitTicket(self.sequence, self.generation)) is not None

    # --- reading --------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The value of a key.

        The value of a record begins with the sequence of its last committed change, also after
        this transaction itself has changed it.
        """
        own = self.own
        if own.writes and key in own.writes:
            return own.writes[key]
        if own.ranges:
            for start, end in own.ranges:
                if start <= key < end:
                    return self._added(key, None)
        self._reads.add_key(key)
        value = self._look(key)
        return self._added(key, value) if self.adds else value

    def _added(self, key: bytes, value: bytes | None) -> bytes | None:
        if key in self.adds:
            return keys.pack_counter(keys.unpack_counter(value) + self.adds[key])
        return value

    def hint(self, key: bytes) -> bytes | None:
        """About what a key holds. It is not remembered as read: to choose a way by, never an
        answer."""
        return self._engine.get(key)

    def _look(self, key: bytes) -> bytes | None:
        """The value of a key under this transaction's own changes, not remembered as read."""
        if self._view is not None:
            found = lookup(self._frozen, key) if self._frozen else None
            if found is None:
                return self._view.get(key)
        else:
            found = self._flight.get(key) if self._flight.layers else None
            if found is None:
                return self._engine.get(key)
        sequence, value = found
        if sequence > self.saw:
            self.saw = sequence
        return value

    def beneath(self, key: bytes) -> bytes | None:
        """The value of a key before this transaction changed anything, as `get` gives it; None
        where it deletes a range around it. It is not remembered as read."""
        if any(start <= key < end for start, end in self.own.ranges):
            return None
        return self._look(key)

    def is_unreleased(self, key: bytes) -> bool:
        """Whether what a key held when this began came from a commit that nobody had been shown.
        It is not remembered as read: what is read of the key is."""
        if self.sequence <= self.released:
            return False
        found = self._flight.get(key) if self._view is None else lookup(self._frozen, key)
        return found is not None and found[0] > self.released

    def none_of(self, wanted: Collection[bytes]) -> bool:
        """Whether none of some keys is there, and none was changed by this transaction or by a
        commit in flight: then nothing but the engine has had a say in it, and they count as read.
        False says nothing of any of them.

        About as quick for keys that lie close together as for one.

        :param wanted: at least one
        """
        if self.own.touches(wanted):
            return False
        if self._view is None:
            if self._flight.touches(wanted):
                return False
            get, now = self._engine.get, True
        else:
            if any(layer.touches(wanted) for layer in self._frozen):
                return False
            # What no commit has touched since the view was taken is in it as it is now.
            get, now = self._view.get, self._ledger.conflicts.is_untouched(self, wanted)
        absent = now and self._engine.none_in(min(wanted), max(wanted) + b"\0")
        if absent or all(get(key) is None for key in wanted):
            self._reads.add_keys(wanted)
            return True
        return False

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        """The pairs with start <= key < end in key order, or from the highest down, in lists that
        are never empty. What is seen is decided by this call: later changes, this transaction's
        own among them, don't disturb a scan that has been started."""
        if start >= end:
            return iter(())
        self._reads.add_range(start, end)
        if self._view is not None:
            over = Overlay()
            for layer in reversed(self._frozen):
                over.lay(layer, start, end)
            rows = self._view.scan(start, end, reverse)
        else:
            over = self._flight.overlay(start, end) if self._flight.layers else Overlay()
            rows = self._engine.scan(start, end, reverse)
        if over.newest > self.saw:
            self.saw = over.newest
        over.lay(self.own, start, end)
        for key in self.adds:
            if start <= key < end:
                over.put(key, self.get(key))
        return over.over(rows, reverse)

    def rows(self, start: bytes, end: bytes, tick: Tick) -> Iterator[Pair]:
        """The pairs of `scan` one by one. :param tick: called for each: there may be very many"""
        for pairs in self.scan(start, end):
            for pair in pairs:
                tick()
                yield pair

    @property
    def reads(self) -> ReadSet:
        """What it has looked at so far, of what is below its own changes."""
        return self._reads

    # --- changing -------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key. :raises TooLarge: the transaction is over `limits.TRANSACTION_BYTES`"""
        assert not keys.is_stamped(key), "what is stamped is put with put_record"
        self._write(key, value)
        if self.adds:
            self.adds.pop(key, None)

    def put_time(self, key: bytes, make: Callable[[bytes, int], bytes]) -> None:
        """Have a value made at the commit, of what is written under its key then, if anything is,
        and of the log time of the frame: later than that of any frame before."""
        if self.timed is None:
            self.timed = {}
        self.timed[key] = make

    def delete(self, key: bytes) -> None:
        """Remove a key; absent is fine. :raises TooLarge:"""
        assert not keys.is_stamped(key), "what is stamped is deleted with delete_record"
        self._write(key, None)
        if self.adds:
            self.adds.pop(key, None)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove every key with start <= key < end. :raises TooLarge:"""
        if start >= end:
            return
        self.prepared = None
        for key in self._changing().delete_range(start, end):
            self._gone.pop(key, None)
        for key in [key for key in self.adds if start <= key < end]:
            del self.adds[key]
        if keys.touches_catalog(start, end):
            self._declares()
        self._grow(len(start) + len(end) + _OVERHEAD_BYTES)

    def add(self, key: bytes, delta: int) -> None:
        """Add to a counter without reading it: transactions that only add to it don't conflict.
        An absent counter counts as 0. :raises TooLarge:"""
        own = self.own
        if key in own.writes:
            self._write(key, keys.pack_counter(keys.unpack_counter(own.writes[key]) + delta))
            return
        if key not in self.adds:
            self._changing()
            self._grow(len(key) + 8 + _OVERHEAD_BYTES)
        self.adds[key] = self.adds.get(key, 0) + delta

    def append(self, counter: bytes, prefix: bytes, bodies: Sequence[bytes]) -> Append:
        """Put values under the next numbers of a counter, in keys that begin with `prefix`. Their
        heads are added, and the numbers are final at the commit: see `appends.py`. Transactions
        that only append don't conflict. :raises TooLarge:"""
        append = self.appends.get(counter)
        if append is None:
            append = Append(counter, prefix, self._look(counter), self.now_us)
            self.appends = {**self.appends, counter: append}
        self.put_new(append.add(bodies))
        self._write(counter, append.row)
        return append

    def mark(self, append: Append, number: int, mark: Mark) -> None:
        """Put rows that say where an appended value went. :raises TooLarge:"""
        self.put_new(append.mark(number, mark))

    def appended(self, counter: bytes, exactly: bool = True) -> bytes | None:
        """What a counter of appended values holds, this transaction's own among them.

        :param exactly: False: what is done with it stays right whatever others append
        """
        append = self.appends.get(counter)
        if exactly:
            self._reads.add_key(counter)
        return self._look(counter) if append is None else append.row

    def put_new(self, rows: Mapping[bytes, bytes]) -> None:
        """Set many keys that this transaction has not changed. :raises TooLarge:"""
        assert not self.ended, "a transaction that has ended was written to"
        self._changing().write_all(rows)
        self.prepared = None
        self._grow(sum(map(len, rows)) + sum(map(len, rows.values())) + _OVERHEAD_BYTES * len(rows))

    def take_back(self, start: bytes, end: bytes) -> None:
        """Take back what this transaction itself has put between these keys, as if it had not."""
        own = self._changing()
        for key in own.within(start, end):
            value = own.writes[key]
            own.forget(key)
            self.size -= len(key) + (0 if value is None else len(value)) + _OVERHEAD_BYTES
        self.prepared = None

    def derive(self, entries: bytes, start: bytes, end: bytes) -> None:
        """The entries of an index, which begin with `entries`, have been put of the records from
        `start` to `end`, as they are after this transaction: its frame says no more of them."""
        self.derives = (*self.derives, Derive(entries, start, end))

    def fold(self, rows: Mapping[bytes, bytes]) -> Layer:
        """Set what comes of the frame of this transaction as it is, so that no effect has to say
        it: called by the ledger at the commit. Answers the layer of all its changes."""
        own = self._changing()
        for key, row in rows.items():
            own.write(key, row)
            self.size += len(key) + len(row)
        return own

    def put_all(self, rows: Mapping[bytes, bytes]) -> None:
        """Set many keys, which are no counters and not stamped. :raises TooLarge:"""
        if self.own.writes.keys().isdisjoint(rows):
            self.put_new(rows)
        else:
            for key, value in rows.items():
                self._write(key, value)

    def delete_all(self, gone: Sequence[bytes]) -> None:
        """Remove many keys, which are no counters and not stamped. :raises TooLarge:"""
        assert not self.ended, "a transaction that has ended was written to"
        self._changing().write_all(dict.fromkeys(gone))
        self.prepared = None
        self._grow(sum(map(len, gone)) + _OVERHEAD_BYTES * len(gone))

    def put_record(self, key: bytes, fields: bytes, previous: int) -> None:
        """Set a record, or another key whose value is stamped.

        :param fields: its packed object, or what else its value is
        :param previous: the sequence its value began with when it was read, 0 when there was none
        :raises TooLarge:
        """
        if self.own is not UNCHANGED:
            previous = self._gone.pop(key, previous)
        self._write(key, previous.to_bytes(SEQUENCE_BYTES, "big") + fields)

    def note(self, change: Noted) -> None:
        """Keep what a table is to tell of. :raises TooLarge: more than a transaction changes"""
        self._noted_bytes += len(change.before or b"") + len(change.after or b"")
        if self._noted_bytes > limits.TRANSACTION_BYTES:
            raise too_large()
        if self.noted is None:
            self.noted = []
        self.noted.append(change)

    def take_noted(self) -> list[Noted]:
        """What was noted since this was asked last."""
        found, self.noted, self._noted_bytes = self.noted or [], None, 0
        return found

    def put_new_records(self, fields: dict[bytes, bytes]) -> None:
        """Make records, their fields by their keys, all of which `none_of` says are not there.

        :raises TooLarge: as `put`
        """
        self.put_new({key: _NEVER + packed for key, packed in fields.items()})

    def delete_record(self, key: bytes, previous: int) -> None:
        """Remove a record that was read before, `previous` as in `put_record`. :raises TooLarge:"""
        created = self.own.writes.get(key) if previous == 0 else None
        if created is not None:
            # By this very transaction: nothing remains to be said.
            self.own.forget(key)
            self.prepared = None
            self.size -= len(key) + len(created) + _OVERHEAD_BYTES
            return
        self._changing()
        self._gone[key] = previous
        self._write(key, None)

    def _write(self, key: bytes, value: bytes | None) -> None:
        assert not self.ended, "a transaction that has ended was written to"
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
        """Remember that it has to do with a place. For what is kept of its commit: the place means
        nothing here, but can be hashed. Going to and fro between some costs no more than that."""
        if place is not self.place:
            self.place = place
            if not self.touched:
                self.touched = (place,)  # of most it stays the only one, which is not hashed
                return
            if not isinstance(self.touched, dict):
                self.touched = dict.fromkeys(self.touched)
            self.touched[place] = None

    # --- looking up declarations ----------------------------------------------------------------

    def known(self, at: Hashable) -> Any:
        """What a look-up has found that is remembered; None: look, and `remember`.

        :param at: which look-up; whoever makes it chooses a name for it
        """
        found = self._mine.get(at) if self._mine else None
        if found is None:
            if self.own.catalog or self.withdrawn:
                return None  # what it would find is not what the others see
            found = self._ledger.lookups.get(at)
            if found is None or found.since > self.sequence:
                return None
            since = found.since
            if since > self.released and since > self.saw and since > self._ledger.released_upto:
                self.saw = since
        self._looked.add(found)
        return found.value

    def remember(self, at: Hashable, value: T, *rests_on: bytes) -> T:
        """Remember what a look-up has found, for as long as none of what it rests on changes.

        :param rests_on: each as one of `keys.declared`
        """
        lookups = self._ledger.lookups
        if self.own.catalog or self.withdrawn or lookups.since > self.sequence:
            made = self._mine[at] = Lookup(value, rests_on, self.sequence)
        else:
            made = lookups.add(at, value, rests_on)
        self._looked.add(made)
        return value

    def rest_on(self, declared: bytes) -> None:
        """Let this transaction rest on a declaration as if it had looked it up."""
        self._looked.add(Lookup(None, (declared,), self.sequence))

    @property
    def users_version(self) -> int:
        """The commit that last changed any user, as this transaction sees it: as long as it is the
        same, every user is. One in flight counts among what the transaction saw."""
        version = self._ledger.lookups.users_since
        if version > self.sequence or self.own.catalog or self.withdrawn:
            return self.sequence
        if version > self._ledger.released_upto:
            self.saw = max(self.saw, version)
        return version

    def _declares(self) -> set[bytes]:
        """It changes declarations: what it has looked up may be otherwise for it now."""
        self._mine.clear()
        return self._changing().declares()

    # --- giving control away --------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether this transaction reads a frozen view."""
        return self._view is not None

    def pause(self) -> None:
        """Call before control is given away. Cheap from the second time on."""
        if self._view is None and not self.ended:
            self._view, self._frozen = self._ledger.freeze(self)

    def froze(self, layer: Layer) -> bool:
        """Whether it reads through a layer that was in flight when it paused."""
        return layer in self._frozen

    def first_effects(self) -> list[Effect]:
        """What its frame says before anything else: what goes by ranges, and what was built."""
        return [
            *((DELETE_RANGE, start, end) for start, end in self.own.ranges),
            *((DERIVE, *derive) for derive in self.derives),
        ]

    def late_keys(self) -> list[bytes]:
        """The keys of what may change at the commit."""
        found = [key for key in self.timed or () if key in self.own.writes]
        for append in self.appends.values():
            found += append.late_keys(self.own)
        return found

    def previous(self, key: bytes) -> int:
        """The sequence before a record's deletion by this transaction."""
        return self._gone[key]

    def deleted(self, key: bytes) -> int:
        """The sequence of a record that this transaction itself has deleted, as `previous`; 0: it
        has not."""
        return 0 if self.own is UNCHANGED else self._gone.get(key, 0)

    def release(self) -> None:
        """End without a commit. Ending twice is fine."""
        if not self.ended:
            self.ended = True
            if self._view is not None:
                self._ledger.thaw(self)
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
