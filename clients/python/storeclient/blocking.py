"""Blocking twins of the handles of topics.

Their methods are those of the async ones, and may be called from any thread; a call blocks its own
thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from storeclient.answers import Answer
from storeclient.errors import Closed
from storeclient.groups import AsyncConsumer, AsyncGroup, AsyncHandOut, Settled
from storeclient.messages import Message
from storeclient.topics import (
    BATCH,
    AsyncPublisher,
    AsyncReader,
    AsyncTopic,
    Headers,
    Published,
)

T = TypeVar("T")
Seconds = float | timedelta


class Submit(Protocol):
    """Runs a coroutine on the client's loop."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> Future[T]: ...


def result_of(future: Future[T]) -> T:
    """Return the result of work on the client's loop. If this thread is interrupted, the work is
    cancelled.

    :raises Closed: the client was closed before
    """
    try:
        return future.result()
    except CancelledError:
        raise Closed("the client has been closed") from None
    except BaseException:
        future.cancel()
        raise


def _running_here() -> asyncio.AbstractEventLoop | None:
    """Return the event loop running in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Twin:
    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    def __repr__(self) -> str:
        return repr(vars(self)["_twin"]).replace("Async", "")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return result_of(self._submit(work))

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an async iterator from this thread. Leaving the loop closes it."""

        end = object()
        running = asyncio.Lock()
        """Held while the iterator runs. If a thread is interrupted while it waits for an item, the
        iterator first runs to that item on the loop, and only then is closed."""

        home: asyncio.AbstractEventLoop | None = None

        async def following() -> T | object:
            nonlocal home
            home = asyncio.get_running_loop()
            async with running:
                return await anext(found, end)

        async def closing() -> None:
            async with running:
                await found.aclose()  # type: ignore[attr-defined]

        try:
            while (item := self._wait(following())) is not end:
                yield item  # type: ignore[misc]
        finally:
            with suppress(Closed):  # the client's end has closed it
                closed = self._submit(closing())
                if home is None or home is not _running_here():
                    result_of(closed)
                # Else it is finalized in the loop's own thread: waiting would be a deadlock.


