"""Standard streams that are closed or take nothing, and the limit on open files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from protocol import limits
from surfaces.command import descriptors
from tests.processes import PASSWORD, USER, begin, serving

RAISE = """
import resource
from surfaces.command import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
answered = descriptors.raise_limit()
assert answered == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256, answered
"""

KEEP = """
import os, sys
for number in {closed}:
    os.close(number)
from surfaces.command import descriptors
descriptors.keep_standard_streams()
opened = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os._exit(0 if opened > 2 and all(os.readlink(f"/proc/self/fd/{{n}}") for n in (0, 1, 2)) else 1)
"""


def test_limit_is_raised() -> None:
    subprocess.run([sys.executable, "-c", RAISE], check=True)


@pytest.mark.parametrize(
    ("limit", "connections"),
    [(256, 128), (1024, 512), (4096, 3584), (descriptors.NEEDED, descriptors.NEEDED - 512)],
)
def test_connections_leave_some_to_log_and_state(limit: int, connections: int) -> None:
    assert descriptors.for_connections(limit) == connections


def test_the_ceilings_are_reached_where_the_limit_allows_them() -> None:
    assert descriptors.for_connections(descriptors.NEEDED) > 2 * limits.CONNECTIONS + 1024


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: object) -> None:
    for closed in ("(2,)", "(0,)", "(1, 2)", "(0, 1, 2)"):
        code = KEEP.format(closed=closed)
        subprocess.run([sys.executable, "-c", code, f"{tmp_path}/segment"], check=True)


FULL = "storenode: standard output: No space left on device"


def told_to(output: int | IO[bytes], *words: str, cold: bool = False) -> tuple[int, str]:
    """Exit code and standard error of a command whose answer goes somewhere else."""
    signed_in = {"STORE_USER": USER, "STORE_PASSWORD": PASSWORD}
    streams: dict[str, Any] = {"stdout": output, "stderr": subprocess.PIPE}
    with begin(*words, more=signed_in, cold=cold, **streams) as process:
        said = process.communicate()[1]
    return process.returncode, said.decode().strip()


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["shell", "--help"], ["{store}", "--health"]]
)
def test_an_answer_that_nobody_takes(tmp_path: Path, words: list[str]) -> None:
    words = [word.format(store=tmp_path / "store") for word in words]
    cold = words == ["--version"]  # an interpreter that ends flushes once more
    if "--health" in words:
        with serving(tmp_path / "store"):
            pass
    with open("/dev/full", "wb") as full:
        assert told_to(full, *words, cold=cold) == (1, FULL)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert told_to(writing, *words, cold=cold) == (1, "")
    finally:
        os.close(writing)


def test_the_answer_of_a_node_that_nobody_takes(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node, open("/dev/full", "wb") as full:
        answer = node.script(
            "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t; CREATE t:1 SET a = 1"
        )
        assert "error" not in answer, answer
        wire = node.at("wire")
        for words in (
            ("shell", wire, "-c", "RETURN 1"),
            ("shell", wire, "--json", "-c", "RETURN 1; THROW 'no'"),
            ("shell", wire, "--csv", "-c", "RETURN 1"),
            ("export", "n.d.t", "-", "--at", wire, "--format", "jsonl"),
            ("export", "n.d.t", "-", "--at", wire, "--format", "csv"),
        ):
            code, said = told_to(full, *words)
            assert (code, said.splitlines()[-1]) == (1, FULL), said
