"""The committer's other life: frames of another node's log, and the way back to leading."""

from __future__ import annotations

import asyncio

import pytest

from actors.cluster.replica_receiver import ReplicaReceiver
from protocol import limits
from protocol.errors import DiskFull, Diverged, NotWritable, Stranded, UnknownOutcome
from protocol.links import Attach, Attached
from storage.audit import trail
from storage.engine.memory import MemoryEngine
from storage.engine.state_hash import state_hash
from storage.formats.entries import STATEMENTS
from storage.formats.frames import NO_DIGEST, Frame
from storage.formats.positions import EpochEnd
from storage.txn import applied_position, ledger
from storage.txn.tickets import CommitTicket
from tests.actors.cluster.wires import WireEnd, wire
from tests.actors.parts import (
    SOMEBODY,
    Parts,
    key,
    on_both,
    outcome,
    parts,
    until,
    with_parts,
)
from tests.logbook import Logbook
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.environment import ManualClock

AWAY = NotWritable("another node leads", leader=["n1:8001"])


def earlier() -> ManualClock:
    """The log of who follows was begun before the frames of its leader were made."""
    clock = ManualClock()
    clock.step_wall(-1_000_000_000)
    return clock


async def received(node: Parts, frames: list[Frame], released: int) -> None:
    """Frames that a leader has sent, and what it has released, shown as far as they go."""
    await node.committer.receive(frames, released)
    node.committer.show(released)
    await until(lambda: node.committer.commit_index == min(released, node.committer.log_upto))


async def written(node: Parts, count: int, released: int | None = None) -> list[Frame]:
    """Frames of a leader: some keys, on its disk.

    :param released: up to where they are; None: all of them
    """
    if released is not None:
        node.committer.releasable = lambda _durable: max(released, node.committer.commit_index)
    for number in range(count):
        last = node.put(f"k{number}", b"%d" % number)
    await until(lambda: node.committer.synced_seq == last)
    return list(node.log.reader.read(1))


@on_both
async def test_what_is_received_is_shown_when_it_is_released(kind: str) -> None:
    async with parts(kind) as leader:
        frames = await written(leader, 5)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:
        committer = node.committer
        ear = committer.tail.follow(0, lambda: None)
        assert await committer.receive(frames, 0) == 5
        assert (committer.log_upto, committer.commit_index, committer.committed) == (5, 0, 0)
        assert node.log_frames() == [1, 2, 3, 4, 5]
        assert node.get("k0") is None and ear.take(limits.MIB) == []
        committer.show(3)
        await until(lambda: committer.commit_index == 3)
        assert node.get("k2") == b"2" and node.get("k3") is None
        assert [frame.sequence for frame in ear.take(limits.MIB)] == [1, 2, 3]
        committer.show(9)  # not all of it is here
        await until(lambda: committer.commit_index == 5)
        assert await committer.receive([], 5) == 5
        assert committer.history() == (EpochEnd(1, 5, frames[-1].digest()),)
        await until(lambda: not node.ledger.state.flight.write_sets)
        assert state_hash(node.engine) == state_hash(leader.engine)


@on_both
async def test_what_is_released_is_noted_before_it_is_shown(kind: str) -> None:
    async with parts(kind) as leader:
        frames = await written(leader, 5)
    disk = SimulatedDisk()
    async with parts(kind, disk, clock=earlier(), follows=AWAY) as node:
        await node.committer.receive(frames[:3], 3)
        await node.committer.receive(frames[3:], 5)
        assert node.committer.commit_index == 0 and node.log.state.released == 3
        with pytest.raises(Stranded):
            await node.committer.cut(4)
        node.committer.hand_over_rest()
    async with parts(kind, disk, clock=earlier(), follows=AWAY) as node:
        assert node.committer.commit_index == 5


@with_parts.using(clock=earlier(), follows=AWAY)
async def test_who_follows_commits_nothing(node: Parts, /) -> None:
    with pytest.raises(NotWritable) as refused:
        node.put("a", b"1")
    assert refused.value.detail == {"leader": ["n1:8001"]}
    with node.committer.begin_transaction() as tx:
        assert tx.get(key("a")) is None
        assert node.committer.commit(tx, SOMEBODY).sequence == 0
    await node.committer.begin_following(NotWritable("somebody else now"))
    with pytest.raises(NotWritable, match="somebody else now"):
        node.put("a", b"1")


