"""The forms of a backup, and how a file of each begins."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from protocol.doors import File
from protocol.errors import BackupCorrupt
from storage.frames import MAGIC as SEGMENT_BEGINS

MAGIC_BYTES: Final = 8
SCRIPT_BEGINS: Final = b"-- storenode script"
"""The first bytes of a script that was written as a backup."""


class Form(StrEnum):
    """What a backup is. The value is its name in answers, statements and reports."""

    SNAPSHOT = "snapshot"
    LOG = "log"
    SCRIPT = "script"
    STATE = "state"
    """No backup, but the image that a sealed store has of its state: nobody is shown one."""


EXTENSIONS: Final = {
    Form.SNAPSHOT: ".storesnap",
    Form.LOG: ".storelog",
    Form.SCRIPT: ".storeql",
}
MAGIC: Final = {
    Form.SNAPSHOT: b"STORSNAP",
    Form.LOG: b"STORBLOG",
    Form.SCRIPT: b"STORSCRP",
    Form.STATE: b"STORSTAT",
}
"""The first bytes of a container; a script is in one where it is sealed. A segment of a store's own
log begins otherwise (`frames.py`), though its name ends as a log backup's does: neither is taken
for the other."""
assert all(len(magic) == MAGIC_BYTES for magic in MAGIC.values())


TO_COPY: Final = (
    "to have the store elsewhere, copy log/ and STORE of its data directory into a new one (state/"
    " too where the log does not begin at 1), and serve that; or take a backup, --backup"
)
"""What helps whoever has a log, or a part of one, and no backup."""


def not_a_backup(file: File, other: str = "") -> BackupCorrupt:
    """The refusal of a file that `form_of` does not know.

    :param other: what helps where it is no segment of a log
    """
    if file.read(0, len(SEGMENT_BEGINS)) == SEGMENT_BEGINS:
        return BackupCorrupt(
            f"it is a segment of a store's log, and no backup: {TO_COPY}", offset=0
        )
    return BackupCorrupt(f"it does not begin as a backup does{other}", offset=0)


def form_of(file: File) -> Form | None:
    """The form of a file by how it begins, whatever its name; None: it is no backup."""
    begins = file.read(0, len(SCRIPT_BEGINS))
    for form, magic in MAGIC.items():
        if begins.startswith(magic):
            return None if form is Form.STATE else form
    return Form.SCRIPT if begins == SCRIPT_BEGINS else None
