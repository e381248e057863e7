"""R19 on the wire, at its real size: as many connections as the surface holds, and one more."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol import limits
from protocol.frames import FrameReader, MessageKind, WireMessage, encode
from tests.processes import serving

GREETING = {"magic": "STORE", "major": 1, "minor": [0, 0]}


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room in this process for the other end of every connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limits.CONNECTIONS + 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), max(hard, needed)))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def greet(
    address: tuple[str, int], held: ExitStack, hello: bytes
) -> tuple[socket.socket, WireMessage]:
    peer = held.enter_context(socket.create_connection(address, timeout=30))
    peer.sendall(hello)
    reader = FrameReader()
    while (message := reader.next()) is None:
        data = peer.recv(65536)
        assert data, "closed without a word"
        reader.feed(data)
    return peer, message


def sockets(process: int) -> int:
    """How many it has open. Other descriptors come and go: the files of the state engine."""
    found = 0
    for one in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found += one.readlink().name.startswith("socket:")
    return found


@pytest.mark.hard
def test_the_ceiling_of_connections(
    tmp_path: Path, many_descriptors: None, figure: Callable[[str, object], None]
) -> None:
    with serving(tmp_path / "store") as node, ExitStack() as held:
        address = node.address("wire")
        token = node.request("POST", "/session").json["token"]  # who does not sign in can't stay
        hello = encode(MessageKind.HELLO, 0, {**GREETING, "token": token})
        before = sockets(node.process.pid)
        peers = []
        for _ in range(limits.CONNECTIONS):
            peer, message = greet(address, held, hello)
            assert message.kind is MessageKind.WELCOME, message
            peers.append(peer)
        for _ in range(20):
            refused, message = greet(address, held, hello)
            assert message.kind is MessageKind.REFUSED
            assert message.body is not None
            assert message.body["error"]["code"] == "Full"
            assert refused.recv(1) == b""
            refused.close()
        peers[7].sendall(encode(MessageKind.PING, 1))
        assert peers[7].recv(100) == encode(MessageKind.PONG, 1)
        peers.pop().close()
        while True:  # the node hears of it in its own time
            _, message = greet(address, held, hello)
            if message.kind is MessageKind.WELCOME:
                break
        held.close()
        while sockets(node.process.pid) > before:
            assert node.process.poll() is None
        assert node.stop() == 0
    figure("R19 wire connections held", f"{limits.CONNECTIONS}, then 20 refused by name")
