"""Store: the directory, log and state of a node, opened, repaired and brought in line.

Opening order: directory → log, inspected → state → log, recovered → replay. A refused log leaves
everything unchanged. The state is opened before the log is recovered: it has its own lock, and it
proves up to which sequence the log must reach.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

import structlog

from actors.environment import Environment
from actors.settings import NodeSettings
from protocol import limits
from protocol.environment import Room
from protocol.values import instant
from storage.engine.engine import Engine, EngineFailed, EngineUnreadable
from storage.engine.sealed import open_state
from storage.faults import ClockRefused, LogDamaged, StateDamaged
from storage.files import cluster_file, rebuild_marker
from storage.files.cluster_file import ClusterState
from storage.files.directory import StoreDirectory
from storage.formats.positions import LogEnd
from storage.log.log import Log
from storage.log.reader import LogReader
from storage.log.recovery import Recovery
from storage.txn import applied_position
from storage.txn.applied_position import Lineage
from storage.txn.ledger import Ledger, StateUnusable

log = structlog.get_logger("node")

TO_OPEN: Final = Room(256 * limits.KIB, 8)
"""Space and files that the state engine creates when it opens, before it removes old files."""
DAY_US: Final = 86_400_000_000
REPLAY_FRAMES: Final = 256
"""Frames replayed between two yields of the loop."""


def clock_jumps(wall_us: int, newest_us: int) -> bool:
    """True if the wall clock is so far ahead of the log that a start needs confirmation.

    :param newest_us: log time of the newest frame
    """
    return (wall_us - newest_us) // 1_000_000 > limits.CLOCK_JUMP_SECONDS


def end_of_released(found: Lineage, opened: LogReader) -> LogEnd:
    """Return the log position up to which frames may be replayed when later ones may be truncated.

    That is the commit index in the log, or the highest sequence of which the state holds any
    effect. Commits are applied only once visible, and a partly applied commit is never undone.

    :raises LogPruned, LogDamaged: as `LogReader.end_at`
    """
    return opened.end_at(max(opened.state.released, found.proves))


class StoreParts(NamedTuple):
    """Parts of an open store."""

    directory: StoreDirectory
    log: Log
    engine: Engine


class Store:
    """Store opened by one node. After a failed `open` it holds the parts opened until then, for
    `close`."""

    def __init__(self, settings: NodeSettings, environment: Environment) -> None:
        self.directory: StoreDirectory | None = None
        self.log: Log | None = None
        self.engine: Engine | None = None
        self.cluster: ClusterState | None = None
        """Cluster membership that the node remembers; None: it is in no cluster."""
        self.log_damage: LogDamaged | None = None
        """Damage that `check_log` found."""
        self.damage: str | None = None
        """Description of damage in the state; None: none is known."""
        self._settings = settings
        self._environment = environment
        self._rebuilds = False

    @property
    def id(self) -> str:
        """Id of the store; empty before it is known."""
        return str(self.directory.store_id) if self.directory is not None else ""

    @property
    def begins(self) -> int:
        """First sequence of the log."""
        return self.log.state.first if self.log is not None else 1

    @property
    def log_bytes(self) -> int:
        """Total length of the log's segments in bytes, without preallocated space."""
        return self.log.state.length if self.log is not None else 0

    @property
    def state_bytes(self) -> int:
        """Approximate size of the state in bytes."""
        return self.engine.stored_bytes() if self.engine is not None else 0

    @property
    def parts(self) -> StoreParts:
        """All parts of an open store."""
        assert self.directory is not None and self.log is not None and self.engine is not None
        return StoreParts(self.directory, self.log, self.engine)

    # --- opening --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store, and check every frame of the log if the settings ask for it.

        :raises StoreFault: the directory, log or state can't be opened; the text says why
        :raises WrongKey: it is sealed, and the given key, if any, does not open it
        :raises EngineFailed: the state can't be read
        :raises OSError: from the disk
        """
        settings, environment = self._settings, self._environment
        where = settings.data_dir, environment.fs, environment.clock, environment.rng
        self.directory = (
            StoreDirectory.begin_script_restore(*where, settings.key)
            if settings.restores
            else StoreDirectory.open(*where, settings.create, settings.key)
        )
        if self.directory.was_open_to_others:
            log.warning(
                "the data directory was open to other users: its access was restricted",
                directory=self.directory.path,
            )
        self.cluster = cluster_file.load(self.directory)
        self.log = Log.inspect(self.directory)
        self._check_clock(self.log.state.last_time)
        self.log.make_room(TO_OPEN)
        self.engine = self._open_state(self.directory, self.log)
        found = applied_position.read(self.engine, self.directory.store_id.bytes)
        applied_position.require_joined(found, self.log.reader.digest_at)
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
        """Open the state; an empty one if it must be rebuilt and the log is complete.

        :raises StateDamaged: it must be rebuilt, but this command may not do so or the log is
            incomplete
        :raises EngineFailed: it does not open, and is not known to be damaged
        """
        begins, asked = opened.state.first, self._settings.rebuild_state
        what = rebuild_marker.damage(directory)
        if what is None and not asked:
            try:
                return self._engine(directory)
            except EngineUnreadable as error:
                what = str(error)
                if begins > 1:
                    raise StateDamaged(_not_rebuilt(what, begins)) from error
        if self._settings.check:
            mends = ": serve the store to rebuild the state from the log" if begins == 1 else ""
            raise StateDamaged(f"{what}{mends}")
        if begins > 1:
            if asked:
                raise StateDamaged(_not_rebuilt("--rebuild-state", begins))
            log.error(
                "a part of the state can't be read, and the state can't be rebuilt", reason=what
            )
            self.damage = what
            return self._engine(directory, may_compact=False)
        what = what or "--rebuild-state"
        log.warning("the state is made anew from the log", reason=what, frames=opened.state.last)
        rebuild_marker.record_damage(directory, what)
        rebuild_marker.discard_state(directory)
        self._rebuilds = True
        return self._engine(directory)

    def _engine(self, directory: StoreDirectory, may_compact: bool = True) -> Engine:
        """Open the state engine. :raises EngineFailed:"""
        on_disk = partial(self._environment.open_engine, may_compact=may_compact)
        return open_state(directory, on_disk, self._environment.open_in_memory)

    def _check_clock(self, newest_us: int) -> None:
        """Check the wall clock, before any write uses it. :raises ClockRefused:"""
        wall_us = self._environment.clock.wall_us()
        if not clock_jumps(wall_us, newest_us) or self._settings.check:
            return
        if not self._settings.accept_clock_jump:
            raise ClockRefused(
                f"the clock says {_day(wall_us)}, but the newest frame of the log is of"
                f" {_day(newest_us)}: set the clock, or start with --accept-clock-jump if the"
                " clock is right; log time never goes back"
            )
        log.info("a jump of the clock was accepted", days=(wall_us - newest_us) // DAY_US)

    async def _check_log(self, opened: Log) -> None:
        """Read every frame, yielding periodically. :raises LogDamaged: a frame is damaged"""
        for frame in opened.reader.read(opened.state.first):
            if frame.sequence % REPLAY_FRAMES == 0:
                await asyncio.sleep(0)

    @property
    def end(self) -> LogEnd:
        """Position up to which a start replays the log; see `replay`."""
        directory, opened, engine = self.parts
        if self.cluster is None:
            return opened.state.end
        found = applied_position.read(engine, directory.store_id.bytes)
        return end_of_released(found, opened.reader)

    async def replay(self, ledger: Ledger) -> None:
        """Replay the log into the state, yielding periodically.

        Without a cluster all of the log is replayed: any frame may have been shown to a client,
        also one that a crash caught between its fsync and its response. In a cluster only frames
        known to be released are replayed (`end_of_released`). Later ones may be truncated in favour
        of another leader's frames, and the state can't be rolled back.

        :raises StateUnusable: the log no longer holds frames that the state lacks
        """
        opened, progress = self.parts.log, self._settings.progress
        first, last = ledger.state.committed + 1, self.end.sequence
        if first <= last:
            if first < opened.state.first:
                raise StateUnusable(
                    f"the state is at sequence {first - 1}, but the log begins at"
                    f" {opened.state.first}"
                )
            for frame in opened.reader.read(first, last):
                ledger.replay(frame)
                if frame.sequence % REPLAY_FRAMES == 0:
                    if progress is not None:
                        progress(frame.sequence - first + 1, last - first + 1)
                    await asyncio.sleep(0)
            log.info("log replayed", frames=last - first + 1)
        if self._rebuilds:
            rebuild_marker.finish(self.parts.directory)

    def restored(self) -> None:
        """Mark a completed, durable restore as a store. :raises OSError:"""
        self.parts.directory.end_restore()

    # --- damage ---------------------------------------------------------------------------------

    def note_for_next_start(self, error: BaseException) -> None:
        """Record that the state can't be read, so that the next start rebuilds it. Otherwise each
        start would fail in the same way."""
        if self.directory is None or self._settings.check:
            return
        try:
            rebuild_marker.record_damage(self.directory, str(error))
        except OSError as failed:
            log.warning("could not record the damage of the state", reason=str(failed))

    def note_read_error(self, error: EngineUnreadable) -> bool:
        """Note a read error of the state while the node runs. Return True if it is the first."""
        if self.damage is not None:
            return False
        self.damage = str(error)
        log.error(
            "a part of the state can't be read",
            reason=self.damage,
            next_start="rebuilds the state from the log"
            if self.begins == 1
            else "can't rebuild the state",
        )
        return True

    # --- the end --------------------------------------------------------------------------------

    def close(self, *, has_log: bool) -> None:
        """Close all open parts, even if closing one of them fails.

        :param has_log: True if the log has to be closed here, since no actor took it over
        """
        with ExitStack() as closing:  # runs its callbacks in reverse order
            if self.directory is not None:
                closing.callback(self.directory.close)
            if self.engine is not None:
                closing.callback(_close_engine, self.engine)
            if has_log and self.log is not None:
                closing.callback(self.log.close, clean=False)


def _not_rebuilt(what: str, begins: int) -> str:
    return (
        f"{what}: the state cannot be rebuilt, because the log begins at {begins}. Put a copy of"
        " the whole directory back"
    )


def _close_engine(engine: Engine) -> None:
    """Close the state engine. Data that it can't flush is in the log."""
    try:
        engine.close()
    except EngineFailed as error:
        log.warning(
            "the state was not closed cleanly: the next start replays more of the log",
            reason=str(error),
        )


def _day(time_us: int) -> str:
    """Return a date for people, even if the clock is beyond the calendar."""
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
