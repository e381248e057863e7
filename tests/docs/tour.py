"""The tour of the README, played against a node wherever that runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

from tests.architecture.sources import ROOT
from tests.processes import environment

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STARTS: Final = re.compile(
    r"^\| installed by \| start \|\n\|---\|---\|\n((?:\| .*\n)+)", re.MULTILINE
)
PASSWORD: Final = "correct horse"
HTTP: Final = "127.0.0.1:8000"
WIRE: Final = "127.0.0.1:8001"

Run = Callable[[str, str], str]
"""Runs code in a language, `sh` or `python`, and returns its output."""


def starts() -> Mapping[str, str]:
    """Return the command that starts the node of the tour, by the kind of installation."""
    (rows,) = STARTS.findall(README)
    return dict(re.findall(r"^\| (.*?) \| `(.*?)` \|$", rows, re.MULTILINE))


def shell_script() -> str:
    """Return the shell blocks as one session: a variable set in one is used in a later one."""
    return "set -euo pipefail\n" + "\necho\n".join(_blocks("sh"))


def at(code: str, http: str, wire: str) -> str:
    return code.replace(HTTP, http).replace(WIRE, wire)


def run_here(language: str, code: str, python: str = sys.executable) -> str:
    """Run code on this machine. :param python: an interpreter that has the client"""
    about = {} if python != sys.executable else {"PYTHONPATH": str(ROOT / "clients" / "python")}
    ended = subprocess.run(
        ["bash" if language == "sh" else python, "-c", code],
        env=environment(**about),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def play(run: Run, http: str = HTTP, wire: str = WIRE) -> None:
    """Run all blocks against a new node, and check their output."""
    answers = [line for line in run("sh", at(shell_script(), http, wire)).splitlines() if line]
    assert len(answers) == 4, answers
    assert all('"results"' in answer and '"error"' not in answer for answer in answers), answers
    assert '{"name":"Ana","age":34,"city":"Oslo"}' in answers[1]
    assert '"n":2' in answers[2] and '"age":30.5' in answers[2]
    assert '"age":35' in answers[3] and '"age":26' in answers[3]

    (client,) = _blocks("python")
    rows, refusal = run("python", at(client, http, wire)).splitlines()
    assert "Decimal('12.30')" in rows
    assert "item:lamp" in refusal


def _blocks(language: str) -> list[str]:
    code = [code for name, code in BLOCK.findall(README) if name == language]
    return [one for one in code if "export STORE_USER" not in one]
