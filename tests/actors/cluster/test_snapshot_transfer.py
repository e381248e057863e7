"""Copies over links: what is given, what goes wrong on the way, what is kept for how long."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actors.backups.files import BackupFilesActor
from actors.backups.folder import BackupFolder
from actors.backups.taking import StoreFacts
from actors.cluster import bootstrap, snapshot_transfer
from actors.cluster.bootstrap import DirectoryState, Joiner, place_of
from actors.cluster.durable_state import ClusterFileActor, CopyAnew
from actors.cluster.snapshot_transfer import SnapshotCopies
from actors.environment import SystemClock, SystemRng, system_environment
from actors.node import start
from actors.runtime import Supervised, ask, stop
from actors.settings import NodeSettings
from protocol import limits
from protocol.environment import Room
from protocol.errors import (
    CATALOGUE,
    AuditRefused,
    BadRequest,
    Busy,
    Conflict,
    DiskFull,
    LogPruned,
    NotEnoughReplicas,
    NotWritable,
    Refusal,
    SignInRefused,
    TooManyTries,
    UnknownOutcome,
    WrongKey,
)
from protocol.links import (
    Attach,
    Copy,
    CopyBegins,
    CopyEnds,
    Frames,
    LinkClosed,
    Message,
    Part,
    Peer,
    Refused,
)
from storage.backups.replica_copy import CopiedStore
from storage.backups.state_builder import RestoreEnvironment
from storage.catalog.join_tokens import JoinToken, TokenLocation
from storage.engine.memory import MemoryEngine
from storage.engine.rocksdb import RocksEngine
from storage.faults import CopyFailed, StoreNotSealed, StoreUnfinished
from storage.files import peer_file
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from storage.files.joining_file import CopySource, JoiningDirectory
from storage.files.peer_file import Identities, Identity
from storage.formats.positions import EpochEnd, whole_history
from storage.formats.sealing import Key, key_of
from tests.actors.cluster.wires import Alter, Door, WireEnd, as_it_is, linked
from tests.logbook import Logbook
from tests.nodes import Running, running
from tests.surfaces.peers.parts import identity

PIN = "ab" * 32
KEY, OTHER_KEY = key_of(bytes(range(32))), key_of(bytes(32))
FILL = """
    DEFINE TABLE t;
    FOR $n IN 0..300 { CREATE t:[$n] SET n = $n, text = 'TEXT' };
    DEFINE INDEX by_n ON t FIELDS n
