"""The log is read while the node serves: from the tail, or by the thread; pinned, it stays."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import Any

import pytest

from actors.checkpoints import CheckpointNow
from actors.log_pins import Pins
from actors.log_reads import LogChecks, LogReads
from actors.runtime import ask
from protocol import limits
from protocol.errors import LogPruned
from storage.faults import LogDamaged
from storage.formats.frames import Frame
from storage.log.state import LogSizes
from tests.actors.parts import (
    KINDS,
    Parts,
    checkpoints,
    on_both,
    outcome,
    parts,
    play,
    reading,
    until,
)
from tests.actors.test_log_checks import damage
from tests.logbook import Logbook
from tests.simulation.disk import NO_LIMIT
from tests.simulation.environment import ManualClock

both = pytest.mark.parametrize("kind", KINDS)
SECOND = 1_000_000


async def fill(node: Parts, count: int, size: int = 100) -> None:
    """So many commits, in segments of four frames."""
    node.log.state.sizes = LogSizes(segment_frames=4)
    for number in range(count):
        await node.durable(node.put(f"k{number}", bytes([number % 256]) * size))


def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail keeps the newest few frames."""
    monkeypatch.setattr(limits, "TAIL_BYTES", 2_000)


async def followed(reads: LogReads, upto: int, bytes_max: int) -> list[Frame]:
    """All there is, as somebody reads it who goes on where the last read ended."""
    found: list[Frame] = []
    after = reads.begins - 1
    while after < upto:
        some = await reads.frames(after, upto, bytes_max)
        assert some, "at least one"
        assert len(some) == 1 or sum(len(frame.body) for frame in some) <= bytes_max
        found += some
        after = some[-1].sequence
    return found


