"""Write side of the log's last segment; any failure of the disk is final.

log.py has the write protocol and the numbered invariants.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from protocol.environment import File, Room
from protocol.errors import DiskFull, UnknownOutcome
from storage.faults import LogFailed
from storage.files.disk_reserve import NO_ROOM, FreeSpaceCheck, Reserve, disk_full
from storage.log.state import LogState

_PLENTY: Final = 256
"""Zeros are preallocated only while the disk has this many times as much room."""


class TailWriter:
    """Writer of the last segment. Owned by one thread.

    :param reserve: disk space held back for writes that must succeed
    """

    def __init__(self, state: LogState, reserve: Reserve) -> None:
        self.state = state
        self.reserve = reserve
        self.headroom = FreeSpaceCheck(state.fs, state.path, state.tmp)
        self.file: File | None = None
        """The last segment; None: the log is closed."""
        self.zeros = 0
        """Zero bytes preallocated behind the last segment's end and not overwritten yet."""
        self.failed: LogFailed | None = None
        """Final failure of the disk (invariant 5)."""
        self.worn = False
        """True if the last segment was cut back, or opened again sealed: take a new one."""
        self.torn = False
        """True if it is to be cut back, as soon as there is room."""

    def close_file(self) -> None:
        """Close the last segment's file, if it is open."""
        if self.file is not None:
            self.file.close()
            self.file = None

    # --- bytes -----------------------------------------------------------------------------------

    def write(self, data: bytes, reserved: bool, first: int | None, ends: bool = False) -> None:
        """Append bytes to the last segment and fsync it.

        :param first: bytes of the first frame in `data`; None: a mark, which acknowledges no frame
        :param ends: no bytes will follow
        :raises DiskFull, UnknownOutcome: see `_cut_back`
        """
        file = self.file
        assert file is not None, "the log is closed"
        ahead = 0 if ends else self._zeros_wanted(len(data))
        error = self._try(file, data, first, ahead)
        if error is not None and ahead:
            # The zeros alone may be too much: try without them.
            error = self._try(file, data, first)
        # One file of the reserve first, then all of it.
        for give_up in (self.reserve.lend, self.reserve.release):
            if error is not None and reserved and give_up():
                error = self._try(file, data, first)
        if error is not None:
            raise disk_full() from error
        try:
            file.sync()
        except OSError as failure:
            # Final: after a failed fsync the kernel may drop dirty pages, and report success.
            self.fail(failure)

    def _try(self, file: File, data: bytes, first: int | None, ahead: int = 0) -> OSError | None:
        """Write once. On a full disk, cut the write back and return the error."""
        try:
            file.append(data, ahead)
        except OSError as error:
            if error.errno not in NO_ROOM:
                self.fail(error)
            self._cut_back(file, data, first)
            return error
        self.zeros = ahead or max(self.zeros - len(data), 0)
        return None

    def _zeros_wanted(self, count: int) -> int:
        """Return the number of zeros to preallocate behind the next `count` bytes.

        None while earlier zeros are left, or while disk space or the segment runs out.
        """
        ahead = self.state.sizes.ahead_bytes
        left = self.state.sizes.segment_bytes - self.state.segments[-1].size - count
        if count <= self.zeros or count > ahead // 4 or left <= 0:
            return 0
        if self.state.fs.room(self.state.path).bytes < _PLENTY * ahead:
            return 0
        return min(ahead, left)

    def take_zeros_off(self, reserved: bool) -> None:
        """Truncate the preallocated zeros, durably, because the segment is finished.

        :raises DiskFull: the segment keeps its size
        """
        if not self.zeros:
            return
        assert self.file is not None, "the log is closed"
        self._shorten(self.file, reserved)
        self.zeros = 0

    def _cut_back(self, file: File, data: bytes, first: int | None) -> None:
        """Truncate a failed write, durably, before the failure is reported.

        :param data: the data of that write
        :param first: bytes of its first frame; None: a mark, which may stay
        :raises DiskFull: there is no room even for that; the rest holds no whole frame
        :raises UnknownOutcome: likewise, but whole frames are left, which a start would find
        """
        # The next frames go to a new segment, whose salt voids left-over bytes.
        self.zeros, self.worn = 0, True
        try:
            self._shorten(file, reserved=True)
        except DiskFull as refusal:
            self.torn = True
            # A start keeps whole frames, and cuts the rest. If the first frame does not read back
            # whole, its missing part was never written, and no crash makes it whole.
            if first is None or file.read(self.state.segments[-1].size, first) != data[:first]:
                raise
            raise UnknownOutcome(
                "the disk is full and a partly written commit cannot be rolled back until there"
                " is room: the next start may find it or not",
                sequence=self.state.last + 1,
            ) from refusal

    def cut_torn(self, reserved: bool) -> None:
        """Truncate the rest of an earlier write that could not be cut back for lack of room.

        :raises DiskFull: there is still no room
        """
        if self.torn:
            assert self.file is not None, "the log is closed"
            self._shorten(self.file, reserved)
            self.torn = False

    def _shorten(self, file: File, reserved: bool) -> None:
        """Truncate the last segment to its frames, durably.

        A copy-on-write file system (Btrfs) refuses even that if a quota is used up. It always
        allows a file to be removed, so the reserve is one.

        :raises DiskFull: the segment keeps its size
        """
        try:
            self.reserve.spend(partial(_truncate, file, self.state.segments[-1].size), reserved)
            file.sync()
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError | DiskFull) -> NoReturn:
        """Mark the log as failed for good (invariant 5): no more writes, and its file is left
        alone."""
        self.failed = LogFailed(f"the log in {self.state.path} failed: {error}")
        raise self.failed from error

    def refuse_failed(self) -> None:
        if self.failed is not None:
            raise LogFailed(str(self.failed))
        assert self.file is not None, "the log is closed"

    # --- room ------------------------------------------------------------------------------------

    def require_room(self, reserved: bool, spare: Room | None, writing: int) -> None:
        """Check the free disk space.

        Once the reserve was used, ordinary frames wait until it is filled again.

        :raises DiskFull: there is too little
        """
        if not (reserved or self.reserve.held or self.reserve.fill()):
            raise disk_full()
        if spare is None or self.headroom.covers(spare, writing):
            return
        while reserved and self.reserve.lend():
            if self.headroom.covers(spare, 0):
                return
        raise disk_full()

    def may_take(self, spare: Room) -> bool:
        """True if ordinary frames would likely find room and leave `spare` free.

        Callable from any thread.

        A hint only: disk quotas are not considered.
        """
        room = self.state.fs.room(self.state.path)
        missing = 0 if self.reserve.held else self.state.sizes.reserve_bytes
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
