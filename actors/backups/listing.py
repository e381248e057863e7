"""Backup listing: reads each file of the backup folder through to verify it.

Reading takes as long as the disk does. So the result for a file is cached by its path, size and
time of change; a repeated listing reads only files that are new or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from actors.backups.folder import BackupFolder, Listed
from actors.backups.script_files import whole
from actors.runtime import Runtime, ThreadActor, handles
from protocol import limits
from protocol.bounded_cache import BoundedCache
from protocol.environment import File
from protocol.errors import (
    BackupCorrupt,
    BackupCut,
    BackupNameRefused,
    Cancelled,
    Failed,
    Refusal,
    TooLarge,
    Unknown,
    WrongKey,
)
from protocol.requests import Request
from protocol.values import Value, instant
from storage.backups.scripts import ScriptText
from storage.backups.verify import verify
from storage.faults import StoreTooNew
from storage.formats.container import (
    BackupFileForm,
    LogFacts,
    SnapshotFacts,
    form_of,
    key_for,
    not_a_backup,
)
from storage.formats.sealing import Key

REMEMBERED: Final = 2 * limits.BACKUPS_LISTED

Over = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ListFiles(Request[list[Listed]]):
    """List the files of the folder."""


@dataclass(frozen=True, slots=True)
class LookInto(Request[dict[str, Value]]):
    """Read a file through and describe it."""

    listed: Listed
    over: Over
    """Returns True once the client no longer waits."""


@dataclass(frozen=True, slots=True)
class OpenFile(Request[ScriptText]):
    """Open a backup script. The client has to close it."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadFile(Request[bytes]):
    """Read a range of the text of an open script."""

    file: ScriptText
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class CloseFile:
    """Close an open script."""

    file: ScriptText


class BackupListActor(ThreadActor):
    """Reads the files of the backup folder. :param keys: keys that open sealed files"""

    low_priority = True

    def __init__(self, runtime: Runtime, folder: BackupFolder, keys: Sequence[Key]) -> None:
        super().__init__(runtime)
        self._folder = folder
        self._keys = keys
        self._known: BoundedCache[dict[str, Value]] = BoundedCache(most=REMEMBERED)

    @handles(ListFiles)
    def list_files(self, _asked: ListFiles) -> list[Listed]:
        """Return the files, sorted by name.

        :raises TooLarge: there are too many
        :raises NoBackupFolder: the folder can't be used
        """
        found: list[Listed] = []
        for listed in self._folder.files():
            if len(found) == limits.BACKUPS_LISTED:
                most = limits.BACKUPS_LISTED
                raise TooLarge(
                    f"the backup folder has too many files: at most {most} can be listed",
                    limit=most,
                )
            found.append(listed)
        return sorted(found)

    @handles(OpenFile)
    def open_file(self, asked: OpenFile) -> ScriptText:
        """Open a script.

        :raises BackupNameRefused, NoBackupFolder, Unknown: from its name
        :raises WrongKey, BackupCut, BackupCorrupt: it is sealed and can't be opened
        """
        file = self._folder.open(asked.name)
        try:
            return ScriptText(file, self._keys)
        except BaseException as problem:
            file.close()
            if isinstance(problem, OSError):
                raise _unread(problem) from problem
            raise

    @handles(ReadFile)
    def read_file(self, asked: ReadFile) -> bytes:
        """Return a range of an open script's text. :raises Failed: it can't be read"""
        try:
            return asked.file.read(asked.offset, asked.count)
        except OSError as error:
            raise _unread(error) from error

    @handles(CloseFile)
    def close_file(self, message: CloseFile) -> None:
        message.file.close()

    @handles(LookInto)
    def look_into(self, asked: LookInto) -> dict[str, Value]:
        """Return the row of a file in the listing. :raises Cancelled: the client no longer waits"""
        listed = asked.listed
        known = self._known.get(listed)
        if known is not None:
            return known
        try:
            file = self._folder.open(listed.path)
        except Unknown:
            return {**_unknown(listed), "problem": "the file was removed meanwhile"}
        except (BackupNameRefused, Failed) as problem:
            return {**_unknown(listed), "problem": problem.message}
        with closing(file):
            try:
                found = self._of_file(file, asked.over)
            except Cancelled:
                raise
            except OSError as error:  # no verdict on the file: not cached, so read again
                return {**_unknown(listed), "problem": _unread(error).message}
            except (Refusal, StoreTooNew) as problem:
                found = {"problem": str(problem)}
        known = {**_unknown(listed), **found}
        self._known.keep(listed, known)
        return known

    def _of_file(self, file: File, over: Over) -> dict[str, Value]:
        form = form_of(file)
        if form is None:
            return {"problem": not_a_backup(file).message}
        if form is BackupFileForm.SCRIPT:
            return {"form": form.value, **self._script(file, over)}

        def tick(done: int) -> None:
            _check_over(over)

        try:
            report = verify(file, key_for(file, self._keys), tick)
        except WrongKey as problem:
            return {"form": form.value, **_closed(problem)}
        found: dict[str, Value] = {
            "form": form.value,
            "sequence": report.sequence or None,
            "sealed": report.sealed,
            "verifies": report.result == "whole",
            "problem": report.problem,
        }
        facts = report.facts
        if isinstance(facts, SnapshotFacts | LogFacts):
            found["at"] = instant(facts.taken_us)
        if isinstance(facts, SnapshotFacts) and facts.place is not None:
            found["place"] = str(facts.place)
        return found

    def _script(self, file: File, over: Over) -> dict[str, Value]:
        try:
            text = ScriptText(file, self._keys)
        except WrongKey as problem:
            return _closed(problem)
        found: dict[str, Value] = {"sealed": text.sealed, "verifies": True}
        if text.facts is not None:
            found |= {"at": instant(text.facts.taken_us), "sequence": text.facts.sequence}
        try:
            for _ in whole(text.read):
                _check_over(over)
        except (BackupCut, BackupCorrupt, TooLarge) as problem:
            found |= {"verifies": False, "problem": problem.message}
        return found


def _unknown(listed: Listed) -> dict[str, Value]:
    """Return the row of a file of which only its directory entry is known."""
    return {
        "path": listed.path,
        "form": None,
        "bytes": listed.entry.bytes,
        "at": instant(listed.entry.changed_us),
        "sequence": None,
        "place": None,
        "sealed": False,
        "verifies": False,
        "problem": None,
    }


def _closed(problem: WrongKey) -> dict[str, Value]:
    """Return the known fields of a file that none of the keys opens."""
    return {"sealed": True, "problem": f"{problem.code}: {problem.message}"}


def _unread(error: OSError) -> Failed:
    return Failed(f"a backup can't be read: {error.strerror}")


def _check_over(over: Over) -> None:
    if over():
        raise Cancelled("the request for the list of backups has ended")
