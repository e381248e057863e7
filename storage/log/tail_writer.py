"""Write side of the log's last segment; any failure of the disk is final.

log.py has the write protocol and the numbered invariants.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from protocol.environment import File, Room
from protocol.errors import DiskFull, UnknownOutcome
from storage.faults import LogFailed
from storage.files.disk_reserve import NO_ROOM, disk_full
from storage.log.reader import LogReader

_PLENTY: Final = 256
"""Zeros are preallocated only while the disk has this many times as much room."""


class LogWriter(LogReader):
    """Log whose last segment is open for writing. Owned by one thread."""

    # --- bytes -----------------------------------------------------------------------------------

    def _write(self, data: bytes, reserved: bool, first: int | None, ends: bool = False) -> None:
        """Append bytes to the last segment and fsync it.

        :param first: bytes of the first frame in `data`; None: a mark, which acknowledges no frame
        :param ends: no bytes will follow
        :raises DiskFull, UnknownOutcome: see `_cut_back`
        """
        file = self._file
        assert file is not None, "the log is closed"
        ahead = 0 if ends else self._zeros_wanted(len(data))
        error = self._try(file, data, first, ahead)
        if error is not None and ahead:
            # The zeros alone may be too much: try without them.
            error = self._try(file, data, first)
        # One file of the reserve first, then all of it.
        for give_up in (self._reserve.lend, self._reserve.release):
            if error is not None and reserved and give_up():
                error = self._try(file, data, first)
        if error is not None:
            raise disk_full() from error
        try:
            file.sync()
        except OSError as failure:
            # Final: after a failed fsync the kernel may drop dirty pages, and report success.
            self._fail(failure)

    def _try(self, file: File, data: bytes, first: int | None, ahead: int = 0) -> OSError | None:
        """Write once. On a full disk, cut the write back and return the error."""
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
        """Return the number of zeros to preallocate behind the next `count` bytes.

        None while earlier zeros are left, or while disk space or the segment runs out.
        """
        ahead = self._sizes.ahead_bytes
        left = self._sizes.segment_bytes - self._segments[-1].size - count
        if count <= self._zeros or count > ahead // 4 or left <= 0:
            return 0
        if self._fs.room(self._path).bytes < _PLENTY * ahead:
            return 0
        return min(ahead, left)

    def _take_zeros_off(self, reserved: bool) -> None:
        """Truncate the preallocated zeros, durably, because the segment is finished.

        :raises DiskFull: the segment keeps its size
        """
        if not self._zeros:
            return
        assert self._file is not None, "the log is closed"
        self._shorten(self._file, reserved)
        self._zeros = 0

    def _cut_back(self, file: File, data: bytes, first: int | None) -> None:
        """Truncate a failed write, durably, before the failure is reported.

        :param data: the data of that write
        :param first: bytes of its first frame; None: a mark, which may stay
        :raises DiskFull: there is no room even for that; the rest holds no whole frame
        :raises UnknownOutcome: likewise, but whole frames are left, which a start would find
        """
        # The next frames go to a new segment, whose salt voids left-over bytes.
        self._zeros, self._worn = 0, True
        try:
            self._shorten(file, reserved=True)
        except DiskFull as refusal:
            self._torn = True
            # A start keeps whole frames, and cuts the rest. If the first frame does not read back
            # whole, its missing part was never written, and no crash makes it whole.
            if first is None or file.read(self._segments[-1].size, first) != data[:first]:
                raise
            raise UnknownOutcome(
                "the disk is full and a partly written commit cannot be rolled back until there"
                " is room: the next start may find it or not",
                sequence=self.last + 1,
            ) from refusal

    def _cut_torn(self, reserved: bool) -> None:
        """Truncate the rest of an earlier write that could not be cut back for lack of room.

        :raises DiskFull: there is still no room
        """
        if self._torn:
            assert self._file is not None, "the log is closed"
            self._shorten(self._file, reserved)
            self._torn = False

    def _shorten(self, file: File, reserved: bool) -> None:
        """Truncate the last segment to its frames, durably.

        A copy-on-write file system (Btrfs) refuses even that if a quota is used up. It always
        allows a file to be removed, so the reserve is one.

        :raises DiskFull: the segment keeps its size
        """
        try:
            self._reserve.spend(partial(_truncate, file, self._segments[-1].size), reserved)
            file.sync()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError | DiskFull) -> NoReturn:
        """Mark the log as failed for good (invariant 5): no more writes, and its file is left
        alone."""
        self._failed = LogFailed(f"the log in {self._path} failed: {error}")
        raise self._failed from error

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise LogFailed(str(self._failed))
        assert self._file is not None, "the log is closed"

    # --- room ------------------------------------------------------------------------------------

    def _require_room(self, reserved: bool, spare: Room | None, writing: int) -> None:
        """Check the free disk space.

        Once the reserve was used, ordinary frames wait until it is filled again.

        :raises DiskFull: there is too little
        """
        if not (reserved or self._reserve.held or self._reserve.fill()):
            raise disk_full()
        if spare is None or self.headroom.covers(spare, writing):
            return
        while reserved and self._reserve.lend():
            if self.headroom.covers(spare, 0):
                return
        raise disk_full()

    def may_take(self, spare: Room) -> bool:
        """True if ordinary frames would likely find room and leave `spare` free.

        Callable from any thread.

        A hint only: disk quotas are not considered.
        """
        room = self._fs.room(self._path)
        missing = 0 if self._reserve.held else self._sizes.reserve_bytes
        return room.holds(Room(spare.bytes + missing, spare.files))


def _truncate(file: File, size: int) -> None:
    """Truncate a file.

    :raises DiskFull: its size is unchanged
    """
    try:
        file.truncate(size)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise disk_full() from error
