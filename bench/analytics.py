"""Rows about analytic reads and bulk writes, beside PostgreSQL, DuckDB and SQLite."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from bench import sales, sql
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.nodes import DATABASE, NAMESPACE, NodeProcess, define_place
from bench.sales import Sale
from bench.settings import Settings
from bench.sql import PostgresPeer, SqlPeer

ROWS: Final = 100_000
ROWS_LARGE: Final = 1_000_000
ROUNDS_LARGE: Final = 2
LARGE: Final = "-large"
"""Suffix of the names of the rows over ROWS_LARGE sales."""
TIMEOUT: Final = 600.0
LOAD: Final = f"{NODE}, load"
"""Name of the side that loads by the Python client's `load`."""
FIELDS: Final = """
    DEFINE TABLE {0}; DEFINE FIELD at ON {0} TYPE datetime; DEFINE FIELD amount ON {0} TYPE decimal;
    DEFINE FIELD qty ON {0} TYPE int; DEFINE FIELD rate ON {0} TYPE float;
    DEFINE FIELD country ON {0} TYPE string; DEFINE FIELD product ON {0} TYPE record<product>
"""


@dataclass(frozen=True, slots=True)
class Scan:
    """An analytic question in both languages; `{day}` stands for the day of a sale."""

    name: str
    node: str
    sql: str
    goal: str
    exact: bool = True
    """False: answers are floats, or ties may come in another order."""


SCANS: Final = (
    Scan(
        "scan-int",
        "SELECT count() AS n FROM sale WHERE qty > 90 GROUP ALL",
        "SELECT count(*) FROM sale WHERE qty > 90",
        "4× PostgreSQL",
    ),
    Scan(
        "scan-decimal",
        "SELECT count() AS n FROM sale WHERE amount > 9000dec GROUP ALL",
        "SELECT count(*) FROM sale WHERE amount > 9000",
        "4× PostgreSQL",
        exact=False,
    ),
    Scan(
        "scan-time",
        "SELECT count() AS n FROM sale WHERE at < d'2025-02-01T00:00:00Z' GROUP ALL",
        'SELECT count(*) FROM sale WHERE "at" < {february}',
        "4× PostgreSQL",
    ),
    Scan(
        "scan-text",
        "SELECT count() AS n FROM sale WHERE country = 'DE' GROUP ALL",
        "SELECT count(*) FROM sale WHERE country = 'DE'",
        "4× PostgreSQL",
    ),
    Scan(
        "scan-group",
        "SELECT country, sum(amount) AS total FROM sale GROUP BY country",
        "SELECT country, sum(amount) FROM sale GROUP BY country",
        "4× PostgreSQL",
    ),
    Scan(
        "scan-aggregates",
        "SELECT country, count() AS n, sum(qty) AS q, sum(amount) AS a, mean(rate) AS r FROM sale"
        " GROUP BY country",
        "SELECT country, count(*), sum(qty), sum(amount), avg(rate) FROM sale GROUP BY country",
        "4× PostgreSQL",
        exact=False,
    ),
    Scan(
        "scan-days",
        "SELECT time::floor(at, 1d) AS day, sum(amount) AS total FROM sale GROUP BY day",
        "SELECT {day}, sum(amount) FROM sale GROUP BY 1",
        "5× PostgreSQL",
        exact=False,
    ),
    Scan(
        "scan-top",
        "SELECT id, amount FROM sale ORDER BY amount DESC LIMIT 10",
        "SELECT id, amount FROM sale ORDER BY amount DESC LIMIT 10",
        "4× PostgreSQL",
        exact=False,
    ),
    Scan(
        "scan-distinct",
        "SELECT DISTINCT product FROM sale",
        "SELECT DISTINCT product FROM sale",
        "3× PostgreSQL",
        exact=False,
    ),
    Scan(
        "scan-join",
        "SELECT product.name AS name, sum(amount) AS total FROM sale GROUP BY name",
        "SELECT p.name, sum(amount) FROM sale JOIN product p ON p.id = sale.product GROUP BY 1",
        "5× PostgreSQL",
    ),
)
WRITES: Final = (
    "import-typed", "import-indexed", "update-all", "update-range", "delete-range",
)  # fmt: skip
MEMORY: Final = "columns-memory"
NAMES: Final = (
    *(scan.name for scan in SCANS), *WRITES, *(scan.name + LARGE for scan in SCANS), MEMORY,
)  # fmt: skip
COLUMNS: Final = (
    ("two columns", "SELECT country, sum(amount) AS a FROM sale GROUP BY country"),
    ("six columns",
     "SELECT country, sum(amount) AS a, sum(qty) AS q, mean(rate) AS r, max(at) AS t,"
     " max(product) AS p FROM sale GROUP BY country"),
)  # fmt: skip
WIDE: Final = 20
"""Columns of the table that pushes those of the sales out of memory."""


