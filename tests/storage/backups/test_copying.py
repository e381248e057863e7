"""Copies of another node's store: they are that store, wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from protocol.errors import BackupCorrupt, BackupCut, WrongKey
from storage.backups.replica_copy import CopiedStore, check_begins, make_copy
from storage.engine.memory import MemoryEngine
from storage.faults import (
    CopyFailed,
    NotJoined,
    StoreFault,
    StoreMissing,
    StoreNotSealed,
    StoreUnfinished,
)
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState, Upstream
from storage.files.directory import COPIED, StoreDirectory, is_joining
from storage.files.joining_file import (
    CopySource,
    DownloadProgress,
    JoiningDirectory,
    Told,
    request_copy,
)
from storage.files.node_file import load_node, save_node
from storage.formats.container import BackupScope
from storage.formats.positions import EpochEnd
from storage.formats.sealing import Key
from storage.log.log import Log
from tests.simulation.disk import SimulatedDisk
from tests.storage.backups import held
from tests.storage.backups.held import KEY, KEYS, OTHER_KEY, HeldFile
from tests.storage.backups.stores import PATH, CommitHistory, StoreMachine, after_cuts
from tests.sweeps import parts

PARTS = 3
STORE = UUID(held.STORE)
LEADER = CopySource("a-node", ("n1.example:8002",), ("ab" * 32,))
OLDER: Told = (0, 3, bytes(16))
"""A reign that ended long before."""


def told(history: CommitHistory, sequence: int) -> tuple[Told, ...]:
    """The reigns up to a commit."""
    at = history.position_at(sequence)
    return (OLDER, (at.epoch, at.sequence, at.digest)) if sequence >= 3 else ()


def begun(machine: StoreMachine) -> JoiningDirectory:
    world = machine.world
    return JoiningDirectory.lock(PATH, world.fs, world.clock, world.rng, world.key)


def copy(
    machine: StoreMachine, history: CommitHistory, sequence: int, data: bytes | None = None
) -> CopiedStore:
    """Make the store of a machine a copy, from wherever it is."""
    data = history.snapshot(sequence, machine.key) if data is None else data
    joining = begun(machine)
    try:
        file = machine.disk.open(f"{joining.directory.tmp_path}/{COPIED}", create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        machine.disk.sync_directory(joining.directory.tmp_path)
        parts = DownloadProgress(b"an id", len(data), told(history, sequence), len(data))
        joining.note(STORE, (LEADER,), parts)
        return make_copy(machine.world, joining, file)
    finally:
        joining.close()


def machine_of(history: CommitHistory, key: Key | None = None) -> StoreMachine:
    return StoreMachine(clock=history.clock_at_end(), key=key)


# --- what it is -----------------------------------------------------------------------------------


@KEYS
def test_it_is_the_same_store(history: CommitHistory, key: Key | None) -> None:
    for sequence in range(3, history.last + 1, 3 if key is None else 11):
        machine = machine_of(history, key)
        done = copy(machine, history, sequence)
        assert (done.store, done.hash) == (held.STORE, history.hash(sequence))
        assert done.at == history.position_at(sequence)
        store = machine.opened()
        assert store.directory.store_id == STORE and store.directory.origin is None
        assert store.directory.created == "2026-01-01T00:00:00+00:00"
        assert store.hash == history.hash(sequence)
        assert store.differences() == []
        assert (store.log.state.first, store.log.state.last) == (sequence + 1, sequence)
        # Unlike a restored one it goes on in the epoch that it was in.
        assert store.log.state.epoch == done.at.epoch and store.log.state.released == sequence
        assert store.log.state.epoch_ends == (EpochEnd(*OLDER),)
        assert str(load_node(store.directory).node_id) == done.node
        assert cluster_file.load(store.directory) == ClusterState(
            promised=done.at.epoch, upstream=Upstream("a-node", LEADER.addresses, "ab" * 32)
        )
        store.log.append(history.frames[sequence:], released=sequence)
        store.close()
        assert not is_joining(machine.disk, PATH)
        assert machine.disk.names(f"{PATH}/tmp") == []


# --- what is refused ------------------------------------------------------------------------------


def refused(
    machine: StoreMachine, history: CommitHistory, data: bytes, sequence: int = 20
) -> Exception:
    """Why a snapshot makes no copy; what the directory held is there still."""
    with pytest.raises(Exception) as problem:
        copy(machine, history, sequence, data)
    with pytest.raises(StoreUnfinished):
        machine.opened()
    assert not machine.disk.exists(f"{PATH}/log")
    return problem.value


@KEYS
def test_what_is_not_what_was_written(history: CommitHistory, key: Key | None) -> None:
    data = history.snapshot(20, key)
    for at in range(0, len(data), 2_503):
        flipped = data[:at] + bytes((data[at] ^ 8,)) + data[at + 1 :]
        problem = refused(machine_of(history, key), history, flipped)
        assert isinstance(problem, BackupCorrupt | BackupCut | WrongKey | StoreFault)
        assert (
            isinstance(refused(machine_of(history, key), history, data[:at]), BackupCut) or not at
        )


def test_what_is_of_something_else(history: CommitHistory) -> None:
    part = history.snapshot(20, place=BackupScope("shop", "main"))
    assert "holds only shop.main" in str(refused(machine_of(history), history, part))
    assert "is a log" in str(refused(machine_of(history), history, history.log()))
    other = refused(machine_of(history), history, history.snapshot(20), 21)
    assert isinstance(other, CopyFailed) and "does not end at commit 21" in str(other)
    machine = machine_of(history)
    joining = begun(machine)
    joining.note(UUID(int=9), (LEADER,), DownloadProgress(b"x", 1, told(history, 20), 1))
    with pytest.raises(CopyFailed, match=f"of store {STORE}, not of {UUID(int=9)}"):
        make_copy(machine.world, joining, HeldFile(history.snapshot(20)))


@pytest.mark.parametrize(
    ("of", "own", "why"),
    [
        (KEY, None, WrongKey),
        (KEY, OTHER_KEY, WrongKey),
        (None, KEY, StoreNotSealed),
    ],
)
def test_every_node_of_a_store_has_its_key(
    history: CommitHistory, of: Key | None, own: Key | None, why: type[Exception]
) -> None:
    data = history.snapshot(20, of)
    with pytest.raises(why):
        check_begins(data[:72], own)
    assert isinstance(refused(machine_of(history, own), history, data), why)


@pytest.mark.parametrize("name", ["notes.txt", "log/x", "state/x", "tmp/x", "STORE", "RESTORING"])
def test_a_directory_that_holds_anything_is_left_alone(history: CommitHistory, name: str) -> None:
    machine = machine_of(history)
    machine.disk.make_directory(PATH)
    if "/" in name:
        machine.disk.make_directory(f"{PATH}/{name.partition('/')[0]}")
    machine.disk.open(f"{PATH}/{name}", create=True).close()
    before = machine.disk.image()
    with pytest.raises(NotJoined, match="with an empty directory"):
        begun(machine)
    assert machine.disk.image() == before


# --- anew -----------------------------------------------------------------------------------------


@KEYS
def test_a_node_is_copied_anew(history: CommitHistory, key: Key | None) -> None:
    """It stays the node that it was; what it has promised stays promised."""
    machine = machine_of(history, key)
    first = copy(machine, history, 8)
    store = machine.opened()
    directory = store.directory
    facts = replace(load_node(directory), roles=("serving",), endpoints=("n2.example:8001",))
    save_node(directory, facts)
    cluster_file.save(directory, ClusterState("etcd", 7, 99, coordinating=True))
    directory.write(directory.peer_file, {"certificate": "x"})
    store.log.append(history.frames[8:12])
    request_copy(directory, facts.node_id, (LEADER,))
    store.close()
    with pytest.raises(StoreUnfinished):
        machine.opened()
    assert machine.disk.names(f"{PATH}/log")  # what it held is there until there is better
    second = copy(machine, history, 30)
    assert second.node == first.node and second.hash == history.hash(30)
    store = machine.opened()
    assert (store.log.state.first, store.log.state.last) == (31, 30)
    assert load_node(store.directory) == facts
    upstream = Upstream(LEADER.node, LEADER.addresses, LEADER.pins[0])
    known = cluster_file.load(store.directory)
    assert known == ClusterState("etcd", 7, 99, coordinating=True, upstream=upstream)
    assert store.directory.read(store.directory.peer_file)["certificate"] == "x"
    store.close()


# --- crashes --------------------------------------------------------------------------------------


def blank(history: CommitHistory, key: Key | None = None) -> StoreMachine:
    disk = SimulatedDisk({"": None, "/data": None}, sector=64)
    return StoreMachine(disk, history.clock_at_end(), key=key)


def sweep(
    history: CommitHistory,
    prepared: Callable[[CommitHistory], StoreMachine],
    per_point: int,
    part: int = 0,
    of: int = 1,
) -> tuple[int, int]:
    """Cut a copy at its operations; whatever a cut leaves is all of it, or no store, and is gone on
    with. Returns the states, and how many of these were whole."""
    states = whole = 0

    def check(machine: StoreMachine) -> bool:
        try:
            store = machine.opened()
        except (StoreUnfinished, StoreMissing):
            return False
        assert store.hash == history.hash(25) and store.differences() == []
        assert (store.log.state.first, store.log.state.last) == (26, 25)
        assert store.log.state.epoch_ends == (EpochEnd(*OLDER),)
        assert cluster_file.load(store.directory) is not None
        assert store.directory.fs.exists(f"{PATH}/NODE")
        store.close()
        return True

    cuts = after_cuts(
        lambda: prepared(history), lambda m: copy(m, history, 25), per_point, 4, part, of
    )
    for after in cuts:
        states += 1
        if check(after):
            whole += 1
            continue
        copy(after, history, 25)
        assert check(after)
    return states, whole


def _follower(history: CommitHistory) -> StoreMachine:
    """A store that is to be copied anew."""
    machine = blank(history)
    copy(machine, history, 9)
    store = machine.opened()
    request_copy(store.directory, load_node(store.directory).node_id, (LEADER,))
    store.close()
    return machine


CUT: dict[str, tuple[Callable[[CommitHistory], StoreMachine], int]] = {
    "plain": (blank, 12),
    "sealed": (lambda history: blank(history, KEY), 4),
    "anew": (_follower, 8),
}


@pytest.mark.parametrize("part", parts(PARTS, always=1))
@pytest.mark.parametrize("what", CUT)
def test_a_copy_is_cut_anywhere(
    history: CommitHistory, what: str, part: int, figure: Callable[[str, object], None]
) -> None:
    states, whole = sweep(history, *CUT[what], part, PARTS)
    assert 0 < whole < states
    figure(f"R1 copy, {what}, part {part + 1} of {PARTS}", f"{states} states; 0 half")


def test_what_is_given_up_is_an_empty_directory_or_gone_on_with_by_its_key() -> None:
    emptied = kept = 0
    joining: JoiningDirectory

    def prepared() -> StoreMachine:
        nonlocal joining
        disk = SimulatedDisk({"": None, "/data": None}, sector=64)
        machine = StoreMachine(disk, key=OTHER_KEY)
        joining = begun(machine)
        joining.directory.write(joining.directory.peer_file, {"certificate": "x"})
        return machine

    for found in after_cuts(prepared, lambda _: joining.give_up(), 12, 4):
        after = replace(found, key=KEY)
        if is_joining(after.disk, PATH):
            kept += 1
            with pytest.raises(WrongKey, match="use an empty directory"):
                begun(after)
            again = begun(replace(after, key=OTHER_KEY))
            assert again.now == joining.now
        else:
            emptied += 1
            again = begun(after)
            assert again.now.node != joining.now.node
            assert not after.disk.exists(again.directory.peer_file)
        again.close()
    assert kept and emptied
    machine = prepared()
    joining.give_up()
    joining.close()
    begun(replace(machine, key=None)).close()


def test_a_planted_bug_is_caught(history: CommitHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    def swept() -> None:
        sweep(history, *CUT["anew"], of=PARTS)

    with monkeypatch.context() as patch:  # it is a store before all of it is there
        ends = StoreDirectory.end_copy
        makes_way = StoreDirectory.clear_for_copy

        def early(directory: StoreDirectory, store_id: UUID) -> None:
            makes_way(directory, store_id)
            ends(directory)
            patch.setattr(StoreDirectory, "end_copy", lambda directory: None)

        patch.setattr(StoreDirectory, "clear_for_copy", early)
        with pytest.raises((AssertionError, StoreFault)):
            swept()
    with monkeypatch.context() as patch:  # the state is not flushed
        patch.setattr(MemoryEngine, "flush", lambda engine, room=None: None)
        with pytest.raises((AssertionError, StoreFault)):
            swept()
    with monkeypatch.context() as patch:  # the log does not say what stood before it
        begins = Log.begin_after.__func__  # type: ignore[attr-defined]
        patch.setattr(
            Log,
            "begin_after",
            classmethod(lambda cls, directory, at, _: begins(cls, directory, at)),
        )
        with pytest.raises(AssertionError):
            swept()
