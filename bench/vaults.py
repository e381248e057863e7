"""Rows about vaults: writing and revealing beside OpenBao, an unseal, a rotation, and the effect of
both on other requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench import load, openbao
from bench.drivers import Measured
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.load import LoadDescription
from bench.nodes import DATABASE, NAMESPACE, NodeProcess, define_place
from bench.openbao import SECRET, Bao
from bench.settings import Settings
from storeclient import Client

PASSPHRASE: Final = "the passphrase of a bench"
CLIENTS: Final = (1, 32)
REQUESTS: Final = {1: 2_000, 32: 20_000}
RECORDS: Final = 100_000
TOGETHER: Final = 500
REVEALS_A_SECOND: Final = 1_000
REVEALERS: Final = 32
OTHERS: Final = 8
OTHERS_A_SECOND: Final = 400
BESIDE_SECONDS: Final = 10
OVER_HTTP: Final = f"{NODE} over HTTP"
FLAGS: Final = ("--unseal-for", "12h")
NAMES: Final = (
    *(f"vault-{what}-{clients}" for what in ("write", "reveal") for clients in CLIENTS),
    "vault-unseal", "vault-rotate", "vault-beside",
)  # fmt: skip
BESIDE_PEER: Final = NAMES[:4]


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, on one node."""
    if not any(map(wanted, NAMES)):
        return
    with ExitStack() as held:
        node = held.enter_context(NodeProcess(settings.directory / "vaults", flags=FLAGS))
        client = held.enter_context(node.client())
        define_place(client)
        client.store_seal().change_passphrase(None, PASSPHRASE)
        client.store_seal().unseal(PASSPHRASE)
        client.run("DEFINE VAULT v; DEFINE VAULT many")
        bao = None
        if any(wanted(name) for name in BESIDE_PEER) and openbao.missing() is None:
            bao = held.enter_context(openbao.openbao(settings.directory / "openbao"))
        for clients in CLIENTS:
            if wanted(f"vault-write-{clients}"):
                yield _driven(settings, node, bao, "write", clients)
        if any(map(wanted, ("vault-reveal-1", "vault-reveal-32", "vault-beside"))):
            _fill(client, "v", load.REVEALED)
            if bao is not None:
                bao.fill(map(str, range(load.REVEALED)))
        for clients in CLIENTS:
            if wanted(f"vault-reveal-{clients}"):
                yield _driven(settings, node, bao, "reveal", clients)
        if wanted("vault-beside"):
            yield _beside(settings, node, client)
        if wanted("vault-unseal"):
            yield _unseal(settings, client)
        if wanted("vault-rotate"):
            yield _rotate(settings, node, client)


def _fill(client: Client, vault: str, count: int) -> None:
    script = (
        f"BEGIN; FOR $i IN $a..$b {{ WRITE type::string($i) IN VAULT {vault} VALUE $v }}; COMMIT"
    )
    for first in range(0, count, TOGETHER):
        bounds = {"a": first, "b": min(first + TOGETHER, count), "v": SECRET}
        client.run(script, bounds)


