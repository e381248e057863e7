"""Backup forms and the first bytes that identify each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from protocol.environment import File
from protocol.errors import BackupCorrupt
from storage.formats.frames import MAGIC as SEGMENT_BEGINS

MAGIC_BYTES: Final = 8
SCRIPT_BEGINS: Final = b"-- storenode script"
"""First bytes of a script backup in clear."""


class BackupFileForm(StrEnum):
    """Form of a backup. The value is its name in responses, statements and reports."""

    SNAPSHOT = "snapshot"
    LOG = "log"
    SCRIPT = "script"
    STATE = "state"
    """State image of a sealed store. It is no backup, and is never shown to users."""


EXTENSIONS: Final = {
    BackupFileForm.SNAPSHOT: ".storesnap",
    BackupFileForm.LOG: ".storelog",
    BackupFileForm.SCRIPT: ".storeql",
}
MAGIC: Final = {
    BackupFileForm.SNAPSHOT: b"STORSNAP",
    BackupFileForm.LOG: b"STORBLOG",
    BackupFileForm.SCRIPT: b"STORSCRP",
    BackupFileForm.STATE: b"STORSTAT",
}
"""First 8 bytes of a container; a script is in one only if sealed.

A segment of a store's own log has a different magic (`frames.py`), though its file name has the
extension of a log backup. So neither is mistaken for the other.
"""
assert all(len(magic) == MAGIC_BYTES for magic in MAGIC.values())


TO_COPY: Final = (
    "to move the store, copy log/ and STORE of its data directory into a new one (and state/ if"
    " the log does not begin at 1) and serve that; or take a backup with --backup"
)
"""Advice in the error for a log segment that is passed as a backup."""


def not_a_backup(file: File, other: str = "") -> BackupCorrupt:
    """Return the error for a file whose form is unknown.

    :param other: advice appended if the file is no log segment either
    """
    if file.read(0, len(SEGMENT_BEGINS)) == SEGMENT_BEGINS:
        return BackupCorrupt(
            f"this is a segment of a store's log, not a backup: {TO_COPY}", offset=0
        )
    return BackupCorrupt(f"the file does not begin with the signature of a backup{other}", offset=0)


def form_of(file: File) -> BackupFileForm | None:
    """Return the form of a file by its first bytes, whatever its name; None if it is no backup."""
    begins = file.read(0, len(SCRIPT_BEGINS))
    for form, magic in MAGIC.items():
        if begins.startswith(magic):
            return None if form is BackupFileForm.STATE else form
    return BackupFileForm.SCRIPT if begins == SCRIPT_BEGINS else None
