"""TOPIC requests of one wire connection.

All of one read are submitted together, and the node batches them with those of other connections.
Each is answered exactly once. A blocked TAKE (long poll) stays open until messages arrive, its time
is over, or CANCEL ends it.

The size of a delivery is not known before it is made. So all TAKEs of a connection share a byte
budget, the free part of its write buffer. A TAKE without room is returned, and submitted again, for
its original caller, once the peer has read responses. Until then no further frame of the peer is
executed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from protocol import limits
from protocol.errors import Cancelled, Refusal, SignInRefused
from protocol.frames import MessageKind, WireMessage, encode_in_steps
from protocol.messages import MessageOperation, TakeMessages
from protocol.requests import Caller
from protocol.values import Tick, is_large, let_go
from surfaces.wire.bodies import MINOR_OF_SEQUENCES
from surfaces.wire.callers import WireCallers
from surfaces.wire.gate import Endable
from surfaces.wire.link import MESSAGES, WireLink, tick_for
from surfaces.wire.scripts import SMALL, SMALL_STRING
from surfaces.wire.topics import read_messages
from surfaces.wire.write_buffer import WireWriteBuffer

HOLDS: Final = limits.KIB
"""Approximate bytes of memory per open request, however short its frame: charged as such."""


class _Room:
    """Byte budget for deliveries of a connection's TAKEs."""

    def __init__(self, outgoing: WireWriteBuffer) -> None:
        self._outgoing = outgoing
        self._promised = 0

    @property
    def left(self) -> int:
        """Bytes of messages."""
        return self._outgoing.room - self._promised

    def take(self, size: int) -> None:
        """Reserve bytes for a delivery whose response is not queued yet; a negative size releases
        them."""
        self._promised += size


class _TopicRequest:
    """An open TOPIC request."""

    __slots__ = (
        "asked", "began", "caller", "id", "is_done", "operation", "owner", "place", "timeout_us",
    )  # fmt: skip

    def __init__(
        self,
        owner: WireMessages,
        id: int,
        place: tuple[str, str],
        operation: MessageOperation,
        timeout_us: int | None,
        began: float,
    ) -> None:
        self.owner = owner
        self.id = id
        self.place = place
        self.operation = operation
        self.timeout_us = timeout_us
        self.began = began
        self.caller: Caller | None = None
        """Caller that sent it; None: not known yet."""
        self.asked: Endable | None = None
        """The submitted operation; None: not submitted, or answered."""
        self.is_done = False
        """True if its response exists and is only being encoded."""

    @property
    def rests(self) -> bool:
        """True if it is a blocked TAKE."""
        operation = self.operation
        waits = isinstance(operation, TakeMessages) and operation.wait_us is not None
        return waits and self.asked is not None

    def on_result(self, answer: Any, refusal: Refusal | None) -> None:
        """Handle the outcome of the operation."""
        self.owner.on_result(self, answer, refusal)


