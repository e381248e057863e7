"""Actors whose mailbox the event loop drains."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, Final
from weakref import WeakSet

import pykka
from pykka._envelope import Envelope

from actors.runtime.actor import Actor, LoopFuture, Runtime, is_always_taken, is_stop, refuse
from actors.runtime.replies import Reply
from protocol import limits
from protocol.errors import Busy, Refusal, UnknownOutcome

_AWAITABLE = (CoroutineType, asyncio.Future)
REST_SECONDS: Final = 60.0
"""So long an actor leaves alone what it does by itself, after it met what can't be read."""


class LoopInbox:
    """Messages of a loop actor, and whether the loop knows that there are some."""

    __slots__ = (
        "_drain", "_limit", "_loop", "_name", "handle_now", "scheduled", "take_now", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waiting: deque[Envelope[Any]] = deque()
        self.scheduled = True  # until the actor has started
        self.handle_now: Callable[[Any], Any]
        self.take_now: Callable[[Any], None]
        """The actor's own, for what is asked and what is told; only while nothing is scheduled, so
        that messages keep their order."""

    def bind(
        self, loop: asyncio.AbstractEventLoop, drain: Callable[[], None], limit: int, name: str
    ) -> None:
        """Say where the messages go."""
        self._loop = loop
        self._drain = drain
        self._limit = limit
        self._name = name

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message. Raises Busy."""
        waiting = self.waiting
        if len(waiting) >= self._limit and not is_always_taken(envelope):
            raise Busy(f"{self._name} has {self._limit} messages waiting")
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


class LoopActor(Actor):
    """An actor whose mailbox the event loop drains."""

    actor_inbox: LoopInbox

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        # In the order they came, which is that of their end: a set's would be another each time.
        self._following: dict[asyncio.Future[Any], None] = {}
        self._timers: WeakSet[asyncio.TimerHandle] = WeakSet()
        """Those set by `after`, as far as the loop holds them."""
        self._monotonic_us = runtime.clock.monotonic_us
        self.actor_inbox.bind(runtime.loop, self._drain, self.mailbox_limit, type(self).__name__)
        self.actor_inbox.handle_now = self._handle_now
        self.actor_inbox.take_now = self._take_now

    @staticmethod
    def _create_actor_inbox() -> LoopInbox:
        return LoopInbox()

    def _start_actor_loop(self) -> None:
        self.runtime.loop.call_soon(self._begin)

    def after(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        """Have something done after so many seconds, unless the actor has ended by then, in
        whatever way. An actor's timers are set with nothing else: `on_stop` is not called for one
        that fails, and what fires after it finds nobody."""
        timer = self.runtime.loop.call_later(seconds, act)
        if self.actor_stopped.is_set():
            timer.cancel()
        else:
            self._timers.add(timer)
        return timer

    def _stopped(self) -> None:
        super()._stopped()
        for timer in list(self._timers):
            timer.cancel()

    def _begin(self) -> None:
        try:
            self.on_start()
        except Exception as error:
            self._fail(error)
            self._refuse_waiting()
        else:
            self._drain()

    def _drain(self) -> None:
        """Handle a slice of what waits: so many messages, or so much time."""
        inbox = self.actor_inbox
        waiting = inbox.waiting
        now_us = self._monotonic_us
        until_us = now_us() + limits.SLICE_US
        for _ in range(min(len(waiting), limits.MAILBOX_SLICE)):
            self._receive(waiting.popleft())
            if self.actor_stopped.is_set():
                self._refuse_waiting()
                return
            if now_us() >= until_us:
                break
        self._slice_ends()

    def _slice_ends(self) -> None:
        inbox = self.actor_inbox
        if inbox.waiting:
            self.runtime.loop.call_soon(self._drain)
        else:
            inbox.scheduled = False
        urgent = self.runtime.urgent
        if urgent is not None and urgent.since_us:
            urgent.give_way(self._monotonic_us())

    def _handle_now(self, message: Any) -> Any:
        """Handle one message out of turn: nothing waits and nothing is being handled. Answers the
        reply, or its future; raises what the handler does."""
        self.actor_inbox.scheduled = True  # what comes meanwhile waits, from this actor itself too
        try:
            return self._reply_now(message)
        finally:
            self._out_of_turn_ends()

    def _take_now(self, message: Any) -> None:
        """As `_handle_now`, for what nobody waits for."""
        self.actor_inbox.scheduled = True
        self._receive(Envelope(message))
        self._out_of_turn_ends()

    def _out_of_turn_ends(self) -> None:
        if self.actor_stopped.is_set():
            self._refuse_waiting()
        else:
            self._slice_ends()

    def _reply_now(self, message: Any) -> Any:
        handler = self.handlers.get(type(message))
        if handler is None:
            future: LoopFuture[Any] = LoopFuture()
            self._receive(Envelope(message, future))
            return future.waiter
        try:
            response = handler(self, message)
        except Refusal:
            raise
        except Exception as error:
            self.runtime.noticed(type(self).__name__, error)
            raise
        if not isinstance(response, _AWAITABLE):
            return response
        if isinstance(response, CoroutineType | asyncio.Task):
            # A waiter that is cancelled leaves the actor's work alone: it gets a future of its own.
            future = LoopFuture()
            self._follow(response, future)
            return future.waiter
        self._following[response] = None
        # What it waits for may have been taken back before it began to: then it is there already.
        if type(response) is Reply and not response.done():
            response.hear(self._followed)
        else:
            response.add_done_callback(self._followed)
        return response

    def _followed(self, future: asyncio.Future[Any]) -> None:
        """What a handler promised is there, and its asker has it already."""
        self._following.pop(future, None)
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, Refusal):
            self.runtime.noticed(type(self).__name__, error)

    def _receive(self, envelope: Envelope[Any]) -> None:
        message = envelope.message
        reply_to = envelope.reply_to
        handler = self.handlers.get(type(message))
        try:
            if handler is not None:
                response = handler(self, message)
            elif is_stop(message):
                self._stop()
                response = None
            else:
                raise self._unknown(message)
        except Exception as error:
            self._answer_error(reply_to, error)
            return
        if isinstance(response, _AWAITABLE):
            self._follow(response, reply_to)
        elif reply_to is not None:
            reply_to.set(response)

    def _answer_error(self, reply_to: pykka.Future[Any] | None, error: BaseException) -> None:
        if reply_to is None:
            self._fail(error)
            return
        if not isinstance(error, Refusal):
            self.runtime.noticed(type(self).__name__, error)
        assert isinstance(reply_to, LoopFuture)
        reply_to.fail(error)

    def _follow(self, response: Awaitable[Any], reply_to: pykka.Future[Any] | None) -> None:
        """The reply is what the awaitable brings. Strong reference: a task alone is collectable."""
        future = asyncio.ensure_future(response, loop=self.runtime.loop)
        self._following[future] = None

        def reply(future: asyncio.Future[Any]) -> None:
            self._following.pop(future, None)
            if future.cancelled():
                if isinstance(reply_to, LoopFuture):
                    reply_to.fail(UnknownOutcome("the node stopped before this was done"))
                return
            error = future.exception()
            if error is not None:
                self._answer_error(reply_to, error)
                if self.actor_stopped.is_set():
                    self._refuse_waiting()
            elif reply_to is not None:
                reply_to.set(future.result())

        future.add_done_callback(reply)

    def _stop(self) -> None:
        self._stopped()
        try:
            self.on_stop()
        except Exception as error:
            self._fail(error)

    def _refuse_waiting(self) -> None:
        """After the end: work under way is cancelled and may have happened; what waits has not."""
        for future in list(self._following):
            if isinstance(future, asyncio.Task):
                future.cancel()
            elif not future.done():
                future.set_exception(UnknownOutcome("the node stopped before this was done"))
        while self.actor_inbox.waiting:
            envelope = self.actor_inbox.waiting.popleft()
            if envelope.reply_to is not None:
                refuse(envelope)
