"""A link whose one end a test has in its hands: it looks at all that was said and at what waits.

What goes through it is encoded and decoded as on a real link, and comes in order; a sender waits
when much is on its way. The network that fails is `tests/simulation/links.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from protocol import limits, links
from protocol.links import Link, LinkClosed, Message, Peer


def at_once() -> float:
    """How long a message takes on a good wire, in seconds."""
    return 0.0


class WireEnd(Link):
    """One end of a wire."""

    def __init__(self, peer: str, delay: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._peer = Peer(peer, "store", peer, peer)
        self._delay = delay
        self.other: WireEnd
        self.bytes = 0
        """Sent from here, and not taken there."""
        self.most = 0
        self.sent: list[Message] = []
        """All that was said here."""
        self._came: deque[tuple[Message, int] | LinkClosed] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._arrives = 0.0
        self._why: str | None = None

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def is_closed(self) -> bool:
        return self._why is not None

    def send(self, message: Message) -> None:
        if self._why is not None:
            return
        data = links.encode(message)
        self.sent.append(message)
        self.bytes += len(data)
        self.most = max(self.most, self.bytes)
        self._bring((links.decode(data[links.PREFIX_BYTES :]), len(data)))

    async def drained(self) -> None:
        while self._why is None and self.bytes > limits.LINK_BUFFER_BYTES:
            self._room.clear()
            await self._room.wait()
        if self._why is not None:
            raise LinkClosed(self._why)

    async def receive(self) -> Message:
        while True:
            if self._came:
                came = self._came[0]
                if isinstance(came, LinkClosed):
                    raise came
                self._came.popleft()
                self.other.bytes -= came[1]
                self.other._room.set()
                return came[0]
            if self._why is not None:
                raise LinkClosed(self._why)
            self._news.clear()
            await self._news.wait()

    def close(self, why: str = "") -> None:
        if self._why is None:
            self._bring(LinkClosed(why or "the other end has closed the link"))
            self._ended(why or "closed here")

    def _bring(self, came: tuple[Message, int] | LinkClosed) -> None:
        # Never two at one time: the loop takes timers that are due together in any order.
        self._arrives = max(self._arrives + 1e-6, self._loop.time() + self._delay())
        self._loop.call_at(self._arrives, self.other._arrived, came)

    def _arrived(self, came: tuple[Message, int] | LinkClosed) -> None:
        if self._why is None:
            self._came.append(came)
            if isinstance(came, LinkClosed):
                self._ended(str(came))
            self._news.set()

    def _ended(self, why: str) -> None:
        if self._why is None:
            self._why = why
        self._news.set()
        self._room.set()


def wire(one: str, other: str, delay: Callable[[], float] = at_once) -> tuple[WireEnd, WireEnd]:
    """A link between two nodes: the end of each."""
    a, b = WireEnd(other, delay), WireEnd(one, delay)
    a.other, b.other = b, a
    return a, b
