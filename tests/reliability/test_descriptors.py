"""A crowd that takes every open file it can get."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import PASSWORD, USER, NodeProcess
from tests.reliability import faulty

LIMIT = 1024
CROWD = 1100
ASKED = 20
"""Of the crowd, the last ones: what did they hear?"""
WRITTEN = 48
"""Megabytes: several times what the engine holds in memory, so that it opens new tables."""


@pytest.fixture
def room() -> Iterator[None]:
    """Room in this process for the crowd's own ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 512), max(hard, CROWD + 512)))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def limited(directory: Path, faults: str) -> Iterator[NodeProcess]:
    node = NodeProcess(
        directory,
        more={faulty.FAULTS: faults},
        under=("bash", "-c", f'ulimit -n {LIMIT}; exec "$@"', "bash"),
        module=faulty.MODULE,
    ).start()
    try:
        yield node
    finally:
        node.end()


def token_of(node: NodeProcess) -> dict[str, str]:
    token = node.request("POST", "/session", {"user": USER, "password": PASSWORD}, user=None).json
    return {"Authorization": f"Bearer {token['token']}"}


class Crowd:
    """Idle connections to both surfaces, renewed as the node ends them."""

    def __init__(self, node: NodeProcess) -> None:
        self._addresses = [node.address("http"), node.address("wire")]
        self._peers: list[socket.socket] = []
        self.refused = 0

    def fill(self) -> None:
        """As many as there may be, and some more."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()
        for number in range(CROWD):
            peer = socket.create_connection(self._addresses[number % 2], timeout=60)
            self._peers.append(peer)
        for peer in self._peers[-ASKED:]:
            self.refused += b"Full" in peer.recv(65536)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def write(asked: socket.socket, headers: dict[str, str]) -> set[int]:
    """Write WRITTEN megabytes over one connection; the statuses answered, 0 for a broken one."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = asked
    statuses = set()
    body = "USE shop.main; CREATE big SET text = '" + "x" * 1_000_000 + "'"
    try:
        for _ in range(WRITTEN):
            connection.request("POST", "/script", body, {**headers, "Content-Type": "text/plain"})
            answer = connection.getresponse()
            answer.read()
            statuses.add(answer.status)
    except (OSError, http.client.HTTPException):
        statuses.add(0)
    return statuses


def through_a_crowd(directory: Path, faults: str = "") -> tuple[set[int], int, set[str], int]:
    """What a node answered to writes while a crowd took all it could get; how many of the crowd
    heard that it is full; what was logged loudly; the exit code."""
    with limited(directory, faults) as node:
        assert "error" not in node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main")
        assert "error" not in node.script("USE shop.main; DEFINE TABLE big")
        headers = token_of(node)
        with socket.create_connection(node.address("http"), timeout=60) as asked:
            asked.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert asked.recv(65536)
            crowd = Crowd(node)
            crowd.fill()
            statuses = write(asked, headers)
            crowd.close()
        code = node.stop()
        loud = {line["event"] for line in node.lines if line.get("level") in ("error", "warning")}
    return statuses, crowd.refused, loud, code


@pytest.mark.usefixtures("room")
def test_a_crowd_leaves_log_and_state_what_they_need(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    statuses, refused, loud, code = through_a_crowd(tmp_path / "store")
    assert (statuses, code) == ({200}, 0)
    assert refused == ASKED, "those beyond what connections may have hear Full"
    assert loud <= {
        "low limit of open files",
        "out of file descriptors: connections are refused",
        "not logged one by one",
    }
    figure("descriptors", f"{CROWD} idle connections, {LIMIT} files: {WRITTEN} MB written")


@pytest.mark.usefixtures("room")
def test_the_rig_sees_a_node_that_gives_every_descriptor_away(tmp_path: Path) -> None:
    statuses, _, loud, code = through_a_crowd(tmp_path / "store", "gives-every-descriptor-away")
    assert statuses != {200} or code, loud
