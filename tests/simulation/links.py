"""Network rig: a model of the links between nodes, behind the same interface as the real ones.

Simulated: each message has a latency of its own, in order on its link; a link breaks by chance, and
loses its end, never a message in between. A cut has a direction. Messages sent into it wait, as
bytes do on a broken network, until the cut is healed or the sender times out; the receiver does not
learn of it. A paused network of a node neither sends nor receives; a paused process leaves incoming
messages at its machine. A node that is gone takes its links with it. Certificates are pinned, and
join tokens redeemed, as the node's own code demands.

Not simulated: TLS and sockets, a message that arrives in parts, and a network that changes, repeats
or reorders messages: TLS excludes that. Nor bandwidth. `tests/cluster/network.py` is a proxy
between real processes for those; `tests/actors/cluster/wires.py` are links whose other
end is the test itself.

To reproduce: `LinksModel(seed)` draws everything from its seed, in the order in which the nodes
send; on the loop of `loop.py` that order is one of the seed too.

Proof: the model's own tests, and the rules of replication that are left out below and have to be
missed over these links:
`tests/simulation/test_links.py::test_the_same_seed_is_the_same_network`,
`tests/simulation/test_links.py::test_a_cut_has_a_direction_and_loses_nothing`,
`tests/simulation/test_links.py::test_a_link_that_breaks_loses_an_end_and_no_middle`,
`tests/simulation/test_bad_histories.py::test_without_the_rule_it_goes_wrong`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from protocol import limits
from protocol.errors import SignInRefused, TooLarge
from protocol.links import (
    PREFIX_BYTES,
    Accept,
    Hello,
    Link,
    LinkClosed,
    Links,
    Message,
    NotKnown,
    Peer,
    Redeem,
    Redeemed,
    decode,
    encode,
)

T = TypeVar("T")

TRANSIT_BYTES = 64 * limits.KIB
"""Bytes in transit at once in one direction; the rest waits at the sender."""


@dataclass
class Weather:
    """State of the network. It may be changed at any time.

    :ivar delays: least and greatest latency of a message, seconds
    :ivar breaks: share of messages that break their link
    """

    delays: tuple[float, float] = (0.0001, 0.002)
    breaks: float = 0.0


class LinksModel:
    """The network.

    :param seed: of all random choices
    """

    def __init__(self, seed: int, weather: Weather | None = None) -> None:
        self.chance = Random(seed)
        self.weather = weather or Weather()
        self.nodes: dict[str, ModelLinks] = {}
        """By their addresses."""
        self._cuts: set[tuple[str, str]] = set()
        self._paused: set[str] = set()
        self._still: set[str] = set()
        self._links: list[tuple[ModelLink, ModelLink]] = []

    def node(
        self,
        address: str,
        hello: Callable[[], Hello],
        fingerprint: str,
        trusts: Callable[[str], str | None],
        accept: Accept,
        redeem: Callable[[Redeem, str], Awaitable[Redeemed]] | None = None,
    ) -> ModelLinks:
        """Put a node at an address, in place of an earlier one.

        :param trusts: the row that names a fingerprint now; None: it is not trusted
        :param redeem: called with a token and the fingerprint of its bearer
        """
        made = ModelLinks(self, address, hello, fingerprint, trusts, accept, redeem)
        self.nodes[address] = made
        return made

    def cut(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Heal a cut: deliver waiting messages, and later ones."""
        self._cuts.discard((source, target))
        self._go_on()

    def pause(self, address: str) -> None:
        self._paused.add(address)

    def resume(self, address: str) -> None:
        self._paused.discard(address)
        self._go_on()

    def stand(self, address: str) -> None:
        """Pause the process of a node: incoming messages wait at its machine, and no link to it is
        made."""
        self._still.add(address)

    def stands(self, address: str) -> bool:
        """True if the process is paused."""
        return address in self._still

    def walk(self, address: str) -> None:
        self._still.discard(address)

    def leave(self, address: str) -> None:
        """Remove a node and close its links."""
        self._still.discard(address)
        self.nodes.pop(address).close()

    def brings(self, source: str, target: str) -> bool:
        """True if messages pass in that direction."""
        return (source, target) not in self._cuts and not {source, target} & self._paused

    def seconds(self) -> float:
        return self.chance.uniform(*self.weather.delays)

    def breaks(self) -> bool:
        """Draw whether the message breaks its link."""
        return self.chance.random() < self.weather.breaks

    def add(self, one: ModelLink, other: ModelLink) -> None:
        self._links = [pair for pair in self._links if not (pair[0].over and pair[1].over)]
        self._links.append((one, other))

    def _go_on(self) -> None:
        for pair in list(self._links):
            for one in pair:
                one.pump()


