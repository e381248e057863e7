"""A peer that says what a case has it say, frame by frame."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.ports import free_port
from protocol.errors import CATALOGUE
from tests.conformance.testee import PATIENCE_SECONDS, Failed
from tests.conformance.values import pack, tagged, unpack

KINDS: Final = {
    "HELLO": 1, "AUTH": 2, "RUN": 3, "CANCEL": 4, "PING": 5, "BYE": 6, "KV": 7, "TOPIC": 8,
    "WATCH": 9, "UNWATCH": 10, "VAULT": 11, "WELCOME": 32, "REFUSED": 33, "ANSWER": 34,
    "ERROR": 35, "PONG": 36, "VALUE": 37, "CHANGE": 38, "PART": 39,
}  # fmt: skip
NAMES: Final = {number: name for name, number in KINDS.items()}
STORE: Final = "0b9f3a62-7c1e-4e0b-9d4e-3f3a5f0d9f11"
_TCP_DATA_SEGS_IN: Final = 152
"""Offset of `tcpi_data_segs_in` in the kernel's `struct tcp_info`: linux/tcp.h."""


@dataclass
class Message:
    """A message, decoded."""

    kind: str
    id: int
    body: Any
    """A tagged value."""
    size: int = 0


def frame(kind: str | int, id: int, body: Any = None, wire: bytes | None = None) -> bytes:
    """Return a frame. :param body: a tagged value; :param wire: msgpack in its place"""
    number = kind if isinstance(kind, int) else KINDS[kind]
    inner = pack(body) if wire is None else wire
    data = b"\x93" + pack({"$int": str(number)}) + pack({"$int": str(id)}) + inner
    return len(data).to_bytes(4, "big") + data


def message(data: bytes) -> Message:
    """Return the message of a frame without its length."""
    kind, id, body = unpack(data)
    return Message(NAMES[int(kind["$int"])], int(id["$int"]), body, len(data))


def error(code: str, **fields: Any) -> dict[str, Any]:
    """Return the body of an ERROR, tagged."""
    known = CATALOGUE.get(code)
    found = {
        "code": code,
        "message": f"refused with {code}",
        "status": 599 if known is None else known.status,
        "retry": False if known is None else known.retry,
        "detail": {},
        "request": "r-1",
    }
    results = fields.pop("results", [])
    found |= {name: value for name, value in fields.items() if value is not None}
    return {"error": tagged(found), "results": [result(one) for one in results]}


def result(fields: dict[str, Any]) -> Any:
    """Return a result of an ANSWER, tagged; `fields` are those that a case gives."""
    usual = {"value": None, "kind": "value", "rows": 0, "took": {"$dur": "1500"}}
    return tagged(usual | fields)


class Connection:
    """Connection that the peer has accepted."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(PATIENCE_SECONDS)
        self._kept = b""
        self._server: threading.Thread | None = None

    def read(self) -> bytes | None:
        """Return the next frame without its length; None: the client has closed."""
        head = self._exactly(4)
        if head is None:
            return None
        found = self._exactly(int.from_bytes(head, "big"))
        if found is None:
            raise Failed("the client closed within a frame")
        return found

    def _exactly(self, length: int) -> bytes | None:
        while len(self._kept) < length:
            try:
                data = self.sock.recv(1 << 20)
            except TimeoutError:
                raise Failed("the client sends nothing") from None
            except OSError:
                return None
            if not data:
                return None
            self._kept += data
        found, self._kept = self._kept[:length], self._kept[length:]
        return found

    @property
    def is_ready(self) -> bool:
        """True if something has come, or the end."""
        return bool(self._kept) or bool(select.select([self.sock], [], [], 0.005)[0])

    def next(self) -> Message | None:
        """Return the next message; None: the client has closed."""
        data = self.read()
        return None if data is None else message(data)

    def send(self, data: bytes) -> None:
        """Send bytes. A client that is gone by now is no failure."""
        with contextlib.suppress(OSError):
            self.sock.sendall(data)

    @property
    def segments(self) -> int:
        """Segments with data that the client has sent, a write being at least one."""
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int(struct.unpack_from("I", info, _TCP_DATA_SEGS_IN)[0])

    def serve(self, answers: Answers) -> None:
        """Answer all that comes from now on, in a thread."""

        def run() -> None:
            while (found := self.next()) is not None:
                if (data := answers.answer(found)) is not None:
                    self.send(data)
                if found.kind == "BYE":
                    break
            self.close("fin")

        self._server = threading.Thread(target=run, daemon=True)
        self._server.start()

    def close(self, how: str = "fin") -> None:
        """End the connection: `fin`, or `reset`."""
        with contextlib.suppress(OSError):
            if how == "reset":
                linger = struct.pack("ii", 1, 0)
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            else:
                self.sock.shutdown(socket.SHUT_RDWR)
        if self._server is None or self._server is not threading.current_thread():
            self.end()

    def end(self) -> None:
        """Close the socket, and wait for the thread that serves it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self._server is not None:
            self._server.join()
        self.sock.close()


