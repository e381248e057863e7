"""Backups that are taken while the node serves: what they answer, what they hold, what they leave
behind, and what ends them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from actors.backups import files, taking
from actors.environment import SystemClock, SystemRng
from protocol import limits
from protocol.environment import Room
from protocol.errors import (
    BackupExists,
    BackupNameRefused,
    BadRequest,
    Busy,
    Cancelled,
    Conflict,
    DiskFull,
    LogPruned,
    NoBackupFolder,
    NotAllowed,
    NotInTransaction,
    Refusal,
    StatementTimeout,
    TooLarge,
    Unknown,
)
from storage.backups.log_file import LogBackup
from storage.backups.snapshot_file import SnapshotBackup
from storage.backups.verify import VerifyReport, verify
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.files.disk import Disk, DiskFile, DiskFolder
from storage.formats.keys import Pair
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.txn.ledger import Ledger
from tests.actors import nodes
from tests.actors.live import running_scripts
from tests.actors.parts import KINDS, play
from tests.callers import declare
from tests.nodes import Running, running
from tests.simulation.disk import Fault, SimulatedDisk
from tests.tables import case

FEW = "DEFINE TABLE t; FOR $n IN 1..20 { CREATE t:[$n] SET n = $n, text = 'some text' }"

SINGLY = "DEFINE TABLE t;" + "CREATE t;" * 20
"""A commit each."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "backups"
    found.mkdir()
    return found


@pytest.fixture
async def node(tmp_path: Path, folder: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "store", settings={"backup_dir": str(folder)}) as found:
        yield found
        assert list((tmp_path / "store" / "tmp").glob("backup-*")) == []


def report(path: Path) -> VerifyReport:
    file = Disk().open_read(str(path))
    try:
        return verify(file)
    finally:
        file.close()


def hash_in(path: Path) -> str:
    """The state hash of what a snapshot holds."""
    file = Disk().open_read(str(path))
    engine = MemoryEngine()
    try:
        pairs: list[Pair] = [pair for some in SnapshotBackup(file).lists() for pair in some]
    finally:
        file.close()
    batch = engine.batch()
    for key, value in pairs:
        batch.put(key, value)
    engine.write(batch, 1)
    return state_hash(engine)


async def refused(node: Running, script: str, **fields: Any) -> Refusal:
    answer = await node.answer(script, **fields)
    assert answer.refusal is not None, f"{script} was not refused"
    return answer.refusal


def left(folder: Path) -> list[str]:
    return sorted(str(found.relative_to(folder)) for found in folder.rglob("*"))


# --- what is answered -----------------------------------------------------------------------------


async def test_each_form_to_a_file(node: Running, folder: Path) -> None:
    await node.value(FEW)
    state = await node.value("INFO FOR STATE")
    found = await node.values(
        "BACKUP TO 'a/all.storesnap'; BACKUP STATE OF NAMESPACE shop TO 'shop.storesnap';"
        "BACKUP OF shop.main TO 'main.storesnap'; BACKUP LOG TO 'all.storelog';"
        "BACKUP FROM 5 TO 'some.storelog'; BACKUP SCRIPT TO 'all.storeql';"
        "BACKUP SCRIPT OF NAMESPACE shop, shop.main TO 'main.storeql'"
    )
    names = [
        "a/all.storesnap", "shop.storesnap", "main.storesnap", "all.storelog", "some.storelog",
        "all.storeql", "main.storeql",
    ]  # fmt: skip
    forms = ["snapshot"] * 3 + ["log"] * 2 + ["script"] * 2
    assert found == [
        {"path": name, "bytes": (folder / name).stat().st_size, "form": form}
        for name, form in zip(names, forms, strict=True)
    ]
    assert left(folder) == sorted(["a", *names])
    for name in names[:5]:
        assert report(folder / name).result == "whole"
    # A backup is kept in the audit trail, which is a part of the state: the first one was not yet.
    assert hash_in(folder / "a/all.storesnap") == state["hash"]
    assert report(folder / "a/all.storesnap").sequence == state["sequence"]
    log = report(folder / "some.storelog")
    assert log.records == log.sequence - 4
    text = (folder / "main.storeql").read_text()
    assert text.startswith("-- storenode script")
    assert "USER" not in text
    assert "DEFINE USER" in (folder / "all.storeql").read_text()