class ModelLinks(Links):
    def __init__(
        self,
        model: LinksModel,
        address: str,
        hello: Callable[[], Hello],
        fingerprint: str,
        trusts: Callable[[str], str | None],
        accept: Accept,
        redeem: Callable[[Redeem, str], Awaitable[Redeemed]] | None,
    ) -> None:
        self.model = model
        self.address = address
        self.hello = hello
        self.fingerprint = fingerprint
        self.trusts = trusts
        self.accept = accept
        self.take_token = redeem
        self.links: dict[ModelLink, bool] = {}
        """Open links, and whether the peer's certificate was trusted at the last check: a dialled
        peer need not be."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = copy_context()
        """Context for work on behalf of other nodes, so that it belongs to this process."""

    async def connect(self, address: str, pins: Collection[str]) -> Link:
        other = await self._reach(address, pins)
        if other.trusts(self.fingerprint) is None:
            raise NotKnown(f"{address}: the certificate is not trusted")
        ours, theirs = self.hello(), other.hello()
        if ours.store and theirs.store and ours.store != theirs.store:
            raise LinkClosed(f"{address}: the node belongs to another store")
        if ours.node == theirs.node:
            raise LinkClosed(f"{address}: the node is this one")
        here = ModelLink(self, other.address, _peer(theirs, other.fingerprint, self))
        there = ModelLink(other, self.address, _peer(ours, self.fingerprint, other))
        here.other, there.other = there, here
        self.model.add(here, there)
        self.links[here] = here.peer.row is not None
        other.take(there)
        return here

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        other = await self._reach(address, [pin])
        if other.take_token is None:
            raise SignInRefused("the join token is unknown, used or expired")
        taking, context = other.take_token(asked, self.fingerprint), other._context.copy()
        answer = await asyncio.get_running_loop().create_task(_awaited(taking), context=context)
        await self._travel(other.address, self.address)
        return answer

    def take(self, link: ModelLink) -> None:
        self.links[link] = True
        context = self._context.copy()
        task = asyncio.get_running_loop().create_task(self._serve(link), context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def judge(self) -> None:
        """Close links to peers that are no longer trusted."""
        for link, trusted in list(self.links.items()):
            now = self.trusts(link.peer.fingerprint) is not None
            if trusted and not now:
                link.break_off("the certificate is no longer trusted")
            else:
                self.links[link] = now

    def close(self) -> None:
        for link in list(self.links):
            link.break_off("the node is gone")
        for task in list(self._tasks):
            task.cancel()

    async def _serve(self, link: ModelLink) -> None:
        try:
            with suppress(LinkClosed):
                await self.accept(link)
        finally:
            link.close()

    async def _reach(self, address: str, pins: Collection[str]) -> ModelLinks:
        """Return the node at an address, after the time of a handshake.

        :raises LinkClosed: it can't be reached
        """
        await self._travel(self.address, address)
        other = self.model.nodes.get(address)
        if other is None:
            raise LinkClosed(f"{address}: nobody is there")
        await self._travel(address, self.address)
        if self.model.breaks():
            raise LinkClosed(f"{address}: the connection broke")
        if other.fingerprint not in pins:
            raise LinkClosed(f"{address}: the certificate is not the expected one")
        return other

    async def _travel(self, source: str, target: str) -> None:
        await asyncio.sleep(self.model.seconds())
        if not self.model.brings(source, target) or self.model.stands(target):
            await asyncio.sleep(limits.GREETING_PEER_SECONDS)
            raise LinkClosed(f"{target} did not answer in time")


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _peer(hello: Hello, fingerprint: str, seen_by: ModelLinks) -> Peer:
    return Peer(hello.node, hello.store, fingerprint, seen_by.trusts(fingerprint))


@dataclass(eq=False)
class ModelLink(Link):
    home: ModelLinks
    address: str
    """Address of the peer."""
    peer_: Peer
    other: ModelLink = field(init=False)
    over: bool = False
    _why: str | None = None
    _unsent: deque[bytes] = field(default_factory=deque)
    _unsent_bytes: int = 0
    _transit: deque[tuple[float, bytes | None, str]] = field(default_factory=deque)
    """Messages in transit, with their arrival times; None: the end of the link, with its reason."""
    _transit_bytes: int = 0
    _heard: deque[bytes] = field(default_factory=deque)
    _heard_bytes: int = 0
    _arrives: float = 0.0
    _timer: asyncio.TimerHandle | None = None
    _slow: asyncio.TimerHandle | None = None
    _taken: int = 0
    _wakes: list[asyncio.Future[None]] = field(default_factory=list)

    # --- the door ---------------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        return self.peer_

    def send(self, message: Message) -> None:
        data = encode(message)
        if len(data) > limits.LINK_MESSAGE_BYTES:
            raise TooLarge("a message is too long for a link", limit=limits.LINK_MESSAGE_BYTES)
        if self._why is not None:
            return
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        self.pump()
        if self._unsent_bytes + self._transit_bytes > limits.LINK_UNSENT_BYTES:
            self.break_off("the peer reads too little")

    async def drained(self) -> None:
        while self._unsent_bytes > limits.LINK_BUFFER_BYTES and self._why is None:
            await self._change()
        if self._why is not None:
            raise LinkClosed(self._why)

    async def receive(self) -> Message:
        while not self._heard:
            if self._why is not None:
                raise LinkClosed(self._why)
            await self._change()
        data = self._heard.popleft()
        self._heard_bytes -= len(data)
        self.other.pump()
        return decode(data[PREFIX_BYTES:])

    def close(self, why: str = "") -> None:
        if self._why is None:
            self._why = why or "this side closed the link"
            self.pump()
            self._wake()
            self._watch()

    # --- the network ------------------------------------------------------------------------------

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def break_off(self, why: str) -> None:
        """Break the link and drop messages in transit. The other end notices if a message can reach
        it."""
        if self.over:
            return
        self._end(why)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._transit.clear()
        self._transit_bytes = 0
        self._add(None, "the connection broke")
        self._deliver_soon()

    def pump(self) -> None:
        """Put waiting messages in transit, as far as there is room."""
        if self.over and self._why is None:
            return
        room = self.other._heard_bytes <= limits.LINK_BUFFER_BYTES
        while self._unsent and self._transit_bytes < TRANSIT_BYTES and room:
            data = self._unsent.popleft()
            self._unsent_bytes -= len(data)
            if self.home.model.breaks():
                self.break_off("the connection broke")
                return
            self._add(data, "")
            self._taken += 1
        if self._why is not None and not self._unsent and not self.over:
            self.over = True
            self._add(None, "the peer ended the connection")
            self.home.links.pop(self, None)
        self._deliver_soon()
        self._watch()
        self._wake()

    def _add(self, data: bytes | None, why: str) -> None:
        # Never two at one time: the loop takes timers that are due together in any order.
        now = self._loop.time()
        self._arrives = max(self._arrives + 1e-6, now + self.home.model.seconds())
        self._transit.append((self._arrives, data, why))
        self._transit_bytes += 0 if data is None else len(data)

    def _deliver_soon(self) -> None:
        if self._transit and self._timer is None and self._open:
            due = self._transit[0][0]
            self._timer = self._loop.call_at(due, self._deliver, context=Context())

    @property
    def _open(self) -> bool:
        return self.home.model.brings(self.home.address, self.address)

    def _deliver(self) -> None:
        self._timer = None
        if not self._open:
            return
        _, data, why = self._transit.popleft()
        if data is None:
            self.other._end(why)
        else:
            self._transit_bytes -= len(data)
            self.other._hear(data)
        self.pump()

    def _hear(self, data: bytes) -> None:
        if self._why is None:
            self._heard.append(data)
            self._heard_bytes += len(data)
            self._wake()

    def _end(self, why: str) -> None:
        if self._why is None:
            self._why = why
        self.over = True
        self.home.links.pop(self, None)
        if self._slow is not None:
            self._slow.cancel()
        self._wake()

    def _watch(self) -> None:
        """Close the link if the peer receives nothing for too long."""
        if self._slow is None and (self._unsent or self._transit) and not self.over:
            seconds, taken = limits.WRITE_SECONDS, self._taken
            self._slow = self._loop.call_later(seconds, self._judge, taken, context=Context())

    def _judge(self, before: int) -> None:
        self._slow = None
        if self._taken > before or not (self._unsent or self._transit):
            self._watch()
        else:
            self.break_off("the peer reads nothing")

    async def _change(self) -> None:
        wake: asyncio.Future[None] = self._loop.create_future()
        self._wakes.append(wake)
        await wake

    def _wake(self) -> None:
        wakes, self._wakes = self._wakes, []
        for wake in wakes:
            if not wake.done():
                wake.set_result(None)
