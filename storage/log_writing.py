"""The last segment of a log: how bytes get into it, and how a failure of the disk is final.

What is written when, and why, stands in log.py, with the numbers of the invariants.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from protocol.doors import File, Room
from protocol.errors import DiskFull, UnknownOutcome
from storage.faults import LogFailed
from storage.log_reading import LogReader
from storage.reserve import NO_ROOM, disk_full

_PLENTY: Final = 256
"""Zeros are put ahead while the disk has room for so many times as many."""


class LogWriter(LogReader):
    """A log whose last segment is open. One thread uses it."""

    # --- bytes -----------------------------------------------------------------------------------

    def _write(self, data: bytes, reserved: bool, first: int | None, ends: bool = False) -> None:
        """Append bytes to the last segment and sync it.

        :param first: so many of them are the first frame; None: nobody is told of it, a mark
        :param ends: nothing will follow them
        :raises DiskFull, UnknownOutcome: see `_cut_back`
        """
        file = self._file
        assert file is not None, "the log is closed"
        ahead = 0 if ends else self._zeros_wanted(len(data))
        error = self._try(file, data, first, ahead)
        if error is not None and ahead:
            error = self._try(file, data, first)
        for give_up in (self._reserve.lend, self._reserve.release):
            if error is not None and reserved and give_up():
                error = self._try(file, data, first)
        if error is not None:
            raise disk_full() from error
        try:
            file.sync()
        except OSError as failure:
            self._fail(failure)

    def _try(self, file: File, data: bytes, first: int | None, ahead: int = 0) -> OSError | None:
        """Write once. Answers how a full disk refused it, when nothing of it is left."""
        try:
            file.append(data, ahead)
        except OSError as error:
            if error.errno not in NO_ROOM:
                self._fail(error)
            self._cut_back(file, data, first)
            return error
        self._zeros = ahead or max(self._zeros - len(data), 0)
        return None

    def _zeros_wanted(self, count: int) -> int:
        """How many zeros to put behind the next `count` bytes: none while there are some yet, and
        none where room or the segment is running out."""
        ahead = self._sizes.ahead_bytes
        left = self._sizes.segment_bytes - self._segments[-1].size - count
        if count <= self._zeros or count > ahead // 4 or left <= 0:
            return 0
        if self._fs.room(self._path).bytes < _PLENTY * ahead:
            return 0
        return min(ahead, left)

    def _take_zeros_off(self, reserved: bool) -> None:
        """Give the last segment the size that its frames have, durably: nothing is added to it.

        :raises DiskFull: it has the size that it had
        """
        if not self._zeros:
            return
        assert self._file is not None, "the log is closed"
        self._shorten(self._file, reserved)
        self._zeros = 0

    def _cut_back(self, file: File, data: bytes, first: int | None) -> None:
        """Take off what a failed write left, durably, before anybody hears of the failure.

        :param data: what was written
        :param first: so many bytes of it are its first frame; None: it may be there
        :raises DiskFull: not even that finds room. What is left is no frame
        :raises UnknownOutcome: likewise, and there are frames in it, which a start would find
        """
        self._zeros, self._worn = 0, True
        try:
            self._shorten(file, reserved=True)
        except DiskFull as refusal:
            self._torn = True
            # A start takes what is whole for written, and cuts the rest. What the first frame lacks
            # was not written, or it would be read here: no crash makes it whole.
            if first is None or file.read(self._segments[-1].size, first) != data[:first]:
                raise
            raise UnknownOutcome(
                "the disk is full, and what was written of this can't be taken back before there is"
                " room: it may be there after the next start, or not",
                sequence=self.last + 1,
            ) from refusal

    def _cut_torn(self, reserved: bool) -> None:
        """Take off what an earlier write left that found no room to be cut back.

        :raises DiskFull: there is none yet
        """
        if self._torn:
            assert self._file is not None, "the log is closed"
            self._shorten(self._file, reserved)
            self._torn = False

    def _shorten(self, file: File, reserved: bool) -> None:
        """Give the last segment the size that its frames have, durably. A file system that copies
        what it changes (Btrfs) refuses that too when a quota is used up; removing a file is what it
        takes always, and the reserve is one.

        :raises DiskFull: it was not done
        """
        try:
            self._reserve.spend(partial(_truncate, file, self._segments[-1].size), reserved)
            file.sync()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError | DiskFull) -> NoReturn:
        """Invariant 5: from here on the log takes nothing, and its file is left alone."""
        self._failed = LogFailed(f"the log in {self._path} failed: {error}")
        raise self._failed from error

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise LogFailed(str(self._failed))
        assert self._file is not None, "the log is closed"

    # --- room ------------------------------------------------------------------------------------

    def _require_room(self, reserved: bool, spare: Room | None, writing: int) -> None:
        """Once the reserve was given up, ordinary frames wait until it could be filled again."""
        if not (reserved or self._reserve.held or self._reserve.fill()):
            raise disk_full()
        if spare is None or self.headroom.covers(spare, writing):
            return
        while reserved and self._reserve.lend():
            if self.headroom.covers(spare, 0):
                return
        raise disk_full()

    def may_take(self, spare: Room) -> bool:
        """Whether ordinary frames seem to find room, and to leave so much: a look from any thread
        that binds nobody. Quotas are not seen."""
        room = self._fs.room(self._path)
        missing = 0 if self._reserve.held else self._sizes.reserve_bytes
        return room.holds(Room(spare.bytes + missing, spare.files))


def _truncate(file: File, size: int) -> None:
    """:raises DiskFull: it is as long as it was"""
    try:
        file.truncate(size)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise disk_full() from error
