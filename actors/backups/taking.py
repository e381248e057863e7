"""Online backups: taken while the node serves, one at a time, of one snapshot at a released commit.

The content of a backup is read on the loop, in slices of the requester's fiber, so that `KILL`, its
timeout and the drain can end it between two slices. A thread writes the files (`files.py`), one
part behind the reader. The snapshot keeps entries that the state engine would compact away; a
backup of the log pins the segments that it reads. Both are released when the backup ends, whatever
the outcome, and then only the answered file is left.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from actors.backups.files import (
    AbandonBackup,
    AddPart,
    BackupFacts,
    BeginBackup,
    ConfirmBackup,
    FinishBackup,
    KeepUnnamed,
    Part,
    PublishBackup,
    ReadKept,
    RemoveKept,
)
from actors.backups.folder import BackupFolder, plain_parts
from actors.backups.listing import CloseFile, ListFiles, LookInto, OpenFile, ReadFile
from actors.commits.committer import Committer
from actors.log_pins import Pin
from actors.log_reads import LogReads
from actors.runtime import Supervised, ask, tell
from protocol import limits
from protocol.environment import Clock
from protocol.errors import BadRequest, Busy, Failed
from protocol.requests import Request
from protocol.values import Value
from protocol.version import VERSION
from storage.backups import place_copy, snapshot_file
from storage.backups.scripts import ScriptText
from storage.engine.engine import Engine
from storage.faults import LogDamaged
from storage.formats.container import (
    BackupScope,
    LogFacts,
    ScriptFacts,
    SnapshotFacts,
    WrittenBackup,
)
from storage.txn.transaction import Transaction

if TYPE_CHECKING:
    from actors.execution.fiber import Fiber

PART_BYTES: Final = limits.MIB
"""Bytes handed to the thread at once."""

Reply = TypeVar("Reply")
Text = Callable[[Transaction, int], Iterator[bytes]]
"""Renders a script from a transaction that reads a snapshot, and the sequence of that snapshot.
Raises before its first part if the script is refused."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Identity of the store, as written into its backups."""

    id: str
    created: str
    """Time of the store's creation, as ISO 8601."""


