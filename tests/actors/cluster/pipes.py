"""Links within one process, for what is said on them: each message goes through its bytes. What a
test wants to go wrong on the way it puts in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from protocol.errors import Refusal, SignInRefused
from protocol.links import (
    PREFIX_BYTES,
    LinkClosed,
    Message,
    NotKnown,
    Peer,
    Redeem,
    Redeemed,
    decode,
    encode,
)

Alter = Callable[[Message], Message | None]
"""What becomes of a message on its way; None: it ends the link in place of it."""


def as_it_is(message: Message) -> Message:
    """Nothing goes wrong."""
    return message


class PipeEnd:
    """One end of a link (`protocol.links.Link`)."""

    def __init__(self, peer: Peer, alter: Alter) -> None:
        self._peer = peer
        self._alter = alter
        self._heard: asyncio.Queue[Message | None] = asyncio.Queue()
        self._other: PipeEnd | None = None
        self.closed: str | None = None

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self._peer

    def send(self, message: Message) -> None:
        """Say something."""
        assert self._other is not None
        if self.closed is not None:
            return
        altered = self._alter(decode(encode(message)[PREFIX_BYTES:]))
        if altered is None:
            self.close("it was cut")
        else:
            self._other._heard.put_nowait(altered)

    async def drained(self) -> None:
        """Nothing waits for long."""
        await asyncio.sleep(0)
        if self.closed is not None:
            raise LinkClosed(self.closed)

    async def receive(self) -> Message:
        """The next."""
        found = await self._heard.get()
        if found is None:
            self._heard.put_nowait(None)
            raise LinkClosed(self.closed or "the other side ended it")
        return found

    def close(self, why: str = "") -> None:
        """End it."""
        for end in (self, self._other):
            if end is not None and end.closed is None:
                end.closed = why or "it was closed"
                end._heard.put_nowait(None)


def linked(here: Peer, there: Peer, alter: Alter = as_it_is) -> tuple[PipeEnd, PipeEnd]:
    """Both ends of a link.

    :param here: who holds the first of them
    :param alter: done to what the second says
    """
    first, second = PipeEnd(there, as_it_is), PipeEnd(here, alter)
    first._other, second._other = second, first
    return first, second


@dataclass
class Pipes:
    """The door to one other node (`protocol.links.Links`), which takes links and join tokens."""

    own: Peer
    """Who dials."""
    other: Peer
    accept: Callable[[PipeEnd], Awaitable[None]]
    alter: Callable[[int], Alter] = lambda _number: as_it_is
    """What goes wrong on the link of a number, from 0."""
    tokens: set[str] = field(default_factory=set)
    """That open something."""
    knows: set[str] = field(default_factory=set)
    """Ids of nodes that are trusted."""
    refusal: Refusal | None = None
    """That a token is refused with, once."""
    lost: bool = False
    """Whether the answer to the next token does not come."""
    links: list[PipeEnd] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Addresses that were dialled."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def connect(self, address: str, pins: Collection[str]) -> PipeEnd:
        """As `Links.connect`."""
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

    async def _accepted(self, link: PipeEnd) -> None:
        try:
            await self.accept(link)
        except LinkClosed:
            pass
        finally:
            link.close()

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        """As `Links.redeem`."""
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
