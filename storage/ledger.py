"""Where transactions become commits, and commits become state.

    begin → commit → handed over to the log → durable → released → in the engine

A commit is one frame. It takes its sequence and becomes visible to every transaction that begins
after it at once, while the log is still writing it: it is *in flight*. It is *durable* when this
node's log holds it, and *released* when it may be shown, which on a node that stands alone is the
same moment. Then it goes to the engine. The engine never holds what might still be lost, and an
answer that depended on something in flight (`Transaction.saw`) waits until that is released.

Where another node leads, its frames are put in flight as its commits were there (`follow`), and
take the same way from there on.

Everything here happens on one thread and nothing waits, so a commit is atomic: between its
validation and its place in flight no other can slip in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from protocol.doors import Clock, Rng
from protocol.errors import Conflict
from storage import effects, keys, lineage, statements
from storage.barriers import Barrier
from storage.conflicts import Conflicts
from storage.effects import SEQUENCE_BYTES, Attribution, Effect
from storage.engine import Batch, Engine, View
from storage.frames import NO_DIGEST, Frame
from storage.histories import LogEnd
from storage.ids import RolledBackIds
from storage.layers import InFlight, Layer, apply_writes
from storage.lineage import Lineage
from storage.log_time import LogTime
from storage.lookups import Lookups
from storage.moments import Moment
from storage.replay import Folding, Replay, stands_alone
from storage.tickets import CommitTicket, RollBacks, Why, rolled_back
from storage.transactions import Transaction

REPLAY_BATCH_BYTES: Final = 1 << 20
"""Bodies of frames replayed in one write of the engine."""
SETTLE_KEYS: Final = 4_096
"""Keys that go to the engine in one step: about a millisecond of the loop."""
PREPARE_KEYS: Final = 2_048
"""Keys encoded in one step of `prepare`."""


class StateUnusable(Exception):
    """State and log don't belong together: the one can't be brought up to the other."""


class Ledger:
    """The commits of one store.

    :param engine: the state; it may lag behind the log, never lead it
    :param tail: where the log ends; what the engine lacks must be given to `replay`
    :param hand_over: takes each new frame, in order, on its way to the log. What it raises refuses
        the commit, as if it had not been tried.
    :raises StateUnusable: the engine stands beyond the end of the log
    :raises StateForeign: it holds another store's state
    """

    def __init__(
        self,
        engine: Engine,
        end: LogEnd,
        clock: Clock,
        rng: Rng,
        hand_over: Callable[[Frame], None],
    ) -> None:
        if engine.applied > end.sequence:
            raise StateUnusable(
                f"the state stands at {engine.applied}, beyond the end of the log at"
                f" {end.sequence}: the log was cut or belongs to another state"
            )
        self.engine = engine
        self.rng = rng
        self.flight = InFlight()
        self.store = end.store_id[:4].hex()
        """How its id begins."""
        self.epoch = end.next_epoch
        """Of the frames to come."""
        self._since = end.sequence + 1
        """The first commit of that epoch."""
        self._epochs: list[tuple[int, int]] = [(0, end.epoch)]
        """First commits and epochs of those before, as far as they are known."""
        self._end = end.sequence
        self._committed = engine.applied
        self._durable = engine.applied
        self._released = engine.applied
        self._settled = lineage.read(engine, end.store_id)
        self._digests: deque[bytes] = deque()
        """Of what is durable and not in the engine yet, in order."""
        self._hand_over = hand_over
        self._log_time = LogTime(clock, end.time)
        self._frame_time = self._settled_time = end.time
        self.roll_backs = RollBacks()
        self._following = False
        """Whether a commit of another node is being put in flight, which reads those before it."""
        self._replay = Replay(engine, lambda: Transaction(self, self._committed, self._frame_time))
        self._folding = Folding()
        self._replayed_last: Frame | None = None
        self._replaying_bytes = 0
        self.lookups = Lookups(engine.applied)
        self.rolled_back_ids = RolledBackIds()
        self._paused: dict[int, Transaction] = {}
        self.moments: set[Moment] = set()
        """Those that are kept, or still read."""
        self.heard: Callable[[Layer], None] | None = None
        """Hears of each commit as it goes in flight, whichever node has made it; None: nobody wants
        to. Short, and raises nothing."""
        self.conflicts = Conflicts()
        self.barrier: Barrier | None = None
        """The one that stands."""
        self._part_of: list[bytes] = []
        self._part_at = 0
        """Of a commit that is going to the engine in parts: its keys, and how many have gone."""
        self._gone: list[dict[bytes, bytes | None] | list[bytes]] = []
        """What large commits held that are in the engine: to be freed, a part at a time."""

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
    def released_upto(self) -> int:
        """The newest commit that may be shown; never beyond what is durable."""
        return self._released

    def epoch_at(self, sequence: int) -> int:
        """The epoch of a commit. :param sequence: not before the log's end at the start"""
        if sequence >= self._since:
            return self.epoch
        return next(epoch for first, epoch in reversed(self._epochs) if first <= sequence)

    @property
    def catalog_version(self) -> int:
        """Grows whenever a declaration changes: the sequence of the commit that changed it."""
        return self.lookups.since

    @property
    def users_version(self) -> int:
        """The same of users alone."""
        return self.lookups.users_since

    def log_time(self) -> int:
        """Microseconds since 1970: see `LogTime`."""
        return self._log_time.now()

    def follow_time(self, epoch: int, time: int) -> None:
        """What log time was for who leads in an epoch, when it was asked."""
        self._log_time.follows(epoch, max(time, self._frame_time))

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
        commit, replay, sequence = effects.decode(frame.body), self._replay, frame.sequence
        alone = self._settled.begun != NO_DIGEST or stands_alone(commit.effects)
        if alone:
            self._replayed()
        add = replay.add_alone if alone else replay.add
        if add(commit.effects, sequence):
            self.lookups = Lookups(sequence)
        replay.put(statements.rows(sequence, frame.time, commit.attribution))
        self._committed, self._replayed_last = sequence, frame
        self._frame_time = self._settled_time = max(self._frame_time, frame.time)
        self._replaying_bytes += len(frame.body)
        if alone or self._replaying_bytes > REPLAY_BATCH_BYTES or sequence >= self._end:
            self._replayed()

    def _replayed(self) -> None:
        """Bring to the engine what was replayed."""
        last, self._replayed_last = self._replayed_last, None
        if last is not None:
            stands = Lineage(self._settled.store_id, last.sequence, last.digest())
            self._write(self._replay.take(), stands)
            self._replaying_bytes = 0
            self._durable = self._released = self._committed

    def _write(self, batch: Batch, stands: Lineage) -> None:
        """Apply a batch, and note in it where and in which history that brings the state."""
        stands.note(batch)
        self.engine.write(batch, stands.sequence)
        self._settled = stands

    # --- transactions ---------------------------------------------------------------------------

    def begin(self) -> Transaction:
        """A transaction on the present state."""
        assert self._committed >= self._end, "the log has not been replayed to its end"
        return Transaction(self, self._committed, self.log_time())

    def moment(self) -> Moment:
        """What is released, kept for several transactions to read; whoever asks has to end it."""
        assert self._committed >= self._end, "the log has not been replayed to its end"
        return Moment(self)

    def commit(self, tx: Transaction, attribution: Attribution) -> CommitTicket:
        """Make the changes of a transaction a commit, and end it.

        :returns: the commit that must be released before anything is answered: its own; for one
            that changed nothing the newest that it saw
        :raises Conflict: others have changed since what it read before or after it paused; or it
            is `barred`, and may try again when `barrier` has gone
        """
        assert not tx.ended, "a transaction is committed once"
        try:
            if not (_changes_something(tx) or attribution.entry):
                return tx.ticket
            if self.barrier is not None and self.barrier.holds_back(tx):
                tx.barred = True
                raise Conflict("what it changes is kept still until another transaction has ended")
            if tx.paused:
                if 0 < tx.alive_until_us <= self.log_time():
                    raise Conflict("a key that it changes has expired meanwhile")
                self.conflicts.validate(tx)
            else:
                assert tx.sequence == self._committed, "control was given away without a pause"
            return CommitTicket(self._commit(tx, attribution), self.roll_backs.generation)
        finally:
            tx.release()

    def _commit(self, tx: Transaction, attribution: Attribution) -> int:
        own, sequence = tx.own, self._committed + 1
        now_us = self.log_time() if tx.paused else tx.now_us
        time = tx.time = max(self._frame_time + (tx.timed is not None), now_us)
        for append in tx.appends.values():
            append.settle(own, self._present(append.counter), time)
        if tx.timed is not None:
            for key, make in tx.timed.items():
                value = own.writes.get(key)
                if value is not None:
                    own.write(key, make(value, time))
        if tx.prepared is None:
            changes = [*tx.first_effects(), *_write_effects(tx, own.writes.items())]
            body = effects.encode(attribution, changes + self._sums(tx))
        else:
            late = _write_effects(tx, ((key, own.writes[key]) for key in tx.late_keys()))
            some = effects.encode_some(late + self._sums(tx))
            body = effects.join(attribution, [*tx.prepared, some])
        if attribution.entry is not None:
            own = tx.fold(statements.rows(sequence, time, attribution))
        self._hand_over(Frame(sequence, self.epoch, time, 0, body))
        own.sequence, own.size, own.built = sequence, tx.size, bool(tx.derives)
        self._put_in_flight(own, time, len(self._paused) > tx.paused)
        return sequence

    def _put_in_flight(self, layer: Layer, time: int, others_paused: bool) -> None:
        """:param others_paused: whether somebody else paused before this commit"""
        sequence = layer.sequence
        layer.time = time
        self.flight.add(layer)
        self._committed, self._frame_time = sequence, time
        if others_paused:
            self.conflicts.remember(layer)
        if layer.catalog:
            self.lookups.changed(sequence, layer.declared, layer.ranges)
            if self.lookups.users_since == sequence:
                self._end_moments()
        if self.heard is not None:
            self.heard(layer)

    def _end_moments(self) -> None:
        """Who may do what has changed: in a moment it is judged as it was then."""
        for moment in list(self.moments):
            moment.end()

    def follow(self, frame: Frame) -> Iterator[None]:
        """Put a commit of another node in flight, in steps of about a millisecond; with the last it
        is `committed`. In between control may be given away, and nobody else commits.

        :raises EffectsDamaged: its body is no commit
        """
        sequence = frame.sequence
        assert sequence == self._committed + 1, "frames are followed without a gap"
        self._following = True
        try:
            with Transaction(self, self._committed, frame.time) as tx:
                layer = tx.own = Layer(sequence)
                layer.size = len(frame.body)
                who = yield from self._folding.follow(frame.body, tx)
        finally:
            self._following = False
        layer.write_all(statements.rows(sequence, frame.time, who))
        if self._paused:
            yield from layer.put_in_order(PREPARE_KEYS)  # they are compared with what it changes
        if frame.epoch != self.epoch:
            self._begin_epoch(frame.epoch)
        self._put_in_flight(layer, max(self._frame_time, frame.time), bool(self._paused))
        self._log_time.reaches(frame.time)

    def lead(self, epoch: int) -> None:
        """What is committed from now on is this node's, of an epoch later than of any frame."""
        self._begin_epoch(epoch)
        self._log_time.leads(self._frame_time)

    def _begin_epoch(self, epoch: int) -> None:
        self._epochs.append((self._since, self.epoch))
        self._since, self.epoch = self._committed + 1, epoch

    def prepare(self, tx: Transaction) -> Iterator[None]:
        """Do before the commit of a transaction what takes long where it is large or has paused, in
        steps of about a millisecond: encode its changes, and compare what it has read with what
        others have committed since. Between the steps control may be given away, after a `pause`;
        nothing more may be changed.

        :raises Conflict: as `commit`
        """
        chunks = [effects.encode_some(tx.first_effects())]
        late = frozenset(tx.late_keys())
        for part in tx.own.in_steps(PREPARE_KEYS):
            rows = [row for row in part if row[0] not in late] if late else part
            chunks.append(effects.encode_some(_write_effects(tx, rows)))
            if len(part) == PREPARE_KEYS:
                yield
        if self.barrier is not None or len(self._paused) > tx.paused:
            yield from tx.own.put_in_order(PREPARE_KEYS)  # they are compared with what it changes
        tx.prepared = chunks
        if _changes_something(tx):
            yield from self.conflicts.compare(tx)

    def _sums(self, tx: Transaction) -> list[Effect]:
        """Counters that were added to, as what they now say: put, and told as effects."""
        found: list[Effect] = []
        for key, delta in tx.adds.items():
            base = None if _covered(tx.own, key) else self._present(key)
            value = keys.pack_counter(keys.unpack_counter(base) + delta)
            tx.own.write(key, value)
            found.append((effects.PUT, key, value))
        return found

    def _present(self, key: bytes) -> bytes | None:
        found = self.flight.get(key)
        return self.engine.get(key) if found is None else found[1]

    def durable(self, upto: int, digests: Sequence[bytes]) -> None:
        """The log holds every commit up to this one, and it may be shown: all goes to the engine.

        :param digests: as for `mark_durable`
        :raises EngineFailed: what it did not take stays in flight, and nothing is lost by that
        """
        self.mark_durable(upto, digests)
        self.release(upto)
        while self.settle():
            pass

    def mark_durable(self, upto: int, digests: Sequence[bytes]) -> None:
        """The log holds every commit up to this one: a full disk no longer takes it back.

        :param digests: of the last frames up to this one, those at least that are news
        """
        assert upto <= self._committed, "durable before it was committed"
        news = upto - self._durable
        if news > 0:
            assert len(digests) >= news, "a frame without its digest"
            self._digests.extend(digests[len(digests) - news :])
            self._durable = upto

    def release(self, upto: int) -> None:
        """Every commit up to this one may be shown. `settle` brings it to the engine, in steps
        that don't hold the loop for long."""
        assert upto <= self._durable, "what is not durable is not shown"
        self._released = max(self._released, upto)

    @property
    def may_settle(self) -> bool:
        """Whether `settle` would be done at once, and not wait for the disk in the engine."""
        return self.engine.takes_writes()

    def settle(self) -> bool:
        """Bring the next part of what is released to the engine; whether there is more to bring.

        A commit too large for one part stays in flight until its last part is written. A crash in
        between leaves the engine at the commit before, with some of this one's effects; replaying
        it from its beginning gives the same state, since effects are absolute, and what indexes
        hold is derived as if nothing had been there.

        :raises EngineFailed: this part is not in the engine and stays in flight
        """
        layers = self._next_part()
        if not layers:
            return self._let_go()
        if len(layers[0].writes) > SETTLE_KEYS:
            return self._settle_large(layers[0])
        batch = self.engine.batch()
        _apply_together(layers, batch)
        self._write_settled(batch, layers)
        return self._has_more()

    def _write_settled(self, batch: Batch, layers: list[Layer]) -> None:
        """Apply what brings the state to the end of these layers, and let them go."""
        count = len(layers)
        digest = self._digests[count - 1]
        self._write(batch, Lineage(self._settled.store_id, layers[-1].sequence, digest))
        self._settled_time = layers[-1].time
        for _ in range(count):
            self._digests.popleft()
        self.flight.drop(count)

    def _next_part(self) -> list[Layer]:
        """The oldest released layers that make one step, or one that is too large for it."""
        found: list[Layer] = []
        count = 0
        for layer in self.flight.layers:
            count += len(layer.writes) + len(layer.ranges)
            if layer.sequence > self._released or (found and count > SETTLE_KEYS):
                break
            if found and (layer.built or found[-1].built):
                break  # to put them together costs more than a write
            found.append(layer)
        return found

    def _settle_large(self, layer: Layer) -> bool:
        batch, begun, writes = self.engine.batch(), self._part_at, layer.writes
        if begun == 0:
            layer.apply_ranges(batch)
            self._part_of = list(layer.ordered() if layer.built else writes)  # its own: it is freed
        # Entries of indexes first: whoever replays the commit on top of a part of it takes for done
        # what a record has there when the record itself is (derived.py). So twice over all keys.
        count = len(self._part_of)
        at = begun if layer.entries else begun + count
        part = looked = self._part_of[at % count : at % count + SETTLE_KEYS]
        if layer.entries:
            first = at < count
            part = [key for key in looked if (key[keys.TAG_AT] == keys.INDEX_ENTRY) is first]
        apply_writes([(key, writes[key]) for key in part], layer.sequence, batch)
        if at + len(looked) < 2 * count:
            self._write(batch, self._settled._replace(begun=self._digests[0]))
            self._part_at += len(looked)
            return True
        self._write_settled(batch, [layer])
        readers: list[Transaction | Moment] = [*self._paused.values(), *self.moments]
        if not (self._following or any(one.froze(layer) for one in readers)):
            self._gone += [*layer.hollow(), self._part_of]
        self._part_at, self._part_of = 0, []
        return self._has_more()

    def _has_more(self) -> bool:
        return bool(self._gone) or bool(self._next_part())

    def _let_go(self) -> bool:
        """Free a part of what nobody reads any more: a million small objects at once would hold the
        loop for a tenth of a second. Whether there is more to do."""
        if self._gone:
            last = self._gone[-1]
            if isinstance(last, dict):
                for _ in range(min(SETTLE_KEYS, len(last))):
                    last.popitem()
            else:
                del last[-SETTLE_KEYS:]
            if not last:
                self._gone.pop()
        return self._has_more()

    def withdraw(self, upto: int | None = None, why: Why = rolled_back) -> None:
        """What is in flight behind a commit never happened, and its sequences will be given again:
        the log had no room for it, or another leads. Transactions that paused on top of it can't
        commit.

        :param upto: released, and durable; None: all that is durable stays
        :param why: makes the error for those who wait for what was rolled back
        """
        upto = self._durable if upto is None else upto
        assert self._released <= upto <= self._durable, "what was shown is not taken back"
        for _ in range(self._durable - upto):
            self._digests.pop()
        self.roll_backs.add(upto, why)
        for layer in self.flight.layers:
            if layer.sequence > upto:
                self.rolled_back_ids.add(layer)
        self.flight.keep(upto)
        self._committed = self._durable = upto
        left = self.flight.layers
        self._frame_time = left[-1].time if left else self._settled_time
        while self._since > upto + 1 and self._epochs:
            self._since, self.epoch = self._epochs.pop()
        self.conflicts.withdraw(upto)
        for tx in self._paused.values():
            tx.reads.compared = min(tx.reads.compared, upto)
        self.lookups.withdraw(upto)
        self._folding.forget()

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
        oldest = min((other.sequence for other in self._paused.values()), default=self._committed)
        self.conflicts.forget(oldest)


