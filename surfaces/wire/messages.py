"""The TOPICs of one wire connection, from their frame to their answer.

All of one read are given to the node together, which gathers them with those of other connections.
Each is answered exactly once. A TAKE that waits stays open until there is something, its time is
over, or CANCEL ends it.

What a TAKE hands out is not known before it does. So all of one connection share a room of bytes,
as much as the peer's answers may still wait for it; a TAKE that finds none is given back, and asked
again once the peer has taken what there was, by whom it was sent. Until then nothing more of the
peer is acted on.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from protocol import limits
from protocol.errors import Cancelled, Refusal, SignInRefused
from protocol.frames import Kind, Message, encode_in_steps
from protocol.messages import MessageOperation, TakeMessages
from protocol.requests import Caller
from protocol.values import Tick, is_large, let_go
from surfaces.wire.bodies import MINOR_OF_SEQUENCES
from surfaces.wire.callers import Callers
from surfaces.wire.gate import Ended
from surfaces.wire.link import MESSAGES, Link, tick_for
from surfaces.wire.outgoing import Outgoing
from surfaces.wire.scripts import SMALL, SMALL_STRING
from surfaces.wire.topics import read_messages

HOLDS: Final = limits.KIB
"""What the node holds for an open one, about, however short its frame was: it counts as much."""


class _Room:
    """What the TAKEs of a connection may still hand out."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._promised = 0

    @property
    def left(self) -> int:
        """Bytes of messages."""
        return self._outgoing.room - self._promised

    def take(self, size: int) -> None:
        """So many bytes more are handed out, and not said yet; fewer: they are."""
        self._promised += size


class _Open:
    """A TOPIC under way."""

    __slots__ = (
        "asked", "began", "caller", "id", "is_done", "operation", "owner", "place", "timeout_us",
    )  # fmt: skip

    def __init__(
        self,
        owner: Messages,
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
        """Who has sent it; None: it is not known yet."""
        self.asked: Ended | None = None
        """What the node has been asked; None: it has not been, or has told."""
        self.is_done = False
        """Whether its answer is there, and nothing but its bytes to be made."""

    @property
    def rests(self) -> bool:
        """Whether it waits for what others do, for as long as it may."""
        operation = self.operation
        waits = isinstance(operation, TakeMessages) and operation.wait_us is not None
        return waits and self.asked is not None

    def told(self, answer: Any, refusal: Refusal | None) -> None:
        """What came of it."""
        self.owner.told(self, answer, refusal)


class Messages:
    """:param link: the connection"""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._time = asyncio.get_running_loop().time
        self._open: dict[int, _Open] = {}
        self._read: list[_Open] = []
        self._left: list[_Open] = []
        """What found no room."""
        self._room = _Room(link.outgoing)
        self._callers = Callers(link)
        self._idle: asyncio.Future[None] | None = None
        """For who waits until nothing is under way but what rests."""

    def begin(self, message: Message) -> None:
        """A TOPIC has been read."""
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
            one = self._open[id] = _Open(self, id, place, operation, timeout_us, self._time())
            self._read.append(one)

    def ask(self) -> None:
        """Ask for all that one read has brought, in the name of who the peer is now: an AUTH behind
        them changes nothing."""
        if self._read:
            read, self._read = self._read, []
            self._ask(read)

    def go_on(self) -> None:
        """Ask for what is left, if there is room."""
        if self._left and self._room.left > 0:
            left, self._left = self._left, []
            self._link.release(MESSAGES)
            now = self._time()
            for one in left:
                if self._is_open(one):
                    _spend(one, now)
                    assert one.caller is not None, "nobody has asked for it"
                    self._start(one, one.caller)
            self._look()

    async def done(self) -> None:
        """Wait until nothing is under way, and nothing left, but those that rest: what a TAKE finds
        there is handed out only as long as the session lasts that it was sent in."""
        while any(not one.rests for one in self._open.values()):
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def cancel(self, id: int) -> None:
        """End one early; its answer may have crossed the CANCEL."""
        one = self._open.get(id)
        if one is None or one.is_done:
            return
        why = Cancelled("the request was cancelled")
        if one.asked is not None:
            one.asked.end(why)
        else:  # it is left, or it is not known yet whose it is
            self._answer(one, None, why)

    def abandon(self) -> None:
        """Nobody will read the answers: what waits does so no more."""
        self._left.clear()
        for id in list(self._open):
            self.cancel(id)

    def _is_open(self, one: _Open) -> bool:
        """Whether it is to be answered yet: its id may be another's by now, if it was cancelled."""
        return self._open.get(one.id) is one

    def _look(self) -> None:
        """Something was answered, or asked for: who waits for `done` looks again."""
        idle, self._idle = self._idle, None
        if idle is not None and not idle.done():
            idle.set_result(None)

    def _ask(self, batch: list[_Open]) -> None:
        self._callers.ask(
            self._link.name(batch[0].id),
            partial(self._start_all, batch),
            partial(self._refuse_all, batch),
        )

    def _start_all(self, batch: list[_Open], caller: Caller) -> None:
        for one in batch:
            if self._is_open(one):
                self._start(one, caller)
        self._look()

    def _start(self, one: _Open, caller: Caller) -> None:
        link = self._link
        one.caller = caller
        one.asked = link.wire.gate.messages(
            link.name(one.id), caller, one.place, one.operation, one.told, one.timeout_us,
            self._room,
        )  # fmt: skip

    def _refuse_all(self, batch: list[_Open], refusal: Refusal) -> None:
        for one in batch:
            if self._is_open(one):
                self._answer(one, None, refusal)

    def told(self, one: _Open, answer: Any, refusal: Refusal | None) -> None:
        """What came of one; neither an answer nor a refusal: it found no room."""
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
        """Have an answer say at which commit it was done."""
        if seq and self._link.minor >= MINOR_OF_SEQUENCES:
            answer["seq"] = seq

    def _answer(
        self,
        one: _Open,
        answer: dict[str, Any] | None,
        refusal: Refusal | None,
        data: bytes | None = None,
    ) -> None:
        link = self._link
        del self._open[one.id]
        if refusal is not None:
            link.refuse(one.id, refusal)
        else:
            link.send(Kind.VALUE, one.id, answer, data)
        self._look()
        link.end_if_done()

    async def _answer_long(self, one: _Open, answer: dict[str, Any], size: int) -> None:
        """An answer of many messages, encoded in turns with everybody else's work.

        :param size: what they take of the room until then: nothing else counts them
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
        return encode_in_steps(Kind.VALUE, id, answer, partial(tick_for, self._link, tick))


def _spend(one: _Open, now: float) -> None:
    """The time that it has waited here is gone."""
    spent_us, one.began = int((now - one.began) * 1_000_000), now
    if one.timeout_us is not None:
        one.timeout_us = max(one.timeout_us - spent_us, 0)
    old = one.operation
    if isinstance(old, TakeMessages) and old.wait_us is not None:
        wait_us = max(old.wait_us - spent_us, 0)
        one.operation = TakeMessages(old.topic, old.group, old.count, old.member, wait_us)
