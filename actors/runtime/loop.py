"""Actors whose mailbox the event loop drains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakSet

import pykka
from pykka._envelope import Envelope

from actors.runtime.actor import Actor, LoopFuture, Runtime, is_stop, refuse
from actors.runtime.inboxes import AWAITABLE, LoopInbox
from protocol import limits
from protocol.environment import Clock
from protocol.errors import Refusal, UnknownOutcome

REST_SECONDS: Final = 60.0
"""Pause of an actor's background work after it met an unreadable part of the state."""


class Slices:
    """Time slices for long work of a coroutine that is no script and waits for nothing else.

    :param pause: called before each yield to the loop
    """

    def __init__(self, clock: Clock, pause: Callable[[], None]) -> None:
        self._clock = clock
        self._pause = pause
        self._until_us = clock.monotonic_us() + limits.SLICE_US

    async def tick(self) -> None:
        """Yield to the loop when the slice is used up."""
        if self._clock.monotonic_us() >= self._until_us:
            self._pause()
            await asyncio.sleep(0)
            self._until_us = self._clock.monotonic_us() + limits.SLICE_US


class LoopActor(Actor):
    """An actor whose mailbox the event loop drains."""

    actor_inbox: LoopInbox

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        # Ordered by arrival, so that they are ended in that order: a set's order differs each run.
        self.following: dict[asyncio.Future[Any], None] = {}
        self._timers: WeakSet[asyncio.TimerHandle] = WeakSet()
        """Timers set by `after`, as far as the loop holds them."""
        self._monotonic_us = runtime.clock.monotonic_us
        self.actor_inbox.bind(self, self._drain)

    @staticmethod
    def _create_actor_inbox() -> LoopInbox:
        return LoopInbox()

    def _start_actor_loop(self) -> None:
        self.runtime.loop.call_soon(self._run_on_start)

    def after(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `act` after a delay, unless the actor has ended by then, in whatever way.

        All timers of an actor are set with this: `on_stop` is not called for an actor that fails,
        and a timer must not fire after its end.
        """
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

    def _run_on_start(self) -> None:
        try:
            self.on_start()
        except Exception as error:
            self._fail(error)
            self.refuse_waiting()
        else:
            self._drain()

    def _drain(self) -> None:
        """Handle a slice of the waiting messages, bounded by number and time."""
        inbox = self.actor_inbox
        waiting = inbox.waiting
        now_us = self._monotonic_us
        until_us = now_us() + limits.SLICE_US
        # Messages sent by these handlers wait for the next slice, or the loop would starve.
        for _ in range(min(len(waiting), limits.MAILBOX_SLICE)):
            self.receive(waiting.popleft())
            if self.actor_stopped.is_set():
                self.refuse_waiting()
                return
            if now_us() >= until_us:
                break
        inbox.slice_ends()

    def followed(self, future: asyncio.Future[Any]) -> None:
        """Forget a finished reply, which the caller has already; report an exception that is no
        refusal."""
        self.following.pop(future, None)
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, Refusal):
            self.runtime.report_error(type(self).__name__, error)

    def receive(self, envelope: Envelope[Any]) -> None:
        """Handle a message, and see to its reply. A message without reply that raises fails the
        actor."""
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
        if isinstance(response, AWAITABLE):
            self.follow(response, reply_to)
        elif reply_to is not None:
            reply_to.set(response)

    def _answer_error(self, reply_to: pykka.Future[Any] | None, error: BaseException) -> None:
        if reply_to is None:
            self._fail(error)
            return
        if not isinstance(error, Refusal):
            self.runtime.report_error(type(self).__name__, error)
        assert isinstance(reply_to, LoopFuture)
        reply_to.fail(error)

    def follow(self, response: Awaitable[Any], reply_to: pykka.Future[Any] | None) -> None:
        """Reply with the result of the awaitable. Keeps a strong reference: a task alone is
        collectable."""
        future = asyncio.ensure_future(response, loop=self.runtime.loop)
        self.following[future] = None

        def reply(future: asyncio.Future[Any]) -> None:
            self.following.pop(future, None)
            if future.cancelled():
                if isinstance(reply_to, LoopFuture):
                    reply_to.fail(UnknownOutcome("the node stopped before this was done"))
                return
            error = future.exception()
            if error is not None:
                self._answer_error(reply_to, error)
                if self.actor_stopped.is_set():
                    self.refuse_waiting()
            elif reply_to is not None:
                reply_to.set(future.result())

        future.add_done_callback(reply)

    def _stop(self) -> None:
        self._stopped()
        try:
            self.on_stop()
        except Exception as error:
            self._fail(error)

    def refuse_waiting(self) -> None:
        """Refuse all messages after the end. Work under way is cancelled and has an unknown
        outcome; waiting messages have not been handled."""
        for future in list(self.following):
            if isinstance(future, asyncio.Task):
                future.cancel()
            elif not future.done():
                future.set_exception(UnknownOutcome("the node stopped before this was done"))
        while self.actor_inbox.waiting:
            envelope = self.actor_inbox.waiting.popleft()
            if envelope.reply_to is not None:
                refuse(envelope)
