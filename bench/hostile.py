"""`python -m bench.hostile`: how long one user can delay another (noisy neighbour).

A user that owns one database of a node, and nothing else, sends it one costly input after another.
Meanwhile another user reads a value, reads a key and creates a record, each every 10 ms on a
connection of its own. The table shows how each input ended, the longest wait of each kind, and
the longest turn of the node's loop, by its processor time and by the clock: on a busy machine the
first says more; turns up to 5 ms are not reported. `late` is the prober's own longest delay.
`--stacks` shows the stacks of the loop in its longest turn. The first row is without an input, as a
baseline.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import shutil
import tempfile
import time
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from urllib import error, request

from rich.console import Console
from rich.table import Table

from bench import analytics, articles, sales
from bench.nodes import NAMESPACE, NodeProcess, define_place
from bench.processes import MEASURED
from bench.watched import HELD, STACK, STACKS_SECONDS
from language.patterns import PATTERNS_KNOWN
from protocol import limits
from protocol.frames import MessageKind, encode
from storeclient import AsyncClient, AsyncDatabase, RecordId
from storeclient.errors import Refused, StoreError
from surfaces.wire.connection import READ_BYTES

TOP: Final = Path(__file__).parents[1]
EVERY_SECONDS: Final = 0.01
SECONDS: Final = 5.0
"""Duration of an input that does not end by itself, seconds."""
PASSWORD: Final = "a better horse"
WORKS: Final = "works"
"""Database of the probing user; the guest's database has the guest's name."""
DEFINITIONS: Final = f"""
USE {NAMESPACE}.{WORKS};
DEFINE TABLE t;
DEFINE SPACE s;
USE {NAMESPACE}.guest;
DEFINE TABLE t;
DEFINE TOPIC q;
INSERT INTO t $rows RETURN NONE
"""
ROWS: Final = 500
MANY: Final = 1_000_000
"""Rows of an input that reads or loads many, by default."""
COLUMNS: Final = ("id", "at", "amount", "qty", "rate", "country", "product")
SCANS: Final = 20
PRIME: Final = 2**61 - 1
"""Modulus of Python's hash of integers: numbers that differ by a multiple of it collide."""
PATTERNS: Final = PATTERNS_KNOWN + 1
WIDTH: Final = 160
NOTHING: Final = "(nothing)"


