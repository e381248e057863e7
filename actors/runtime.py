"""How an actor is run: the only file that knows. Everything else sees messages and replies.

Two kinds of actor stand on `pykka.Actor`, made through the three hooks Pykka has for it:

- `LoopActor`: its mailbox is drained by the event loop, a bounded slice at a time. A handler may
  return an awaitable (`async def`), and the reply follows it. It is asked and told on the
  loop's thread only.
- `ThreadActor`: has a thread of its own for work that blocks. It takes all that waits in its
  mailbox as one batch. What it has to say goes to the loop through `Runtime.cross`.

Invariants:

- A mailbox is bounded: a message too many is refused with `Busy` on the sender's side. Stop is
  always admitted.
- Nobody waits for an actor by blocking: `LoopFuture.get` on an unfinished future is an error.
- A refusal is an answer. Any other exception that nobody waits for is a failure: the actor stops
  and the node hears of it (`Runtime.failed`). One that somebody waits for is answered, and the node
  hears of it too (`Runtime.noticed`): an engine that fails ends it.
- In simulation (`Scheduler.threads` is false) thread actors are drained on the loop, so that one
  seed decides every interleaving.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, ClassVar, Final, Generic, TypeVar

import pykka
import structlog
from pykka import ActorDeadError, ActorRef
from pykka._envelope import Envelope  # public in effect: an inbox is handed these

from protocol import limits
from protocol.doors import Clock, Scheduler
from protocol.errors import Busy, Draining, Refusal, UnknownOutcome
from protocol.requests import Request

Reply = TypeVar("Reply")
T = TypeVar("T")
M = TypeVar("M")

log = structlog.get_logger("actors")

_AWAITABLE = (CoroutineType, asyncio.Future)
GIVE_WAY_AFTER_US: Final = 300
"""Beyond what the disk needs."""
GIVE_WAY_EVERY_US: Final = 250
GIVE_WAY_TIMES: Final = 4
"""How often for one batch; after that the pauses between double."""
GIVE_WAY_SECONDS: Final = 0.0002
POSTPONE_US: Final = 1_000
POSTPONE_MOST_US: Final = 10_000
"""Beyond that whoever waits for what is out is not made to wait for others."""


@dataclass(frozen=True, slots=True)
class Stop(Request[None]):
    """Stop after what came before. The reply comes when the actor is gone."""


class Runtime:
    """What every actor of one node shares: where it runs and who hears of its failure.

    :param on_failure: called on the loop with the actor and what it failed of, once per actor
    :param on_error: called on the loop with what a handler raised, other than a refusal, when its
        asker was told and the actor goes on
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
        self.clock = clock
        self._on_failure = on_failure
        self._on_error = on_error
        self.urgent: Urgent | None = Urgent() if scheduler.threads else None
        self._crossing: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._crossing_scheduled = False

    def cross(self, function: Callable[..., None], *args: Any) -> None:
        """Have the loop call `function(*args)`; from any thread, in order.

        Many crossings cost one wake-up. A loop that has closed meanwhile has no one left who could
        be told: the call is dropped.
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
        # The flag falls before the queue is read: what is appended from here on is either seen
        # below or schedules an arrival of its own.
        self._crossing_scheduled = False
        crossing = self._crossing
        while crossing:
            function, args = crossing.popleft()
            function(*args)

    def failed(self, actor: Actor, error: BaseException) -> None:
        """Report a failure to the node; from any thread."""
        self.cross(self._on_failure, actor, error)

    def noticed(self, where: str, error: BaseException, **fields: object) -> None:
        """Log an exception that somebody was answered with as a bug, and report it to the node."""
        log.error("handler failed", where=where, exc_info=error, **fields)
        self.cross(self._on_error, error)


class Urgent:
    """Lets a thread that others wait for have the interpreter while the loop is busy.

    A loop that always finds work gives the interpreter lock up only for the moment of its select
    call, and takes it back before a waiting thread has even woken. The interpreter's switch
    interval does not help then: the waiter starts its wait anew at each such moment. A commit could
    take 300 ms that way (measured: 3 commits/s beside a loop busy in steps of 50 µs). So, once a
    batch has been out for longer than the disk needs for one, the loop stands still for at most
    GIVE_WAY_SECONDS now and then, until the batch is done.
    """

    __slots__ = ("_done", "_next_us", "_quickest_us", "_times", "since_us")

    def __init__(self) -> None:
        self._done = threading.Lock()
        self._done.acquire()
        self.since_us = 0
        self._next_us = 0
        self._times = 0
        self._quickest_us = 0

    def handed_over(self, now_us: int) -> None:
        """On the loop: the thread has work that somebody waits for."""
        if not self.since_us:
            self.since_us = now_us
            self._next_us = now_us + self._quickest_us + GIVE_WAY_AFTER_US
            self._times = 0
            self._done.acquire(blocking=False)

    def postpone(self, now_us: int) -> None:
        """On the loop: more work for the thread has come, to follow what is out. As long as it
        comes the loop is doing what others wait for, and goes on with that."""
        until_us = min(now_us + POSTPONE_US, self.since_us + POSTPONE_MOST_US)
        self._next_us = max(self._next_us, until_us)

    def finished(self, took_us: int) -> None:
        """In the thread: the batch is done.

        :param took_us: from the batch in hand to its end. The quickest of late tells what the disk
            needs; the others waited for the interpreter too.
        """
        self._quickest_us = min(took_us, self._quickest_us + self._quickest_us // 16 + 10)
        if self._done.locked():
            self._done.release()

    def settled(self) -> None:
        """On the loop: nothing is out any more."""
        self.since_us = 0

    def give_way(self, now_us: int) -> None:
        """On the loop, between two pieces of work, while something is out."""
        if now_us >= self._next_us:
            # The thread needs the interpreter about three times for a batch. If it was let in
            # more often than that, it is not the loop that it waits for but the disk.
            self._times += 1
            self._next_us = now_us + (GIVE_WAY_EVERY_US << max(self._times - GIVE_WAY_TIMES, 0))
            self._done.acquire(timeout=GIVE_WAY_SECONDS)


class LoopFuture(pykka.Future[T]):
    """A reply that is awaited on the loop, never by blocking."""

    def __init__(self) -> None:
        self._get_hook = None
        self.waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def set(self, value: Any = None) -> None:
        """Answer; nothing happens when the waiter has gone."""
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
        """The value, if it is there. Waiting here would stop the loop that has to bring it."""
        if not self.waiter.done():
            raise RuntimeError("await the reply: blocking for it would stop the loop")
        return self.waiter.result()

    def __await__(self) -> Any:
        return self.waiter.__await__()


def ask(ref: ActorRef[Any], request: Request[Reply]) -> asyncio.Future[Reply]:
    """Send a request; await what this returns for the reply.

    Raises what the actor refused with; `Busy` at once when its mailbox is full; `Draining` when it
    is gone. A waiter that is cancelled leaves the actor's work alone.
    """
    future: LoopFuture[Reply] = ref.ask(request, block=False)  # type: ignore[assignment]
    return future.waiter


def ask_now(ref: ActorRef[Any], request: Request[Reply]) -> asyncio.Future[Reply]:
    """As `ask`, but an idle loop actor handles the request before this returns, which saves a turn
    of the loop or two. For a caller that asks one thing in a turn: a mailbox is what shares the
    loop between many.
    """
    try:
        reply = call_now(ref, request)
    except Exception as error:
        future: LoopFuture[Reply] = LoopFuture()
        future.fail(error)
        return future.waiter
    if isinstance(reply, asyncio.Future):
        return reply
    waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    waiter.set_result(reply)
    return waiter


def call_now(ref: ActorRef[Any], request: Request[Reply]) -> Reply | asyncio.Future[Reply]:
    """As `ask_now`, but a reply that is there already comes as it is, and a refusal is raised:
    half of what a short request costs is else the future around its answer."""
    inbox = ref.actor_inbox
    if type(inbox) is LoopInbox and not inbox.scheduled:
        return inbox.handle_now(request)  # type: ignore[no-any-return]
    future: LoopFuture[Reply] = ref.ask(request, block=False)  # type: ignore[assignment]
    return future.waiter


def tell_now(ref: ActorRef[Any], message: object) -> None:
    """As `tell`, to a loop actor, which handles the message before this returns if it is idle."""
    inbox = ref.actor_inbox
    if type(inbox) is LoopInbox and not inbox.scheduled:
        inbox.take_now(message)
    else:
        tell(ref, message)


def tell(ref: ActorRef[Any], message: object) -> None:
    """Send a message that has no reply. One to an actor that is gone is lost. Raises `Busy`."""
    if ref.is_alive():
        ref.actor_inbox.put(Envelope(message))


async def stop(ref: ActorRef[Any]) -> None:
    """Stop an actor after what is in its mailbox, and wait until it is gone."""
    if ref.is_alive():
        with suppress(Draining):  # it went by itself meanwhile
            await ask(ref, Stop())
    actor = ref._actor_weakref()
    if isinstance(actor, ThreadActor):
        actor.join()


Handler = Callable[[Any, Any], Any]


def handles(message: type[M]) -> Callable[[Callable[[Any, M], T]], Callable[[Any, M], T]]:
    """Marks a method as the handler of messages of one type."""

    def mark(method: Callable[[Any, M], T]) -> Callable[[Any, M], T]:
        method.__handles__ = message  # type: ignore[attr-defined]
        return method

    return mark


class Actor(pykka.Actor):
    """What both kinds share: handlers by message type, failure, and the end of a mailbox."""

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
        """No message is handled after this."""
        pykka.ActorRegistry.unregister(self.actor_ref)
        self.actor_stopped.set()

    def _fail(self, error: BaseException) -> None:
        """Stop because of a bug or a broken part, and say so to the node."""
        log.error("actor failed", actor=type(self).__name__, exc_info=error)
        self._stopped()
        self.runtime.failed(self, error)

    def _unknown(self, message: object) -> TypeError:
        return TypeError(f"{type(self).__name__} does not handle {type(message).__name__}")

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return LoopFuture()


def _is_stop(message: object) -> bool:
    return isinstance(message, (Stop, pykka.messages._ActorStop))


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
        if len(waiting) >= self._limit and not _is_stop(envelope.message):
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
        self._monotonic_us = runtime.clock.monotonic_us
        self.actor_inbox.bind(runtime.loop, self._drain, self.mailbox_limit, type(self).__name__)
        self.actor_inbox.handle_now = self._handle_now
        self.actor_inbox.take_now = self._take_now

    @staticmethod
    def _create_actor_inbox() -> LoopInbox:
        return LoopInbox()

    def _start_actor_loop(self) -> None:
        self.runtime.loop.call_soon(self._begin)

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
            elif _is_stop(message):
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
                _refuse(envelope)


def _refuse(envelope: Envelope[Any]) -> None:
    assert isinstance(envelope.reply_to, LoopFuture)
    if _is_stop(envelope.message):
        envelope.reply_to.set(None)
    else:
        envelope.reply_to.fail(Draining("the node is stopping"))


class ThreadInbox:
    """Messages of a thread actor; safe to fill from any thread."""

    __slots__ = ("_limit", "_name", "_notify", "messages")

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Envelope[Any]] = queue.SimpleQueue()
        self._notify: Callable[[], None] | None = None

    def bind(self, limit: int, name: str, notify: Callable[[], None] | None) -> None:
        """`notify` is called for each message when no thread waits for them."""
        self._limit = limit
        self._name = name
        self._notify = notify

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message. Raises Busy."""
        if self.messages.qsize() >= self._limit and not _is_stop(envelope.message):
            raise Busy(f"{self._name} has {self._limit} messages waiting")
        self.messages.put(envelope)
        if self._notify is not None:
            self._notify()

    def get(self) -> Envelope[Any]:
        """The oldest message; waits for one."""
        return self.messages.get()

    def empty(self) -> bool:
        """Whether none waits."""
        return self.messages.empty()

    def take(self) -> list[Envelope[Any]]:
        """All that waits, without waiting."""
        taken: list[Envelope[Any]] = []
        try:
            while True:
                taken.append(self.messages.get_nowait())
        except queue.Empty:
            return taken


