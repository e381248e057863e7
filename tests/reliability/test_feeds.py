"""R14: feeds whose readers come and go, while the node is killed, restarted and prunes its log:
every commit once, whole and in order, or a refusal that says why not."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from bench.ports import free_port
from tests.processes import NodeProcess, serving
from tests.reliability import faulty, following
from tests.reliability.disks import MIB
from tests.reliability.following import Heard, Wrong
from tests.reliability.test_bombs import memory
from tests.surfaces.http import sockets
from tests.surfaces.http.raw import Raw

Figure = Callable[[str, object], None]

DEFINE = """
DEFINE NAMESPACE IF NOT EXISTS a; DEFINE DATABASE IF NOT EXISTS a.b; USE a.b;
DEFINE TABLE IF NOT EXISTS t; DEFINE TABLE IF NOT EXISTS u
"""


class Writer:
    """Makes commits, one after the other, as quickly as they are answered."""

    def __init__(self) -> None:
        self.number = 0
        self.acknowledged: list[int] = []

    async def write(self, node: NodeProcess, until: asyncio.Event) -> None:
        while not until.is_set():
            self.number += 1
            number = self.number
            try:
                answer = await asyncio.to_thread(
                    node.script, following.commit(number), ns="a", db="b"
                )
            except OSError:
                return  # whether it happened is not known
            except ValueError:
                return
            if "error" in answer:
                return
            self.acknowledged.append(number)


async def live(
    node: NodeProcess, writer: Writer, rng: random.Random, ends: signal.Signals, seconds: float
) -> None:
    """One life of the node, with writes all along."""
    await asyncio.to_thread(node.start)
    try:
        while (answer := await asyncio.to_thread(node.script, DEFINE)).get("error"):
            # All readers bring their password at once: some who come then wait in vain.
            assert answer["error"]["code"] == "Busy", answer
        stop = asyncio.Event()
        writing = asyncio.create_task(writer.write(node, stop))
        await asyncio.sleep(seconds)
        if ends is signal.SIGKILL:
            await asyncio.to_thread(node.kill)
        else:
            assert await asyncio.to_thread(node.stop) == 0
        stop.set()
        await writing
    finally:
        node.end()


class Steady(random.Random):
    """Chooses the longest."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]


async def story(
    path: Path, *, readers: int, lives: int, seed: int, keep: str | None = None, more: str = ""
) -> str:
    """Lives of one store with readers all along; the figure. :raises Wrong:"""
    rng, port, writer = random.Random(seed), free_port(), Writer()
    words = ["--http", f"127.0.0.1:{port}", "--serve", "127.0.0.1:0"]
    words += ["--keep-log", keep] if keep else []
    module = {"module": faulty.MODULE, "more": {faulty.FAULTS: more}} if more else {}
    over = asyncio.Event()
    all_heard = [Heard(f"reader {number}") for number in range(readers)]
    tasks = [
        asyncio.create_task(
            following.follow(
                heard,
                port,
                random.Random(seed * 1_000 + number),
                over,
                slow=number % 10 == 9,
                away_seconds=8 if keep and number % 3 == 0 else 0,
            )
        )
        for number, heard in enumerate(all_heard)
    ]
    for _ in range(lives):
        node = NodeProcess(path / "store", words, **module)  # type: ignore[arg-type]
        ends = rng.choice((signal.SIGKILL, signal.SIGTERM))
        await live(node, writer, rng, ends, rng.uniform(0.5, 2.0))
    node = NodeProcess(path / "store", words).start()
    try:
        # All that the log still holds, as one reader hears it who is not disturbed.
        truth = Heard("at the end")
        tasks.append(asyncio.create_task(following.follow(truth, port, Steady(), over)))
        goal = node.request("GET", "/health").json["sequence"]
        async with asyncio.timeout(240):
            while any((heard.seq or 0) < goal for heard in [*all_heard, truth]):
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)
        over.set()
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for each in found:
            if isinstance(each, Exception):
                raise each
    finally:
        node.end()
    return judge(all_heard, truth, writer, pruned=keep is not None)


def judge(all_heard: list[Heard], truth: Heard, writer: Writer, *, pruned: bool) -> str:
    """What all heard together, against what happened. :raises Wrong:"""
    known = sorted({number for heard in [*all_heard, truth] for number in heard.numbers})
    lost = set(writer.acknowledged) - set(known)
    if lost and not (pruned and max(lost) < (truth.numbers or [0])[0]):
        raise Wrong(f"nobody heard of {sorted(lost)}")
    for heard in all_heard:
        heard.judge(known)
    connections = sum(heard.connections for heard in all_heard)
    commits = sum(len(heard.numbers) for heard in all_heard)
    ends: dict[str, int] = {}
    for heard in all_heard:
        for code, count in heard.ends.items():
            ends[code] = ends.get(code, 0) + count
    anew = sum(len(heard.gaps) for heard in all_heard)
    if anew and not pruned:
        raise Wrong(f"readers began anew {anew} times, and nothing was pruned")
    return (
        f"{len(all_heard)} readers, {connections} connections, {len(known)} commits, {commits} told"
        f"; {anew} times anew, ended by {ends}: each once, whole, in order"
    )


async def test_readers_that_come_and_go_hear_every_commit_once(
    tmp_path: Path, figure: Figure
) -> None:
    figure("R14 feeds", await story(tmp_path, readers=6, lives=2, seed=1))


@pytest.mark.hard
@pytest.mark.timeout(900)
async def test_two_hundred_readers(tmp_path: Path, figure: Figure) -> None:
    figure("R14 200 feeds", await story(tmp_path, readers=200, lives=6, seed=2))


