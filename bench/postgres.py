"""PostgreSQL, as a peer that dumps and restores tables: a separate server, with its own tools."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import people

HOMES: Final = Path("/usr/lib/postgresql")
"""Debian's folder with each version's programs."""
USER: Final = "postgres"
"""System user of the server, which refuses to run as root."""
DATABASE: Final = "bench"
TABLE: Final = """
    CREATE TABLE person (
        id bigint PRIMARY KEY, name text, age int, city text, balance double precision,
        active boolean, tags text[]
    )
"""
START_SECONDS: Final = 60


class PostgresFailed(Exception):
    """A program of PostgreSQL failed; the message is its output."""


def missing() -> str | None:
    """Return the reason why PostgreSQL can't run on this machine, or None."""
    if not any(HOMES.glob("*/bin/pg_dump")):
        return "not installed: apt-get install postgresql"
    if os.getuid() != 0:
        return "the PostgreSQL server runs as another user: run as root"
    return None


class Postgres:
    """A server on its own directory, that answers on a socket there."""

    def __init__(self, directory: Path) -> None:
        self._bin = max(HOMES.glob("*/bin"), key=lambda path: float(path.parent.name))
        self._directory = directory
        directory.mkdir()
        shutil.chown(directory, USER, USER)
        for parent in directory.parents:  # the server's user has to get there
            if parent.stat().st_mode & 0o001 == 0:
                parent.chmod(parent.stat().st_mode | 0o001)
        self._data = directory / "data"
        self._run("initdb", "-D", self._data, "-A", "trust", "--no-sync")
        account = pwd.getpwnam(USER)
        self._server = subprocess.Popen(
            [self._bin / "postgres", "-D", self._data, "-k", directory, "-c", "listen_addresses="],
            user=account.pw_uid, group=account.pw_gid, extra_groups=[],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._wait()
        self._run("createdb", "-h", directory, DATABASE)

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while subprocess.run(
            [self._bin / "pg_isready", "-q", "-h", self._directory], check=False
        ).returncode:
            if self._server.poll() is not None or time.monotonic() > until:
                raise PostgresFailed("the server did not start")
            time.sleep(0.05)

    def _run(self, program: str, *words: object, text: str | None = None) -> None:
        account = pwd.getpwnam(USER)
        done = subprocess.run(
            [str(self._bin / program), *map(str, words)],
            input=text, capture_output=True, text=True, check=False, cwd="/",
            user=account.pw_uid, group=account.pw_gid, extra_groups=[],
        )  # fmt: skip
        if done.returncode:
            raise PostgresFailed(f"{program}: {done.stderr.strip()}")

    def _sql(self, text: str) -> None:
        self._run("psql", "-q", "-h", self._directory, "-d", DATABASE, "-v", "ON_ERROR_STOP=1",
                  text=text)  # fmt: skip

    def fill(self, count: int) -> None:
        """Fill a table with the node's rows."""
        file = self._directory / "rows"
        with file.open("w") as rows:
            for part in people.parts(count):
                rows.writelines(f"{line}\n" for line in _lines(part))
        self._sql(f"{TABLE}; COPY person FROM '{file}'; ANALYZE; CHECKPOINT")
        file.unlink()

    def dump(self, words: Sequence[str]) -> tuple[float, Path]:
        """Dump the table into a file with `pg_dump`. Return the seconds, and the file."""
        file = self._directory / "dump"
        file.unlink(missing_ok=True)
        began = time.perf_counter()
        self._run("pg_dump", "-h", self._directory, "-Fc", *words, "-f", file, DATABASE)
        return time.perf_counter() - began, file

    def restore(self, file: Path) -> float:
        """Restore the file with `pg_restore` into a database without the table.

        Return the seconds until all of it is synced.
        """
        self._sql("DROP TABLE person; CHECKPOINT")
        began = time.perf_counter()
        self._run("pg_restore", "-h", self._directory, "-d", DATABASE, file)
        self._sql("CHECKPOINT")
        return time.perf_counter() - began

    def close(self) -> None:
        """End the server and remove its data."""
        self._server.terminate()
        self._server.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Return rows in the format of COPY."""
    for row in rows:
        tags = json.dumps(row["tags"]).replace("[", "{").replace("]", "}")
        yield "\t".join(
            (
                str(row["id"]), row["name"], str(row["age"]), row["city"], str(row["balance"]),
                str(row["active"]).lower(), tags,
            )
        )  # fmt: skip
