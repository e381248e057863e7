"""Mailbox of a loop actor, and the fast path around it.

A request that comes while none waits is handled before the call returns: the way through the
mailbox would be most of the cost of a short request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from threading import Event
from types import CoroutineType
from typing import Any, Final, Protocol

from pykka._envelope import Envelope

from actors.runtime.actor import LoopFuture, Runtime, is_always_taken
from actors.runtime.replies import Reply
from protocol.errors import Busy, Refusal

AWAITABLE: Final = (CoroutineType, asyncio.Future)
"""Types of a handler's result whose reply is yet to come."""


class Handles(Protocol):
    """A loop actor, as far as its inbox needs it."""

    runtime: Runtime
    actor_stopped: Event
    following: dict[asyncio.Future[Any], None]
    """Unfinished replies of handlers."""

    @property
    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        """Handlers by message type."""

    @property
    def mailbox_limit(self) -> int:
        """Messages that may wait."""

    def receive(self, envelope: Envelope[Any]) -> None:
        """Handle a message, and see to its reply."""

    def follow(self, response: Awaitable[Any], reply_to: LoopFuture[Any]) -> None:
        """Reply with the result of the awaitable."""

    def followed(self, future: asyncio.Future[Any]) -> None:
        """Take note that a handler's awaitable is done."""

    def refuse_waiting(self) -> None:
        """Refuse all waiting messages: the actor has stopped."""


class LoopInbox:
    """Messages of a loop actor, and whether the loop is scheduled to drain them."""

    def __init__(self) -> None:
        self.waiting: deque[Envelope[Any]] = deque()
        self.scheduled = True  # until the actor has started

    def bind(self, actor: Handles, drain: Callable[[], None]) -> None:
        """Attach the mailbox to its actor. :param drain: handles a slice of the waiting messages"""
        self._actor = actor
        self._handlers = actor.handlers
        self._limit = actor.mailbox_limit
        self._drain = drain
        self._loop = actor.runtime.loop
        self._urgent = actor.runtime.urgent
        self._monotonic_us = actor.runtime.clock.monotonic_us

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message. :raises Busy: the mailbox is full"""
        waiting = self.waiting
        if len(waiting) >= self._limit and not is_always_taken(envelope):
            name = type(self._actor).__name__
            raise Busy(f"{name} has {self._limit} messages waiting")
        waiting.append(envelope)
        if not self.scheduled:
            self.scheduled = True
            self._loop.call_soon(self._drain)

    def get(self) -> Envelope[Any]:
        """Return the oldest message."""
        return self.waiting.popleft()

    def empty(self) -> bool:
        """True if no message waits."""
        return not self.waiting

    def slice_ends(self) -> None:
        """End a slice of the actor: schedule the next if messages wait, and yield the GIL if a
        thread needs it."""
        if self.waiting:
            self._loop.call_soon(self._drain)
        else:
            self.scheduled = False
        urgent = self._urgent
        if urgent is not None and urgent.since_us:
            urgent.yield_gil(self._monotonic_us())

    def handle_now(self, message: Any) -> Any:
        """Handle one message out of turn. Return the reply, or its future; raise the handler's
        exception.

        Only while no drain is scheduled, so that messages keep their order: none waits then and
        none is being handled.
        """
        self.scheduled = True  # messages that come meanwhile wait, the actor's own too
        try:
            return self._reply(message)
        finally:
            self._out_of_turn_ends()

    def take_now(self, message: Any) -> None:
        """Like `handle_now`, for a message without reply."""
        self.scheduled = True
        self._actor.receive(Envelope(message))
        self._out_of_turn_ends()

    def _out_of_turn_ends(self) -> None:
        if self._actor.actor_stopped.is_set():
            self._actor.refuse_waiting()
        else:
            self.slice_ends()

    def _reply(self, message: Any) -> Any:
        actor = self._actor
        handler = self._handlers.get(type(message))
        if handler is None:
            future: LoopFuture[Any] = LoopFuture()
            actor.receive(Envelope(message, future))
            return future.waiter
        try:
            response = handler(actor, message)
        except Refusal:
            raise
        except Exception as error:
            actor.runtime.report_error(type(actor).__name__, error)
            raise
        if not isinstance(response, AWAITABLE):
            return response
        if isinstance(response, CoroutineType | asyncio.Task):
            # A waiter that is cancelled leaves the actor's work alone: it gets a future of its own.
            future = LoopFuture()
            actor.follow(response, future)
            return future.waiter
        actor.following[response] = None
        # Its commit may have been rolled back before it began to wait: then it is done already.
        if type(response) is Reply and not response.done():
            response.add_callback(actor.followed)
        else:
            response.add_done_callback(actor.followed)
        return response
