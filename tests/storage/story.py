"""Random transactions against a plain dictionary.

A story opens several transactions, lets them read, scan, change, pause, commit and give up in any
order, with the log becoming durable bit by bit and the process dying now and then. The model holds
every state that any commit left behind, as a dictionary; from it follows what each read must
answer, what `saw` must say, which commits may be refused and which must be, and what every effect
in the log names as the change before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.errors import Conflict
from storage.formats import effects, keys
from storage.formats.effects import Attribution
from storage.formats.keys import Pair
from storage.txn.snapshots import PinnedSnapshot
from storage.txn.transaction import Transaction
from tests.storage.books import digests, is_part_settled
from tests.storage.engines import EngineHome
from tests.storage.ledger_story import LedgerStory

PLAIN = [keys.STORE_RANGE + b"\x40" + bytes((n,)) for n in range(25)]
COUNTERS = [keys.count(1, 1, n) for n in range(4)]
PREFIX = keys.record_prefix(1, 1, 1)
RECORDS = [keys.record(PREFIX, n) for n in range(12)]
ALL = sorted(PLAIN + COUNTERS + RECORDS)
BY = Attribution("ana", "wire test", "CREATE")

Model = dict[bytes, bytes]
Op = tuple[object, ...]


@dataclass
class CommitChange:
    """What a commit touched."""

    keys: set[bytes] = field(default_factory=set)
    ranges: list[tuple[bytes, bytes]] = field(default_factory=list)

    def touches(self, start: bytes, end: bytes) -> bool:
        return any(start <= key < end for key in self.keys) or any(
            low < end and start < high for low, high in self.ranges
        )


@dataclass
class Scan:
    """A scan under way and what it must still answer."""

    steps: Iterator[list[Pair]]
    expected: list[Pair]
    seen: list[Pair] = field(default_factory=list)


@dataclass
class RunningTransaction:
    """A transaction and what the model knows about it."""

    tx: Transaction
    base: Model
    view: Model
    floor: int
    """What was in the engine when its reads were decided: at the pause, or now."""
    ops: list[Op] = field(default_factory=list)
    cut: set[bytes] = field(default_factory=set)
    """Keys under its own range deletes."""
    reads: set[tuple[bytes, bytes]] = field(default_factory=set)
    saw: int = 0
    doomed: bool = False
    """Whether it reads from a commit that was taken back."""
    scans: list[Scan] = field(default_factory=list)


def after(base: Model, ops: list[Op], sequence: int) -> tuple[Model, CommitChange]:
    """A state after changes, made one by one, and what they touched."""
    state, change = dict(base), CommitChange()
    for op, key, *rest in ops:
        assert isinstance(key, bytes)
        if op == "range":
            (end,) = rest
            assert isinstance(end, bytes)
            state = {k: v for k, v in state.items() if not key <= k < end}
            change.keys = {k for k in change.keys if not key <= k < end}
            change.ranges.append((key, end))
            continue
        change.keys.add(key)
        if op == "add":
            (delta,) = rest
            assert isinstance(delta, int)
            state[key] = keys.pack_counter(keys.unpack_counter(state.get(key)) + delta)
        elif op == "delete":
            state.pop(key, None)
        else:
            (value,) = rest
            assert isinstance(value, bytes)
            state[key] = sequence.to_bytes(8, "big") + value if op == "record" else value
    for key in [key for key in change.keys if keys.is_record(key)]:
        covered = any(low <= key < high for low, high in change.ranges)
        if key not in state and (key not in base or covered):
            change.keys.discard(key)  # created and deleted again: the commit says nothing of it
    return state, change


class Story(LedgerStory):
    """Random history, decided by `seed`."""

    def __init__(self, seed: int, store: EngineHome | None = None, steps: int = 250) -> None:
        super().__init__(seed, store, steps)
        self.states: list[Model] = [{}]
        self.changes: list[CommitChange] = [CommitChange()]
        self.open: list[RunningTransaction] = []
        self.moments: list[PinnedSnapshot] = []
        self.current: RunningTransaction | None = None

    def run(self) -> None:
        acts = (
            [self._act] * 60
            + [self._durable] * 6
            + [self._begin] * 8
            + [self._moment] * 4
            + [self._crash, self._withdraw]
        )
        for _ in range(self.steps):
            self.random.choice(acts)()
            self.clock.advance(self.random.randrange(5))
        for running in list(self.open):
            self._take_turn(running)
            self._commit(running)
        self._end_moments()
        self.ledger.durable(self.ledger.state.committed, digests(self.frames))
        self._check_engine()
        self._check_replay()

    def give_up(self) -> None:
        for running in self.open:
            running.tx.release()
        self._end_moments()
        self.open.clear()
        self.current = None

    # --- whose turn it is -----------------------------------------------------------------------

    def _take_turn(self, running: RunningTransaction | None) -> None:
        """Another transaction gets its turn: the one that had it pauses, as it must."""
        if self.current is not None and self.current is not running:
            self._pause(self.current)
        self.current = running

    def _pause(self, running: RunningTransaction) -> None:
        if not running.tx.paused:
            running.floor = self.store.engine.applied
        running.tx.pause()

    def _begin(self) -> None:
        if len(self.open) >= 4:
            return
        self._take_turn(None)
        tx = self.ledger.begin_transaction()
        assert tx.sequence == len(self.states) - 1
        base = self.states[tx.sequence]
        self.current = RunningTransaction(tx, base, dict(base), self.store.engine.applied)
        self.open.append(self.current)

    def _act(self) -> None:
        if not self.open:
            self._begin()
        running = self.current
        if running is None or self.random.random() < 0.3:
            running = self.random.choice(self.open)
            self._take_turn(running)
        acts = (
            [self._get] * 6 + [self._scan] * 4 + [self._step_scan] * 3 + [self._put] * 4
            + [self._delete] * 2 + [self._delete_range, self._pause] + [self._add] * 2
            + [self._put_together, self._put_all] + [self._put_record] * 3
            + [self._delete_record] * 2 + [self._commit] * 2 + [self._release, self._prepare]
        )  # fmt: skip
        self.random.choice(acts)(running)

    # --- reading --------------------------------------------------------------------------------

    def _note(self, running: RunningTransaction, start: bytes, end: bytes) -> None:
        """A read of the base: remember it, and what it must have seen in flight."""
        running.reads.add((start, end))
        if running.doomed:
            return
        floor = running.floor if running.tx.paused else self.store.engine.applied
        for sequence in range(running.tx.sequence, floor, -1):
            if self.changes[sequence].touches(start, end):
                running.saw = max(running.saw, sequence)
                break
        assert running.tx.saw == running.saw, "what was seen in flight"

    def _get(self, running: RunningTransaction) -> None:
        self._read(running, self.random.choice(ALL))

    def _read(self, running: RunningTransaction, key: bytes) -> bytes | None:
        value = running.tx.get(key)
        assert value == running.view.get(key), "a point read"
        own = {op[1] for op in running.ops if op[0] not in ("range", "add")}
        if key not in own and key not in running.cut:
            self._note(running, key, key + b"\0")
        return value

    def _scan(self, running: RunningTransaction) -> None:
        low, high = sorted(self.random.choices([*ALL, b"\0\1", b"\xff"], k=2))
        reverse = self.random.random() < 0.4
        steps = running.tx.scan(low, high, reverse)
        inside = [pair for pair in running.view.items() if low <= pair[0] < high]
        scan = Scan(steps, sorted(inside, reverse=reverse))
        if low < high:
            self._note(running, low, high)
        running.scans.append(scan)
        if self.random.random() < 0.6:
            self._finish(running, scan)

    def _step_scan(self, running: RunningTransaction) -> None:
        if running.scans:
            scan = self.random.choice(running.scans)
            step = next(scan.steps, None)
            if step is None:
                self._finish(running, scan)
            else:
                assert step, "a step of a scan is never empty"
                scan.seen.extend(step)

    def _finish(self, running: RunningTransaction, scan: Scan) -> None:
        scan.seen.extend(pair for step in scan.steps for pair in step)
        assert scan.seen == scan.expected, "a scan"
        running.scans.remove(scan)

    def _moment(self) -> None:
        """Keep what is released now, or read in what was kept: it is as it was."""
        self._take_turn(None)
        if len(self.moments) < 2:
            self.moments.append(self.ledger.moment())
            assert self.moments[-1].sequence == self.ledger.state.commit_index
        moment = self.random.choice(self.moments)
        expected = self.states[moment.sequence]
        with moment.begin_transaction() as tx:
            key, reverse = self.random.choice(ALL), self.random.random() < 0.4
            assert tx.get(key) == expected.get(key), "a point read in a moment"
            seen = [pair for step in tx.scan(b"\0\1", b"\xff", reverse) for pair in step]
            assert seen == sorted(expected.items(), reverse=reverse), "a scan in a moment"
            assert tx.saw <= self.ledger.state.commit_index
            if self.random.random() < 0.2:
                self.moments.remove(moment)
                moment.end()  # while it is read
                assert tx.get(key) == expected.get(key), "a read in a moment that was let go"
        assert self.ledger.state.moments == set(self.moments)

    def _end_moments(self) -> None:
        for moment in self.moments:
            moment.end()
        self.moments.clear()

    # --- changing -------------------------------------------------------------------------------

    def _put(self, running: RunningTransaction) -> None:
        key = self.random.choice(PLAIN + COUNTERS)
        value = keys.pack_counter(self.random.randrange(100))
        running.tx.put(key, value)
        running.ops.append(("put", key, value))
        running.view[key] = value

    def _delete(self, running: RunningTransaction) -> None:
        key = self.random.choice(PLAIN + COUNTERS)
        running.tx.delete(key)
        running.ops.append(("delete", key))
        running.view.pop(key, None)

    def _delete_range(self, running: RunningTransaction) -> None:
        low, high = sorted(self.random.sample(ALL, 2))
        running.tx.delete_range(low, high)
        running.ops.append(("range", low, high))
        for key in ALL:
            if low <= key < high:
                running.view.pop(key, None)
                running.cut.add(key)

    def _add(self, running: RunningTransaction) -> None:
        key, delta = self.random.choice(COUNTERS), self.random.randrange(-3, 5)
        running.tx.add(key, delta)
        running.ops.append(("add", key, delta))
        running.view[key] = keys.pack_counter(keys.unpack_counter(running.view.get(key)) + delta)

    def _previous(self, running: RunningTransaction, key: bytes) -> int:
        """What the log must say was the change of a record before this one."""
        before = running.base.get(key)
        return 0 if before is None or key in running.cut else int.from_bytes(before[:8], "big")

    def _put_record(self, running: RunningTransaction) -> None:
        key, fields = self.random.choice(RECORDS), b"f%d" % self.random.randrange(100)
        found = self._read(running, key)
        running.tx.put_record(key, fields, int.from_bytes(found[:8], "big") if found else 0)
        running.ops.append(("record", key, fields))
        running.view[key] = self._previous(running, key).to_bytes(8, "big") + fields

    def _put_together(self, running: RunningTransaction) -> None:
        """Make records that are not there, if that can be told of all of them in one go."""
        # Rarely by chance: records of its own state that others have removed meanwhile.
        gone = [key for key in RECORDS if key in running.base and key not in self.states[-1]]
        some = gone if gone and self.random.random() < 0.5 else self._some(RECORDS)
        made = {key: b"t%d" % self.random.randrange(100) for key in some}
        if not running.tx.none_of(made):
            return
        assert made.keys().isdisjoint(running.view), "one of them is there"
        for key in made:
            self._note(running, key, key + b"\0")
        running.tx.put_new_records(made)
        running.ops += [("record", key, fields) for key, fields in made.items()]
        running.view |= {key: bytes(8) + fields for key, fields in made.items()}

    def _put_all(self, running: RunningTransaction) -> None:
        made = {key: keys.pack_counter(self.random.randrange(100)) for key in self._some(PLAIN)}
        running.tx.put_all(made)
        running.ops += [("put", key, value) for key, value in made.items()]
        running.view |= made

    def _some(self, choice: list[bytes]) -> list[bytes]:
        """A few that lie together, or anywhere."""
        count = self.random.randrange(1, 5)
        if self.random.random() < 0.5:
            return self.random.sample(choice, count)
        at = self.random.randrange(len(choice) - count)
        return choice[at : at + count]

    def _delete_record(self, running: RunningTransaction) -> None:
        key = self.random.choice(RECORDS)
        found = self._read(running, key)
        if found is not None:
            running.tx.delete_record(key, int.from_bytes(found[:8], "big"))
            running.ops.append(("delete", key))
            del running.view[key]

    def _prepare(self, running: RunningTransaction) -> None:
        since = self.changes[running.tx.sequence + 1 :]
        try:
            for _ in self.ledger.prepare(running.tx):
                pass
        except Conflict:
            lost = any(one.touches(*read) for one in since for read in running.reads)
            assert running.tx.paused and running.ops and lost, "a conflict without a reason"
            self.conflicts += 1
            self._release(running)

    # --- ending ---------------------------------------------------------------------------------

    def _release(self, running: RunningTransaction) -> None:
        for scan in list(running.scans):
            self._finish(running, scan)
        running.tx.release()
        self._forget(running)

    def _forget(self, running: RunningTransaction) -> None:
        self.open.remove(running)
        if self.current is running:
            self.current = None

    def _commit(self, running: RunningTransaction) -> None:
        for scan in list(running.scans):
            self._finish(running, scan)
        present, sequence = self.states[-1], len(self.states)
        state, change = after(present, running.ops, sequence)
        _, meant = after(running.base, running.ops, sequence)
        changes = bool(meant.keys or meant.ranges)
        since = self.changes[running.tx.sequence + 1 :]
        may = any(one.touches(*read) for one in since for read in running.reads)
        must = changes and any(
            _inside(running.base, *read) != _inside(present, *read) for read in running.reads
        )
        must = must or (changes and running.doomed)
        handed, paused = len(self.frames), running.tx.paused
        self._forget(running)
        try:
            wait = self.ledger.commit(running.tx, BY)
        except Conflict:
            assert paused and (may or running.doomed) and changes, "a conflict without a reason"
            assert len(self.frames) == handed, "a refused commit was handed over"
            self.conflicts += 1
            return
        assert not must, "a lost race went unnoticed"
        assert running.tx.reads.ended
        if not changes:
            assert wait.sequence == running.saw or running.doomed
            assert len(self.frames) == handed
            return
        assert not running.doomed, "a commit on top of one that was taken back"
        assert wait.sequence == sequence == self.ledger.state.committed
        self.states.append(state)
        self.changes.append(change)
        self.commits += 1
        self._check_frame(running, sequence)

    def _check_frame(self, running: RunningTransaction, sequence: int) -> None:
        frame = self.frames[-1]
        assert frame.sequence == sequence == len(self.frames)
        assert len(self.frames) == 1 or frame.time >= self.frames[-2].time
        assert frame.time <= self.ledger.log_time()
        commit = effects.decode(frame.body)
        assert commit.attribution == BY
        told = set()
        for op, key, *rest in commit.effects:
            told.add(key)
            assert keys.is_record(key) == (op in (effects.PUT_RECORD, effects.DELETE_RECORD)) or (
                op == effects.DELETE_RANGE
            )
            if op in (effects.PUT_RECORD, effects.DELETE_RECORD):
                assert rest[-1] == self._previous(running, key), "the chain of a record"
        change = self.changes[sequence]
        assert change.keys <= told

    # --- the log and the end --------------------------------------------------------------------

    def _durable(self) -> None:
        self._take_turn(None)
        upto = self.random.randint(self.ledger.synced_seq, self.ledger.state.committed)
        if self.random.random() < 0.6:
            self.ledger.durable(upto, digests(self.frames, upto))
            assert self.store.engine.applied == self.ledger.synced_seq == upto
        else:
            self.ledger.mark_durable(upto, digests(self.frames, upto))
            self.ledger.release(self.random.randint(self.ledger.state.commit_index, upto))
            for _ in range(self.random.randrange(4)):
                self.ledger.apply_next()
        if self.random.random() < 0.3:
            self.store.engine.flush()
        self._check_engine()

    def _check_engine(self) -> None:
        applied = self.store.engine.applied
        assert applied <= self.ledger.state.commit_index
        if is_part_settled(self.ledger):
            return  # only what lies over it makes it the state of any commit
        assert _content(self.store) == self.states[applied], "what is in the engine"

    def _withdraw(self) -> None:
        """The log has no room: what is not durable never happened."""
        self._take_turn(None)
        end = self.ledger.synced_seq
        self.ledger.roll_back()
        del self.frames[end:], self.states[end + 1 :], self.changes[end + 1 :]
        for running in self.open:
            running.doomed = running.doomed or running.tx.sequence > end
        assert self.ledger.state.committed == end

    def _crash(self) -> None:
        for running in list(self.open):
            running.scans.clear()
            running.tx.release()
        self.open.clear()
        self._end_moments()
        self.current = None
        end = self._die()
        del self.changes[end + 1 :]
        self._check_engine()


def _inside(state: Model, start: bytes, end: bytes) -> list[Pair]:
    return sorted(pair for pair in state.items() if start <= pair[0] < end)


def _content(store: EngineHome) -> Model:
    return {key: value for step in store.engine.scan(b"\0\1", b"\xff") for key, value in step}