@on_both
async def test_what_does_not_follow_is_refused_and_nothing_of_it_kept(kind: str) -> None:
    async with parts(kind) as leader:
        frames = await written(leader, 4)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:
        wrong = [
            frames[1:],
            [frames[0], frames[2]],
            [frames[0], frames[1]._replace(epoch=0)],
            [frames[0], frames[1]._replace(time=0)],
            [frames[0]._replace(flags=1)],
        ]
        for some in wrong:
            with pytest.raises(Diverged):
                node.committer.receive(some, 0)
        assert await node.committer.receive(frames, 4) == 4


@on_both
async def test_a_start_shows_what_the_state_holds_a_part_of(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large commit was going to the state, and the log did not say yet that it was released."""
    monkeypatch.setattr(ledger, "APPLY_KEYS", 3)
    disk, engine = SimulatedDisk(), MemoryEngine()
    async with parts(kind, disk, engine) as node:
        settle, parts_gone = node.ledger.apply_next, 0

        def some() -> bool:
            nonlocal parts_gone
            parts_gone += 1
            return parts_gone < 4 and settle()

        await node.durable(node.put("before", b"1"))
        node.ledger.apply_next = some  # type: ignore[method-assign]
        tx = node.committer.begin_transaction()
        for number in range(40):
            tx.put(key(f"part{number}"), b"x")
        await node.durable(node.committer.commit(tx, SOMEBODY).sequence)
        await until(lambda: parts_gone >= 4)
        engine.flush()
        image = disk.image()
        assert (engine.applied, node.log.state.released) == (1, 1)
        node.ledger.apply_next = settle  # type: ignore[method-assign]
    engine.crash()
    async with parts(kind, SimulatedDisk(image), engine, follows=AWAY) as node:
        assert (node.committer.commit_index, engine.applied) == (2, 2)
        assert all(node.get(f"part{number}") == b"x" for number in range(40))
        assert applied_position.read(engine, node.directory.store_id.bytes).begun == NO_DIGEST
        with pytest.raises(Stranded):
            await node.committer.cut(1)


@on_both
async def test_who_comes_to_lead_releases_the_rest_behind_its_own_first_frame(kind: str) -> None:
    async with parts(kind) as leader:
        frames = await written(leader, 5)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:
        committer = node.committer
        await received(node, frames, 3)
        held = 0
        committer.releasable = lambda upto: max(committer.commit_index, min(upto, held))
        ticket = await committer.begin_leading(7)
        assert ticket == CommitTicket(6, committer.generation)
        reading = committer.begin_transaction()
        assert reading.get(key("k4")) == b"4", "it is in flight"
        saw = committer.commit(reading, SOMEBODY)
        assert saw.sequence == 5 and not committer.is_released(saw)
        await until(lambda: committer.synced_seq == 6)
        assert committer.commit_index == 3
        held = 6
        committer.release_more()
        await committer.released(ticket)
        await committer.released(saw)
        assert node.log.state.epoch_ends == (EpochEnd(1, 5, frames[-1].digest()),)
        assert [one.epoch for one in committer.history()] == [1, 7]
        with committer.begin_transaction() as tx:
            [kept] = next(trail.newest(tx, STATEMENTS))
        assert (kept.user, kept.statement, kept.reason) == (
            "node", "DEFINE NODE LEADS STORE", "epoch 7",
        )  # fmt: skip
        assert node.put("a", b"1") == 7
        assert committer.ledger.epoch_at(5) == 1 and committer.ledger.epoch_at(7) == 7


@with_parts
async def test_who_is_deposed_takes_back_what_was_not_released(
    node: Parts, /, logbook: Logbook
) -> None:
    logbook.allow("unreleased frames were cut off")
    committer = node.committer
    await node.durable(node.put("a", b"1"))
    frames = await written(node, 4, released=2)
    assert (committer.commit_index, committer.synced_seq) == (2, 5)
    before = committer.ticket(5)
    waiting = committer.released(before)
    gone = committer.begin_transaction()
    gone.pause()
    await committer.begin_following(AWAY)
    assert isinstance(await outcome(waiting), UnknownOutcome)
    assert isinstance(await outcome(committer.released(before)), UnknownOutcome)
    assert committer.was_rolled_back(before)
    await committer.released(CommitTicket(2, 1))
    assert gone.reads.rolled_back
    gone.release()
    assert (committer.committed, committer.log_upto) == (2, 5)
    assert node.get("k0") == b"0" and node.get("k1") is None
    assert node.log_frames() == [1, 2, 3, 4, 5], "until it is told where to cut"
    with pytest.raises(Stranded):
        await committer.cut(1)
    await committer.cut(3)
    assert (node.log_frames(), committer.log_upto) == ([1, 2, 3], 3)
    assert committer.history() == (EpochEnd(1, 3, frames[2].digest()),)
    other = Frame(4, 9, frames[2].time, 0, frames[3].body)
    await received(node, [other], 4)
    assert node.get("k1") == b"1" and node.get("k2") == b"2" and node.get("k3") is None
    assert [one.epoch for one in committer.history()] == [1, 9]
    assert committer.was_rolled_back(before), "the fifth was another one"


@on_both
async def test_a_deposition_ends_a_promotion(kind: str) -> None:
    async with parts(kind) as leader:
        frames = await written(leader, 30)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:
        committer = node.committer
        await received(node, frames, 10)
        leads = asyncio.ensure_future(committer.begin_leading(5))
        for _ in range(3):
            await asyncio.sleep(0)
        await committer.begin_following(AWAY)
        assert isinstance(await outcome(leads), UnknownOutcome)
        assert committer.follows and committer.committed == committer.commit_index
        committer.show(30)
        await until(lambda: committer.commit_index == 30)
        assert node.log_frames() == list(range(1, 31))


@on_both
async def test_a_full_disk_refuses_what_is_received_and_it_is_sent_again(kind: str) -> None:
    async with parts(kind) as leader:
        frames = await written(leader, 5)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:
        committer = node.committer
        await received(node, frames[:2], 2)
        node.disk.plan = lambda kind, path: (
            Fault(28) if kind == "append" and path.endswith(".storelog") else None
        )
        assert isinstance(await outcome(committer.receive(frames[2:], 2)), DiskFull)
        assert committer.log_upto == 2
        node.disk.plan = None
        await received(node, frames[2:], 5)


@pytest.mark.parametrize("bound", [0, 300, 1 << 20])
@on_both
async def test_what_memory_does_not_hold_is_read_from_the_log(
    kind: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECEIVED_BYTES", bound)
    async with parts(kind) as leader:
        frames = await written(leader, 40)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:
        committer = node.committer
        for at in range(0, 40, 4):
            await committer.receive(frames[at : at + 4], at)
            committer.show(at)
        committer.show(40)
        await until(lambda: committer.commit_index == 40)
        await until(lambda: not node.ledger.state.flight.write_sets)
        assert state_hash(node.engine) == state_hash(leader.engine)


class Promised:
    """Nothing later than the first epoch."""

    promised = 1

    async def promise(self, epoch: int) -> None:
        assert epoch <= self.promised


@on_both
async def test_what_a_link_has_cut_that_ended_meanwhile_is_not_told_by_the_next(
    kind: str, logbook: Logbook
) -> None:
    """Else this node would acknowledge what it does not hold any more."""
    logbook.allow("were cut off")
    async with parts(kind) as leader:
        frames = await written(leader, 5)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:

        def attach() -> tuple[WireEnd, asyncio.Future[None]]:
            here, there = wire("b", "a")
            link = ReplicaReceiver(node.runtime, node.committer, Promised(), here, 1)
            return there, asyncio.ensure_future(link.run())

        await received(node, frames, 2)
        there, receiving = attach()
        asked = await there.receive()
        assert isinstance(asked, Attach) and asked.end == 5

        def cuts(kind: str, path: str) -> None:
            node.disk.plan = None
            node.runtime.loop.call_soon_threadsafe(receiving.cancel)

        node.disk.plan = cuts
        there.send(Attached(1, 3, 2))
        with pytest.raises(asyncio.CancelledError):
            await receiving
        there, receiving = attach()
        asked = await there.receive()
        assert isinstance(asked, Attach)
        assert asked.end == node.log.state.last == 3
        assert asked.history == [(1, 3, frames[2].digest())]
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving


@on_both
async def test_a_large_frame_comes_in_slices(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others read in between, and see nothing of it before they see all."""
    async with parts(kind) as leader:
        tx = leader.committer.begin_transaction()
        for number in range(30_000):
            tx.put(key(f"{number:05d}"), b"x" * 20)
        await leader.durable(leader.committer.commit(tx, SOMEBODY).sequence)
        [frame] = leader.log.reader.read(1)
    async with parts(kind, clock=earlier(), follows=AWAY) as node:
        monkeypatch.setattr(limits, "SLICE_US", 0)
        await node.committer.receive([frame], 1)
        node.committer.show(1)
        seen = set()
        turns = 0
        while node.committer.commit_index < 1:
            seen.add((node.get("00000"), node.get("29999")))
            turns += 1
            await asyncio.sleep(0)
        assert seen == {(None, None)} and turns > 30
        assert node.get("29999") == b"x" * 20
