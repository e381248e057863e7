"""Stores made of backups: they are what was backed up, wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.errors import BackupCorrupt, BackupCut, WrongKey
from storage.engine.engine import EngineFailed
from storage.engine.memory import MemoryEngine
from storage.faults import (
    ClockRefused,
    NotRestored,
    StoreFault,
    StoreMissing,
    StoreTooNew,
    StoreUnfinished,
)
from storage.files.directory import StoreDirectory
from storage.formats.container import BackupScope
from storage.formats.frames import Frame
from storage.formats.positions import RestoreOrigin
from storage.formats.sealing import Key
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import ManualClock
from tests.storage.backups import held
from tests.storage.backups.held import KEY, KEYS
from tests.storage.backups.stores import (
    PATH,
    SECOND_US,
    CommitHistory,
    StoreMachine,
    after_cuts,
    everything,
)

PARTS, SHOWS = 6, 2
"""The part that shows every planted fault runs with every change."""
REST = [n for n in range(PARTS) if n != SHOWS]


def restored(history: CommitHistory, sequence: int, key: Key | None = None) -> StoreMachine:
    machine = StoreMachine(clock=history.clock_at_end())
    done = machine.restore(history.snapshot(sequence, key), key)
    assert done.origin == RestoreOrigin(held.STORE, history.position_at(sequence))
    assert (done.begins, done.state.hash) == (sequence + 1, history.hash(sequence))
    return machine


def test_a_snapshot_of_any_moment_and_the_log_on_top(history: CommitHistory) -> None:
    """Whatever is half built then: it is gone on with, and comes to the same."""
    built = 0
    for sequence in range(0, history.last + 1, 2):
        machine = restored(history, sequence)
        store = machine.opened()
        assert store.hash == history.hash(sequence)
        assert store.differences() == []
        assert (store.log.state.first, store.log.state.last) == (sequence + 1, sequence)
        assert store.log.state.epoch == history.position_at(sequence).epoch + 1
        assert store.ledger.epoch_at(sequence) == history.position_at(sequence).epoch
        assert store.ledger.epoch_at(sequence + 1) == store.log.state.epoch
        built += bool(everything(store.engine) != everything(history.views[sequence]))
        store.close()
        done = machine.restore(history.log(max(sequence - 3, 1)))
        assert done.records == history.last - sequence
        store = machine.opened()
        assert store.everything() == everything(history.views[history.last])
        assert store.directory.origin == RestoreOrigin(
            held.STORE, history.position_at(history.last)
        )
        assert list(store.log.reader.read(store.log.state.first)) == history.frames[sequence:]
        store.close()
    assert built >= 2  # records that were written while an index was built, and not visited yet


@KEYS
def test_a_log_up_to_any_moment(history: CommitHistory, key: Key | None) -> None:
    data = history.log(key=key)
    for upto in range(0, history.last + 1, 4 if key is None else 9):
        machine = StoreMachine(clock=history.clock_at_end())
        done = machine.restore(data, key, upto)
        assert (done.begins, done.records, done.state.hash) == (1, upto, history.hash(upto))
        store = machine.opened()
        assert store.everything() == everything(history.views[upto])
        assert list(store.log.reader.read(1)) == history.frames[:upto]
        assert store.log.state.epoch == history.position_at(upto).epoch + 1
        assert store.ledger.epoch_at(upto) == history.position_at(upto).epoch
        store.close()


def test_logs_on_top_of_each_other(history: CommitHistory) -> None:
    machine = StoreMachine(clock=history.clock_at_end())
    machine.restore(history.log(last=10))
    machine.restore(history.log(11, 20))
    machine.restore(history.log(15, 30), upto=25)
    machine.restore(history.log(26))
    store = machine.opened()
    assert store.everything() == everything(history.views[history.last])
    assert list(store.log.reader.read(1)) == history.frames
    store.close()


# --- what is refused ------------------------------------------------------------------------------


def refused(machine: StoreMachine, *arguments: object, **named: object) -> Exception:
    """Why a restore is refused; nothing was changed."""
    before = machine.disk.image()
    with pytest.raises(Exception) as problem:
        machine.restore(*arguments, **named)  # type: ignore[arg-type]
    assert {**machine.disk.image(), f"{PATH}/LOCK": b""} == {**before, f"{PATH}/LOCK": b""}
    return problem.value


@KEYS
def test_what_is_not_whole_is_refused_before_anything_is_written(
    history: CommitHistory, key: Key | None
) -> None:
    for data in (history.snapshot(20, key), history.log(key=key)):
        for size in range(8, len(data), 2_503):
            machine = StoreMachine(clock=history.clock_at_end())
            assert isinstance(refused(machine, data[:size], key), BackupCut)
            assert not machine.disk.exists(PATH)
        for at in range(8, len(data), 2_503):
            machine = StoreMachine(clock=history.clock_at_end())
            broken = data[:at] + bytes((data[at] ^ 8,)) + data[at + 1 :]
            problem = refused(machine, broken, key)
            assert isinstance(problem, BackupCorrupt | BackupCut | WrongKey | StoreTooNew)
            assert not machine.disk.exists(PATH)


def test_a_cut_log_is_restored_up_to_its_last_whole_frame(history: CommitHistory) -> None:
    data = history.log()
    for size in range(len(data) // 3, len(data), 1_009):
        machine = StoreMachine(clock=history.clock_at_end())
        problem = refused(machine, data[:size])
        assert isinstance(problem, BackupCut)
        upto = problem.detail["sequence"]
        assert isinstance(upto, int) and f"--upto {upto}" in str(problem)
        assert isinstance(refused(machine, data[:size], upto=upto + 1), BackupCut)
        done = machine.restore(data[:size], upto=upto)
        assert done.state.hash == history.hash(upto)


@pytest.mark.parametrize("name", ["notes.txt", "log/x", "state/x", "tmp/x", "STORE"])
def test_a_directory_that_holds_anything_is_left_alone(history: CommitHistory, name: str) -> None:
    for data in (history.snapshot(5), history.log()):
        machine = StoreMachine(clock=history.clock_at_end())
        machine.disk.make_directory(PATH)
        if "/" in name:
            machine.disk.make_directory(f"{PATH}/{name.partition('/')[0]}")
        machine.disk.open(f"{PATH}/{name}", create=True).close()
        if name == "STORE":
            machine = StoreMachine(clock=history.clock_at_end())
            world = machine.world
            StoreDirectory.open(PATH, world.fs, world.clock, world.rng, create=True).close()
        assert isinstance(refused(machine, data), NotRestored)


def test_what_went_wrong_first_is_told(
    history: CommitHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that an engine whose disk is full can't be closed in order."""

    def fails(why: str) -> Callable[[object], None]:
        def fail(_engine: object) -> None:
            raise EngineFailed(why)

        return fail

    monkeypatch.setattr(MemoryEngine, "flush", fails("the disk is full"))
    monkeypatch.setattr(MemoryEngine, "close", fails("it was not closed in order"))
    for data in (history.snapshot(5), history.log()):
        machine = StoreMachine(clock=history.clock_at_end())
        with pytest.raises(EngineFailed, match="the disk is full"):
            machine.restore(data)


