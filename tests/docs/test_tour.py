"""The tour of the README works as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.processes import NodeProcess, environment, serving

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESSES = {"127.0.0.1:8000": "http", "127.0.0.1:8001": "wire"}


def blocks(language: str) -> list[str]:
    """The code of the README in one language, without what starts the node."""
    readme = (ROOT / "README.md").read_text()
    return [code for name, code in BLOCK.findall(readme) if name == language and "make" not in code]


def here(code: str, node: NodeProcess) -> str:
    """The code with the addresses of a node in the place of the usual ones."""
    for address, surface in ADDRESSES.items():
        host, port = node.address(surface)
        code = code.replace(address, f"{host}:{port}")
    return code


def play(node: NodeProcess, *program: str, code: str) -> str:
    """What a block prints."""
    ended = subprocess.run(
        [*program, "-c", here(code, node)],
        env=environment(PYTHONPATH=str(ROOT / "clients" / "python")),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def script() -> str:
    """The shell blocks as one session: a variable set in one is used in a later one."""
    return "set -euo pipefail\n" + "\necho\n".join(blocks("sh"))


def test_tour(tmp_path: Path, script: str) -> None:
    with serving(tmp_path / "store", STORE_PASSWORD="correct horse") as node:
        shell = play(node, "bash", code=script)
        answers = [line for line in shell.splitlines() if line]
        assert len(answers) == 4
        assert all('"results"' in answer and '"error"' not in answer for answer in answers)
        assert '{"name":"Ana","age":34,"city":"Oslo"}' in answers[1]
        assert '"n":2' in answers[2] and '"age":30.5' in answers[2]
        assert '"age":35' in answers[3] and '"age":26' in answers[3]

        (client,) = blocks("python")
        rows, refusal = play(node, sys.executable, code=client).splitlines()
        assert "Decimal('12.30')" in rows
        assert "item:lamp" in refusal
