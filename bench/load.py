"""Load generator: raw frames over sockets, from driver processes outside the node.

Each client has a connection, sends a request, waits for its answer, sends the next (closed loop).
Requests are encoded before the clock starts and answers are only checked for success, so that a
driver costs a few microseconds per request.
"""

from __future__ import annotations

import base64
import json
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final

from bench import openbao
from bench.drivers import Driven, Go, LoadFailed, Measured, Stopwatch, together
from bench.nodes import DATABASE, NAMESPACE, PASSWORD, USER
from bench.openbao import SECRET
from bench.people import person
from storeclient import RecordId
from storeclient.frames import PREFIX_BYTES, FrameReader, Kind, encode
from storeclient.settings import split_address

RECEIVE_BYTES: Final = 1 << 18
LATE_SECONDS: Final = 60
"""Timeout of an answer, seconds."""


@dataclass(frozen=True, slots=True)
class LoadDescription:
    """Description of a load."""

    kind: str
    """A name of `KINDS`."""
    address: str
    clients: int
    requests: int
    """Requests of all clients together."""
    first: int = 1
    """Number of the first record that is written, or the lowest that is read."""
    among: int = 0
    """Number of records that can be read."""
    processes: int = 2
    rate: float = 0
    """Requests per second of all clients together; 0: closed loop, each sent once the last is
    answered.

    A request is sent when it is due, or after the answer to the one before if that is later.
    """
    token: str = ""
    """Access token, for a peer that requires one."""


def run(load: LoadDescription, cpu_seconds: Callable[[], float] = lambda: 0.0) -> Measured:
    """Start drivers, connect them, start them together, and wait for the last.

    :param cpu_seconds: the processor time that the node has used so far
    :raises LoadFailed: a request failed
    """
    return together(_drive, list(_shares(load)), cpu_seconds)


@dataclass(frozen=True, slots=True)
class _Share:
    """A process's part of a load: for each client the numbers of its records."""

    load: LoadDescription
    numbers: list[range]


def _shares(load: LoadDescription) -> Iterator[_Share]:
    processes = min(load.processes, load.clients)
    each = load.requests // load.clients
    numbers = [
        range(load.first + at * each, load.first + (at + 1) * each) for at in range(load.clients)
    ]
    for at in range(processes):
        yield _Share(load, numbers[at::processes])


# --- in the driver's process ----------------------------------------------------------------------


@dataclass(slots=True)
class _LoadConnection:
    """A connection and the requests that it has yet to send."""

    socket: socket.socket
    requests: Iterator[bytes]
    kept: bytearray
    sent_at: float = 0.0
    following: bytes | None = None
    """The next request."""


def _drive(share: _Share, go: Go) -> Driven:
    kind = KINDS[share.load.kind]
    clients = [
        _LoadConnection(
            kind.connect(share.load.address),
            iter([kind.request(number, share.load) for number in numbers]),
            bytearray(),
        )
        for numbers in share.numbers
    ]
    go()
    with Stopwatch() as watch:
        pace = share.load.clients / share.load.rate if share.load.rate else 0.0
        took = _exchange(clients, kind.take, pace)
    for client in clients:
        client.socket.close()
    return watch.driven(took)


