"""SQL peers of the analytic rows: PostgreSQL as a server, DuckDB and SQLite in process, on files.

Each has the table of sales with a primary key, and the table of products.
"""

from __future__ import annotations

import csv
import importlib.util
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from bench import postgres, sales
from bench.postgres import Postgres
from bench.sales import Sale

BATCH: Final = 5_000
"""Rows of one statement that inserts lists of rows."""
COLUMNS: Final = 'id, "at", amount, qty, rate, country, product'

Row = Sequence[Any]


class SqlPeer(ABC):
    """A running SQL system. Every method that measures returns seconds."""

    name: ClassVar[str]
    types: ClassVar[str]
    """Columns of the table of sales."""
    day = "date_trunc('day', \"at\")"
    """Expression of the day of a sale."""
    has_decimals = True
    """False: amounts are whole cents."""

    @abstractmethod
    def run(self, statement: str, values: Row = ()) -> list[Any]:
        """Run a statement and return its rows. Placeholders are as SQLite's, `?`."""

    @abstractmethod
    def load(self, rows: Sequence[Sale]) -> float:
        """Insert rows in one transaction, in the fastest way that the system has."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def time(self, statement: str, values: Row = ()) -> float:
        """Run a statement, fetch its rows and return the seconds."""
        began = time.perf_counter()
        self.run(statement, values)
        return time.perf_counter() - began

    def define(self, table: str) -> None:
        """Define an empty table of sales."""
        self.run(f"DROP TABLE IF EXISTS {table}")
        self.run(f"CREATE TABLE {table} ({self.types})")

    def fill(self, rows: Sequence[Sale]) -> None:
        """Fill the tables."""
        self.define("sale")
        self.load(rows)
        self.run("DROP TABLE IF EXISTS product")
        self.run("CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT)")
        for number in range(sales.PRODUCTS):
            self.run("INSERT INTO product VALUES (?, ?)", (number, sales.product_name(number)))
        self.settle()

    def settle(self) -> None:  # noqa: B027  # most have nothing to do
        """Let the system do its own work behind a load."""


class PostgresPeer(SqlPeer):
    """PostgreSQL through psycopg, over the socket in its directory."""

    name = "PostgreSQL"
    types = (
        'id bigint PRIMARY KEY, "at" timestamptz, amount numeric(12, 2), qty int,'
        " rate double precision, country text, product int"
    )

    def __init__(self, directory: Path) -> None:
        import psycopg

        self._server = Postgres(directory)
        self._connection = psycopg.connect(
            host=str(directory), dbname=postgres.DATABASE, user=postgres.USER, autocommit=True
        )

    def run(self, statement: str, values: Row = ()) -> list[Any]:
        found = self._connection.execute(statement.replace("?", "%s"), values or None)
        return found.fetchall() if found.description else []

    def load(self, rows: Sequence[Sale]) -> float:
        began = time.perf_counter()
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY sale ({COLUMNS}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
        return time.perf_counter() - began

    def unnest(self, rows: Sequence[Sale]) -> float:
        """Insert arrays, one per column."""
        types = ("bigint", "timestamptz", "numeric", "int", "float8", "text", "int")
        arrays = ", ".join(f"%s::{kind}[]" for kind in types)
        began = time.perf_counter()
        with self._connection.transaction():
            for start in range(0, len(rows), BATCH):
                columns = [
                    list(column) for column in zip(*rows[start : start + BATCH], strict=True)
                ]
                self._connection.execute(
                    f"INSERT INTO sale ({COLUMNS}) SELECT * FROM unnest({arrays})", columns
                )
        return time.perf_counter() - began

    def values(self, rows: Sequence[Sale]) -> float:
        """Insert lists of rows by INSERT … VALUES."""
        began = time.perf_counter()
        with self._connection.transaction():
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                places = ", ".join(["(%s, %s, %s, %s, %s, %s, %s)"] * len(part))
                given = [value for row in part for value in row]
                self._connection.execute(f"INSERT INTO sale ({COLUMNS}) VALUES {places}", given)
        return time.perf_counter() - began

    def settle(self) -> None:
        self.run("VACUUM ANALYZE sale")
        self.run("ANALYZE product")
        self.run("CHECKPOINT")

    def close(self) -> None:
        self._connection.close()
        self._server.close()


class DuckDbPeer(SqlPeer):
    """DuckDB in process. A load writes a file and copies it: parameters are far slower."""

    name = "DuckDB"
    types = (
        'id BIGINT PRIMARY KEY, "at" TIMESTAMP, amount DECIMAL(12, 2), qty INTEGER, rate DOUBLE,'
        " country VARCHAR, product INTEGER"
    )

    def __init__(self, directory: Path) -> None:
        import duckdb

        directory.mkdir()
        self._connection = duckdb.connect(str(directory / "sales"))
        self._file = directory / "rows.csv"

    def run(self, statement: str, values: Row = ()) -> list[Any]:
        found: list[Any] = self._connection.execute(statement, list(values)).fetchall()
        return found

    def load(self, rows: Sequence[Sale]) -> float:
        began = time.perf_counter()
        with self._file.open("w", newline="") as file:
            csv.writer(file).writerows(row._replace(at=row.at.replace(tzinfo=None)) for row in rows)
        self.run(f"COPY sale FROM '{self._file}' (HEADER false)")
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


class SqlitePeer(SqlPeer):
    """SQLite in process, synced; amounts are cents and times microseconds, as it has neither."""

    name = "SQLite"
    types = (
        'id INTEGER PRIMARY KEY, "at" INTEGER, amount INTEGER, qty INTEGER, rate REAL,'
        " country TEXT, product INTEGER"
    )
    day = '"at" / 86400000000'
    has_decimals = False

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._connection = sqlite3.connect(directory / "sales", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    def run(self, statement: str, values: Row = ()) -> list[Any]:
        return self._connection.execute(statement, tuple(map(_plain, values))).fetchall()

    def load(self, rows: Sequence[Sale]) -> float:
        began = time.perf_counter()
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT INTO sale VALUES (?, ?, ?, ?, ?, ?, ?)",
            (tuple(map(_plain, row)) for row in rows),
        )
        self._connection.execute("COMMIT")
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


def _plain(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    return int(value * 100) if hasattr(value, "scaleb") else value


def peers(directory: Path) -> tuple[list[Callable[[], SqlPeer]], list[str]]:
    """Return how to start the peers that this machine can run, and why others can't."""
    found: list[Callable[[], SqlPeer]] = []
    gaps: list[str] = []
    for kind, package, gap in (
        (PostgresPeer, "psycopg", postgres.missing()),
        (DuckDbPeer, "duckdb", None),
        (SqlitePeer, "sqlite3", None),
    ):
        if gap is None and importlib.util.find_spec(package) is None:
            gap = f"the package {package} is not installed (pip install '.[bench]')"
        if gap is None:
            found.append(lambda kind=kind: kind(directory / kind.name.lower()))  # type: ignore[misc]
        else:
            gaps.append(f"{kind.name}: {gap}")
    return found, gaps
