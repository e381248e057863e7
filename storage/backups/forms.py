"""The forms of a backup, and how a file of each begins."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from protocol.doors import File

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


def form_of(file: File) -> Form | None:
    """The form of a file by how it begins, whatever its name; None: it is no backup."""
    begins = file.read(0, len(SCRIPT_BEGINS))
    for form, magic in MAGIC.items():
        if begins.startswith(magic):
            return None if form is Form.STATE else form
    return Form.SCRIPT if begins == SCRIPT_BEGINS else None
