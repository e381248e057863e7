"""The doors: everything the node needs from the world, as interfaces.

Time, randomness, files, network and scheduling reach the node only through these. Production
passes the real ones (`actors/doors.py`, `storage/disk.py`); a test passes a manual clock, a
seeded generator, a faulty disk and an event loop with virtual time, and a whole node then runs
in one thread from one seed. A call to `time.time()`, `random` or `os` anywhere else breaks that,
and `tests/architecture` refuses it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, NamedTuple, Protocol

COURTESY: Final = suppress(OSError)
"""`with COURTESY:` around calls that make the node a better neighbour and nothing else, such as a
lower priority. A container, a filter of system calls or another kernel may refuse them. Never for a
call that a promise rests on."""


class Clock(Protocol):
    """Three clocks: one for people, one for measuring, and one for what is promised to others."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; may step in either direction."""

    def monotonic_us(self) -> int:
        """Microseconds from an arbitrary start; never steps back."""

    def boottime_us(self) -> int:
        """The same, but it goes on while the machine is suspended: whoever counts a lease by a
        clock that stands still then believes to have it after everybody else has given it up."""


class Rng(Protocol):
    """Randomness. Production draws from the operating system, so it is fit for secrets."""

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""

    def below(self, bound: int) -> int:
        """A random integer, 0 <= n < bound."""


class File(Protocol):
    """An open file. Offsets and sizes are in bytes."""

    def append(self, data: bytes, ahead: int = 0) -> None:
        """Write all of `data` at the end. Raises OSError; a short write is finished or raised,
        and what part reached the file is then unknown: `truncate` it.

        :param ahead: so many zero bytes are put behind it, in the same write. They don't move the
            end for this open file: the next appends write over them.
        """

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer at the end of the file."""

    def sync(self) -> None:
        """fdatasync: data and size are durable on return. Raises OSError."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, which is its end then."""

    def size(self) -> int:
        """Current size, with what was put ahead."""

    def forget_cache(self) -> None:
        """Ask the system to drop its cached pages, so that the next read comes from the disk. It
        may decline."""

    def close(self) -> None:
        """Close; never syncs."""


class Lock(Protocol):
    """An exclusive hold on a directory."""

    def release(self) -> None:
        """Give the hold up."""


UNKNOWN: Final = 1 << 62
"""More bytes than any file system has."""


class Room(NamedTuple):
    """What a file system has left, or what somebody needs of it."""

    bytes: int
    files: int
    """To be made: file systems run out of inodes too."""
    disk: int = UNKNOWN
    """Bytes that the whole file system has, where that is known."""

    def holds(self, needed: Room) -> bool:
        """Whether there is as much of everything."""
        return self.bytes >= needed.bytes and self.files >= needed.files


class Entry(NamedTuple):
    """What has a name in a folder."""

    kind: Literal["file", "folder", "other"]
    """A link is something other."""
    bytes: int
    changed_us: int
    """When it was last written, by the wall clock: microseconds since 1970."""


class Folder(Protocol):
    """A directory that is held open. Each name is one plain part of a path, is looked up in this
    directory alone, and follows no link: whatever others do to the path meanwhile, nothing outside
    of it is opened, made or replaced. Every failure is an OSError."""

    def enter(self, name: str) -> Folder:
        """The directory of that name in it. :raises NotADirectoryError: a link or file has it"""

    def make_folder(self, name: str) -> None:
        """Create a directory in it, mode 0700. :raises FileExistsError: something has the name"""

    def remove_folder(self, name: str) -> None:
        """Remove an empty directory in it."""

    def create(self, name: str) -> File:
        """A new file, held by this process alone until it is closed.

        :raises FileExistsError: something has the name
        """

    def open_read(self, name: str) -> File:
        """Open a file for reading. :raises FileNotFoundError: it is none, but a link, say"""

    def is_held(self, name: str) -> bool:
        """Whether some process has created the file of that name and has it open still."""

    def names(self) -> list[str]:
        """Names in it, sorted."""

    def entry(self, name: str) -> Entry | None:
        """What has the name; None: nothing."""

    def is_at(self, file: File, name: str) -> bool:
        """Whether an open file is what has the name."""

    def rename(self, source: str, target: str) -> None:
        """Give a file in it another name. :raises FileExistsError: something has that name"""

    def unlink(self, name: str) -> None:
        """Remove a file or a link in it."""

    def sync(self) -> None:
        """Make its entries durable."""

    def room(self) -> Room:
        """What may still be written and made in it, quotas not seen."""

    def close(self) -> None:
        """Let go of it. Closing twice is fine."""


class Fs(Protocol):
    """Files and directories. Paths are strings; every failure is an OSError."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        """Open for reading and appending. `exclusive`: fail when it exists."""

    def open_read(self, path: str) -> File:
        """Open for reading only."""

    def exists(self, path: str) -> bool:
        """Whether anything is at `path`."""

    def is_directory(self, path: str) -> bool:
        """Whether a directory is at `path`."""

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create one directory, mode 0700."""

    def close_to_others(self, path: str) -> bool:
        """Let nobody but its owner into a directory. Answers whether others could get in before.

        :raises OSError: it is somebody else's
        """

    def open_folder(self, path: str) -> Folder:
        """Hold a directory open, to work in it alone. Links on the way to it are followed."""

    def rename(self, source: str, target: str) -> None:
        """Atomic replace."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds."""

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable."""

    def lock(self, path: str, sign: str) -> Lock | None:
        """Take an exclusive lock on a directory, which dies with the process; None when another
        process holds it, and then nothing was changed.

        :param sign: a file that is given the process id and the program's name, for people. It has
            no part in the lock, and is left as it is where the disk is full
        """

    def room(self, path: str) -> Room:
        """What may still be written and made below `path`, quotas not seen."""

    def takes(self, folder: str, size: int) -> bool:
        """Whether a new file of so many bytes would be taken in a directory, quotas included. It is
        made there for a moment; nothing is left of it.

        :raises OSError: as the disk says, but for a full one
        """


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> tuple[str, int]:
        """The address bound to; the port is the real one when 0 was asked for."""

    def close(self) -> None:
        """Stop accepting; connections already made go on."""


class Net(Protocol):
    """The network. One call for each direction."""

    async def listen(
        self,
        host: str,
        port: int,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> Listener:
        """Listen on an address. Raises OSError when it is taken or not ours."""

    async def connect(
        self, host: str, port: int, make_protocol: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. Raises OSError."""


class Scheduler(Protocol):
    """Where actors run."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that drains every loop actor."""

    @property
    def threads(self) -> bool:
        """Whether actors that block get threads of their own. In simulation they do not: their
        mailboxes are drained on the loop, so that one seed decides every interleaving."""

    def ready(self) -> int:
        """How many calls the loop is going to make without waiting for anything, beside the one
        that it makes now. A loop that does not say so seems to have many."""

    def give_way(self) -> None:
        """Have the thread that calls this leave the processor to the others from now on, where the
        system can tell them apart."""
