"""SurrealDB in a process of its own, which gets its work over a pipe.

It runs as its users run it: the Python package, in process, without a network. The clock runs in
its process.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgpack

from bench import people

_SPAWN = multiprocessing.get_context("spawn")

PACKAGE: Final = "surrealdb"


class PeerFailed(Exception):
    """The peer did not do its work."""


@dataclass(frozen=True, slots=True)
class PeerKind:
    """A way to run the peer."""

    name: str
    scheme: str
    durable: bool
    """True if a write is synced before it is answered, as the node's writes are."""


SYNCED: Final = PeerKind("SurrealDB surrealkv, synced", "surrealkv", True)
MEMORY: Final = PeerKind("SurrealDB mem", "mem", False)
KINDS: Final = (SYNCED, MEMORY)


def missing() -> str | None:
    """Return the reason why SurrealDB can't run on this machine, or None."""
    if importlib.util.find_spec(PACKAGE) is None:
        return f"the package {PACKAGE} is not installed (pip install '.[bench]')"
    return None


class ComparedSystem:
    """A running peer. Every method returns the seconds of its work in the peer's process."""

    def __init__(self, kind: PeerKind, directory: Path) -> None:
        self.kind = kind
        self._directory = directory
        ours, theirs = _SPAWN.Pipe()
        self._end = ours
        self._process = _SPAWN.Process(target=_serve, args=(kind, directory, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, work: str, **arguments: Any) -> Any:
        """Call one of the functions below in the peer's process.

        :raises PeerFailed: it failed
        """
        self._end.send((work, arguments))
        try:
            found = self._end.recv()
        except EOFError:
            raise PeerFailed("the peer's process has ended") from None
        if isinstance(found, Exception):
            raise PeerFailed(str(found))
        return found

    def memory_mib(self) -> float:
        """Resident memory, MiB, with Python and driver."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise PeerFailed("the system does not say how much memory it has")

    def close(self) -> None:
        """End the process and remove its data."""
        self._end.close()
        self._process.join()
        shutil.rmtree(self._directory, ignore_errors=True)


# --- in the peer's process ------------------------------------------------------------------------


def _serve(kind: PeerKind, directory: Path, parent: Connection) -> None:
    if kind.durable:
        os.environ["SURREAL_SYNC_DATA"] = "true"  # seen with strace: one fsync for each commit
    from surrealdb import RecordID, Surreal

    address = "mem://" if kind.scheme == "mem" else f"{kind.scheme}://{directory}"
    with Surreal(address) as db:
        db.use("bench", "bench")
        works: dict[str, Callable[..., Any]] = {
            "fill": _fill,
            "create": _create,
            "read": _read,
            "insert": _insert,
            "scan": _scan,
            "run": _run,
            "ask": _ask,
            "out": partial(_out, directory.with_suffix(".rows")),
            "back": partial(_back, directory.with_suffix(".rows")),
        }
        while True:
            try:
                work, arguments = parent.recv()
            except EOFError:
                return
            try:
                parent.send(works[work](db, RecordID, **arguments))
            except Exception as error:
                parent.send(PeerFailed(f"{work}: {type(error).__name__}: {error}"))


def _fill(db: Any, record: Any, count: int) -> float:
    """Fill a table `person` with so many records."""
    db.query("REMOVE TABLE IF EXISTS person; DEFINE TABLE person")
    return _inserted(db, "person", people.parts(count))


def _run(db: Any, record: Any, statement: str) -> None:
    """Run statements without measuring them."""
    db.query(statement)


def _ask(db: Any, record: Any, statement: str, questions: list[dict[str, Any]]) -> float:
    """Run one statement in a loop, with other parameters each time."""
    began = time.perf_counter()
    for question in questions:
        found = db.query(statement, question)
    took = time.perf_counter() - began
    assert isinstance(found, list), found
    return took


def _create(db: Any, record: Any, count: int, first: int, table: str = "made") -> float:
    values = [people.person(number) for number in range(first, first + count)]
    began = time.perf_counter()
    for value in values:
        db.query(f"CREATE {table} CONTENT $v", {"v": value})
    return time.perf_counter() - began


def _read(db: Any, record: Any, count: int, among: int) -> float:
    ids = [record("person", 1 + number * 7_919 % among) for number in range(count)]
    began = time.perf_counter()
    for id in ids:
        found = db.query("SELECT * FROM $id", {"id": id})
    took = time.perf_counter() - began
    assert len(found) == 1, found
    return took


def _insert(db: Any, record: Any, count: int, indexes: str = "") -> float:
    db.query(f"REMOVE TABLE IF EXISTS bulk; DEFINE TABLE bulk; {indexes}")
    return _inserted(db, "bulk", people.parts(count))


def _inserted(db: Any, table: str, parts: Any) -> float:
    took = 0.0
    for part in parts:
        began = time.perf_counter()
        db.query(f"INSERT INTO {table} $rows RETURN NONE", {"rows": part})
        took += time.perf_counter() - began
    return took


def _scan(db: Any, record: Any, statement: str) -> tuple[float, Any]:
    """Return the records of the answer as text, too: the node must answer the same."""
    began = time.perf_counter()
    found = db.query(statement)
    return time.perf_counter() - began, found


def _out(path: Path, db: Any, record: Any, table: str) -> float:
    """Dump all rows of a table into a file."""
    began = time.perf_counter()
    found = db.query(f"SELECT *, record::id(id) AS id FROM {table}")
    path.write_bytes(msgpack.packb(found))
    return time.perf_counter() - began


def _back(path: Path, db: Any, record: Any) -> float:
    """Restore all rows of that file into an empty table."""
    db.query("REMOVE TABLE IF EXISTS bulk; DEFINE TABLE bulk")
    began = time.perf_counter()
    rows = msgpack.unpackb(path.read_bytes())
    for start in range(0, len(rows), people.TRANSACTION):
        part = rows[start : start + people.TRANSACTION]
        db.query("INSERT INTO bulk $rows RETURN NONE", {"rows": part})
    return time.perf_counter() - began
