"""A snapshot in parts before its answer: what a RUN with `stream` is sent.

The parts are of a file that the node keeps meanwhile, so how many bytes there are is known from the
first. The next part is read when the peer has taken the one before: nobody's slowness is held in
memory, and a peer that takes nothing is cut as every other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from protocol import limits
from protocol.errors import AnswerTooLarge, Cancelled
from protocol.frames import Kind, encode
from protocol.requests import HeldFile
from surfaces.wire.link import Link

PART_BYTES: Final = limits.MIB


class Streams:
    """Those of one connection. :param link: the connection"""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def stand_still(self) -> bool:
        """Whether some wait until the peer has taken what there was."""
        return bool(self._waiting)

    def go_on(self) -> None:
        """The peer has taken something."""
        if self._waiting and self._ready:
            self.look()

    def look(self) -> None:
        """One of them is cancelled, or nobody is there any more."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def send(self, id: int, file: HeldFile, is_cancelled: Callable[[], bool]) -> None:
        """Say all parts of a file.

        :raises Cancelled: the peer wants no more of it, or is gone
        :raises AnswerTooLarge: there is no room for them beside what its user has not read
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
            self._check(is_cancelled)  # what counts for a peer that is gone would stay counted
            number, at = number + 1, at + len(data)
            body = {"n": number, "bytes": data, "done": at, "total": file.size}
            frame = encode(Kind.PART, id, body)
            if not link.outgoing.takes(len(frame)):
                raise AnswerTooLarge(
                    f"{len(frame)} bytes find no room beside the answers that were not read yet",
                    bytes=len(frame),
                )
            link.send(Kind.PART, id, None, frame)

    def _check(self, is_cancelled: Callable[[], bool]) -> None:
        if self._link.gone or is_cancelled():
            raise Cancelled("the backup was cancelled while it was sent")

    @property
    def _ready(self) -> bool:
        return not self._link.choked and self._link.outgoing.unsent <= PART_BYTES