class KeptFile:
    """A backup in a temporary file without a name, kept for its requester.

    The file is deleted with this object at the latest (`protocol.requests.HeldFile`).
    """

    def __init__(self, files: Supervised[Any], number: int, written: WrittenBackup) -> None:
        self._files = files
        self._number = number
        self.form = written.form.value
        self.sequence = written.sequence
        self.size = written.size
        self.sha256 = written.sha256
        self._end = weakref.finalize(self, _forget, files, number)
        self._end.atexit = False

    @property
    def kept(self) -> bool:
        """True if it can still be read."""
        return self._end.alive

    def close(self) -> None:
        """Delete the file, after it was read or if the client needs it no more. Idempotent."""
        self._end()

    async def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` of its bytes from `offset` on."""
        return await ask(self._files.ref, ReadKept(self._number, offset, count))


def _forget(files: Supervised[Any], number: int) -> None:
    tell(files.ref, RemoveKept(number))


class FolderFile:
    """A script of the backup folder, read from within a fiber."""

    def __init__(self, fiber: Fiber, lists: Supervised[Any], file: ScriptText) -> None:
        self._fiber, self._lists, self._file = fiber, lists, file

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes of its text, as `ScriptText.read`.

        :raises Failed: they can't be read
        """
        found: bytes = self._fiber.wait(ask(self._lists.ref, ReadFile(self._file, offset, count)))
        return found

    def close(self) -> None:
        """Close the file."""
        tell(self._lists.ref, CloseFile(self._file))


class Backups:
    """Takes backups, on the loop, in the requester's fiber.

    :param files: handle of the actor that writes them
    :param lists: handle of the actor that reads those in the folder
    """

    def __init__(
        self,
        committer: Committer,
        reads: LogReads,
        engine: Engine,
        store: StoreFacts,
        folder: BackupFolder,
        files: Supervised[Any],
        lists: Supervised[Any],
        clock: Clock,
    ) -> None:
        self._committer = committer
        self._reads = reads
        self._engine = engine
        self._store = store
        self._files = files
        self._lists = lists
        self._clock = clock
        self.folder = folder
        self.taking = False
        """True while a backup is being taken."""
        self._numbers = count(1)
        """Ids of the kept files, unique within one run."""
        self._kept: weakref.WeakSet[KeptFile] = weakref.WeakSet()
        self._taken_us: dict[str, int] = {}
        """Monotonic time of the newest backup, microseconds, by form."""

    def check_name(self, name: str | None) -> None:
        """Check the name of a new file, before the store is read.

        :raises BackupNameRefused: no file can have that name
        :raises NoBackupFolder: the node was started without a backup folder
        """
        if name is not None:
            plain_parts(name)
            self.folder.check_given()

    # --- each form --------------------------------------------------------------------------------

    def snapshot(self, fiber: Fiber, place: BackupScope | None, to: str | None) -> CompletedBackup:
        """Take a snapshot of the store, or of one namespace or database of it.

        :raises Unknown: the store has no such namespace or database
        """
        with self._one(), self._moment() as view:
            pieces = snapshot_file.pieces(view, place)
            first = next(pieces, None)
            at = fiber.wait(self._reads.position_at(view.sequence))
            facts = SnapshotFacts(
                VERSION, self._store.id, self._store.created, self._clock.wall_us(), at, place
            )
            some = () if first is None else (first,)
            estimate = self._estimate(fiber, view, () if place is None else (place,))
            return self._take(fiber, facts, to, estimate, _together(fiber, some, pieces))

    def log(self, fiber: Fiber, first: int, to: str | None) -> CompletedBackup:
        """Back up the log from the sequence `first` to the newest released one.

        :raises LogPruned: the log begins after `first`
        :raises BadRequest: the log ends before `first`
        """
        upto = self._committer.commit_index
        if first > upto + 1:
            raise BadRequest(
                f"the log ends at sequence {upto}: {first} does not exist yet", ends=upto
            )
        with self._one(), ExitStack() as held, _report_damage():
            pin = held.enter_context(self._reads.pin(first))
            before = fiber.wait(self._reads.position_at(first - 1))
            facts = LogFacts(
                VERSION, self._store.id, self._store.created, self._clock.wall_us(), before, upto
            )
            parts = self._frames(fiber, upto, held, pin)
            return self._take(fiber, facts, to, self._reads.bytes_from(first), parts)

    def script(
        self, fiber: Fiber, text: Text, to: str | None, some: Sequence[BackupScope] = ()
    ) -> CompletedBackup:
        """Take a script (logical dump).

        :param some: the namespaces and databases that it contains; empty: the whole store
        """
        with self._one(), self._moment() as view:
            chunks = text(view, view.sequence)
            first = next(chunks, b"")
            parts = _joined(first, chunks)
            estimate = self._estimate(fiber, view, some)
            store, now_us = self._store, self._clock.wall_us()
            facts = ScriptFacts(VERSION, store.id, store.created, now_us, view.sequence)
            return self._take(fiber, facts, to, estimate, parts)

    def _estimate(self, fiber: Fiber, view: Transaction, some: Sequence[BackupScope]) -> int:
        """Estimate the bytes of a backup: those of the state, or the share of some namespaces and
        databases."""
        stored = self._engine.stored_bytes()
        return int(stored * place_copy.share(view, some, fiber.tick)) if some else stored

    def listed(self, fiber: Fiber) -> list[Value]:
        """Return the files of the folder, as INFO FOR BACKUPS shows them.

        :raises NoBackupFolder: the node was started without a backup folder
        """
        ref = self._lists.ref
        over = lambda: fiber.over  # noqa: E731  (asked from the thread)
        return [
            fiber.wait(ask(ref, LookInto(listed, over)))
            for listed in fiber.wait(ask(ref, ListFiles()))
        ]

    def opened(self, fiber: Fiber, name: str) -> FolderFile:
        """Open a script of the folder; the caller closes it.

        :raises BackupNameRefused, NoBackupFolder, Unknown: of its name
        :raises WrongKey: it is sealed with none of the node's keys
        """
        opening = ask(self._lists.ref, OpenFile(name))
        try:
            return FolderFile(fiber, self._lists, fiber.wait(opening))
        except BaseException:  # the file may be opened later: close it then
            opening.add_done_callback(partial(_closed, fiber, self._lists))
            raise

    @contextmanager
    def _one(self) -> Iterator[None]:
        """Hold the right to take a backup.

        :raises Busy: another backup is being taken
        """
        if self.taking:
            raise Busy("another backup is being taken: wait until it has ended")
        self.taking = True
        try:
            yield
        finally:
            self.taking = False

    @contextmanager
    def _moment(self) -> Iterator[Transaction]:
        """Read a snapshot at the newest released sequence."""
        moment = self._committer.ledger.moment()
        view = moment.begin_transaction()
        moment.end()  # the view keeps the snapshot alive
        try:
            yield view
        finally:
            view.release()

    def _frames(self, fiber: Fiber, upto: int, held: ExitStack, pin: Pin) -> Iterator[Part]:
        """Yield the frames of the log from a pin on. The pin keeps them from being pruned until
        they are read."""
        after = pin.sequence - 1
        while after < upto:
            frames = fiber.wait(self._reads.frames(after, upto, PART_BYTES))
            after = frames[-1].sequence
            yield frames
            pin = self._moved(held, pin, after + 1)

    def _moved(self, held: ExitStack, pin: Pin, sequence: int) -> Pin:
        """Move the pin to the next frame to be read, or replace it by a new one before it
        expires."""
        # A move keeps the expiry, so it is enough only while half of the pin's life is left.
        left_us = pin.lapses_us - self._clock.monotonic_us()
        if left_us > limits.LOG_PIN_SECONDS * 500_000:
            pin.move(sequence)
            return pin
        renewed = self._reads.pin(sequence)
        held.close()
        return held.enter_context(renewed)

    # --- any form ---------------------------------------------------------------------------------

    def _take(
        self,
        fiber: Fiber,
        facts: BackupFacts,
        to: str | None,
        estimate: int,
        parts: Iterator[Part],
    ) -> CompletedBackup:
        taken = self._take_one(fiber, facts, to, estimate, parts)
        self._taken_us[taken.written.form.value] = self._clock.monotonic_us()
        return taken

    def ages_s(self) -> dict[str, float]:
        """Return the age of the newest backup of each form, seconds. Backups taken before the start
        of the node don't count."""
        now_us = self._clock.monotonic_us()
        return {form: (now_us - us) / 1_000_000 for form, us in self._taken_us.items()}

    def _take_one(
        self,
        fiber: Fiber,
        facts: BackupFacts,
        to: str | None,
        estimate: int,
        parts: Iterator[Part],
    ) -> CompletedBackup:
        if to is None and sum(file.kept for file in self._kept) >= limits.BACKUPS_KEPT:
            raise Busy(f"too many backups are being read: the limit is {limits.BACKUPS_KEPT}")
        number, done = next(self._numbers), False
        try:
            self._wait(fiber, BeginBackup(facts, to, estimate))
            self._write(fiber, parts)
            written = self._wait(fiber, FinishBackup(lambda: fiber.over))
            if to is None:
                self._wait(fiber, KeepUnnamed(number))
                file = KeptFile(self._files, number, written)
                self._kept.add(file)
                done = True
                return CompletedBackup(written, file)
            self._wait(fiber, PublishBackup())
            tell(self._files.ref, ConfirmBackup())
            done = True
            return CompletedBackup(written, None)
        finally:
            if not done:
                tell(self._files.ref, AbandonBackup())
                tell(self._files.ref, RemoveKept(number))

    def _write(self, fiber: Fiber, parts: Iterator[Part]) -> None:
        """Write each part while the next is read."""
        writing: asyncio.Future[None] | None = None
        try:
            for part in parts:
                if writing is not None:
                    fiber.wait(writing)
                writing = ask(self._files.ref, AddPart(part))
            if writing is not None:
                fiber.wait(writing)
        finally:
            if writing is not None:  # the requester may have been killed while it waited
                writing.add_done_callback(retrieve_result)

    def _wait(self, fiber: Fiber, asked: Request[Reply]) -> Reply:
        found: Reply = fiber.wait(ask(self._files.ref, asked))
        return found


@dataclass(frozen=True, slots=True)
class CompletedBackup:
    """A completed backup."""

    written: WrittenBackup
    file: KeptFile | None
    """The file of a backup without a name; None: it is in the backup folder."""


def _together(
    fiber: Fiber,
    first: Sequence[snapshot_file.SnapshotPiece],
    pieces: Iterator[snapshot_file.SnapshotPiece],
) -> Iterator[Part]:
    """Group the pieces of a snapshot into parts of about `PART_BYTES`."""
    found = list(first)
    size = sum(len(piece.data) for piece in found)
    for piece in pieces:
        found.append(piece)
        size += len(piece.data)
        if size >= PART_BYTES:
            yield found
            found, size = [], 0
        fiber.tick()
    yield found


def _joined(first: bytes, chunks: Iterator[bytes]) -> Iterator[Part]:
    """Group the text of a script into parts of about `PART_BYTES`."""
    found, size = [first], len(first)
    for chunk in chunks:
        found.append(chunk)
        size += len(chunk)
        if size >= PART_BYTES:
            yield b"".join(found)
            found, size = [], 0
    yield b"".join(found)


@contextmanager
def _report_damage() -> Iterator[None]:
    """Report a damaged log to the client.

    :raises Failed: a frame that is needed is damaged
    """
    try:
        yield
    except LogDamaged as damage:
        raise Failed(
            f"the log is damaged at commit {damage.sequence}: take a snapshot instead",
            sequence=damage.sequence,
        ) from damage


def _closed(fiber: Fiber, lists: Supervised[Any], opened: asyncio.Future[ScriptText]) -> None:
    """Close a file that was opened after its requester had ended."""
    if not opened.cancelled() and opened.exception() is None:
        FolderFile(fiber, lists, opened.result()).close()


def retrieve_result(done: asyncio.Future[None]) -> None:
    """Retrieve the result of a write, so that asyncio logs no unretrieved exception."""
    if not done.cancelled():
        done.exception()
