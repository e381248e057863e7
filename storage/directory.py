"""The data directory: who holds it, what it is, and what may be in it.

    <data_dir>/
      LOCK      shows the process id of whoever has the store open, or had it last
      STORE     store id, format, when created
      DAMAGED   why the state is made anew, while it must be (rebuilding.py)
      NODE      what this node is told about itself (node_file.py); no backup carries it
      log/      segments (log.py)
      state/    the state engine's files
      tmp/      files on their way to a final name; emptied at open

The lock is a flock on the directory itself. It is taken before anything in it is changed, and LOCK
has no part in it: whoever removes or replaces that file lets nobody in.

First start, in this order, each step durable before the next: the directory, `tmp/` `log/`
`state/`, the first segment of the log with nothing in it, STORE. So

- STORE is there: the store is whole. An empty `log/` is then a loss, never a beginning.
- STORE is not there, and only what the steps above leave: a first start that was cut short. It is
  done again from the beginning.
- STORE is not there, and anything else is: somebody's files, or a store that lost its STORE.
  Nothing is touched.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from protocol.doors import Clock, Fs, Lock, Rng
from protocol.values import instant
from storage.facts import read_facts, replace_file, write_facts
from storage.faults import (
    StoreDamaged,
    StoreForeign,
    StoreLocked,
    StoreMissing,
    StoreOpenToOthers,
)
from storage.frames import SALT_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader

SEGMENT_SUFFIX: Final = ".storelog"
FIRST_EPOCH: Final = 1
_EMPTY_STORE: Final = frozenset({"LOCK", "log", "state", "tmp", "lost+found"})
"""What may stand in a directory that is no store yet; the last is any ext4 mount point's own."""


def segment_name(first: int) -> str:
    """Name of the segment whose first sequence is `first`."""
    return f"{first:020d}{SEGMENT_SUFFIX}"


def new_uuid(rng: Rng) -> UUID:
    """A random UUID (version 4)."""
    return UUID(bytes=rng.bytes(16), version=4)


class StoreDirectory:
    """An open data directory. It is this process's alone until `close`."""

    def __init__(self, path: str, fs: Fs, clock: Clock, rng: Rng, lock: Lock) -> None:
        """Use `open`."""
        self.path = path
        self.fs = fs
        self.clock = clock
        self.rng = rng
        self.log_path = f"{path}/log"
        self.state_path = f"{path}/state"
        self.tmp_path = f"{path}/tmp"
        self.store_id = UUID(int=0)
        self.created = ""
        self.was_open_to_others = False
        """Whether other users could get in when it was opened; it is closed to them."""
        self._store_file = f"{path}/STORE"
        self._lock = lock

    @classmethod
    def open(
        cls, path: str, fs: Fs, clock: Clock, rng: Rng, create: bool = False
    ) -> StoreDirectory:
        """Take the directory.

        :param create: make a store when there is none
        :raises StoreMissing: no store there, and not asked to make one
        :raises StoreForeign: the directory holds something else
        :raises StoreTooNew: a later version wrote it
        :raises StoreDamaged: STORE is unreadable
        :raises StoreLocked: another process has it. Nothing was changed
        :raises StoreOpenToOthers: other users may get in, and that can't be changed
        :raises OSError: as the disk says
        """
        path = path.rstrip("/") or "/"
        _refuse_unless_ours(fs, path, create)
        _make_directories(fs, path)
        lock = fs.lock(path, f"{path}/LOCK")
        if lock is None:
            raise StoreLocked(f"{path} is open in another process{_owner(fs, path)}")
        try:
            # Again: another first start may have come and gone before the lock was ours.
            _refuse_unless_ours(fs, path, create)
            directory = cls(path, fs, clock, rng, lock)
            directory._settle()
        except BaseException:
            lock.release()
            raise
        return directory

    def close(self) -> None:
        """Let other processes have it."""
        self._lock.release()

    def _settle(self) -> None:
        self._close_to_others()
        for path in (self.tmp_path, self.log_path, self.state_path):
            if not self.fs.exists(path):
                self.fs.make_directory(path)
        # Always: a killed process may have left names that are visible but not yet durable.
        self.fs.sync_directory(self.path)
        self._empty_tmp()
        if not self.fs.exists(self._store_file):
            self._create()
        facts = read_facts(self.fs, self._store_file)
        try:
            self.store_id = UUID(str(facts["store"]))
            self.created = str(facts["created"])
        except (KeyError, ValueError):
            raise StoreDamaged(f"{self._store_file} names no store") from None

    def _close_to_others(self) -> None:
        # The files in it may be open to others too, where a copy was made carelessly: nobody gets
        # to them through a closed directory.
        try:
            self.was_open_to_others = self.fs.close_to_others(self.path)
        except PermissionError:
            raise StoreOpenToOthers(
                f"{self.path} is open to other users, and belongs to somebody else: chmod 700 it"
            ) from None

    def _empty_tmp(self) -> None:
        for name in self.fs.names(self.tmp_path):
            path = f"{self.tmp_path}/{name}"
            if self.fs.is_directory(path):
                self.fs.remove_tree(path)
            else:
                self.fs.unlink(path)

    def _create(self) -> None:
        self.fs.sync_directory(_parent(self.path))
        store_id = new_uuid(self.rng)
        now_us = self.clock.wall_us()
        header = SegmentHeader(store_id.bytes, self.rng.bytes(SALT_BYTES), 1, FIRST_EPOCH, now_us)
        first = f"{self.log_path}/{segment_name(1)}"
        replace_file(self.fs, self.tmp_path, first, header.encode())
        facts = {"store": str(store_id), "created": instant(now_us).isoformat()}
        write_facts(self.fs, self.tmp_path, self._store_file, facts)


