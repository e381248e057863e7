"""R21: backups that a node process takes, killed at each step, stopped, on a full disk."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import pytest

from actors.backups.script_files import pieces
from protocol.errors import BackupCorrupt, BackupCut
from storage.backups.snapshot_file import SnapshotBackup
from storage.backups.verify import verify
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.files.disk import Disk
from storage.formats.container import BackupFileForm, form_of
from tests.processes import PASSWORD, USER, NodeProcess, StartFailed, run
from tests.reliability import disks, faulty
from tests.sweeps import some_of

Figure = Callable[[str, object], None]

FORMS: Final = {
    "snapshot": "BACKUP TO 'sub/x'",
    "log": "BACKUP LOG TO 'sub/x'",
    "script": "BACKUP SCRIPT TO 'sub/x'",
}
SETTING: Final = """
    DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b;
    DEFINE TABLE t; DEFINE TOPIC q; DEFINE SPACE c;
    FOR $n IN 1..=300 { CREATE t SET n = $n, text = 'some text of a record' };
    PUBLISH INTO q VALUES [1, 2, 3]; SET 'k' IN c VALUE 1
"""


class Node:
    def __init__(self, folder: Path, store: Path, faults: str = "") -> None:
        self.backups = folder
        words = (*NodeProcess.words, "--backup-dir", str(folder))
        more = {faulty.FAULTS: faults} if faults else {}
        module = faulty.MODULE if faults else NodeProcess.module
        self.process = NodeProcess(store, words, more, module=module)

    def start(self) -> None:
        self.process.start()
        asked = {"user": USER, "password": PASSWORD}
        reply = self.process.request("POST", "/session", asked, user=None)
        self.token = {"Authorization": f"Bearer {reply.json['token']}"}

    def ask(self, script: str) -> Any:
        """All of the answer. :raises OSError, HTTPException: the node is gone"""
        return self.process.request("POST", "/script", {"script": script}, self.token, user=None)

    def value(self, script: str) -> Any:
        reply = self.ask(script)
        assert reply.status == 200, reply.body
        return reply.json["results"][-1]["value"]

    def state(self) -> dict[str, Any]:
        """Once nothing more is committed by what came before."""
        found: dict[str, Any] = {}
        while (again := self.value("INFO FOR STATE")) != found:
            found = again
        return found


def hash_in(path: Path) -> str:
    engine = MemoryEngine()
    batch = engine.batch()
    file = Disk().open_read(str(path))
    try:
        for some in SnapshotBackup(file).lists():
            for key, value in some:
                batch.put(key, value)
    finally:
        file.close()
    engine.write(batch, 1)
    return state_hash(engine)


def check(path: Path, state: dict[str, Any]) -> None:
    """A file that has the name is whole, and holds that state."""
    file = Disk().open_read(str(path))
    try:
        form = form_of(file)
        if form is BackupFileForm.SCRIPT:
            assert sum(1 for _ in pieces(file.read)) > 9
            return
        report = verify(file)
    except (BackupCut, BackupCorrupt) as problem:
        raise AssertionError("what has the name is no backup") from problem
    finally:
        file.close()
    assert report.result == "whole", report.problem
    assert report.sequence == state["sequence"]
    if form is BackupFileForm.SNAPSHOT:
        assert hash_in(path) == state["hash"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    (folder / "backups").mkdir()
    node = Node(folder / "backups", folder / "store")
    node.start()
    node.value(SETTING)
    assert node.process.stop() == 0
    return folder / "store"


def killed_at(folder: Path, template: Path, step: int, form: str, faults: str) -> tuple[bool, bool]:
    """Whether the node came to that step, and whether the file has its name then.

    :raises AssertionError: what has the name is not whole
    """
    folder.mkdir()
    backups, store = folder / "backups", folder / "store"
    backups.mkdir()
    shutil.copytree(template, store)
    (folder / "store.dies").write_text(str(step))
    node = Node(backups, store, faults)
    node.start()
    killed = False
    try:
        state = node.state()
        try:
            reply = node.ask(FORMS[form])
            assert reply.status == 200, reply.body
        except (OSError, HTTPException):
            killed = True
        named = (backups / "sub/x").exists()
        if named:
            check(backups / "sub/x", state)
        if not killed:
            assert named
            assert node.process.stop() == 0
            return False, named
    finally:
        node.process.end()
    _go_on(backups, store, form, named)
    shutil.rmtree(folder)
    return True, named


def _go_on(backups: Path, store: Path, form: str, named: bool) -> None:
    """The next node takes the backup of that name, whatever the killed one has left."""
    node = Node(backups, store)
    node.start()
    state = node.state()
    reply = node.ask(FORMS[form])
    if named:
        assert reply.json["error"]["code"] == "BackupExists"
    else:
        assert reply.status == 200, reply.body
        check(backups / "sub/x", state)
        assert [path.name for path in (backups / "sub").iterdir()] == ["x"]
    assert node.process.stop() == 0
    assert list((store / "tmp").iterdir()) == []


STRIDES: Final = [("snapshot", 2), *((form, 1) for form in FORMS)]
"""Every change is tried with every second step."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("form", "stride"), some_of(STRIDES, len(STRIDES)))
def test_a_kill_at_each_step(
    form: str, stride: int, template: Path, tmp_path: Path, figure: Figure
) -> None:
    step, kills, names = 1, 0, 0
    while True:
        folder = tmp_path / str(step)
        reached, named = killed_at(folder, template, step, form, "dies-in-a-backup")
        if not reached:
            break
        kills, names, step = kills + 1, names + named, step + stride
    figure(f"R21 kills in a backup, {form}", f"{kills} steps, {names} with the name")
    assert step > 8


