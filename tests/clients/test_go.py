"""The Go client: its own tests and examples against a real node, and the code of its README."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.processes import PASSWORD, USER, NodeProcess, environment, serving

CLIENT = ROOT / "clients" / "go"
GO = shutil.which("go")

pytestmark = [
    pytest.mark.hard,
    pytest.mark.skipif(
        GO is None and os.environ.get("CI") != "true", reason="not installed: golang-go"
    ),
]


def go_environment(**more: str) -> dict[str, str]:
    return environment(GOFLAGS="-mod=mod", GOTOOLCHAIN="local", **more)


def go(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    """What the toolchain prints; the test fails where it does."""
    ended = subprocess.run(
        ["go", *words],
        cwd=cwd,
        env=go_environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with serving(tmp_path / "store") as started:
        yield started


def address(node: NodeProcess) -> str:
    host, port = node.address("wire")
    return f"{host}:{port}"


def test_its_sources_are_formatted_and_vetted() -> None:
    assert subprocess.run(["gofmt", "-l", "."], cwd=CLIENT, capture_output=True).stdout == b""
    go("vet", "./...")


def test_its_tests_pass(node: NodeProcess) -> None:
    race = ["-race"] if shutil.which("cc") else []  # the race detector needs a C compiler
    said = go(
        "test", "-count=1", "-timeout=1500s", *race, "./...",
        STORENODE_ADDRESS=address(node), STORENODE_USER=USER, STORENODE_PASSWORD=PASSWORD,
    )  # fmt: skip
    assert said.startswith("ok")


KILLS = 3
MADE = 200
"""Records between two kills."""


def test_nothing_is_lost_where_a_node_is_killed(node: NodeProcess, tmp_path: Path) -> None:
    ends, log = tmp_path / "ends", tmp_path / "log"
    more = {"STORENODE_ADDRESS": address(node), "STORENODE_ENDS": str(ends)}
    with log.open("w") as out:
        worker = subprocess.Popen(
            ["go", "test", "-count=1", "-v", "-run", "^TestNode.*WhereANodeIsKilled$", "."],
            cwd=CLIENT,
            env=go_environment(STORENODE_USER=USER, STORENODE_PASSWORD=PASSWORD, **more),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        for _ in range(KILLS):
            makes_more(node, worker, log)
            _, port = node.address("wire")
            node.kill()
            node.words = ("--http", "127.0.0.1:0", "--serve", f"127.0.0.1:{port}")
            node.lines.clear()
            node.start()
        makes_more(node, worker, log)
        ends.touch()
        assert worker.wait() == 0, log.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)  # the test that `go test` has started too
        worker.wait()
    assert "--- PASS" in log.read_text()


def makes_more(node: NodeProcess, worker: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until there are so many records more."""
    place = "testnodec19c42nothingislostwhereanodeiskilled"
    before = 0
    while True:
        told = node.script("SELECT VALUE count() FROM ONLY made GROUP ALL", ns=place, db="main")
        count = told["results"][0]["value"] if told.get("results") else 0  # there is no table yet
        before = before or count or 1
        if count >= before + MADE:
            return
        assert worker.poll() is None, log.read_text()
        time.sleep(0.05)


AROUND_FRAGMENTS = """package main

import (
	"context"

	store "storenode/clients/go"
)

func fragments(
	ctx context.Context, db *store.Database, cart []Item, position store.Position,
	handle func([]store.Change, store.Position),
) error {
%s
	_ = answer
	return err
}
"""


def test_the_code_of_its_readme_runs(node: NodeProcess, tmp_path: Path) -> None:
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    program, *fragments = re.findall(r"^```go\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    wanted = re.findall(r"^\s*// = (.*)$", program, re.MULTILINE)
    folder = tmp_path / "readme"
    folder.mkdir()
    (folder / "main.go").write_text(
        program.replace("127.0.0.1:8001", address(node)).replace('"..."', f'"{PASSWORD}"')
    )
    (folder / "fragments.go").write_text(AROUND_FRAGMENTS % "\n".join(fragments))
    (folder / "go.mod").write_text(
        "module readme\n\ngo 1.24\n\nrequire storenode/clients/go v0.0.0\n\n"
        f"replace storenode/clients/go => {CLIENT}\n"
    )
    assert len(fragments) == 2
    assert go("run", ".", cwd=folder).splitlines() == wanted