def _refuse_unless_ours(fs: Fs, path: str, create: bool) -> None:
    """Look without touching."""
    if not fs.exists(path):
        if create:
            return
        raise StoreMissing(f"{path} does not exist")
    if not fs.is_directory(path):
        raise StoreForeign(f"{path} is not a directory")
    names = fs.names(path)
    if "STORE" in names:
        read_facts(fs, f"{path}/STORE")
        return
    others = [name for name in names if name not in _EMPTY_STORE]
    if others:
        raise StoreForeign(f"{path} is not a store and holds {others[0]!r}: nothing was touched")
    if not _only_begun(fs, path):
        raise StoreForeign(f"{path} holds data but no file STORE: nothing was touched")
    if not create:
        raise StoreMissing(f"{path} holds no store")


def _only_begun(fs: Fs, path: str) -> bool:
    """Whether `log` and `state` hold no more than a first start leaves before it writes STORE."""
    state, log = f"{path}/state", f"{path}/log"
    if fs.exists(state) and fs.names(state):
        return False
    names = fs.names(log) if fs.exists(log) else []
    if not names:
        return True
    if names != [segment_name(1)]:
        return False
    file = fs.open_read(f"{log}/{names[0]}")
    try:
        return file.size() <= SEGMENT_HEADER_BYTES
    finally:
        file.close()


def _make_directories(fs: Fs, path: str) -> None:
    """Make `path` and what is missing above it, each made durable in the directory above."""
    if fs.exists(path):
        return
    parent = _parent(path)
    _make_directories(fs, parent)
    try:
        fs.make_directory(path)
    except FileExistsError:
        return  # another first start was quicker; the lock decides between the two
    fs.sync_directory(parent)


def _parent(path: str) -> str:
    above, slash, _ = path.rpartition("/")
    return above or slash or "."


def _owner(fs: Fs, path: str) -> str:
    try:
        file = fs.open_read(f"{path}/LOCK")
        try:
            pid = file.read(0, 32).partition(b"\n")[0].decode("ascii", "replace")
        finally:
            file.close()
    except OSError:
        return ""
    return f" (process {pid})" if pid else ""
