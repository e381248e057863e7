"""A state that does not open, or belongs to another log, and when it is made anew. What a bad block
does is in tests/reliability/test_state_damage.py."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.node import Node
from protocol import limits
from protocol.errors import Failed
from storage.catalog import places, tables
from storage.engine.engine import EngineUnreadable
from storage.engine.memory import MemoryEngine
from storage.faults import StateDamaged, StateForeign
from storage.formats import keys
from storage.formats.keys import Pair
from storage.log.log import Log
from storage.log.state import LogSizes
from tests.actors.nodes import (
    prepare,
    real_environment,
    running,
    settings,
    simulated_environment,
    value,
)
from tests.actors.parts import outcome, play, until
from tests.logbook import Logbook
from tests.simulation.disk import SimulatedDisk

ROWS = 2_000
RECORDS = frozenset({keys.RECORD})


def told(folder: Path, **more: Any) -> Any:
    return settings(str(folder / "store"), **more)


async def fill(folder: Path) -> str:
    """A store of rows that no cache holds all of. Answers its state's hash."""
    async with running(real_environment(), told(folder)) as node:
        await prepare(node)
        for part in range(4):
            rows = [{"id": n, "v": f"{n:06}" * 20} for n in range(part, ROWS, 4)]
            await value(node, "INSERT INTO t $rows", {"rows": rows})
        found: str = (await value(node, "INFO FOR STATE"))["hash"]
    return found


class BadBlock(MemoryEngine):
    """Keys of some kinds can't be read, once they are bad."""

    bad: frozenset[int] = frozenset()
    """Tags of keys."""
    good = b"none"
    """What keys begin with that can be read all the same."""
    unread: frozenset[int] = frozenset()
    """Tags of keys that can't be read singly."""
    met = 0
    left_alone = False

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        if start[keys.TAG_AT] in self.bad and not start.startswith(self.good):
            self.met += 1
            raise EngineUnreadable("the state can't be read: bad block")
        return super().scan(start, end, reverse)

    def get(self, key: bytes) -> bytes | None:
        if key[keys.TAG_AT] in self.unread:
            raise EngineUnreadable("the state can't be read: bad block")
        return super().get(key)

    def leave_alone(self) -> None:
        self.left_alone = True


@pytest.mark.parametrize("kind", ["stepped", "real"])
def test_what_can_not_be_read_is_failed_and_ends_nothing(kind: str, logbook: Logbook) -> None:
    logbook.allow("handler failed|a part of the state can't be read|made anew from the log")
    disk, engine = SimulatedDisk(), BadBlock()

    async def meet() -> None:
        async with running(simulated_environment(kind, disk, engine)) as node:
            await prepare(node)
            await value(node, "INSERT INTO t [{ id: 1 }, { id: 2 }]")
            engine.bad = RECORDS
            for _ in range(3):
                assert isinstance(await outcome(value(node, "SELECT * FROM t")), Failed)
            await until(lambda: disk.exists("/store/DAMAGED"))
            assert engine.left_alone
            await value(node, "CREATE u:1")
            assert not node.failed.is_set()
            assert node.status().state_damage is not None

    async def mend() -> None:
        async with running(simulated_environment(kind, disk, MemoryEngine())) as node:
            assert len(await value(node, "SELECT * FROM t")) == 2
            assert node.status().state_damage is None
        assert not disk.exists("/store/DAMAGED")

    play(kind, meet)
    play(kind, mend)
    assert logbook.names().count("a part of the state can't be read") == 1


