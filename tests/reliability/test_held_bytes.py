"""What peers make a real node hold, read from the memory of its process: those that nobody signed
in for, one that takes no answers, one that lets requests wait. Another user works on beside each.

Each rig is run again on a node without the bounds, whose memory then grows past what the rig
allows. Ceilings are made an eighth (`small-surfaces`), so that seconds of load fill them.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.frames import FrameReader, MessageKind, WireMessage, encode
from tests.certificates import self_signed
from tests.processes import PASSWORD, USER, NodeProcess
from tests.reliability import faulty
from tests.reliability.test_bombs import memory

MIB = 1024 * 1024
GROWTH = 80 * MIB
"""Two ceilings of 32 MiB each, and what some hundreds of connections take."""
SECONDS = 20
"""How long a rig waits for a node that holds too much; one that does not stops growing."""
BIG = 1_000_000
PEERS = 800
"""Fewer than handshakes may be under way on a surface."""
UNBOUNDED = "holds-without-bound"

pytestmark = pytest.mark.hard


@contextlib.contextmanager
def node(directory: Path, *faults: str) -> Iterator[NodeProcess]:
    """A node with small ceilings, and a space with one large key."""
    names = ",".join(("small-surfaces", *faults))
    running = NodeProcess(directory, more={faulty.FAULTS: names}, module=faulty.MODULE).start()
    try:
        made = running.script(
            "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE SPACE s; DEFINE TOPIC t;"
            "DEFINE USER ben ROLE owner PASSWORD 'a long password'; SET 'big' IN s VALUE $v",
            params={"v": "x" * BIG},
        )
        assert "error" not in made, made
        yield running
    finally:
        running.end()


def token(running: NodeProcess, user: str = USER) -> str:
    pair = (USER, PASSWORD) if user == USER else (user, "a long password")
    return str(running.request("POST", "/session", user=pair).json["token"])


class Peer:
    """A wire connection that reads only when it is told to."""

    def __init__(self, running: NodeProcess, held: ExitStack, credential: str | None) -> None:
        self.socket = held.enter_context(socket.socket())
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.socket.settimeout(30)
        self.socket.connect(running.address("wire"))
        self._frames = FrameReader()
        if credential is not None:
            hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "token": credential}
            self.socket.sendall(encode(MessageKind.HELLO, 0, hello))
            assert self.hear().kind is MessageKind.WELCOME

    def hear(self) -> WireMessage:
        while (message := self._frames.next()) is None:
            data = self.socket.recv(1 << 20)
            assert data, "closed"
            self._frames.feed(data)
        return message

    def ask(self, id: int, script: str, **params: object) -> WireMessage:
        self.socket.sendall(encode(MessageKind.RUN, id, {"script": script, "params": params}))
        return self.hear()


def push(running: NodeProcess, sockets: list[socket.socket], data: bytes) -> None:
    """Send as much of `data` on each as its node takes, until none takes more."""
    # One without bounds takes all of it, however slowly.
    patience_s = 10 if UNBOUNDED in running.more[faulty.FAULTS] else 2
    left = {one.fileno(): (one, memoryview(data)) for one in sockets}
    with selectors.DefaultSelector() as ready:
        for one in sockets:
            one.setblocking(False)
            ready.register(one, selectors.EVENT_WRITE)
        while ready.get_map() and (found := ready.select(patience_s)):
            for key, _ in found:
                one, rest = left[key.fd]
                try:
                    rest = rest[one.send(rest[:1_000_000]) :]
                except OSError:  # it was told that there is no room, and cut
                    rest = rest[:0]
                left[key.fd] = one, rest
                if not rest:
                    ready.unregister(one)


def grows(running: NodeProcess, before: int, *, to_the_end: bool) -> int:
    """By how much the node's memory has grown once it grows no more, or past what is allowed.

    :param to_the_end: whether it is waited for even where nothing moves for two seconds, as a node
        may that others leave no processor
    """
    until = time.monotonic() + SECONDS
    most, still = 0, 0
    while time.monotonic() < until and most <= GROWTH and (to_the_end or still < 20):
        grown = memory(running, "VmRSS") - before
        still = still + 1 if grown <= most else 0
        most = max(most, grown)
        time.sleep(0.1)
    return most


Rig = Callable[[NodeProcess, ExitStack], None]


def half_frames(running: NodeProcess, held: ExitStack) -> None:
    """Peers without a credential, each with half of a long frame; half of them are welcomed."""
    hello = encode(MessageKind.HELLO, 0, {"magic": "STORE", "major": 1, "minor": [0, 0]})
    frame = encode(MessageKind.RUN, 1, {"script": "x" * 1_000_000})[:500_000]
    peers = [Peer(running, held, None).socket for _ in range(300)]
    push(running, peers[::2], hello + frame)
    push(running, peers[1::2], frame)


def half_requests(running: NodeProcess, held: ExitStack) -> None:
    """The same over HTTP, in heads and in bodies."""
    head = b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    peers = []
    for _ in range(2_500):
        peer = held.enter_context(socket.create_connection(running.address("http"), timeout=30))
        peers.append(peer)
    push(running, peers[::2], head + b"Content-Length: 65000\r\n\r\n" + b" " * 64_000)
    push(running, peers[1::2], head + b"X: " + b"y" * 60_000)


def tiny_requests(running: NodeProcess, held: ExitStack) -> None:
    """Pipelined behind a request that waits for a message."""
    assert "error" not in running.script("USE n.d; DEFINE GROUP h ON t DEADLINE 30s")
    body = b"USE n.d; TAKE 1 FROM t AS h WAIT 60s"
    first = (
        b"POST /script HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
        % (token(running).encode(), len(body))
    ) + body
    tiny = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    peers = [
        held.enter_context(socket.create_connection(running.address("http"), timeout=30))
        for _ in range(150)
    ]
    push(running, peers, first + tiny * 1_500)


def pipelined_gets(running: NodeProcess, held: ExitStack) -> None:
    """A thousand reads of a large key, and nobody who takes what they answer."""
    gets = b"".join(
        encode(MessageKind.KV, id, {"op": "get", "ns": "n", "db": "d", "space": "s", "key": "big"})
        for id in range(1, 1_001)
    )
    Peer(running, held, token(running)).socket.sendall(gets)


def unread_answers(running: NodeProcess, held: ExitStack) -> None:
    """Scripts with large answers, on many connections, over both surfaces."""
    mine = token(running)
    ask = encode(MessageKind.RUN, 1, {"script": "USE n.d; GET 'big' FROM s"})
    for _ in range(150):
        Peer(running, held, mine).socket.sendall(ask)
    request = (
        b"GET /kv/n/d/s/key/big HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        + mine.encode()
        + b"\r\n\r\n"
    )
    for _ in range(150):
        peer = held.enter_context(socket.socket())
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        peer.connect(running.address("http"))
        peer.sendall(request * 20)


def parked_takes(running: NodeProcess, held: ExitStack) -> None:
    """Waits for messages, each with ten megabytes of parameters."""
    peer = Peer(running, held, token(running))
    answer = peer.ask(1, "USE n.d; DEFINE GROUP g ON t DEADLINE 30s")
    assert answer.kind is MessageKind.ANSWER, answer
    script = "USE n.d; TAKE 1 FROM t AS g WAIT 60s"
    others = [Peer(running, held, token(running)) for _ in range(4)]
    frames = b"".join(
        encode(MessageKind.RUN, id, {"script": script, "params": {"v": "x" * 10_000_000}})
        for id in range(2, 12)
    )
    push(running, [peer.socket, *(other.socket for other in others)], frames)


RIGS: list[Rig] = [
    half_frames, half_requests, tiny_requests, pipelined_gets, unread_answers, parked_takes,
]  # fmt: skip


@pytest.mark.parametrize("bounded", [True, False])
def test_the_memory_of_handshakes_that_never_end(
    tmp_path: Path, bounded: bool, figure: Callable[[str, object], None]
) -> None:
    """Peers that connect where TLS is spoken, and say the first byte of it alone."""
    chain, key = self_signed(tmp_path, "node")
    faults = "" if bounded else UNBOUNDED
    words = (*NodeProcess.words, "--cert", str(chain), "--cert-key", str(key))
    running = NodeProcess(
        tmp_path / "store", words, {faulty.FAULTS: faults}, module=faulty.MODULE
    ).start()
    try:
        before = memory(running, "VmRSS")
        with ExitStack() as held:
            for number in range(PEERS):
                address = running.address("http" if number % 2 else "wire")
                peer = held.enter_context(socket.create_connection(address, timeout=30))
                peer.sendall(b"\x16")
            grown = grows(running, before, to_the_end=not bounded)
        figure("held bytes, handshakes", f"{grown // MIB} MiB {'' if bounded else 'planted'}")
        assert (grown <= GROWTH) is bounded
    finally:
        running.end()


@pytest.mark.parametrize("rig", RIGS, ids=lambda rig: rig.__name__)
@pytest.mark.parametrize("bounded", [True, False])
def test_the_memory_of_the_process(
    tmp_path: Path, rig: Rig, bounded: bool, figure: Callable[[str, object], None]
) -> None:
    faults = () if bounded else (UNBOUNDED,)
    with node(tmp_path / "store", *faults) as running, ExitStack() as held:
        before = memory(running, "VmRSS")
        with contextlib.suppress(OSError):
            rig(running, held)
        grown = grows(running, before, to_the_end=not bounded)
        figure(f"held bytes, {rig.__name__}", f"{grown // MIB} MiB {'' if bounded else 'planted'}")
        if not bounded:
            assert grown > GROWTH, "the rig does not see a node without bounds"
            return
        assert grown <= GROWTH
        # Another user works on, on both surfaces.
        with ExitStack() as other:
            peer = Peer(running, other, token(running, "ben"))
            found = peer.ask(1, "USE n.d; GET 'big' FROM s")
            assert found.kind is MessageKind.ANSWER, found
            asked = {"script": "RETURN 7"}
            answer = running.request("POST", "/script", asked, user=("ben", "a long password"))
            assert answer.json["results"][0]["value"] == 7
        assert running.process.poll() is None
