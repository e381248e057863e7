"""The TypeScript client: its tests and example against a real node, its package and its README."""

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

CLIENT = ROOT / "clients" / "typescript"
NPM = shutil.which("npm")

pytestmark = [
    pytest.mark.hard,
    pytest.mark.skipif(
        NPM is None and os.environ.get("CI") != "true", reason="not installed: nodejs npm"
    ),
]


def run(*words: str, cwd: Path = CLIENT, **more: str) -> str:
    ended = subprocess.run(
        words, cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def built() -> Path:
    """Folder of the compiled sources, tests and example."""
    run("npm", "ci", "--ignore-scripts")
    shutil.rmtree(CLIENT / "build", ignore_errors=True)
    run("npx", "tsc", "-p", "tsconfig.json")
    return CLIENT / "build"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with serving(tmp_path / "store") as started:
        yield started


def address(node: NodeProcess) -> str:
    host, port = node.address("wire")
    return f"{host}:{port}"


def test_its_sources_and_its_package_are_clean(built: Path) -> None:
    run("npm", "run", "build")  # what the package is made of
    run("npm", "run", "lint")


def test_its_tests_pass(built: Path, node: NodeProcess) -> None:
    files = sorted(str(path) for path in (built / "test").glob("*.test.js"))
    said = run(
        "node", "--test", "--test-reporter=tap", *files,
        STORENODE_ADDRESS=address(node), STORENODE_USER=USER, STORENODE_PASSWORD=PASSWORD,
    )  # fmt: skip
    assert "\n# fail 0\n" in said


def test_its_example_runs(built: Path, node: NodeProcess) -> None:
    said = run("node", str(built / "example" / "shop.js"), address(node), USER, PASSWORD, "20")
    assert "<h1>lamp</h1>" in said and said.endswith("\n20 sold\n")


def test_the_tour_of_its_readme_runs_in_an_empty_project(
    built: Path, node: NodeProcess, tmp_path: Path
) -> None:
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    *tour, errors = re.findall(r"^```ts\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    program = "".join(tour)
    wanted = re.findall(r"^\s*// = (.*)$", program, re.MULTILINE)
    assert len(tour) == 6
    packed = run("npm", "pack", "--pack-destination", str(tmp_path)).split()[-1]
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "project", "private": true, "type": "module"}')
    run("npm", "install", str(tmp_path / packed), cwd=folder)
    assert [path.name for path in (folder / "node_modules").iterdir() if path.name[0] != "."] == [
        "storeclient"
    ]
    program = program.replace("127.0.0.1:8001", address(node)).replace('"..."', f'"{PASSWORD}"')
    (folder / "tour.ts").write_text(program)
    (folder / "errors.ts").write_text(
        f'import type {{ Database }} from "storeclient";\n{errors}'.replace(
            "try {", "declare const db: Database;\ntry {"
        )
    )
    options = ["--strict", "--module", "nodenext", "--target", "es2023", "--types", "node"]
    roots = ["--typeRoots", str(CLIENT / "node_modules" / "@types")]
    tsc = str(CLIENT / "node_modules" / ".bin" / "tsc")
    run(tsc, *options, *roots, "--ignoreConfig", "tour.ts", "errors.ts", cwd=folder)
    assert run("node", "tour.js", cwd=folder).splitlines() == wanted
