"""A backup file read through: what it holds, and whether all of it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from protocol.doors import File
from protocol.errors import BackupCorrupt, BackupCut
from storage.backups.container import HEADER_BYTES, Header
from storage.backups.facts import LogFacts, SnapshotFacts
from storage.backups.forms import Form, form_of, not_a_backup
from storage.backups.logs import LogBackup
from storage.backups.snapshots import SnapshotBackup
from storage.sealing import Key

Result = Literal["whole", "cut", "corrupt"]
Tick = Callable[[int], None]
"""Told now and then how many bytes have been read. What it raises ends the reading."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a file holds. Of one that is not whole: as far as it is."""

    form: Form
    result: Result
    sealed: bool
    at: int | None = None
    """Of one that is not whole: the byte where what is whole ends."""
    problem: str | None = None
    """Of one that is not whole: what is wrong, for people."""
    facts: SnapshotFacts | LogFacts | None = None
    """None: not even these are whole."""
    sequence: int = 0
    """The last commit that is whole in it."""
    records: int = 0
    """Records of tables in a snapshot; of a log, frames."""
    sha256: bytes = b""
    """Of a whole file."""


def verify(file: File, key: Key | None = None, tick: Tick | None = None) -> Report:
    """Read a snapshot or a log through. Takes as long as reading the file does: for a thread.

    :param file: stays the caller's to close
    :raises BackupCorrupt: it begins as neither
    :raises WrongKey: it is sealed, and not with this key
    :raises StoreTooNew: a later version wrote it
    """
    form = form_of(file)
    if form is None or form is Form.SCRIPT:
        raise not_a_backup(file)
    try:
        sealed = Header.decode(file.read(0, HEADER_BYTES)).sealed
    except (BackupCut, BackupCorrupt) as problem:
        return _broken(Report(form, "cut", sealed=False), problem)
    check = _check_snapshot if form is Form.SNAPSHOT else _check_log
    return check(file, key, tick or _nothing, Report(form, "whole", sealed))


def _check_snapshot(file: File, key: Key | None, tick: Tick, report: Report) -> Report:
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
    return replace(report, records=backup.records, sha256=backup.sha256)


def _check_log(file: File, key: Key | None, tick: Tick, report: Report) -> Report:
    try:
        backup = LogBackup(file, key)
    except (BackupCut, BackupCorrupt) as problem:
        return _broken(report, problem)
    report = replace(report, facts=backup.facts, sequence=backup.last)
    told = backup.offset
    try:
        for _ in backup.frames():
            if backup.offset != told:
                told = backup.offset
                tick(told)
    except (BackupCut, BackupCorrupt) as problem:
        return _broken(_read(report, backup), problem)
    return replace(_read(report, backup), sha256=backup.sha256)


def _read(report: Report, backup: LogBackup) -> Report:
    count = backup.last - backup.facts.before.sequence
    return replace(report, sequence=backup.last, records=count)


def _broken(report: Report, problem: BackupCut | BackupCorrupt) -> Report:
    offset = problem.detail["offset"]
    assert isinstance(offset, int)
    result: Result = "cut" if isinstance(problem, BackupCut) else "corrupt"
    return replace(report, result=result, at=offset, problem=problem.message)


def _nothing(done: int) -> None:
    pass