""".replace("TEXT", "some text " * 30)
TOKEN = JoinToken("n2.secret", TokenLocation(["n1.example:8002"], PIN))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two tries; parts are small, so that there are many."""
    monkeypatch.setattr(bootstrap, "FIRST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(snapshot_transfer, "PART_BYTES", 4_000)
    monkeypatch.setattr(limits, "BACKUP_SYNC_BYTES", 16_000)


@dataclass
class CopyGiver:
    """A node that gives copies."""

    node: Running
    copies: SnapshotCopies
    served: list[Copy] = field(default_factory=list)

    async def accept(self, link: WireEnd) -> None:
        """A link that somebody has made."""
        wanted = await link.receive()
        assert isinstance(wanted, Copy)
        self.served.append(wanted)
        await self.copies.serve(link, wanted)

    @property
    def peer(self) -> Peer:
        node = self.node.node
        return Peer(node.roles.node_id, node.store.id, PIN, None)

    async def hash(self) -> str:
        """Of its state now."""
        found = await self.node.value("INFO FOR STATE")
        assert isinstance(found["hash"], str)
        return found["hash"]


def copies_of(node: Running, clock: Any = None) -> SnapshotCopies:
    """What gives the copies of a node."""
    found = node.node
    runtime, (directory, log, engine) = found.runtime, found.store.parts

    def files() -> Supervised[Any]:
        fs, folder = found.environment.fs, BackupFolder(found.environment.fs, None)
        key = found.settings.key
        return found._supervise(
            lambda: BackupFilesActor.start(
                runtime, fs, found.environment.rng, folder, directory.tmp_path, key, "copy"
            ),
            refoldable=True,
        )

    def history() -> Any:
        return whole_history(
            (EpochEnd(0, 3, bytes(16)),),
            EpochEnd(log.state.epoch, log.state.last, log.state.digest),
        )

    return SnapshotCopies(
        found.committer,
        found.reads,
        engine,
        StoreFacts(found.store.id, directory.created),
        files,
        clock or found.environment.clock,
        found.environment.rng.bytes,
        history,
    )


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[CopyGiver]:
    async with running(tmp_path / "leader") as node:
        await node.value(FILL)
        found = CopyGiver(node, copies_of(node))
        yield found
        found.copies.close()
        await asyncio.sleep(0)
        assert list((tmp_path / "leader" / "tmp").iterdir()) == []


@dataclass
class New:
    """A directory that joins."""

    path: Path
    leader: CopyGiver
    key: Key | None = None
    fs: Disk = field(default_factory=Disk)
    alter: Callable[[int], Alter] = lambda _: as_it_is
    door: Door = field(init=False)
    joiner: Joiner = field(init=False)
    told: list[tuple[str, int, int]] = field(default_factory=list)

    async def join(self, token: JoinToken | None = TOKEN) -> CopiedStore:
        """Come to the end of it, from wherever it is."""
        clock, rng = SystemClock(), SystemRng()
        path = str(self.path)
        world = RestoreEnvironment(
            self.fs,
            clock,
            rng,
            RocksEngine,
            lambda _: MemoryEngine(),
            lambda *what: self.told.append(what),
            key=self.key,
        )
        with closing(JoiningDirectory.lock(path, self.fs, clock, rng, self.key)) as found:
            own = Peer(str(found.now.node), "", "cd" * 32, None)
            before = getattr(self, "door", None)
            self.door = Door(own, self.leader.peer, self.leader.accept, self.alter)
            self.door.tokens.add("n2.secret")
            if before is not None:
                self.door.tokens, self.door.knows = before.tokens, before.knows
                self.door.lost = before.lost
            self.joiner = Joiner(found, self.door, world)
            try:
                return await self.joiner.join(token)
            finally:
                for link in self.door.links:
                    link.close()
                await asyncio.gather(*self.door.tasks)


def new(tmp_path: Path, leader: CopyGiver, name: str = "new", **fields: Any) -> New:
    return New(tmp_path / name, leader, **fields)


async def check(joined: New, copied: CopiedStore) -> None:
    """What is there is the store, and is served."""
    leader = joined.leader
    assert copied.store == leader.node.node.store.id
    assert place_of(Disk(), str(joined.path)) is DirectoryState.JOINED
    told = NodeSettings(str(joined.path), writes=False, key=joined.key)
    node = Running(await start(told, system_environment()))
    try:
        assert node.node.roles.node_id == copied.node != leader.node.node.roles.node_id
        assert (await node.value("INFO FOR STATE"))["hash"] == copied.hash
        assert await node.value("SELECT VALUE n FROM t WHERE n = 7") == [7]
    finally:
        await node.node.stop()


# --- what is given --------------------------------------------------------------------------------


async def test_a_copy_is_the_store(tmp_path: Path, leader: CopyGiver) -> None:
    there = await leader.hash()
    joined = new(tmp_path, leader)
    copied = await joined.join()
    assert copied.hash == there and copied.records == 300
    assert copied.at.sequence == leader.node.node.committer.commit_index
    (giving,) = leader.copies.given.values()
    assert giving.sent_bytes == joined.joiner.fetched_bytes
    assert joined.told[0][0] == "copying the store" and len(joined.told) > 20
    assert [what for what, _, _ in joined.told][-1] == "making the store"
    assert all(0 < done <= whole_history for _, done, whole_history in joined.told)
    await check(joined, copied)


async def test_others_write_while_it_is_given(tmp_path: Path, leader: CopyGiver) -> None:
    """It shows one commit that was released, and the log behind it is kept."""
    reads = leader.node.node.reads

    async def write() -> None:
        for n in range(40):
            await leader.node.value(f"CREATE t:[{1_000 + n}] SET n = 0")

    joined = new(tmp_path, leader)
    copied, _ = await asyncio.gather(joined.join(), write())
    at = copied.at.sequence
    assert at < leader.node.node.committer.commit_index
    (giving,) = leader.copies.given.values()
    assert giving.pin is not None and giving.pin.sequence == at + 1
    assert reads._pins.held == 1
    leader.copies.attached(copied.node)
    leader.copies.attached(copied.node)
    assert reads._pins.held == 0 and not leader.copies.given
    await check(joined, copied)


async def test_two_join_at_once(tmp_path: Path, leader: CopyGiver) -> None:
    both = [new(tmp_path, leader, name) for name in ("one", "two")]
    copies = await asyncio.gather(*(one.join() for one in both))
    assert copies[0].hash == copies[1].hash == await leader.hash()
    assert copies[0].node != copies[1].node
    for one, copied in zip(both, copies, strict=True):
        await check(one, copied)


async def test_no_more_than_a_few_at_once(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """One that was sent to its end gives way to another; the log behind it stays."""
    logbook.allow("a copy was refused")
    logbook.allow("the copy failed")
    monkeypatch.setattr(limits, "COPIES", 1)
    monkeypatch.setattr(limits, "JOIN_TRIES", 3)
    own, far = linked(Peer("some-node", "", "cd" * 32, None), leader.peer)
    serving = asyncio.ensure_future(leader.copies.serve(far, Copy()))
    assert isinstance(await own.receive(), CopyBegins)
    second = new(tmp_path, leader, "two")
    with pytest.raises(
        CopyFailed, match="failed 3 times, the last time with: Busy: too many copies"
    ):
        await second.join()
    while not isinstance(await own.receive(), CopyEnds):
        pass
    own.close()
    await serving
    await check(second, await second.join(None))
    assert [one.has_file for one in leader.copies.given.values()] == [False, True]
    assert leader.node.node.reads._pins.held == 2
    third, far = linked(Peer("some-node", "", "cd" * 32, None), leader.peer)
    serving = asyncio.ensure_future(leader.copies.serve(far, Copy(None)))
    assert isinstance(await third.receive(), CopyBegins)  # another one
    third.close()
    await serving


# --- what goes wrong on the way -------------------------------------------------------------------


def cut_after(count: int) -> Alter:
    """The link ends after so many parts."""
    left = [count]

    def alter(message: Message) -> Message | None:
        left[0] -= isinstance(message, Part)
        return message if left[0] >= 0 else None

    return alter


async def test_a_copy_is_gone_on_with(tmp_path: Path, leader: CopyGiver, logbook: Logbook) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    joined = new(tmp_path, leader, alter=lambda n: cut_after(3) if n < 6 else as_it_is)
    copied = await joined.join()
    assert len(joined.door.links) == 7
    assert len({asked.resume for asked in leader.served[1:]}) == 1
    offsets = [asked.offset for asked in leader.served]
    assert offsets == sorted(offsets) and offsets[1:] == sorted(set(offsets[1:]))
    (giving,) = leader.copies.given.values()
    size = next(
        whole_history for what, _, whole_history in joined.told if what == "copying the store"
    )
    assert joined.joiner.fetched_bytes == size  # nothing came twice
    assert giving.sent_bytes >= size
    await check(joined, copied)


async def test_another_process_goes_on_with_it(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    monkeypatch.setattr(limits, "JOIN_TRIES", 1)
    joined = new(tmp_path, leader, alter=lambda _: cut_after(11))
    with pytest.raises(CopyFailed, match="failed 1 times"):
        await joined.join()
    assert place_of(Disk(), str(joined.path)) is DirectoryState.JOINING
    fetched = joined.joiner.fetched_bytes
    joined.alter = lambda _: as_it_is
    copied = await joined.join(None)  # the token was used
    resumed = leader.served[-1]
    assert resumed.resume is not None and 0 < resumed.offset <= fetched
    size = resumed.offset + joined.joiner.fetched_bytes
    assert (
        size
        == [whole_history for what, _, whole_history in joined.told if what == "copying the store"][
            -1
        ]
    )
    await check(joined, copied)


async def test_what_is_there_is_read_once_and_when_somebody_has_the_rest(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """It may be large: neither for a node that is not there, nor again for each try."""
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    joined = new(tmp_path, leader, alter=lambda _: cut_after(11))
    with monkeypatch.context() as patch, pytest.raises(CopyFailed):
        patch.setattr(limits, "JOIN_TRIES", 1)
        await joined.join()
    there = leader.served[-1].offset + joined.joiner.fetched_bytes
    connect, read = Door.connect, bootstrap._Coming.read
    tries: list[str] = []
    happened: list[str] = []

    async def connected(door: Door, *whom: Any) -> WireEnd:
        tries.append("")
        if len(tries) < 4:
            raise LinkClosed("it is not there")
        happened.append("linked")
        return await connect(door, *whom)

    async def reads(coming: Any, known: int) -> None:
        happened.append(f"read {known}")
        await read(coming, known)

    monkeypatch.setattr(Door, "connect", connected)
    monkeypatch.setattr(bootstrap._Coming, "read", reads)
    joined.alter = lambda number: cut_after(2) if number < 3 else as_it_is
    copied = await joined.join(None)
    assert happened == ["linked", f"read {there}", *["linked"] * 3]
    await check(joined, copied)


async def test_a_copy_that_is_whole_needs_nobody(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ended between the last part and the store."""

    class Ended(BaseException):
        pass

    def end(_joiner: Joiner) -> CopiedStore:
        raise Ended

    joined = new(tmp_path, leader)
    with monkeypatch.context() as patch, pytest.raises(Ended):
        patch.setattr(Joiner, "_make", end)
        await joined.join()
    served = len(leader.served)
    copied = await joined.join(None)
    assert len(leader.served) == served and joined.joiner.fetched_bytes == 0
    await check(joined, copied)


@pytest.mark.parametrize("at", [0, 3, -1])
async def test_a_flipped_bit_is_refused(
    tmp_path: Path, leader: CopyGiver, logbook: Logbook, at: int
) -> None:
    """In the first part, in one in the middle, in the digest: all of it comes again."""
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    parts = [0]

    def flip(message: Message) -> Message | None:
        if isinstance(message, Part):
            parts[0] += 1
            if parts[0] == at + 1:
                data = message.data
                return Part(message.offset, data[:200] + bytes((data[200] ^ 1,)) + data[201:])
        if isinstance(message, CopyEnds) and at < 0:
            return CopyEnds(bytes(32))
        return message

    joined = new(tmp_path, leader, alter=lambda n: flip if n == 0 else as_it_is)
    copied = await joined.join()
    assert [asked.resume for asked in leader.served] == [None, None]
    assert copied.hash == await leader.hash()
    await check(joined, copied)


async def test_what_is_always_damaged_is_given_up(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")

    def spoil(message: Message) -> Message | None:
        return CopyEnds(bytes(32)) if isinstance(message, CopyEnds) else message

    monkeypatch.setattr(limits, "JOIN_TRIES", 3)
    joined = new(tmp_path, leader, alter=lambda _: spoil)
    with pytest.raises(CopyFailed, match="differs from the one that was sent"):
        await joined.join()
    assert place_of(Disk(), str(joined.path)) is DirectoryState.JOINING


async def test_another_snapshot_makes_progress_of_its_own(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """The node that had sent nearly all of the first is gone, and the links to the next are bad."""
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    monkeypatch.setattr(limits, "JOIN_TRIES", 3)
    joined = new(tmp_path, leader, alter=lambda n: cut_after(3 if n else 20))
    serve = leader.copies.serve

    async def serves(link: Any, asked: Copy) -> None:
        if len(leader.served) == 2:
            leader.copies.close()  # as another node would, it knows of no copy of that id
        await serve(link, asked)

    monkeypatch.setattr(leader.copies, "serve", serves)
    copied = await joined.join()
    assert len(leader.served) > 6
    await check(joined, copied)


async def test_snapshots_that_are_always_others_are_given_up(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    monkeypatch.setattr(limits, "JOIN_TRIES", 3)
    joined = new(tmp_path, leader, alter=lambda _: cut_after(3))
    serve = leader.copies.serve

    async def serves(link: Any, asked: Copy) -> None:
        leader.copies.close()
        await serve(link, asked)

    monkeypatch.setattr(leader.copies, "serve", serves)
    with pytest.raises(CopyFailed, match="failed 3 times"):
        await joined.join()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (lambda part: Part(part.offset + 1, part.data), "expected the part of the copy at"),
        (lambda part: Part(part.offset, part.data * 1_000), "expected the part of the copy at"),
        (lambda part: Attach([], 0, 0, 0), "received Attach instead of a part"),
        (lambda part: Refused("Failed", "it is broken"), "Failed: it is broken"),
        (lambda part: Refused("Draining", "it stops"), "Draining: it stops"),
    ],
)
async def test_what_should_not_come(
    tmp_path: Path,
    leader: CopyGiver,
    monkeypatch: pytest.MonkeyPatch,
    logbook: Logbook,
    what: Callable[[Part], Message],
    why: str,
) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    monkeypatch.setattr(limits, "JOIN_TRIES", 2)

    def alter(message: Message) -> Message:
        return what(message) if isinstance(message, Part) else message

    with pytest.raises(CopyFailed, match=why):
        await new(tmp_path, leader, alter=lambda _: alter).join()


async def test_nobody_waits_for_who_is_silent(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    monkeypatch.setattr(limits, "JOIN_TRIES", 2)
    monkeypatch.setattr(limits, "COPY_SILENT_SECONDS", 0)

    def silent(message: Message) -> Message:
        return Frames(0, 0)

    with pytest.raises(CopyFailed, match="the other node did not answer"):
        await new(tmp_path, leader, alter=lambda _: silent).join()


# --- tokens ---------------------------------------------------------------------------------------


async def test_a_token_that_opens_nothing(tmp_path: Path, leader: CopyGiver) -> None:
    joined = new(tmp_path, leader)
    with pytest.raises(SignInRefused, match="unknown, used or expired"):
        await joined.join(JoinToken("n2.other", TOKEN.where))
    with pytest.raises(BadRequest, match="start it with a join token"):
        await joined.join(None)
    await check(joined, await joined.join())


async def test_a_node_whose_row_has_gone(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was cut off")
    monkeypatch.setattr(limits, "JOIN_TRIES", 1)
    joined = new(tmp_path, leader, alter=lambda _: cut_after(2))
    with pytest.raises(CopyFailed):
        await joined.join()
    joined.door.knows.clear()
    with pytest.raises(CopyFailed, match="this node is no longer known"):
        await joined.join(None)


async def test_the_answer_to_a_token_is_lost(
    tmp_path: Path, leader: CopyGiver, logbook: Logbook
) -> None:
    """The node is trusted by then: it finds out."""
    logbook.allow("the copy failed")
    joined = new(tmp_path, leader)
    with pytest.raises(SignInRefused):
        await joined.join(JoinToken("n2.other", TOKEN.where))
    joined.door.lost = True
    copied = await joined.join()
    assert joined.door.tokens == set()
    await check(joined, copied)


async def test_a_leader_that_can_not_take_a_token_yet(
    tmp_path: Path, leader: CopyGiver, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("the copy failed")
    redeem, left = Door.redeem, 2 * [
        Busy, NotWritable, NotEnoughReplicas, UnknownOutcome, Conflict, AuditRefused, TooManyTries,
    ]  # fmt: skip
    monkeypatch.setattr(limits, "JOIN_TRIES", len(left) + 1)

    async def busy(door: Door, *asked: Any) -> Any:
        if left:
            raise left.pop()("later")
        return await redeem(door, *asked)

    monkeypatch.setattr(Door, "redeem", busy)
    joined = new(tmp_path, leader)
    await check(joined, await joined.join())


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [KEY, OTHER_KEY, None], ids=["same", "another", "none"])
async def test_a_sealed_store_is_copied_by_who_has_its_key(tmp_path: Path, own: Key | None) -> None:
    async with running(tmp_path / "leader", settings={"key": KEY}) as node:
        await node.value(FILL)
        leader = CopyGiver(node, copies_of(node))
        joined = new(tmp_path, leader, key=own)
        if own is KEY:
            copied = await joined.join()
            assert copied.hash == await leader.hash()
            for path in joined.path.rglob("*"):
                assert path.is_dir() or b"some text" not in path.read_bytes(), path
            await check(joined, copied)
        else:
            with pytest.raises(WrongKey, match="with the key file of the other nodes"):
                await joined.join()
            assert joined.joiner.fetched_bytes == 0
        leader.copies.close()
        await asyncio.sleep(0)


async def test_a_directory_that_was_begun_with_another_key(tmp_path: Path) -> None:
    """Of a leader of an earlier version, which takes the token from whoever brings it: nothing is
    lost by coming with a third key, and what helps is said."""
    async with running(tmp_path / "leader", settings={"key": KEY}) as node:
        await node.value(FILL)
        leader = CopyGiver(node, copies_of(node))
        joined = new(tmp_path, leader, key=OTHER_KEY)
        with pytest.raises(WrongKey, match="with the key file of the other nodes"):
            await joined.join()
        before = (joined.path / "JOINING").read_bytes()
        for key in (KEY, None):
            joined.key = key
            with pytest.raises(WrongKey, match="use an empty directory"):
                await joined.join()
        assert (joined.path / "JOINING").read_bytes() == before
        leader.copies.close()
        await asyncio.sleep(0)


async def test_who_forgot_the_key_comes_again_with_it(tmp_path: Path) -> None:
    """The token was used by then: the leader is one of an earlier version."""
    async with running(tmp_path / "leader", settings={"key": KEY}) as node:
        await node.value(FILL)
        leader = CopyGiver(node, copies_of(node))
        joined = new(tmp_path, leader)
        with pytest.raises(WrongKey):
            await joined.join()
        joined.key = KEY
        copied = await joined.join(None)
        assert copied.hash == await leader.hash()
        for name in ("STORE", "NODE", "CLUSTER"):
            assert b'"sealed"' in (joined.path / name).read_bytes()
        leader.copies.close()
        await asyncio.sleep(0)


async def test_a_key_for_a_store_in_clear(tmp_path: Path, leader: CopyGiver) -> None:
    with pytest.raises(StoreNotSealed, match="join without --key-file"):
        await new(tmp_path, leader, key=KEY).join()


async def test_who_joins_shows_what_it_would_serve_with(tmp_path: Path) -> None:
    """A node that is copied anew has a certificate, and one that comes next."""
    now = datetime.now(UTC)
    has = Identities(
        identity("first", now - timedelta(days=366), now - timedelta(days=1)),
        identity("next", now - timedelta(days=31), now + timedelta(days=334)),
    )
    path, environment = str(tmp_path / "new"), system_environment()
    with closing(
        JoiningDirectory.lock(path, environment.fs, environment.clock, environment.rng)
    ) as begun:
        peer_file.save(begun.directory, has)
    shown: list[Identity] = []

    def links_of(_node: str, own: Identity) -> Any:
        shown.append(own)

    with pytest.raises(BadRequest, match="start it with a join token"):
        await bootstrap.join(environment, path, lambda: None, None, lambda *_: None, links_of)
    assert shown == [has.next]


# --- disks that are full --------------------------------------------------------------------------


class SmallDisk(Disk):
    """A disk that has so much left, or says so."""

    left = 1 << 40

    def room(self, path: str) -> Room:
        """What is left."""
        return Room(self.left, 1_000)


async def test_a_new_node_has_no_room(tmp_path: Path, leader: CopyGiver) -> None:
    disk = SmallDisk()
    disk.left = 10_000
    joined = new(tmp_path, leader, fs=disk)
    with pytest.raises(DiskFull, match="no room left on the disk for the copy") as refused:
        await joined.join()
    assert refused.value.detail["needed"] > 10_000  # type: ignore[operator]
    disk.left = 1 << 40
    await check(joined, await joined.join(None))


async def test_a_disk_fills_up_under_it(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = new(tmp_path, leader)
    add = bootstrap._Coming.add
    left = [5]

    def full(coming: Any, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(coming, data)

    with monkeypatch.context() as patch, pytest.raises(DiskFull):
        patch.setattr(bootstrap._Coming, "add", full)
        await joined.join()
    copied = await joined.join(None)
    assert leader.served[-1].resume is not None
    await check(joined, copied)


async def test_a_leader_has_no_room(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("the copy failed")
    logbook.allow("a copy was refused")
    monkeypatch.setattr(limits, "JOIN_TRIES", 2)
    joined = new(tmp_path, leader)
    with monkeypatch.context() as patch:
        patch.setattr(
            Disk, "room", lambda _disk, path: Room(10 if "leader" in path else 1 << 40, 99)
        )
        with pytest.raises(CopyFailed, match="DiskFull: no room left on the disk for a backup"):
            await joined.join()
    (failed,) = leader.copies.given.values()
    leader.copies._renew(next(iter(leader.copies.given)), failed)
    assert leader.node.node.reads._pins.held == 0, "a failed copy needs no log"
    await check(joined, await joined.join(None))


# --- how long it is kept --------------------------------------------------------------------------


class Later(SystemClock):
    """A clock that a test sets forward."""

    ahead_us = 0

    def monotonic_us(self) -> int:
        """Of the system, and what the test adds."""
        return super().monotonic_us() + self.ahead_us


async def test_a_copy_is_kept_for_a_time(
    tmp_path: Path, leader: CopyGiver, logbook: Logbook
) -> None:
    logbook.allow("a copy was given up")
    clock = Later()
    leader.copies = copies = copies_of(leader.node, clock)
    copied = await new(tmp_path, leader).join()
    (giving,) = copies.given.values()
    before = giving.pin
    copies._renew(copied.node, giving)
    assert giving.pin is not before and leader.node.node.reads._pins.held == 1
    clock.ahead_us = limits.COPY_KEPT_SECONDS * 1_000_000
    copies._renew(copied.node, giving)
    assert not copies.given and leader.node.node.reads._pins.held == 0
    copies._renew(copied.node, giving)  # a timer that comes late


async def test_a_log_that_is_gone_ends_a_copy(
    tmp_path: Path, leader: CopyGiver, logbook: Logbook
) -> None:
    """The disk was full: what is pinned went as well."""
    logbook.allow("a copy was given up")
    copied = await new(tmp_path, leader).join()
    (giving,) = leader.copies.given.values()
    leader.node.node.reads._pins.gone(copied.at.sequence + 2)
    leader.copies._renew(copied.node, giving)
    assert not leader.copies.given


async def test_who_comes_again_ends_its_own_link(leader: CopyGiver, logbook: Logbook) -> None:
    own = Peer("some-node", "", "cd" * 32, None)
    first, far = linked(own, leader.peer)
    serving = asyncio.ensure_future(leader.copies.serve(far, Copy()))
    begins = await first.receive()
    assert isinstance(begins, CopyBegins)
    second, far = linked(own, leader.peer)
    again = asyncio.ensure_future(leader.copies.serve(far, Copy(begins.id, 5)))
    with pytest.raises(LinkClosed, match="has asked for its copy again"):
        while True:
            await first.receive()
    found = await second.receive()
    assert isinstance(found, CopyBegins) and found.id == begins.id
    part = await second.receive()
    assert isinstance(part, Part) and part.offset == 5
    leader.copies.close()
    second.close()
    await asyncio.gather(serving, again)


async def test_a_copy_of_another_id_begins_anew(leader: CopyGiver) -> None:
    own, far = linked(Peer("some-node", "", "cd" * 32, None), leader.peer)
    serving = asyncio.ensure_future(leader.copies.serve(far, Copy(b"another", 77)))
    assert isinstance(await own.receive(), CopyBegins)
    part = await own.receive()
    assert isinstance(part, Part) and part.offset == 0
    own.close()
    await serving


async def test_signs_of_life(leader: CopyGiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a snapshot is taken whoever waits for it hears so."""
    monkeypatch.setattr(limits, "COPY_ALIVE_SECONDS", 0)
    own, far = linked(Peer("some-node", "", "cd" * 32, None), leader.peer)
    serving = asyncio.ensure_future(leader.copies.serve(far, Copy()))
    assert await own.receive() == snapshot_transfer.ALIVE
    while not isinstance(await own.receive(), CopyEnds):
        pass
    own.close()
    await serving


async def test_a_node_that_stops_gives_none(leader: CopyGiver) -> None:
    _, far = linked(Peer("some-node", "", "cd" * 32, None), leader.peer)
    serving = asyncio.ensure_future(leader.copies.serve(far, Copy()))
    await asyncio.sleep(0)
    leader.copies.close()
    await serving
    assert leader.node.node.reads._pins.held == 0


async def test_a_node_that_can_not_be_brought_up_to_date(
    tmp_path: Path, leader: CopyGiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next start copies the store anew, and it stays the node that it was."""
    joined = new(tmp_path, leader)
    first = await joined.join()
    told = NodeSettings(str(joined.path), writes=False)
    node = await start(told, system_environment())
    directory = node.store.parts.directory
    actor = ClusterFileActor.start(node.runtime, directory)
    source = CopySource(leader.peer.node, ("n1.example:8002",), (PIN,))
    with monkeypatch.context() as patch:

        def full(*_arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(StoreDirectory, "mark_joining", full)
        with pytest.raises(DiskFull, match="no room on the disk to mark"):
            await ask(actor, CopyAnew(first.node, (source,)))
    assert place_of(Disk(), str(joined.path)) is DirectoryState.JOINED
    await ask(actor, CopyAnew(first.node, (source,)))
    await stop(actor)
    await node.stop()
    assert place_of(Disk(), str(joined.path)) is DirectoryState.JOINING
    with pytest.raises(StoreUnfinished):
        await start(told, system_environment())
    await leader.node.value("CREATE t:[5000] SET n = 5000")
    second = await joined.join(None)
    assert second.node == first.node and second.at.sequence > first.at.sequence
    assert second.hash == await leader.hash()
    await check(joined, second)


def test_codes_that_pass() -> None:
    """Each is one that there is."""
    assert CATALOGUE.keys() >= bootstrap.PASSING >= {"Busy", "NotEnoughReplicas", "Conflict"}
    assert issubclass(LogPruned, Refusal)