@pytest.mark.hard
@pytest.mark.timeout(900)
async def test_readers_of_a_log_that_is_pruned(tmp_path: Path, figure: Figure) -> None:
    told = await story(tmp_path, readers=40, lives=20, seed=3, keep="40KiB", more="small")
    figure("R14 pruned", told)
    assert "LogPruned" in told, "nothing was pruned under any reader"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("skips", "was skipped"), ("repeats", "after"), ("halves", "of 3 records"),
        ("ghosts", "never happened"), ("mixes", "is of"), ("turns back", "goes back"),
    ],
)  # fmt: skip
def test_the_checker_sees(fault: str, words: str) -> None:
    def said(number: int, seq: int, count: int | None = None) -> dict[str, Any]:
        of = following.spread(number)
        values = [{"n": number, "of": of}] * (of if count is None else count)
        changes = [{"value": value} for value in values]
        return {"type": "commit", "seq": seq, "epoch": 1, "changes": changes}

    heard = Heard("one")
    with pytest.raises(Wrong, match=words):
        heard.take(said(1, 10))
        if fault == "repeats":
            heard.take(said(1, 10))
        if fault == "halves":
            heard.take(said(2, 11, count=2))
        if fault == "mixes":
            mixed = said(1, 11)
            mixed["changes"][0] = {"value": {"n": 7, "of": 2}}
            heard.take(mixed)
        if fault == "turns back":
            heard.take({"type": "beat", "seq": 9, "epoch": 1})
        heard.take(said(3 if fault == "skips" else 2, 11))
        heard.judge([1] if fault == "ghosts" else [1, 2, 3])


PAD = "x" * 100_000
RECORDS = 600
"""Of a commit of 60 MB."""


async def watch(node: NodeProcess, start: int | None = None) -> sockets.Peer:
    """A feed of table t, on a socket that stands."""
    query = dict(following.PLACE) | ({} if start is None else {"from": str(start)})
    asks = sockets.asks(Authorization=following.BASIC)
    asks = asks.replace(b"/echo", b"/watch?" + urlencode(query).encode(), 1)
    peer = sockets.Peer(await Raw.connect(node.address("http")[1]))
    await peer.begin(asks)
    return peer


async def until(peer: sockets.Peer, kind: str) -> dict[str, Any]:
    while (said := (await peer.frame()).json)["type"] != kind:
        assert said["type"] != "error", said
    assert isinstance(said, dict)
    return said


def resident_mib(node: NodeProcess) -> float:
    return memory(node, "VmRSS") / MIB


@pytest.mark.hard
@pytest.mark.timeout(300)
async def test_a_commit_of_60_mb_passes_a_slow_reader_once_and_whole(
    tmp_path: Path, figure: Figure
) -> None:
    with serving(tmp_path / "store") as node:
        node.script(DEFINE)
        slow, quick = await watch(node), await watch(node)
        async with slow, quick:
            await until(slow, "caught_up")
            await until(quick, "caught_up")
            before = resident_mib(node)
            create = "CREATE type::record('t', $i) SET pad = $pad"
            script = f"BEGIN; FOR $i IN 0..{RECORDS} {{ {create} }}; COMMIT"
            answer = await asyncio.to_thread(
                node.script, script, ns="a", db="b", params={"pad": PAD}
            )
            assert "error" not in answer, answer
            node.script("CREATE t:last", ns="a", db="b")
            while (said := await until(quick, "commit"))["changes"][0]["id"] != "t:last":
                pass
            told: list[str] = []
            parts: list[int] = []
            while True:
                said = await until(slow, "commit")
                if "part" not in said:
                    break
                assert said["seq"] == answer["seq"]
                parts.append(said["part"])
                told += [change["id"] for change in said["changes"]]
                assert all(len(change["value"]["pad"]) == len(PAD) for change in said["changes"])
                await asyncio.sleep(0.02)
            assert parts == [*range(1, len(parts) + 1)]
            assert sorted(told) == sorted(f"t:{number}" for number in range(RECORDS))
            assert said["changes"][0]["id"] == "t:last"
            grown = resident_mib(node) - before
    figure("R14 60 MB", f"{len(parts)} parts, {RECORDS} records; the node grew by {grown:.0f} MiB")


@pytest.mark.hard
@pytest.mark.timeout(300)
async def test_a_thousand_idle_feeds_cost_little(tmp_path: Path, figure: Figure) -> None:
    with serving(tmp_path / "store") as node:
        node.script(DEFINE)
        for _ in range(200):  # what a first use takes is no feed's
            node.script("CREATE u", ns="a", db="b")
        idle = [await Raw.connect(node.address("http")[1]) for _ in range(1_000)]
        for raw in idle:
            assert (await raw.ask("GET", "/health")).status == 200
        connected = resident_mib(node)
        peers = []
        for raw in idle:
            peer = sockets.Peer(raw)
            query = urlencode(following.PLACE).encode()
            asks = sockets.asks(Authorization=following.BASIC)
            await peer.begin(asks.replace(b"/echo", b"/watch?" + query, 1))
            peers.append(peer)
        for peer in peers:
            await until(peer, "caught_up")
        each = (resident_mib(node) - connected) * 1024 / len(peers)
        node.script("CREATE t:1", ns="a", db="b")
        for peer in peers:
            assert (await until(peer, "commit"))["changes"][0]["id"] == "t:1"
            peer.raw.writer.close()
    figure("R14 idle feeds", f"1000, {each:.1f} KiB each beside their connection")
    assert each < 32, "an idle feed costs about what a connection does"
