"""Rows about the clients of all languages: the processor time that each takes for an operation.

The same load goes through each client to a node, and through a client of its language to Redis, by
a program that lives through all rounds. What the servers compute does not count.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from bench.figures import Measure, Measurement, in_turns, median
from bench.nodes import DATABASE, NAMESPACE, PASSWORD, ROOT, USER, NodeProcess, define_place
from bench.people import parts
from bench.processes import cpu_seconds
from bench.settings import Settings
from bench.spaces import redis_server
from bench.testees import TOOLCHAINS, built, client_program, ran

DEPTH: Final = 256
OPERATIONS: Final[Mapping[str, tuple[str, str, int]]] = {
    "client-get-256": ("get", "get one key", 40_000),
    "client-set-256": ("set", "set one key, synced", 40_000),
    "client-publish": ("publish", "publish one message, synced", 20_000),
    "client-rows-100k": ("rows", "read one row of 100,000, by pages of 1,000", 100_000),
}
"""Operation, description and number of operations in a round, by name of the row."""
NAMES: Final = tuple(OPERATIONS)
KEYS: Final = 1_000
GOAL: Final = 1.5
"""Most processor time of a client, as a multiple of its peer's."""
PEERS: Final[Mapping[str, str]] = {
    "Python": "redis-py",
    "Go": "go-redis",
    "TypeScript": "ioredis",
    "Rust": "redis-rs",
    "Kotlin": "lettuce",
}
SOURCES: Final = ROOT / "bench" / "peer_clients"


class LoadFailed(Exception):
    """A program ended, or its client failed; the message says how."""


class LoadProgram:
    """A program that answers each line of its standard input."""

    def __init__(self, words: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def ask(self, **asked: Any) -> Any:
        """Return the answer to a line. :raises LoadFailed: there is none"""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"no answer to {asked}")
        return json.loads(line)

    def processor_us(self, operation: Callable[[], object], count: int) -> float:
        """Return the processor time of this program for each of `count` operations, microseconds.

        Its own clock tells: not every language has one that is finer than a tick of 10 ms.
        """
        before = cpu_seconds(self._process.pid)
        operation()
        return (cpu_seconds(self._process.pid) - before) / count * 1e6


class ClientLoad:
    """Load through a client of the node, by its testee."""

    def __init__(self, program: LoadProgram, address: str) -> None:
        self._program = program
        self._call("open", addresses=address, user=USER, password=PASSWORD, **{"as": "c"})

    def _call(self, word: str, **more: Any) -> None:
        answer = self._program.ask(id=1, call=word, **more)
        if "error" in answer:
            raise LoadFailed(f"{word}: {answer['error']}")

    def processor_us(self, operation: str, count: int) -> float:
        """Return the processor time of an operation, microseconds."""
        place = {"ns": NAMESPACE, "db": DATABASE, "space": "keys", "topic": "topic", "table": "row"}
        asked = {"on": "c", "operation": operation, "depth": DEPTH, "count": count, **place}
        return self._program.processor_us(lambda: self._call("load", **asked), count)