def _driven(
    settings: Settings, node: NodeProcess, bao: Bao | None, what: str, clients: int
) -> Measurement:
    who = "1 client" if clients == 1 else f"{clients} clients"
    row = Measurement(
        f"vault-{what}-{clients}", f"{what} a secret over the wire, {who}", "/s", "more"
    )
    count = settings.scaled(REQUESTS[clients])
    found: dict[str, list[Measured]] = {}

    def measured(side: str, asked: LoadDescription) -> float:
        one = load.run(asked, (lambda: 0.0) if side == openbao.NAME else node.cpu_seconds)
        found.setdefault(side, []).append(one)
        return one.rate

    sides = {
        NODE: LoadDescription(f"vault-{what}", node.wire, clients, count),
        OVER_HTTP: LoadDescription(f"vault-{what}-http", node.http, clients, count),
    }
    if bao is not None:
        sides[openbao.NAME] = LoadDescription(
            f"bao-{what}", bao.address, clients, count, token=bao.token
        )
    else:
        row.gaps.append(f"OpenBao: {openbao.missing()}")
    measures: dict[str, Measure] = {
        side: partial(measured, side, asked) for side, asked in sides.items()
    }
    row.sides = in_turns(settings.rounds, measures)
    for side, times in found.items():
        middle = sorted(times, key=lambda one: one.rate)[len(times) // 2]
        cpu = f", the node computes {middle.node_cpu_us:.0f} µs" if middle.node_cpu_us else ""
        row.notes.append(f"{side}: p50 {middle.p50_ms:.2f} ms, p99 {middle.p99_ms:.2f} ms{cpu}")
    return row


def _beside(settings: Settings, node: NodeProcess, client: Client) -> Measurement:
    """Measure the p99 of record reads while secrets are revealed, relative to an idle node."""
    work = f"others' p99 beside {REVEALS_A_SECOND:,} reveals a second, by that at rest"
    row = Measurement("vault-beside", work, "×", "less", goal="2")
    client.run("DEFINE TABLE other; CREATE other:1 SET name = 'x'")
    others = LoadDescription(
        "vault-others", node.wire, OTHERS, settings.scaled(OTHERS_A_SECOND * BESIDE_SECONDS),
        processes=1, rate=OTHERS_A_SECOND,
    )  # fmt: skip
    longer = settings.scaled(REVEALS_A_SECOND * (BESIDE_SECONDS + 2))
    reveals = LoadDescription(
        "vault-reveal", node.wire, REVEALERS, longer, processes=1, rate=REVEALS_A_SECOND
    )
    for _ in range(settings.rounds):
        rest = load.run(others)
        with ThreadPoolExecutor(1) as aside:
            revealing = aside.submit(load.run, reveals, node.cpu_seconds)
            beside = load.run(others)
            revealed = revealing.result()
        row.sides.setdefault(NODE, []).append(beside.p99_ms / rest.p99_ms)
        row.notes.append(
            f"{revealed.rate:,.0f} reveals/s, p99 {revealed.p99_ms:.1f} ms; others p50"
            f" {beside.p50_ms:.2f} ms ({rest.p50_ms:.2f} at rest), p99 {beside.p99_ms:.2f} ms"
            f" ({rest.p99_ms:.2f}); node computes {revealed.node_cpu_us:.0f} µs a reveal"
        )
    return row


def _unseal(settings: Settings, client: Client) -> Measurement:
    row = Measurement("vault-unseal", "unseal the store", "ms", "less")
    with _Others(client) as others:
        for _ in range(settings.rounds):
            began = time.perf_counter()
            client.store_seal().unseal(PASSPHRASE)
            row.sides.setdefault(NODE, []).append((time.perf_counter() - began) * 1000)
    row.notes.append(others.told())
    return row


def _rotate(settings: Settings, node: NodeProcess, client: Client) -> Measurement:
    count = settings.scaled(RECORDS)
    row = Measurement("vault-rotate", f"seal {count:,} values again", "s", "less")
    _fill(client, "many", count)
    used = node.cpu_seconds()
    with _Others(client) as others:
        for _ in range(settings.rounds):
            began = time.perf_counter()
            client.run("ROTATE VAULT many")
            while client.query("INFO FOR VAULT many")["rotation"] != "none":
                time.sleep(0.02)
            row.sides.setdefault(NODE, []).append(time.perf_counter() - began)
    used = (node.cpu_seconds() - used) / settings.rounds / count * 1e6
    row.notes.append(f"node computes {used:.0f} µs a value, with what others ask beside it")
    row.notes.append(others.told())
    return row


class _Others:
    """Another client, which pings the node in a loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._took: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ping)

    def __enter__(self) -> _Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ping(self) -> None:
        while not self._over.is_set():
            began = time.perf_counter()
            self._client.query("RETURN 1", ns=NAMESPACE, db=DATABASE)
            self._took.append(time.perf_counter() - began)
            time.sleep(0.001)

    def told(self) -> str:
        """Describe the latencies of the pings."""
        ordered = sorted(self._took)
        return (
            f"others meanwhile: p50 {ordered[len(ordered) // 2] * 1000:.1f} ms,"
            f" p99 {ordered[len(ordered) * 99 // 100] * 1000:.1f} ms,"
            f" at most {ordered[-1] * 1000:.1f} ms"
        )
