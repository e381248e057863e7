"""Verification of backup files: read one through and report its contents and completeness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from protocol.environment import File
from protocol.errors import BackupCorrupt, BackupCut
from storage.backups.log_file import LogBackup
from storage.backups.snapshot_file import SnapshotBackup
from storage.formats.container import (
    HEADER_BYTES,
    BackupFileForm,
    Header,
    LogFacts,
    SnapshotFacts,
    form_of,
    not_a_backup,
)
from storage.formats.sealing import Key

Result = Literal["whole", "cut", "corrupt"]
Tick = Callable[[int], None]
"""Progress callback: bytes read so far. An exception that it raises ends the verification."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Contents of a backup file; of a damaged one, those of its valid part."""

    form: BackupFileForm
    result: Result
    sealed: bool
    at: int | None = None
    """Byte offset where the valid part of a damaged file ends."""
    problem: str | None = None
    """Description of the damage for the user."""
    facts: SnapshotFacts | LogFacts | None = None
    """Metadata; None if it is damaged too."""
    sequence: int = 0
    """Sequence of the last valid commit."""
    records: int = 0
    """Table records of a snapshot; frames of a log."""
    sha256: bytes = b""
    """SHA-256 of the file, if it is whole."""


def verify(file: File, key: Key | None = None, tick: Tick | None = None) -> VerifyReport:
    """Read a snapshot or log backup through.

    Takes as long as reading the file: call it in a thread.

    :param file: closed by the caller
    :raises BackupCorrupt: the file begins as neither
    :raises WrongKey: the file is sealed with another key
    :raises StoreTooNew: a later version wrote the file
    """
    form = form_of(file)
    if form is None or form is BackupFileForm.SCRIPT:
        raise not_a_backup(file)
    try:
        sealed = Header.decode(file.read(0, HEADER_BYTES)).sealed
    except (BackupCut, BackupCorrupt) as problem:
        # The magic is intact, so the form is known; a broken header does not say if it is sealed.
        return _broken(VerifyReport(form, "cut", sealed=False), problem)
    check = _check_snapshot if form is BackupFileForm.SNAPSHOT else _check_log
    return check(file, key, tick or _nothing, VerifyReport(form, "whole", sealed))


def _check_snapshot(file: File, key: Key | None, tick: Tick, report: VerifyReport) -> VerifyReport:
    try:
        backup = SnapshotBackup(file, key)
    except (BackupCut, BackupCorrupt) as problem:
        return _broken(report, problem)
    report = replace(report, facts=backup.facts, sequence=backup.facts.at.sequence)
    try:
        for _ in backup.lists():
            tick(backup.offset)
    except (BackupCut, BackupCorrupt) as problem:
        return _broken(replace(report, records=backup.records), problem)
    # Only the digest of a whole file can be compared with that of its writer.
    return replace(report, records=backup.records, sha256=backup.sha256)


def _check_log(file: File, key: Key | None, tick: Tick, report: VerifyReport) -> VerifyReport:
    try:
        backup = LogBackup(file, key)
    except (BackupCut, BackupCorrupt) as problem:
        return _broken(report, problem)
    report = replace(report, facts=backup.facts, sequence=backup.last)
    told = backup.offset
    try:
        for _ in backup.frames():
            # Once per chunk: a chunk has many frames.
            if backup.offset != told:
                told = backup.offset
                tick(told)
    except (BackupCut, BackupCorrupt) as problem:
        # The frames before the damage are proven, so the report names how far a restore can go.
        return _broken(_read(report, backup), problem)
    return replace(_read(report, backup), sha256=backup.sha256)


def _read(report: VerifyReport, backup: LogBackup) -> VerifyReport:
    count = backup.last - backup.facts.before.sequence
    return replace(report, sequence=backup.last, records=count)


def _broken(report: VerifyReport, problem: BackupCut | BackupCorrupt) -> VerifyReport:
    offset = problem.detail["offset"]
    assert isinstance(offset, int)
    result: Result = "cut" if isinstance(problem, BackupCut) else "corrupt"
    return replace(report, result=result, at=offset, problem=problem.message)


def _nothing(done: int) -> None:
    pass
