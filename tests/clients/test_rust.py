"""The Rust client: its tests and example against a real node, its package and its README."""

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

CLIENT = ROOT / "clients" / "rust"
CARGO = shutil.which("cargo")
BUILT = ROOT / "build" / "rust"
"""Folder of what cargo builds, kept for the next run."""

pytestmark = [
    pytest.mark.hard,
    pytest.mark.skipif(
        CARGO is None and os.environ.get("CI") != "true", reason="not installed: cargo"
    ),
]


def cargo(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    ended = subprocess.run(
        ["cargo", *words],
        cwd=cwd,
        env=environment(**{"CARGO_TARGET_DIR": str(BUILT), **more}),
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


def test_its_sources_and_its_pages_are_clean() -> None:
    cargo("fmt", "--check")
    cargo("clippy", "--all-features", "--all-targets", "--locked", "--", "-D", "warnings")
    cargo("doc", "--all-features", "--no-deps", "--locked", RUSTDOCFLAGS="-D warnings")


def test_its_tests_pass(node: NodeProcess) -> None:
    said = cargo(
        "test", "--all-features", "--locked",
        STORENODE_ADDRESS=address(node), STORENODE_USER=USER, STORENODE_PASSWORD=PASSWORD,
    )  # fmt: skip
    assert len(re.findall(r"^test result: ok\. [1-9]", said, re.MULTILINE)) == 2  # and of the docs


def test_its_example_runs(node: NodeProcess) -> None:
    words = (address(node), USER, PASSWORD, "20")
    said = cargo("run", "--all-features", "--locked", "--example", "shop", "--", *words)
    assert "<h1>lamp</h1>" in said and said.endswith("\n20 sold\n")


def test_the_tour_of_its_readme_runs_in_an_empty_project(node: NodeProcess, tmp_path: Path) -> None:
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    *tour, errors = re.findall(r"^```rust\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    program = "".join(tour)
    wanted = re.findall(r"^\s*// = (.*)$", program, re.MULTILINE)
    assert len(tour) == 6
    packed = tmp_path / "packed"
    cargo("package", "--allow-dirty", "--locked", "--no-verify", CARGO_TARGET_DIR=str(packed))
    (crate,) = (packed / "package").glob("*.crate")
    shutil.unpack_archive(crate, tmp_path, "gztar")
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    [manifest] = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    installed = str(tmp_path / crate.name.removesuffix(".crate"))
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "tour"\nedition = "2024"\n\n'
        + manifest.replace("../storenode/clients/rust", installed)
    )
    shutil.copy(CLIENT / "Cargo.lock", folder)  # what was built before is the same
    program = program.replace("127.0.0.1:8001", address(node)).replace('"..."', f'"{PASSWORD}"')
    (folder / "src" / "main.rs").write_text(f"mod errors;\n{program}")
    (folder / "src" / "errors.rs").write_text(f"#![allow(dead_code)]\n{errors}")
    assert cargo("run", "--quiet", cwd=folder).splitlines() == wanted
