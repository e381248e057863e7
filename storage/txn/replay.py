"""Replay of log frames into the state: at a start, and on a follower.

On a follower, which serves reads meanwhile, a frame becomes the write set that its commit was on
the leader (`FrameDecoder`), and is applied like a commit.

At a start no reads are served, and many frames go to the engine in one write. Index entries are
derived from all their records at once, as of before the first frame and after the last. A frame
that declares or builds an index, or range-deletes records or entries, gets a write of its own: its
effect on entries depends on the state right after it. So does a frame that the engine holds in
part.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from storage.engine.engine import Batch, Engine
from storage.formats import effects, keys
from storage.formats.effects import Attribution, Derive, Effect
from storage.formats.keys import SEQUENCE_BYTES
from storage.txn import steps as index_steps
from storage.txn.transaction import Transaction
from storage.txn.write_set import WriteSet, apply_effects

RECORDS_A_STEP: Final = 256
"""Records whose index entries are derived per step: about a millisecond of the loop."""
ENTRIES_A_STEP: Final = 4_096
_DECISIVE: Final = frozenset({keys.RECORD, keys.INDEX, keys.INDEX_ENTRY})
"""Tags whose range deletes affect index entries."""

Answer = TypeVar("Answer")
Get = Callable[[bytes], bytes | None]
"""Point read from the state before the frame."""


class RecordVersions(NamedTuple):
    """A record before and after, as stored with its stamp; None: it is absent."""

    key: bytes
    before: bytes | None
    after: bytes | None


class TableIndexes(Protocol):
    """The maintained indexes of one table, which derive their entries from its records."""

    def follow(
        self, changed: Sequence[RecordVersions], get: Get
    ) -> Generator[None, None, dict[bytes, bytes | None]]:
        """Return the index entries that change with some records, in the order to write them; None:
        delete. Runs in steps."""

    def of_range(self, tx: Transaction, derive: Derive) -> Iterator[None]:
        """Write the entries that an index build wrote. Runs in steps."""


IndexesOf = Callable[[Transaction, bytes], TableIndexes | None]
"""Returns the maintained indexes of the table with a record prefix; None: it has none."""


def needs_own_write(found: Iterable[Effect]) -> bool:
    """True if a frame needs a write of its own."""
    return any(
        effect[0] == effects.DERIVE
        or effect[1][keys.TAG_AT] == keys.INDEX
        or (effect[0] == effects.DELETE_RANGE and keys.touches(effect[1], effect[2], _DECISIVE))
        for effect in found
    )


def fold(found: Iterable[Effect], write_set: WriteSet) -> list[Derive]:
    """Fold a frame's effects into the write set of its commit, except for index entries.

    Return the index builds in the frame.
    """
    derives: list[Derive] = []
    writes: dict[bytes, bytes | None] = {}
    for effect in found:
        op, key = effect[0], effect[1]
        if op == effects.PUT_RECORD:
            # As on the leader: until the commit is applied, the stamp is of the change before.
            writes[key] = effect[3].to_bytes(SEQUENCE_BYTES, "big") + effect[2]
        elif op == effects.DERIVE:
            derives.append(Derive(*effect[1:]))
        elif op == effects.DELETE_RANGE:
            # Earlier writes first: the range delete drops those inside it.
            write_set.write_all(writes)
            writes.clear()
            write_set.delete_range(key, effect[2])
            if keys.touches_catalog(key, effect[2]):
                write_set.declares()
        else:
            writes[key] = effect[2] if op == effects.PUT else None
            if keys.is_catalog(key):
                write_set.declares().update(keys.declared(key))
    write_set.write_all(writes)
    return derives


class FrameDecoder:
    """Decoder of frames into write sets, one after the other, with the index entries of each."""

    def __init__(self, derived: IndexesOf) -> None:
        self._derived = derived
        self._tables: dict[bytes, TableIndexes | None] = {}
        """Indexes of tables, by the key prefix of their records."""

    def fold(self, found: Iterable[Effect], tx: Transaction) -> Iterator[None]:
        """Make a frame's effects the changes of a transaction, in steps of about a millisecond.

        No other change may happen between the steps.
        """
        derives: list[Derive] = []
        effects_left = iter(found)
        while some := list(islice(effects_left, effects.EFFECTS_A_STEP)):
            derives += fold(some, tx.own)
            if len(some) == effects.EFFECTS_A_STEP:
                yield
        # After all effects: index entries follow from the final version of each record.
        yield from self._enter(tx, derives)

    def follow(self, body: bytes, tx: Transaction) -> Generator[None, None, Attribution]:
        """Decode a frame's body, and fold it as `fold` does. Return its attribution.

        :raises EffectsDamaged: the body is no commit
        """
        if len(body) <= effects.LONG_BYTES:
            commit = effects.decode(body)
            yield from self.fold(commit.effects, tx)
            return commit.attribution
        told = effects.decode_in_steps(body, lambda: None)
        # First comes the attribution without its entry; the complete one comes last.
        next(told)
        derives: list[Derive] = []
        some: list[Effect] = []
        while True:
            try:
                some.append(next(told))
            except StopIteration as end:
                who: Attribution = end.value
                break
            if len(some) == effects.EFFECTS_A_STEP:
                derives += fold(some, tx.own)
                some.clear()
                yield
        derives += fold(some, tx.own)
        yield from self._enter(tx, derives)
        return who

    def forget(self) -> None:
        """Drop the cached tables, since declarations may have changed."""
        self._tables.clear()

    def _enter(self, tx: Transaction, derives: list[Derive]) -> Iterator[None]:
        """Derive the index entries."""
        write_set = tx.own
        if write_set.catalog:
            # The frame may have declared or dropped an index.
            self.forget()
        tables: dict[bytes, list[bytes]] = {}
        for part in write_set.in_steps(RECORDS_A_STEP):
            for key, _ in part:
                if key[keys.TAG_AT] == keys.RECORD:
                    tables.setdefault(key[: keys.RECORD_PREFIX_BYTES], []).append(key)
            if len(part) == RECORDS_A_STEP:
                yield
        if len(write_set.writes) > RECORDS_A_STEP:
            yield from write_set.put_in_order(RECORDS_A_STEP)  # catalog look-ups scan it
        for prefix, records in tables.items():
            # Looked up in this transaction, so the frame's own declarations count.
            kept = self.kept(prefix, lambda: tx)
            if kept is not None:
                yield from _follow(kept, records, tx)
        for derive in derives:
            kept = self.kept(derive.start[: keys.RECORD_PREFIX_BYTES], lambda: tx)
            if kept is not None:
                yield from kept.of_range(tx, derive)
                write_set.entries = write_set.built = True

    def kept(self, prefix: bytes, begin: Callable[[], Transaction]) -> TableIndexes | None:
        """Return the indexes of a table, by the key prefix of its records; None if it has none."""
        if prefix not in self._tables:
            self._tables[prefix] = self._derived(begin(), prefix)
        return self._tables[prefix]


def _follow(kept: TableIndexes, records: list[bytes], tx: Transaction) -> Iterator[None]:
    """Write the index entries of records of one table: deletions first, then additions."""
    write_set, found = tx.own, dict[bytes, bytes | None]()
    for changed in _together(records, tx):
        entries = yield from kept.follow(changed, tx.beneath)
        for entry, holder in entries.items():
            # An entry that one record leaves may be taken by another: the addition wins.
            if holder is not None or found.get(entry) is None:
                found[entry] = holder
    write_set.entries = write_set.entries or bool(found)
    left = iter(found.items())
    while part := dict(islice(left, ENTRIES_A_STEP)):
        write_set.write_all(part)
        write_set.size += sum(map(len, part))
        if len(part) == ENTRIES_A_STEP:
            yield


def _together(records: list[bytes], tx: Transaction) -> Iterator[list[RecordVersions]]:
    """Yield records of one table before and after, as many as one step handles."""
    some: list[RecordVersions] = []
    size = 0
    for key in records:
        one = RecordVersions(key, tx.beneath(key), tx.own.writes[key])
        some.append(one)
        size += len(one.before or b"") + len(one.after or b"")
        if len(some) == RECORDS_A_STEP or size >= index_steps.TOGETHER_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def at_once(steps: Generator[None, None, Answer]) -> Answer:
    """Run a generator to its end and return its result; for use where no task waits."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