class Differs(Exception):
    """Node and peer answer differently: their times can't be compared."""


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, and yield each as soon as it is done."""
    if any(wanted(name) for name in NAMES if not name.endswith(LARGE)):
        with ExitStack() as held:
            setup = _AnalyticSetup(settings, held, settings.scaled(ROWS))
            yield from setup.scans(wanted, "")
            yield from setup.writes(wanted)
    if any(wanted(name) for name in NAMES if name.endswith(LARGE)):
        fewer = replace(settings, rounds=min(settings.rounds, ROUNDS_LARGE))
        with ExitStack() as held:
            setup = _AnalyticSetup(fewer, held, settings.scaled(ROWS_LARGE))
            yield from setup.scans(wanted, LARGE)
    if wanted(MEMORY):
        yield _memory(settings)


def _memory(settings: Settings) -> Measurement:
    """Measure the memory of a node: without columns, with them, and once others have pushed them
    out. It is started anew behind the import, whose memory would count."""
    count = settings.scaled(ROWS_LARGE)
    row = Measurement(MEMORY, f"resident memory, {count:,} rows", "MiB", "less")
    folder = settings.directory / "columns-memory"
    names = ("id", *(f"w{number}" for number in range(WIDE)))
    with NodeProcess(folder) as node, node.client() as client:
        define_place(client, "product", "wide")
        client.query(FIELDS.format("sale"))
        database = client.database(NAMESPACE, DATABASE)
        for part in sales.parts(count, sql.BATCH):
            database.load("sale", map(_record, part), batch=sql.BATCH)
        wide = ((number, *(number / (1 + at) for at in range(WIDE))) for number in range(count))
        database.load("wide", wide, columns=names, batch=sql.BATCH)
    with NodeProcess(folder) as node, node.client() as client:
        row.sides["before"] = [node.memory_mib()]
        for name, scan in COLUMNS:
            client.query(scan, timeout=TIMEOUT)
            row.sides[name] = [node.memory_mib()]
        for number in range(WIDE):
            scan = f"SELECT sum(w{number}) AS s FROM wide GROUP ALL"
            client.query(scan, timeout=TIMEOUT)
        row.sides["others pushed them out"] = [node.memory_mib()]
        held = client.query("INFO FOR TABLE sale").get("columns", [])
        row.notes.append(f"{len(held)} columns of the sales are left")
    return row


class _AnalyticSetup:
    """A node and the SQL peers, each with the same sales and products."""

    def __init__(self, settings: Settings, held: ExitStack, count: int) -> None:
        self._settings = settings
        self._count = count
        self._sales = [one for part in sales.parts(count, sql.BATCH) for one in part]
        folder = settings.directory / f"analytics-{count}"
        self._node = held.enter_context(NodeProcess(folder))
        self._client = held.enter_context(self._node.client())
        define_place(self._client, "product")
        self._query(FIELDS.format("sale"))
        products = [
            {"id": number, "name": sales.product_name(number)} for number in range(sales.PRODUCTS)
        ]
        self._query("INSERT INTO product $rows RETURN NONE", {"rows": products})
        self._import(self._sales)
        directory = settings.directory / f"sql-{count}"
        directory.mkdir()
        starts, self._gaps = sql.peers(directory)
        self._peers: list[SqlPeer] = []
        for start in starts:
            peer = start()
            held.callback(peer.close)
            peer.fill(self._sales)
            self._peers.append(peer)

    def _query(self, statement: str, params: dict[str, Any] | None = None) -> Any:
        return self._client.query(statement, params or {}, timeout=TIMEOUT)

    # --- reads ------------------------------------------------------------------------------------

    def scans(self, wanted: Callable[[str], bool], suffix: str) -> Iterator[Measurement]:
        """Measure the scans, from the second run of each on."""
        for scan in SCANS:
            if wanted(scan.name + suffix):
                yield self._scan(scan, suffix)

    def _scan(self, scan: Scan, suffix: str) -> Measurement:
        row = self._row(scan.name + suffix, f"{scan.node}; {self._count:,} rows", "ms", scan.goal)
        found = self._query(scan.node)
        measures: dict[str, Measure] = {NODE: partial(self._ask_node, scan.node)}
        for peer in self._peers:
            february = (
                "1738368000000000" if isinstance(peer, sql.SqlitePeer) else "'2025-02-01 00:00:00Z'"
            )
            statement = scan.sql.format(day=peer.day, february=february)
            _check(scan, found, peer.run(statement), peer)
            measures[peer.name] = partial(self._ask_peer, peer, statement)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _ask_node(self, statement: str) -> float:
        began = time.perf_counter()
        self._query(statement)
        return (time.perf_counter() - began) * 1000

    def _ask_peer(self, peer: SqlPeer, statement: str) -> float:
        return peer.time(statement) * 1000

    # --- writes -----------------------------------------------------------------------------------

    def writes(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Measure bulk writes. Each is undone, without being measured."""
        table: dict[str, Callable[[], Measurement]] = {
            "import-typed": self._import_typed,
            "update-all": self._update_all,
            "update-range": self._update_range,
            "delete-range": self._delete_range,
            "import-indexed": self._import_indexed,
        }
        for name, measure in table.items():
            if wanted(name):
                yield measure()

    def _import(self, rows: Sequence[Sale]) -> float:
        took = 0.0
        for start in range(0, len(rows), sql.BATCH):
            part = [_record(row) for row in rows[start : start + sql.BATCH]]
            began = time.perf_counter()
            self._query("INSERT INTO sale $rows RETURN NONE", {"rows": part})
            took += time.perf_counter() - began
        return took

    def _define_anew(self, define: str) -> None:
        self._query("DROP TABLE sale")
        self._query(FIELDS.format("sale"))
        if define:
            self._query(define)

    def _import_anew(self, define: str) -> float:
        self._define_anew(define)
        return self._import(self._sales) * 1e6 / self._count

    def _load_node(self, define: str) -> float:
        """Load the sales as a program does: the time that it takes to make columns counts too."""
        self._define_anew(define)
        rows = list(map(_record, self._sales))
        began = time.perf_counter()
        self._client.database(NAMESPACE, DATABASE).load("sale", rows, batch=sql.BATCH)
        return (time.perf_counter() - began) * 1e6 / self._count

    def _load_anew(self, peer: SqlPeer, way: str, define: Sequence[str]) -> float:
        peer.define("sale")
        for statement in define:
            peer.run(statement)
        took: float = getattr(peer, way)(self._sales)
        peer.settle()
        return took * 1e6 / self._count

    def _import_typed(self) -> Measurement:
        row = self._row(
            "import-typed", f"{self._count:,} typed rows into an empty table", "µs a row",
            "0.45× COPY, 1.8× unnest, 5× INSERT VALUES; load 0.8× COPY",
        )  # fmt: skip
        measures: dict[str, Measure] = {
            NODE: partial(self._import_anew, ""),
            LOAD: partial(self._load_node, ""),
        }
        for peer in self._peers:
            measures[peer.name] = partial(self._load_anew, peer, "load", ())
            if isinstance(peer, PostgresPeer):
                measures["PostgreSQL, unnest"] = partial(self._load_anew, peer, "unnest", ())
                measures["PostgreSQL, VALUES"] = partial(self._load_anew, peer, "values", ())
        row.sides = in_turns(self._settings.rounds, measures)
        row.notes.append(f"the node {sql.BATCH:,} rows a transaction, each synced; PostgreSQL COPY")
        return row

    def _import_indexed(self) -> Measurement:
        row = self._row(
            "import-indexed",
            f"{self._count:,} typed rows, two indexes",
            "µs a row",
            "0.5× COPY; load 0.8×",
        )
        define = (
            "DEFINE INDEX by_country ON sale FIELDS country; DEFINE INDEX by_at ON sale FIELDS at"
        )
        created = ("CREATE INDEX ON sale (country)", 'CREATE INDEX ON sale ("at")')
        measures: dict[str, Measure] = {
            NODE: partial(self._import_anew, define),
            LOAD: partial(self._load_node, define),
        }
        for peer in self._peers:
            if isinstance(peer, PostgresPeer):
                measures[peer.name] = partial(self._load_anew, peer, "load", created)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _indexed(self) -> None:
        self._query(
            "DEFINE INDEX IF NOT EXISTS by_country ON sale FIELDS country;"
            "DEFINE INDEX IF NOT EXISTS by_at ON sale FIELDS at"
        )
        while any(
            index["state"] != "ready" for index in self._query("INFO FOR TABLE sale")["indexes"]
        ):
            time.sleep(0.01)
        for peer in self._peers:
            if isinstance(peer, PostgresPeer):
                peer.run("CREATE INDEX IF NOT EXISTS by_country ON sale (country)")
                peer.run('CREATE INDEX IF NOT EXISTS by_at ON sale ("at")')
                peer.settle()

    def _update_all(self) -> Measurement:
        self._indexed()
        row = self._row(
            "update-all", "UPDATE of all rows, two indexes not touched", "µs a row", "0.8×"
        )
        return self._changed(row, "UPDATE sale SET qty = qty + 1 RETURN NONE",
                             "UPDATE sale SET qty = qty + 1", self._count)  # fmt: skip

    def _update_range(self) -> Measurement:
        self._indexed()
        row = self._row("update-range", "UPDATE of 1 % by an index", "µs a row", "1×")
        until = sales.sale(self._count // 100, self._count).at.isoformat()
        return self._changed(
            row,
            f"UPDATE sale SET qty = qty + 1 WHERE at <= d'{until}' RETURN NONE",
            f"UPDATE sale SET qty = qty + 1 WHERE \"at\" <= '{until}'",
            self._count // 100,
        )

    def _changed(self, row: Measurement, node: str, statement: str, count: int) -> Measurement:
        measures: dict[str, Measure] = {NODE: lambda: self._ask_node(node) * 1000 / count}
        for peer in self._peers:
            if isinstance(peer, PostgresPeer):
                measures[peer.name] = partial(self._change_peer, peer, statement, count)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _change_peer(self, peer: SqlPeer, statement: str, count: int) -> float:
        took = peer.time(statement)
        peer.settle()
        return took * 1e6 / count

    def _delete_range(self) -> Measurement:
        row = self._row("delete-range", "DELETE of 10 %", "µs a row", "0.2×")
        gone = self._sales[: self._count // 10]
        until = gone[-1].at.isoformat()

        def node() -> float:
            took = self._ask_node(f"DELETE sale WHERE at <= d'{until}' RETURN NONE")
            self._import(gone)
            return took * 1000 / len(gone)

        def other(peer: PostgresPeer) -> float:
            took = peer.time(f"DELETE FROM sale WHERE \"at\" <= '{until}'")
            peer.load(gone)
            peer.settle()
            return took * 1e6 / len(gone)

        measures: dict[str, Measure] = {NODE: node}
        for peer in self._peers:
            if isinstance(peer, PostgresPeer):
                measures[peer.name] = partial(other, peer)
        row.sides = in_turns(self._settings.rounds, measures)
        return row

    def _row(self, name: str, work: str, unit: str, goal: str) -> Measurement:
        return Measurement(name, work, unit, "less", goal, gaps=list(self._gaps))


def _record(row: Sale) -> dict[str, Any]:
    from storeclient import RecordId

    return {**row._asdict(), "product": RecordId("product", row.product)}


def _check(scan: Scan, found: list[dict[str, Any]], rows: Sequence[Any], peer: SqlPeer) -> None:
    """Compare the answers of node and peer: number of rows, and their values where they are exact.

    :raises Differs: they differ
    """
    if len(found) != len(rows):
        raise Differs(f"{scan.name}: {len(found)} rows, and {len(rows)} of {peer.name}")
    if scan.exact and peer.has_decimals:
        mine = sorted(tuple(str(value) for value in row.values()) for row in found)
        theirs = sorted(tuple(str(value) for value in row) for row in rows)
        if mine != theirs:
            raise Differs(f"{scan.name}: {mine!r:.300} and {theirs!r:.300} of {peer.name}")
