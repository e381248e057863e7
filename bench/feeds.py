"""Rows about change feeds: one writer and many followers, beside etcd's watch; and the replay of
old commits.

Each write carries its start time, and each event brings it back. The figure is the latency from
there to the reader, including the write's own sync. Readers count events by that mark alone, so
that reading them costs the driver little.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import selectors
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bench.drivers import DRIVER_BUSY, Driven, Go, Measured, Stopwatch, together
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.nodes import DATABASE, NAMESPACE, PASSWORD, USER, NodeProcess, define_place
from bench.settings import Settings
from bench.spaces import etcd
from storeclient import Client

FOLLOWED: Final = {1: 2_000, 100: 1_000, 1_000: 100}
"""Followers: writes of a round."""
GOALS: Final = {"feed-100": "≥ 20 000 events/s"}
REPLAYED: Final = 1_000_000
TOGETHER: Final = 1_000
"""Records of one commit that is replayed."""
HEAR_BYTES: Final = 256 * 1024
TABLE: Final = "followed"
FILTERED: Final = 100
"""Followers with one filter, which passes every event."""
NAMES: Final = (
    *(f"feed-{count}" for count in FOLLOWED),
    *(f"feed-{count}-p99" for count in FOLLOWED),
    "feed-filtered",
    "feed-filtered-p99",
    "feed-replay",
)

BASE: Final = 1 << 60
"""Above 2^53, so that an integer has a form of its own in JSON: events are recognized by it."""
SURREALDB: Final = (
    "SurrealDB: its Python package has live queries over the network only, not embedded"
)
_OURS: Final = rb'"sent":\{"\$int":"(\d+)"\}'
_ETCDS: Final = rb'"value":"([A-Za-z0-9+/=]+)"'
_SPLIT: Final = 256
"""Bytes at the end of a read that may be the beginning of an event."""


@dataclass(frozen=True, slots=True)
class FeedServer:
    """Server whose changes are followed."""

    name: str
    ours: bool
    address: str
    """Host and port of the feed."""
    wire: str = ""
    """Address for writes; for the node only."""
    where: str = ""
    """Filter of the followers, as in the query string; for the node only."""

    def began(self, carried: bytes) -> int:
        """Return the start time of the write that an event reports, nanoseconds."""
        return int(carried) - BASE if self.ours else int(base64.b64decode(carried))

    def connect(self) -> socket.socket:
        """Open a feed from the present on, with its request answered."""
        host, _, port = self.address.rpartition(":")
        found = socket.create_connection((host, int(port)))
        found.sendall(self._watch_ours() if self.ours else self._watch_etcd())
        heard = b""
        while (b'"caught_up"' if self.ours else b'"created":true') not in heard:
            data = found.recv(HEAR_BYTES)
            if not data:
                raise ConnectionError(heard.decode(errors="replace"))
            heard += data
        return found

    def _watch_ours(self, start: str = "") -> bytes:
        user = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return (
            f"GET /watch?ns={NAMESPACE}&db={DATABASE}&table={TABLE}{start}{self.where} HTTP/1.1\r\n"
            f"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Basic {user}\r\n\r\n"
        ).encode()

    def _watch_etcd(self) -> bytes:
        body = json.dumps({"create_request": {"key": base64.b64encode(b"k").decode()}})
        return (
            f"POST /v3/watch HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    def replay(self) -> socket.socket:
        """Open a feed that replays all commits."""
        host, _, port = self.address.rpartition(":")
        found = socket.create_connection((host, int(port)))
        found.sendall(self._watch_ours("&from=0"))
        return found


@dataclass(frozen=True, slots=True)
class Share:
    """Work of one driver: it writes, or it follows."""

    side: FeedServer
    writes: int
    """Writes of the round."""
    followers: int
    """Feeds of this driver; 0: it is the writer."""


def follow(share: Share, go: Go) -> Driven:
    """Run in a driver process."""
    return _hear(share, go) if share.followers else _write(share, go)


def _hear(share: Share, go: Go) -> Driven:
    carried = re.compile(_OURS if share.side.ours else _ETCDS)
    left, took, expected = {}, list[float](), share.followers * share.writes
    with selectors.DefaultSelector() as ready:
        for _ in range(share.followers):
            found = share.side.connect()
            found.setblocking(False)
            ready.register(found, selectors.EVENT_READ)
            left[found] = b""
        go()
        with Stopwatch() as watch:
            while len(took) < expected:
                for key, _ in ready.select():
                    at = key.fileobj
                    assert isinstance(at, socket.socket)
                    data = at.recv(HEAR_BYTES)
                    if not data:
                        raise ConnectionError("a feed ended")
                    now, heard, end = time.monotonic_ns(), left[at] + data, 0
                    for match in carried.finditer(heard):
                        end = match.end()
                        took.append((now - share.side.began(match[1])) / 1e9)
                    left[at] = heard[max(end, len(heard) - _SPLIT) :]
        for found in left:
            found.close()
    return watch.driven(took)


def _write(share: Share, go: Go) -> Driven:
    with ExitStack() as held:
        write = _writer_ours(share, held) if share.side.ours else _writer_etcd(share, held)
        go()
        with Stopwatch() as watch:
            for _ in range(share.writes):
                write(time.monotonic_ns())
    return watch.driven([])


def _writer_ours(share: Share, held: ExitStack) -> Callable[[int], object]:
    client = held.enter_context(
        Client(share.side.wire, user=USER, password=PASSWORD, ns=NAMESPACE, db=DATABASE)
    )
    script = f"CREATE {TABLE} SET sent = $sent"
    return lambda sent: client.query(script, {"sent": BASE + sent})


def _writer_etcd(share: Share, held: ExitStack) -> Callable[[int], object]:
    connection = http.client.HTTPConnection(share.side.address)
    held.callback(connection.close)

    def put(sent: int) -> None:
        value = base64.b64encode(str(sent).encode()).decode()
        connection.request("POST", "/v3/kv/put", json.dumps({"key": "aw==", "value": value}))
        answer = connection.getresponse()
        if answer.status != 200:
            raise ConnectionError(answer.read().decode())
        answer.read()

    return put


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows."""
    if not any(map(wanted, NAMES)):
        return
    with ExitStack() as held:
        node = held.enter_context(NodeProcess(settings.directory / "feeds"))
        with node.client() as client:
            define_place(client, TABLE)
        sides, gap = [FeedServer(NODE, True, node.http, node.wire)], ""
        if shutil.which("etcd"):
            port = held.enter_context(etcd(settings.directory / "etcd-watch"))
            sides.append(FeedServer("etcd gateway", False, f"127.0.0.1:{port}"))
        else:
            gap = "etcd: not installed (apt-get install etcd-server)"
        for followers, writes in FOLLOWED.items():
            if wanted(f"feed-{followers}") or wanted(f"feed-{followers}-p99"):
                count, name = settings.scaled(writes), f"feed-{followers}"
                yield from _followed(settings, node, sides, gap, followers, count, name)
        if wanted("feed-filtered") or wanted("feed-filtered-p99"):
            side = replace(sides[0], where="&where=sent%20%3E%200")
            count = settings.scaled(FOLLOWED[FILTERED])
            none = "etcd: its watch has no filter by what is written"
            yield from _followed(settings, node, [side], none, FILTERED, count, "feed-filtered")
        if wanted("feed-replay"):
            yield _replayed(settings, node, sides[0])