class Replay:
    """Frames replayed since the engine's last write, combined into one batch.

    :param begin: begins a transaction on the engine's contents
    """

    def __init__(
        self, engine: Engine, begin: Callable[[], Transaction], derived: IndexesOf
    ) -> None:
        self._engine = engine
        self._begin = begin
        self._batch: Batch = engine.batch()
        self._folding = FrameDecoder(derived)
        self._changed: dict[bytes, dict[bytes, bytes | None]] = {}
        """New values of changed records, by table prefix."""
        self._made: set[bytes] = set()
        """Keys of the changed records that did not exist before."""

    def add(self, found: list[Effect], sequence: int) -> bool:
        """Add a frame. True if it changed the catalog."""
        catalog = apply_effects(found, sequence, self._batch)
        # Index entries do not depend on the stamp, so zeros stand for it.
        stamp = bytes(SEQUENCE_BYTES)
        for effect in found:
            op, key = effect[0], effect[1]
            if op == effects.PUT_RECORD:
                self._note(key, stamp + effect[2], effect[3])
            elif op == effects.DELETE_RECORD:
                self._note(key, None, effect[2])
        return catalog

    def _note(self, key: bytes, value: bytes | None, previous: int) -> None:
        prefix = key[: keys.RECORD_PREFIX_BYTES]
        if key[keys.TAG_AT] != keys.RECORD or self._folding.kept(prefix, self._begin) is None:
            return
        records = self._changed.setdefault(prefix, {})
        # A record that this batch has deleted before is still in the engine.
        if previous == 0 and key not in records:
            self._made.add(key)
        records[key] = value

    def add_alone(self, found: list[Effect], sequence: int) -> bool:
        """Add a frame that needs a write of its own. Nothing may have been added since the last
        write."""
        assert not self._changed, "what stands alone was added to others"
        tx = self._begin()
        write_set = tx.own = WriteSet(sequence)
        for _ in self._folding.fold(found, tx):
            pass
        write_set.apply(self._batch)
        return write_set.catalog

    def take(self) -> Batch:
        """Return the batch of everything added, to be written at once."""
        batch, get = self._batch, self._engine.get
        for prefix, records in self._changed.items():
            kept = self._folding.kept(prefix, self._begin)
            assert kept is not None, "records without an index were noted"
            # The batch is not written yet: the engine has the versions before its first frame.
            changed = [
                RecordVersions(key, None if key in self._made else get(key), value)
                for key, value in records.items()
            ]
            for entry, holder in at_once(kept.follow(changed, get)).items():
                if holder is None:
                    batch.delete(entry)
                else:
                    batch.put(entry, holder)
        self._batch, self._changed, self._made = self._engine.batch(), {}, set()
        return batch

    def put(self, rows: dict[bytes, bytes]) -> None:
        """Put rows that a frame implies beside its effects."""
        for key, row in rows.items():
            self._batch.put(key, row)
