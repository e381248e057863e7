"""Streamed backups: a snapshot in PART messages before the response of a RUN with `stream`.

The parts are read from a file that the node keeps meanwhile, so the total size is known from the
start. The next part is read once the peer has read the one before (flow control). A slow peer
therefore costs no memory, and a peer that reads nothing is disconnected like every other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocol import limits
from protocol.errors import AnswerTooLarge, Cancelled
from protocol.frames import MessageKind, encode
from protocol.requests import HeldFile

if TYPE_CHECKING:
    from surfaces.wire.link import WireLink

PART_BYTES: Final = limits.MIB


class BackupStreams:
    """Streamed backups of one connection.

    :param link: the connection
    """

    def __init__(self, link: WireLink) -> None:
        self._link = link
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def stand_still(self) -> bool:
        """True if a stream waits for the peer to read."""
        return bool(self._waiting)

    def on_peer_read(self) -> None:
        """Continue streams: the peer has read something."""
        if self._waiting and self._ready:
            self.wake_streams()

    def wake_streams(self) -> None:
        """Wake every waiting stream: one was cancelled, or the connection is gone."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def send(self, id: int, file: HeldFile, is_cancelled: Callable[[], bool]) -> None:
        """Send all parts of a file.

        :raises Cancelled: the peer cancelled the request, or is gone
        :raises AnswerTooLarge: the user's unread responses leave no room in the memory quota
        """
        link, number, at = self._link, 0, 0
        link.answers_wait_at(PART_BYTES)
        while at < file.size:
            while not (self._ready or link.gone or is_cancelled()):
                one = asyncio.get_running_loop().create_future()
                self._waiting.append(one)
                await one
            self._check(is_cancelled)
            data = await file.read(at, PART_BYTES)
            self._check(is_cancelled)  # bytes charged for a peer that is gone would stay charged
            number, at = number + 1, at + len(data)
            body = {"n": number, "bytes": data, "done": at, "total": file.size}
            frame = encode(MessageKind.PART, id, body)
            if not link.outgoing.takes(len(frame)):
                raise AnswerTooLarge(
                    f"the answer has {len(frame)} bytes, more than the unread answers leave room"
                    " for: read those first",
                    bytes=len(frame),
                )
            link.send(MessageKind.PART, id, None, frame)

    def _check(self, is_cancelled: Callable[[], bool]) -> None:
        if self._link.gone or is_cancelled():
            raise Cancelled("the backup was cancelled while it was sent")

    @property
    def _ready(self) -> bool:
        return not self._link.choked and self._link.outgoing.unsent <= PART_BYTES