class WireMessages:
    """:param link: the connection"""

    def __init__(self, link: WireLink) -> None:
        self._link = link
        self._time = asyncio.get_running_loop().time
        self._open: dict[int, _TopicRequest] = {}
        self._read: list[_TopicRequest] = []
        self._left: list[_TopicRequest] = []
        """Requests that found no room."""
        self._room = _Room(link.outgoing)
        self._callers = WireCallers(link)
        self._idle: asyncio.Future[None] | None = None
        """Future of a task in `done`."""

    def receive(self, message: WireMessage) -> None:
        """Decode a TOPIC, or refuse it."""
        link, id = self._link, message.id
        try:
            if link.wire.admission.draining:
                raise link.wire.admission.leaving()
            if message.refusal is not None:
                raise message.refusal
            if link.token is None:
                raise SignInRefused("a TOPIC needs a signed-in user")
            place, operation, timeout_us = read_messages(message.body)
        except Refusal as refusal:
            link.refuse(id, refusal)
        else:
            link.talk.weigh(id, HOLDS)
            one = self._open[id] = _TopicRequest(
                self, id, place, operation, timeout_us, self._time()
            )
            self._read.append(one)

    def ask(self) -> None:
        """Submit all operations of one read for the present caller. A later AUTH does not affect
        them."""
        if self._read:
            read, self._read = self._read, []
            self._ask(read)

    def on_peer_read(self) -> None:
        """Submit the remaining requests again, if there is room."""
        if self._left and self._room.left > 0:
            left, self._left = self._left, []
            self._link.release(MESSAGES)
            now = self._time()
            for one in left:
                if self._is_open(one):
                    _spend(one, now)
                    assert one.caller is not None, "nobody has asked for it"
                    self._start(one, one.caller)
            self._wake_done()

    async def done(self) -> None:
        """Wait until no request is open but blocked TAKEs. These deliver only while the session
        lasts in which they were sent."""
        while any(not one.rests for one in self._open.values()):
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def cancel(self, id: int) -> None:
        """Cancel a request; its response may have crossed the CANCEL."""
        one = self._open.get(id)
        if one is None or one.is_done:
            return
        why = Cancelled("the request was cancelled")
        if one.asked is not None:
            one.asked.end(why)
        else:  # it waits for room, or for its caller
            self._answer(one, None, why)

    def abandon(self) -> None:
        """Cancel everything: the responses will not be read."""
        self._left.clear()
        for id in list(self._open):
            self.cancel(id)

    def _is_open(self, one: _TopicRequest) -> bool:
        """True if it is still unanswered. After a cancel its id may belong to another request."""
        return self._open.get(one.id) is one

    def _wake_done(self) -> None:
        """Wake the task in `done`: a request was answered or submitted."""
        idle, self._idle = self._idle, None
        if idle is not None and not idle.done():
            idle.set_result(None)

    def _ask(self, batch: list[_TopicRequest]) -> None:
        self._callers.ask(
            self._link.name(batch[0].id),
            partial(self._start_all, batch),
            partial(self._refuse_all, batch),
        )

    def _start_all(self, batch: list[_TopicRequest], caller: Caller) -> None:
        for one in batch:
            if self._is_open(one):
                self._start(one, caller)
        self._wake_done()

    def _start(self, one: _TopicRequest, caller: Caller) -> None:
        link = self._link
        one.caller = caller
        one.asked = link.wire.gate.messages(
            link.name(one.id), caller, one.place, one.operation, one.on_result, one.timeout_us,
            self._room,
        )  # fmt: skip

    def _refuse_all(self, batch: list[_TopicRequest], refusal: Refusal) -> None:
        for one in batch:
            if self._is_open(one):
                self._answer(one, None, refusal)

    def on_result(self, one: _TopicRequest, answer: Any, refusal: Refusal | None) -> None:
        """Handle the outcome of a request. Neither an answer nor a refusal: it found no room."""
        seq = 0 if one.asked is None else one.asked.sequence
        one.asked = None
        if answer is None and refusal is None:
            if self._link.over:
                self._answer(one, None, self._link.wire.admission.leaving())
            else:
                self._left.append(one)
                self._link.hold(MESSAGES)
            return
        if type(one.operation) is TakeMessages and refusal is None:
            size = sum(message["bytes"] for message in answer)
            answer = {"messages": answer}
            self._sign(answer, seq)
            if len(answer["messages"]) > 1 and is_large(answer, SMALL, SMALL_STRING):
                one.is_done = True
                self._link.wire.background.spawn(self._answer_long(one, answer, size))
                return
            self._room.take(-size)
        elif refusal is None:
            self._sign(answer, seq)
        self._answer(one, answer, refusal)

    def _sign(self, answer: dict[str, Any], seq: int) -> None:
        """Add the sequence of its commit to a response."""
        if seq and self._link.minor >= MINOR_OF_SEQUENCES:
            answer["seq"] = seq

    def _answer(
        self,
        one: _TopicRequest,
        answer: dict[str, Any] | None,
        refusal: Refusal | None,
        data: bytes | None = None,
    ) -> None:
        link = self._link
        del self._open[one.id]
        if refusal is not None:
            link.refuse(one.id, refusal)
        else:
            link.send(MessageKind.VALUE, one.id, answer, data)
        self._wake_done()
        link.end_if_done()

    async def _answer_long(self, one: _TopicRequest, answer: dict[str, Any], size: int) -> None:
        """Encode and send a response of many messages, in slices.

        :param size: bytes of the messages, held in the byte budget until then, since nothing else
            counts them
        """
        link = self._link
        try:
            data = await link.wire.long_work.run(link.user, partial(self._encode, one.id, answer))
        except Refusal as refusal:
            self._answer(one, None, refusal)
        except asyncio.CancelledError:  # the surface closes
            self._answer(one, None, link.wire.admission.leaving())
            raise
        except Exception:
            self._answer(one, None, link.failed(link.name(one.id)))
        else:
            self._answer(one, answer, None, data)
            del data
        finally:
            self._room.take(-size)
        await link.wire.long_work.run(link.user, partial(let_go, answer.pop("messages")))

    def _encode(self, id: int, answer: dict[str, Any], tick: Tick) -> bytes:
        return encode_in_steps(MessageKind.VALUE, id, answer, partial(tick_for, self._link, tick))


def _spend(one: _TopicRequest, now: float) -> None:
    """Subtract the time it has waited here from its timeout and its wait."""
    spent_us, one.began = int((now - one.began) * 1_000_000), now
    if one.timeout_us is not None:
        one.timeout_us = max(one.timeout_us - spent_us, 0)
    old = one.operation
    if isinstance(old, TakeMessages) and old.wait_us is not None:
        wait_us = max(old.wait_us - spent_us, 0)
        one.operation = TakeMessages(old.topic, old.group, old.count, old.member, wait_us)
