"""The program of examples/cluster/ counts right, and sees what is missing; and the round of its
README with three nodes goes as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.cluster import count
from tests.actors.agreement.etcds import needs_etcd
from tests.architecture.sources import ROOT
from tests.cluster.__main__ import down
from tests.cluster.plan import load
from tests.processes import PASSWORD, USER, environment, serving

CLUSTER = [sys.executable, "-m", "tests.cluster"]


@contextmanager
def counting(seconds: float, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The program, in a process of its own."""
    words = ["-W", "error", "-m", "examples.cluster.count", "--seconds", str(seconds)]
    path = f"{ROOT}:{ROOT / 'clients' / 'python'}"
    with subprocess.Popen(
        [sys.executable, *words],
        env=environment(PYTHONPATH=path, **more),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as ran:
        yield ran


def test_what_is_there_is_found_and_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "store") as node:
        at = "{}:{}".format(*node.address("wire"))
        monkeypatch.setenv("STORE_USER", USER)
        monkeypatch.setenv("STORE_PASSWORD", PASSWORD)
        with counting(0.3, STORE_AT=at) as ran:
            assert ran.stdout is not None
            *_, counted, looked = ran.stdout.read().splitlines()
        found = re.fullmatch(r"(\d+) acknowledged, 0 with an unknown end, 0 refused", counted)
        assert found is not None, counted
        number = found[1]
        assert looked == f"{at} holds all {number}" and ran.wait() == 0

        with count.sign_in(at) as client:
            client.use("tour", "main")
            seq = client.run("DELETE number WHERE n = 3").seq
        with pytest.raises(count.Lost, match=r"lacks 1 that were acknowledged: \[3\]"):
            count.look(at, count.Told(acknowledged={1, 2, 3}, seq=seq))


def commands() -> list[list[str]]:
    """The commands of its README's round, block by block."""
    readme = ROOT / "examples" / "cluster" / "README.md"
    text = readme.read_text("utf-8").partition("## Three nodes")[2]
    return [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)]


@pytest.mark.hard
@pytest.mark.timeout(600)
@needs_etcd
def test_the_round_of_the_readme(tmp_path: Path) -> None:
    first, second = commands()
    assert first[0] == "make cluster" and first[1] == ". cluster/env"
    assert first[2] == ".venv/bin/python -m examples.cluster.count"
    assert second == [
        "make cluster-kill N=leader",
        "make cluster-status",
        "make cluster-resume N=1",
    ]
    directory = tmp_path / "cluster"
    own = ("--directory", str(directory))

    def does(*words: str) -> str:
        """What one of the targets prints: they need an installed node, which a test has not."""
        return subprocess.run(
            [*CLUSTER, *words, *own], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    told = does("up")
    try:
        assert ". cluster/env" in told
        plan = load(directory)
        variables = dict(re.findall(r"^export (\w+)=(.*)$", plan.environment, re.MULTILINE))
        assert (directory / "env").stat().st_mode & 0o077 == 0
        with counting(25, **variables) as ran:
            assert ran.stdout is not None
            assert "acknowledged" in ran.stdout.readline()
            assert "n1: does not run" in does("kill", "--node", "leader")
            stalled = next(line for line in ran.stdout if "no write for" in line)
            assert re.fullmatch(r"no write for \d+\.\d s\n", stalled)
            assert re.search(r"n[23]: leads", does("status"))
            does("resume", "--node", "1")
            *_, counted, one, other, third = ran.stdout.read().splitlines()
        number = counted.partition(" ")[0]
        assert int(number) > 0
        assert [one, other, third] == [
            f"{at} holds all {number}" for at in variables["STORE_AT"].split(",")
        ]
        assert "is paused" in does("pause", "--node", "2")
        does("resume", "--node", "2")
        assert "cut off from all others: n3" in does("cut", "--node", "3")
        assert "cut off" not in does("heal") + does("status")
    finally:
        down(load(directory))
