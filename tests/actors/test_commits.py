"""From a commit to its answer: nothing is shown before it is on the disk."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from actors.checkpoints import CheckpointNow
from actors.commits.committer import NODE, Author, NamedAuthor
from actors.execution.blocking import CallbackWait
from actors.execution.late_answers import end_waits
from actors.log import SPARE_BYTES, SPARE_FILES, WriteMark
from actors.runtime import ask, stop, tell
from protocol import limits
from protocol.errors import (
    Busy,
    Conflict,
    DiskFull,
    Failed,
    NotWritable,
    StatementTimeout,
    UnknownOutcome,
)
from storage.engine.engine import Batch
from storage.engine.memory import MemoryEngine
from storage.faults import LogFailed
from storage.formats.effects import Attribution, decode
from storage.log.state import LogSizes
from storage.txn.tickets import CommitTicket
from storage.txn.write_set import PendingWrites, WriteSet
from tests.actors.nodes import ANA
from tests.actors.parts import (
    KEEP,
    KINDS,
    SOMEBODY,
    Parts,
    checkpoints,
    key,
    on_both,
    on_stepped,
    outcome,
    parts,
    play,
    until,
    with_parts,
)
from tests.logbook import Logbook
from tests.simulation.disk import NO_LIMIT, Fault, SimulatedDisk

both = pytest.mark.parametrize("kind", KINDS)


def in_log(path: str) -> bool:
    return path.endswith(".storelog")


class HeldSync:
    """Holds every sync of the log back until it is let go; only with real threads."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.asked = threading.Event()
        self.let = threading.Event()
        self.syncs = 0
        disk.watch = self.watch

    def watch(self, operation: str, path: str) -> None:
        if operation == "sync" and in_log(path):
            self.syncs += 1
            self.asked.set()
            self.let.wait()


@with_parts
async def test_a_commit_is_seen_at_once_and_answered_when_durable(node: Parts, /) -> None:
    sequence = node.put("a", b"1")
    assert sequence == 1
    assert node.get("a") == b"1"
    assert node.committer.commit_index == 0
    assert not node.committer.is_released(CommitTicket(sequence, node.committer.generation))
    await node.durable(sequence)
    assert node.committer.commit_index == 1
    assert node.engine.get(key("a")) == b"1"
    assert node.log_frames() == [1]
    await node.durable(0)  # nothing to wait for


async def test_no_answer_before_the_sync_has_returned() -> None:
    async with parts("real") as node:
        held = HeldSync(node.disk)
        waiting = [asyncio.ensure_future(node.durable(node.put("a", b"1")))]
        await until(held.asked.is_set)
        # A read that saw what is in flight waits with it.
        reading = node.committer.begin_transaction()
        assert reading.get(key("a")) == b"1"
        saw = node.committer.commit(reading, SOMEBODY).sequence
        assert saw == 1
        waiting.append(asyncio.ensure_future(node.durable(saw)))
        for _ in range(50):
            await asyncio.sleep(0.001)
            assert not any(waiter.done() for waiter in waiting)
            assert node.engine.get(key("a")) is None, "the state must not lead the log"
        # One that saw nothing in flight need not wait, though the log is held up.
        other = node.committer.begin_transaction()
        assert other.get(key("b")) is None
        assert node.committer.commit(other, SOMEBODY).sequence == 0
        held.let.set()
        await asyncio.gather(*waiting)


async def test_what_waits_while_the_log_syncs_goes_with_the_next_sync() -> None:
    async with parts("real") as node:
        held = HeldSync(node.disk)
        first = asyncio.ensure_future(node.durable(node.put("first", b"")))
        await until(held.asked.is_set)
        rest = [node.put(f"k{number}", b"") for number in range(100)]
        waiting = [asyncio.ensure_future(node.durable(sequence)) for sequence in rest]
        assert held.syncs == 1
        held.let.set()
        await asyncio.gather(first, *waiting)
        assert held.syncs == 2, "a hundred commits, one sync"
        assert node.log_frames() == list(range(1, 102))


