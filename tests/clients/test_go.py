"""The Go client: what its own tests say of it, before a real node, and that its tour runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.processes import PASSWORD, USER, NodeProcess, environment, serving

CLIENT = ROOT / "clients" / "go"
GO = shutil.which("go")

pytestmark = [
    pytest.mark.hard,
    pytest.mark.skipif(GO is None, reason="no Go toolchain: the Go client is not tested"),
]


def go(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    """What the toolchain prints; the test fails where it does."""
    ended = subprocess.run(
        ["go", *words],
        cwd=cwd,
        env=environment(GOFLAGS="-mod=mod", GOTOOLCHAIN="local", **more),
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


def test_its_tour_prints_what_it_says(node: NodeProcess, tmp_path: Path) -> None:
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```go\n(package main.*?)^```$", page, re.MULTILINE | re.DOTALL)
    wanted = re.findall(r"^\s*// = (.*)$", code, re.MULTILINE)
    folder = tmp_path / "tour"
    folder.mkdir()
    (folder / "main.go").write_text(
        code.replace("127.0.0.1:8001", address(node)).replace('"..."', f'"{PASSWORD}"')
    )
    (folder / "go.mod").write_text(
        "module tour\n\ngo 1.24\n\nrequire storenode/clients/go v0.0.0\n\n"
        f"replace storenode/clients/go => {CLIENT}\n"
    )
    assert go("run", ".", cwd=folder).splitlines() == wanted