def test_what_drives_itself_leaves_alone_what_it_can_not_read(
    monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """And does all else, also where the next start meets the same: its log is pruned, say."""
    logbook.allow("handler failed|a part of the state can't be read|made anew from the log")
    disk, engine = SimulatedDisk(), BadBlock()
    bad = frozenset({keys.RECORD, keys.EXPIRY, keys.MESSAGE, keys.DEADLINE})
    rows = {"rows": [{"id": n, "v": n} for n in range(1_500)]}

    async def state_of(node: Node, index: str, table: str) -> str:
        info = await value(node, f"INFO FOR INDEX {index} ON {table}")
        return str(info["state"])

    async def stays_up(node: Node) -> None:
        before = engine.met
        await asyncio.sleep(600)
        assert not node.failed.is_set()
        assert 10 <= engine.met - before <= 100, "it is tried now and then"
        assert await state_of(node, "i", "t") == "building"
        assert await state_of(node, "j", "u") == "ready"

    async def meet() -> None:
        async with running(simulated_environment("stepped", disk, engine)) as node:
            await prepare(node)
            for table in "tu":
                await value(node, f"INSERT INTO {table} $rows RETURN NONE", rows)
            await value(
                node,
                "DEFINE SPACE c; SET 'k' IN c VALUE 1 EXPIRE 10s; DEFINE TOPIC q KEEP 30s;"
                "PUBLISH INTO q VALUES [1]; DEFINE GROUP g ON q DEADLINE 10s; TAKE 1 FROM q AS g",
            )
            with node.committer.begin_transaction() as tx:
                place = places.database(tx, places.namespace(tx, "a"), "b")
                engine.good = tables.table(tx, place, "u").prefix
            engine.bad = bad
            await value(node, "DEFINE INDEX i ON t FIELDS v; DEFINE INDEX j ON u FIELDS v")
            await stays_up(node)

    async def start() -> None:
        async with running(simulated_environment("stepped", disk, engine)) as node:
            await stays_up(node)
            engine.bad = frozenset()
            await asyncio.sleep(100)
            assert await state_of(node, "i", "t") == "ready"

    play("stepped", meet)
    monkeypatch.setattr(
        "storage.files.rebuild_marker.damage", lambda _directory: None
    )  # opened as it is
    play("stepped", start)


async def test_a_pruned_log_makes_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_FRAMES_KEPT", 1)
    inspect, small = Log.inspect, LogSizes(segment_frames=2)
    monkeypatch.setattr(Log, "inspect", lambda directory: inspect(directory, small))
    whole = await fill(tmp_path)
    with pytest.raises(StateDamaged, match="the log begins at"):
        async with running(real_environment(), told(tmp_path, rebuild_state=True)):
            pass
    async with running(real_environment(), told(tmp_path)) as node:
        assert node.status().log_begins > 1
        assert (await value(node, "INFO FOR STATE"))["hash"] == whole, "nothing was touched"


async def test_a_state_that_does_not_open_is_made_anew(tmp_path: Path, logbook: Logbook) -> None:
    logbook.allow("made anew from the log")
    whole = await fill(tmp_path)
    for manifest in (tmp_path / "store" / "state").glob("MANIFEST-*"):
        manifest.write_bytes(b"no manifest" * 100)
    with pytest.raises(StateDamaged, match="rebuild the state"):
        async with running(real_environment(), told(tmp_path, check=True, serves=False)):
            pass
    async with running(real_environment(), told(tmp_path)) as node:
        assert (await value(node, "INFO FOR STATE"))["hash"] == whole


async def test_another_stores_state_is_for_the_operator(tmp_path: Path, logbook: Logbook) -> None:
    logbook.allow("made anew from the log")
    whole = await fill(tmp_path)
    (tmp_path / "other").mkdir()
    await fill(tmp_path / "other")
    shutil.rmtree(tmp_path / "store" / "state")
    shutil.copytree(tmp_path / "other" / "store" / "state", tmp_path / "store" / "state")
    with pytest.raises(StateForeign, match="--rebuild-state"):
        async with running(real_environment(), told(tmp_path)):
            pass
    async with running(real_environment(), told(tmp_path, rebuild_state=True)) as node:
        assert (await value(node, "INFO FOR STATE"))["hash"] == whole
