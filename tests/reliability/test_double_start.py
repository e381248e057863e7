"""R9: two processes on one directory. One owns it, the other leaves having changed nothing."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.engine.rocksdb import RocksEngine
from tests.processes import (
    NodeProcess,
    StartFailed,
    run,
    said,
    serving,
    tree,
)
from tests.reliability import faulty
from tests.sweeps import parts

RACES = 50
GROUPS = 25
SERVE = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0")

Figure = Callable[[str, object], None]


def race(directory: Path) -> tuple[int, str]:
    """Two starts at once. Answers how many got the directory, and the losers' last words."""
    rivals = [NodeProcess(directory) for _ in range(2)]
    for rival in rivals:
        rival.spawn()
    owners, words = [], []
    for rival in rivals:
        try:
            rival.wait_ready()
        except StartFailed as lost:
            assert rival.process.returncode == 1
            words.append(str(lost))
        else:
            owners.append(rival)
    for owner in owners:
        assert owner.stop() == 0
    return len(owners), "\n".join(words)


@pytest.mark.parametrize("group", parts(GROUPS, always=1))
def test_race_has_one_owner(tmp_path: Path, group: int, figure: Figure) -> None:
    for number in range(RACES // GROUPS):
        directory = tmp_path / ("fresh" if number % 2 else "again")
        if number % 2:  # the first start of a store, and the next start of one
            shutil.rmtree(directory, ignore_errors=True)
        owners, words = race(directory)
        assert owners == 1, words
        assert "open in another process" in words
        health = run(str(directory), "--health")
        assert (health.returncode, health.stderr) == (0, "")
        assert "well" in health.stdout
    figure(f"R9 races, group {group + 1} of {GROUPS}", f"{RACES // GROUPS}, 1 owner in each")


def stand_still(owner: NodeProcess) -> None:
    """Stop it; none of its threads runs on then."""
    owner.signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{owner.process.pid}/task")
    while True:
        with contextlib.suppress(OSError):  # one that has ended meanwhile
            stats = [stat.read_text() for stat in tasks.glob("*/stat")]
            if stats and all(stat.rpartition(") ")[2].startswith("T") for stat in stats):
                return
        time.sleep(0.001)


def test_no_form_changes_anything_in_a_live_directory(tmp_path: Path) -> None:
    """The owner is alive and stands still, so that only a loser could change it."""
    directory, script = tmp_path / "store", tmp_path / "script"
    script.write_text("DEFINE NAMESPACE c")
    with serving(directory) as owner:
        owner.script("DEFINE NAMESPACE a; USE NAMESPACE a; DEFINE DATABASE b")
        stand_still(owner)
        before = tree(directory)
        for form in (SERVE, ("--health",), ("-f", str(script))):
            lost = run(str(directory), *form)
            assert (lost.returncode, lost.stdout) == (1, "")
            told = f"storenode: {directory} is open in another process"
            assert said(lost.stderr).startswith(told)
            assert tree(directory) == before


def end_in_one_owner(directory: Path, faults: str = "") -> None:
    """A start on a live directory whose LOCK files were removed or replaced.

    :raises AssertionError: it changed something, or what the owner acknowledges is lost
    """
    more = {faulty.FAULTS: faults}
    with contextlib.ExitStack() as ending:
        owner = NodeProcess(directory, more=more, module=faulty.MODULE).start()
        ending.callback(end, owner)
        owner.script("DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t")
        for way, number in (("removed", 1), ("replaced", 2)):
            for sign in (directory / "LOCK", directory / "state" / "LOCK"):
                sign.unlink(missing_ok=True)
                if way == "replaced":
                    sign.write_text("1\nsomebody\n")
            stand_still(owner)  # so that only the rival could change anything
            before = tree(directory / "log")
            rival = NodeProcess(directory, more=more, module=faulty.MODULE)
            ending.callback(end, rival)
            with pytest.raises(StartFailed, match="is open in another process"):
                rival.start()
            assert tree(directory / "log") == before
            owner.signal(signal.SIGCONT)
            made = owner.script(f"CREATE t:{number}", ns="a", db="b")
            assert "error" not in made, made
        owner.kill()
        heir = NodeProcess(directory, more=more, module=faulty.MODULE).start()
        ending.callback(end, heir)
        held = heir.script("SELECT VALUE id FROM t", ns="a", db="b")["results"][0]["value"]
        assert len(held) == 2, "acknowledged and lost"


def end(node: NodeProcess) -> None:
    """Kill it, if it is still there."""
    if node.process.poll() is None:
        node.kill()
    elif not node._stderr.closed:
        node._stderr.close()


def test_a_lock_file_that_is_removed_lets_nobody_in(tmp_path: Path) -> None:
    end_in_one_owner(tmp_path / "store")


def test_a_start_whose_state_is_held_repairs_nothing(tmp_path: Path) -> None:
    """The engine's own lock comes before the log: here somebody else has the state open."""
    directory = tmp_path / "store"
    with serving(directory) as node:
        node.script("DEFINE NAMESPACE a")
        node.kill()
    tail = max((directory / "log").glob("*.storelog"))
    tail.write_bytes(tail.read_bytes().rstrip(b"\0") + b"torn")
    engine = RocksEngine(str(directory / "state"))
    before = tree(directory / "log")
    lost = run(str(directory), "--health")
    engine.close()
    assert (lost.returncode, tree(directory / "log")) == (1, before)
    assert "the state in" in lost.stderr
    assert run(str(directory), "--health").returncode == 0
