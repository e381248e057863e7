"""Actors with a thread of their own, for work that blocks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from pykka._envelope import Envelope

from actors.runtime.actor import Actor, LoopFuture, Runtime, is_always_taken, is_stop, refuse
from protocol.errors import Busy, Refusal


class ThreadInbox:
    """Messages of a thread actor; safe to fill from any thread."""

    __slots__ = ("_limit", "_name", "_notify", "messages")

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Envelope[Any]] = queue.SimpleQueue()
        self._notify: Callable[[], None] | None = None

    def bind(self, limit: int, name: str, notify: Callable[[], None] | None) -> None:
        """Attach the mailbox to its actor. :param notify: called for each message when no thread
        waits"""
        self._limit = limit
        self._name = name
        self._notify = notify

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message. :raises Busy: the mailbox is full"""
        if self.messages.qsize() >= self._limit and not is_always_taken(envelope):
            raise Busy(f"{self._name} has {self._limit} messages waiting")
        self.messages.put(envelope)
        if self._notify is not None:
            self._notify()

    def get(self) -> Envelope[Any]:
        """Return the oldest message; block until there is one."""
        return self.messages.get()

    def wait(self) -> list[Envelope[Any]]:
        """Return all waiting messages; block until there is one. The waiting thread keeps no
        reference to earlier messages: one may have held a password."""
        first = self.messages.get()
        return [first, *self.take()]

    def empty(self) -> bool:
        """True if no message waits."""
        return self.messages.empty()

    def take(self) -> list[Envelope[Any]]:
        """Return all waiting messages without blocking."""
        taken: list[Envelope[Any]] = []
        try:
            while True:
                taken.append(self.messages.get_nowait())
        except queue.Empty:
            return taken


class ThreadActor(Actor):
    """An actor with a thread of its own, for blocking work.

    Handlers run in the thread. A subclass that gains from seeing all waiting messages at once
    overrides `on_batch`.
    """

    actor_inbox: ThreadInbox
    low_priority = False
    """True if its thread yields the processor to the others, the loop's above all: for long
    computations that nothing else waits for."""
    answers: ClassVar[tuple[type[BaseException], ...]] = (Refusal,)
    """Exceptions that are legitimate answers to a request; any other is reported as a bug."""

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
            self.runtime.loop.call_soon(self._run_on_start)

    def join(self) -> None:
        """Wait for the thread of a stopped actor: it has nothing left to do but to end."""
        if self._thread is not None:
            self._thread.join()

    # --- with a thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._run_on_start()
            while not self.actor_stopped.is_set():
                self._handle(self.actor_inbox.wait())
        except BaseException as error:
            self._fail(error)
            self._end([])

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

    # A thread ends silently on an exception that is no `Exception`, `SystemExit` above all. Callers
    # would wait for ever, so these catch `BaseException`.

    def _run_on_start(self) -> None:
        try:
            if self.low_priority:
                self.runtime.lower_priority()
            self.on_start()
        except BaseException as error:
            self._fail(error)
            self._end([])

    def _handle(self, batch: list[Envelope[Any]]) -> None:
        """Handle a batch up to a stop in it; later messages are refused."""
        ending: Envelope[Any] | None = None
        for position, envelope in enumerate(batch):
            if is_stop(envelope.message):
                ending = envelope
                late = batch[position + 1 :]
                batch = batch[:position]
                break
        try:
            if batch and not self.actor_stopped.is_set():
                self.on_batch(batch)
            if ending is not None:
                self.on_stop()
        except BaseException as error:
            self._fail(error)
        if ending is not None:
            self._stopped()
        if self.actor_stopped.is_set():
            self._end([ending, *late] if ending is not None else batch)

    def on_batch(self, batch: list[Envelope[Any]]) -> None:
        """Handle messages in order, each with its own reply. An exception that leaves it fails the
        actor."""
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
        """Answer one message; no effect if it expects no reply."""
        if envelope.reply_to is not None:
            self.runtime.cross(envelope.reply_to.set, value)

    def refuse(self, envelope: Envelope[Any], error: BaseException) -> None:
        """Answer one message with an exception."""
        if not isinstance(error, self.answers):
            self.runtime.report_error(type(self).__name__, error)
        assert isinstance(envelope.reply_to, LoopFuture)
        self.runtime.cross(envelope.reply_to.fail, error)

    def _end(self, left: list[Envelope[Any]]) -> None:
        self.runtime.cross(self._refuse_rest, left)

    def _refuse_rest(self, left: list[Envelope[Any]]) -> None:
        """Refuse the remaining messages. On the loop, where none are added any more to the mailbox
        of a dead actor."""
        for envelope in left + self.actor_inbox.take():
            if envelope.reply_to is not None:
                refuse(envelope)