class Guest:
    """The user that sends the costly inputs."""

    def __init__(self, http: str, wire: str, seconds: float, rows: int) -> None:
        self._http, self._wire = http, wire
        self.seconds = seconds
        self.rows = rows
        """Rows of an input that reads or loads many."""
        self.stack = AsyncExitStack()
        """Connections that stay open until the input has ended."""

    def client(self, password: str = PASSWORD) -> AsyncClient:
        """Return a new client of the guest."""
        return AsyncClient(
            self._wire, user="guest", password=password, ns=NAMESPACE, db="guest", timeout=60
        )

    async def connected(self) -> AsyncClient:
        """Open a client and connect it."""
        client = await self.stack.enter_async_context(self.client())
        await client.connect()
        return client

    async def alone(self, script: str, **params: Any) -> AsyncIterator[str]:
        """Run a script."""
        client = await self.connected()
        yield ""
        yield await outcome(client.run(script, params))

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection and sign in, without a client."""
        host, port = self._wire.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        said = {"magic": "STORE", "major": 1, "minor": [0, 10], "client": "hostile",
                "user": "guest", "password": PASSWORD}  # fmt: skip
        writer.write(encode(MessageKind.HELLO, 0, said))
        size = int.from_bytes(await reader.readexactly(4))
        await reader.readexactly(size)
        return reader, writer

    def post(self, body: bytes) -> str:
        """Post a body to /script unchanged. Return the code of its refusal."""
        told = b64encode(f"guest:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {told}", "Content-Type": "application/json"}
        asked = request.Request(f"http://{self._http}/script", body, headers)
        try:
            with request.urlopen(asked, timeout=60) as answer:
                return str(answer.status)
        except error.HTTPError as refused:
            return str(refused.code)


async def outcome(work: Awaitable[Any]) -> str:
    """Return the outcome of a call in a word."""
    try:
        await work
    except Refused as refused:
        return refused.code
    except StoreError as failed:
        return type(failed).__name__
    return "answered"


def counted(words: Sequence[str]) -> str:
    """Count outcomes."""
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())


Input = Callable[[Guest], AsyncIterator[str]]
"""Generator of an input: prepares, yields, attacks, and yields its outcome."""
INPUTS: Final[dict[str, Input]] = {}


def hostile(name: str) -> Callable[[Input], Input]:
    """Register an input.

    :param name: of its row
    """

    def put(made: Input) -> Input:
        INPUTS[name] = made
        return made

    return put


def script(name: str, text: str, params: Callable[[], dict[str, Any]] = dict) -> None:
    """Register a script.

    :param params: makes its parameters
    """
    INPUTS[name] = lambda guest: guest.alone(text, **params())


def colliding() -> list[Decimal]:
    """Return numbers with equal hashes."""
    return [Decimal(number * PRIME) for number in range(1, 12_001)]


def columns(count: int, each: str) -> str:
    """Return columns of a SELECT."""
    return ", ".join(f"{each} AS c{number}" for number in range(count))


script("distinct: 12 000 of one hash", "RETURN array::len(array::distinct($v))",
       lambda: {"v": colliding()})  # fmt: skip
script("GROUP BY: 12 000 of one hash", "SELECT v, count() AS n FROM $v GROUP BY v",
       lambda: {"v": [{"v": one} for one in colliding()]})  # fmt: skip
script(
    f"{PATTERNS} patterns by row",
    f"SELECT VALUE s ~ $p[n % {PATTERNS}] FROM t",
    lambda: {"p": [rf"\pL{{1,{n % 16 + 1}}}\d{{{n // 16}}}$" for n in range(PATTERNS)]},
)
script("8 000 vector::cosine", f"RETURN [{', '.join(['vector::cosine($v, $w)'] * 8_000)}]",
       lambda: {"v": [1.5] * 4_096, "w": [0.1] * 4_096})  # fmt: skip
script(
    "OR of 16 000 on 500 rows",
    f"SELECT id FROM t WHERE {' OR '.join(f'm = {n + ROWS}' for n in range(16_000))}",
)
script("string::replace × 1 000 columns",
       f"SELECT {columns(1_000, 'string::len(string::replace(s, $a, $b))')} FROM t",
       lambda: {"a": "a", "b": "bb"})  # fmt: skip
script("string::upper of 7 MiB", "RETURN string::len(string::upper($s))",
       lambda: {"s": "\u0390" * (7 * limits.MIB // 2)})  # fmt: skip
script("crypto::md5 of emoji", "RETURN crypto::md5($s)",
       lambda: {"s": "\U0001f600" * (15 * limits.MIB // 4)})  # fmt: skip
script("type::record of an array", "RETURN type::record('t', $v)",
       lambda: {"v": [[n, str(n)] for n in range(400_000)]})  # fmt: skip
script("GROUP BY long texts", "SELECT VALUE count() FROM t GROUP BY $s + type::string(n)",
       lambda: {"s": "x" * (15 * limits.MIB)})  # fmt: skip
script("300 × max of long texts",
       f"SELECT VALUE [{', '.join(f'max($s + {n!r})' for n in map(str, range(300)))}]"
       " FROM [{n: 1}, {n: 2}, {n: 3}] GROUP ALL",
       lambda: {"s": "x" * (15 * limits.MIB)})  # fmt: skip
script("8 000 different sums",
       f"SELECT VALUE [{', '.join(f'sum(n + {n})' for n in range(8_000))}]"
       " FROM [{n: 1}] GROUP ALL")  # fmt: skip


@hostile("deep JSON")
async def deep_json(guest: Guest) -> AsyncIterator[str]:
    """Post deeply nested bodies of 15 MiB."""
    deep = b'{"script": "RETURN 1", "params": {"v": %s}}'
    half = 7 * limits.MIB
    bodies = [
        deep % (b"[" * 2 * half),
        deep % (b"[" * half + b"]" * half),
        deep % (b'{"a":' * (half // 3) + b"1" + b"}" * (half // 3)),
        deep % (b"[" + b"[[[[[[]]]]]]," * 1_000_000 + b"1]"),
    ]
    yield ""
    yield counted([await asyncio.to_thread(guest.post, body) for body in bodies])


@hostile("28 scripts of much memory")
async def memory(guest: Guest) -> AsyncIterator[str]:
    """Hold memory: twelve scripts compute, sixteen wait for messages with large values."""
    clients = [await guest.connected() for _ in range(28)]
    yield ""
    computes = "LET $a = array::sort(array::map(0..1000000, |$n| $n * 7 % 1000)); RETURN $a[0]"
    waits = "LET $a = array::flatten([0..1000000, 0..1000000]); READ FROM q AFTER 0 WAIT 5s"
    texts = [computes] * 12 + [waits] * 16
    asked = [outcome(client.run(text)) for client, text in zip(clients, texts, strict=True)]
    yield counted(await asyncio.gather(*asked))


@hostile("64 patterns of many classes")
async def classes(guest: Guest) -> AsyncIterator[str]:
    """Run patterns with the largest number of character classes, all different, at once."""
    patterns = ["(?i)" + r"\PL" * limits.PATTERN_CLASSES + f"{n}" for n in range(64)]
    ask = "RETURN $p ~ $p"
    clients = [await guest.connected() for _ in patterns]
    yield ""
    asked = [
        outcome(client.run(ask, {"p": one})) for client, one in zip(clients, patterns, strict=True)
    ]
    yield counted(await asyncio.gather(*asked))


@hostile("moments, all of them")
async def moments(guest: Guest) -> AsyncIterator[str]:
    """Pin more snapshots than a user may keep."""
    clients = [await guest.connected() for _ in range(8)]
    yield ""
    yield counted([
        await outcome(client.run("SELECT count() FROM t", moment="new", keep=60))
        for _ in range(100)
        for client in clients
    ])  # fmt: skip


@hostile("feeds, all of a connection, × 16")
async def feeds(guest: Guest) -> AsyncIterator[str]:
    """Open feeds up to the limit, each with a filter of its own, then create records for them."""
    clients = [await guest.connected() for _ in range(16)]
    yield ""
    follows = [
        asyncio.create_task(outcome(_follow(client.database(NAMESPACE, "guest"), n % 80)))
        for n in range(limits.CONNECTION_FEEDS)
        for client in clients
    ]
    await asyncio.sleep(guest.seconds)
    wrote = [await outcome(clients[0].run("UPDATE t SET n += 1 RETURN NONE")) for _ in range(20)]
    refused = [follow.result() for follow in follows if follow.done()]
    for follow in follows:
        follow.cancel()
    await asyncio.gather(*follows, return_exceptions=True)
    yield f"{len(follows) - len(refused)} open, {counted([*refused, *wrote])}"


async def _follow(database: AsyncDatabase, least: int) -> None:
    async for _ in database.watch("t", where=f"n > {least}", before=True):
        pass


@hostile("4 000 waiting requests")
async def waiting(guest: Guest) -> AsyncIterator[str]:
    """Let all scripts wait for one message, then publish it."""
    publisher, *clients = [await guest.connected() for _ in range(17)]
    yield ""
    reads = [
        asyncio.create_task(outcome(client.run("READ FROM q AFTER 0 LIMIT 1 WAIT 60s")))
        for _ in range(250)
        for client in clients
    ]
    await asyncio.sleep(guest.seconds)
    await publisher.run("PUBLISH INTO q VALUE 1")
    yield counted(await asyncio.gather(*reads))


@hostile("600 running scripts")
async def running(guest: Guest) -> AsyncIterator[str]:
    """Run more endless scripts than a node runs at once."""
    clients = [await guest.connected() for _ in range(20)]
    yield ""
    text = "FOR $n IN 0..1000000000000 { LET $m = $n * 2 }"
    runs = [
        outcome(client.run(text, timeout=guest.seconds)) for _ in range(30) for client in clients
    ]
    yield counted(await asyncio.gather(*runs))


def flood(title: str, frame: Callable[[int], bytes]) -> None:
    """Register a row: as many small frames as one read takes, on 60 connections at once."""
    text = b"".join(frame(id) for id in range(1, READ_BYTES // len(frame(10_000))))

    async def flooding(guest: Guest) -> AsyncIterator[str]:
        peers = [await guest.raw() for _ in range(60)]
        yield ""

        async def drowns(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(text + encode(MessageKind.BYE, 0))
            while await reader.read(READ_BYTES):
                pass
            writer.close()

        yield counted(await asyncio.gather(*(outcome(drowns(*peer)) for peer in peers)))

    hostile(title)(flooding)


flood("60 floods of PING", lambda id: encode(MessageKind.PING, id))
flood("60 floods of refused keys", lambda id: encode(MessageKind.KV, id, {}))
flood("60 floods of RETURN 1", lambda id: encode(MessageKind.RUN, id, {"script": "1"}))


@hostile("10 000 tables defined")
async def tables(guest: Guest) -> AsyncIterator[str]:
    """Define tables, in scripts of 500."""
    client = await guest.connected()
    yield ""
    yield counted([
        await outcome(client.run("; ".join(f"DEFINE TABLE x{n + m}" for m in range(500))))
        for n in range(0, 10_000, 500)
    ])  # fmt: skip


script("INFO FOR DATABASE with them", "INFO FOR DATABASE")


@hostile("sign-ins with a wrong password")
async def sign_ins(guest: Guest) -> AsyncIterator[str]:
    """Sign in, 64 at a time, in a loop."""
    yield ""
    over = time.monotonic() + guest.seconds

    async def tries() -> list[str]:
        found = []
        while time.monotonic() < over:
            client = guest.client("a worse horse")
            try:
                found.append(await asyncio.wait_for(outcome(client.connect()), guest.seconds))
            except TimeoutError:
                found.append("no answer yet")
            finally:
                await client.close()
        return found

    tried = await asyncio.gather(*(tries() for _ in range(64)))
    yield counted([word for words in tried for word in words])


# --- many rows, by column -------------------------------------------------------------------------


def _sales(count: int) -> Iterator[tuple[Any, ...]]:
    """Yield rows of `COLUMNS`. Their values repeat, as making them must not slow the load down."""
    some = [
        (*one[:-1], RecordId("product", one.product)) for one in next(sales.parts(count, 5_000))
    ]
    for number in range(1, count + 1):
        yield (number, *some[number % len(some)][1:])


async def _load(client: AsyncClient, count: int) -> str:
    """Load rows into a new table."""
    await outcome(client.run("DROP TABLE sale"))  # of an earlier input
    products = [{"id": n, "name": sales.product_name(n)} for n in range(sales.PRODUCTS)]
    await client.run(
        f"DEFINE TABLE IF NOT EXISTS product; INSERT INTO product $rows IGNORE RETURN NONE;"
        f" {analytics.FIELDS.format('sale')}",
        {"rows": products},
    )
    database = client.database(NAMESPACE, "guest")
    return await outcome(database.load("sale", _sales(count), columns=COLUMNS))


async def _loaded(guest: Guest) -> AsyncClient:
    """Return a client of a database with a new table of many rows, without columns."""
    client = await guest.connected()
    ended = await _load(client, guest.rows)
    assert ended == "answered", ended
    return client


@hostile("load of many rows")
async def loads(guest: Guest) -> AsyncIterator[str]:
    """Load many typed rows by column."""
    client = await guest.connected()
    yield ""
    yield await _load(client, guest.rows)


@hostile("six columns of many rows built")
async def builds(guest: Guest) -> AsyncIterator[str]:
    """Scan many rows for the first time."""
    client = await _loaded(guest)
    yield ""
    yield await outcome(client.run(
        "SELECT country, sum(qty) AS q, sum(amount) AS a, mean(rate) AS r, max(at) AS t,"
        " max(product) AS p FROM sale GROUP BY country"
    ))  # fmt: skip


@hostile("scans of many rows by column")
async def scans(guest: Guest) -> AsyncIterator[str]:
    """Scan many rows again and again, in all the ways of the bench."""
    client = await _loaded(guest)
    for scan in analytics.SCANS:
        await client.run(scan.node)
    yield ""
    yield counted([
        await outcome(client.run(scan.node)) for _ in range(SCANS) for scan in analytics.SCANS
    ])  # fmt: skip


# --- many texts -----------------------------------------------------------------------------------

TEXT_INDEX: Final = (
    "DEFINE ANALYZER OVERWRITE en TOKENIZERS class FILTERS lowercase, snowball(english);"
    "DEFINE TABLE article; DEFINE INDEX text ON article FIELDS body FULLTEXT ANALYZER en"
)
SEARCHES: Final = ("zymology", "see", "copper OR tin OR zinc", '"one of the"', "cop*", "coper~")


async def _write_texts(client: AsyncClient, count: int) -> None:
    """Write articles into a new table, in parts. Generated ones repeat those that there are."""
    await outcome(client.run("DROP TABLE article"))  # of an earlier input
    await client.run(TEXT_INDEX)
    known = articles.articles(count)
    for start in range(0, count, TEXTS):
        numbers = range(start, min(start + TEXTS, count))
        rows = [{"id": number, "body": known[number % len(known)][1]} for number in numbers]
        await client.run("INSERT INTO article $rows RETURN NONE", {"rows": rows})


TEXTS: Final = 1_000
"""Articles of a script."""


async def _folded(client: AsyncClient) -> None:
    """Wait until no article is fresh."""
    while True:
        info = await client.query("INFO FOR INDEX text ON article")
        if info["state"] == "ready" and not info["fresh"]["records"]:
            return
        await asyncio.sleep(EVERY_SECONDS * 10)


@hostile("articles written and folded")
async def folds(guest: Guest) -> AsyncIterator[str]:
    """Write many articles, whose folds and merges begin meanwhile."""
    client = await guest.connected()
    yield ""
    await _write_texts(client, guest.rows)
    await _folded(client)
    yield "folded"


@hostile("index of articles built again")
async def text_builds(guest: Guest) -> AsyncIterator[str]:
    """Rebuild the index of many articles."""
    client = await guest.connected()
    await _write_texts(client, guest.rows)
    await _folded(client)
    yield ""
    await client.run("REBUILD INDEX text ON article")
    await _folded(client)
    yield "folded"


@hostile("searches beside writes")
async def text_searches(guest: Guest) -> AsyncIterator[str]:
    """Search many articles for words, phrases and beginnings, while others change."""
    client, writer = await guest.connected(), await guest.connected()
    await _write_texts(client, guest.rows)
    await _folded(client)
    yield ""
    best = (
        "SELECT id, search::score() AS score FROM article WHERE body @@ $query"
        " ORDER BY score DESC LIMIT 10"
    )
    found, over, number = [], time.monotonic() + guest.seconds, 0
    while time.monotonic() < over:
        number += 1
        changed = {"id": RecordId("article", number % guest.rows), "body": f"tin and zinc {number}"}
        written = writer.run("UPDATE $id SET body = $body RETURN NONE", changed)
        asked = (client.run(best, {"query": query}) for query in SEARCHES)
        found += await asyncio.gather(*map(outcome, (written, *asked)))
    yield counted(found)


@dataclass
class Waits:
    """Waits of the other user, seconds."""

    longest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Longest wait, by kind of request."""
    asked: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    late: float = 0.0
    """The prober's own longest delay."""


