"""Where transactions become commits, and commits become state.

    begin → commit → handed over to the log → durable → in the engine

A commit is one frame. It takes its sequence and becomes visible to every transaction that begins
after it at once, while the log is still writing it: it is *in flight*. When the log says it is
durable, it goes to the engine. The engine never holds what the log might lose, and an answer that
depended on something in flight (`Transaction.saw`) waits until that is durable.

Everything here happens on one thread and nothing waits, so a commit is atomic: between its
validation and its place in flight no other can slip in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from protocol import limits
from protocol.doors import Clock, Rng
from protocol.errors import Conflict
from storage import effects, keys
from storage.effects import SEQUENCE_BYTES, Attribution, Effect
from storage.engine import Batch, Engine, View
from storage.frames import Frame
from storage.keys import Range
from storage.layers import InFlight, Layer
from storage.transactions import Transaction

REPLAY_BATCH_BYTES: Final = 1 << 20
"""Bodies of frames replayed in one write of the engine."""


class StateUnusable(Exception):
    """State and log don't belong together: the one can't be brought up to the other."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the log ends."""

    sequence: int = 0
    epoch: int = 1
    time: int = 0
    """Log time of the last frame, microseconds since 1970."""


@dataclass(slots=True)
class Catalog:
    """Look-ups of declarations, remembered for as long as the catalog stays as it is."""

    since: int
    """The commit that brought the catalog to this."""
    entries: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Change:
    """Which keys a commit changed, for transactions that paused before it."""

    sequence: int
    keys: frozenset[bytes]
    ordered: list[bytes]
    ranges: list[Range]


