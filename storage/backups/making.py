"""The state of a store, made of the pairs of a snapshot: what a restore and a copy have in common.

A snapshot is read twice. The first time proves it, before anything of a store is made; the second
time the state is made of it, and compared with what the snapshot says of itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NoReturn

from msgspec import MsgspecError

from protocol import binary
from protocol.doors import Clock, File, Fs, Rng
from protocol.errors import BackupCorrupt
from storage import keys, restores
from storage.backups.awaiting import Awaiting, awaiting, look_through
from storage.backups.filling import fill
from storage.backups.snapshots import SnapshotBackup
from storage.directory import StoreDirectory
from storage.effects import EffectsDamaged
from storage.engine import Engine, EngineFailed, Pair
from storage.faults import ClockRefused
from storage.frames import Frame
from storage.histories import LogEnd
from storage.ledger import Ledger
from storage.sealed_state import open_state
from storage.sealing import Key
from storage.state_hash import state_hash

UNFIT: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EffectsDamaged,
    LookupError,
    MsgspecError,
    RecursionError,
    struct.error,
    TypeError,
    ValueError,
)
"""What comes of reading as a store what no store has written."""

Tick = Callable[[str, int, int], None]
"""Told what is being done, and how much of it: `checking`, `restoring`, bytes and bytes in all."""


def untold(_what: str, _done: int, _all: int) -> None:
    """For whoever wants to hear nothing."""


@dataclass(frozen=True, slots=True)
class World:
    """What a restore needs from outside."""

    fs: Fs
    clock: Clock
    rng: Rng
    open_engine: Callable[[str], Engine]
    """Opens the state in a directory."""
    open_in_memory: Callable[[str], Engine]
    """Opens an empty state in memory, which a store that is sealed needs."""
    tick: Tick = untold
    key: Key | None = None
    """What the store is to be sealed with; None: it is not. A backup may have another."""
    accept_clock: bool = False
    """Whether a wall clock behind what is restored is meant."""
    roles: tuple[str, ...] | None = None
    """The roles that are left declared for the node; None: as they are, undeclared in a new one."""

    def open_state(self, directory: StoreDirectory) -> Engine:
        """:raises EngineFailed:"""
        return open_state(directory, self.open_engine, self.open_in_memory)

    def check_clock(self, time_us: int) -> None:
        """:param time_us: log time of the newest frame
        :raises ClockRefused: the wall clock is behind it"""
        behind_s = (time_us - self.clock.wall_us()) // 1_000_000
        if behind_s > 0 and not self.accept_clock:
            raise ClockRefused(
                f"the newest commit of the backup was made {behind_s} seconds from now, by this"
                " machine's clock: set the clock right, or restore with --accept-clock-jump if it"
                " is. Log time never goes back"
            )


@dataclass(frozen=True, slots=True)
class State:
    """What a restored state comes to."""

    hash: str
    """See `state_hash.py`."""
    awaiting: tuple[Awaiting, ...]
    """What the node does as soon as it takes writes, by the time it is now."""
    unfinished: tuple[str, ...]
    """Places that a script was filling; the node drops them then."""


@dataclass(slots=True)
class Proven:
    """What the first reading of a snapshot found."""

    stream: bytes = b""
    """Its digest: the hash of the state that is made of it."""
    reached: dict[bytes, bytes] = field(default_factory=dict)
    """See `filling.fill`."""


def proven(world: World, backup: SnapshotBackup, size: int, what: str) -> Proven:
    """Read a snapshot through.

    :param size: bytes of its file
    :param what: is told to be done meanwhile
    :raises BackupCut, BackupCorrupt: it is not whole, or not what a store writes
    """
    found = Proven()
    for pairs in backup.lists():
        for name, value in pairs:
            if keys.is_build(name):
                with of_a_store():
                    found.reached[name] = _reached(value)
        world.tick(what, backup.offset, size)
    found.stream = backup.stream
    return found


def make_state(
    world: World, directory: StoreDirectory, file: File, key: Key | None, found: Proven, what: str
) -> tuple[SnapshotBackup, State]:
    """Make the state of a snapshot that is proven; durable on return.

    :param directory: its state is empty
    :param key: what the snapshot may be sealed with
    :param what: is told to be done meanwhile
    :raises BackupCut, BackupCorrupt: the file is not what was proven
    :raises EngineFailed: the state does not take it
    """
    backup, size = SnapshotBackup(file, key), file.size()
    at, store_id = backup.facts.at, directory.store_id.bytes
    with opened(world, directory) as engine:
        ledger = ledger_on(world, engine, LogEnd(store_id=store_id))
        with of_a_store():
            fill(ledger, _told(world, backup, size, what), found.reached, store_id, at)
        state = state_of(world, engine, LogEnd(at.sequence, at.epoch, at.time, store_id))
    if state.hash != found.stream.hex() or backup.stream != found.stream:
        raise BackupCorrupt("what was restored is not what the backup holds", offset=0)
    return backup, state


def _told(world: World, backup: SnapshotBackup, size: int, what: str) -> Iterator[list[Pair]]:
    for pairs in backup.lists():
        yield pairs
        world.tick(what, backup.offset, size)


def _reached(value: bytes) -> bytes:
    last = binary.unpack_object(value)["last"]
    assert isinstance(last, bytes)
    return last


# --- the state ------------------------------------------------------------------------------------


@contextmanager
def opened(world: World, directory: StoreDirectory) -> Iterator[Engine]:
    """The state in a directory. What goes wrong in the block is told, and not what comes of it when
    the engine is closed."""
    engine = world.open_state(directory)
    try:
        yield engine
    except BaseException:
        with suppress(EngineFailed):
            engine.close()
        raise
    engine.close()


def ledger_on(world: World, engine: Engine, end: LogEnd) -> Ledger:
    """What reads and replays on a state; nothing is committed with it."""
    return Ledger(engine, end, world.clock, world.rng, _no_commit)


def state_of(world: World, engine: Engine, end: LogEnd) -> State:
    """What a state has come to. :raises BackupCorrupt: its catalog can't be read"""
    with ledger_on(world, engine, end).begin() as tx, of_a_store():
        look_through(tx)
        unfinished = tuple(".".join(mark.names) for mark in restores.marks(tx))
        return State(state_hash(engine), tuple(awaiting(tx)), unfinished)


@contextmanager
def of_a_store() -> Iterator[None]:
    """What a backup holds is read in the block. Its checks say that it is what was written, not
    that a store has written it.

    :raises BackupCorrupt: it can't have
    """
    try:
        yield
    except UNFIT as problem:
        what = f"{type(problem).__name__} {problem}".strip()
        raise BackupCorrupt(
            f"it is what was written, but what no store writes: {what[:200]}", offset=0
        ) from problem


def _no_commit(_frame: Frame) -> NoReturn:
    raise AssertionError("nothing is committed while a backup is restored")
