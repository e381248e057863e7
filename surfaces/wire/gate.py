"""Gate: the wire surface's interface to the node, in one file so that a test can replace it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from actors.execution.request import Requester
from actors.execution.scheduler import FiberScheduler
from actors.feeds.feed import Feed
from actors.feeds.request import OpenFeed
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
from protocol.vaults import ChangePassphrase, Seal, ShowVaults, Unseal, VaultStates

if TYPE_CHECKING:
    from actors.node import Node

_log = structlog.get_logger()


class Endable(Protocol):
    """A started operation that can be ended."""

    @property
    def sequence(self) -> int:
        """Sequence of its own newest commit; 0: it has made none."""

    def end(self, why: Refusal) -> bool:
        """End it with that refusal unless it is answered already. `told` gets the outcome."""


class Gate(Protocol):
    """The node's interface for this surface. Refusals are raised."""

    async def sign_in(
        self, user: str, password: str, address: str, is_gone: Callable[[], bool] = stays
    ) -> Session:
        """Open a session.

        :param is_gone: returns True once the client is gone
        """

    def caller(self, token: str, who: bytes, address: str) -> Caller | asyncio.Future[Caller]:
        """Return the caller of a session token; refused once its session has ended. A future if the
        session has to be looked up again.

        :param who: digest of the token
        """

    async def sign_out(self, token: str) -> None:
        """End a session that this surface opened. A session that has ended already is no error."""

    def run(self, request: RunScript, now: bool) -> ScriptAnswer | asyncio.Future[ScriptAnswer]:
        """Run a script. Return its response if it is available at once, else a future.

        :param now: start before this returns, if nothing is queued before it
        """

    def keys(
        self,
        asker: Requester[Answers],
        who: bytes,
        names: Names,
        operations: Sequence[KeyOperation],
        room: Room,
    ) -> Answers | None:
        """Run operations on keys of a cache space in order, as long as there is room for their
        responses. Return the responses if they are available at once; None: the asker is called
        back.

        :param who: digest of the session token
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
    ) -> Endable:
        """Run an operation on the messages of a topic.

        :param request: id of the request
        :param place: names of namespace and database
        :param told: called with the response or the refusal, after this has returned. Called with
            neither if there was no room for the messages to be delivered; then nothing was done.
        """

    async def vaults(
        self, asked: Unseal | Seal | ChangePassphrase | ShowVaults
    ) -> datetime | int | VaultStates | None:
        """Unseal or seal a vault, change its passphrase, or list vaults."""

    async def feed(self, asked: OpenFeed) -> Feed:
        """Open a feed on a table. It may be over before this returns: its sink has then been
        called."""

    def cancel(self, request: str) -> None:
        """Cancel a running script whose client is gone or has cancelled it."""

    def waiting(self) -> int:
        """Return the number of this surface's scripts that only wait for messages."""

    def waiting_of(self, user: str) -> int:
        """Return the number of these that belong to a user."""

    def call_after_each_release(self, call: Callable[[], None]) -> None:
        """Register a callback for the end of each release: every waiter of it has been notified."""

    @property
    def scheduler(self) -> FiberScheduler:
        """Slices of the loop."""

    def on_turn_end(self) -> None:
        """Report the end of a read: this surface submits nothing more in this iteration of the
        loop, unless it is called again."""

    def status(self) -> NodeStatus:
        """Return the node's status."""

    def not_writable(self) -> NotWritable | None:
        """Return the reason why the node takes no writes; None: it does."""


class NodeGate:
    """Gate to a real node."""

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
        # Awaited, not only sent: a refusal must be raised here, where it is ignored.
        try:
            await ask(self._node.sessions, SignOut(token))
        except (SessionEnded, Draining):
            return
        except Busy:
            _log.warning("a session was not signed out: it ends at its expiry")

    def run(self, request: RunScript, now: bool) -> ScriptAnswer | asyncio.Future[ScriptAnswer]:
        return (call_now if now else ask)(self._node.scripts, request)

    def keys(
        self,
        asker: Requester[Answers],
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
    ) -> Endable:
        sender = Sender(request, caller, place)
        return self._node.messages.ask(sender, operation, told, timeout_us=timeout_us, room=room)

    async def vaults(
        self, asked: Unseal | Seal | ChangePassphrase | ShowVaults
    ) -> datetime | int | VaultStates | None:
        return await ask(self._node.vaults, asked)  # type: ignore[arg-type]

    async def feed(self, asked: OpenFeed) -> Feed:
        feed = await ask(self._node.feeds, asked)
        assert isinstance(feed, Feed)
        return feed

    def cancel(self, request: str) -> None:
        try:
            tell(self._node.scripts, CancelScript(request))
        except Busy:
            _log.warning("a script was not cancelled: the node is busy", request=request)

    def waiting(self) -> int:
        return self._node.registry.waiting("wire")

    def waiting_of(self, user: str) -> int:
        return self._node.registry.waiting_of("wire", user)

    def call_after_each_release(self, call: Callable[[], None]) -> None:
        self._node.committer.on_release_notified.append(call)

    @property
    def scheduler(self) -> FiberScheduler:
        return self._node.scheduler

    def on_turn_end(self) -> None:
        self._node.messages.on_turn_end()
        self._node.committer.on_turn_end()

    def status(self) -> NodeStatus:
        return self._node.status()

    def not_writable(self) -> NotWritable | None:
        return self._node.not_writable()
