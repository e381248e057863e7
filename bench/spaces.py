"""Rows about cache keys: over HTTP beside webdis and etcd, over the wire beside Redis.

HTTP is driven by wrk, Redis by redis-benchmark, the wire by a pipelining driver of this module in
two processes. Redis and webdis sync before they answer (`appendfsync always`), as the node does.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from bench.drivers import LoadFailed
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.load import LATE_SECONDS
from bench.nodes import DATABASE, NAMESPACE, PASSWORD, USER, NodeProcess, define_place
from bench.ports import free_port
from bench.processes import serving
from bench.settings import Settings
from storeclient.frames import FrameReader, Kind, encode
from storeclient.settings import split_address

SPACE: Final = "cache"
CONNECTIONS_HTTP: Final = 32
SECONDS: Final = 4.0
"""Duration of one round of one side, seconds."""
LISTED: Final = 1_000
MILLION: Final = 1_000_000
LOAD_TOGETHER: Final = 2_000
SHAPES: Final = ((1, 1), (1, 16), (50, 1), (50, 16))
"""Connections, and pipelined requests on each."""
OPERATIONS: Final = ("get", "set", "incr")
GOALS: Final = {
    ("get", 50, 16): "≥ 40 000/s", ("set", 50, 16): "≥ 20 000/s",
}  # fmt: skip

NAMES: Final = (
    "kv-get-http", "kv-put-http", "kv-keys",
    *(f"kv-{op}-{clients}-{depth}" for op in OPERATIONS for clients, depth in SHAPES),
    "kv-million",
)  # fmt: skip

_SPAWN = multiprocessing.get_context("spawn")


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows."""
    if not any(map(wanted, NAMES)):
        return
    with ExitStack() as held:
        yield from _SpaceSetup(settings, held).measured(wanted)