def _changes_something(tx: Transaction) -> bool:
    return bool(tx.own.writes or tx.own.ranges or tx.adds)


def _write_effects(tx: Transaction, writes: Iterable[tuple[bytes, bytes | None]]) -> list[Effect]:
    found: list[Effect] = []
    for key, value in writes:
        if key[keys.TAG_AT] == keys.INDEX_ENTRY:
            tx.own.entries = True
            continue  # see derived.py
        if key[keys.TAG_AT] not in keys.STAMPED:
            found.append((effects.DELETE, key) if value is None else (effects.PUT, key, value))
        elif value is None:
            found.append((effects.DELETE_RECORD, key, tx.previous(key)))
        else:
            previous = int.from_bytes(value[:SEQUENCE_BYTES], "big")
            found.append((effects.PUT_RECORD, key, value[SEQUENCE_BYTES:], previous))
    return found


def _apply_together(layers: list[Layer], batch: Batch) -> None:
    """Add several layers to a batch. What more than one of them wrote, a table's count above all,
    is written once."""
    if len(layers) == 1:
        layers[0].apply(batch)
        return
    together: dict[bytes, tuple[int, bytes | None]] = {}
    for layer in layers:
        for start, end in layer.ranges:
            for key in [key for key in together if start <= key < end]:
                del together[key]
            batch.delete_range(start, end)
        sequence = layer.sequence
        for key, value in layer.writes.items():
            together[key] = sequence, value
    for key, (sequence, value) in together.items():
        if value is None:
            batch.delete(key)
        elif key[keys.TAG_AT] in keys.STAMPED:
            batch.put(key, sequence.to_bytes(SEQUENCE_BYTES, "big") + value[SEQUENCE_BYTES:])
        else:
            batch.put(key, value)


def _covered(layer: Layer, key: bytes) -> bool:
    return any(start <= key < end for start, end in layer.ranges)
