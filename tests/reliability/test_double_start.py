"""R9: two processes on one directory. One owns it, the other leaves having changed nothing."""

from __future__ import annotations

import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import (
    NodeProcess,
    StartFailed,
    run,
    serving,
    tree,
)

RACES = 50
GROUPS = 5
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


@pytest.mark.parametrize("group", range(GROUPS))
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


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A directory whose owner is alive and stands still, so that only a loser could change it."""
    directory = tmp_path / "store"
    with serving(directory) as owner:
        owner.script("DEFINE NAMESPACE a; USE NAMESPACE a; DEFINE DATABASE b")
        owner.signal(signal.SIGSTOP)
        yield directory


@pytest.mark.parametrize(
    "form", [SERVE, SERVE[:2], SERVE[2:], ("--health",), ("-f", "script")], ids=" ".join
)
def test_form_against_a_live_directory_changes_nothing(
    held: Path, form: tuple[str, ...], figure: Figure
) -> None:
    (held.parent / "script").write_text("DEFINE NAMESPACE c")
    words = [str(held.parent / word) if word == "script" else word for word in form]
    before = tree(held)
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    lost = run(str(held), *words)
    took, spent = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert lost.returncode == 1
    assert lost.stdout == ""
    (line,) = lost.stderr.splitlines()
    assert line.startswith(f"storenode: {held} is open in another process")
    assert tree(held) == before
    processor = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
    figure(
        f"R9 {' '.join(form)} against a live directory leaves after",
        f"{took:.2f} s, {processor:.2f} s of processor time",
    )


def test_killed_owner_leaves_the_directory_free(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with serving(directory) as owner:
        owner.script("DEFINE NAMESPACE a")
        owner.kill()
    with serving(directory) as heir:
        assert heir.script("INFO FOR STORE")["results"][0]["value"]


def test_planted_second_owner_is_seen(tmp_path: Path) -> None:
    """Without the locks there are two owners, and the rig sees both: what `race` counts is what
    the locks give."""
    directory = tmp_path / "store"
    with serving(directory) as first:
        for lock in (directory / "LOCK", directory / "state" / "LOCK"):
            lock.unlink()  # what no node ever does
        with serving(directory) as second:
            assert [first.process.poll(), second.process.poll()] == [None, None]
