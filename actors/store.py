"""The store of a node: its directory, log and state, opened, mended, and brought up to each other.

The order of the opening: directory → log, looked at → state → log, repaired → replay. A log that is
refused leaves everything as it is. The state, with its own lock and with what it proves of the log,
comes before the log is repaired.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

import structlog

from actors.doors import Doors
from actors.settings import NodeSettings
from protocol import limits
from protocol.doors import Room
from protocol.values import instant
from storage import cluster_file, lineage, rebuilding
from storage.cluster_file import Cluster
from storage.directory import StoreDirectory
from storage.engine import Engine, EngineFailed, EngineUnreadable
from storage.faults import ClockRefused, LogDamaged, StateDamaged
from storage.histories import LogEnd
from storage.ledger import Ledger, StateUnusable
from storage.log import Log
from storage.recovery import Recovery
from storage.sealed_state import open_state

log = structlog.get_logger("node")

TO_OPEN: Final = Room(256 * limits.KIB, 8)
"""What the state engine writes and makes at its open, before it removes what that replaces."""
DAY_US: Final = 86_400_000_000
REPLAY_FRAMES: Final = 256
"""Frames replayed before the loop gets its turn."""


def clock_jumps(wall_us: int, newest_us: int) -> bool:
    """Whether the wall clock is so far ahead of a log that a start has to be told that it is right.

    :param newest_us: log time of the newest frame
    """
    return (wall_us - newest_us) // 1_000_000 > limits.CLOCK_JUMP_SECONDS


class Parts(NamedTuple):
    """What an open store consists of."""

    directory: StoreDirectory
    log: Log
    engine: Engine


class Store:
    """The store that one node opens. After an `open` that was refused it holds what had been opened
    until then, for `close`."""

    def __init__(self, settings: NodeSettings, doors: Doors) -> None:
        self.directory: StoreDirectory | None = None
        self.log: Log | None = None
        self.engine: Engine | None = None
        self.cluster: Cluster | None = None
        """What the node remembers of its cluster; None: it is in none."""
        self.log_damage: LogDamaged | None = None
        """Damage that `check_log` found."""
        self.damage: str | None = None
        """What of the state can't be read."""
        self._settings = settings
        self._doors = doors
        self._rebuilds = False

    @property
    def id(self) -> str:
        """The store's; empty before it is known."""
        return str(self.directory.store_id) if self.directory is not None else ""

    @property
    def begins(self) -> int:
        """The first sequence that the log holds."""
        return self.log.first if self.log is not None else 1

    @property
    def log_bytes(self) -> int:
        """How long the log's segments are together, what was made room for ahead not counted."""
        return self.log.length if self.log is not None else 0

    @property
    def state_bytes(self) -> int:
        """Bytes that the state takes, about."""
        return self.engine.stored_bytes() if self.engine is not None else 0

    @property
    def parts(self) -> Parts:
        """All of it; once it is open."""
        assert self.directory is not None and self.log is not None and self.engine is not None
        return Parts(self.directory, self.log, self.engine)

    # --- opening --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open it, and check every frame of the log where that is asked for.

        :raises StoreFault: the directory, log or state can't be opened; the text says why
        :raises WrongKey: it is sealed, and not with the key at hand
        :raises EngineFailed: the state can't be read
        :raises OSError: as the disk says
        """
        settings, doors = self._settings, self._doors
        where = settings.data_dir, doors.fs, doors.clock, doors.rng
        self.directory = (
            StoreDirectory.begin_filling(*where, settings.key)
            if settings.restores
            else StoreDirectory.open(*where, settings.create, settings.key)
        )
        if self.directory.was_open_to_others:
            log.warning(
                "the data directory was open to other users and is closed now",
                directory=self.directory.path,
            )
        self.cluster = cluster_file.load(self.directory)
        self.log = Log.look(self.directory)
        self._check_clock(self.log.last_time)
        self.log.make_room(TO_OPEN)
        self.engine = self._open_state(self.directory, self.log)
        found = lineage.read(self.engine, self.directory.store_id.bytes)
        lineage.require_joined(found, self.log)
        self.log.recover(found.proves)
        _report(self.log.recovery)
        if settings.check or settings.check_log:
            try:
                await self._check_log(self.log)
            except LogDamaged as damage:
                if settings.check:
                    raise
                self.log_damage = damage

    def _open_state(self, directory: StoreDirectory, opened: Log) -> Engine:
        """The state; an empty one where it must be made anew and the log holds all of it.

        :raises StateDamaged: it must be, and that is not for this command or not possible
        :raises EngineFailed: it does not open, and is not known to be damaged
        """
        begins, asked = opened.first, self._settings.rebuild_state
        what = rebuilding.damage(directory)
        if what is None and not asked:
            try:
                return self._engine(directory)
            except EngineUnreadable as error:
                what = str(error)
                if begins > 1:
                    raise StateDamaged(_not_rebuilt(what, begins)) from error
        if self._settings.check:
            mends = ": a node that serves makes the state anew from the log" if begins == 1 else ""
            raise StateDamaged(f"{what}{mends}")
        if begins > 1:
            if asked:
                raise StateDamaged(_not_rebuilt("--rebuild-state", begins))
            log.error("a part of the state can't be read, and it can't be made anew", reason=what)
            self.damage = what
            return self._engine(directory, may_compact=False)
        what = what or "--rebuild-state"
        log.warning("the state is made anew from the log", reason=what, frames=opened.last)
        rebuilding.note(directory, what)
        rebuilding.throw_away(directory)
        self._rebuilds = True
        return self._engine(directory)

    def _engine(self, directory: StoreDirectory, may_compact: bool = True) -> Engine:
        """Open the state. :raises EngineFailed:"""
        on_disk = partial(self._doors.open_engine, may_compact=may_compact)
        return open_state(directory, on_disk, self._doors.open_in_memory)

    def _check_clock(self, newest_us: int) -> None:
        """Before anything is written by it. :raises ClockRefused:"""
        wall_us = self._doors.clock.wall_us()
        if not clock_jumps(wall_us, newest_us) or self._settings.check:
            return
        if not self._settings.accept_clock_jump:
            raise ClockRefused(
                f"the clock says {_day(wall_us)}, and the newest frame of the log is of"
                f" {_day(newest_us)}: set the clock right, or start with --accept-clock-jump if it"
                " is. Log time never goes back"
            )
        log.info(
            "the clock has jumped, and that was accepted", days=(wall_us - newest_us) // DAY_US
        )

    async def _check_log(self, opened: Log) -> None:
        """Read every frame, in slices. :raises LogDamaged: one is not what was written"""
        for frame in opened.read(opened.first):
            if frame.sequence % REPLAY_FRAMES == 0:
                await asyncio.sleep(0)

    @property
    def end(self) -> LogEnd:
        """How far a start brings the state; see `replay`."""
        directory, opened, engine = self.parts
        if self.cluster is None:
            return opened.end
        found = lineage.read(engine, directory.store_id.bytes)
        return lineage.end_of_released(found, opened)

    async def replay(self, ledger: Ledger) -> None:
        """Bring the state up to the log, in slices.

        All of the log: alone, whatever it holds may have been shown, also frames that a crash
        caught between their sync and their answer. In a cluster a start goes only as far as what
        is known to be released (`lineage.end_of_released`): what lies behind that may have to give
        way to what another leader went on with, and a state is never undone.

        :raises StateUnusable: the log no longer holds what the state lacks
        """
        opened, progress = self.parts.log, self._settings.progress
        first, last = ledger.committed + 1, self.end.sequence
        if first <= last:
            if first < opened.first:
                raise StateUnusable(
                    f"the state stands at {first - 1} and the log begins at {opened.first}"
                )
            for frame in opened.read(first, last):
                ledger.replay(frame)
                if frame.sequence % REPLAY_FRAMES == 0:
                    if progress is not None:
                        progress(frame.sequence - first + 1, last - first + 1)
                    await asyncio.sleep(0)
            log.info("log replayed", frames=last - first + 1)
        if self._rebuilds:
            rebuilding.finish(self.parts.directory)

    def restored(self) -> None:
        """What was to be restored is durable: from now on it is a store. :raises OSError:"""
        self.parts.directory.end_restore()

    # --- damage ---------------------------------------------------------------------------------

    def note_for_next_start(self, error: BaseException) -> None:
        """The state can't be read: the next start makes it anew, or each would end as this one."""
        if self.directory is None or self._settings.check:
            return
        try:
            rebuilding.note(self.directory, str(error))
        except OSError as failed:
            log.warning("the damage of the state could not be noted", reason=str(failed))

    def spoiled(self, error: EngineUnreadable) -> bool:
        """A part of the state could not be read while the node runs. Whether that is new."""
        if self.damage is not None:
            return False
        self.damage = str(error)
        log.error(
            "a part of the state can't be read",
            reason=self.damage,
            next_start="makes the state anew from the log"
            if self.begins == 1
            else "can't make it anew",
        )
        return True

    # --- the end --------------------------------------------------------------------------------

    def close(self, *, has_log: bool) -> None:
        """Close what is open, all of it whatever one part says.

        :param has_log: whether the log is still to be closed here: no actor has had it
        """
        with ExitStack() as closing:  # from the last line to the first
            if self.directory is not None:
                closing.callback(self.directory.close)
            if self.engine is not None:
                closing.callback(_close_engine, self.engine)
            if has_log and self.log is not None:
                closing.callback(self.log.close, clean=False)


def _not_rebuilt(what: str, begins: int) -> str:
    return (
        f"{what}: the state can't be made anew, since the log begins at {begins}. Put a copy of the"
        " whole directory back"
    )


def _close_engine(engine: Engine) -> None:
    """Close the state. What it can't flush stands in the log."""
    try:
        engine.close()
    except EngineFailed as error:
        log.warning("the next start replays more of the log", reason=str(error))


def _day(time_us: int) -> str:
    """A date for people. A clock that is out of its mind may be beyond the calendar."""
    try:
        return instant(time_us).isoformat()
    except OverflowError:
        return f"{time_us} µs after 1970"


def _report(recovery: Recovery) -> None:
    if not recovery.clean:
        log.info(
            "log recovered after an unclean stop",
            last=recovery.last,
            copied=recovery.copied,
            cut_bytes=recovery.cut_bytes,
            cut_file=recovery.cut_file,
        )
