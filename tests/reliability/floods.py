"""Who floods a node with wrong passwords, and who works on it meanwhile: each in a process of its
own, so that neither is slowed down by the other's interpreter."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

from protocol.frames import FrameReader, MessageKind, encode

CLIENTS: Final = 50
PLACE: Final = {"ns": "shop", "db": "main"}
SURFACES: Final = ("basic", "session", "wire")
WAIT_SECONDS: Final = 30
IMPATIENT_SECONDS: Final = 0.2
"""How long every other one waits for its answer before it hangs up and tries the next password."""
SCRIPTS: Final = ("SELECT * FROM person:1", "UPDATE person:{} SET n = {}")

_SPAWN = get_context("spawn")


@dataclass(frozen=True, slots=True)
class Addresses:
    http: tuple[str, int]
    wire: tuple[str, int]


@dataclass(frozen=True, slots=True)
class Flood:
    """Fifty clients that try wrong passwords, each from an address of its own.

    :param users: whose passwords are tried; none: of users that do not exist, a new one each time
    :param made_up: the part of the tries that are for users that do not exist
    """

    at: Addresses
    users: tuple[str, ...]
    made_up: float


@contextmanager
def flooding(flood: Flood) -> Iterator[Callable[[], Counter[str]]]:
    """A flood while the block lasts; what is yielded ends it and says how many tries ended how."""
    with _beside(_flood, flood) as ask:
        yield ask


@dataclass(frozen=True, slots=True)
class Work:
    """Users with tokens, who read and write for some seconds without a pause, half of them over
    HTTP and half over the wire."""

    at: Addresses
    tokens: tuple[str, ...]
    seconds: float


def worked(work: Work) -> list[float]:
    """How long each request took, in seconds. One that was refused raises."""
    with _beside(_work, work) as ask:
        found = ask()
    assert isinstance(found, list), found
    return found


@contextmanager
def _beside(main: Callable[[Any, Connection], None], what: Any) -> Iterator[Callable[[], Any]]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=main, args=(what, theirs), daemon=True)
    process.start()
    theirs.close()
    told: list[Any] = []

    def ask() -> Any:
        if not told:
            ours.send("end")
            told.append(ours.recv())
        return told[0]

    try:
        assert ours.recv() == "ready"
        yield ask
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


# --- the flood ------------------------------------------------------------------------------------


def _flood(flood: Flood, parent: Connection) -> None:
    asyncio.run(_all_try(flood, parent))


async def _all_try(flood: Flood, parent: Connection) -> None:
    counts: Counter[str] = Counter()
    tries = [asyncio.ensure_future(_try(flood, number, counts)) for number in range(CLIENTS)]
    while not counts:
        await asyncio.sleep(0.01)
    counts.clear()
    parent.send("ready")
    while not parent.poll():
        await asyncio.sleep(0.05)
        for one in tries:
            if one.done():
                one.result()
    parent.send(counts)


async def _try(flood: Flood, number: int, counts: Counter[str]) -> None:
    surface = SURFACES[number % len(SURFACES)]
    impatient = number % 2 == 1
    host, port = flood.at.wire if surface == "wire" else flood.at.http
    for nth in itertools.count():
        user = f"nobody{number}x{nth}"
        if flood.users and (nth * 7 + number) % 10 >= flood.made_up * 10:
            user = flood.users[(number + nth) % len(flood.users)]
        local = f"127.1.0.{number + 1}", 0
        reader, writer = await asyncio.open_connection(host, port, local_addr=local)
        writer.write(_asked(surface, user, f"wrong password {number} {nth}"))
        try:
            async with asyncio.timeout(IMPATIENT_SECONDS if impatient else WAIT_SECONDS):
                answer = await reader.read(65_536)
            counts[_how(answer)] += 1
        except TimeoutError:
            counts["hung up"] += 1
        except ConnectionError:
            counts["closed"] += 1
        writer.transport.abort()


def _asked(surface: str, user: str, password: str) -> bytes:
    if surface == "wire":
        hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "user": user, "password": password}
        return encode(MessageKind.HELLO, 0, hello)
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return _http("/session" if surface == "session" else "/script", f"Basic {pair}", "", surface)


def _http(path: str, authorization: str, script: str, surface: str) -> bytes:
    body = b"" if surface == "session" else json.dumps({"script": script, **PLACE}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n"
    if body:
        head += "Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _how(answer: bytes) -> str:
    if answer.startswith(b"HTTP/1.1 "):
        return answer[9:12].decode()
    if not answer:
        return "closed"
    (message,) = _frames(answer)
    return str(message.body["error"]["status"]) if message.body else str(message.kind)


def _frames(data: bytes) -> list[Any]:
    reader = FrameReader()
    reader.feed(data)
    found = []
    while (message := reader.next()) is not None:
        found.append(message)
    return found


# --- the work -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Client:
    number: int
    token: str
    socket: socket.socket
    over_wire: bool
    kept: bytearray = field(default_factory=bytearray)
    reader: FrameReader = field(default_factory=FrameReader)
    asked: int = 0
    sent_at: float = 0.0

    def ask(self) -> None:
        script = SCRIPTS[self.asked % 2].format(self.number + 1, self.asked)
        self.asked += 1
        if self.over_wire:
            data = encode(MessageKind.RUN, self.asked, {"script": script, "params": {}, **PLACE})
        else:
            data = _http("/script", f"Bearer {self.token}", script, "basic")
        self.sent_at = time.perf_counter()
        self.socket.sendall(data)

    def hears(self) -> bool:
        """Whether the answer is whole."""
        data = self.socket.recv(65_536)
        assert data, "the node hung up on a user with a token"
        if self.over_wire:
            self.reader.feed(data)
            message = self.reader.next()
            assert message is None or message.kind is MessageKind.ANSWER, message
            return message is not None
        self.kept += data
        head = self.kept.find(b"\r\n\r\n")
        if head < 0:
            return False
        assert self.kept.startswith(b"HTTP/1.1 200 "), self.kept
        at = self.kept.lower().find(b"content-length:")
        if len(self.kept) < head + 4 + int(self.kept[at + 15 : self.kept.find(b"\r\n", at)]):
            return False
        self.kept.clear()
        return True


def _work(work: Work, parent: Connection) -> None:
    clients = [_worker(work.at, number, token) for number, token in enumerate(work.tokens)]
    took: list[float] = []
    ends = time.perf_counter() + work.seconds
    parent.send("ready")
    with selectors.DefaultSelector() as ready:
        for client in clients:
            ready.register(client.socket, selectors.EVENT_READ, client)
            client.ask()
        while time.perf_counter() < ends:
            for key, _ in ready.select(1):
                if key.data.hears():
                    took.append(time.perf_counter() - key.data.sent_at)
                    key.data.ask()
        now = time.perf_counter()
        # Those that have no answer yet have waited as long as that.
        took += [now - client.sent_at for client in clients]
    parent.recv()
    parent.send(took)


def _worker(at: Addresses, number: int, token: str) -> _Client:
    over_wire = number % 2 == 1
    opened = socket.create_connection(at.wire if over_wire else at.http, timeout=WAIT_SECONDS)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client = _Client(number, token, opened, over_wire)
    if over_wire:
        hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "token": token}
        opened.sendall(encode(MessageKind.HELLO, 0, hello))
        while (message := client.reader.next()) is None:
            client.reader.feed(opened.recv(65_536))
        assert message.kind is MessageKind.WELCOME, message
    return client
