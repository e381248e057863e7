"""Links whose one end a test has in its hands: it looks at all that was said and at what waits, and
puts in between what is to go wrong (`Alter`). `Door` is the door to one node over such links.

What goes through one is encoded and decoded as on a real link, and comes in order; a sender waits
when much is on its way. The network that fails by itself is `tests/simulation/links.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from protocol import limits, links
from protocol.errors import Refusal, SignInRefused
from protocol.links import Link, LinkClosed, Message, NotKnown, Peer, Redeem, Redeemed

Alter = Callable[[Message], Message | None]
"""Result of a message on its way; None: the link ends instead."""


def at_once() -> float:
    """How long a message takes on a good wire, in seconds."""
    return 0.0


def as_it_is(message: Message) -> Message:
    """Nothing goes wrong."""
    return message


class WireEnd(Link):
    """One end of a wire."""

    def __init__(
        self, peer: Peer, delay: Callable[[], float] = at_once, alter: Alter = as_it_is
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._peer = peer
        self._delay = delay
        self._alter = alter
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
        altered = self._alter(links.decode(data[links.PREFIX_BYTES :]))
        if altered is None:
            self.close("it was cut")
        else:
            self._bring((altered, len(data)))

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
    """A link between two nodes of one store: the end of each."""
    here, there = (Peer(name, "store", name, name) for name in (one, other))
    return _joined(WireEnd(there, delay), WireEnd(here, delay))


def linked(here: Peer, there: Peer, alter: Alter = as_it_is) -> tuple[WireEnd, WireEnd]:
    """Both ends of a link.

    :param here: who holds the first of them
    :param alter: done to what the second says
    """
    return _joined(WireEnd(there), WireEnd(here, alter=alter))


def _joined(one: WireEnd, other: WireEnd) -> tuple[WireEnd, WireEnd]:
    one.other, other.other = other, one
    return one, other


@dataclass
class Door:
    """The door to one other node (`protocol.links.Links`), which takes links and join tokens."""

    own: Peer
    """Node that dials."""
    other: Peer
    accept: Callable[[WireEnd], Awaitable[None]]
    alter: Callable[[int], Alter] = lambda _number: as_it_is
    """Fault on the link of a number, from 0."""
    tokens: set[str] = field(default_factory=set)
    """Tokens that are accepted."""
    knows: set[str] = field(default_factory=set)
    """Ids of nodes that are trusted."""
    refusal: Refusal | None = None
    """Refusal of the next token, once."""
    lost: bool = False
    """True if the answer to the next token does not come."""
    links: list[WireEnd] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Addresses that were dialled."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def connect(self, address: str, pins: Collection[str]) -> WireEnd:
        """See `Links.connect`."""
        self.asked.append(address)
        if self.other.fingerprint not in pins:
            raise LinkClosed(f"{address} shows another certificate")
        if self.own.node not in self.knows:
            raise NotKnown(f"{address} does not know who asks")
        own, theirs = linked(self.own, self.other, self.alter(len(self.links)))
        self.links.append(own)
        task = asyncio.ensure_future(self._accepted(theirs))
        self.tasks.add(task)
        return own

    async def _accepted(self, link: WireEnd) -> None:
        try:
            await self.accept(link)
        except LinkClosed:
            pass
        finally:
            link.close()

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        """See `Links.redeem`."""
        self.asked.append(address)
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        used = asked.node in self.knows
        if pin != self.other.fingerprint or not (used or asked.token in self.tokens):
            raise SignInRefused("the join token is unknown, used or expired")
        self.tokens.discard(asked.token)
        self.knows.add(asked.node)
        if self.lost:
            self.lost = False
            raise LinkClosed("the answer was lost")
        return Redeemed(self.other.store, "n2", self.other.node)