class ThreadActor(Actor):
    """An actor with a thread of its own, for work that blocks.

    Handlers run in the thread. A subclass that gains from seeing all that waits at once overrides
    `on_batch`.
    """

    actor_inbox: ThreadInbox

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._thread: threading.Thread | None = None
        self._scheduled = False
        self.actor_inbox.bind(
            self.mailbox_limit, type(self).__name__, None if runtime.threads else self._notify
        )

    @staticmethod
    def _create_actor_inbox() -> ThreadInbox:
        return ThreadInbox()

    def _start_actor_loop(self) -> None:
        if self.runtime.threads:
            self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
            self._thread.start()
        else:
            self.runtime.loop.call_soon(self._begin)

    def join(self) -> None:
        """Wait for the thread of a stopped actor: it has nothing left to do but to end."""
        if self._thread is not None:
            self._thread.join()

    # --- with a thread ----------------------------------------------------------------------

    def _run(self) -> None:
        self._begin()
        inbox = self.actor_inbox
        while not self.actor_stopped.is_set():
            first = inbox.get()
            self._handle([first, *inbox.take()])

    # --- without one --------------------------------------------------------------------------

    def _notify(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            # As from a thread: a simulated loop may let such calls take their time.
            self.runtime.loop.call_soon_threadsafe(self._drain_on_loop)

    def _drain_on_loop(self) -> None:
        self._scheduled = False
        batch = self.actor_inbox.take()
        if batch:
            self._handle(batch)

    # --- either way -----------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            self.on_start()
        except Exception as error:
            self._fail(error)
            self._end([])

    def _handle(self, batch: list[Envelope[Any]]) -> None:
        """Handle a batch up to a stop in it; what comes after that is refused."""
        ending: Envelope[Any] | None = None
        for position, envelope in enumerate(batch):
            if _is_stop(envelope.message):
                ending = envelope
                late = batch[position + 1 :]
                batch = batch[:position]
                break
        try:
            if batch and not self.actor_stopped.is_set():
                self.on_batch(batch)
            if ending is not None:
                self.on_stop()
        except Exception as error:
            self._fail(error)
        if ending is not None:
            self._stopped()
        if self.actor_stopped.is_set():
            self._end([ending, *late] if ending is not None else batch)

    def on_batch(self, batch: list[Envelope[Any]]) -> None:
        """Handle messages in order, each with its own reply. What it raises fails the actor."""
        for envelope in batch:
            try:
                handler = self.handlers.get(type(envelope.message))
                if handler is None:
                    raise self._unknown(envelope.message)
                self.reply(envelope, handler(self, envelope.message))
            except Exception as error:
                if envelope.reply_to is None:
                    raise
                self.refuse(envelope, error)

    def reply(self, envelope: Envelope[Any], value: Any) -> None:
        """Answer one message; nothing happens when nobody waits."""
        if envelope.reply_to is not None:
            self.runtime.cross(envelope.reply_to.set, value)

    def refuse(self, envelope: Envelope[Any], error: BaseException) -> None:
        """Answer one message with an exception."""
        if not isinstance(error, Refusal):
            self.runtime.noticed(type(self).__name__, error)
        assert isinstance(envelope.reply_to, LoopFuture)
        self.runtime.cross(envelope.reply_to.fail, error)

    def _end(self, left: list[Envelope[Any]]) -> None:
        self.runtime.cross(self._bury, left)

    def _bury(self, left: list[Envelope[Any]]) -> None:
        """On the loop, where nobody puts anything into the mailbox of a dead actor any more."""
        for envelope in left + self.actor_inbox.take():
            if envelope.reply_to is not None:
                _refuse(envelope)


A = TypeVar("A", bound=Actor)


class Supervised(Generic[A]):
    """A place in the node that an actor fills, and that another one fills after it failed.

    :param begin: starts an actor for the place
    :param refoldable: whether a fresh actor may take the place; it may when all the failed one held
        can be had again from the store. Where it may not, the failure is the node's.
    """

    RESTARTS = 5
    WITHIN_US = 60_000_000

    def __init__(self, begin: Callable[[], ActorRef[A]], *, refoldable: bool) -> None:
        self._begin = begin
        self._refoldable = refoldable
        self._failures_us: deque[int] = deque(maxlen=self.RESTARTS)
        self.ref = begin()

    def restart(self, now_us: int) -> bool:
        """Fill the place again. False when it must not be, or has been too often of late."""
        often = (
            len(self._failures_us) == self.RESTARTS
            and now_us - self._failures_us[0] < self.WITHIN_US
        )
        if not self._refoldable or often:
            return False
        self._failures_us.append(now_us)
        self.ref = self._begin()
        return True
