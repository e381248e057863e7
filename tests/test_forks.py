"""What begins as a fork is a process as any other: it says what one of its own interpreter says."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import forks, processes
from tests.processes import NodeProcess, begin, run
from tests.reliability import faulty


def told(pid: int, field: str) -> str:
    """What the system says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


@pytest.mark.parametrize(
    "words", [("--version",), ("--nonsense",), ("--help",), ("none", "--health")]
)
def test_both_say_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    said = []
    for cold in (False, True):
        process = begin(
            *words, more={}, cold=cold, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert isinstance(process, forks.Forked) is not cold
        said.append((*process.communicate(), process.returncode))
    assert said[0] == said[1]


def test_a_node_is_a_child_of_its_test_and_ends_as_it_is_told(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "store").start()
    try:
        assert isinstance(node.process, forks.Forked)
        assert told(node.process.pid, "PPid") == str(os.getpid())
        assert node.script("RETURN 1")["results"][0]["value"] == 1
        assert node.stop() == 0
        node.start()
        node.signal(signal.SIGKILL)
        assert node.process.wait() == -signal.SIGKILL
    finally:
        node.end()


def test_both_have_the_same_open(tmp_path: Path) -> None:
    opened = []
    for cold in (False, True):
        node = NodeProcess(tmp_path / str(cold), cold=cold).start()
        folder = f"/proc/{node.process.pid}/fd"
        try:
            opened.append([os.readlink(f"{folder}/{one}")[:5] for one in os.listdir(folder)])
        finally:
            node.end()
    assert sorted(opened[0]) == sorted(opened[1])


def test_of_variables_each_has_its_own(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "a", more={"STORE_USER": "ana"}).start()
    node.end()
    assert run(str(tmp_path / "a"), "--nonsense").returncode == 2
    node = NodeProcess(tmp_path / "b").start()
    try:
        assert node.script("RETURN 1")["results"][0]["value"] == 1, "root is its owner again"
    finally:
        node.end()


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONHASHSEED", "TZ", "PYTHONPATH"])
def test_what_an_interpreter_or_its_libraries_read_at_their_start_has_one(name: str) -> None:
    process = begin("--version", more={name: ""}, stdout=subprocess.DEVNULL)
    assert process.wait() == 0 and not isinstance(process, forks.Forked)


def test_one_that_is_forked_no_more_is_begun_again() -> None:
    assert run("--version").returncode == 0
    forks._mothers[""].kill()
    forks._mothers[""].wait()
    assert run("--version").returncode == 0


def test_faults_are_in_what_asks_for_them_alone() -> None:
    said = []
    for faults, module, cold in (
        ("lingers", faulty.MODULE, False), ("lingers", faulty.MODULE, True),
        ("", faulty.MODULE, False), ("lingers", forks.COMMAND, False),
    ):  # fmt: skip
        process = begin(
            "--version", more={faulty.FAULTS: faults}, module=module, cold=cold,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert isinstance(process, forks.Forked) is not cold
        said.append(process.communicate()[1])
    assert said == ['{"event": "lingering"}\n'] * 2 + [""] * 2


def test_few_programs_to_fork_run_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MOST", 2)
    for faults in ("small", "unpruned", "small"):
        found = begin("--version", more={faulty.FAULTS: faults}, module=faulty.MODULE,
                      stdout=subprocess.DEVNULL)  # fmt: skip
        assert found.wait() == 0
        assert len(forks._mothers) <= 2
    assert list(forks._mothers) == ["unpruned", "small"]


def test_another_module_or_what_runs_under_another_program_has_its_own(tmp_path: Path) -> None:
    for found in (
        begin("--version", more={}, under=("env",), stdout=subprocess.DEVNULL),
        begin("--version", more={}, module="platform", stdout=subprocess.DEVNULL),
    ):
        assert not isinstance(found, forks.Forked)
        assert found.wait() == 0
    assert processes.COMMAND == forks.COMMAND
