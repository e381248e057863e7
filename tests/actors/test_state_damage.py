"""A state that does not open, or belongs to another log, and when it is made anew. What a bad block
does is in tests/reliability/test_state_damage.py."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol import limits
from protocol.errors import Failed
from storage import keys
from storage.engine import EngineUnreadable, Pair
from storage.faults import StateDamaged, StateForeign
from storage.log import Log
from storage.log_reading import LogSizes
from storage.memory import MemoryEngine
from tests.actors.nodes import (
    prepare,
    real_doors,
    running,
    settings,
    simulated_doors,
    value,
)
from tests.actors.parts import outcome, play, until
from tests.logbook import Logbook
from tests.simulation.disk import SimulatedDisk

ROWS = 2_000


def told(folder: Path, **more: Any) -> Any:
    return settings(str(folder / "store"), **more)


async def fill(folder: Path) -> str:
    """A store of rows that no cache holds all of. Answers its state's hash."""
    async with running(real_doors(), told(folder)) as node:
        await prepare(node)
        for part in range(4):
            rows = [{"id": n, "v": f"{n:06}" * 20} for n in range(part, ROWS, 4)]
            await value(node, "INSERT INTO t $rows", {"rows": rows})
        found: str = (await value(node, "INFO FOR STATE"))["hash"]
    return found


class BadBlock(MemoryEngine):
    """Records can't be read, once it is bad."""

    bad = False
    left_alone = False

    def scan(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[Pair]]:
        if self.bad and start[keys.TAG_AT] == keys.RECORD:
            raise EngineUnreadable("the state can't be read: bad block")
        return super().scan(start, end, reverse)

    def leave_alone(self) -> None:
        self.left_alone = True


@pytest.mark.parametrize("kind", ["stepped", "real"])
def test_what_can_not_be_read_is_failed_and_ends_nothing(kind: str, logbook: Logbook) -> None:
    logbook.allow("handler failed|a part of the state can't be read|made anew from the log")
    disk, engine = SimulatedDisk(), BadBlock()

    async def meet() -> None:
        async with running(simulated_doors(kind, disk, engine)) as node:
            await prepare(node)
            await value(node, "INSERT INTO t [{ id: 1 }, { id: 2 }]")
            engine.bad = True
            for _ in range(3):
                assert isinstance(await outcome(value(node, "SELECT * FROM t")), Failed)
            await until(lambda: disk.exists("/store/DAMAGED"))
            assert engine.left_alone
            await value(node, "CREATE u:1")
            assert not node.failed.is_set()
            assert node.status().state_damage is not None

    async def mend() -> None:
        async with running(simulated_doors(kind, disk, MemoryEngine())) as node:
            assert len(await value(node, "SELECT * FROM t")) == 2
            assert node.status().state_damage is None
        assert not disk.exists("/store/DAMAGED")

    play(kind, meet)
    play(kind, mend)
    assert logbook.names().count("a part of the state can't be read") == 1


async def test_a_pruned_log_makes_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_FRAMES_KEPT", 1)
    look, small = Log.look, LogSizes(segment_frames=2)
    monkeypatch.setattr(Log, "look", lambda directory: look(directory, small))
    whole = await fill(tmp_path)
    with pytest.raises(StateDamaged, match="the log begins at"):
        async with running(real_doors(), told(tmp_path, rebuild_state=True)):
            pass
    async with running(real_doors(), told(tmp_path)) as node:
        assert node.status().log_begins > 1
        assert (await value(node, "INFO FOR STATE"))["hash"] == whole, "nothing was touched"


async def test_a_state_that_does_not_open_is_made_anew(tmp_path: Path, logbook: Logbook) -> None:
    logbook.allow("made anew from the log")
    whole = await fill(tmp_path)
    for manifest in (tmp_path / "store" / "state").glob("MANIFEST-*"):
        manifest.write_bytes(b"no manifest" * 100)
    with pytest.raises(StateDamaged, match="makes the state anew"):
        async with running(real_doors(), told(tmp_path, check=True, serves=False)):
            pass
    async with running(real_doors(), told(tmp_path)) as node:
        assert (await value(node, "INFO FOR STATE"))["hash"] == whole


async def test_another_stores_state_is_for_the_operator(tmp_path: Path, logbook: Logbook) -> None:
    logbook.allow("made anew from the log")
    whole = await fill(tmp_path)
    (tmp_path / "other").mkdir()
    await fill(tmp_path / "other")
    shutil.rmtree(tmp_path / "store" / "state")
    shutil.copytree(tmp_path / "other" / "store" / "state", tmp_path / "store" / "state")
    with pytest.raises(StateForeign, match="--rebuild-state"):
        async with running(real_doors(), told(tmp_path)):
            pass
    async with running(real_doors(), told(tmp_path, rebuild_state=True)) as node:
        assert (await value(node, "INFO FOR STATE"))["hash"] == whole
