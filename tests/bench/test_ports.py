"""The ports that servers of tests and measurements are told to listen on."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench import ports
from bench.ports import BLOCK_PORTS, Chooser, NoPorts, free_port, kernels
from tests.architecture.sources import ROOT, files
from tests.cluster.plan import draw

CHOOSES = """
import sys
from bench.ports import free_port
print(*[free_port() for _ in range(60)], flush=True)
sys.stdin.read()
"""
"""A process that has chosen some and lives on."""

SHOW_ONE_TAKEN = {
    "tests/surfaces/command/test_addresses.py",
    "tests/surfaces/command/test_copying.py",
    "tests/surfaces/command/test_refusals.py",
}
"""They keep the kernel's port as long as they speak of it."""


@pytest.fixture
def chooser() -> Iterator[Chooser]:
    """Another than that of this process."""
    found = Chooser()
    yield found
    found.close()


def test_many_at_once_are_distinct_and_none_the_kernel_gives_away(chooser: Chooser) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: chooser.free(), range(BLOCK_PORTS // 2)))
    assert len(set(found)) == len(found)
    assert not set(found) & set(kernels())


def test_processes_that_choose_at_once_choose_distinct_ones() -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(choosing()) for _ in range(4)]
        found = [int(port) for each in processes for port in read_line(each).split()]
        found += [free_port() for _ in range(60)]
    assert len(found) == 300 and len(set(found)) == 300


@contextmanager
def choosing() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", CHOOSES],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.communicate()
    assert process.returncode == 0


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_what_somebody_listens_on_is_not_chosen(chooser: Chooser) -> None:
    with ExitStack() as stack:
        taken = set()
        for host in ["127.0.0.1", "0.0.0.0", "127.0.0.2"] * 30:
            taken.add(port := chooser.free())
            stack.enter_context(socket.create_server((host, port)))
        found = {chooser.free() for _ in range(2 * BLOCK_PORTS)}
    assert found and not found & taken


def test_none_left_is_said(monkeypatch: pytest.MonkeyPatch, chooser: Chooser) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: False)
    with pytest.raises(NoPorts, match="are in use"):
        chooser.free()
    monkeypatch.setattr(ports, "blocks", lambda: [chooser._block])
    with pytest.raises(NoPorts, match="other processes"):
        Chooser()


def test_what_was_forked_has_a_claim_of_its_own() -> None:
    mine = {free_port() for _ in range(10)}
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, " ".join(str(free_port()) for _ in range(BLOCK_PORTS)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        found = {int(port) for port in told.read().split()}
    assert os.waitpid(pid, 0)[1] == 0
    assert len(found) == BLOCK_PORTS and not found & mine


@pytest.mark.parametrize(
    ("said", "first", "last"),
    [("32768\t60999\n", 10_000, 32_767), ("1024\t65535\n", 10_000, 65_535)],
)
def test_blocks_are_below_what_the_kernel_chooses_from_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, first: int, last: int
) -> None:
    (tmp_path / "range").write_text(said)
    monkeypatch.setattr(ports, "_KERNELS", tmp_path / "range")
    found = [port for block in ports.blocks() for port in block]
    assert found[0] == first and last - BLOCK_PORTS < found[-1] <= last
    assert len(found) == len(set(found))


def test_a_plan_names_each_port_once(tmp_path: Path) -> None:
    for _ in range(10):
        plan = draw(tmp_path, 5)
        found = [plan.etcd, plan.etcd_outside, plan.etcd_peer]
        for node in plan.nodes:
            found += [node.http, node.wire, node.peer, node.outside]
        assert len(set(found)) == 23


def test_nobody_else_chooses() -> None:
    """A port that the kernel gave is anybody's again once it is let go."""
    found = {
        source.path
        for source in files("tests", "bench", "docs", "examples")
        if "socket" in source.text and ", 0)" in source.text
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("bind", "create_server")
        and any(ast.unparse(each).endswith(", 0)") for each in node.args)
    }
    assert found == SHOW_ONE_TAKEN