def _followed(
    settings: Settings,
    node: NodeProcess,
    sides: list[FeedServer],
    gap: str,
    followers: int,
    writes: int,
    name: str,
) -> Iterator[Measurement]:
    filtered = " with a filter" if sides[0].where else ""
    work = f"one writer, {followers} who follow{filtered}, {writes} writes"
    events = Measurement(name, f"{work}: events told in all", "/s", "more", GOALS.get(name, ""))
    late = Measurement(f"{name}-p99", f"{work}: from the write to the reader, 99 %", "ms", "less")
    found: dict[str, list[Measured]] = {side.name: [] for side in sides}

    def measure(side: FeedServer) -> float:
        cpu = node.cpu_seconds if side.ours else lambda: 0.0
        shares = [Share(side, writes, 0), Share(side, writes, followers)]
        measured = together(follow, shares, cpu)
        found[side.name].append(measured)
        return measured.rate

    measures: dict[str, Measure] = {side.name: partial(measure, side) for side in sides}
    events.sides = in_turns(settings.rounds, measures)
    for side, all_measured in found.items():
        late.sides[side] = [one.p99_ms for one in all_measured[1:]]
        busy = max(one.driver_busy for one in all_measured)
        if busy > DRIVER_BUSY:
            events.notes.append(f"{side}: the driver was busy {busy:.0%} of the time")
    last = found[NODE][-1]
    events.notes.append(f"{last.node_cpu_us:.1f} µs of the node's processor an event")
    late.notes.append(f"p50 {last.p50_ms:.2f} ms")
    for row in (events, late):
        row.gaps += [SURREALDB, *filter(None, [gap])]
        yield row


def _replayed(settings: Settings, node: NodeProcess, side: FeedServer) -> Measurement:
    count = max(settings.scaled(REPLAYED) // TOGETHER, 1) * TOGETHER
    row = Measurement(
        "feed-replay", f"{count:,} old changes told again".replace(",", " "), "/s", "more"
    )
    with node.client() as client:
        client.query(f"DROP TABLE {TABLE}; DEFINE TABLE {TABLE}")
        for _ in range(count // TOGETHER):
            people = [{"sent": BASE + number} for number in range(TOGETHER)]
            client.query(f"INSERT INTO {TABLE} $rows", {"rows": people})

    def measure() -> float:
        carried, heard, told = re.compile(_OURS), b"", 0
        began = time.monotonic()
        with side.replay() as found:
            while told < count:
                data = found.recv(4 * HEAR_BYTES)
                if not data:
                    raise ConnectionError("the feed ended")
                heard += data
                end = 0
                for match in carried.finditer(heard):
                    told, end = told + 1, match.end()
                heard = heard[max(end, len(heard) - _SPLIT) :]
        return count / (time.monotonic() - began)

    row.sides = in_turns(settings.rounds, {NODE: measure})
    row.gaps.append("etcd: to fill it with as many revisions takes its gateway minutes")
    return row
