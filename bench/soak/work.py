"""Workload of a soak: all features at once, on both surfaces, each worker at its own pace.

Every worker bounds its data in the store: a range of ids, keys that expire, topics with a size. So
the node's resources are bounded too, and steady growth is a leak. Workers pause as long as their
request took, so that on a busy machine queueing is not measured.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bench.nodes import DATABASE, NAMESPACE, PASSWORD, USER
from storeclient import AsyncClient, RecordId
from storeclient.errors import Refused

RECORDS: Final = 20_000
KEYS: Final = 5_000
BULK: Final = 5_000
"""Rows of one bulk insert."""
BUSY: Final = frozenset({"Busy", "Conflict", "Full"})
"""Errors that a node under load may return."""
TEXT: Final = "the quick brown fox jumps over the lazy dog " * 4

DEFINITIONS: Final = """
DEFINE TABLE IF NOT EXISTS item;
DEFINE TABLE IF NOT EXISTS bulk;
DEFINE INDEX IF NOT EXISTS by_part ON item FIELDS part;
DEFINE SPACE IF NOT EXISTS c;
DEFINE TOPIC IF NOT EXISTS t BYTES 8MiB;
DEFINE TOPIC IF NOT EXISTS failed BYTES 1MiB;
DEFINE GROUP IF NOT EXISTS g ON t DEADLINE 2s DELIVERIES 2 DEAD LETTER failed
"""


@dataclass(slots=True)
class WorkCounts:
    """Counts of finished work and of refusals by worker, and latencies of the probes."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reads_s: list[float] = field(default_factory=list)
    writes_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Worker:
    """Context of a worker."""

    told: WorkCounts
    random: Random
    http: str
    wire: str

    def client(self) -> AsyncClient:
        """Open a client over the wire, in the database of the benchmarks."""
        return AsyncClient(self.wire, user=USER, password=PASSWORD, ns=NAMESPACE, db=DATABASE)

    def id(self) -> RecordId:
        """Return the id of a random record."""
        return RecordId("item", self.random.randrange(RECORDS))


Work = Callable[[Worker], AsyncIterator[None]]
"""Generator of a worker: does its work once each step."""


async def records(worker: Worker) -> AsyncIterator[None]:
    """Create, read, change and delete single records by id."""
    async with worker.client() as client:
        while True:
            id, number = worker.id(), worker.random.randrange(1_000_000)
            began = time.perf_counter()
            await client.query(
                "UPSERT $id SET n = $n, part = $n % 100, text = $text RETURN NONE",
                {"id": id, "n": number, "text": TEXT[: number % 150]},
            )
            worker.told.writes_s.append(time.perf_counter() - began)
            began = time.perf_counter()
            await client.query("SELECT * FROM $id", {"id": worker.id()})
            worker.told.reads_s.append(time.perf_counter() - began)
            if number % 10 == 0:
                await client.query("DELETE $id", {"id": worker.id()})
            yield


async def bulk(worker: Worker) -> AsyncIterator[None]:
    """Insert many rows; sort, group, change and delete them."""
    async with worker.client() as client:
        while True:
            rows = [{"id": n, "n": worker.random.random(), "s": TEXT[:60]} for n in range(BULK)]
            await client.query("INSERT INTO bulk $rows ON DUPLICATE UPDATE SET n = $input.n"
                               " RETURN NONE", {"rows": rows})  # fmt: skip
            yield
            await client.query("SELECT * FROM bulk ORDER BY n DESC LIMIT 1000")
            await client.query("SELECT part, count() AS c, mean(n) AS m FROM item"
                               " GROUP BY part")  # fmt: skip
            yield
            await client.query("UPDATE bulk SET n = n + 1 RETURN NONE")
            yield
            await client.query("SELECT * FROM bulk")
            await client.query("DELETE bulk")
            yield


async def keys(worker: Worker) -> AsyncIterator[None]:
    """Use keys over the wire: small and large ones, with and without expiry, counters, locks."""
    async with worker.client() as client:
        cache = client.cache(NAMESPACE, DATABASE, "c")
        while True:
            name = f"k{worker.random.randrange(KEYS)}"
            size = 100_000 if worker.random.random() < 0.02 else 100
            await cache.set(name, "x" * size, ttl=worker.random.choice([1, 5, 30]))
            await cache.get(f"k{worker.random.randrange(KEYS)}")
            await cache.incr(f"n{worker.random.randrange(50)}")
            if worker.random.random() < 0.05:
                await cache.keys(prefix="k", limit=1_000)
            yield


async def messages(worker: Worker) -> AsyncIterator[None]:
    """Publish, take and acknowledge messages; let a few exceed their visibility timeout."""
    async with worker.client() as client:
        topic = client.topic(NAMESPACE, DATABASE, "t")
        group = topic.group("g")
        while True:
            await topic.publish_many([{"n": n, "text": TEXT} for n in range(20)])
            taken = await group.take(30, wait=0.2)
            receipts = [one.receipt for one in taken if worker.random.random() < 0.98]
            if receipts:
                await group.ack(receipts)
            await topic.read(after=0, limit=20)
            yield