@pytest.mark.timeout(600)
def test_a_name_that_comes_too_early_is_caught(template: Path, tmp_path: Path) -> None:
    faults = "dies-in-a-backup,names-before-it-writes"
    with pytest.raises(AssertionError):
        for step in range(4, 12):
            killed_at(tmp_path / str(step), template, step, "snapshot", faults)
    for found in tmp_path.iterdir():
        shutil.rmtree(found)


def _ask(node: Node, script: str, replies: list[Any]) -> None:
    replies.append(node.ask(script))


def test_a_stop_lets_it_finish(template: Path, tmp_path: Path) -> None:
    """R18: SIGTERM while it is taken. It is answered, and the next open has nothing to mend."""
    backups, store = tmp_path / "backups", tmp_path / "store"
    backups.mkdir()
    shutil.copytree(template, store)
    for number in range(3):
        node = Node(backups, store)
        node.start()
        replies: list[Any] = []
        asking = threading.Thread(target=_ask, args=(node, f"BACKUP TO '{number}'", replies))
        asking.start()
        while asking.is_alive() and not any(backups.glob(f"{number}*")):
            pass
        assert node.process.stop() == 0
        asking.join()
        [reply] = replies
        assert reply.status == 200, reply.body
        file = Disk().open_read(str(backups / str(number)))
        assert verify(file).result == "whole"
        file.close()
        health = run(str(store), "--health")
        assert (health.returncode, health.stderr) == (0, "")
    assert sorted(path.name for path in backups.iterdir()) == list("012")


def test_a_full_disk(template: Path, tmp_path: Path) -> None:
    """Refused by name, nothing left behind, and the node goes on; with room it is taken."""
    disks.require("mkfs.ext4")
    store = tmp_path / "store"
    shutil.copytree(template, store)
    with disks.image_disk(tmp_path, "ext4", 128 * disks.MIB) as disk:
        folder = disk.point / "backups"
        folder.mkdir()
        ballast = disk.point / "ballast"
        ballast.write_bytes(bytes(disk.free() - 4 * disks.MIB))
        node = Node(folder, store)
        node.start()
        try:
            for script in FORMS.values():
                reply = node.ask(script)
                assert reply.json["error"]["code"] == "DiskFull", reply.body
                assert list(folder.iterdir()) == []
            assert node.value("RETURN 1") == 1
            ballast.unlink()
            state = node.state()
            assert node.value(FORMS["snapshot"])["form"] == "snapshot"
            check(folder / "sub/x", state)
            assert node.process.stop() == 0
        finally:
            node.process.end()


def test_a_folder_that_is_not_there_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="is not a directory"):
        Node(tmp_path / "none", tmp_path / "store").process.start()
    assert not (tmp_path / "store").exists()
