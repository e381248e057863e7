"""Description of a backup file, for a command: its metadata, and if it is complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.backups.script_files import Read, ScriptText, pieces
from protocol.environment import File
from protocol.errors import BackupCorrupt, BackupCut
from protocol.text import format_datetime
from protocol.values import instant
from storage.backups.verify import VerifyReport, verify
from storage.formats.container import (
    MAGIC,
    MAGIC_BYTES,
    BackupFileForm,
    LogFacts,
    SnapshotFacts,
    form_of,
    key_for,
)
from storage.formats.container import TO_COPY as TO_COPY
from storage.formats.sealing import Key


@dataclass(frozen=True, slots=True)
class Description:
    """Result of reading a backup through."""

    facts: dict[str, object]
    """Facts by name; of an incomplete backup, those found up to the fault."""
    problem: str | None
    """Reason why it is incomplete, for people; None: it is whole."""


def is_backup(file: File) -> bool:
    """True if a file begins like a backup of any form."""
    return form_of(file) is not None


def describe(file: File, keys: Sequence[Key], tick: Callable[[int, int], None]) -> Description:
    """Read a backup of any form through, and describe it.

    :param tick: called with the bytes read and the bytes in all
    :raises BackupCorrupt: the file does not begin like a backup
    :raises WrongKey: it is sealed, with none of these keys
    :raises StoreTooNew: a later version wrote it
    """
    size, form = file.size(), form_of(file)
    if form is BackupFileForm.SCRIPT:
        return _of_script(file, keys, tick)
    try:
        key = key_for(file, keys) if form is not None else None
    except (BackupCut, BackupCorrupt):
        key = None  # `verify` reports the damage again
    found = verify(file, key, lambda done: tick(done, size))
    return Description(_facts(found), found.problem)


def _facts(found: VerifyReport) -> dict[str, object]:
    facts: dict[str, object] = {"form": found.form.value}
    about = found.facts
    if about is not None:
        facts["version"] = about.version
        facts["store"] = about.store
        facts["taken"] = format_datetime(instant(about.taken_us))
    if isinstance(about, LogFacts):
        facts["from"] = about.first
    place = about.place if isinstance(about, SnapshotFacts) else None
    facts |= {
        "sequence": found.sequence,
        "records": found.records,
        "places": "all" if place is None else str(place),
        "sealed": "yes" if found.sealed else "no",
        "result": found.result,
    }
    if found.at is not None:
        facts["at"] = found.at
    return facts


def _of_script(file: File, keys: Sequence[Key], tick: Callable[[int, int], None]) -> Description:
    facts: dict[str, object] = {"form": BackupFileForm.SCRIPT.value}
    statements, result, problem = 0, "whole", None
    try:
        text = ScriptText(file, keys)
        if text.facts is not None:
            facts |= {"version": text.facts.version, "store": text.facts.store}
        for _ in pieces(_told_of(text, tick)):
            statements += 1
    except (BackupCut, BackupCorrupt) as broken:
        result = "cut" if isinstance(broken, BackupCut) else "corrupt"
        problem = broken.message
    sealed = "yes" if file.read(0, MAGIC_BYTES) == MAGIC[BackupFileForm.SCRIPT] else "no"
    return Description(
        {**facts, "statements": statements, "sealed": sealed, "result": result}, problem
    )


def _told_of(text: ScriptText, tick: Callable[[int, int], None]) -> Read:
    size = text.size()

    def read(offset: int, count: int) -> bytes:
        tick(min(offset + count, size), size)
        return text.read(offset, count)

    return read
