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


def run(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    ended = subprocess.run(
        words,
        cwd=cwd,
        env=environment(GOFLAGS="-mod=mod", GOTOOLCHAIN="local", **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def go(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    return run("go", *words, cwd=cwd, **more)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with serving(tmp_path / "store") as started:
        yield started


def address(node: NodeProcess) -> str:
    host, port = node.address("wire")
    return f"{host}:{port}"


def test_its_sources_are_clean() -> None:
    run("./lint")


def test_its_tests_pass(node: NodeProcess) -> None:
    race = ["-race"] if shutil.which("cc") else []  # the race detector needs a C compiler
    said = go(
        "test", "-count=1", "-timeout=1500s", *race, "./...",
        STORENODE_ADDRESS=address(node), STORENODE_USER=USER, STORENODE_PASSWORD=PASSWORD,
    )  # fmt: skip
    assert said.startswith("ok")


AROUND_ERRORS = """package main

import (
	"context"
	"errors"
	"fmt"

	store "storenode/clients/go"
)

%s"""


def test_the_tour_of_its_readme_runs(node: NodeProcess, tmp_path: Path) -> None:
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    *tour, errors = re.findall(r"^```go\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    program = "".join(tour)
    wanted = re.findall(r"^\s*// = (.*)$", program, re.MULTILINE)
    assert len(tour) == 6
    program = program.replace("127.0.0.1:8001", address(node)).replace('"..."', f'"{PASSWORD}"')
    folder = tmp_path / "readme"
    folder.mkdir()
    (folder / "main.go").write_text(program)
    (folder / "errors.go").write_text(AROUND_ERRORS % errors)
    (folder / "go.mod").write_text(
        "module readme\n\ngo 1.24\n\nrequire storenode/clients/go v0.0.0\n\n"
        f"replace storenode/clients/go => {CLIENT}\n"
    )
    go("vet", ".", cwd=folder)
    assert go("run", ".", cwd=folder).splitlines() == wanted


def test_its_example_runs(node: NodeProcess) -> None:
    said = go("run", "./example/shop", address(node), USER, PASSWORD, "20")
    assert "<h1>lamp</h1>" in said and said.endswith("\n20 sold\n")
