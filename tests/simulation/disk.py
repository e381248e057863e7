"""Disk rig: a disk in memory that keeps only what it must, behind the `Fs` interface.

Simulated: it keeps two states of everything, the view of processes (the page cache, the visible
names) and the content of the medium (the synced part). The difference is undecided until a power
cut decides it, sector by sector and name by name:

- bytes written since a file's last sync are kept, lost, zeroed or garbled (torn write), each sector
  for itself; the size is the old one, the new one, or one between;
- bytes written and cut off again before a sync may have reached the medium, the cut not;
- a garbled sector may show bytes that it once held and that were cut off;
- names made, renamed and removed since their directory's last sync are kept or lost, each for
  itself: a later one may survive an earlier one. Syncing a file does not make its name durable.

A failed sync behaves as on Linux (fsyncgate, 2018). The pages count as clean from then on and show
their contents until the cache is dropped. A later sync "succeeds" without having written them. The
disk can be full, by bytes, by inodes or by a quota; a `Fault` makes any operation fail.

Not simulated: damage of synced bytes, which stay as they are even in a sector that is written
again: a sector's write is assumed to leave the bytes it does not change unharmed. Nor the time that
an operation takes (`environment.py`), two processes on one directory, and the state engine, which
has files of its own: simulations replace it with `LossyEngine`. Real file systems in image files
are cut off in `tests/reliability/disks.py`.

To reproduce: every choice comes from the `Random` that the caller gives to the power cut, so the
seed of the rig above gives the same disk again. `image` and `SimulatedDisk(image)` keep a state and
start from it.

Proof: the same tests run on this disk and on a real one, and each of the rules above has a test;
with logs that break them the rigs above fail:
`tests/storage/files/test_disk.py::test_unsynced_sectors_are_kept_zeroed_garbled_or_lost`,
`tests/storage/files/test_disk.py::test_names_survive_only_with_their_directory_synced`,
`tests/storage/files/test_disk.py::test_failed_sync_loses_silently`,
`tests/reliability/test_power_cut.py::test_syncs_that_do_nothing_are_caught`.
"""

from __future__ import annotations

import copy
import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from protocol.environment import File, Room
from tests.simulation.folders import SimulatedFolder

Image = dict[str, bytes | None]
"""Content of a medium: files by path, None for a directory. The root is the empty string."""

NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of one operation."""

    error: int
    """errno."""
    after_bytes: int = 0
    """Bytes of an append that reach the file before the error."""


class ProcessIsDead(Exception):
    """A test bug: a file of a killed process is used."""


@dataclass(eq=False, slots=True)
class _Inode:
    """A file. `disk` is the content of the medium, `cache` the view of processes."""

    disk: bytes = b""
    cache: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges of the cache that the next sync will write."""
    before_cut: _Inode | None = None
    """The file before it was cut; None: not cut since the last sync."""
    stale: bytes = b""
    """Bytes once at these offsets and cut off: the file may get these blocks again."""

    def write(self, start: int, data: bytes) -> None:
        end = start + len(data)
        self.cache[start:end] = data
        if self.dirty and self.dirty[-1][1] == start:
            self.dirty[-1] = (self.dirty[-1][0], end)
        elif data:
            self.dirty.append((start, end))

    def truncate(self, size: int) -> None:
        if size < len(self.cache):
            self.stale = bytes(self.cache)
            if self.before_cut is None:
                self.before_cut = _Inode(self.disk, bytearray(self.cache), list(self.dirty))
            del self.cache[size:]
            self.dirty = [(a, min(b, size)) for a, b in self.dirty if a < size]
        elif size > len(self.cache):
            self.cache += bytes(size - len(self.cache))

    @property
    def settled(self) -> bool:
        uncut = self.before_cut is None
        return uncut and not self.dirty and len(self.disk) == len(self.cache)

    def sync(self) -> None:
        if not self.settled:
            self.disk = self.overlaid(self.dirty)
            self.dirty = []
        self.before_cut = None

    def sync_failed(self) -> None:
        """Fail a sync as Linux does: pages become clean, but their bytes are not on the medium."""
        self.disk = self.overlaid([])
        self.dirty = []
        self.before_cut = None

    def overlaid(self, ranges: list[tuple[int, int]]) -> bytes:
        disk = bytearray(self.disk[: len(self.cache)])
        disk += bytes(len(self.cache) - len(disk))
        for start, end in ranges:
            disk[start:end] = self.cache[start:end]
        return bytes(disk)

    def drop_clean_pages(self) -> None:
        self.cache = bytearray(self.overlaid(self.dirty))


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of names that is not durable yet."""

    gone: str | None
    made: str | None
    inode: _Inode | None
    """File that `made` names; None: a directory."""

    def concerns(self, directory: str) -> bool:
        return any(p is not None and _parent(p) == directory for p in (self.gone, self.made))

    def apply(self, names: dict[str, _Inode | None]) -> None:
        if self.gone is not None:
            names.pop(self.gone, None)
        if self.made is not None:
            names[self.made] = self.inode


@dataclass(frozen=True, slots=True)
class _Version:
    """Possible outcomes of a file's unsynced bytes."""

    new: bytes
    sizes: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]
    """Unsynced byte ranges, cut at sector borders."""


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A file with unsynced bytes, at the moment of the cut."""

    old: bytes
    stale: bytes
    versions: tuple[_Version, ...]
    """The present content and, if the file was cut since the last sync, the content before."""

    @property
    def dimensions(self) -> list[int]:
        sizes = max(len(version.sizes) for version in self.versions)
        chunks = max(len(version.chunks) for version in self.versions)
        return [len(self.versions), sizes, *([4] * chunks)]


KEPT, LOST, ZEROED, GARBLED = range(4)


class CrashPoint:
    """A moment at which power may fail, with all possible contents of the medium afterwards."""

    def __init__(
        self,
        names: dict[str, _Inode | None],
        changes: list[_Change],
        sector: int,
    ) -> None:
        self._names = dict(names)
        self._changes = list(changes)
        inodes = [*names.values(), *(change.inode for change in changes)]
        self._still: dict[_Inode, bytes] = {}
        self._undecided: dict[_Inode, _Undecided] = {}
        for inode in inodes:
            if inode is None or inode in self._still or inode in self._undecided:
                continue
            if inode.settled:
                self._still[inode] = inode.disk
            else:
                self._undecided[inode] = _undecided(inode, sector)
        # One dimension for each independent decision; its values count from 0, "all went well".
        self._dimensions = [2] * len(self._changes)
        for file in self._undecided.values():
            self._dimensions += file.dimensions

    @property
    def states(self) -> int:
        """Number of combinations of decisions."""
        total = 1
        for values in self._dimensions:
            total *= values
        return total

    def images(self, limit: int, rng: random.Random) -> Iterator[Image]:
        """Media after the cut: all of them, or `limit` when there are more: the extremes, each
        single deviation from them, and then at random. Some may be equal."""
        dimensions = self._dimensions
        if self.states <= limit:
            for decisions in itertools.product(*(range(n) for n in dimensions)):
                yield self._image(decisions, rng)
            return
        for decisions in itertools.islice(self._corners(), limit // 2):
            yield self._image(decisions, rng)
        for _ in range(limit - limit // 2):
            decisions = tuple(rng.randrange(n) for n in dimensions)
            yield self._image(decisions, rng)

    def _corners(self) -> Iterator[tuple[int, ...]]:
        dimensions = self._dimensions
        for value in range(4):
            yield tuple(min(value, n - 1) for n in dimensions)
        for base in (KEPT, GARBLED):
            for at, values in enumerate(dimensions):
                for value in range(values):
                    decisions = [min(base, n - 1) for n in dimensions]
                    decisions[at] = value
                    yield tuple(decisions)

    def _image(self, decisions: tuple[int, ...], rng: random.Random) -> Image:
        names = dict(self._names)
        for change, decision in zip(self._changes, decisions, strict=False):
            if decision == KEPT:
                change.apply(names)
        contents = dict(self._still)
        at = len(self._changes)
        for inode, file in self._undecided.items():
            count = len(file.dimensions)
            contents[inode] = _decide(file, decisions[at : at + count], rng)
            at += count
        image: Image = {}
        for path in sorted(names):
            named = names[path]
            if path and _parent(path) not in image:
                continue  # its directory was lost, and it with it
            image[path] = None if named is None else contents[named]
        return image


def _undecided(inode: _Inode, sector: int) -> _Undecided:
    versions = [_version(inode, sector)]
    if inode.before_cut is not None:
        versions.append(_version(inode.before_cut, sector))
    return _Undecided(inode.disk, inode.stale, tuple(versions))


def _version(inode: _Inode, sector: int) -> _Version:
    old, new = inode.disk, bytes(inode.cache)
    chunks: list[tuple[int, int]] = []
    for start, end in inode.dirty:
        while start < end:
            border = min(end, (start // sector + 1) * sector)
            chunks.append((start, border))
            start = border
    between = [b for _, b in chunks if len(old) < b < len(new)]
    sizes = tuple(dict.fromkeys([len(new), len(old), *between]))
    return _Version(new, sizes, tuple(chunks))


def _decide(file: _Undecided, decisions: tuple[int, ...], rng: random.Random) -> bytes:
    version = file.versions[decisions[0]]
    size = version.sizes[decisions[1] % len(version.sizes)]
    content = bytearray(file.old[:size])
    content += bytes(size - len(content))
    for (start, end), decision in zip(version.chunks, decisions[2:], strict=False):
        end = min(end, size)
        if start >= end or decision == LOST:
            continue
        if decision == KEPT:
            content[start:end] = version.new[start:end]
        elif decision == ZEROED:
            content[start:end] = bytes(end - start)
        elif len(file.stale) >= end and rng.random() < 0.5:
            content[start:end] = file.stale[start:end]
        else:
            content[start:end] = rng.randbytes(end - start)
    return bytes(content)


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode, writable: bool) -> None:
        self._disk = disk
        self._life = disk.life
        self.path = path
        self.inode = inode
        self._writable = writable
        self._end = len(inode.cache)
        disk.open_files.add(self)

    def append(self, data: bytes, ahead: int = 0) -> None:
        """Write at the end; with a fault or a full disk only a part of it."""
        fault = self._touch("append")
        assert self._writable, f"{self.path} was opened for reading"
        bound = min(self._disk.capacity, self._disk.quota)
        fits = self._disk.left(bound)
        if not self._disk.copying:
            fits += len(self.inode.cache) - self._end  # what was put ahead takes no more room
        whole = data + bytes(ahead)
        if fault is not None:
            self.inode.write(self._end, whole[: min(fault.after_bytes, fits)])
            raise _os_error(fault.error, self.path)
        self.inode.write(self._end, whole[:fits])
        if len(whole) > fits:
            full = errno.ENOSPC if bound == self._disk.capacity else errno.EDQUOT
            raise _os_error(full, self.path)
        self._end += len(data)

    def read(self, offset: int, count: int) -> bytes:
        """Bytes as processes see them."""
        self._alive()
        return bytes(self.inode.cache[offset : offset + count])

    def sync(self) -> None:
        """Copy the view of processes to the medium, unless a fault is planned."""
        fault = self._touch("sync")
        if fault is not None:
            self.inode.sync_failed()
            raise _os_error(fault.error, self.path)
        self.inode.sync()

    def truncate(self, size: int) -> None:
        """Cut; durable at the next sync."""
        fault = self._touch("truncate")
        assert self._writable, f"{self.path} was opened for reading"
        if fault is not None:
            raise _os_error(fault.error, self.path)
        if size < len(self.inode.cache):
            self._disk.require_copy(self.path)
        self.inode.truncate(size)
        self._end = size

    def size(self) -> int:
        """Size as processes see it."""
        self._alive()
        return len(self.inode.cache)

    def forget_cache(self) -> None:
        """Drop the page cache: clean pages show the content of the medium."""
        self._alive()
        self.inode.drop_clean_pages()

    def close(self) -> None:
        """Close; never syncs."""
        self._disk.open_files.discard(self)

    def _alive(self) -> None:
        if self._life != self._disk.life:
            raise ProcessIsDead(self.path)
        assert self in self._disk.open_files, f"{self.path} is used after it was closed"

    def _touch(self, kind: str) -> Fault | None:
        self._alive()
        return self._disk.touch(kind, self.path)


class SimulatedLock:
    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._life = disk.life
        self._path = path

    def release(self) -> None:
        if self._life == self._disk.life:
            self._disk.locks.discard(self._path)


class SimulatedDisk:
    """The disk (`protocol.environment.Fs`). Paths are absolute; the root exists.

    :param image: initial content, all of it durable
    :param sector: bytes of a sector. Small ones make more ways to tear a small write
    :param capacity: bytes that fit
    """

    def __init__(
        self, image: Image | None = None, *, sector: int = 512, capacity: int = NO_LIMIT
    ) -> None:
        self.sector = sector
        self.capacity = capacity
        self.quota = NO_LIMIT
        """Quota of this user, bytes; `room` does not show it."""
        self.files = NO_LIMIT
        """Limit on the number of files and directories."""
        self.copying = 0
        """Quota that copy-on-write needs, bytes, as on Btrfs; 0: the disk writes in place.

        To shorten, make or rename a file, so many bytes of the quota must be left. An overwrite
        takes as much space as an append. Removal and its sync are never refused.
        """
        self.operations = 0
        """Number of changes so far: appends, syncs, renames and the like."""
        self.plan: Callable[[str, str], Fault | None] | None = None
        """Hook that returns the fault of a change, given its kind and path."""
        self.watch: Callable[[str, str], None] | None = None
        """Hook called before each change, for a test that takes `crash_point` there."""
        self.life = 0
        self.open_files: set[SimulatedFile] = set()
        self.locks: set[str] = set()
        self._names: dict[str, _Inode | None] = {"": None}
        for path, content in (image or {}).items():
            self._names[path] = None if content is None else _Inode(content, bytearray(content))
        self._durable = dict(self._names)
        self._changes: list[_Change] = []

    # --- what a test does ------------------------------------------------------------------------

    def crash_point(self) -> CrashPoint:
        """Return all possible contents of the medium if the power failed now."""
        return CrashPoint(self._durable, self._changes, self.sector)

    def image(self) -> Image:
        """Return the view of processes."""
        return {
            path: None if inode is None else bytes(inode.cache)
            for path, inode in sorted(self._names.items())
        }

    def kill(self) -> None:
        """Kill the process, but not the machine: open files and locks are gone, the rest stays."""
        self.life += 1
        self.open_files.clear()
        self.locks.clear()

    def cut_power(self, rng: random.Random) -> None:
        """Cut the machine's power: decide at random which unsynced changes survive."""
        decisions = next(self.crash_point().images(1, rng))
        self.kill()
        self._names = {
            path: None if content is None else _Inode(content, bytearray(content))
            for path, content in decisions.items()
        }
        self._durable = dict(self._names)
        self._changes = []

    def killed(self) -> SimulatedDisk:
        """Return the disk as the next process finds it after a kill at this moment.

        It is a copy, with page cache and undecided writes, that this process can't reach any more.
        """
        copied = SimulatedDisk(sector=self.sector, capacity=self.capacity)
        copied.quota, copied.files, copied.copying = self.quota, self.files, self.copying
        kept = copy.deepcopy((self._names, self._durable, self._changes))
        copied._names, copied._durable, copied._changes = kept
        return copied

    def touch(self, kind: str, path: str) -> Fault | None:
        """Count a change, call `watch`, and look up its fault."""
        self.operations += 1
        if self.watch is not None:
            self.watch(kind, path)
        return None if self.plan is None else self.plan(kind, path)

    # --- the door --------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> SimulatedFile:
        if path in self._names:
            if exclusive:
                raise _os_error(errno.EEXIST, path)
            return SimulatedFile(self, path, self._file(path), True)
        if not (create or exclusive):
            raise _os_error(errno.ENOENT, path)
        inode = _Inode()
        self._change("create", _Change(None, path, inode))
        return SimulatedFile(self, path, inode, True)

    def open_read(self, path: str) -> SimulatedFile:
        return SimulatedFile(self, path, self._file(path), False)

    def exists(self, path: str) -> bool:
        return _clean(path) in self._names

    def is_directory(self, path: str) -> bool:
        return self._names.get(_clean(path), self) is None

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        self._directory(path)
        return sorted(p.rpartition("/")[2] for p in self._names if p and _parent(p) == _clean(path))

    def make_directory(self, path: str) -> None:
        if path in self._names:
            raise _os_error(errno.EEXIST, path)
        self._change("make_directory", _Change(None, path, None))

    def close_to_others(self, path: str) -> bool:
        """Do nothing: there are no other users here."""
        return False

    def other_owner(self, path: str) -> str | None:
        """Return None: there are no other users here."""
        return None

    def open_folder(self, path: str) -> SimulatedFolder:
        """Hold a directory open."""
        return SimulatedFolder(self, _clean(path))

    def is_file_at(self, file: File, path: str) -> bool:
        """True if an open file is still the file at a path."""
        assert isinstance(file, SimulatedFile)
        return self._names.get(path) is file.inode

    def rename(self, source: str, target: str) -> None:
        """Atomic replace."""
        inode = self._file(source)
        self._change("rename", _Change(source, target, inode))

    def unlink(self, path: str) -> None:
        self._file(path)
        self._change("unlink", _Change(path, None, None))

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds, a name at a time."""
        self._directory(path)
        for name in self.names(path):
            child = f"{path}/{name}"
            if self.is_directory(child):
                self.remove_tree(child)
            else:
                self.unlink(child)
        self._change("remove_directory", _Change(path, None, None))

    def sync_directory(self, path: str) -> None:
        """Make the names made, renamed or removed here durable."""
        self._directory(path)
        self._refuse("sync_directory", path)
        left: list[_Change] = []
        moved: set[str] = set()
        for change in reversed(self._changes):
            if change.concerns(_clean(path)):
                if change.gone is not None:
                    moved.add(change.gone)
            elif change.made in moved and change.gone is None:
                continue  # the name was made and has been moved on: it won't come back
            else:
                left.append(change)
        for change in self._changes:
            if change.concerns(_clean(path)):
                change.apply(self._durable)
        self._changes = left[::-1]

    def lock(self, path: str, sign: str) -> SimulatedLock | None:
        """Take a lock that dies with the process."""
        self._directory(path)
        if path in self.locks:
            return None
        try:
            file = self.open(sign, create=True)
            try:
                file.truncate(0)
                file.append(b"1\nstorenode\n")
            finally:
                file.close()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        self.locks.add(path)  # not before: a start that fails holds nothing
        return SimulatedLock(self, path)

    def room(self, path: str) -> Room:
        """Return the room left, apart from the quota."""
        files = max(0, self.files - len(self._names))
        return Room(self.left(self.capacity), files)

    def takes(self, folder: str, size: int) -> bool:
        """True if a file of so many bytes would fit. Leaves no trace on the disk."""
        self._directory(folder)
        room = Room(self.left(min(self.capacity, self.quota)), self.room(folder).files)
        return room.holds(Room(size + self.copying, 1))

    def require_copy(self, path: str) -> None:
        """Check that there is room to copy on write an existing file."""
        if self.left(self.quota) < self.copying:
            raise _os_error(errno.EDQUOT, path)

    def left(self, bound: int) -> int:
        """Return the bytes left of a bound."""
        if bound == NO_LIMIT:
            return NO_LIMIT
        used = sum(len(inode.cache) for inode in self._names.values() if inode is not None)
        return max(0, bound - used)

    def _file(self, path: str) -> _Inode:
        if path not in self._names:
            raise _os_error(errno.ENOENT, path)
        inode = self._names[path]
        if inode is None:
            raise _os_error(errno.EISDIR, path)
        return inode

    def _directory(self, path: str) -> None:
        if self._names.get(_clean(path), self) is not None:
            raise _os_error(errno.ENOTDIR if self.exists(path) else errno.ENOENT, path)

    def _change(self, kind: str, change: _Change) -> None:
        path = change.made or change.gone
        assert path is not None
        self._directory(_parent(path))
        self._refuse(kind, path)
        if change.gone is None and len(self._names) >= self.files:
            raise _os_error(errno.ENOSPC, path)
        if change.made is not None:
            self.require_copy(path)
        change.apply(self._names)
        self._changes.append(change)

    def _refuse(self, kind: str, path: str) -> None:
        fault = self.touch(kind, path)
        if fault is not None:
            raise _os_error(fault.error, path)


def _clean(path: str) -> str:
    return "" if path == "/" else path


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