@pytest.mark.parametrize("bytes_max", [0, 1, 500, 1_000_000])
@on_both
async def test_frames_come_in_order_out_of_log_and_tail(
    kind: str, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_tail(monkeypatch)
    async with parts(kind) as node, reading(node) as reads:
        await fill(node, 30)
        wanted = list(node.log.reader.read(1))
        assert 1 < node.committer.tail.first < 30
        assert await followed(reads, 30, bytes_max) == wanted
        assert await followed(reads, 17, bytes_max) == wanted[:17]
        assert await reads.frames(17, 17, bytes_max) == []
        for sequence in range(1, 31):
            assert await reads.frame(sequence) == wanted[sequence - 1]
            assert await reads.epoch_at(sequence) == wanted[sequence - 1].epoch
        assert await reads.epoch_at(0) == wanted[0].epoch
        assert await reads.epoch_at(31) is None


@on_both
async def test_what_is_not_durable_is_read_by_nobody(kind: str) -> None:
    async with parts(kind) as node, reading(node) as reads:
        await fill(node, 3)
        sequence = node.put("more", b"1")
        for asked in (reads.frames(3, sequence, 1), reads.frame(sequence)):
            with pytest.raises(AssertionError, match="taken back"):
                await asked
        assert await reads.epoch_at(sequence) is None
        await node.durable(sequence)
        assert await reads.epoch_at(sequence) == 1


@on_both
async def test_an_epoch_that_no_header_tells_is_read(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_tail(monkeypatch)
    async with parts(kind) as node, reading(node) as reads:
        await fill(node, 10)
        monkeypatch.setattr(node.log.reader, "known_epoch", lambda _: None)
        assert [await reads.epoch_at(s) for s in (0, 1, 5, 10, 11)] == [None, 1, 1, 1, None]
        node.log.prune(5)
        assert await reads.epoch_at(3) is None


@on_both
async def test_what_was_pruned_is_refused_with_where_the_log_begins(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_tail(monkeypatch)
    async with parts(kind) as node, reading(node) as reads:
        await fill(node, 30)
        node.log.prune(13)
        for asked in (reads.frames(11, 30, 1), reads.frame(12)):
            refusal = await outcome(asked)
            assert isinstance(refusal, LogPruned)
            assert refusal.detail == {"first": 13}
        assert (await reads.frame(13)).sequence == 13
        assert [await reads.epoch_at(s) for s in (11, 12, 13)] == [None, 1, 1]
        assert reads.begins == 13
        assert not node.failures.noticed, "no bug"


@both
def test_damage_is_told_noted_and_passed(
    kind: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """The frames before it come, then the damage each time, and what is behind it as well."""
    short_tail(monkeypatch)
    logbook.allow("the log is damaged")
    found = LogChecks()

    async def main() -> None:
        async with parts(kind) as node, reading(node, found) as reads:
            await fill(node, 30)
            path = damage(node, 5)
            assert [f.sequence for f in await reads.frames(0, 30, 10_000)] == [1, 2, 3, 4]
            for asked in (reads.frames(4, 30, 10_000), reads.frames(4, 5, 1), reads.frame(5)):
                told = await outcome(asked)
                assert isinstance(told, LogDamaged)
                assert (told.sequence, told.file) == (5, path)
            assert (await reads.frame(9)).sequence == 9
            assert [one.sequence for one in found.found(1)] == [5]
            assert not node.failures.noticed, "no bug"
            assert not node.failures.failed

    play(kind, main)
    assert logbook.names().count("the log is damaged") == 1


@on_both
async def test_readers_beside_commits_read_what_was_written(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rolls, prunes and appends between any two reads."""
    short_tail(monkeypatch)
    async with parts(kind) as node, reading(node) as reads:
        node.log.state.sizes = LogSizes(segment_frames=4)
        random = Random(1)
        over = False

        async def follow() -> None:
            position = 0
            while not over or position < node.committer.commit_index:
                upto = node.committer.commit_index
                for frame in await reads.frames(position, upto, random.randrange(1_000)):
                    assert frame.sequence == position + 1
                    position = frame.sequence
                await asyncio.sleep(0)

        async def jump() -> None:
            while not over:
                upto = node.committer.commit_index
                if upto:
                    sequence = random.randint(1, upto)
                    found = await outcome(reads.frame(sequence))
                    assert getattr(found, "sequence", None) == sequence
                await asyncio.sleep(0)

        readers = [asyncio.ensure_future(each()) for each in (follow, jump, jump)]
        await fill(node, 150)
        over = True
        await asyncio.gather(*readers)


# --- pins -----------------------------------------------------------------------------------


def test_what_is_pinned_stays_until_it_is_released_or_has_lapsed() -> None:
    clock = ManualClock()
    pins = Pins(clock, 1)
    early, late = pins.pin(5), pins.pin(9)
    assert pins.decide_prune(20) == 5
    assert pins.decide_prune(3) == 5, "what went does not come back"
    early.move(8)
    assert pins.decide_prune(20) == 8
    early.release()
    early.release()
    assert pins.decide_prune(20) == 9
    clock.advance(limits.LOG_PIN_SECONDS * SECOND - 1)
    late.move(10)
    assert pins.decide_prune(20) == 10, "a move does not make it last longer, nor shorter"
    clock.advance(1)
    assert (pins.decide_prune(20), pins.held) == (20, 0)
    late.move(30)
    late.release()


def test_what_is_gone_can_not_be_pinned() -> None:
    pins = Pins(ManualClock(), 5)
    with pytest.raises(LogPruned) as refusal:
        pins.pin(4)
    assert refusal.value.detail == {"first": 5}
    pins.pin(5)
    pins.gone(9)
    with pytest.raises(LogPruned):
        pins.pin(8)
    assert pins.decide_prune(7) == 9


@on_both
async def test_pruning_leaves_what_is_pinned(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_FRAMES_KEPT", 1)
    clock = ManualClock()
    async with (
        parts(kind, clock=clock) as node,
        checkpoints(node) as ref,
        reading(node) as reads,
    ):
        await fill(node, 30)
        pin = reads.pin(11)
        assert await ask(ref, CheckpointNow()) == 9
        assert (await reads.frame(11)).sequence == 11
        with pytest.raises(LogPruned):
            reads.pin(8)
        with reads.pin(9):  # in the segment of what was to stay
            assert (await reads.frame(9)).sequence == 9
        pin.move(17)
        await fill(node, 1)
        assert await ask(ref, CheckpointNow()) == 17
        clock.advance(limits.LOG_PIN_SECONDS * SECOND)
        await fill(node, 1)
        assert await ask(ref, CheckpointNow()) == 29
        with reads.pin(30):
            await fill(node, 10)
            assert await ask(ref, CheckpointNow()) == 29
        assert await ask(ref, CheckpointNow()) == 41


@on_both
async def test_a_full_disk_takes_what_is_pinned(
    kind: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("old log was dropped")
    short_tail(monkeypatch)
    async with parts(kind, gives_way=True) as node, reading(node) as reads:
        node.log.state.sizes = LogSizes(segment_frames=4, reserve_bytes=4096)
        await fill_large(node, 20)
        reads.pin(3)
        node.engine.flush()
        used = sum(len(content) for content in node.disk.image().values() if content)
        node.disk.capacity = used + node.engine.memory_bytes() + 500_000
        await fill_large(node, 6)
        assert node.figures.given_way > 0
        node.disk.capacity = NO_LIMIT
        refusal: Any = await outcome(reads.frame(3))
        assert isinstance(refusal, LogPruned)
        with pytest.raises(LogPruned):
            reads.pin(3)
        assert not node.failures.failed


async def fill_large(node: Parts, count: int) -> None:
    for number in range(count):
        await node.durable(node.put(f"k{number}", b"x" * 100_000))


async def test_checks_and_reads_are_of_one_thread() -> None:
    """The thread is asked by many, and each hears of its own."""
    async with parts("real") as node, reading(node) as reads:
        await fill(node, 30)
        before = {thread.name for thread in threading.enumerate()}
        asked = [reads.frame(sequence) for sequence in range(1, 31)]
        found = await asyncio.gather(*asked)
        assert [frame.sequence for frame in found] == list(range(1, 31))
        assert {thread.name for thread in threading.enumerate()} == before
        await until(lambda: not node.failures.noticed)