async def scripts(worker: Worker) -> AsyncIterator[None]:
    """Run scripts of every size: loops, a large parameter, a text never seen before, a refusal."""
    async with worker.client() as client:
        while True:
            number = worker.random.randrange(1 << 40)
            await client.query(f"LET $a = {number}; FOR $x IN 0..2000 {{ LET $b = $a + $x }}")
            await client.query("RETURN array::len($a)", {"a": list(range(200_000))})
            await client.query("BEGIN; CREATE bulk SET n = $n; UPDATE item:1 SET m = $n; COMMIT",
                               {"n": number})  # fmt: skip
            try:
                await client.query(f"SELECT * FROM nothing_{number}")
            except Refused as refused:
                worker.told.refused[refused.code] += 1
            yield


async def sign_ins(worker: Worker) -> AsyncIterator[None]:
    """Open and close sessions over HTTP, with an occasional wrong password."""
    while True:
        async with _http(worker.http) as ask:
            right = await ask("POST", "/session", None, _basic(PASSWORD))
            token = right["token"]
            await ask("POST", "/script", b"RETURN 1", f"Bearer {token}")
            await ask("DELETE", "/session", None, f"Bearer {token}")
        yield


async def over_http(worker: Worker) -> AsyncIterator[None]:
    """Use keys and scripts over HTTP on one connection, and scrape the metrics."""
    async with _http(worker.http) as ask:
        token = (await ask("POST", "/session", None, _basic(PASSWORD)))["token"]
        bearer = f"Bearer {token}"
        while True:
            name = f"h{worker.random.randrange(KEYS)}"
            path = f"/kv/{NAMESPACE}/{DATABASE}/c/key/{name}"
            await ask("PUT", f"{path}?expire=20s", b"{ a: 1, b: [1, 2, 3] }", bearer)
            await ask("GET", path, None, bearer)
            text = f"USE {NAMESPACE}.{DATABASE}; SELECT * FROM item WHERE part = 7 LIMIT 500"
            await ask("POST", "/script", text.encode(), bearer)
            await ask("GET", "/metrics", None, bearer)
            yield


async def comers_and_goers(worker: Worker) -> AsyncIterator[None]:
    """Open connections, send one request or none, and close them abruptly."""
    while True:
        async with worker.client() as client:
            await client.query("SELECT * FROM item WHERE part = 3")
        async with _connected(worker.wire):
            pass
        async with _connected(worker.http) as (reader, writer):
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await writer.drain()
            await reader.read(64)
        yield


WORK: Final[dict[str, tuple[Work, int]]] = {
    "records": (records, 4),
    "bulk": (bulk, 1),
    "keys": (keys, 2),
    "messages": (messages, 2),
    "scripts": (scripts, 1),
    "sign-ins": (sign_ins, 1),
    "http": (over_http, 2),
    "comers and goers": (comers_and_goers, 1),
}
"""Kinds of work, and the number of workers of each."""


async def go_on(name: str, work: Work, worker: Worker) -> None:
    """Run a worker until it is cancelled.

    A refusal that a busy node may give is counted, and the worker starts again; any other error
    ends the soak.
    """
    while True:
        steps = work(worker)
        try:
            while True:
                began = time.perf_counter()
                await anext(steps)
                worker.told.done[name] += 1
                await asyncio.sleep(time.perf_counter() - began)
        except Refused as refused:
            if refused.code not in BUSY:
                raise
            worker.told.refused[refused.code] += 1
        finally:
            await steps.aclose()  # type: ignore[attr-defined]


# --- a little HTTP --------------------------------------------------------------------------------

Ask = Callable[[str, str, bytes | None, str], Awaitable[Any]]


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def _connected(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection, which is closed however the block ends: a soak is cancelled in the middle
    of it."""
    reader, writer = await asyncio.open_connection(*_split(address), limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def _http(address: str) -> AsyncIterator[Ask]:
    """Open one connection. Yield a function that sends a request and returns its JSON, or None."""
    async with _connected(address) as (reader, writer):
        yield _asking(address, reader, writer)


def _asking(address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Ask:
    async def ask(method: str, path: str, body: bytes | None, credential: str) -> Any:
        head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {credential}\r\n"
        if body is not None:
            head += f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        elif method == "POST":
            head += "Content-Length: 0\r\n"
        writer.write(head.encode() + b"\r\n" + (body or b""))
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(answer.split(maxsplit=2)[1])
        length = answer.partition("content-length: ")[2].partition("\r\n")[0]
        found = await reader.readexactly(int(length or 0))
        if status >= 400 and status != 404:
            raise HttpRefused(f"{method} {path}: {status} {found[:300]!r}")
        return json.loads(found) if found[:1] == b"{" else None

    return ask


class HttpRefused(Exception):
    """An answer that the soak did not expect."""
