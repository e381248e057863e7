"""Environment: the interfaces through which everything outside of the process reaches the node.

Time, randomness, files, network and scheduling reach the node only through these. Production passes
the real ones (`actors/environment.py`, `storage/files/disk.py`). A test passes a manual clock, a
seeded generator, a faulty disk and an event loop with virtual time; a whole node then runs in one
thread, deterministically, from one seed. A call of `time.time()`, `random` or `os` elsewhere breaks
that, and `tests/architecture` refuses it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple, Protocol

COURTESY: Final = suppress(OSError)
"""`with COURTESY:` around calls that only make the node a better neighbour, such as a lower
priority. A container, a system call filter or another kernel may refuse them. Never use it for a
call that durability or correctness depends on."""


class Clock(Protocol):
    """Three clocks: wall clock for people, monotonic for durations, and boot time for leases."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; may step in either direction."""

    def monotonic_us(self) -> int:
        """Microseconds from an arbitrary start; never steps back."""

    def boottime_us(self) -> int:
        """Microseconds, monotonic, and counted while the machine is suspended too. A leader that
        measured its lease by a clock that stops then would believe to hold a lease that has
        expired."""


class Rng(Protocol):
    """Randomness. Production draws from the operating system, so it is fit for secrets."""

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""

    def below(self, bound: int) -> int:
        """A random integer, 0 <= n < bound."""


class File(Protocol):
    """An open file. Offsets and sizes are in bytes."""

    def append(self, data: bytes, ahead: int = 0) -> None:
        """Write all of `data` at the end.

        :param ahead: zero bytes to preallocate behind it, in the same write. They do not move the
            end of this open file: the next appends overwrite them.
        :raises OSError: the write failed or was cut short (torn write); the file's end is then
            unknown: `truncate` it
        """

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer at the end of the file."""

    def sync(self) -> None:
        """fdatasync: data and size are durable on return. Raises OSError."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, which becomes its end."""

    def size(self) -> int:
        """Return the current size, including preallocated bytes."""

    def forget_cache(self) -> None:
        """Ask the system to drop its cached pages, so that the next read comes from the disk. It
        may decline."""

    def close(self) -> None:
        """Close; never syncs."""


class Lock(Protocol):
    """An exclusive lock on a directory."""

    def release(self) -> None:
        """Release the lock."""


UNKNOWN: Final = 1 << 62
"""More bytes than any file system has: the size is unknown."""


class Room(NamedTuple):
    """Free space of a file system, or the space that an operation needs."""

    bytes: int
    files: int
    """Files that can be created: file systems run out of inodes too."""
    disk: int = UNKNOWN
    """Total bytes of the file system, if known."""

    def holds(self, needed: Room) -> bool:
        """True if there is enough bytes and files for `needed`."""
        return self.bytes >= needed.bytes and self.files >= needed.files


class DirectoryEntry(NamedTuple):
    """An entry of a directory."""

    kind: Literal["file", "folder", "other"]
    """A link is "other"."""
    bytes: int
    changed_us: int
    """Last modification, by the wall clock: microseconds since 1970."""


class Folder(Protocol):
    """An open directory. Each name is a single path component, resolved in this directory alone,
    without following links. Whatever other processes do to the path meanwhile, nothing outside of
    it is opened, created or replaced. Every failure is an OSError."""

    def enter(self, name: str) -> Folder:
        """Open the subdirectory of that name. :raises NotADirectoryError: it is a link or a file"""

    def make_folder(self, name: str) -> None:
        """Create a subdirectory, mode 0700. :raises FileExistsError: the name exists"""

    def remove_folder(self, name: str) -> None:
        """Remove an empty subdirectory."""

    def create(self, name: str) -> File:
        """Create a file, locked by this process until it is closed.

        :raises FileExistsError: the name exists
        """

    def open_read(self, name: str) -> File:
        """Open a file for reading. :raises FileNotFoundError: there is no regular file (a link,
        say)"""

    def is_held(self, name: str) -> bool:
        """True if some process has created the file of that name and still has it open."""

    def names(self) -> list[str]:
        """Return the names of its entries, sorted."""

    def entry(self, name: str) -> DirectoryEntry | None:
        """Return the entry of that name, or None."""

    def is_at(self, file: File, name: str) -> bool:
        """True if the name still refers to this open file."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file. :raises FileExistsError: the target exists"""

    def unlink(self, name: str) -> None:
        """Remove a file or a link."""

    def sync(self) -> None:
        """Make its entries durable (fsync)."""

    def room(self) -> Room:
        """Return the space left for it, without regard to quotas."""

    def close(self) -> None:
        """Close it. Closing twice is fine."""


class Fs(Protocol):
    """Files and directories. Paths are strings; every failure is an OSError."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        """Open for reading and appending.

        :param exclusive: fail if the file exists
        """

    def open_read(self, path: str) -> File:
        """Open for reading only."""

    def exists(self, path: str) -> bool:
        """True if `path` exists."""

    def is_directory(self, path: str) -> bool:
        """True if `path` is a directory."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create one directory, mode 0700."""

    def close_to_others(self, path: str) -> bool:
        """Restrict a directory to its owner. Return whether other users had access before.

        :raises OSError: it belongs to another user
        """

    def other_owner(self, path: str) -> str | None:
        """Return the user that a path belongs to; None: the user of this process."""

    def open_folder(self, path: str) -> Folder:
        """Open a directory, to work only inside it. Links on the path to it are followed."""

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing the target atomically."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents."""

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable (fsync)."""

    def lock(self, path: str, sign: str) -> Lock | None:
        """Take an exclusive lock on a directory, released when the process ends. Return None if
        another process holds it; nothing was changed then.

        :param sign: a file that gets the process id and the program's name, for people. It is no
            part of the lock, and stays as it is if the disk is full
        """

    def room(self, path: str) -> Room:
        """Return the space left below `path`, without regard to quotas."""

    def takes(self, folder: str, size: int) -> bool:
        """Return whether a directory has space for a new file of `size` bytes, quotas included. A
        temporary file is created for the test and removed.

        :raises OSError: an error of the disk other than a full one
        """


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> tuple[str, int]:
        """Bound address; the port is the real one if 0 was requested."""

    def close(self) -> None:
        """Stop accepting; existing connections continue."""


class Net(Protocol):
    """The network: one method for incoming and one for outgoing connections."""

    async def listen(
        self,
        host: str,
        port: int,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        """Listen on an address. :raises OSError: it is in use, or not an address of this machine"""

    async def connect(
        self, host: str, port: int, make_protocol: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. :raises OSError: it failed"""


class Scheduler(Protocol):
    """Runs actors."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Event loop that runs the actors without a thread of their own."""

    @property
    def threads(self) -> bool:
        """True if actors that block get a thread each. False in simulation: their mailboxes are
        drained on the loop, so that one seed determines every interleaving."""

    def ready(self) -> int:
        """Return the number of callbacks ready to run on the loop, besides the current one. A loop
        that cannot tell reports many."""

    async def compute(self, module: str, request: Sequence[bytes]) -> bytes:
        """Return the answer of a module to a request, computed in a process of its own, at low
        priority. See `storage/search/training.py`.

        :param request: in parts, which are written one by one

        :raises OSError: the process failed
        """

    def lower_priority(self) -> None:
        """Lower the priority of the calling thread from here on, if the system has priorities per
        thread."""
