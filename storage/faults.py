"""Why a store does not open, or stops: what is wrong with the directory, its files or the disk.

None of these is an answer to a caller (those are in `protocol/errors.py`): they end a start, a
command or the node, and their text is for whoever runs it.
"""

from __future__ import annotations


class StoreFault(Exception):
    """Something about a store that only its operator can put right."""


class StoreMissing(StoreFault):
    """No store at that path."""


class StoreForeign(StoreFault):
    """The directory holds what no store made, or data without the file that names its store."""


class StoreUnfinished(StoreFault):
    """A restore or a copy into the directory did not come to its end: what is there is no store
    yet."""


class NotRestored(StoreFault):
    """A backup does not go into this directory. Nothing was changed."""


class NotJoined(StoreFault):
    """A store of other nodes is not copied into this directory. Nothing was changed."""


class CopyFailed(StoreFault):
    """What other nodes gave as a copy of their store is not one, or not the one that was asked for.
    What is there is no store."""


class StoreNotSealed(StoreFault):
    """A key was given, and the store, or a file of a sealed one, is in clear."""


class StoreLocked(StoreFault):
    """Another process has the store open."""


class StoreTooNew(StoreFault):
    """A newer version wrote the store. It was not touched."""


class StoreTooOld(StoreFault):
    """An earlier version wrote the store, in a format that this one does not read. It was not
    touched."""


class StateForeign(StoreFault):
    """The state is not made of this log: another store's, or of a history that went on otherwise.
    Nothing of it was served."""


class StateDamaged(StoreFault):
    """The state can't be read, and can't be made anew from the log here and now."""


class ClockRefused(StoreFault):
    """The wall clock is so far ahead of the log that it is more likely to be wrong. Nothing was
    written by it."""


class StoreOpenToOthers(StoreFault):
    """The data directory can be read or written by other users, and could not be closed to them."""


class StoreDamaged(StoreFault):
    """A file of the store is not what was written to it."""


class LogDamaged(StoreDamaged):
    """The log lacks, or holds wrongly, something that was or may have been acknowledged.

    :param file: path of the segment, or of the log's directory when a whole segment is missing
    :param offset: byte offset in that file
    :param sequence: the sequence that should be there
    """

    def __init__(self, file: str, offset: int, sequence: int, what: str) -> None:
        super().__init__(f"{file} is damaged at byte {offset}, sequence {sequence}: {what}")
        self.file = file
        self.offset = offset
        self.sequence = sequence
        self.what = what


class LogFailed(StoreFault):
    """The disk refused to take the log for good.

    Whether the frames under way reached it is unknown. The log takes nothing more; the next open
    reads what the disk really holds.
    """