class PeerLoad:
    """Load through a client of Redis."""

    def __init__(self, program: LoadProgram) -> None:
        self._program = program

    def processor_us(self, operation: str, count: int) -> float:
        """Return the processor time of an operation, microseconds."""
        asked = {"operation": operation, "depth": DEPTH, "count": count}
        return self._program.processor_us(lambda: self._program.ask(**asked), count)


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, on one node and one Redis."""
    names = [name for name in NAMES if wanted(name)]
    if not names:
        return
    count = settings.scaled(OPERATIONS["client-rows-100k"][2])
    with ExitStack() as held:
        node = held.enter_context(NodeProcess(settings.directory / "client-loads"))
        _fill_node(node, count)
        loads: dict[str, ClientLoad | PeerLoad] = {}
        gaps: list[str] = []
        port = None
        if shutil.which("redis-server"):
            port = held.enter_context(redis_server(settings.directory / "client-redis"))
            _fill_redis(port, count)
        else:
            gaps.append("Redis: not installed (apt-get install redis-server)")
        for language, peer in PEERS.items():
            if (missing := TOOLCHAINS[language].missing) is not None:
                gaps.append(f"{language}: {missing}")
                continue
            program = held.enter_context(LoadProgram(client_program(language, release=True)))
            loads[language] = ClientLoad(program, node.wire)
            if language == "Python" and importlib.util.find_spec("redis") is None:
                gaps.append(f"{peer}: the package is not installed (pip install '.[bench]')")
            elif port is not None:
                words = [*_peer(language), str(port)]
                loads[peer] = PeerLoad(held.enter_context(LoadProgram(words)))
        for name in names:
            yield _row(settings, name, loads, gaps)


def _row(
    settings: Settings, name: str, loads: Mapping[str, ClientLoad | PeerLoad], gaps: list[str]
) -> Measurement:
    operation, work, full = OPERATIONS[name]
    count = settings.scaled(full)
    row = Measurement(
        name, f"{work}, {DEPTH} in flight: processor time of the client", "µs", "less",
        f"≤ {GOAL}× the peer's",
    )  # fmt: skip
    if operation == "rows":
        row.work = f"{work}: processor time of the client"
    row.gaps += gaps
    measures: dict[str, Measure] = {
        side: partial(load.processor_us, operation, count) for side, load in loads.items()
    }
    row.sides = in_turns(settings.rounds, measures)
    for language, peer in PEERS.items():
        if language in row.sides and peer in row.sides:
            ratio = median(row.sides[language]) / median(row.sides[peer])
            row.notes.append(f"{language}: {ratio:.2f}× {peer}")
    return row


def _fill_node(node: NodeProcess, count: int) -> None:
    with node.client() as client:
        define_place(client, "row")
        client.run("DEFINE SPACE keys; DEFINE TOPIC topic")
        cache = client.cache(NAMESPACE, DATABASE, "keys")
        for number in range(KEYS):
            cache.set(f"k{number}", number)
        for rows in parts(count):
            client.run("INSERT INTO row $rows RETURN NONE", {"rows": rows})


def _fill_redis(port: int, count: int) -> None:
    """Fill a Redis with the same keys and rows, by its protocol."""
    with subprocess.Popen(
        ["redis-cli", "-p", str(port), "--pipe"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as filling:
        assert filling.stdin is not None
        for number in range(KEYS):
            filling.stdin.write(_command("SET", f"k{number}", str(number)))
        for rows in parts(count):
            for row in rows:
                texts = [
                    json.dumps(one) if isinstance(one, list) else str(one) for one in row.values()
                ]
                fields = [text for pair in zip(row, texts, strict=True) for text in pair]
                filling.stdin.write(_command("XADD", "rows", "*", *fields))
        filling.stdin.close()
    if filling.returncode != 0:
        raise LoadFailed("redis-cli did not fill Redis")


def _command(*words: str) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in parts)


# --- programs of the peers ------------------------------------------------------------------------


def _peer(language: str) -> list[str]:
    """Build the program of a peer. Return its command line."""
    sources = SOURCES / language.lower()
    if language == "Python":
        return [sys.executable, str(sources / "load.py")]
    return built(f"peer-{language.lower()}", sources, BUILDS[language])


def _go(folder: Path, _: str) -> list[str]:
    program = folder / "build" / "load"
    ran("go", "build", "-o", str(program), ".", cwd=folder, GOTOOLCHAIN="local")
    return [str(program)]


def _typescript(folder: Path, _: str) -> list[str]:
    ran("npm", "ci", "--ignore-scripts", cwd=folder)
    return ["node", str(folder / "load.js")]


def _rust(folder: Path, _: str) -> list[str]:
    ran("cargo", "build", "--release", "--locked", cwd=folder)
    return [str(folder / "target" / "release" / "peer")]


def _kotlin(folder: Path, _: str) -> list[str]:
    ran("mvn", "--batch-mode", "--quiet", "compile", cwd=folder)
    build = folder / "build"
    found = (build / "classpath").read_text(encoding="utf-8").strip()
    return ["java", "-cp", f"{build / 'classes'}:{found}", "LoadKt"]


BUILDS: Final[Mapping[str, Callable[[Path, str], list[str]]]] = {
    "Go": _go,
    "TypeScript": _typescript,
    "Rust": _rust,
    "Kotlin": _kotlin,
}