def _exchange(
    clients: list[_LoadConnection], take: Callable[[bytearray], bool], pace: float
) -> list[float]:
    """Send all requests, each client one at a time. Return the latency of each, from when it was
    due.

    :param pace: seconds between two requests of a client; 0: none
    """
    took: list[float] = []
    by_number = {client.socket.fileno(): client for client in clients}
    poll = select.epoll()
    clock = time.perf_counter
    waiting: list[tuple[float, int]] = []
    """Due time and file descriptor of each client's next request (a heap)."""
    began = clock()
    for at, (number, client) in enumerate(by_number.items()):
        poll.register(number, select.EPOLLIN)
        client.following = next(client.requests)
        client.sent_at = began + pace * at / len(clients)
        heappush(waiting, (client.sent_at, number))
    left = len(clients)
    while left:
        while waiting and waiting[0][0] <= clock():
            client = by_number[heappop(waiting)[1]]
            assert client.following is not None, "it has sent all"
            client.socket.sendall(client.following)
        due = waiting[0][0] - clock() if waiting else LATE_SECONDS
        ready = poll.poll(max(due, 0))
        if not ready and not waiting:
            raise LoadFailed(f"no answer within {LATE_SECONDS} s")
        for number, _ in ready:
            client = by_number[number]
            data = client.socket.recv(RECEIVE_BYTES)
            if not data:
                raise LoadFailed("the node closed the connection")
            client.kept += data
            if not take(client.kept):
                continue
            now = clock()
            took.append(now - client.sent_at)
            client.following = next(client.requests, None)
            if client.following is None:
                poll.unregister(number)
                left -= 1
            elif pace:
                client.sent_at += pace
                heappush(waiting, (client.sent_at, number))
            else:
                client.sent_at = now
                client.socket.sendall(client.following)
    return took


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of request: connects, encodes a request for a record's number, recognizes an
    answer."""

    connect: Callable[[str], socket.socket]
    request: Callable[[int, LoadDescription], bytes]
    take: Callable[[bytearray], bool]
    """Remove a complete answer from the buffer and return True; False: it is incomplete."""


def _open(address: str) -> socket.socket:
    opened = socket.create_connection(split_address(address), timeout=LATE_SECONDS)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


# Over the wire

_GOOD: Final = bytes([0x93, Kind.ANSWER])
"""Beginning of a successful message: an array of three that starts with its kind."""


def connect_wire(address: str) -> socket.socket:
    """Open a connection and sign in."""
    opened = _open(address)
    hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "user": USER, "password": PASSWORD}
    opened.sendall(encode(Kind.HELLO, 0, hello))
    reader = FrameReader()
    messages: Sequence[Any] = ()
    while not messages:
        messages = reader.feed(opened.recv(RECEIVE_BYTES))
    if messages[0].kind != Kind.WELCOME:
        raise LoadFailed(str(messages[0].body))
    return opened


def _run(number: int, script: str, params: dict[str, Any]) -> bytes:
    body = {"script": script, "params": params, "ns": NAMESPACE, "db": DATABASE}
    return encode(Kind.RUN, number, body)


def _take_frame(kept: bytearray) -> bool:
    if len(kept) < PREFIX_BYTES:
        return False
    end = PREFIX_BYTES + int.from_bytes(kept[:PREFIX_BYTES], "big")
    if len(kept) < end:
        return False
    if kept[PREFIX_BYTES : PREFIX_BYTES + 2] != _GOOD:
        raise LoadFailed(str(FrameReader().feed(bytes(kept[:end]))[0].body))
    del kept[:end]
    return True


CREATE: Final = "CREATE person CONTENT $v"
READ: Final = "SELECT * FROM $id"


def _create(number: int, load: LoadDescription) -> bytes:
    return _run(number, CREATE, {"v": person(number)})


def _picked(number: int, load: LoadDescription) -> int:
    """Pick a record to read: spread over all, and the same in every run."""
    return 1 + number * 7_919 % load.among


def _read(number: int, load: LoadDescription) -> bytes:
    return _run(number, READ, {"id": RecordId("person", _picked(number, load))})


UPDATE: Final = "UPDATE $id SET age = $age"


def _update(number: int, load: LoadDescription) -> bytes:
    record = RecordId("person", _picked(number, load))
    return _run(number, UPDATE, {"id": record, "age": number % 100})


LOOKUP: Final = "SELECT * FROM person WHERE name = $name"
RANGE: Final = (
    "SELECT name, balance FROM person WHERE city = $city AND balance > $balance"
    " ORDER BY balance LIMIT 10"
)


def question(statement: str, number: int, among: int) -> dict[str, Any]:
    """Return the parameters of LOOKUP or RANGE."""
    wanted = person(1 + number * 7_919 % among)
    names = ("name",) if statement == LOOKUP else ("city", "balance")
    return {name: wanted[name] for name in names}


def _lookup(number: int, load: LoadDescription) -> bytes:
    return _run(number, LOOKUP, question(LOOKUP, number, load.among))


def _create_coded(number: int, load: LoadDescription) -> bytes:
    return _run(number, "CREATE coded CONTENT $v", {"v": person(number)})


REVEALED: Final = 1_000
"""Number of secrets that can be revealed."""


def _write_secret(number: int, load: LoadDescription) -> bytes:
    script = "WRITE $id IN VAULT v VALUE $value"
    return _run(number, script, {"id": f"w{number}", "value": SECRET})


def revealed(number: int) -> str:
    """Pick the id of a secret: spread over all of them."""
    return str(number * 7_919 % REVEALED)


def _reveal_secret(number: int, load: LoadDescription) -> bytes:
    return _run(number, "REVEAL $id FROM VAULT v", {"id": revealed(number)})


def _read_other(number: int, _load: LoadDescription) -> bytes:
    return _run(number, READ, {"id": RecordId("other", 1)})


# Over HTTP

_PLACE: Final = (NAMESPACE.encode(), DATABASE.encode())


def _connect_http(address: str) -> socket.socket:
    """Open a connection and sign in. It keeps no token: after the first request Basic costs no
    more."""
    opened = _open(address)
    opened.sendall(_http(b""))
    kept = bytearray()
    while not _take_http(kept, any_status=True):
        kept += opened.recv(RECEIVE_BYTES)
    return opened


def _http(body: bytes, path: bytes = b"/script") -> bytes:
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " + pair
    kind = b"\r\nContent-Type: application/json" if body else b""
    return head + kind + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def _read_http(number: int, load: LoadDescription) -> bytes:
    script = {
        "script": READ,
        "params": {"id": {"$rec": f"person:{_picked(number, load)}"}},
        "ns": NAMESPACE,
        "db": DATABASE,
    }
    return _http(json.dumps(script).encode())


def _write_secret_http(number: int, load: LoadDescription) -> bytes:
    body = {"id": f"h{number}", "value": SECRET}
    return _http(json.dumps(body).encode(), b"/vault/%s/%s/v/write" % _PLACE)


def _reveal_secret_http(number: int, load: LoadDescription) -> bytes:
    body = {"id": revealed(number)}
    return _http(json.dumps(body).encode(), b"/vault/%s/%s/v/reveal" % _PLACE)


def _connect_bao(address: str) -> socket.socket:
    """Open a connection; each request carries its token."""
    return _open(address)


def _bao(method: str, id: str, load: LoadDescription, body: bytes = b"") -> bytes:
    head = f"{method} /v1/{openbao.MOUNT}/data/{id} HTTP/1.1\r\nHost: {load.address}\r\n"
    told = f"X-Vault-Token: {load.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + told).encode() + body


def _write_bao(number: int, load: LoadDescription) -> bytes:
    return _bao("POST", f"w{number}", load, json.dumps({"data": {"value": SECRET}}).encode())


def _read_bao(number: int, load: LoadDescription) -> bytes:
    return _bao("GET", revealed(number), load)


def _sign_in_http(_number: int, _load: LoadDescription) -> bytes:
    return _http(b"", b"/session")


def _take_http(kept: bytearray, any_status: bool = False) -> bool:
    head = kept.find(b"\r\n\r\n")
    if head < 0:
        return False
    at = kept.lower().find(b"content-length:", 0, head)
    end = head + 4 + int(kept[at + 15 : kept.find(b"\r\n", at)])
    if len(kept) < end:
        return False
    if not any_status and not kept.startswith(b"HTTP/1.1 200 "):
        raise LoadFailed(kept[:end].decode("utf-8", "replace"))
    del kept[:end]
    return True


def _put_etcd(number: int, load: LoadDescription) -> bytes:
    value = base64.b64encode(json.dumps(person(number)).encode()).decode()
    key = base64.b64encode(f"person:{number}".encode()).decode()
    body = json.dumps({"key": key, "value": value}).encode()
    head = f"POST /v3/kv/put HTTP/1.1\r\nHost: {load.address}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


KINDS: Final = {
    "create": _Kind(connect_wire, _create, _take_frame),
    "read": _Kind(connect_wire, _read, _take_frame),
    "update": _Kind(connect_wire, _update, _take_frame),
    "lookup": _Kind(connect_wire, _lookup, _take_frame),
    "create-coded": _Kind(connect_wire, _create_coded, _take_frame),
    "read-http": _Kind(_connect_http, _read_http, _take_http),
    "sign-in-http": _Kind(_connect_http, _sign_in_http, _take_http),
    "vault-write": _Kind(connect_wire, _write_secret, _take_frame),
    "vault-reveal": _Kind(connect_wire, _reveal_secret, _take_frame),
    "vault-write-http": _Kind(_connect_http, _write_secret_http, _take_http),
    "vault-reveal-http": _Kind(_connect_http, _reveal_secret_http, _take_http),
    "bao-write": _Kind(_connect_bao, _write_bao, _take_http),
    "bao-reveal": _Kind(_connect_bao, _read_bao, _take_http),
    "etcd-put": _Kind(_open, _put_etcd, _take_http),
    "vault-others": _Kind(connect_wire, _read_other, _take_frame),
}
