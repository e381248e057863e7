"""What the wire surface asks of the node: one page, so that tests can stand in for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from actors.commits import Asker
from actors.feeds import Feed, OpenFeed
from actors.messages.request import Sender, TakeRoom
from actors.runtime import ask, ask_now, call_now, tell
from actors.spaces import Answers, Names
from protocol.errors import Busy, Draining, NotWritable, Refusal, SessionEnded
from protocol.messages import MessageOperation
from protocol.requests import (
    AuthenticateToken,
    Caller,
    CancelScript,
    NodeStatus,
    RunScript,
    ScriptAnswer,
    Session,
    SignIn,
    SignOut,
    stays,
)
from protocol.spaces import KeyOperation, Room
from protocol.vaults import ChangePassphrase, Seal, ShowVaults, Standings, Unseal

if TYPE_CHECKING:
    from actors.node import Node

_log = structlog.get_logger()


class Ended(Protocol):
    """What has been asked for, and can be ended."""

    @property
    def sequence(self) -> int:
        """The sequence of its own newest commit; 0: it has made none."""

    def end(self, why: Refusal) -> bool:
        """End it with that, as far as it is not answered yet: `told` hears what became of it."""


class Gate(Protocol):
    """The node, as far as this surface needs it. Refusals are raised."""

    async def sign_in(
        self, user: str, password: str, address: str, is_gone: Callable[[], bool] = stays
    ) -> Session:
        """Open a session.

        :param is_gone: true once nobody waits for it
        """

    def caller(self, token: str, who: bytes, address: str) -> Caller | asyncio.Future[Caller]:
        """Who a token stands for now; refused once its session has ended. A future, when it has to
        be looked at again.

        :param who: the digest of the token
        """

    async def sign_out(self, token: str) -> None:
        """End a session that this surface opened; one that has ended by itself is well."""

    def run(self, request: RunScript, now: bool) -> ScriptAnswer | asyncio.Future[ScriptAnswer]:
        """Run a script: its answer, if it has one before this returns.

        :param now: whether to begin before this returns, if nothing is queued before it
        """

    def keys(
        self,
        asker: Asker[Answers],
        who: bytes,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room,
    ) -> Answers | None:
        """Do something to keys of a cache space, one after the other, as long as there is room
        for what they answer: the answers, if they are there before this returns. None: the asker
        is told.

        :param who: the digest of a token
        """

    def messages(
        self,
        request: str,
        caller: Caller,
        place: tuple[str, str],
        operation: MessageOperation,
        told: Callable[[Any, Refusal | None], None],
        timeout_us: int | None,
        room: TakeRoom,
    ) -> Ended:
        """Do something to the messages of a topic.

        :param request: names it
        :param place: the names of namespace and database
        :param told: hears the answer or the refusal, after this has returned; neither, when it
            found no room for what it would hand out, and has done nothing
        """

    async def vaults(
        self, asked: Unseal | Seal | ChangePassphrase | ShowVaults
    ) -> datetime | int | Standings | None:
        """Unseal, seal, and what is asked of vaults beside."""

    async def feed(self, asked: OpenFeed) -> Feed:
        """Follow a table. The feed may be over before this returns: its sink has been told."""

    def cancel(self, request: str) -> None:
        """Stop a running script; nobody waits for it."""

    def waiting(self) -> int:
        """How many of this surface's scripts only wait for messages."""

    def waiting_of(self, user: str) -> int:
        """Return the number of these that are a user's."""

    def when_told(self, call: Callable[[], None]) -> None:
        """Have something called each time that all have been told who waited for the same disk."""

    def turn_ends(self) -> None:
        """All that was read has been asked for: in this turn of the loop this surface asks for
        nothing more, unless it is called again."""

    def status(self) -> NodeStatus:
        """What the node says of itself."""

    def not_writable(self) -> NotWritable | None:
        """Why the node takes no changes; None: it does."""


class NodeGate:
    """The gate to a real node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def sign_in(
        self, user: str, password: str, address: str, is_gone: Callable[[], bool] = stays
    ) -> Session:
        return await ask(self._node.sessions, SignIn(user, password, "wire", address, is_gone))

    def caller(self, token: str, who: bytes, address: str) -> Caller | asyncio.Future[Caller]:
        known = self._node.caller(who, "wire", address)
        if known is not None:
            return known
        return ask_now(self._node.sessions, AuthenticateToken(token, "wire", address))

    async def sign_out(self, token: str) -> None:
        # Asked, not told: a refusal must come back here, where it means nothing.
        try:
            await ask(self._node.sessions, SignOut(token))
        except (SessionEnded, Draining):
            return
        except Busy:
            _log.warning("a session was left to end by itself")

    def run(self, request: RunScript, now: bool) -> ScriptAnswer | asyncio.Future[ScriptAnswer]:
        return (call_now if now else ask)(self._node.scripts, request)

    def keys(
        self,
        asker: Asker[Answers],
        who: bytes,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room,
    ) -> Answers | None:
        return self._node.spaces.run(asker, who, names, operations, room)

    def messages(
        self,
        request: str,
        caller: Caller,
        place: tuple[str, str],
        operation: MessageOperation,
        told: Callable[[Any, Refusal | None], None],
        timeout_us: int | None,
        room: TakeRoom,
    ) -> Ended:
        sender = Sender(request, caller, place)
        return self._node.messages.ask(sender, operation, told, timeout_us=timeout_us, room=room)

    async def vaults(
        self, asked: Unseal | Seal | ChangePassphrase | ShowVaults
    ) -> datetime | int | Standings | None:
        return await ask(self._node.vaults, asked)  # type: ignore[arg-type]

    async def feed(self, asked: OpenFeed) -> Feed:
        feed = await ask(self._node.feeds, asked)
        assert isinstance(feed, Feed)
        return feed

    def cancel(self, request: str) -> None:
        try:
            tell(self._node.scripts, CancelScript(request))
        except Busy:
            _log.warning("a script was left to run to its end", request=request)

    def waiting(self) -> int:
        return self._node.running.waiting("wire")

    def waiting_of(self, user: str) -> int:
        return self._node.running.waiting_of("wire", user)

    def when_told(self, call: Callable[[], None]) -> None:
        self._node.committer.on_told.append(call)

    def turn_ends(self) -> None:
        self._node.messages.turn_ends()
        self._node.committer.turn_ends()

    def status(self) -> NodeStatus:
        return self._node.status()

    def not_writable(self) -> NotWritable | None:
        return self._node.not_writable()