async def test_without_a_name_the_answer_is_the_backup(node: Running, tmp_path: Path) -> None:
    await node.value(FEW)
    for statement, form in (("BACKUP", "snapshot"), ("BACKUP LOG", "log")):
        found = await node.value(statement)
        assert isinstance(found, bytes)
        (tmp_path / "found").write_bytes(found)
        assert report(tmp_path / "found").form.value == form
        assert report(tmp_path / "found").result == "whole"
    assert (await node.value("BACKUP SCRIPT OF shop.main")).startswith(b"-- storenode script")


async def test_what_the_script_itself_has_written_is_in_it(node: Running, folder: Path) -> None:
    await node.values("DEFINE TABLE t; CREATE t:1; BACKUP TO 'x'; CREATE t:2")
    assert report(folder / "x").records == 1


async def test_handed_over_as_a_file(node: Running) -> None:
    await node.value(FEW)
    answer = await node.answer("BACKUP", hands_over=("STATE",))
    file = answer.file
    assert answer.refusal is None
    assert file is not None
    assert answer.results[0].value["form"] == "snapshot"  # type: ignore[index, call-overload]
    data = await file.read(0, file.size + 100)
    assert len(data) == file.size
    assert hashlib.sha256(data).digest() == file.sha256
    file.close()
    file.close()
    for script in (
        "BACKUP LOG",
        "BACKUP TO 'x'",
        "BACKUP; BACKUP",
        "RETURN 1",
        "BACKUP SCRIPT",
    ):
        assert type(await refused(node, script, hands_over=("STATE",))) is BadRequest


async def test_files_that_nobody_reads_are_few_and_forgotten(node: Running) -> None:
    held = []
    for _ in range(limits.BACKUPS_KEPT):
        held.append((await node.answer("BACKUP", hands_over=("STATE",))).file)
    assert type(await refused(node, "BACKUP", hands_over=("STATE",))) is Busy
    del held[0]  # nobody holds it any more
    held.append((await node.answer("BACKUP", hands_over=("STATE",))).file)
    one = held.pop()
    assert one is not None
    one.close()
    assert (await node.answer("BACKUP", hands_over=("STATE",))).refusal is None


# --- what is refused ------------------------------------------------------------------------------


async def test_refusals_leave_nothing(node: Running, folder: Path) -> None:
    for script, error in [
        ("BACKUP TO '/etc/x'", BackupNameRefused),
        ("BACKUP LOG TO '../x'", BackupNameRefused),
        ("BACKUP SCRIPT TO './x'", BackupNameRefused),
        ("BACKUP TO 'there'", BackupExists),
        ("BACKUP OF shop.none", Unknown),
        ("BACKUP OF NAMESPACE none", Unknown),
        ("BACKUP OF none.main TO 'x'", Unknown),
        ("BACKUP SCRIPT OF shop.main, NAMESPACE none", Unknown),
        ("BACKUP SCRIPT OF shop.none TO 'x'", Unknown),
        ("BACKUP FROM 9999", BadRequest),
        ("BACKUP LOG FROM 9999 TO 'x'", BadRequest),
        ("BEGIN; BACKUP; COMMIT", NotInTransaction),
        ("IF true { BACKUP }", NotInTransaction),
        ("FOR $x IN [1] { BACKUP TO 'x' }", NotInTransaction),
    ]:
        with case(script, error):
            (folder / "there").write_text("somebody's")
            assert type(await refused(node, script)) is error
            assert left(folder) == ["there"]
            assert (folder / "there").read_text() == "somebody's"
            assert not node.node.backups.taking


async def test_in_a_moment(node: Running) -> None:
    assert type(await refused(node, "BACKUP", moment="new")) is BadRequest


