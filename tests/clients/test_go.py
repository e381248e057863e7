"""The Go client: its own tests and examples against a real node, and the code of its README."""

from __future__ import annotations

import os
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
