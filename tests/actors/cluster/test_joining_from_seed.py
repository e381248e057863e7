"""A node joins over a network of which messages are late and links break, on a disk that is cut off
its power at any of its operations, beside others who write. One number decides all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from actors.cluster import bootstrap, snapshot_transfer
from actors.cluster.bootstrap import Joiner
from actors.cluster.snapshot_transfer import SnapshotCopies
from actors.node import Node
from protocol import limits
from protocol.errors import SignInRefused
from protocol.links import VERSION, Hello, Redeem, Redeemed
from storage.backups import snapshot_file
from storage.backups.replica_copy import CopiedStore
from storage.catalog.join_tokens import JoinToken, TokenLocation
from storage.engine.engine import EngineReader
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.faults import CopyFailed, StoreMissing, StoreUnfinished
from storage.files.directory import StoreDirectory
from storage.files.joining_file import JoiningDirectory
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.txn.ledger import Ledger
from tests.actors import nodes
from tests.logbook import Logbook
from tests.simulation import loop as stepped
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import LoopClock, SeededRng
from tests.simulation.links import LinksModel, Weather
from tests.storage.backups.stores import PATH, StoreMachine

SEEDS = 25
LEADER, NEW = "n1.example:8002", "n2.example:8002"
PIN, OWN_PIN = "ab" * 32, "cd" * 32
TOKEN = JoinToken("n2.secret", TokenLocation([LEADER], PIN))


class Killed(BaseException):
    """The power is cut here."""


@dataclass
class JoinTotals:
    """What all seeds went through."""

    lives: int = 0
    links: int = 0
    goes_on: int = 0
    """Copies that were gone on with."""


def frames_hash(node: Node, upto: int) -> str:
    """The hash of what the log tells up to a commit."""
    log, clock = node.store.parts.log, node.environment.clock
    engine = MemoryEngine()
    ledger = Ledger(
        engine,
        LogEnd(upto, 1, 0, log.state.end.store_id),
        clock,
        SeededRng(1),
        _never,
        derived.kept,
    )
    for frame in log.reader.read(1, upto):
        ledger.replay(frame)
    return state_hash(engine)


def _never(_frame: object) -> None:
    raise AssertionError("nothing is committed")


class JoinWorld:
    """One of them."""

    def __init__(self, seed: int, figures: JoinTotals) -> None:
        self.chance = random.Random(seed)
        self.figures = figures
        weather = Weather((0.0001, 0.02), self.chance.choice((0.0, 0.02, 0.05)))
        self.model = LinksModel(seed, weather)
        self.machine = StoreMachine(
            SimulatedDisk({"": None, "/data": None}, sector=64), seed=self.chance.randrange(1 << 30)
        )
        self.known: set[str] = set()
        self.copied: CopiedStore | None = None

    async def run(self) -> None:
        """Let it happen."""
        clock = LoopClock(asyncio.get_running_loop())
        self.machine.clock = clock  # type: ignore[assignment]
        environment = nodes.simulated_environment(
            "stepped", SimulatedDisk(), MemoryEngine(), 7, clock
        )
        async with nodes.running(environment) as node:
            await nodes.prepare(node)
            await nodes.run(node, "FOR $n IN 0..120 { CREATE t:[$n] SET v = 'x'.repeat(500) }")
            self.serve(node)
            writing = asyncio.ensure_future(self.write(node))
            try:
                while self.copied is None:
                    self.figures.lives += 1
                    await self.life()
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
                self.copies.close()
                self.model.leave(LEADER)
            self.check(node)

    def serve(self, node: Node) -> None:
        """Give copies, and take one token."""
        self.copies: SnapshotCopies = snapshot_transfer.begin_copies(
            node.runtime, node.committer, node.reads, node.store, node.settings, node.environment,
            lambda begin: node._supervise(begin, refoldable=True),
        )  # fmt: skip
        store = node.store.id
        hello = Hello(VERSION, store, node.roles.node_id)

        async def redeem(asked: Redeem, fingerprint: str) -> Redeemed:
            if asked.token != "n2.secret" or (self.known and fingerprint not in self.known):
                raise SignInRefused("the join token is unknown, used or expired")
            self.known.add(fingerprint)
            return Redeemed(store, "n2", node.roles.node_id)

        async def accept(link: object) -> None:
            self.figures.links += 1
            await self.copies.accept(link)  # type: ignore[arg-type]

        def trusts(fingerprint: str) -> str | None:
            return "n2" if fingerprint in self.known else None

        self.model.node(LEADER, lambda: hello, PIN, trusts, accept, redeem)

    async def write(self, node: Node) -> None:
        """Others go on."""
        for n in range(1_000):
            await nodes.run(node, f"CREATE u:[{n}] SET v = {n}")
            await asyncio.sleep(self.chance.choice((0.001, 0.05, 1)))

    async def life(self) -> None:
        """A process that joins, until its power is cut or it has come to its end."""
        machine, disk = self.machine, self.machine.disk
        left = [self.chance.choice((self.chance.randrange(1, 40), self.chance.randrange(1, 200)))]

        def watch(_kind: str, _path: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                disk.watch = None
                self.images = list(disk.crash_point().images(3, self.chance))
                raise Killed

        disk.watch = watch
        world = machine.world
        try:
            with closing(JoiningDirectory.lock(PATH, world.fs, world.clock, world.rng)) as found:
                hello = Hello(VERSION, "", str(found.now.node))
                links = self.model.node(NEW, lambda: hello, OWN_PIN, lambda _: None, _nobody)
                self.figures.goes_on += found.now.parts is not None
                self.copied = await Joiner(found, links, world).join(TOKEN)
        except Killed:
            self.machine = machine.after_crash(self.chance.choice(self.images))
            self.machine.clock = machine.clock
            self.look()
        except CopyFailed:
            pass  # the links broke too often: it is told to go on
        finally:
            disk.watch = None
            if NEW in self.model.nodes:
                self.model.leave(NEW)

    def look(self) -> None:
        """What a cut has left is no store, or all of it."""
        world = self.machine.world
        try:
            directory = StoreDirectory.open(PATH, world.fs, world.clock, world.rng)
        except (StoreUnfinished, StoreMissing):
            return
        directory.close()
        opened = self.machine.opened()
        at = opened.log.reader.position_at(opened.log.state.last)
        node, hash = "?", opened.hash
        self.copied = CopiedStore(str(opened.directory.store_id), node, at, 0, hash)
        opened.close()

    def check(self, node: Node) -> None:
        """It is the store, at a commit that was released."""
        assert self.copied is not None
        at = self.copied.at.sequence
        assert at <= node.committer.commit_index
        store = self.machine.opened()
        assert str(store.directory.store_id) == node.store.id == self.copied.store
        assert store.hash == self.copied.hash == frames_hash(node, at)
        assert (store.log.state.first, store.log.state.last) == (at + 1, at)
        store.close()


async def _nobody(_link: object) -> None:
    raise AssertionError("nobody dials a node that joins")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, logbook: Logbook) -> None:
    """Parts are small, and synced often."""
    monkeypatch.setattr(snapshot_transfer, "PART_BYTES", 2_000)
    monkeypatch.setattr(limits, "BACKUP_SYNC_BYTES", 6_000)
    monkeypatch.setattr(bootstrap, "READ_BYTES", 1_500)
    for event in ("the copy failed", "a copy was refused", "a copy was given up"):
        logbook.allow(event)


def test_joining_from_a_seed(figure: Callable[[str, object], None]) -> None:
    found = JoinTotals()
    for seed in range(SEEDS):
        stepped.run(JoinWorld(seed, found).run(), seed, lambda: 0.0005)
    assert found.lives > 2 * SEEDS and found.goes_on > SEEDS // 2
    figure("R23 joins", f"{SEEDS} seeds, {found.lives} lives, {found.goes_on} gone on with; 0 half")


def test_a_planted_bug_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that leaves something out."""
    pieces = snapshot_file.pieces

    def some(view: EngineReader) -> Iterator[snapshot_file.SnapshotPiece]:
        found = list(pieces(view))
        yield from found[:-1]

    monkeypatch.setattr(snapshot_file, "pieces", some)
    with pytest.raises(AssertionError):
        for seed in range(5):
            stepped.run(JoinWorld(seed, JoinTotals()).run(), seed, lambda: 0.0005)