async def test_answers_of_one_batch_are_told_in_one_turn_and_none_before_its_sync(
    logbook: Logbook,
) -> None:
    logbook.allow("handler failed")
    disk = SimulatedDisk()
    async with parts("real", disk) as node:
        committer = node.committer
        held = HeldSync(disk)
        turn, told = 0, list[tuple[int, int, BaseException | None]]()

        def hears(number: int) -> Any:
            return lambda lost: told.append((number, turn, lost))

        def wrong(_lost: BaseException | None) -> None:
            raise ZeroDivisionError("planted")

        first = node.put("a", b"1")
        committer.when_released(CommitTicket(first, committer.generation), hears(0))
        while not held.asked.is_set():
            await asyncio.sleep(0)
        for number in range(1, 4):
            sequence = node.put(f"b{number}", b"1")
            committer.when_released(CommitTicket(sequence, committer.generation), hears(number))
            committer.when_released(CommitTicket(sequence, committer.generation), wrong)
        assert told == []
        held.let.set()
        while len(told) < 4:
            await asyncio.sleep(0)
            turn += 1
        assert [number for number, _, _ in told] == [0, 1, 2, 3]
        assert len({turn for number, turn, _ in told if number}) == 1
        assert all(lost is None for _, _, lost in told)
        await until(lambda: len(node.failures.noticed) == 3)
        assert all(type(error) is ZeroDivisionError for error in node.failures.noticed)
        assert not node.failures.failed
        committer.when_released(CommitTicket(sequence, committer.generation), hears(9))
        assert told[-1][0] == 9, "known already: told at once"


@with_parts
async def test_a_failed_sync_is_final(node: Parts, /, logbook: Logbook) -> None:
    logbook.allow("actor failed")
    await node.durable(node.put("a", b"1"))
    syncs: list[str] = []

    def fail(operation: str, path: str) -> Fault | None:
        if operation == "sync" and in_log(path):
            syncs.append(path)
            return Fault(errno.EIO)
        return None

    node.disk.plan = fail
    waiting = asyncio.ensure_future(node.durable(node.put("b", b"2")))
    await until(lambda: bool(node.failures.failed))
    _, error = node.failures.failed[0]
    assert isinstance(error, LogFailed)
    assert not waiting.done(), "the node decides what its callers hear"
    node.committer.lose(error)
    assert isinstance(await outcome(waiting), UnknownOutcome)
    with pytest.raises(Failed):
        node.put("c", b"3")
    assert isinstance(await outcome(node.durable(2)), UnknownOutcome)
    assert node.engine.get(key("b")) is None
    node.disk.plan = None
    await stop(node.log_ref)
    assert len(syncs) == 1, "the descriptor must not be synced again"


def full(disk: SimulatedDisk) -> None:
    disk.plan = lambda kind, path: (
        Fault(errno.ENOSPC) if kind == "append" and in_log(path) else None
    )


@with_parts
async def test_a_full_disk_refuses_writes_keeps_reads_and_resumes(node: Parts, /) -> None:
    await node.durable(node.put("a", b"1"))
    full(node.disk)
    refused = [node.put("a", b"2"), node.put("b", b"2")]
    assert refused == [2, 3]
    generation = node.committer.generation
    outcomes = await asyncio.gather(
        *(outcome(node.committer.released(CommitTicket(one, generation))) for one in refused)
    )
    assert [type(one) for one in outcomes] == [DiskFull, DiskFull]
    assert node.get("a") == b"1"
    assert node.get("b") is None
    assert isinstance(await outcome(node.durable(node.put("c", b"3"))), DiskFull)
    node.disk.plan = None
    sequence = node.put("d", b"4")
    assert sequence == 2, "the sequence that was taken back is given again"
    await node.durable(sequence)
    assert node.log_frames() == [1, 2]
    # Whoever still waits for the commit that lost its number is not told of the other's.
    late = await outcome(node.committer.released(CommitTicket(2, generation)))
    assert isinstance(late, DiskFull)
    assert not node.committer.is_released(CommitTicket(2, generation))
    assert await outcome(node.committer.released(CommitTicket(1, generation))) is None


