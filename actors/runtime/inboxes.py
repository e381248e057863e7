"""The mailbox of a loop actor, and what is handled past it.

What is asked while nothing waits is handled before the call returns: most of what a short request
costs would else be its way through the mailbox.
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
"""What a handler answers that has no reply yet."""


class Handles(Protocol):
    """A loop actor, as far as its inbox needs it."""

    runtime: Runtime
    actor_stopped: Event
    following: dict[asyncio.Future[Any], None]
    """What handlers have promised."""

    @property
    def handlers(self) -> Mapping[type, Callable[..., Any]]:
        """By the types of messages."""

    @property
    def mailbox_limit(self) -> int:
        """Messages that may wait."""

    def receive(self, envelope: Envelope[Any]) -> None:
        """Handle a message, and see to its reply."""

    def follow(self, response: Awaitable[Any], reply_to: LoopFuture[Any]) -> None:
        """The reply is what the awaitable brings."""

    def followed(self, future: asyncio.Future[Any]) -> None:
        """What a handler promised is there."""

    def refuse_waiting(self) -> None:
        """After the end: nothing that waits is handled any more."""


class LoopInbox:
    """Messages of a loop actor, and whether the loop knows that there are some."""

    def __init__(self) -> None:
        self.waiting: deque[Envelope[Any]] = deque()
        self.scheduled = True  # until the actor has started

    def bind(self, actor: Handles, drain: Callable[[], None]) -> None:
        """Say whose messages these are. :param drain: handles a slice of what waits"""
        self._actor = actor
        self._handlers = actor.handlers
        self._limit = actor.mailbox_limit
        self._drain = drain
        self._loop = actor.runtime.loop
        self._urgent = actor.runtime.urgent
        self._monotonic_us = actor.runtime.clock.monotonic_us

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message. Raises Busy."""
        waiting = self.waiting
        if len(waiting) >= self._limit and not is_always_taken(envelope):
            name = type(self._actor).__name__
            raise Busy(f"{name} has {self._limit} messages waiting")
        waiting.append(envelope)
        if not self.scheduled:
            self.scheduled = True
            self._loop.call_soon(self._drain)

    def get(self) -> Envelope[Any]:
        """The oldest message."""
        return self.waiting.popleft()

    def empty(self) -> bool:
        """Whether none waits."""
        return not self.waiting

    def slice_ends(self) -> None:
        """The actor has handled what it does in one turn."""
        if self.waiting:
            self._loop.call_soon(self._drain)
        else:
            self.scheduled = False
        urgent = self._urgent
        if urgent is not None and urgent.since_us:
            urgent.give_way(self._monotonic_us())

    def handle_now(self, message: Any) -> Any:
        """Handle one message out of turn. Only while nothing is scheduled, so that messages keep
        their order: nothing waits then and nothing is being handled. Answers the reply, or its
        future; raises what the handler does."""
        self.scheduled = True  # what comes meanwhile waits, from this actor itself too
        try:
            return self._reply(message)
        finally:
            self._out_of_turn_ends()

    def take_now(self, message: Any) -> None:
        """As `handle_now`, for what nobody waits for."""
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
            actor.runtime.noticed(type(actor).__name__, error)
            raise
        if not isinstance(response, AWAITABLE):
            return response
        if isinstance(response, CoroutineType | asyncio.Task):
            # A waiter that is cancelled leaves the actor's work alone: it gets a future of its own.
            future = LoopFuture()
            actor.follow(response, future)
            return future.waiter
        actor.following[response] = None
        # What it waits for may have been taken back before it began to: then it is there already.
        if type(response) is Reply and not response.done():
            response.hear(actor.followed)
        else:
            response.add_done_callback(actor.followed)
        return response
