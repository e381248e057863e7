"""KV requests of one wire connection: those of one read are submitted together, and most are
answered before the next read.

The size of a response is not known before its key is read: a thousand short requests may ask for a
gigabyte. So submitted operations share a byte budget (`protocol.spaces.Room`), the free part of the
connection's write buffer. An operation without room is not executed. It waits here, ahead of all
later requests of the connection, until the peer has read responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from actors.execution.request import RequestOrigin
from actors.spaces import SEQ, Answers, Names
from protocol.errors import Refusal, SignInRefused
from protocol.frames import MessageKind, WireMessage
from protocol.requests import Surface
from protocol.spaces import KeyAnswer, KeyOperation, Room
from surfaces.wire import spaces
from surfaces.wire.bodies import MINOR_OF_SEQUENCES
from surfaces.wire.link import KEYS, WireLink

TOGETHER: Final = 64
"""Operations submitted in one call: about a slice of the loop."""


class _KeyBatch:
    """Operations on one space submitted in one call, with the ids of their messages.

    :ivar who: digest of the session token at the time of the read. A later AUTH does not affect it.
    :ivar user: user that is charged while it runs
    :ivar number: position among the parts of its round
    """

    __slots__ = ("_keys", "ids", "names", "number", "operations", "user", "who")

    surface: Surface = "wire"

    def __init__(self, keys: WireKeys, names: Names) -> None:
        self._keys = keys
        self.names = names
        self.ids: list[int] = []
        self.operations: list[KeyOperation] = []
        self.who = b""
        self.user = ""
        self.number = 0

    def without_first(self, done: int) -> _KeyBatch:
        """Return the part without its first `done` operations."""
        left = _KeyBatch(self._keys, self.names)
        left.ids, left.operations = self.ids[done:], self.operations[done:]
        left.who, left.number = self.who, self.number
        return left

    @property
    def connection(self) -> WireLink:
        return self._keys.link

    @property
    def origin(self) -> RequestOrigin:
        link = self._keys.link
        return RequestOrigin(link.name(self.ids[0]), self.surface, link.address)

    def on_result(self, answer: Answers | None, lost: BaseException | None) -> None:
        self._keys.on_result(self, answer, lost)


class WireKeys:
    """:param link: the connection"""

    def __init__(self, link: WireLink) -> None:
        self.link = link
        self._read: list[_KeyBatch] = []
        """Parts read and not submitted yet."""
        self._filling: dict[Names, _KeyBatch] = {}
        """Parts of `_read` that take the next operation of their space."""
        self._asking: set[_KeyBatch] = set()
        """Parts submitted and not answered."""
        self._room = Room(0)
        """Byte budget of this round. A round lasts until no part is outstanding."""
        self._round = 0
        self._left: list[_KeyBatch] = []
        """Parts that found no room in this round."""
        self._idle: asyncio.Future[None] | None = None

    def receive(self, message: WireMessage) -> None:
        """Decode a KV, or refuse it."""
        link = self.link
        try:
            if link.wire.admission.draining:
                raise link.wire.admission.leaving()
            if message.refusal is not None:
                raise message.refusal
            if link.token is None:
                raise SignInRefused("a KV needs a signed-in user")
            names, operation = spaces.read_keys(message.body)
        except Refusal as refusal:
            link.refuse(message.id, refusal)
        else:
            part = self._filling.get(names)
            if part is None or len(part.ids) == TOGETHER:
                part = self._filling[names] = _KeyBatch(self, names)
                self._read.append(part)
            part.ids.append(message.id)
            part.operations.append(operation)

    def ask(self) -> None:
        """Submit all operations of one read."""
        if not self._read:
            return
        read, self._read = self._read, []
        self._filling.clear()
        for part in read:
            part.who = self.link.who
        self._ask(read)

    def on_peer_read(self) -> None:
        """Submit the remaining parts, once all submitted ones have been answered."""
        if not self._left or self._asking:
            return
        left = sorted(self._left, key=_number)
        self._left.clear()
        self.link.release(KEYS)
        self._ask(left)

    async def done(self) -> None:
        """Wait until no part is outstanding or left."""
        if self._asking or self._left:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def abandon(self) -> None:
        """Drop the remaining parts: their responses will not be read."""
        self._left.clear()
        self._wake_if_idle()

    def _ask(self, parts: list[_KeyBatch]) -> None:
        """Submit parts. The operations of a part count as one running statement."""
        link, wire = self.link, self.link.wire
        if not self._asking:
            self._room = Room(max(1, link.outgoing.room))
        for part in parts:
            self._round += 1
            part.number = self._round
            if self._left or self._room.left <= 0:
                self._leave(part)
                continue
            try:
                if not wire.admission.has_room(link.user):
                    raise wire.admission.busy()
                answers = wire.gate.keys(part, part.who, part.names, part.operations, self._room)
            except Exception as error:
                self._found(part, self._refused(part, error))
                continue
            if answers is None:
                part.user = link.user
                wire.admission.admit(part.user)
                self._asking.add(part)
            else:
                self._found(part, answers)
        self._wake_if_idle()
        link.end_if_done()

    def on_result(
        self, part: _KeyBatch, answers: Answers | None, lost: BaseException | None
    ) -> None:
        """Handle the responses of a submitted part."""
        self.link.wire.admission.end(part.user)
        self._asking.remove(part)
        self._found(part, self._refused(part, lost) if answers is None else answers)
        if self._left and not self._asking:
            # The remaining parts wait for the peer to read, and it may have read everything
            # already.
            self.link.look_again()
        self._wake_if_idle()
        self.link.end_if_done()

    def _refused(self, part: _KeyBatch, error: BaseException | None) -> Sequence[KeyAnswer]:
        """Return a refusal for each operation of a failed part."""
        link = self.link
        if not isinstance(error, Refusal):
            error = link.failed(link.name(part.ids[0]), error)
        return [error] * len(part.ids)

    def _found(self, part: _KeyBatch, answers: Sequence[KeyAnswer]) -> None:
        link, done = self.link, len(answers)
        if done < len(part.ids) and not link.over:
            self._leave(part.without_first(done))
        tells = link.minor >= MINOR_OF_SEQUENCES
        for id, answer in zip(part.ids, answers, strict=False):
            if isinstance(answer, Refusal):
                link.refuse(id, answer)
            elif type(answer) is dict:
                if not tells:
                    answer.pop(SEQ, None)
                link.send(MessageKind.VALUE, id, answer)
            else:
                link.send(MessageKind.VALUE, id, None)

    def _leave(self, part: _KeyBatch) -> None:
        self._left.append(part)
        self.link.hold(KEYS)

    def _wake_if_idle(self) -> None:
        if self._idle is not None and not self._asking and not self._left:
            idle, self._idle = self._idle, None
            if not idle.done():  # the sign-in that waits may have been cancelled
                idle.set_result(None)


def _number(part: _KeyBatch) -> int:
    return part.number