@dataclass
class Answers:
    """The answers of a peer that serves by itself."""

    value: Any = None
    seq: int = 7
    epoch: int = 1
    store: str = STORE
    asked: list[Message] = field(default_factory=list)

    def answer(self, asked: Message) -> bytes | None:
        """Return the frame that answers a message, None: nothing does."""
        self.asked.append(asked)
        match asked.kind:
            case "RUN":
                return frame("ANSWER", asked.id, self.body())
            case "PING":
                return frame("PONG", asked.id)
            case "KV" | "TOPIC" | "VAULT":
                return frame("VALUE", asked.id, tagged(self.value))
            case "UNWATCH":
                return frame("ANSWER", asked.id, tagged({"seq": self.seq, "epoch": self.epoch}))
        return None

    def body(self) -> Any:
        """Return the body of an ANSWER to a RUN."""
        place = {"seq": self.seq, "store": self.store, "epoch": self.epoch}
        return {"results": [result({"value": self.value})]} | tagged(place)


def delivery(number: int) -> dict[str, Any]:
    """Return a delivered message, as a case would write it."""
    return {
        "position": number, "at": {"$dt": "2026-01-02T03:04:05Z"}, "key": None, "id": None,
        "headers": {}, "value": number, "bytes": 9, "receipt": f"r{number}", "attempt": 1,
        "deadline": {"$dt": "2026-01-02T03:05:05Z"}, "member": None,
    }  # fmt: skip


@dataclass
class GroupAnswers(Answers):
    """The answers of a peer with one group."""

    deliver: int = 0
    stale: Sequence[str] = ()
    deadline_ms: int = 60_000
    extended: list[tuple[list[str], Any]] = field(default_factory=list)
    """Receipts and times of the EXTENDs so far."""

    def answer(self, asked: Message) -> bytes | None:
        """Return the frame that answers a message, None: nothing does."""
        if asked.kind == "RUN":
            deadline = {"deadline": {"$dur": str(self.deadline_ms * 1000)}}
            body = {"results": [result({"value": deadline})], **tagged({"seq": 1})}
            return frame("ANSWER", asked.id, body)
        if asked.kind == "CANCEL":
            return frame("ERROR", asked.id, error("Cancelled"))
        if asked.kind != "TOPIC":
            return super().answer(asked)
        op, receipts = asked.body["op"], asked.body.get("receipts", [])
        if op == "take":
            if not self.deliver:
                return None
            messages = [delivery(number) for number in range(1, self.deliver + 1)]
            self.deliver = 0
            return frame("VALUE", asked.id, tagged({"messages": messages}))
        if op == "extend":
            self.extended.append((sorted(receipts), asked.body["by"]))
        stale = [one for one in receipts if one in self.stale]
        done = {"ack": "acked", "nack": "nacked", "extend": "extended", "give_up": "given_up"}[op]
        fields = {done: len(receipts) - len(stale), "stale": len(stale), "stale_receipts": stale}
        return frame("VALUE", asked.id, tagged(fields))


REST: Final = 64
"""Number of ports of earlier peers that rest: a client of an earlier case may look for its own."""
_PORTS: deque[int] = deque()


class Peer:
    """It listens, and accepts the connections that a case has it accept."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._port = _PORTS.popleft() if len(_PORTS) > REST else free_port()
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._listener.settimeout(PATIENCE_SECONDS)
        self._tls = tls
        self.accepted: list[Connection] = []
        self._turning: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self._port}"

    def accept(self) -> Connection:
        """Accept the next connection. :raises Failed: none comes"""
        try:
            sock, _ = self._listener.accept()
        except TimeoutError:
            raise Failed("the client does not connect") from None
        if self._tls is not None:
            sock.settimeout(PATIENCE_SECONDS)
            try:
                sock = self._tls.wrap_socket(sock, server_side=True)
            except (ssl.SSLError, OSError) as why:
                sock.close()
                raise Failed(f"no TLS: {why}") from why
        found = Connection(sock)
        self.accepted.append(found)
        return found

    def has_visitor(self) -> bool:
        """True if a connection waits to be accepted."""
        self._listener.settimeout(0)
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self._listener.settimeout(PATIENCE_SECONDS)
        sock.close()
        return True

    def follow(self, welcome: Any, answers: Answers) -> None:
        """Serve each connection as a node that does not lead, in a thread, until the end."""

        def run() -> None:
            with contextlib.suppress(OSError, Failed):
                while True:
                    one = self.accept()
                    one.next()
                    one.send(frame("WELCOME", 0, welcome))
                    one.serve(answers)

        self._turning = threading.Thread(target=run, daemon=True)
        self._turning.start()

    def turn_away(self, welcome: Any) -> None:
        """Welcome each connection and say BYE at once, in a thread, until the end."""

        def run() -> None:
            with contextlib.suppress(OSError, Failed):
                while True:
                    one = self.accept()
                    one.next()
                    one.send(frame("WELCOME", 0, welcome) + frame("BYE", 0))
                    one.end()

        self._turning = threading.Thread(target=run, daemon=True)
        self._turning.start()

    def stop(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def start(self) -> None:
        """Listen again, at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._listener.settimeout(PATIENCE_SECONDS)

    def close(self) -> None:
        """End everything."""
        self.stop()
        _PORTS.append(self._port)
        if self._turning is not None:
            self._turning.join()
        for one in self.accepted:
            one.end()