class Ledger:
    """The commits of one store.

    :param engine: the state; it may lag behind the log, never lead it
    :param tail: where the log ends; what the engine lacks must be given to `replay`
    :param hand_over: takes each new frame, in order, on its way to the log. What it raises refuses
        the commit, as if it had not been tried.
    :raises StateUnusable: the engine stands beyond the end of the log
    """

    def __init__(
        self,
        engine: Engine,
        tail: Tail,
        clock: Clock,
        rng: Rng,
        hand_over: Callable[[Frame], None],
    ) -> None:
        if engine.applied > tail.sequence:
            raise StateUnusable(
                f"the state stands at {engine.applied}, beyond the end of the log at"
                f" {tail.sequence}: the log was cut or belongs to another state"
            )
        self.engine = engine
        self.rng = rng
        self.flight = InFlight()
        self.epoch = tail.epoch
        self._end = tail.sequence
        self._committed = engine.applied
        self._durable = engine.applied
        self._hand_over = hand_over
        self._clock = clock
        self._time = max(tail.time, clock.wall_us())
        self._ticks = clock.monotonic_us()
        self._frame_time = tail.time
        self._replaying: Batch | None = None
        self._replaying_bytes = 0
        self._catalog = Catalog(engine.applied)
        self._paused: dict[int, Transaction] = {}
        self._changes: deque[_Change] = deque()
        self._changed_keys = 0
        self._forgotten = 0
        self._orphaned: set[int] = set()

    # --- where things stand ---------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """The newest commit, durable or not."""
        return self._committed

    @property
    def durable_upto(self) -> int:
        """The newest commit known to be durable."""
        return self._durable

    @property
    def catalog_version(self) -> int:
        """Grows whenever a declaration changes: the sequence of the commit that changed it."""
        return self._catalog.since

    def log_time(self) -> int:
        """Microseconds since 1970 that never step back: the wall clock as it was at the start, or
        the end of the log if that is later, and the monotonic clock from then on."""
        ticks = self._clock.monotonic_us()
        if ticks > self._ticks:
            self._time += ticks - self._ticks
            self._ticks = ticks
        return self._time

    # --- start ----------------------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        """Fold a frame of the log into the engine. Frames come in order, from `committed` + 1.

        :raises EffectsDamaged: its body is no commit
        :raises StateUnusable: it is not the next one
        """
        if frame.sequence != self._committed + 1:
            raise StateUnusable(
                f"the state stands at {self._committed} and the log goes on at {frame.sequence}"
            )
        commit = effects.decode(frame.body)
        if self._replaying is None:
            self._replaying = self.engine.batch()
        if effects.apply(commit.effects, frame.sequence, self._replaying):
            self._catalog = Catalog(frame.sequence)
        self._committed = frame.sequence
        self._frame_time = max(self._frame_time, frame.time)
        self._replaying_bytes += len(frame.body)
        if self._replaying_bytes > REPLAY_BATCH_BYTES or frame.sequence >= self._end:
            self._replayed()

    def _replayed(self) -> None:
        if self._replaying is not None:
            self.engine.write(self._replaying, self._committed)
            self._replaying = None
            self._replaying_bytes = 0
        self._durable = self._committed

    # --- transactions ---------------------------------------------------------------------------

    def begin(self) -> Transaction:
        """A transaction on the present state."""
        assert self._committed >= self._end, "the log has not been replayed to its end"
        return Transaction(self, self._committed, self.log_time())

    def commit(self, tx: Transaction, attribution: Attribution) -> int:
        """Make the changes of a transaction a commit, and end it.

        :returns: the sequence that must be durable before anything is answered: its own; for one
            that changed nothing what it `saw`; 0 when there is nothing to wait for
        :raises Conflict: others have changed since what it read before or after it paused
        """
        assert not tx.ended, "a transaction is committed once"
        own = tx.own
        try:
            if id(tx) in self._orphaned:
                raise Conflict("a commit that this transaction had read was taken back")
            if not own.writes and not own.ranges and not tx.adds:
                return tx.saw if tx.saw > self._durable else 0
            if tx.paused:
                self._validate(tx)
            else:
                assert tx.sequence == self._committed, "control was given away without a pause"
            return self._commit(tx, attribution)
        finally:
            tx.release()

    def _commit(self, tx: Transaction, attribution: Attribution) -> int:
        own, sequence = tx.own, self._committed + 1
        for key, delta in tx.adds.items():
            base = None if _covered(own, key) else self._present(key)
            own.write(key, keys.pack_counter(keys.unpack_counter(base) + delta))
        body = effects.encode(attribution, _effects(tx, sequence))
        time = max(self._frame_time, self.log_time() if tx.paused else tx.now_us)
        self._hand_over(Frame(sequence, self.epoch, time, 0, body))
        own.sequence = sequence
        self.flight.add(own)
        self._committed = sequence
        self._frame_time = time
        if self._paused:
            self._remember(own)
        if own.catalog:
            self._catalog = Catalog(sequence)
        return sequence

    def _present(self, key: bytes) -> bytes | None:
        found = self.flight.get(key)
        return self.engine.get(key) if found is None else found[1]

    def durable(self, upto: int) -> None:
        """The log holds every commit up to this one: they go to the engine.

        :raises EngineFailed: they stay in flight; call again
        """
        layers = self.flight.upto(upto)
        if not layers:
            return
        batch = self.engine.batch()
        _gather(layers).apply(batch)
        upto = layers[-1].sequence
        self.engine.write(batch, upto)
        self.flight.drop(len(layers))
        self._durable = upto

    def withdraw(self) -> None:
        """The log took nothing of what is in flight: those commits never happened, and their
        sequences are given again. Transactions that may have read them end in Conflict."""
        durable = self._durable
        self.flight.drop(len(self.flight.layers))
        self._committed = durable
        if self._catalog.since > durable:
            self._catalog = Catalog(durable)
        while self._changes and self._changes[-1].sequence > durable:
            self._changed_keys -= len(self._changes.pop().keys)
        self._forgotten = min(self._forgotten, durable)
        self._orphaned.update(
            number for number, tx in self._paused.items() if tx.sequence > durable
        )

    # --- transactions that pause ----------------------------------------------------------------

    def freeze(self, tx: Transaction) -> tuple[View, list[Layer]]:
        """The state that `tx` reads, kept for it: the engine's part, and the layers over it with
        the newest first. From now on what others change is remembered until `thaw`."""
        assert tx.sequence == self._committed, "control was given away without a pause"
        self._paused[id(tx)] = tx
        return self.engine.snapshot(), list(reversed(self.flight.layers))

    def thaw(self, tx: Transaction) -> None:
        """A paused transaction has ended: forget what only it could ask for."""
        del self._paused[id(tx)]
        self._orphaned.discard(id(tx))
        oldest = min((other.sequence for other in self._paused.values()), default=self._committed)
        changes = self._changes
        while changes and changes[0].sequence <= oldest:
            self._changed_keys -= len(changes.popleft().keys)

    def _remember(self, layer: Layer) -> None:
        changed = frozenset(layer.writes)
        self._changes.append(_Change(layer.sequence, changed, sorted(changed), layer.ranges))
        self._changed_keys += len(changed)
        while self._changed_keys > limits.REMEMBERED_KEYS:
            oldest = self._changes.popleft()
            self._changed_keys -= len(oldest.keys)
            self._forgotten = oldest.sequence

    def _validate(self, tx: Transaction) -> None:
        if tx.used_catalog and self._catalog.since > tx.sequence:
            raise Conflict("the catalog changed while the transaction ran")
        if tx.sequence < self._forgotten:
            raise Conflict("the transaction ran for too long beside others that write")
        for change in reversed(self._changes):
            if change.sequence <= tx.sequence:
                break
            if tx.reads_changed(change.keys, change.ordered) or any(
                tx.reads_range_changed(start, end) for start, end in change.ranges
            ):
                raise Conflict("another commit changed what this transaction had read")

    def catalog_for(self, tx: Transaction) -> Catalog:
        """Where `tx` may remember what it looks up; see `Transaction.catalog`."""
        shared = self._catalog
        if shared.since > tx.sequence or tx.own.catalog:
            return Catalog(tx.sequence)
        if shared.since > self._durable:
            tx.saw = max(tx.saw, shared.since)
        return shared


def _effects(tx: Transaction, sequence: int) -> list[Effect]:
    """The effects of a transaction, its records now bearing the sequence of their change."""
    stamp = sequence.to_bytes(SEQUENCE_BYTES, "big")
    writes = tx.own.writes
    found: list[Effect] = [(effects.DELETE_RANGE, start, end) for start, end in tx.own.ranges]
    for key, value in writes.items():
        if key[keys.TAG_AT] != keys.RECORD:
            found.append((effects.DELETE, key) if value is None else (effects.PUT, key, value))
        elif value is None:
            found.append((effects.DELETE_RECORD, key, tx.previous(key)))
        else:
            fields = value[SEQUENCE_BYTES:]
            previous = int.from_bytes(value[:SEQUENCE_BYTES], "big")
            found.append((effects.PUT_RECORD, key, fields, previous))
            writes[key] = stamp + fields
    return found


def _gather(layers: list[Layer]) -> Layer:
    """The layers as one. What several of them wrote, a table's count above all, is written once."""
    if len(layers) == 1:
        return layers[0]
    together = Layer()
    for layer in layers:
        for start, end in layer.ranges:
            together.delete_range(start, end)
        together.writes.update(layer.writes)
    return together


def _covered(layer: Layer, key: bytes) -> bool:
    return any(start <= key < end for start, end in layer.ranges)