KINDS: Final = ("RETURN 1", "GET", "CREATE")
"""Kinds of requests of the other user."""


class Prober:
    """The other user, with three connections."""

    def __init__(self, wire: str) -> None:
        self._clients = [
            AsyncClient(wire, user="other", password=PASSWORD, ns=NAMESPACE, db=WORKS, timeout=60)
            for _ in range(3)
        ]

    async def __aenter__(self) -> Prober:
        await self._clients[1].cache(NAMESPACE, WORKS, "s").set("k", "a value")
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()

    async def during(self, work: Awaitable[str]) -> tuple[str, Waits]:
        """Probe until a future is done. Return its result."""
        plain, keyed, writes = self._clients
        keys = keyed.cache(NAMESPACE, WORKS, "s")
        waits, over = Waits(), asyncio.Event()
        asking = [
            asyncio.create_task(_ask(name, ask, waits, over))
            for name, ask in zip(
                KINDS,
                (
                    lambda: plain.query("RETURN 1"),
                    lambda: keys.get("k"),
                    lambda: writes.query("CREATE t SET n = 1 RETURN NONE"),
                ),
                strict=True,
            )
        ]
        try:
            ended = await work
        finally:
            over.set()
            await asyncio.gather(*asking)
        return ended, waits


async def _ask(
    name: str, ask: Callable[[], Awaitable[Any]], waits: Waits, over: asyncio.Event
) -> None:
    while not over.is_set():
        began = time.perf_counter()
        how = await outcome(ask())
        if how != "answered":
            waits.refused[how] += 1
        took = time.perf_counter() - began
        waits.asked += 1
        waits.longest[name] = max(waits.longest[name], took)
        rest = max(EVERY_SECONDS - took, 0)
        began = time.perf_counter()
        await asyncio.sleep(rest)
        waits.late = max(waits.late, time.perf_counter() - began - rest)


