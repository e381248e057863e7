"""Common base of actors: runtime, replies, handlers, failure."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import pykka
import structlog
from pykka import ActorDeadError
from pykka._envelope import Envelope  # public in effect: an inbox is handed these

from actors.runtime.gil_yield import GilYield
from protocol import limits
from protocol.environment import Clock, Scheduler
from protocol.errors import Draining
from protocol.requests import Request

T = TypeVar("T")
M = TypeVar("M")

log = structlog.get_logger("actors")


@dataclass(frozen=True, slots=True)
class Stop(Request[None]):
    """Stop after the messages that came before. The reply comes when the actor is gone."""


class Runtime:
    """Shared by all actors of one node: event loop, clock, failure callbacks.

    :param on_failure: called on the loop with the actor and the exception it failed of, once per
        actor
    :param on_error: called on the loop with an exception of a handler that is no refusal, when the
        caller has been answered and the actor goes on
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        on_failure: Callable[[Actor, BaseException], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.loop = scheduler.loop
        self.threads = scheduler.threads
        self.lower_priority = scheduler.lower_priority
        self.ready = scheduler.ready
        self.compute = scheduler.compute
        self.clock = clock
        self._on_failure = on_failure
        self._on_error = on_error
        self.urgent: GilYield | None = GilYield() if scheduler.threads else None
        self._crossing: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._crossing_scheduled = False

    def cross(self, function: Callable[..., None], *args: Any) -> None:
        """Have the loop call `function(*args)`; thread-safe, in order.

        Many crossings cost one wake-up. If the loop has closed meanwhile, the call is dropped.
        """
        self._crossing.append((function, args))
        if self._crossing_scheduled:
            return
        self._crossing_scheduled = True
        try:
            self.loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:
            if not self.loop.is_closed():
                raise
            self._crossing.clear()

    def _arrive(self) -> None:
        # The flag is cleared before the queue is read: a call appended from here on is either seen
        # below or schedules an arrival of its own. Cleared after, a call could be lost.
        self._crossing_scheduled = False
        crossing = self._crossing
        while crossing:
            function, args = crossing.popleft()
            function(*args)

    def failed(self, actor: Actor, error: BaseException) -> None:
        """Report a failure to the node; from any thread."""
        self.cross(self._on_failure, actor, error)

    def report_error(self, where: str, error: BaseException, **fields: object) -> None:
        """Log an exception that a caller got as an answer as a bug, and report it to the node."""
        log.error("handler failed", where=where, exc_info=error, **fields)
        self.cross(self._on_error, error)


class LoopFuture(pykka.Future[T]):
    """A reply that is awaited on the loop, never by blocking."""

    def __init__(self) -> None:
        self._get_hook = None
        self.waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def set(self, value: Any = None) -> None:
        """Answer; no effect when the waiter has gone."""
        if not self.waiter.done():
            self.waiter.set_result(value)

    def set_exception(self, exc_info: Any = None) -> None:
        """Answer with an exception, by default the one being handled."""
        self.fail((exc_info or sys.exc_info())[1])

    def fail(self, error: BaseException | None) -> None:
        """Answer with an exception; an actor that is gone means a node that is stopping."""
        assert error is not None
        if isinstance(error, ActorDeadError):
            error = Draining("the node is stopping")
        if not self.waiter.done():
            self.waiter.set_exception(error)

    def get(self, *, timeout: float | None = None) -> T:
        """Return the value, if it is there. Waiting here would block the loop that has to bring it.

        :raises RuntimeError: the reply is not there yet
        """
        if not self.waiter.done():
            raise RuntimeError("await the reply: a blocking get would stop the loop")
        return self.waiter.result()

    def __await__(self) -> Any:
        return self.waiter.__await__()


Handler = Callable[[Any, Any], Any]


def handles(message: type[M]) -> Callable[[Callable[[Any, M], T]], Callable[[Any, M], T]]:
    """Mark a method as the handler of messages of one type."""

    def mark(method: Callable[[Any, M], T]) -> Callable[[Any, M], T]:
        method.__handles__ = message  # type: ignore[attr-defined]
        return method

    return mark


class Actor(pykka.Actor):
    """Common base of loop and thread actors: handlers by message type, failure, end of mailbox."""

    handlers: ClassVar[dict[type, Handler]] = {}
    mailbox_limit: ClassVar[int] = limits.MAILBOX

    def __init_subclass__(cls) -> None:
        own = {
            method.__handles__: method
            for method in vars(cls).values()
            if hasattr(method, "__handles__")
        }
        cls.handlers = {**cls.handlers, **own}

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime

    def _stopped(self) -> None:
        """Mark the actor as stopped: no message is handled after this."""
        pykka.ActorRegistry.unregister(self.actor_ref)
        self.actor_stopped.set()

    def _fail(self, error: BaseException) -> None:
        """Stop because of a bug or a broken part, and report it to the node."""
        log.error("actor failed", actor=type(self).__name__, exc_info=error)
        self._stopped()
        self.runtime.failed(self, error)

    def _unknown(self, message: object) -> TypeError:
        return TypeError(f"{type(self).__name__} does not handle {type(message).__name__}")

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return LoopFuture()


def is_always_taken(envelope: Envelope[Any]) -> bool:
    """True if a full mailbox takes it too: a stop, or a message without reply. Its sender has no
    caller to refuse, and would leave work unfinished."""
    return envelope.reply_to is None or is_stop(envelope.message)


def is_stop(message: object) -> bool:
    """True if a message is the actor's last."""
    return isinstance(message, (Stop, pykka.messages._ActorStop))


def refuse(envelope: Envelope[Any]) -> None:
    """Answer a message that waited in the mailbox of an actor that has stopped."""
    assert isinstance(envelope.reply_to, LoopFuture)
    if is_stop(envelope.message):
        envelope.reply_to.set(None)
    else:
        envelope.reply_to.fail(Draining("the node is stopping"))
