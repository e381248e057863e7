"""A small history with something of every kind, backups of each moment of it, and the stores that
are made of them on a simulated disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from storage.backups import log_file, snapshot_file
from storage.backups.restore import Restored, restore_log, restore_snapshot
from storage.backups.state_builder import RestoreEnvironment
from storage.catalog import places, spaces, tables, users
from storage.engine.engine import Engine, EngineSnapshot
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.files.directory import StoreDirectory
from storage.formats import keys
from storage.formats.container import BackupScope, SnapshotFacts
from storage.formats.frames import NO_DIGEST, Frame
from storage.formats.keys import Pair
from storage.formats.positions import LogPosition
from storage.formats.sealing import Key
from storage.indexes import derived
from storage.keyspace.keyspace import SpaceKeys
from storage.log.log import Log
from storage.records import index_builds, records
from storage.topics import groups, topics
from storage.topics.deliveries import expiry, fetch
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.messages import TopicMessages
from storage.txn import applied_position
from storage.txn.ledger import Ledger
from storage.txn.transaction import Transaction
from tests.simulation.disk import Image, SimulatedDisk
from tests.simulation.environment import ManualClock, SeededRng
from tests.storage.backups import held
from tests.storage.backups.held import HeldFile
from tests.storage.books import Book, put
from tests.storage.index_entries import all_differences, unfinished

PATH = "/data/store"
SECOND_US = 1_000_000
Work = Callable[[Transaction], object]


class CommitHistory:
    def __init__(self) -> None:
        self.book = Book()
        self.views: dict[int, EngineSnapshot] = {0: self.book.engine.snapshot()}
        _tell(self)

    @property
    def frames(self) -> list[Frame]:
        return self.book.frames

    @property
    def last(self) -> int:
        return len(self.book.frames)

    def build(self, most: int = 1_000) -> None:
        for _ in range(most):
            with self.book.begin_transaction() as tx:
                if not unfinished(tx):
                    return
            self.do(_build)

    def do(self, work: Work) -> None:
        """A commit, a while after the one before."""
        self.book.clock.advance(SECOND_US)
        with self.book.begin_transaction() as tx:
            work(tx)
            self.book.commit(tx)
        self.book.durable()
        self.views[self.last] = self.book.engine.snapshot()

    def clock_at_end(self) -> ManualClock:
        """A clock that says when it ended."""
        return ManualClock(self.book.clock.wall_us())

    def position_at(self, sequence: int) -> LogPosition:
        if sequence == 0:
            return LogPosition(0, 1, 0, NO_DIGEST)
        frame = self.frames[sequence - 1]
        return LogPosition(sequence, frame.epoch, frame.time, frame.digest())

    def hash(self, sequence: int) -> str:
        return state_hash(self.views[sequence])

    def snapshot(
        self, sequence: int, key: Key | None = None, place: BackupScope | None = None
    ) -> bytes:
        parts: list[bytes] = []
        facts = replace_facts(held.snapshot_facts(self.position_at(sequence)), place)
        steps = snapshot_file.write(
            self.views[sequence], facts, parts.append, SeededRng(sequence), key
        )
        held.finished(steps)
        return b"".join(parts)

    def log(self, first: int = 1, last: int | None = None, key: Key | None = None) -> bytes:
        """A log backup of a part of it."""
        last = self.last if last is None else last
        parts: list[bytes] = []
        facts = held.log_facts(last, self.position_at(first - 1))
        some = self.frames[first - 1 : last]
        held.finished(log_file.write(some, facts, parts.append, SeededRng(first), key))
        return b"".join(parts)


def replace_facts(facts: SnapshotFacts, place: BackupScope | None) -> SnapshotFacts:
    """The same of a place."""
    return SnapshotFacts(facts.version, facts.store, facts.created, facts.taken_us, facts.at, place)


# --- what happens ---------------------------------------------------------------------------------


def _main(tx: Transaction) -> places.Database:
    return places.database(tx, places.namespace(tx, "shop"), "main")


def _places(tx: Transaction) -> None:
    shop = places.define_namespace(tx, "shop")
    for name in ("main", "other"):
        database = places.define_database(tx, shop, name)
        for table in ("t", "plain"):
            tables.define_table(tx, database, table)
        spaces.define_space(tx, database, "cache")
        topics.define_topic(tx, database, "dead")
        topics.define_topic(tx, database, "mail", keep_us=3600 * SECOND_US)
    places.define_namespace(tx, "empty")
    users.define(tx, "ana", users.OWNER, "hash")


def _record(id: int, **fields: object) -> Work:
    def work(tx: Transaction) -> None:
        for name in ("main", "other"):
            database = places.database(tx, places.namespace(tx, "shop"), name)
            for each in ("t", "plain"):
                table = tables.table(tx, database, each)
                put(tx, table, id, {**fields, "in": name}, records.stored(tx, table, id))

    return work


def _index(name: str, *paths: str, unique: bool = False) -> Work:
    def work(tx: Transaction) -> None:
        table = tables.table(tx, _main(tx), "t")
        found = [(path,) for path in paths]
        index_builds.define_index(tx, table, name, found, unique=unique)

    return work


def _build(tx: Transaction) -> None:
    """One record of the first index that is not built."""
    for key in unfinished(tx)[:1]:
        index_builds.build_slice(tx, key, lambda: True)


def _rebuild(tx: Transaction) -> None:
    table = tables.table(tx, _main(tx), "t")
    index_builds.rebuild_index(tx, table, tables.index(table, "by_b"))


def _delete(tx: Transaction) -> None:
    table = tables.table(tx, _main(tx), "t")
    before = records.stored(tx, table, 3)
    assert before is not None
    records.delete(tx, table, 3, before)


def _keys(tx: Transaction) -> None:
    for name in ("main", "other"):
        database = places.database(tx, places.namespace(tx, "shop"), name)
        cache = SpaceKeys(tx, spaces.space(tx, database, "cache"))
        cache.set("stays", 1)
        cache.set("large", "x" * 20_000)
        cache.set("goes", "x", 60 * SECOND_US)
        cache.lock("job", "me", 30 * SECOND_US)


def _messages(tx: Transaction) -> None:
    for name in ("main", "other"):
        database = places.database(tx, places.namespace(tx, "shop"), name)
        mail = topics.topic(tx, database, "mail")
        groups.define_group(
            tx, mail, "g", deadline_us=5 * SECOND_US, deliveries=1, dead_letter="dead"
        )
        groups.define_group(tx, mail, "h", deadline_us=5 * SECOND_US, ordered=True)
        found = TopicMessages(tx, mail)
        found.define_reader("r")
        found.publish([{"n": n} for n in range(8)], key="k")
        found.commit_reader("r", 2)
        for _ in found.trim(3):
            pass


def _take(tx: Transaction) -> None:
    for name in ("main", "other"):
        database = places.database(tx, places.namespace(tx, "shop"), name)
        for group in groups.groups(tx, topics.topic(tx, database, "mail")):
            fetch.take(DeliveryIndex(tx, group), 3)


def _lapse(tx: Transaction) -> None:
    for name in ("main", "other"):
        database = places.database(tx, places.namespace(tx, "shop"), name)
        for group in groups.groups(tx, topics.topic(tx, database, "mail")):
            expiry.expire(DeliveryIndex(tx, group))


def _tell(history: CommitHistory) -> None:
    """Places, records with indexes of each kind that are built in many commits, one of them anew,
    keys that expire and locks, topics with groups, dead letters, users."""
    do, build_on = history.do, history.build
    do(_places)
    for n in range(7):
        do(_record(n, a=n % 3, b=f"v{n}", c=[n, "x"]))
    do(_index("by_a", "a"))
    build_on(2)
    do(_record(9, a=1, b="v9"))
    do(_record(0, a=5, b="v0"))
    build_on()
    do(_index("by_b", "b", unique=True))
    build_on(3)
    do(_record(6, a=1, b="other"))
    do(_delete)
    do(_index("by_ab", "a", "b"))
    build_on()
    do(_rebuild)
    build_on(2)
    do(_record(8, a=1, b="v8"))
    do(_record(1, a=1, b="v-1"))
    do(_keys)
    do(_messages)
    do(_take)
    history.book.clock.advance(10 * SECOND_US)
    do(_lapse)
    do(_take)
    build_on()
    do(_record(10, a=2, b="v10"))


# --- what is made of it ---------------------------------------------------------------------------


@dataclass
class StoreMachine:
    """A disk, a clock, and the states of the stores on it."""

    disk: SimulatedDisk = field(default_factory=lambda: SimulatedDisk({"": None, "/data": None}))
    clock: ManualClock = field(default_factory=ManualClock)
    engines: dict[str, MemoryEngine] = field(default_factory=dict)
    seed: int = 77
    accept_clock: bool = False
    key: Key | None = None
    """What the store on it is sealed with."""

    @property
    def world(self) -> RestoreEnvironment:
        rng = SeededRng(self.seed)
        accepts = self.accept_clock
        return RestoreEnvironment(
            self.disk,
            self.clock,
            rng,
            self.engine,
            lambda _path: MemoryEngine(),
            accept_clock=accepts,
            key=self.key,
        )

    def engine(self, path: str) -> MemoryEngine:
        """The state in a directory; an empty one where there are none of its files."""
        sign = f"{path}/CURRENT"
        if not self.disk.exists(sign):
            self.disk.open(sign, create=True).close()
            self.disk.sync_directory(path)
            self.engines[path] = MemoryEngine()
        return self.engines[path]

    def after_crash(self, image: Image) -> StoreMachine:
        """The machine as it comes up again: of its disk that is left, and of a state what was
        flushed."""
        disk = SimulatedDisk(image, sector=self.disk.sector)
        engines = {}
        for path, before in self.engines.items():
            engines[path] = engine = MemoryEngine()
            engine._version = engine._flushed = before._flushed
        clock = ManualClock(self.clock.wall_us())
        return StoreMachine(disk, clock, engines, self.seed + 1, key=self.key)

    def signature(self) -> int:
        """Equal of machines that go on alike: nothing else of one is told to a store on it."""
        states = [(path, held.applied, *everything(held)) for path, held in self.engines.items()]
        return hash((frozenset(self.disk.image().items()), tuple(states)))

    def restore(self, data: bytes, key: Key | None = None, upto: int | None = None) -> Restored:
        """Restore a backup of either form."""
        file = HeldFile(data)
        if data.startswith(b"STORSNAP"):
            return restore_snapshot(self.world, PATH, file, key)
        return restore_log(self.world, PATH, file, key, upto)

    def opened(self) -> Opened:
        """The store as a node opens it."""
        rng = SeededRng(3)
        directory = StoreDirectory.open(PATH, self.disk, self.clock, rng, key=self.key)
        log = Log.open(directory)
        engine: Engine = self.world.open_state(directory)
        found = applied_position.read(engine, directory.store_id.bytes)
        applied_position.require_joined(found, log.reader.digest_at)
        ledger = Ledger(
            engine, log.state.end, self.clock, SeededRng(4), lambda frame: None, derived.kept
        )
        return Opened(directory, log, engine, ledger)


@dataclass(frozen=True)
class Opened:
    directory: StoreDirectory
    log: Log
    engine: Engine
    ledger: Ledger

    def close(self) -> None:
        self.log.close()
        self.directory.close()

    @property
    def hash(self) -> str:
        return state_hash(self.engine)

    def differences(self) -> list[str]:
        """What indexes hold wrongly."""
        with self.ledger.begin_transaction() as tx:
            return all_differences(tx)

    def everything(self) -> list[Pair]:
        """All pairs, those of indexes too."""
        return everything(self.engine)


def everything(view: EngineSnapshot | MemoryEngine) -> list[Pair]:
    """All pairs of a state."""
    return [pair for pairs in view.scan(*keys.EVERYTHING) for pair in pairs]


# --- crashes --------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


LAST = 4
"""Operations at the end of a piece of work that every part of a sweep cuts: there it is decided
whether it is done."""


def after_cuts(
    prepared: Callable[[], StoreMachine],
    work: Callable[[StoreMachine], object],
    per_point: int,
    seed: object,
    part: int = 0,
    of: int = 1,
) -> Iterator[StoreMachine]:
    """Cut a piece of work at its operations, and yield each different machine that a cut may leave.

    :param per_point: crash states of each operation
    :param of: one operation in so many is cut, and the last ones; `part` says which
    """
    chance, seen = random.Random(str(seed)), set[int]()

    def done(machine: StoreMachine, upto: int = -1) -> int:
        """Do it up to an operation, or to its end; how many there were."""
        count = 0

        def watch(_kind: str, _path: str) -> None:
            nonlocal count
            count += 1
            if count == upto:
                raise Killed

        machine.disk.watch = watch
        with suppress(Killed):
            work(machine)
        machine.disk.watch = None
        return count

    total = done(prepared())
    for at in range(1, total + 1):
        if at % of == part or total - at < LAST:
            machine = prepared()
            done(machine, at)
            for image in machine.disk.crash_point().images(per_point, chance):
                after = machine.after_crash(image)
                if (sign := after.signature()) not in seen:
                    seen.add(sign)
                    yield after