@dataclass(frozen=True, slots=True)
class LoopHold:
    """Longest hold of the node's loop, milliseconds.

    :ivar stacks: functions that ran meanwhile, the innermost first
    """

    busy: float = 0.0
    clock: float = 0.0
    stacks: Sequence[str] = ()


def longest(log: str) -> LoopHold:
    """Return the longest hold in the output of bench/watched.py."""
    found = LoopHold()
    stacks: list[list[str]] = []
    for line in log.splitlines():
        if line.startswith(HELD):
            busy, clock = map(float, line.split()[1:])
            if busy > found.busy:
                found = LoopHold(busy, clock, ["\n".join(one[:14]) for one in stacks])
            stacks = []
        elif line == STACK:
            stacks.append([])
        elif stacks and line.startswith("  File"):
            stacks[-1].append(line)
    return found


@dataclass(frozen=True, slots=True)
class HostileInput:
    """An input, and its effect on the other user."""

    name: str
    ended: str
    took: float
    waits: Waits
    held: LoopHold


class Attacker:
    """Process of the guest."""

    def __init__(self, node: NodeProcess, seconds: float, rows: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, theirs = context.Pipe()
        self._process = context.Process(
            target=_guest, args=(node.http, node.wire, seconds, rows, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    async def prepare(self, name: str) -> None:
        """Prepare an input."""
        await self._ask(name)

    async def attack(self) -> str:
        """Run the attack. Return its outcome."""
        return await self._ask("go")

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()

    async def _ask(self, word: str) -> str:
        self._end.send(word)
        return str(await asyncio.to_thread(self._end.recv))


def _guest(http: str, wire: str, seconds: float, rows: int, end: Connection) -> None:
    async def serve() -> None:
        while True:
            name = await asyncio.to_thread(end.recv)
            guest = Guest(http, wire, seconds, rows)
            async with guest.stack:
                steps = INPUTS[name](guest)
                end.send(await anext(steps))
                await asyncio.to_thread(end.recv)
                end.send(await anext(steps))

    asyncio.run(serve())


def define(node: NodeProcess) -> None:
    """Define two databases, each with its owner."""
    with node.client() as client:
        define_place(client)
        for user, database in (("guest", "guest"), ("other", WORKS)):
            client.query(f"DEFINE DATABASE {NAMESPACE}.{database}")
            client.query(
                f"DEFINE USER {user} ROLE owner ON DATABASE {NAMESPACE}.{database}"
                f" PASSWORD '{PASSWORD}'"
            )
        rows = [{"n": n, "m": n, "s": "data " * 100 + str(n)} for n in range(ROWS)]
        client.query(DEFINITIONS, {"rows": rows})


async def measure(
    node: NodeProcess, names: Sequence[str], seconds: float, rows: int
) -> AsyncIterator[HostileInput]:
    """Measure each input, after a baseline without any."""
    log_path = node.directory.with_suffix(".log")
    attacker = Attacker(node, seconds, rows)
    try:
        async with Prober(node.wire) as prober:
            for name in (NOTHING, *names):
                if name != NOTHING:
                    await attacker.prepare(name)
                size, began = log_path.stat().st_size, time.perf_counter()
                work = attacker.attack() if name != NOTHING else asyncio.sleep(seconds, "")
                ended, waits = await prober.during(work)
                took = time.perf_counter() - began
                with log_path.open("rb") as log:
                    log.seek(size)
                    held = longest(log.read().decode(errors="replace"))
                yield HostileInput(name, ended, took, waits, held)
    finally:
        attacker.stop()


def table(rows: Sequence[HostileInput]) -> Table:
    """Return a line for each input."""
    shown = Table(show_edge=False, pad_edge=False)
    shown.add_column("input")
    shown.add_column("ended", overflow="fold")
    headings = [f"wait of {kind}" for kind in KINDS]
    for heading in ("s", *headings, "late", "held, busy", "held", "refused"):
        shown.add_column(heading, justify="right")
    for row in rows:
        shown.add_row(
            row.name,
            row.ended,
            f"{row.took:.1f}",
            *(f"{row.waits.longest[kind] * 1000:.0f} ms" for kind in KINDS),
            f"{row.waits.late * 1000:.0f} ms",
            f"{row.held.busy:.0f} ms",
            f"{row.held.clock:.0f} ms",
            counted(list(row.waits.refused.elements())),
        )
    return shown


def main() -> None:
    """Run the inputs that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument(
        "--input", action="append", choices=INPUTS, help="run only this input; may be repeated"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="duration of inputs without an end"
    )
    parser.add_argument("--rows", type=int, default=MANY, help="rows of inputs that take many")
    parser.add_argument(
        "--tree", type=Path, default=MEASURED, help="tree of the node, such as build/compiled"
    )
    parser.add_argument(
        "--stacks", action="store_true", help="print the stacks that held the loop longest"
    )
    asked = parser.parse_args()
    (TOP / "build").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="storenode-hostile-", dir=TOP / "build"))
    console = Console(width=WIDTH)
    try:
        names = asked.input or list(INPUTS)
        rows = asyncio.run(run(folder, names, asked.seconds, asked.rows, asked.tree, console))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console.print(table(rows))
    for row in rows if asked.stacks else ():
        for stack, times in Counter(row.held.stacks).most_common(3):
            held = f"{row.name}: held {row.held.busy:.0f} ms, {times} × {STACKS_SECONDS:g} s in"
            console.print(f"\n{held}\n{stack}", markup=False)


async def run(
    folder: Path,
    names: Sequence[str],
    seconds: float,
    rows: int,
    tree: Path,
    console: Console,
) -> list[HostileInput]:
    """Measure on a fresh node."""
    found = []
    with NodeProcess(folder / "store", module="bench.watched", tree=tree) as node:
        define(node)
        async for row in measure(node, names, seconds, rows):
            console.print(f"measured: {row.name}", style="dim")
            found.append(row)
    return found


if __name__ == "__main__":
    main()