class Topic(_Twin):
    """Blocking handle of a topic, otherwise like `AsyncTopic`. Made by `Client.topic(ns, db,
    name)`."""

    def __init__(self, twin: AsyncTopic, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin
        self.name = twin.name

    def publish(
        self,
        value: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
        at: datetime | None = None,
        expect: int | None = None,
    ) -> Published:
        """Append a message; see `AsyncTopic.publish`."""
        return self._wait(
            self._twin.publish(
                value, key=key, id=id, headers=headers, delay=delay, at=at, expect=expect
            )
        )

    def publish_many(
        self,
        values: Sequence[Any],
        *,
        key: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
        expect: int | None = None,
    ) -> range:
        """Append messages in one commit; see `AsyncTopic.publish_many`."""
        return self._wait(
            self._twin.publish_many(values, key=key, headers=headers, delay=delay, expect=expect)
        )

    def publisher(self, *, batch: int = BATCH, linger: Seconds = 0.0) -> Publisher:
        """Return a publisher, whose `publish` does not block; see `AsyncTopic.publisher`."""
        return Publisher(self._twin.publisher(batch=batch, linger=linger), self._submit)

    def read(
        self, after: int = 0, limit: int = 100, *, wait: Seconds | None = None
    ) -> list[Message]:
        """Return messages after a position; see `AsyncTopic.read`."""
        return self._wait(self._twin.read(after, limit, wait=wait))

    def messages(self, after: int = 0, *, follow: bool = False) -> Iterator[Message]:
        """Yield messages after a position; see `AsyncTopic.messages`."""
        return self._each(self._twin.messages(after, follow=follow))

    def reader(self, name: str) -> Reader:
        """Return a handle of a reader; see `AsyncTopic.reader`."""
        return Reader(self._twin.reader(name), self._submit)

    def group(self, name: str) -> Group:
        """Return a handle of a group; see `AsyncTopic.group`."""
        return Group(self._twin.group(name), self._submit)

    def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR TOPIC."""
        return self._wait(self._twin.info())


class Publisher(_Twin):
    """Publishes in batches. Made by `Topic.publisher`.

    with topic.publisher() as publisher:
        outcomes = [publisher.publish(one) for one in work]
    for outcome in outcomes:
        outcome.result()
    """

    def __init__(self, twin: AsyncPublisher, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin

    def publish(
        self,
        value: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
    ) -> Future[Published]:
        """Publish a message with the next batch. Return a future of its outcome; see
        `AsyncPublisher.publish`."""
        return self._submit(self._twin.publish(value, key=key, id=id, headers=headers, delay=delay))

    def drained(self) -> None:
        """Wait until all published messages have an outcome."""
        self._wait(self._twin.drained())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drained()


class Reader(_Twin):
    """Blocking handle of a reader, otherwise like `AsyncReader`."""

    def __init__(self, twin: AsyncReader, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin
        self.name = twin.name

    def define(self, at: int | datetime | None = None, *, end: bool = False) -> None:
        """Declare the reader, unless it exists; see `AsyncReader.define`."""
        self._wait(self._twin.define(at, end=end))

    def read(self, limit: int = 100, *, wait: Seconds | None = None) -> list[Message]:
        """Return messages after its position; see `AsyncReader.read`."""
        return self._wait(self._twin.read(limit, wait=wait))

    def commit(self, position: int) -> None:
        """Move the reader to a processed position; see `AsyncReader.commit`."""
        self._wait(self._twin.commit(position))

    def move(self, at: int | datetime) -> None:
        """Move the reader to any position; see `AsyncReader.move`."""
        self._wait(self._twin.move(at))

    def messages(self, *, follow: bool = False) -> Iterator[Message]:
        """Yield messages one by one; see `AsyncReader.messages`."""
        return self._each(self._twin.messages(follow=follow))

    def drop(self) -> None:
        """Drop the reader."""
        self._wait(self._twin.drop())


class Group(_Twin):
    """Blocking handle of a group, otherwise like `AsyncGroup`."""

    def __init__(self, twin: AsyncGroup, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin
        self.name = twin.name

    def take(
        self, count: int = 1, *, member: str | None = None, wait: Seconds | None = None
    ) -> list[HandOut]:
        """Take messages for processing; see `AsyncGroup.take`."""
        taken = self._wait(self._twin.take(count, member=member, wait=wait))
        return [HandOut(one, self._submit) for one in taken]

    def messages(
        self, *, prefetch: int = 32, member: str | None = None, extend: bool = False
    ) -> Consumer:
        """Return a consumer, for `with` and `for`; see `AsyncGroup.messages`."""
        twin = self._twin.messages(prefetch=prefetch, member=member, extend=extend)
        return Consumer(twin, self._submit)

    def done(
        self, message: HandOut, script: str, params: Mapping[str, Any] | None = None
    ) -> Answer | None:
        """Run a script and acknowledge a message, in one transaction; see `AsyncGroup.done`."""
        return message.done(script, params)

    def ack(self, receipts: Sequence[str]) -> Settled:
        """Acknowledge messages; see `AsyncGroup.ack`."""
        return self._wait(self._twin.ack(receipts))

    def nack(
        self, receipts: Sequence[str], *, delay: Seconds | None = None, error: str | None = None
    ) -> Settled:
        """Return messages for redelivery; see `AsyncHandOut.nack`."""
        return self._wait(self._twin.nack(receipts, delay=delay, error=error))

    def extend(self, receipts: Sequence[str], by: Seconds) -> Settled:
        """Set the ack deadlines to `by` from the present."""
        return self._wait(self._twin.extend(receipts, by))

    def give_up(self, receipts: Sequence[str], *, error: str | None = None) -> Settled:
        """Make the messages dead letters immediately."""
        return self._wait(self._twin.give_up(receipts, error=error))

    def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR GROUP."""
        return self._wait(self._twin.info())


class HandOut(_Twin):
    """A delivered message, blocking; otherwise like `AsyncHandOut`, whose fields it has."""

    def __init__(self, twin: AsyncHandOut, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin
        self.position = twin.position
        self.at = twin.at
        self.key = twin.key
        self.id = twin.id
        self.headers = twin.headers
        self.value = twin.value
        self.bytes = twin.bytes
        self.due = twin.due
        self.receipt = twin.receipt
        self.attempt = twin.attempt
        self.deadline = twin.deadline
        self.member = twin.member

    def ack(self) -> bool:
        """Acknowledge the message; see `AsyncHandOut.ack`."""
        return self._wait(self._twin.ack())

    def done(self, script: str, params: Mapping[str, Any] | None = None) -> Answer | None:
        """Commit the message's effect and its acknowledgement in one transaction; see
        `AsyncGroup.done`."""
        return self._wait(self._twin.done(script, params))

    def nack(self, *, delay: Seconds | None = None, error: str | None = None) -> bool:
        """Return the message for redelivery; see `AsyncHandOut.nack`."""
        return self._wait(self._twin.nack(delay=delay, error=error))

    def extend(self, by: Seconds) -> bool:
        """Set the ack deadline to `by` from the present; see `AsyncHandOut.extend`."""
        return self._wait(self._twin.extend(by))

    def give_up(self, *, error: str | None = None) -> bool:
        """Make the message a dead letter immediately; see `AsyncHandOut.give_up`."""
        return self._wait(self._twin.give_up(error=error))


class Consumer(_Twin):
    """Messages of a group as they come, blocking; otherwise as `AsyncConsumer`.

    with group.messages() as messages:
        for message in messages:
            work(message.value)
            message.ack()
    """

    def __init__(self, twin: AsyncConsumer, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin

    @property
    def stale(self) -> int:
        """Acknowledgements that came too late."""
        return self._twin.stale

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> HandOut:
        async def following() -> AsyncHandOut | None:
            return await anext(self._twin, None)

        taken = self._wait(following())
        if taken is None:
            raise StopIteration
        return HandOut(taken, self._submit)

    def stop(self) -> None:
        """Stop taking messages; see `AsyncConsumer.stop`. An iteration in another thread ends."""
        self._wait(self._twin.stop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait(self._twin.__aexit__(kind, error, trace))
