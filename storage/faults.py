"""Faults: reasons why a store does not open or has to stop, in its directory, files or disk.

None of these answers a request (see `protocol/errors.py` for those). They end a start, a command or
the node, and their text is for the operator.
"""

from __future__ import annotations


class StoreFault(Exception):
    """A problem of a store that only its operator can fix."""


class StoreMissing(StoreFault):
    """There is no store at that path."""


class StoreForeign(StoreFault):
    """The directory holds foreign files, or data without the file STORE."""


class StoreUnfinished(StoreFault):
    """A restore or a copy into the directory was interrupted; it is not a store yet."""


class NotRestored(StoreFault):
    """This directory is not suitable for a restore. Nothing was changed."""


class NotJoined(StoreFault):
    """This directory is not suitable for a copy of a store. Nothing was changed."""


class CopyFailed(StoreFault):
    """The data that other nodes sent is no copy of a store, or not of the requested one. The
    directory is not a store."""


class StoreNotSealed(StoreFault):
    """A key was given, but the store, or a file of a sealed store, is in clear."""


class StoreLocked(StoreFault):
    """Another process has the store open."""


class StoreTooNew(StoreFault):
    """A later version wrote the store. It was not changed."""


class StoreTooOld(StoreFault):
    """An earlier version wrote the store, in a format that this one does not read. It was not
    changed."""


class StateForeign(StoreFault):
    """The state was not built from this log: it belongs to another store or a diverged history.
    None of it was served."""


class StateDamaged(StoreFault):
    """The state can't be read, and can't be rebuilt from the log here."""


class ClockRefused(StoreFault):
    """The wall clock is so far ahead of the log that it is probably wrong. Nothing was written with
    it."""


class StoreOpenToOthers(StoreFault):
    """Other users can read or write the data directory, and their access could not be removed."""


class StoreOfAnotherUser(StoreFault):
    """The data directory belongs to another user than that of this process."""


class StoreDamaged(StoreFault):
    """A file of the store is corrupt."""


class LogDamaged(StoreDamaged):
    """The log lacks or garbles an entry that was or may have been acknowledged.

    :param file: path of the segment, or of the log's directory if a whole segment is missing
    :param offset: byte offset in that file
    :param sequence: the sequence expected there
    """

    def __init__(self, file: str, offset: int, sequence: int, what: str) -> None:
        super().__init__(f"{file} is damaged at byte {offset}, sequence {sequence}: {what}")
        self.file = file
        self.offset = offset
        self.sequence = sequence
        self.what = what


class LogFailed(StoreFault):
    """The disk permanently refused a write to the log.

    Frames in flight may or may not be durable. The log accepts no more; the next open reads the
    disk's actual content.
    """