class _SpaceSetup:
    """A node with a space, and the peers that are installed."""

    def __init__(self, settings: Settings, held: ExitStack) -> None:
        self._settings = settings
        self._seconds = max(SECONDS * min(settings.scale, 1.0), 0.3)
        self._held = held
        self._node = held.enter_context(NodeProcess(settings.directory / "spaces"))
        with self._node.client() as client:
            define_place(client)
            client.run(f"DEFINE SPACE {SPACE}")
            client.run(f"SET 'k' IN {SPACE} VALUE 'hello'; SET 'n' IN {SPACE} VALUE 0")
            listed = f"SET ('listed:' + type::string($i)) IN {SPACE} VALUE $i"
            client.run(f"FOR $i IN 0..{LISTED} {{ {listed} }}")
            self._token = _token(self._node)
        self._redis: int | None = None
        self._webdis: int | None = None
        self._etcd: int | None = None

    def measured(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Measure the rows, those over HTTP first."""
        self._start_peers()
        for name, measure in (
            ("kv-get-http", self._get_http),
            ("kv-put-http", self._put_http),
            ("kv-keys", self._keys),
        ):
            if wanted(name):
                yield measure()
        for operation in OPERATIONS:
            for clients, depth in SHAPES:
                name = f"kv-{operation}-{clients}-{depth}"
                if wanted(name):
                    yield self._wire(name, operation, clients, depth)
        if wanted("kv-million"):
            yield self._million()

    # --- peers ----------------------------------------------------------------------------------

    def _start_peers(self) -> None:
        directory = self._settings.directory
        if shutil.which("redis-server"):
            self._redis = self._held.enter_context(redis_server(directory / "redis"))
        if self._redis is not None and shutil.which("webdis"):
            self._webdis = self._held.enter_context(_webdis(directory / "webdis", self._redis))
        if shutil.which("etcd"):
            self._etcd = self._held.enter_context(etcd(directory / "etcd"))

    def _gaps(self, row: Measurement, **ports: int | None) -> None:
        for name, port in ports.items():
            if port is None:
                row.gaps.append(f"{name}: not installed (apt-get install {_PACKAGES[name]})")
        if not shutil.which("wrk") and row.name.endswith(("http", "keys")):
            row.gaps.append("wrk: not installed (apt-get install wrk)")

    # --- HTTP -----------------------------------------------------------------------------------

    def _path(self, rest: str) -> str:
        return f"/kv/{NAMESPACE}/{DATABASE}/{SPACE}{rest}"

    def _wrk(self, port: int, path: str, script: str = "") -> float:
        return _wrk(self._settings.directory, port, path, script, self._seconds)

    def _own(self, path: str, method: str = "GET", body: str = "") -> float:
        _, port = split_address(self._node.http)
        script = f'wrk.method="{method}"\nwrk.headers["Authorization"]="Bearer {self._token}"\n'
        if body:
            script += f'wrk.body="{body}"\nwrk.headers["Content-Type"]="text/plain"\n'
        return self._wrk(port, path, script)

    def _get_http(self) -> Measurement:
        work = f"GET one key over HTTP, {CONNECTIONS_HTTP} connections"
        row = Measurement("kv-get-http", work, "/s", "more", "≥ 0.4× webdis")
        measures: dict[str, Measure] = {NODE: lambda: self._own(self._path("/key/k"))}
        if self._webdis is not None:
            measures["webdis + Redis"] = partial(self._wrk, self._webdis, "/GET/k")
        if self._etcd is not None:
            measures["etcd gateway"] = partial(
                self._wrk, self._etcd, "/v3/kv/range", _posting({"key": _b64("k")})
            )
        return self._over_http(row, measures)

    def _put_http(self) -> Measurement:
        work = f"PUT one key over HTTP, synced, {CONNECTIONS_HTTP} connections"
        row = Measurement("kv-put-http", work, "/s", "more")
        measures: dict[str, Measure] = {
            NODE: lambda: self._own(self._path("/key/k"), "PUT", "'hello'")
        }
        if self._webdis is not None:
            measures["webdis + Redis, synced"] = partial(self._wrk, self._webdis, "/SET/k/hello")
        if self._etcd is not None:
            body = {"key": _b64("k"), "value": _b64("hello")}
            measures["etcd gateway"] = partial(self._wrk, self._etcd, "/v3/kv/put", _posting(body))
        return self._over_http(row, measures)

    def _keys(self) -> Measurement:
        work = f"list {LISTED:,} keys over HTTP, {CONNECTIONS_HTTP} connections"
        row = Measurement("kv-keys", work, "/s", "more")
        measures: dict[str, Measure] = {NODE: lambda: self._own(self._path("?prefix=listed:"))}
        if self._etcd is not None:
            for number in range(LISTED):
                _post(self._etcd, "/v3/kv/put", {"key": _b64(f"listed:{number}"), "value": "MQ=="})
            body = {"key": _b64("listed:"), "range_end": _b64("listed;"), "keys_only": True}
            measures["etcd gateway"] = partial(
                self._wrk, self._etcd, "/v3/kv/range", _posting(body)
            )
        row.gaps.append("Redis: SCAN is in no order, and KEYS blocks the server")
        return self._over_http(row, measures, webdis=False)

    def _over_http(
        self, row: Measurement, measures: dict[str, Measure], *, webdis: bool = True
    ) -> Measurement:
        self._gaps(row, etcd=self._etcd, **({"webdis": self._webdis} if webdis else {}))
        if shutil.which("wrk"):
            row.sides = in_turns(self._settings.rounds, measures)
        return row

    # --- the wire -------------------------------------------------------------------------------

    def _wire(self, name: str, operation: str, clients: int, depth: int) -> Measurement:
        synced = "" if operation == "get" else ", synced"
        piped = f", {depth} under way on each" if depth > 1 else ""
        work = f"{operation.upper()} over the wire{synced}, {_connections(clients)}{piped}"
        goal = GOALS.get((operation, clients, depth), "")
        row = Measurement(name, work, "/s", "more", goal)
        measures: dict[str, Measure] = {
            NODE: lambda: drive(self._node.wire, operation, clients, depth, self._seconds)[0]
        }
        if self._redis is not None:
            measures["Redis, appendfsync always"] = partial(
                _redis_benchmark, self._redis, operation, clients, depth, self._seconds
            )
        self._gaps(row, redis=self._redis)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    # --- a million ------------------------------------------------------------------------------

    def _million(self) -> Measurement:
        """Measure memory, and the effect of sweeping on concurrent readers."""
        total = self._settings.scaled(MILLION)
        row = Measurement("kv-million", f"{total:,} keys that expire at once", "s", "less")
        with self._node.client() as client:
            client.run("DEFINE SPACE IF NOT EXISTS many")
            before = self._node.memory_mib()
            began = time.perf_counter()
            lasts = 2.0 + total / 12_000
            for start in range(0, total, LOAD_TOGETHER):
                client.run(
                    "BEGIN; FOR $i IN $a..$b { SET ('k:' + type::string($i)) IN many"
                    " VALUE $i EXPIRE $d }; COMMIT",
                    {
                        "a": start,
                        "b": min(start + LOAD_TOGETHER, total),
                        "d": _lasting(lasts - (time.perf_counter() - began)),
                    },
                )
            loaded = time.perf_counter() - began
            row.notes.append(f"loaded in {loaded:.1f} s by scripts")
            memory = self._node.memory_mib()
            row.notes.append(f"memory {before:.0f} → {memory:.0f} MiB")
            cache = client.cache(NAMESPACE, DATABASE, SPACE)
            quiet = _latencies(lambda: cache.get("k"), 500)
            time.sleep(max(lasts - (time.perf_counter() - began), 0))
            swept, cpu = time.perf_counter(), self._node.cpu_seconds()
            left, late = total, list[float]()
            while left:
                late += _latencies(lambda: cache.get("k"), 50)
                left = _unswept(client)
            took = time.perf_counter() - swept
            row.sides[NODE] = [took]
            each_us = (self._node.cpu_seconds() - cpu) / total * 1e6
            row.notes.append(
                f"swept {total / took:,.0f} keys/s, {each_us:.0f} µs of processor each;"
                f" GET meanwhile p50 {_at(late, 50):.2f} ms, p99"
                f" {_at(late, 99):.2f} ms (before: {_at(quiet, 50):.2f}, {_at(quiet, 99):.2f})"
            )
            row.notes.append(f"memory after {self._node.memory_mib():.0f} MiB")
        return row


_PACKAGES: Final = {"redis": "redis-server", "webdis": "webdis", "etcd": "etcd-server"}


def _connections(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"


def _lasting(seconds: float) -> timedelta:
    return timedelta(seconds=max(seconds, 0.001))


def _latencies(work: Callable[[], object], count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
    return found


def _at(found: list[float], percent: int) -> float:
    return sorted(found)[min(len(found) * percent // 100, len(found) - 1)]


def _unswept(client: Any) -> int:
    """Count the node's own commits in 0.3 s: zero once nothing is left to sweep."""
    first = client.run("RETURN 1").seq
    time.sleep(0.3)
    return int(client.run("RETURN 1").seq - first)


# --- the driver -----------------------------------------------------------------------------------


def drive(
    address: str,
    operation: str,
    clients: int,
    depth: int,
    seconds: float,
    cpu_seconds: Callable[[], float] = lambda: 0.0,
) -> tuple[float, float]:
    """Return answers per second, from two processes (one for one client), and the processor time of
    the node for each, microseconds.

    :param cpu_seconds: the processor time that the node has used so far
    """
    processes = 1 if clients == 1 else 2
    ends, drivers = [], []
    for _ in range(processes):
        ours, theirs = _SPAWN.Pipe()
        share = (address, operation, clients // processes, depth, seconds, theirs)
        driver = _SPAWN.Process(target=_drive, args=share, daemon=True)
        driver.start()
        theirs.close()
        ends.append(ours)
        drivers.append(driver)
    for end in ends:
        end.recv()
    cpu_before = cpu_seconds()  # signing in took much more than a request
    for end in ends:
        end.send("go")
    found = [end.recv() for end in ends]
    cpu = cpu_seconds() - cpu_before
    for driver in drivers:
        driver.join()
    for one in found:
        if isinstance(one, str):
            raise LoadFailed(one)
    rate = float(sum(found))
    return rate, cpu / (rate * seconds) * 1e6


def _drive(
    address: str, operation: str, clients: int, depth: int, seconds: float, parent: Any
) -> None:
    body = {"op": operation, "ns": NAMESPACE, "db": DATABASE, "space": SPACE}
    body["key"] = "n" if operation == "incr" else "k"
    if operation == "set":
        body["value"] = "hello"
    data = b"".join(encode(Kind.KV, number + 1, body) for number in range(depth))
    opened = {}
    poll = select.epoll()
    for _ in range(clients):
        one = socket.create_connection(split_address(address))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "user": USER, "password": PASSWORD}
        one.sendall(encode(Kind.HELLO, 0, hello))
        reader = FrameReader()
        while not reader.feed(one.recv(1 << 16)):
            pass
        opened[one.fileno()] = (one, bytearray(), [0])
        poll.register(one, select.EPOLLIN)
    parent.send("ready")
    parent.recv()
    began = time.perf_counter()
    for one, _, _ in opened.values():
        one.sendall(data)
    done = 0
    while time.perf_counter() - began < seconds:
        ready = poll.poll(LATE_SECONDS)
        if not ready:
            parent.send("no answer came")
            return
        for number, _ in ready:
            one, kept, answered = opened[number]
            kept += one.recv(1 << 18)
            at = 0
            while len(kept) - at >= 4:
                end = at + 4 + int.from_bytes(kept[at : at + 4], "big")
                if len(kept) < end:
                    break
                if kept[at + 5] != Kind.VALUE:
                    parent.send(repr(bytes(kept[at:end])))
                    return
                at = end
                answered[0] += 1
            del kept[:at]
            if answered[0] >= depth:
                done += depth
                answered[0] -= depth
                one.sendall(data)
    parent.send(done / (time.perf_counter() - began))


def _wrk(directory: Path, port: int, path: str, script: str, seconds: float) -> float:
    told = directory / "request.lua"
    told.write_text(script)
    ended = subprocess.run(
        ["wrk", "-t2", f"-c{CONNECTIONS_HTTP}", f"-d{max(round(seconds), 1)}s", "-s", str(told),
         f"http://127.0.0.1:{port}{path}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    if "Non-2xx" in ended.stdout:
        raise LoadFailed(ended.stdout)
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", ended.stdout)
    assert rate is not None, ended.stdout
    return float(rate[1])


def _posting(body: dict[str, Any]) -> str:
    text = json.dumps(body).replace('"', '\\"')
    return f'wrk.method="POST"\nwrk.body="{text}"\nwrk.headers["Content-Type"]="application/json"\n'


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _post(port: int, path: str, body: dict[str, Any]) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()


def _token(node: NodeProcess) -> str:
    connection = HTTPConnection(*split_address(node.http))
    body = json.dumps({"user": USER, "password": PASSWORD})
    connection.request("POST", "/session", body, {"Content-Type": "application/json"})
    token: str = json.loads(connection.getresponse().read())["token"]
    connection.close()
    return token


# --- peers in processes of their own --------------------------------------------------------------


@contextmanager
def redis_server(directory: Path) -> Iterator[int]:
    port = free_port()
    words = (
        "redis-server", "--port", str(port), "--dir", str(directory), "--appendonly", "yes",
        "--appendfsync", "always", "--save", "",
    )  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    with serving(directory, port, *words):
        subprocess.run(["redis-cli", "-p", str(port), "set", "k", "hello"], check=True,
                       capture_output=True)  # fmt: skip
        yield port


@contextmanager
def _webdis(directory: Path, redis: int) -> Iterator[int]:
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "redis_host": "127.0.0.1", "redis_port": redis, "redis_auth": None,
        "http_host": "127.0.0.1", "http_port": port, "threads": 4, "pool_size": 20,
        "daemonize": False, "websockets": False, "database": 0, "verbosity": 3,
        "acl": [{"disabled": []}], "logfile": str(directory / "webdis.log"),
    }  # fmt: skip
    (directory / "webdis.json").write_text(json.dumps(settings))
    with serving(directory, port, "webdis", str(directory / "webdis.json")):
        yield port


@contextmanager
def etcd(directory: Path) -> Iterator[int]:
    """Run etcd with its gateway; yield the port."""
    port, peer = free_port(), free_port()
    words = (
        "etcd", "--data-dir", str(directory / "data"),
        "--listen-client-urls", f"http://127.0.0.1:{port}",
        "--advertise-client-urls", f"http://127.0.0.1:{port}",
        "--listen-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-cluster", f"default=http://127.0.0.1:{peer}", "--log-level", "error",
    )  # fmt: skip
    with serving(directory, port, *words):
        time.sleep(2)  # the port stands before the member does
        _post(port, "/v3/kv/put", {"key": _b64("k"), "value": _b64("hello")})
        yield port


def _redis_benchmark(port: int, operation: str, clients: int, depth: int, seconds: float) -> float:
    """Run redis-benchmark, with as many requests as make a round about as long as the node's."""
    rate = 2_000 if clients == 1 else 20_000
    count = max(round(rate * depth * seconds / 2), 2_000)
    ended = subprocess.run(
        ["redis-benchmark", "-p", str(port), "-t", operation, "-c", str(clients), "-P", str(depth),
         "-n", str(count), "-q", "--csv"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rates = re.findall(r'^"[A-Z]+[^"]*","([0-9.]+)"', ended.stdout, re.MULTILINE)
    if not rates:
        raise LoadFailed(ended.stdout)
    return float(rates[-1])
