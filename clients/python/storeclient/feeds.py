"""A change feed on one connection, from WATCH to its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from storeclient.changes import is_whole
from storeclient.errors import ProtocolBroken, StoreError
from storeclient.exchange import FeedEnded, NotSent, Reply, StreamedMessage

BEHIND_BYTES: Final = 4 * 1024 * 1024
"""Size of received whole commits not yet read. With more, the feed is ended, and reopened where it
stopped once all are read. Not reading the socket instead would block all other requests on the
connection."""


class Feed:
    """Queue of a feed's messages.

    :param stop: asks the node to end the feed; messages sent before that still come
    :param close: does the same, and no further message is delivered
    """

    def __init__(self, stop: Callable[[], None], close: Callable[[], None]) -> None:
        self._stop = stop
        self._close = close
        self._said: deque[StreamedMessage] = deque()
        self._bytes = 0
        self._whole = 0
        """Bytes of the queue up to the end of the last whole commit."""
        self._stopped = False
        self._end: Reply = None
        self._over = False
        self._news: asyncio.Future[None] | None = None
        self.on_seq: Callable[[int, int | None], None] = lambda _seq, _epoch: None
        """Called with the newest sequence and epoch in each message."""

    def take(self, reply: Reply) -> None:
        """Take a message of the feed, or its end."""
        if isinstance(reply, StreamedMessage):
            self._said.append(reply)
            self._bytes += reply.size
            if is_whole(reply.body):
                self._whole = self._bytes
                if type(seq := reply.body.get("seq")) is int:
                    epoch = reply.body.get("epoch")
                    self.on_seq(seq, epoch if type(epoch) is int else None)
            if self._whole > BEHIND_BYTES and not self._stopped:
                self._stopped = True
                self._stop()
        else:
            self._end, self._over = reply, True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def begun(self) -> None:
        """Wait for the first message.

        :raises NotSent, StoreError: the feed ended before
        """
        while not self._said:
            if self._over:
                self._ended()
                return
            await self._wait()

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    async def next(self) -> dict[str, Any] | None:
        """Return the next message, or None if the feed was ended on request.

        :raises NotSent: the WATCH was not sent
        :raises StoreError: the feed has failed
        """
        while not self._said:
            if self._over:
                self._ended()
                return None
            await self._wait()
        told = self._said.popleft()
        self._bytes -= told.size
        self._whole = max(self._whole - told.size, 0)
        return told.body

    def _ended(self) -> None:
        end = self._end
        if isinstance(end, StoreError | NotSent):
            raise end
        if not isinstance(end, FeedEnded):
            raise ProtocolBroken("the node ended a feed with an invalid message")

    def close(self) -> None:
        """End the feed and drop queued messages."""
        if not self._over:
            self._over, self._end = True, FeedEnded()
            self._said.clear()
            self._wake()
            self._close()