def test_a_log_must_join(history: CommitHistory) -> None:
    empty = StoreMachine(clock=history.clock_at_end())
    assert "begins at 5" in str(refused(empty, history.log(5)))
    machine = restored(history, 10)
    assert "are missing" in str(refused(machine, history.log(12)))
    assert "already holds" in str(refused(machine, history.log(3, 9)))
    assert "already holds" in str(refused(machine, history.log(3), upto=9))
    assert "beyond the end" in str(refused(machine, history.log(3, 20), upto=21))
    machine.restore(history.log(3, 20), upto=15)


def test_a_log_of_another_store_or_history_is_refused(history: CommitHistory) -> None:
    class Other(CommitHistory):
        def __init__(self, frames: list[Frame]) -> None:
            self.book = type("Book", (), {"frames": frames})()

    frames = list(history.frames)
    frames[9] = frames[9]._replace(body=frames[10].body)
    machine = restored(history, 10)
    for first in (1, 5, 11):
        assert "histories have diverged" in str(refused(machine, Other(frames).log(first)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "STORE", "00000000-6a5f-4c0e-9d2e-0d3f4a5b6c7d")
        other = history.log()
    assert "restored from" in str(refused(machine, other))
    machine.restore(history.log())


def test_no_log_goes_on_top_of_what_was_written_to(history: CommitHistory) -> None:
    machine = restored(history, 10)
    store = machine.opened()
    at = history.position_at(10)
    store.log.append([Frame(11, at.epoch + 1, at.time, 0, b"")])
    store.close()
    with pytest.raises(NotRestored, match="written to since"):
        machine.restore(history.log())


def test_no_log_goes_on_top_of_a_place(history: CommitHistory) -> None:
    machine = StoreMachine(clock=history.clock_at_end())
    machine.restore(history.snapshot(20, place=BackupScope("shop", "main")))
    assert "cannot be applied" in str(refused(machine, history.log()))


def test_a_clock_behind_the_backup_is_refused_unless_it_is_meant(history: CommitHistory) -> None:
    early = ManualClock(history.position_at(3).time)
    for data in (history.snapshot(20), history.log()):
        machine = StoreMachine(clock=early)
        assert isinstance(refused(machine, data), ClockRefused)
        machine.accept_clock = True
        machine.restore(data)
    machine = StoreMachine(clock=early)
    machine.restore(history.log(), upto=3)


# --- what is made of it ---------------------------------------------------------------------------


def test_a_restored_store_goes_on_and_can_be_backed_up(history: CommitHistory) -> None:
    """The next frame is of a new epoch, after a clean end, an unclean one, and a log that is
    pruned to it."""
    for data in (history.snapshot(10), history.log(last=10)):
        for clean in (True, False):
            machine = StoreMachine(clock=history.clock_at_end())
            machine.restore(data)
            store = machine.opened()
            store.log.close(clean=clean)
            store.directory.close()
            store = machine.opened()
            assert store.log.reader.known_epoch(10) in (None, history.position_at(10).epoch)
            epoch = history.position_at(10).epoch + 1
            assert store.log.state.epoch == store.ledger.epoch == epoch
            store.log.append([Frame(11, epoch, history.position_at(10).time, 0, b"next")])
            store.log.close(clean=clean)
            store.directory.close()
            store = machine.opened()
            assert (store.log.state.last, store.log.state.epoch) == (11, epoch)
            assert store.log.reader.position_at(10) == history.position_at(10)
            assert store.log.reader.position_at(11).epoch == epoch
            store.close()


def test_what_is_awaiting_is_told_and_nothing_is_done(history: CommitHistory) -> None:
    """Five years later."""
    clock = ManualClock(history.position_at(history.last).time + 5 * 366 * 86_400 * SECOND_US)
    told = {}
    for data in (history.snapshot(history.last), history.log()):
        machine = StoreMachine(clock=clock)
        done = machine.restore(data)
        assert done.state.hash == history.hash(history.last)
        told[data[:8]] = done.state.awaiting
        store = machine.opened()
        assert store.everything() == everything(history.views[history.last])
        store.close()
    assert len(set(told.values())) == 1
    found = {one.path: (one.messages, one.keys, one.hand_outs) for one in done.state.awaiting}
    assert found["shop.main.cache"] == found["shop.other.cache"] == (0, 2, 0)
    assert found["shop.main.mail"][0] == 6 and found["shop.main.mail"][2] >= 3
    at_once = StoreMachine(clock=ManualClock(history.position_at(27).time))
    assert at_once.restore(history.log(), upto=27).state.awaiting == ()


# --- crashes --------------------------------------------------------------------------------------


def blank(history: CommitHistory, key: Key | None = None) -> StoreMachine:
    disk = SimulatedDisk({"": None, "/data": None}, sector=64)
    return StoreMachine(disk, history.clock_at_end(), key=key)


def sweep(
    history: CommitHistory,
    files: list[bytes],
    per_point: int,
    key: Key | None,
    part: int = 0,
    of: int = 1,
) -> tuple[int, int]:
    """Cut the restore of the last file at its operations; whatever a cut leaves is all of it, or no
    store, and is restored again. Returns the states, and how many of these were whole."""
    *before, last = files
    states = served = 0

    def prepared() -> StoreMachine:
        machine = blank(history, key)
        for data in before:
            machine.restore(data)
        return machine

    wanted = prepared()
    wanted.restore(last)
    store = wanted.opened()
    pairs, frames = store.everything(), list(store.log.reader.read(store.log.state.first))
    store.close()

    def check(machine: StoreMachine) -> bool:
        try:
            store = machine.opened()
        except (StoreUnfinished, StoreMissing):
            return False
        except StoreFault as fault:
            raise AssertionError(f"refused as {fault!r}") from fault
        found, where = store.everything(), store.log.state.last
        on_top = where == len(frames) + store.log.state.first - 1
        assert on_top or where < history.last, "a part of a log"
        if on_top:
            assert found == pairs
            assert list(store.log.reader.read(store.log.state.first)) == frames
        store.close()
        return on_top

    for after in after_cuts(prepared, lambda m: m.restore(last), per_point, key, part, of):
        states += 1
        if check(after):
            served += 1
            continue
        after.restore(last)
        assert check(after)
    return states, served


@pytest.mark.parametrize("part", [SHOWS, *(pytest.param(n, marks=pytest.mark.hard) for n in REST)])
@pytest.mark.parametrize(
    ("form", "key"), [("snapshot", None), ("log", KEY), ("log on top", None), ("log on top", KEY)]
)
def test_a_restore_is_cut_anywhere(
    history: CommitHistory,
    key: Key | None,
    form: str,
    part: int,
    figure: Callable[[str, object], None],
) -> None:
    files = {
        "snapshot": [history.snapshot(25)],
        "log": [history.log(last=25)],
        "log on top": [history.snapshot(25), history.log()],
    }[form]
    states, served = sweep(history, files, 6 if key else 16, key, part, PARTS)
    assert 0 < served < states
    figure(
        f"R1 restore of a {form}{', sealed' if key else ''}, part {part + 1} of {PARTS}",
        f"{states} states, {served} whole; 0 half",
    )


def test_a_restore_that_says_too_early_that_it_is_done_is_caught(
    history: CommitHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, log = history.snapshot(25), history.log()
    with monkeypatch.context() as patch:  # no marker from the beginning
        fine = StoreDirectory._empty

        def unmarked(directory: StoreDirectory) -> None:
            fine(directory)
            directory.end_restore()
            patch.setattr(StoreDirectory, "end_restore", lambda directory: None)

        patch.setattr(StoreDirectory, "_empty", unmarked)
        with pytest.raises(AssertionError):
            sweep(history, [snapshot], 16, None, SHOWS, PARTS)
    with monkeypatch.context() as patch:  # none for what comes on top
        ends = StoreDirectory.end_restore
        patch.setattr(StoreDirectory, "mark_restoring", lambda directory: None)
        patch.setattr(
            StoreDirectory, "end_restore", lambda found: found.is_restoring and ends(found)
        )
        with pytest.raises(AssertionError):
            sweep(history, [snapshot, log], 16, None, SHOWS, PARTS)
    with monkeypatch.context() as patch:  # the state is not flushed
        patch.setattr(MemoryEngine, "flush", lambda engine, room=None: None)
        with pytest.raises(AssertionError):
            sweep(history, [snapshot], 16, None, SHOWS, PARTS)


# --- sealed stores --------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [None, held.OTHER_KEY, KEY], ids=["plain", "another", "same"])
def test_any_backup_restores_into_a_sealed_store(history: CommitHistory, of: Key | None) -> None:
    """A plain one, and one of another key where that is at hand; it is sealed with the store's."""
    for data in (history.snapshot(9, of), history.log(key=of)):
        machine = StoreMachine(clock=history.clock_at_end(), key=KEY)
        done = machine.restore(data, of)
        at = done.origin.at.sequence
        assert done.state.hash == history.hash(at)
        machine.restore(history.log(3, key=of), of) if at == 9 else None
        content = b"".join(content or b"" for content in machine.disk.image().values())
        assert b'"sealed"' in content and b'"store"' not in content
        opened = machine.opened()
        assert opened.engine.applied == opened.log.state.last == max(at, history.last)
        opened.close()
        for key in (None, held.OTHER_KEY):
            closed = StoreMachine(machine.disk, machine.clock, key=key)
            with pytest.raises(WrongKey):
                closed.opened()
