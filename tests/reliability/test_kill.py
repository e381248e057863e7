"""R2: SIGKILL while clients write records, cache keys and messages over both surfaces, again and
again, on one store."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from storeclient import Client, LoadFailed, RecordId
from tests.processes import PASSWORD, USER, NodeProcess
from tests.reliability import faulty, workload
from tests.reliability.workload import Broken, Promises

KILLS = 4
LANES = 2
KILLS_HARD = 120
LANES_HARD = 4
LOAD_SECONDS = 0.4
"""A kill comes so long after the clients began, at most; also while the node still opens."""
REPLAYED_FRAMES = 100_000
STATEMENTS = 2_500

LOADS_KILLED = 4
LOADED_TOGETHER = 300
AT = datetime(2026, 1, 1, tzinfo=UTC)

Figure = Callable[[str, object], None]


def line(node: NodeProcess) -> Client:
    host, port = node.address("wire")
    return Client(f"{host}:{port}", user=USER, password=PASSWORD, connect_timeout=8)


def killing(node: NodeProcess, most: int) -> Callable[[int], None]:
    """Progress of a load that kills the node once so many rows are written."""

    def progress(count: int) -> None:
        if count >= most:
            node.kill()

    return progress


def loaded_row(number: int) -> dict[str, object]:
    """A row of the load: it follows from its number."""
    amount = Decimal(number).scaleb(-2)
    return {"id": number, "at": AT, "amount": amount, "of": RecordId("two", number % 9)}


def life(
    node: NodeProcess, promises: Promises, rng: random.Random, seed: int, wanted: int = 0
) -> int:
    """One start, some writes, one kill.

    :param wanted: so many have been acknowledged before the kill, unless nobody writes any more
    """
    node.spawn()
    enough = len(promises.acknowledged) >= wanted
    if rng.random() < 0.1 and enough:  # in the middle of opening, or of the recovery
        time.sleep(rng.uniform(0.3, 1.0))
        node.kill()
        return 0
    node.wait_ready()
    try:
        workload.setup(node)
        happened = promises.compare(workload.records(node))
        with workload.writing(node, promises, seed=seed) as writers:
            while len(promises.acknowledged) < wanted and any(w.is_alive() for w in writers):
                time.sleep(0.005)
            time.sleep(rng.uniform(0, LOAD_SECONDS))
            node.kill()
    finally:
        node.end()
    return happened


def kill_often(
    directory: Path, kills: int, seed: int, faults: str = "small,unpruned"
) -> tuple[Promises, int]:
    """Lives of one store, and at the end everything compared. :raises Broken:"""
    rng, promises, happened = random.Random(seed), Promises(), 0
    for number in range(kills):
        node = NodeProcess(directory, more={faulty.FAULTS: faults}, module=faulty.MODULE)
        wanted = kills + 1 if number == kills - 1 else 0
        happened += life(node, promises, rng, number, wanted)
    workload.settle(promises, directory, directory.with_name(f"{directory.name}-again"))
    return promises, happened


def told(found: list[tuple[Promises, int]], kills: int) -> str:
    acknowledged = sum(len(promises.acknowledged) for promises, _ in found)
    refused = sum(len(promises.refused) for promises, _ in found)
    happened = sum(count for _, count in found)
    return (
        f"{kills} kills, {acknowledged} acknowledged, {refused} refused, {happened} open ones had"
        " happened; 0 lost, 0 ghosts, 0 halves, sequences dense, replayed state equal"
    )


def kill_in_lanes(path: Path, kills: int, lanes: int, seed: int) -> str:
    def lane(number: int) -> tuple[Promises, int]:
        return kill_often(path / f"store{number}", kills // lanes, seed + number)

    found = workload.side_by_side(lane, range(lanes), lanes)
    assert all(len(promises.acknowledged) > kills // lanes for promises, _ in found)
    return told(found, kills)


def test_kills_lose_nothing(tmp_path: Path, figure: Figure) -> None:
    figure("R2 kills", kill_in_lanes(tmp_path, KILLS, LANES, seed=100))


@pytest.mark.hard
@pytest.mark.timeout(900)
def test_many_kills_lose_nothing(tmp_path: Path, figure: Figure) -> None:
    figure("R2 many kills", kill_in_lanes(tmp_path, KILLS_HARD, LANES_HARD, seed=200))


@pytest.mark.hard
def test_a_killed_load_tells_what_is_written(tmp_path: Path, figure: Figure) -> None:
    """Each batch is there as a whole or not at all: whatever was acknowledged, and no other but
    those of an unknown outcome."""
    rng, told = random.Random(5), []
    for number in range(LOADS_KILLED):
        node = NodeProcess(tmp_path / f"store{number}").start()
        workload.setup(node)
        deadly = rng.randrange(1, 20) * LOADED_TOGETHER
        rows = map(loaded_row, range(1_000_000))
        try:
            with line(node) as client:
                db = client.database(**workload.PLACE)
                db.query(
                    "DEFINE FIELD at ON one TYPE datetime; DEFINE FIELD amount ON one TYPE decimal;"
                    " DEFINE INDEX by_of ON one FIELDS of"
                )
                with pytest.raises(LoadFailed) as caught:
                    db.load("one", rows, batch=LOADED_TOGETHER, progress=killing(node, deadly))
        finally:
            node.end()
        node = NodeProcess(tmp_path / f"store{number}").start()
        try:
            with line(node) as client:
                db = client.database(**workload.PLACE)
                held = set()
                for row in db.rows("SELECT * FROM one", page=10_000):
                    held.add(row["id"].id)
                    whole = loaded_row(row["id"].id)
                    assert row == {**whole, "id": row["id"]}, "half a row"
                indexed = db.query("SELECT count() FROM one WHERE of IN $all GROUP ALL", {
                    "all": [RecordId("two", n) for n in range(9)]
                })  # fmt: skip
        finally:
            node.kill()
            node.end()
        assert indexed == [{"count": len(held)}]
        written = {row for rows in caught.value.written for row in rows}
        assert written <= held and len(written) >= deadly
        for unknown in caught.value.unknown:
            for start in range(unknown.start, unknown.stop, LOADED_TOGETHER):
                batch = set(range(start, start + LOADED_TOGETHER))
                assert batch <= held or batch.isdisjoint(held), "half a batch"
                written |= batch & held
        assert held == written
        told.append(len(held))
    figure("R2 loads killed", f"{told} rows kept, no half batch")


@pytest.mark.hard
def test_answers_before_the_log_are_caught(tmp_path: Path) -> None:
    with pytest.raises(Broken, match=r"lost|half"):
        for seed in range(1, 6):  # where a kill falls is chance: on a busy machine a dozen may miss
            kill_often(tmp_path / f"store{seed}", 12, seed, faults="answers-before-the-log")


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_ready_again_after_many_frames(tmp_path: Path, figure: Figure) -> None:
    """Killed with all of the log still to be replayed: the state is thrown away too."""
    directory = tmp_path / "store"
    node = NodeProcess(directory).start()
    try:
        workload.setup(node)
        script = "CREATE one SET mark = 'x', text = 'twenty bytes of text';" * STATEMENTS
        for _ in range(REPLAYED_FRAMES // STATEMENTS):  # each statement is a commit of its own
            answer = node.script(script, **workload.PLACE)
            assert "error" not in answer, answer
    finally:
        node.kill()
    assert len(workload.log_bodies(directory)[1]) >= REPLAYED_FRAMES
    times = {}
    for case in ("state as the kill left it", "state thrown away"):
        if case == "state thrown away":
            shutil.rmtree(directory / "state")
        began = time.monotonic()
        node = NodeProcess(directory).start()
        times[case] = time.monotonic() - began
        try:
            answer = node.script("SELECT count() FROM one GROUP ALL", **workload.PLACE)
            assert str(REPLAYED_FRAMES) in str(answer["results"][0]["value"])
        finally:
            node.kill()
    for case, seconds in times.items():
        figure(f"R2 ready again at {REPLAYED_FRAMES} frames, {case}", f"{seconds:.1f} s")
