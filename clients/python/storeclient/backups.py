"""Snapshots of a node into local files.

A snapshot is streamed in parts over a separate connection: it may be large, and a slow writer must
not delay other answers. The file gets its final name only when it is complete.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from storeclient.answers import Answer
from storeclient.errors import OutcomeUnknown, ProtocolBroken, StoreError
from storeclient.exchange import NotSent, Reply, StreamedMessage
from storeclient.files import give_name
from storeclient.names import quote_name

fcntl: Any = import_module("fcntl") if os.name == "posix" else None
"""File locks. None on systems without them: there two writers of one file do not detect each other.
"""

PARTIAL: Final = ".partial"
"""Suffix of an incomplete file."""
_BEGINS: Final = b"STORSNAP"
"""First bytes of a snapshot."""
AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Bytes received but not yet written; with more the connection is not read (backpressure)."""

Progress = Callable[[int, int], None]
"""Called with the bytes written, and the total."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A completed snapshot."""

    path: str
    bytes: int
    form: str
    """`snapshot`."""
    records: int
    """Number of table records in it."""
    version: str
    """Version of the node that made it."""


class PartQueue:
    """Queue of the parts of one snapshot.

    :param pause: stops reading the connection; :param resume: continues it
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._come: deque[dict[str, Any]] = deque()
        self._bytes = 0
        self._paused = False
        self._end: Reply = None
        self._over = False
        self._news: asyncio.Future[None] | None = None

    def take(self, reply: Reply) -> None:
        """Take a part, or the end of the stream."""
        if isinstance(reply, StreamedMessage):
            self._come.append(reply.body)
            self._bytes += reply.size
            if self._bytes > AHEAD_BYTES and not self._paused:
                self._paused = True
                self._pause()
        else:
            self._end, self._over = reply, True
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def next(self) -> dict[str, Any] | None:
        """Return the next part, or None after the last, when `answer` is available.

        :raises StoreError: the request was refused, or the connection broke
        """
        while not self._come:
            if self._over:
                if isinstance(self._end, StoreError):
                    raise self._end
                if isinstance(self._end, NotSent):
                    raise OutcomeUnknown("the connection ended before anything was sent")
                return None
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        part = self._come.popleft()
        self._bytes -= len(part.get("bytes", b""))
        if self._paused and not self._come:
            self._paused, self._bytes = False, 0
            self._resume()
        return part

    @property
    def answer(self) -> Answer:
        """Answer of the node after the last part."""
        if not isinstance(self._end, Answer):
            raise ProtocolBroken("the node ended a snapshot with an invalid answer")
        return self._end


def statement(ns: str | None, db: str | None) -> str:
    """Return the BACKUP statement. :raises ValueError: a database without its namespace"""
    if ns is None:
        if db is not None:
            raise ValueError("a database needs its namespace: give ns and db")
        return "BACKUP"
    if db is None:
        return f"BACKUP OF NAMESPACE {quote_name(ns)}"
    return f"BACKUP OF {quote_name(ns)}.{quote_name(db)}"


class Target:
    """Target file of a snapshot. Locked until it has its final name: a second writer is refused,
    and cannot mistake the unfinished file for a truncated one.

    :raises FileExistsError: the file exists, or another process is writing it
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._partial = path + PARTIAL
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists; choose another name")
        with suppress(FileNotFoundError):
            if _is_held(self._partial):
                raise FileExistsError(f"another process is writing {path}")
            if not _was_cut_off(self._partial):
                why = "it is not a partial snapshot; remove it, or choose another name"
                raise FileExistsError(f"{self._partial} exists: {why}")
            os.unlink(self._partial)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(self._partial, flags, 0o600), "wb")
        if not _hold(self._file.fileno()):  # another process was just testing the lock
            self._file.close()
            raise FileExistsError(f"another process is writing {path}")

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)

    def publish(self) -> None:
        """Make the complete file durable (fsync), and give it its final name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if fcntl is None:  # Windows cannot rename an open file
            self._file.close()
        give_name(self._partial, self.path)
        self._file.close()

    def abandon(self) -> None:
        """Remove the unfinished file. No effect after `publish`."""
        if self._file.closed and fcntl is not None:
            return  # a file of that name now belongs to another process
        if fcntl is None:
            self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._partial)
        self._file.close()


def _was_cut_off(path: str) -> bool:
    """True if a file is a truncated snapshot, and not an unrelated file."""
    with open(path, "rb") as file:
        return _BEGINS.startswith(file.read(len(_BEGINS)))


def _is_held(path: str) -> bool:
    """True if some process has created the file and still has it open. Raises like `os.open`."""
    if fcntl is None:
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        return not _hold(descriptor)
    finally:
        os.close(descriptor)


def _hold(descriptor: int) -> bool:
    """Lock an open file until it is closed. Return False if another process has the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


async def write(parts: PartQueue, target: Target, progress: Progress | None) -> Backup:
    """Write all parts, each in a thread.

    :raises ProtocolBroken: the parts are not consecutive or not complete
    """
    done = 0
    while (part := await parts.next()) is not None:
        data = part.get("bytes")
        if not isinstance(data, bytes) or part.get("done") != done + len(data):
            raise ProtocolBroken("a part of the snapshot is missing")
        await asyncio.to_thread(target.write, data)
        done += len(data)
        total = part.get("total")
        if not isinstance(total, int) or done > total:
            raise ProtocolBroken("the snapshot has more parts than announced")
        if progress is not None:
            progress(done, total)
        whole = done == total
    if not done or not whole:
        raise ProtocolBroken("the snapshot ended before its last part")
    said = parts.answer.value
    if not isinstance(said, dict):
        raise ProtocolBroken("the node did not say what the snapshot holds")
    await asyncio.to_thread(target.publish)
    records = said.get("records")
    return Backup(
        target.path,
        done,
        str(said.get("form")),
        records if isinstance(records, int) else 0,
        str(said.get("version")),
    )
