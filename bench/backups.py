"""Rows about backups: a large store dumped and restored, and the effect on other requests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from bench import load, peers, postgres
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.load import LoadDescription
from bench.nodes import NAMESPACE, NodeProcess, define_place
from bench.peers import ComparedSystem
from bench.postgres import Postgres
from bench.processes import MEASURED
from bench.records import insert
from bench.settings import Settings

RECORDS: Final = 1_000_000
READS: Final = 20_000
NAMES: Final = ("backup-out", "backup-in", "backup-beside")
SCRIPT: Final = "node, a script"
LOG: Final = "node, its log"
ZIPPED: Final = "PostgreSQL, pg_dump -Fc"
PLAIN: Final = "PostgreSQL, pg_dump -Fc -Z0"
EMBEDDED: Final = "SurrealDB, SELECT and INSERT"


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows: one store and its peers, with the same records."""
    if any(map(wanted, NAMES)):
        with ExitStack() as held:
            yield from _BackupSetup(settings, held).measured(wanted)


class _BackupSetup:
    """The node with a backup folder, and the peers."""

    def __init__(self, settings: Settings, held: ExitStack) -> None:
        self._settings = settings
        self._count = settings.scaled(RECORDS)
        self._folder = settings.directory / "backups"
        self._folder.mkdir()
        flags = ("--backup-dir", str(self._folder), "--keep-log", "1TiB")
        self._node = held.enter_context(NodeProcess(settings.directory / "backed-up", flags=flags))
        self._client = held.enter_context(self._node.client())
        define_place(self._client, "person")
        insert(self._client, "person", self._count)
        self._gaps = [f"SurrealDB: {gap}" for gap in [peers.missing()] if gap is not None]
        self._gaps += [f"PostgreSQL: {gap}" for gap in [postgres.missing()] if gap is not None]
        self._postgres: Postgres | None = None
        if postgres.missing() is None:
            self._postgres = Postgres(settings.directory / "postgres")
            held.callback(self._postgres.close)
            self._postgres.fill(self._count)
        self._peer: ComparedSystem | None = None
        if peers.missing() is None:
            self._peer = ComparedSystem(peers.SYNCED, settings.directory / "peer-backups")
            held.callback(self._peer.close)
            self._peer.call("fill", count=self._count)

    def measured(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Measure the rows."""
        if wanted("backup-out"):
            yield self._out()
        if wanted("backup-in"):
            yield self._in()
        if wanted("backup-beside"):
            yield self._beside()

    # --- out --------------------------------------------------------------------------------------

    def _out(self) -> Measurement:
        row = self._row("backup-out", f"{self._count:,} records into a file, synced and read back")
        measures: dict[str, Measure] = {
            NODE: lambda: self._backup("BACKUP TO 'out'"),
            LOG: lambda: self._backup("BACKUP LOG TO 'out'"),
            SCRIPT: lambda: self._backup(f"BACKUP SCRIPT OF NAMESPACE {NAMESPACE} TO 'out'"),
        }
        if self._postgres is not None:
            measures[ZIPPED] = lambda: self._dump()
            measures[PLAIN] = lambda: self._dump("-Z0")
        if self._peer is not None:
            peer = self._peer
            measures[EMBEDDED] = lambda: self._count / float(peer.call("out", table="person"))
        row.sides = in_turns(self._settings.rounds, measures)
        row.notes.append(
            "pg_dump compresses, and neither syncs its file nor reads it back; the Python package"
            " of SurrealDB exports nothing by itself: a SELECT of all, packed into a file"
        )
        return row

    def _backup(self, statement: str) -> float:
        began = time.perf_counter()
        self._client.query(statement, timeout=600)
        took = time.perf_counter() - began
        (self._folder / "out").unlink()
        return self._count / took

    def _dump(self, *words: str) -> float:
        assert self._postgres is not None
        took, _ = self._postgres.dump(words)
        return self._count / took

    # --- in ---------------------------------------------------------------------------------------

    def _in(self) -> Measurement:
        row = self._row("backup-in", f"{self._count:,} records of a file into an empty store")
        for name, statement in (
            ("in.storesnap", "BACKUP TO 'in.storesnap'"),
            ("in.storelog", "BACKUP LOG TO 'in.storelog'"),
            ("in.storeql", f"BACKUP SCRIPT OF NAMESPACE {NAMESPACE} TO 'in.storeql'"),
        ):
            self._client.query(statement, timeout=600)
            self._note_size(row, name)
        measures: dict[str, Measure] = {
            NODE: lambda: self._restore("--restore", "in.storesnap"),
            LOG: lambda: self._restore("--restore", "in.storelog"),
            SCRIPT: lambda: self._restore("-f", "in.storeql"),
        }
        if self._postgres is not None:
            server = self._postgres
            _, file = server.dump(("-Z0",))
            measures[PLAIN.replace("pg_dump", "pg_restore")] = lambda: (
                self._count / server.restore(file)
            )
        if self._peer is not None:
            peer = self._peer
            peer.call("out", table="person")
            measures[EMBEDDED] = lambda: self._count / float(peer.call("back"))
        row.sides = in_turns(self._settings.rounds, measures)
        row.notes.append(
            "the node reads a snapshot twice, the first time to prove it, and is a process that has"
            " to start; PostgreSQL's with a checkpoint behind it"
        )
        return row

    def _note_size(self, row: Measurement, name: str) -> None:
        size = (self._folder / name).stat().st_size
        row.notes.append(f"{name}: {size / 2**20:,.0f} MiB")

    def _restore(self, form: str, name: str) -> float:
        new = self._settings.directory / "restored"
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "surfaces.command.main", str(new), form,
             str(self._folder / name)],
            cwd=MEASURED, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        took = time.perf_counter() - began
        shutil.rmtree(new)
        return self._count / took

    # --- beside -----------------------------------------------------------------------------------

    def _beside(self) -> Measurement:
        row = Measurement(
            "backup-beside", "p99 of reads by id, 8 clients, while a backup is taken", "ms",
            "less", "≤ 2× idle",
        )  # fmt: skip
        asked = self._settings.scaled(READS)
        reads = LoadDescription("read", self._node.wire, 8, asked, among=self._count)

        def beside(statement: str) -> float:
            over = threading.Event()

            def take() -> None:
                with self._node.client() as client:
                    while not over.is_set():
                        client.query(statement, timeout=600)
                        (self._folder / "beside").unlink()

            taking = threading.Thread(target=take)
            taking.start()
            try:
                return load.run(reads).p99_ms
            finally:
                over.set()
                taking.join()

        row.sides = in_turns(
            self._settings.rounds,
            {
                NODE: lambda: beside("BACKUP TO 'beside'"),
                SCRIPT: lambda: beside(f"BACKUP SCRIPT OF NAMESPACE {NAMESPACE} TO 'beside'"),
                "node, idle": lambda: load.run(reads).p99_ms,
            },
        )
        return row

    def _row(self, name: str, work: str) -> Measurement:
        row = Measurement(name, work, " records/s", "more")
        row.gaps += self._gaps
        return row