async def test_without_a_folder(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        for script in ("BACKUP TO 'x'", "BACKUP SCRIPT OF shop.main TO 'x'", "INFO FOR BACKUPS"):
            assert type(await refused(node, script)) is NoBackupFolder
        assert type(await refused(node, "BACKUP TO '../x'")) is BackupNameRefused
        assert isinstance(await node.value("BACKUP"), bytes)


async def test_who_may(node: Running, folder: Path) -> None:
    """A snapshot has the store's users and their hashes, a log all changes, the folder is the
    node's: a spaced owner has the script of its own places alone."""
    await node.value("DEFINE NAMESPACE bank; DEFINE DATABASE bank.main")
    spaced = await declare(node.node, "sam", "owner", "shop.main")
    editor = await declare(node.node, "eve", "editor")
    answer = await node.answer("BACKUP SCRIPT OF shop.main", caller=spaced)
    assert answer.refusal is None
    assert b"-- places: shop.main\n" in bytes(answer.results[0].value)  # type: ignore[arg-type]
    for script in (
        "BACKUP", "BACKUP OF shop.main", "BACKUP LOG", "BACKUP SCRIPT", "INFO FOR BACKUPS",
        "BACKUP SCRIPT OF shop.main TO 'x'", "BACKUP TO '../x'",
    ):  # fmt: skip
        refusal = await refused(node, script, caller=spaced)
        assert type(refusal) is NotAllowed, script
        assert refusal.detail["needs"] == "OWNER OF STORE"
    for script in ("BACKUP SCRIPT OF bank.main", "BACKUP SCRIPT OF shop.main, NAMESPACE bank"):
        assert type(await refused(node, script, caller=spaced)) is Unknown
    assert type(await refused(node, "BACKUP SCRIPT OF NAMESPACE shop", caller=spaced)) is NotAllowed
    for script in ("BACKUP", "BACKUP SCRIPT OF shop.main"):
        assert type(await refused(node, script, caller=editor)) is NotAllowed
    assert left(folder) == []


async def test_a_log_that_was_pruned(node: Running, folder: Path) -> None:
    await node.value(SINGLY)
    node.node.reads._pins.gone(10)
    for script in ("BACKUP LOG", "BACKUP FROM 9 TO 'x'", "BACKUP LOG TO 'y'"):
        refusal = await refused(node, script)
        assert type(refusal) is LogPruned
        assert "10" in refusal.message
    assert left(folder) == []
    assert (await node.value("BACKUP FROM 10 TO 'x'"))["form"] == "log"
    assert (await node.value("BACKUP TO 'y'"))["form"] == "snapshot"


async def test_what_is_being_read_is_pinned(node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.value(SINGLY)
    pins = node.node.reads._pins
    held: list[int] = []
    frames = node.node.reads.frames

    async def read(after: int, upto: int, bytes_max: int) -> Any:
        held.append(pins.decide_prune(10_000))
        return await frames(after, upto, 200)

    monkeypatch.setattr(node.node.reads, "frames", read)
    await node.value("BACKUP LOG")
    assert len(held) > 3
    assert held[0] == 1, "from the first one on"
    assert held == sorted(held), "and let go of as it is read"
    assert pins.held == 0


async def test_a_pin_is_renewed_before_it_lapses(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.value(SINGLY)
    pins, taken = node.node.reads._pins, []
    frames, pin = node.node.reads.frames, pins.pin

    def counting(sequence: int) -> Any:
        taken.append(sequence)
        return pin(sequence)

    async def read(after: int, upto: int, bytes_max: int) -> Any:
        return await frames(after, upto, 200)

    monkeypatch.setattr(pins, "pin", counting)
    monkeypatch.setattr(node.node.reads, "frames", read)
    monkeypatch.setattr(limits, "LOG_PIN_SECONDS", 0)
    await node.value("BACKUP LOG")
    assert taken[0] == 1
    assert len(taken) > 3
    assert taken == sorted(taken)
    assert pins.held == 0


# --- the audit trail ------------------------------------------------------------------------------


async def test_backups_are_in_the_audit_trail(node: Running) -> None:
    await node.value("BACKUP TO 'x'")
    await refused(node, "BACKUP TO 'x'")
    await node.value("BACKUP SCRIPT OF shop.main")
    await node.value("RETURN 1")
    kept = [
        (entry["statement"], entry["refused"])
        for entry in await node.value("INFO FOR AUDIT")
        if str(entry["statement"]).startswith("BACKUP")
    ]
    assert kept == [
        ("BACKUP SCRIPT OF shop.main", None),
        ("BACKUP TO 'x'", "BackupExists"),
        ("BACKUP TO 'x'", None),
    ]


# --- one at a time, and what ends it --------------------------------------------------------------


class Held:
    """Backups that stop before their file is finished, until they are let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        wait = taking.Backups._wait
        held = self

        def waiting(self: taking.Backups, fiber: Any, asked: Any) -> Any:
            if isinstance(asked, files.FinishBackup):
                while not held.go_on.is_set():
                    held.reached.set()
                    fiber.park()
            return wait(self, fiber, asked)

        monkeypatch.setattr(taking.Backups, "_wait", waiting)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


async def begun(node: Running, held: Held, script: str, **fields: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(node.answer(script, **fields))
    reached = asyncio.create_task(held.reached.wait())
    await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        reached.cancel()
        raise AssertionError(task.result().refusal)
    return task


async def test_one_at_a_time(node: Running, folder: Path, held: Held) -> None:
    task = await begun(node, held, "BACKUP TO 'x'")
    assert left(folder) == ["x.partial"]
    for script in ("BACKUP", "BACKUP TO 'y'", "BACKUP LOG", "BACKUP SCRIPT OF shop.main"):
        refusal = await refused(node, script)
        assert type(refusal) is Busy
        assert refusal.retry
    assert left(folder) == ["x.partial"]
    await node.values("DEFINE TABLE t; CREATE t:1; SELECT * FROM t")  # others go on
    running = await node.value("INFO FOR RUNNING")
    assert [one["text"] for one in running if one["text"].startswith("BACKUP")] == ["BACKUP TO 'x'"]
    held.go_on.set()
    for run in running_scripts(node.node):
        run.fiber.wake()
    answer = await task
    assert answer.refusal is None
    assert report(folder / "x").records == 0, "what came later is not in it"
    assert (await node.value("BACKUP TO 'y'"))["path"] == "y"


async def test_kill(node: Running, folder: Path, held: Held) -> None:
    task = await begun(node, held, "BACKUP TO 'sub/x'")
    [one] = [one for one in await node.value("INFO FOR RUNNING") if "BACKUP" in one["text"]]
    await node.value("KILL $id", {"id": one["id"]})
    assert type((await task).refusal) is Cancelled
    held.go_on.set()
    assert (await node.value("BACKUP TO 'y'"))["path"] == "y"
    assert left(folder) == ["y"]


@pytest.mark.parametrize("script", ["BACKUP TO 'sub/x'", "BACKUP"])
async def test_ended_at_its_last_step(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Its name is given, or its file kept, and nobody hears of it: it is taken back."""
    wait = taking.Backups._wait

    def ending(self: taking.Backups, fiber: Any, asked: Any) -> Any:
        found = wait(self, fiber, asked)
        if isinstance(asked, files.PublishBackup | files.KeepUnnamed):
            fiber.cancel()
            fiber.yield_now()
        return found

    monkeypatch.setattr(taking.Backups, "_wait", ending)
    assert type(await refused(node, script)) is Cancelled
    monkeypatch.undo()
    await node.value("BACKUP TO 'y'")
    assert left(folder) == ["y"]
    actor = node.node.backups._files.ref._actor_weakref()
    assert actor is not None
    assert actor._kept == {}


async def test_its_time(node: Running, folder: Path, held: Held) -> None:
    task = await begun(node, held, "BACKUP TO 'x'", timeout_us=500_000)
    assert type((await task).refusal) is StatementTimeout
    held.go_on.set()
    await node.value("BACKUP TO 'y'")
    assert left(folder) == ["y"]


async def test_the_end_of_the_node_leaves_nothing(tmp_path: Path, folder: Path, held: Held) -> None:
    async with running(tmp_path / "store", settings={"backup_dir": str(folder)}) as node:
        task = await begun(node, held, "BACKUP TO 'x'")
    answer = (await asyncio.gather(task, return_exceptions=True))[0]
    assert getattr(answer, "refusal", answer) is not None
    assert left(folder) == []


# --- room -----------------------------------------------------------------------------------------


async def test_room_is_asked_for_first(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.value(FEW)
    there = Disk().room(str(folder))
    monkeypatch.setattr(files, "reserve", lambda _: Room(there.bytes * 2, 0))
    for script in ("BACKUP", "BACKUP TO 'sub/x'", "BACKUP LOG TO 'x'", "BACKUP SCRIPT"):
        refusal = await refused(node, script)
        assert type(refusal) is DiskFull, script
    assert left(folder) == []
    monkeypatch.undo()
    await node.value("BACKUP TO 'x'")


async def test_it_stops_when_the_reserve_is_touched(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.value(FEW)
    add = files.BackupFilesActor.add

    def less_room(actor: Any, asked: Any) -> None:
        there = Disk().room(str(folder))
        monkeypatch.setattr(files, "reserve", lambda _: Room(there.bytes * 2, 0))
        add(actor, asked)

    monkeypatch.setitem(files.BackupFilesActor.handlers, files.AddPart, less_room)
    for script in ("BACKUP TO 'sub/x'", "BACKUP", "BACKUP SCRIPT TO 'x'"):
        monkeypatch.setattr(files, "reserve", lambda _: Room(limits.MIB, 0))
        assert type(await refused(node, script)) is DiskFull, script
    monkeypatch.undo()
    await node.value("BACKUP TO 'y'")
    assert left(folder) == ["y"]


# --- INFO FOR BACKUPS -----------------------------------------------------------------------------


async def test_what_is_in_the_folder(node: Running, folder: Path) -> None:
    await node.value(FEW)
    await node.values("BACKUP TO 'b/x.storesnap'; BACKUP LOG TO 'a.storelog'")
    await node.values("BACKUP SCRIPT TO 'c.storeql'; BACKUP OF shop.main TO 'd.storesnap'")
    (folder / "half.storeql").write_bytes((folder / "c.storeql").read_bytes()[:-20])
    (folder / "cut").write_bytes((folder / "a.storelog").read_bytes()[:-9])
    damaged = bytearray((folder / "b/x.storesnap").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folder / "damaged").write_bytes(damaged)
    script = (folder / "c.storeql").read_bytes()
    count = script.rindex(b"-- end ") + len(b"-- end ")
    (folder / "miscounted.storeql").write_bytes(script[:count] + b"9" + script[count:])
    (folder / "other").write_text("somebody's")
    (folder / "x.partial").write_text("unfinished")
    (folder / "link").symlink_to("a.storelog")
    found = await node.value("INFO FOR BACKUPS")
    assert [(one["path"], one["form"], one["verifies"]) for one in found] == [
        ("a.storelog", "log", True),
        ("b/x.storesnap", "snapshot", True),
        ("c.storeql", "script", True),
        ("cut", "log", False),
        ("d.storesnap", "snapshot", True),
        ("damaged", "snapshot", False),
        ("half.storeql", "script", False),
        ("miscounted.storeql", "script", False),
        ("other", None, False),
    ]
    by_path = {one["path"]: one for one in found}
    assert by_path["b/x.storesnap"]["sequence"] == report(folder / "b/x.storesnap").sequence
    assert by_path["b/x.storesnap"]["bytes"] == (folder / "b/x.storesnap").stat().st_size
    assert by_path["d.storesnap"]["place"] == "shop.main"
    assert by_path["damaged"]["problem"]
    assert await node.value("INFO FOR BACKUPS") == found


async def test_a_file_that_can_not_be_read_hides_no_other(
    node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.values("BACKUP TO 'a'; BACKUP TO 'b'")
    opened = DiskFolder.open_read

    def somebody_elses(self: DiskFolder, name: str) -> DiskFile:
        if name == "b":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(self, name)

    monkeypatch.setattr(DiskFolder, "open_read", somebody_elses)
    found = await node.value("INFO FOR BACKUPS")
    assert [(one["path"], one["verifies"]) for one in found] == [("a", True), ("b", False)]
    assert "Permission denied" in found[1]["problem"]
    monkeypatch.undo()
    found = await node.value("INFO FOR BACKUPS")
    assert [(one["path"], one["verifies"]) for one in found] == [("a", True), ("b", True)]


async def test_it_is_asked_for_in_a_transaction(node: Running) -> None:
    """Which goes on behind it."""
    await node.values("BACKUP TO 'a'; DEFINE TABLE t")
    asked = "BEGIN; CREATE t:1; INFO FOR BACKUPS; CREATE t:2; COMMIT"
    found = (await node.values(asked))[2]
    assert [one["path"] for one in found] == ["a"]
    assert len(await node.value("SELECT * FROM t")) == 2


async def test_too_many_files(node: Running, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKUPS_LISTED", 2)
    for name in "ab":
        (folder / name).write_text("")
    assert len(await node.value("INFO FOR BACKUPS")) == 2
    (folder / "c").write_text("")
    assert type(await refused(node, "INFO FOR BACKUPS")) is TooLarge


# --- while others write ---------------------------------------------------------------------------


BUSY = """
    CREATE t SET n = 1, text = 'some text'; UPDATE t SET n += 1 LIMIT 3; DELETE t LIMIT 1;
    PUBLISH INTO q VALUES [1, 2, 3]; INCR 'k' IN c; SET 'x' IN c VALUE 1 EXPIRE 1s;
    TAKE 2 FROM q AS g; DEFINE INDEX OVERWRITE i ON t FIELDS n;
    INSERT INTO t $rows RETURN NONE; DELETE t LIMIT 300
"""


def replayed(path: Path, upto: int, store: str) -> str:
    """The state hash of what a log backup holds, up to a commit."""
    file = Disk().open_read(str(path))
    engine = MemoryEngine()
    try:
        frames = [frame for frame in LogBackup(file).frames() if frame.sequence <= upto]
    finally:
        file.close()
    last = frames[-1]
    end = LogEnd(last.sequence, last.epoch, last.time, UUID(store).bytes)
    ledger = Ledger(engine, end, SystemClock(), SystemRng(), lambda frame: None, derived.kept)
    for frame in frames:
        ledger.replay(frame)
    return state_hash(engine)


async def differing(node: Running, folder: Path) -> tuple[list[int], int]:
    """Commits whose snapshot is not what the log says up to there, and how many were taken."""
    await node.values(
        "DEFINE TABLE t; DEFINE TOPIC q; DEFINE SPACE c; DEFINE GROUP g ON q DEADLINE 1s"
    )
    over = False
    rows = {"rows": [{"n": n, "text": "x" * 50} for n in range(400)]}

    async def write() -> int:
        count = 0
        while not over:
            refusal = (await node.answer(BUSY, rows)).refusal
            assert type(refusal) in (type(None), Conflict), refusal
            count += 1
        return count

    writers = [asyncio.create_task(write()) for _ in range(3)]
    names = [f"{number}.storesnap" for number in range(6)]
    for name in names:
        await node.value(f"BACKUP TO '{name}'")
    over = True
    assert min(await asyncio.gather(*writers)) > 0
    await node.value("BACKUP LOG TO 'all.storelog'")
    found, seen = [], set()
    for name in names:
        at = report(folder / name).sequence
        seen.add(at)
        whole = replayed(folder / "all.storelog", at, node.node.store.id)
        if hash_in(folder / name) != whole:
            found.append(at)
    return found, len(seen)


async def test_a_snapshot_is_of_one_commit_whatever_others_write(
    node: Running, folder: Path
) -> None:
    """Its hash is that of the log replayed up to its commit."""
    assert await differing(node, folder) == ([], 6)


# --- on a disk that loses what was not synced -----------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_simulated_disk(kind: str) -> None:
    """As on any: through the doors alone, and on one seed with a loop of its own."""
    disk = SimulatedDisk({"": None, "/b": None})

    async def take() -> None:
        environment = nodes.simulated_environment(kind, disk, MemoryEngine())
        async with nodes.running(environment, nodes.settings(backup_dir="/b")) as started:
            for script in ("BACKUP TO 'sub/x'", "BACKUP LOG TO 'y'", "BACKUP"):
                answer = await nodes.run(started, script, place=(None, None))
                assert answer.refusal is None, answer.refusal

    play(kind, take)
    durable = next(disk.crash_point().images(1, random.Random(1)))
    left_over = SimulatedDisk(durable)
    for name in ("/b/sub/x", "/b/y"):
        file = left_over.open_read(name)
        assert verify(file).result == "whole"
        file.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("fails", ["sync", "append", "create", "rename", "sync_directory"])
def test_a_disk_that_fails_refuses_the_backup_alone(kind: str, number: int, fails: str) -> None:
    disk = SimulatedDisk({"": None, "/b": None})
    code = "DiskFull" if number == errno.ENOSPC else "Failed"

    async def take() -> None:
        environment = nodes.simulated_environment(kind, disk, MemoryEngine())
        async with nodes.running(environment, nodes.settings(backup_dir="/b")) as started:
            disk.plan = lambda what, path: (
                Fault(number) if what == fails and path.startswith("/b") else None
            )
            answer = await nodes.run(started, "BACKUP TO 'x'", place=(None, None))
            assert answer.refusal is not None
            assert answer.refusal.code == code
            disk.plan = None
            answer = await nodes.run(started, "BACKUP TO 'y'", place=(None, None))
            assert answer.refusal is None, answer.refusal
            assert disk.names("/b") == ["y"]

    play(kind, take)