async def test_commits_on_top_of_refused_ones_are_refused_with_them() -> None:
    async with parts("real") as node:
        await node.durable(node.put("a", b"1"))
        asked, let = threading.Event(), threading.Event()

        def hold_and_refuse(operation: str, path: str) -> Fault | None:
            if operation == "append" and in_log(path):
                asked.set()
                let.wait()
                return Fault(errno.ENOSPC)
            return None

        node.disk.plan = hold_and_refuse
        generation = node.committer.generation
        waiting = [node.committer.released(CommitTicket(node.put("a", b"2"), generation))]
        await until(asked.is_set)
        # The log is at the first; these wait in its mailbox and were made on top of it.
        waiting += [
            node.committer.released(CommitTicket(node.put("b", b"3"), generation)) for _ in range(5)
        ]
        node.disk.plan = lambda operation, path: hold_and_refuse(operation, path)
        let.set()
        found = await asyncio.gather(*map(outcome, waiting))
        assert {type(one) for one in found} == {DiskFull}
        node.disk.plan = None
        await node.durable(node.put("c", b"4"))
        assert node.get("a") == b"1"
        assert node.get("b") is None
        assert node.log_frames() == [1, 2]


def test_an_ended_wait_may_end_others() -> None:
    async def main() -> None:
        async with parts("real") as node:
            committer, told = node.committer, list[tuple[int, BaseException | None]]()
            committer.releasable = lambda _synced: 0
            why = StatementTimeout("no follower is there")

            def ends_all(number: int) -> Any:
                def on_result(lost: BaseException | None) -> None:
                    told.append((number, lost))
                    end_waits(committer, committer.committed, committer.monotonic_us(), why)

                return on_result

            sequences = [node.put("a", b""), node.put("b", b"")]
            for number in range(6):
                sequence = sequences[number // 3]
                hears = CallbackWait(ends_all(number), committer.monotonic_us())
                committer.block(hears, committer.ticket(sequence))
            end_waits(committer, committer.committed, committer.monotonic_us(), why)
            assert sorted(number for number, _ in told) == list(range(6))
            assert all(isinstance(lost, UnknownOutcome) for _, lost in told)

    play("real", main)


@with_parts
async def test_a_paused_transaction_that_read_what_was_taken_back_loses(node: Parts, /) -> None:
    full(node.disk)
    generation = node.committer.generation
    lost = node.put("a", b"1")
    reading, writing = (
        node.committer.begin_transaction(),
        node.committer.begin_transaction(),
    )
    for tx in (reading, writing):
        assert tx.get(key("a")) == b"1"
        tx.pause()
    assert isinstance(await outcome(node.durable(lost)), DiskFull)
    node.disk.plan = None
    writing.put(key("b"), b"1")
    with pytest.raises(Conflict):
        node.committer.commit(writing, SOMEBODY)
    assert node.committer.conflicts == 1
    # The one that only read learns it when it waits for what it saw.
    saw = node.committer.commit(reading, SOMEBODY).sequence
    late = await outcome(node.committer.released(CommitTicket(max(saw, reading.saw), generation)))
    assert isinstance(late, DiskFull)
    await node.durable(node.put("c", b"1"))


@with_parts
async def test_an_idle_log_gets_a_mark(node: Parts, /, kind: str) -> None:
    await node.durable(node.put("a", b"1"))
    before = node.disk.operations
    if kind == "stepped":
        await asyncio.sleep(3)
        assert node.disk.operations > before
        quiet = node.disk.operations
        await asyncio.sleep(10)
        assert node.disk.operations == quiet, "one mark is enough"
    else:
        await until(lambda: node.disk.operations > before)


@both
def test_a_stopped_log_was_closed_and_comes_back_whole(kind: str) -> None:
    disk = SimulatedDisk()

    async def first() -> None:
        async with parts(kind, disk) as node:
            node.put("a", b"1")
            await node.durable(node.put("b", b"2"))

    async def second() -> None:
        async with parts(kind, disk) as node:
            assert node.log.recovery.clean
            assert (node.get("a"), node.get("b")) == (b"1", b"2")
            assert node.put("c", b"3") == 3
            await node.durable(3)

    play(kind, first)
    play(kind, second)


@on_both
async def test_a_checkpoint_flushes_the_state(kind: str) -> None:
    async with parts(kind) as node, checkpoints(node) as ref:
        await node.durable(node.put("a", b"1"))
        assert node.engine.flushed_sequence() == 0
        assert await ask(ref, CheckpointNow()) == 1
        assert node.engine.flushed_sequence() == 1
        assert node.committer.unflushed_bytes == 0


@on_stepped
async def test_checkpoints_come_by_themselves_when_there_is_news() -> None:
    async with parts("stepped") as node, checkpoints(node):
        await node.durable(node.put("a", b"1"))
        await asyncio.sleep(limits.CHECKPOINT_SECONDS / 2)
        assert node.engine.flushed_sequence() == 0
        await asyncio.sleep(limits.CHECKPOINT_SECONDS)
        assert node.engine.flushed_sequence() == 1


@on_stepped
async def test_many_bytes_bring_a_checkpoint_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_BYTES", 1000)
    async with parts("stepped") as node, checkpoints(node):
        await node.durable(node.put("a", b"x" * 2000))
        await asyncio.sleep(2)
        assert node.engine.flushed_sequence() == 1


@pytest.mark.parametrize("prune", [True, False])
@on_stepped
async def test_old_log_goes_only_below_what_is_flushed_and_kept(
    prune: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_FRAMES_KEPT", 10)
    async with parts("stepped") as node, checkpoints(node, keep=KEEP if prune else None) as ref:
        node.log.state.sizes = LogSizes(segment_frames=4)
        await fill(node, 30)
        flush = node.engine.flush
        monkeypatch.setattr(node.engine, "flush", lambda _: None)
        assert await ask(ref, CheckpointNow()) == 1, "nothing is flushed"
        monkeypatch.setattr(node.engine, "flush", flush)
        begins = await ask(ref, CheckpointNow())
        assert begins == (21 if prune else 1) or 17 <= begins <= 21
        assert node.log_frames() == list(range(begins, 31))


def leave(node: Parts, room: int) -> None:
    """Give the disk so much room beyond what it holds."""
    node.disk.capacity = used_bytes(node) + room


@on_both
async def test_what_the_state_could_not_flush_is_refused(kind: str) -> None:
    """RocksDB takes nothing more once a flush has met a full disk: so it never must."""
    async with parts(kind) as node, checkpoints(node) as ref:
        await node.durable(node.put("a", b"x" * 400_000))
        unflushed = node.engine.unflushed_bytes()
        assert unflushed > 400_000
        leave(node, unflushed + SPARE_BYTES)  # the frame itself would fit many times
        assert isinstance(await outcome(node.durable(node.put("b", b"y" * 2000))), DiskFull)
        assert node.get("a") == b"x" * 400_000
        leave(node, unflushed)
        assert isinstance(await outcome(ask(ref, CheckpointNow())), DiskFull)
        assert node.engine.flushed_sequence() == 0, "not even begun"
        assert node.committer.unflushed_bytes > 400_000, "it stays due"
        node.disk.capacity = NO_LIMIT
        await ask(ref, CheckpointNow())
        assert node.engine.flushed_sequence() == 1
        leave(node, SPARE_BYTES + 20_000)
        await node.durable(node.put("b", b"y" * 2000))


@on_both
async def test_a_state_whose_files_could_not_be_made_is_refused(kind: str) -> None:
    """As for bytes: no more inodes would end the engine for good."""
    async with parts(kind) as node, checkpoints(node) as ref:
        await node.durable(node.put("a", b"1"))
        node.disk.files = len(node.disk.image()) + SPARE_FILES - 1
        assert isinstance(await outcome(node.durable(node.put("b", b"2"))), DiskFull)
        assert isinstance(await outcome(ask(ref, CheckpointNow())), DiskFull)
        assert node.engine.flushed_sequence() == 0, "not even begun"
        node.disk.files = NO_LIMIT
        await node.durable(node.put("b", b"2"))
        await ask(ref, CheckpointNow())
        assert node.engine.flushed_sequence() == 2
        assert not node.failures.failed


@on_both
async def test_a_quota_leaves_room_to_flush(kind: str) -> None:
    """The file system shows none of it. Writes are refused while the state can still be flushed."""
    async with parts(kind) as node, checkpoints(node) as ref:
        node.disk.quota = used_bytes(node) + 8 * limits.MIB
        taken = 0
        while await outcome(node.durable(node.put("a", b"x" * 100_000))) is None:
            taken += 1
        assert 20 < taken < 80
        left = node.disk.quota - used_bytes(node)
        assert left >= node.engine.unflushed_bytes()
        node.disk.quota -= left - 1_000
        assert isinstance(await outcome(ask(ref, CheckpointNow())), DiskFull)
        assert node.engine.flushed_sequence() == 0, "not even begun"
        node.disk.quota = NO_LIMIT
        await node.durable(node.put("a", b"y"))
        await ask(ref, CheckpointNow())  # shares one that had begun before
        await ask(ref, CheckpointNow())
        assert node.engine.flushed_sequence() == taken + 1


@with_parts
async def test_what_a_full_disk_does_not_let_go_of_is_unknown(node: Parts, /, kind: str) -> None:
    """On Btrfs a quota refuses the cut too, and here others have what the reserve gave up."""

    def plan(kind: str, path: str) -> Fault | None:
        refused = kind in ("append", "truncate") and path.endswith(".storelog")
        return Fault(errno.EDQUOT, after_bytes=10_000) if refused else None

    await node.durable(node.put("a", b"1"))
    node.disk.plan = plan
    heard = await outcome(node.durable(node.put("a", b"2")))
    assert isinstance(heard, UnknownOutcome)
    assert heard.detail == {"sequence": 2}
    assert node.get("a") == b"1"
    assert isinstance(await outcome(node.durable(node.put("a", b"3"))), DiskFull)
    node.disk.plan = None
    await node.durable(node.put("a", b"4"))
    assert node.get("a") == b"4"
    assert node.log_frames() == [1, 2]
    assert not node.failures.failed


def remove(node: Parts, name: str) -> int:
    """Commit the removal of one key; answers its sequence."""
    tx = node.committer.begin_transaction()
    tx.delete(key(name))
    return node.committer.commit(tx, SOMEBODY).sequence


@with_parts
async def test_what_takes_away_has_the_reserve_of_a_full_disk(node: Parts, /) -> None:
    for number in range(40):
        await node.durable(node.put(f"k{number}", b"1"))
    leave(node, 0)
    first = [remove(node, "k0"), node.put("more", b"1"), remove(node, "k1")]
    promised = [asyncio.ensure_future(node.durable(sequence)) for sequence in first]
    await asyncio.sleep(0)
    found = [await outcome(promise) for promise in promised]
    assert [type(one) for one in found] == [type(None), DiskFull, DiskFull]
    assert (node.get("k0"), node.get("more"), node.get("k1")) == (None, None, b"1")
    for number in range(1, 40):  # beside others that don't give up
        with pytest.raises(DiskFull):
            node.put("more", b"1")
        removal = remove(node, f"k{number}")
        with pytest.raises(DiskFull):
            node.put("more", b"1")
        await node.durable(removal)
    assert node.log_frames() == list(range(1, 81))
    node.disk.capacity = NO_LIMIT
    await node.durable(node.put("more", b"1"))
    assert not node.committer.disk_full
    assert not node.failures.failed


@with_parts
async def test_the_reserve_has_an_end_and_is_filled_again(node: Parts, /) -> None:
    await node.durable(node.put("k", b"x" * 2000))
    leave(node, 0)
    removed = 0
    while await outcome(node.durable(remove(node, "n" * 5000))) is None:
        removed += 1
    assert removed > 20, "what the state has to flush wants room too"
    node.disk.capacity = NO_LIMIT
    await node.durable(node.put("k", b"y"))
    assert node.log.tail.reserve.held
    assert not node.failures.failed


def used_bytes(node: Parts) -> int:
    return sum(len(content) for content in node.disk.image().values() if content)


def test_a_checkpoint_waits_for_room(logbook: Logbook) -> None:
    logbook.allow("the checkpoint waits for disk space")

    async def main() -> None:
        async with parts("stepped") as node, checkpoints(node):
            await node.durable(node.put("a", b"1"))
            await asyncio.sleep(3)  # the mark of the idle log is written
            leave(node, 10)
            await asyncio.sleep(2 * limits.CHECKPOINT_SECONDS)
            assert node.engine.flushed_sequence() == 0
            node.disk.capacity = NO_LIMIT
            await asyncio.sleep(2)
            assert node.engine.flushed_sequence() == 1

    play("stepped", main)
    assert logbook.names().count("the checkpoint waits for disk space") == 1


@on_both
async def test_no_room_for_a_mark_or_a_prune_fails_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_FRAMES_KEPT", 10)
    async with parts(kind) as node, checkpoints(node) as ref:
        node.log.state.sizes = LogSizes(segment_frames=4)
        await fill(node, 30)
        node.disk.plan = lambda kind, _: Fault(errno.ENOSPC) if kind == "append" else None
        tell(node.log_ref, WriteMark(node.committer.commit_index))
        assert isinstance(await outcome(ask(ref, CheckpointNow())), DiskFull)
        assert node.log_frames() == list(range(1, 31))
        node.disk.plan = None
        assert await ask(ref, CheckpointNow()) > 1
        await node.durable(node.put("a", b"1"))
        assert not node.failures.failed


async def fill(node: Parts, count: int) -> None:
    for number in range(count):
        await node.durable(node.put(f"k{number}", b""))


@with_parts
async def test_the_door_judges_by_itself_whether_the_node_takes_changes(node: Parts, /) -> None:

    def refuse() -> None:
        raise NotWritable("planted")

    await node.durable(node.put("a", b"1"))
    node.committer._check_declared = refuse
    with pytest.raises(NotWritable):
        node.put("a", b"2")
    with node.committer.begin_transaction() as reading:
        assert reading.get(key("a")) == b"1"
        assert node.committer.commit(reading, SOMEBODY).sequence == 0
    assert node.committer.committed == 1


@with_parts
async def test_a_commit_says_who_how_what_and_why(node: Parts, /) -> None:
    changes: tuple[tuple[Author, str | None, str | None], ...] = (
        (ANA, "CREATE x", "because"), (NODE, None, "due"),
        (NamedAuthor("bob", "http"), "SET", None),
    )  # fmt: skip
    for who, statement, reason in changes:
        with node.committer.begin_transaction() as tx:
            tx.put(key("a"), b"1")
            await node.committer.released(node.committer.commit(tx, who, statement, reason))
    assert [decode(frame.body).attribution for frame in node.log.reader.read(1)] == [
        Attribution("ana", "wire", "CREATE x", "because"),
        Attribution("node", "node", None, "due"),
        Attribution("bob", "http", "SET", None),
    ]


@with_parts
async def test_a_bug_before_the_sequence_costs_one_answer(
    node: Parts, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = node.committer.begin_transaction()
    tx.put(key("a"), b"1")
    with pytest.raises(TypeError):
        node.committer.commit(tx, SOMEBODY, object())  # type: ignore[arg-type]
    await node.durable(node.put("b", b"1"))
    assert node.get("a") is None


@pytest.mark.parametrize("error", [MemoryError, Busy])
@with_parts.stepped
async def test_what_the_log_was_given_and_the_ledger_does_not_hold_ends_both(
    node: Parts, /, error: Callable[[str], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next commit would have the same sequence."""

    def add(_self: PendingWrites, _layer: WriteSet) -> None:
        raise error("planted")

    with monkeypatch.context() as patch, pytest.raises((MemoryError, Busy)):
        patch.setattr(PendingWrites, "add", add)
        node.put("a", b"1")
    with pytest.raises(Failed):
        node.put("b", b"2")
    assert node.committer.committed == node.committer.commit_index


class Stalling(MemoryEngine):
    """Takes nothing for a while, as RocksDB does on a slow disk. To write to it then would hold the
    loop."""

    stalled = False

    def takes_writes(self) -> bool:
        return not self.stalled

    def write(self, batch: Batch, applied: int) -> None:
        assert not self.stalled, "the loop would stand still here"
        super().write(batch, applied)


@on_both
async def test_a_state_that_takes_nothing_holds_up_no_answer(kind: str) -> None:
    engine = Stalling()
    async with parts(kind, engine=engine) as node:
        await node.durable(node.put("a", b"1"))
        engine.stalled = True
        for number in range(50):
            await node.durable(node.put("a", f"{number}".encode()))
            assert node.get("a") == f"{number}".encode()
        assert (engine.applied, node.committer.commit_index) == (1, 51)
        assert node.committer.unapplied_bytes > 0
        engine.stalled = False
        await until(lambda: engine.applied == 51)
        assert node.committer.unapplied_bytes == 0
        await node.durable(node.put("b", b"1"))
        assert engine.applied == 52
        engine.stalled = True
        await node.durable(node.put("b", b"2"))
        engine.stalled = False  # and it stops


@on_both
async def test_what_the_state_has_not_taken_is_bounded(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IN_FLIGHT_BYTES", 100_000)
    engine = Stalling()
    async with parts(kind, engine=engine) as node:
        engine.stalled = True
        taken = 0
        with pytest.raises(Busy, match="disk is slow"):
            while True:
                await node.durable(node.put(f"k{taken}", b"x" * 1_000))
                taken += 1
        assert 70 < taken < 90, "some 1250 bytes each"
        assert node.get(f"k{taken - 1}") is not None
        with node.committer.begin_transaction() as reading:
            assert node.committer.commit(reading, SOMEBODY).sequence == 0
        engine.stalled = False
        await until(lambda: engine.applied == taken)
        await node.durable(node.put("more", b""))
        assert node.ledger.state.flight.bytes == 0


@pytest.mark.parametrize("flushed", range(3, 12))
@on_stepped
async def test_a_checkpoint_prunes_no_frame_beyond_the_flush(
    flushed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments begin at 1, 5, 9 and so on; a start on what is left loses nothing."""
    monkeypatch.setattr(limits, "LOG_FRAMES_KEPT", 1)
    async with parts("stepped") as node, checkpoints(node) as ref:
        node.log.state.sizes = LogSizes(segment_frames=4)
        await fill(node, flushed)
        node.engine.flush()
        await fill(node, 20)
        monkeypatch.setattr(node.engine, "flush", lambda _: None)
        begins = await ask(ref, CheckpointNow())
        assert begins == 1 + flushed // 4 * 4
        node.engine.crash()
        assert begins <= node.engine.applied + 1, "a frame that only the log held is gone"


@on_stepped
async def test_the_state_is_flushed_when_a_segment_was_begun() -> None:
    """Long before it would be by time or size."""
    async with parts("stepped") as node, checkpoints(node):
        node.log.state.sizes = LogSizes(segment_frames=4)
        await fill(node, 4)
        await asyncio.sleep(3)
        assert node.engine.flushed_sequence() == 0
        await fill(node, 1)
        await asyncio.sleep(3)
        assert (node.log.state.newest, node.engine.flushed_sequence()) == (5, 5)
        await fill(node, 2)
        await asyncio.sleep(3)
        assert node.engine.flushed_sequence() == 5, "once for each"


@both
def test_old_log_gives_way_on_a_full_disk(kind: str, logbook: Logbook) -> None:
    """No commit is refused while there is something that the state has flushed."""
    logbook.allow("old log was dropped")

    async def main() -> None:
        async with parts(kind, gives_way=True) as node, checkpoints(node):
            node.log.state.sizes = LogSizes(segment_frames=4, reserve_bytes=4096)
            for number in range(30):
                await node.durable(node.put(f"k{number}", b"x" * 100_000))
            node.engine.flush()
            used = sum(len(content) for content in node.disk.image().values() if content)
            held = node.engine.memory_bytes()  # which the next flush writes, all of it
            node.disk.capacity = used + held + SPARE_BYTES + 400_000
            for number in range(8):
                await node.durable(node.put(f"k{number}", b"y" * 100_000))
            assert node.figures.given_way == node.log.state.first - 1 > 20
            node.disk.capacity = NO_LIMIT
            assert not node.failures.failed

    play(kind, main)
    assert "the disk is full: old log was dropped" in logbook.names()
