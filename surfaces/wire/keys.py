"""The KVs of one wire connection: those of one read are asked for together, and answered when they
are done.

What keys hold is not known before it is read: a thousand short requests may ask for a gigabyte. So
those that are asked for share a room of bytes (`protocol.spaces.Room`), as much as the peer's
answers may still wait for it. What found none was not done; it waits here, ahead of all that the
connection reads after it, until the peer has taken what there was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from protocol.errors import Refusal, SignInRefused
from protocol.frames import Kind, Message
from protocol.requests import AuthenticateToken
from protocol.spaces import KeyAnswer, Room
from surfaces.wire import spaces
from surfaces.wire.gate import Place
from surfaces.wire.link import KEYS, Link


@dataclass(frozen=True, slots=True)
class _Part:
    """Operations on one space that are asked for in one go."""

    who: AuthenticateToken
    """The peer at the time of the read: an AUTH behind them changes nothing."""
    place: Place
    asked: spaces.Asked


class Keys:
    """:param link: the connection"""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._read: dict[Place, spaces.Asked] = {}
        self._asking: dict[asyncio.Future[tuple[KeyAnswer, ...]], int] = {}
        """What the node has been asked, with the place of each among those of its round."""
        self._room = Room(0)
        """Of this round: all that is asked for until nothing is any more."""
        self._round = 0
        self._left: list[tuple[int, _Part]] = []
        """What found no room in this round."""
        self._idle: asyncio.Future[None] | None = None

    def begin(self, message: Message) -> None:
        """A KV has been read."""
        link = self._link
        try:
            if link.wire.admission.draining:
                raise link.wire.admission.leaving()
            if message.refusal is not None:
                raise message.refusal
            if link.token is None:
                raise SignInRefused("a KV needs a signed-in user")
            place, operation = spaces.read_keys(message.body)
        except Refusal as refusal:
            link.refuse(message.id, refusal)
        else:
            self._read.setdefault(place, []).append((message.id, operation))

    def ask(self) -> None:
        """Ask for all that one read has brought."""
        if not self._read:
            return
        token = self._link.token
        assert token is not None, "a KV was begun for nobody"
        read, self._read = self._read, {}
        who = AuthenticateToken(token, "wire", self._link.address)
        self._ask([_Part(who, place, asked) for place, asked in spaces.in_order(read)])

    def go_on(self) -> None:
        """Ask for what is left, once all that was asked for has been answered."""
        if not self._left or self._asking:
            return
        left = [part for _, part in sorted(self._left, key=_number)]
        self._left.clear()
        self._link.release(KEYS)
        self._ask(left)

    async def done(self) -> None:
        """Wait until nothing is asked for, and nothing left."""
        if self._asking or self._left:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def abandon(self) -> None:
        """Nobody will read the answers: what is left is not done."""
        self._left.clear()
        self._look()

    def _ask(self, parts: list[_Part]) -> None:
        """What goes to one space in one go counts as one statement running."""
        link, wire = self._link, self._link.wire
        if not self._asking:
            self._room = Room(max(1, link.outgoing.room))
        for part in parts:
            self._round += 1
            if self._left or self._room.left <= 0:
                self._leave(self._round, part)
                continue
            try:
                if wire.admission.full:
                    raise wire.admission.busy()
                operations = tuple(operation for _, operation in part.asked)
                name, alone = link.name(part.asked[0][0]), len(parts) == 1
                asked = wire.gate.keys(part.who, part.place, operations, name, alone, self._room)
                found = asyncio.ensure_future(asked)
            except Refusal as refusal:
                self._answer(part, [refusal] * len(part.asked))
                continue
            wire.admission.begin()
            if found.done():
                self._found(self._round, part, found)
                continue
            self._asking[found] = self._round
            wire.under_way.follow(found)
            found.add_done_callback(partial(self._found, self._round, part))

    def _found(
        self, number: int, part: _Part, future: asyncio.Future[tuple[KeyAnswer, ...]]
    ) -> None:
        link, asked = self._link, part.asked
        link.wire.admission.end()
        self._asking.pop(future, None)
        answers: Sequence[KeyAnswer]
        try:
            answers = future.result()
        except Refusal as refusal:
            answers = [refusal] * len(asked)
        except asyncio.CancelledError:
            answers = [link.wire.admission.leaving()] * len(asked)
        except Exception:
            answers = [link.failed(link.name(asked[0][0]))] * len(asked)
        if len(answers) < len(asked) and not link.over:
            self._leave(number, _Part(part.who, part.place, asked[len(answers) :]))
        self._answer(part, answers)
        self._look()
        link.end_if_done()

    def _leave(self, number: int, part: _Part) -> None:
        self._left.append((number, part))
        self._link.hold(KEYS)

    def _answer(self, part: _Part, answers: Sequence[KeyAnswer]) -> None:
        link = self._link
        for (id, _), answer in zip(part.asked, answers, strict=False):
            if isinstance(answer, Refusal):
                link.refuse(id, answer)
            else:
                link.send(Kind.VALUE, id, answer if type(answer) is dict else None)

    def _look(self) -> None:
        if self._idle is not None and not self._asking and not self._left:
            self._idle.set_result(None)
            self._idle = None


def _number(left: tuple[int, _Part]) -> int:
    return left[0]
