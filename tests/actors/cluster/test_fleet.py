"""Nodes that ship to each other over links that fail: nothing released is ever lost or changed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from actors.cluster import replica_receiver
from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_receiver import ReplicaReceiver
from actors.cluster.replica_senders import ReplicaSender
from storage.formats.frames import Frame
from tests.actors.cluster import fleet as fleets
from tests.actors.cluster.fleet import Fleet, PromiseBroken
from tests.logbook import Logbook
from tests.simulation.links import Weather
from tests.simulation.loop import run
from tests.sweeps import parts

SEEDS = range(8)
STEPS = 120
WEATHERS = ((0.0001, 0.002), (0.0001, 0.05), (0.02, 0.02))
"""Seconds that a message takes."""


async def trouble(fleet: Fleet, steps: int = STEPS) -> None:
    """Commits, and whatever can happen beside them."""
    draw = fleet.random
    await fleet.appoint(fleet.members[0])
    for _ in range(steps):
        await asyncio.sleep(draw.random() * 0.02)
        chance, name = draw.random(), draw.choice(list(fleet.nodes))
        node, leader = fleet[name], fleet[fleet.leader]
        if chance < 0.70:
            for _ in range(draw.randrange(1, 20)):
                fleet.commit(draw.choice((10, 100, 10_000)))
        elif chance < 0.76:
            node.cut()
        elif chance < 0.78:
            fleet.network.weather = Weather(draw.choice(WEATHERS), draw.choice((0, 0, 0.01)))
        elif chance < 0.84:
            other = draw.choice([each for each in fleet.nodes if each != name])
            draw.choice((fleet.network.cut, fleet.network.mend, fleet.network.mend))(name, other)
        elif chance < 0.88:
            node.log.stalled = not node.log.stalled
        elif chance < 0.92 and node is not leader:
            await node.crash()
            node.follow(fleet.leader, fleet.epoch)
        elif chance < 0.96 and name in fleet.members:
            if draw.random() < 0.7:
                await leader.crash()
            node.log.stalled = False
            await fleet.appoint(name)
        else:
            leader.reads.prune(min(each.log.noted for each in fleet.nodes.values()))
        fleet.check()


async def good_end(fleet: Fleet) -> None:
    """Whatever was wrong is mended, and all come to have everything."""
    fleet.network.weather = Weather()
    for node in fleet.nodes.values():
        node.log.stalled = False
        for other in fleet.nodes:
            fleet.network.mend(node.name, other)
    fleet.commit()
    await fleet.settled()
    logs = [node.log.disk for node in fleet.nodes.values()]
    assert all(log == logs[0] for log in logs)
    await fleet.close()


@pytest.mark.parametrize("seed", parts(len(SEEDS), always=3))
@pytest.mark.parametrize(("names", "members"), [("ab", "ab"), ("abc", "abc"), ("abc", "ab")])
def test_nothing_released_is_lost_whatever_happens(names: str, members: str, seed: int) -> None:
    async def main() -> None:
        fleet = Fleet(seed, names, members)
        await trouble(fleet)
        await good_end(fleet)

    run(main(), seed)


@pytest.mark.hard
@pytest.mark.parametrize("part", range(20))
def test_nothing_released_is_lost_in_many_worlds(part: int) -> None:
    for seed in range(1_000 + 25 * part, 1_008 + 25 * part):

        async def main(seed: int = seed) -> None:
            fleet = Fleet(seed, "abc", ("abc", "ab")[seed % 2])
            await trouble(fleet)
            await good_end(fleet)

        run(main(), seed)


def test_what_a_deposed_leader_has_left_is_cut() -> None:
    async def main() -> None:
        fleet = Fleet(1, "abc", "abc")
        await fleet.appoint("a")
        await fleet.settled(fleet.commit())
        for other in "bc":
            fleet.network.cut("a", other)
        for _ in range(5):
            fleet.commit()
        await fleet["a"].log.quiet()
        left = fleet["a"].log.disk[-5:]
        assert fleet["a"].log.commit_index == 2
        await fleet.appoint("b")
        for other in "bc":
            fleet.network.mend("a", other)
        await fleet.settled(fleet.commit())
        assert fleet["a"].log.disk == fleet["b"].log.disk
        assert not set(left) & set(fleet["a"].log.disk)
        await fleet.close()

    run(main(), 1)


def test_who_shows_what_its_leader_does_not_have_is_stranded(logbook: Logbook) -> None:
    logbook.allow("a follower is stranded")
    logbook.allow("this node stopped following the leader")

    async def main() -> None:
        fleet = Fleet(1, "ab", "a")
        await fleet.appoint("a")
        await fleet.settled(fleet.commit())
        await fleet["b"].rest()
        own = fleet["b"].log
        own.disk.append(Frame(3, fleet.epoch, 0, 0, b"from nowhere"))
        own.commit_index = own.noted = 3
        fleet["b"].follow("a", fleet.epoch)
        await _given_up(fleet)
        follows = fleet["b"].attaching
        assert follows is not None
        assert follows.sync_status is SyncStatus.STRANDED, follows.reason
        assert "shows commits up to 3" in follows.reason
        assert own.disk[-1].body == b"from nowhere", "nothing is cut"
        await asyncio.sleep(100)
        assert fleet.links == 0, "it does not come back by itself"
        await fleet.close()

    run(main(), 1)


async def _given_up(fleet: Fleet) -> None:
    while (at := fleet["b"].attaching) is None or at.reason == "":
        await asyncio.sleep(0.01)


def test_who_was_away_for_longer_than_the_log_is_kept_has_to_be_copied(logbook: Logbook) -> None:
    logbook.allow("this node stopped following the leader")

    async def main() -> None:
        fleet = Fleet(1, "ab", "a")
        await fleet.appoint("a")
        await fleet.settled(fleet.commit())
        await fleet["b"].crash()
        for _ in range(20):
            fleet.commit()
        await fleet["a"].log.quiet()
        fleet["a"].reads.prune(10)
        fleet["b"].follow("a", fleet.epoch)
        await _given_up(fleet)
        follows = fleet["b"].attaching
        assert follows is not None
        assert (follows.sync_status, follows.copy_from) == (SyncStatus.COPY_FAILED, 10)
        await fleet.close()

    run(main(), 1)


# --- planted faults -------------------------------------------------------------------------------


class AcknowledgesEarly(ReplicaReceiver):
    """Acknowledges what it has taken, and not synced."""

    def _on_frames(self, frames: list[Frame], released: int) -> None:
        super()._on_frames(frames, released)
        self._synced = frames[-1].sequence
        self._acknowledge_soon()


class ShowsAll(ReplicaReceiver):
    """Shows all that it has."""

    def _on_commit_index(self, released: int) -> None:
        super()._on_commit_index(max(released, self._synced))


class Skips(ReplicaSender):
    """Leaves a frame out now and then."""

    def _send(self, frames: list[Frame]) -> None:
        super()._send(frames[1:] if len(frames) > 3 else frames)


@pytest.fixture
def any_line(logbook: Logbook) -> Iterator[None]:
    """What is found to be broken ends tasks, and how is logged: here, not in a later test."""
    logbook.allow("")
    yield
    gc.collect()


def _in_some_world(shipping: type[ReplicaSender] = ReplicaSender) -> str:
    """What breaks first."""
    for seed in SEEDS:

        async def main(seed: int = seed) -> None:
            fleet = Fleet(seed, "abc", "abc", shipping)
            await trouble(fleet)
            await good_end(fleet)

        try:
            run(main(), seed)
        except (PromiseBroken, AssertionError) as broken:
            return str(broken)
    return ""


@pytest.mark.usefixtures("any_line")
def test_a_planted_acknowledgement_before_the_sync_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_receiver, "ReplicaReceiver", AcknowledgesEarly)
    assert "does not hold all" in _in_some_world()


@pytest.mark.usefixtures("any_line")
def test_a_planted_look_beyond_what_is_released_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_receiver, "ReplicaReceiver", ShowsAll)
    assert "which nobody has released" in _in_some_world()


@pytest.mark.usefixtures("any_line")
def test_a_planted_gap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "LONG", 500)
    assert "is not shown by all" in _in_some_world(Skips)
