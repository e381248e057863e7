"""The blocking twins of a topic's handles. Their methods are those of the async ones, and may be
called from any thread; a call blocks its own thread only."""

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
    """What work on the client's loop brings. Interrupted, this thread cancels what it asked for.

    :raises Closed: the client was closed before it came
    """
    try:
        return future.result()
    except CancelledError:
        raise Closed("the client has been closed") from None
    except BaseException:
        future.cancel()
        raise


def _running_here() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread."""
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
        """An async iterator, one item at a time. Whoever leaves it ends it."""

        end = object()
        running = asyncio.Lock()
        """Held by who runs it: one who was interrupted while it waits for an item has that go on
        to its end on the loop, and only then is it closed."""

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
            with suppress(Closed):  # then it has ended with the client
                closed = self._submit(closing())
                if home is None or home is not _running_here():
                    result_of(closed)
                # Else it was collected in the thread of that loop, which would wait for itself.


class Topic(_Twin):
    """One topic, blocking. Made by `Client.topic(ns, db, name)`; otherwise as `AsyncTopic`."""

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
        """As `AsyncTopic.publish`."""
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
        """As `AsyncTopic.publish_many`."""
        return self._wait(
            self._twin.publish_many(values, key=key, headers=headers, delay=delay, expect=expect)
        )

    def publisher(self, *, batch: int = BATCH, linger: Seconds = 0.0) -> Publisher:
        """As `AsyncTopic.publisher`; its `publish` does not block."""
        return Publisher(self._twin.publisher(batch=batch, linger=linger), self._submit)

    def read(
        self, after: int = 0, limit: int = 100, *, wait: Seconds | None = None
    ) -> list[Message]:
        """As `AsyncTopic.read`."""
        return self._wait(self._twin.read(after, limit, wait=wait))

    def messages(self, after: int = 0, *, follow: bool = False) -> Iterator[Message]:
        """As `AsyncTopic.messages`."""
        return self._each(self._twin.messages(after, follow=follow))

    def reader(self, name: str) -> Reader:
        """As `AsyncTopic.reader`."""
        return Reader(self._twin.reader(name), self._submit)

    def group(self, name: str) -> Group:
        """As `AsyncTopic.group`."""
        return Group(self._twin.group(name), self._submit)

    def info(self) -> dict[str, Any]:
        """As `AsyncTopic.info`."""
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
        """As `AsyncPublisher.publish`: what becomes of it."""
        return self._submit(self._twin.publish(value, key=key, id=id, headers=headers, delay=delay))

    def drained(self) -> None:
        """As `AsyncPublisher.drained`."""
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
    """A reader, blocking; otherwise as `AsyncReader`."""

    def __init__(self, twin: AsyncReader, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin
        self.name = twin.name

    def define(self, at: int | datetime | None = None, *, end: bool = False) -> None:
        """As `AsyncReader.define`."""
        self._wait(self._twin.define(at, end=end))

    def read(self, limit: int = 100, *, wait: Seconds | None = None) -> list[Message]:
        """As `AsyncReader.read`."""
        return self._wait(self._twin.read(limit, wait=wait))

    def commit(self, position: int) -> None:
        """As `AsyncReader.commit`."""
        self._wait(self._twin.commit(position))

    def move(self, at: int | datetime) -> None:
        """As `AsyncReader.move`."""
        self._wait(self._twin.move(at))

    def messages(self, *, follow: bool = False) -> Iterator[Message]:
        """As `AsyncReader.messages`."""
        return self._each(self._twin.messages(follow=follow))

    def drop(self) -> None:
        """As `AsyncReader.drop`."""
        self._wait(self._twin.drop())


class Group(_Twin):
    """A group, blocking; otherwise as `AsyncGroup`."""

    def __init__(self, twin: AsyncGroup, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin
        self.name = twin.name

    def take(
        self, count: int = 1, *, member: str | None = None, wait: Seconds | None = None
    ) -> list[HandOut]:
        """As `AsyncGroup.take`."""
        taken = self._wait(self._twin.take(count, member=member, wait=wait))
        return [HandOut(one, self._submit) for one in taken]

    def messages(
        self, *, prefetch: int = 32, member: str | None = None, extend: bool = False
    ) -> Consumer:
        """As `AsyncGroup.messages`, for `with` and `for`."""
        twin = self._twin.messages(prefetch=prefetch, member=member, extend=extend)
        return Consumer(twin, self._submit)

    def done(
        self, message: HandOut, script: str, params: Mapping[str, Any] | None = None
    ) -> Answer | None:
        """As `AsyncGroup.done`."""
        return message.done(script, params)

    def ack(self, receipts: Sequence[str]) -> Settled:
        """As `AsyncGroup.ack`."""
        return self._wait(self._twin.ack(receipts))

    def nack(
        self, receipts: Sequence[str], *, delay: Seconds | None = None, error: str | None = None
    ) -> Settled:
        """As `AsyncGroup.nack`."""
        return self._wait(self._twin.nack(receipts, delay=delay, error=error))

    def extend(self, receipts: Sequence[str], by: Seconds) -> Settled:
        """As `AsyncGroup.extend`."""
        return self._wait(self._twin.extend(receipts, by))

    def give_up(self, receipts: Sequence[str], *, error: str | None = None) -> Settled:
        """As `AsyncGroup.give_up`."""
        return self._wait(self._twin.give_up(receipts, error=error))

    def info(self) -> dict[str, Any]:
        """As `AsyncGroup.info`."""
        return self._wait(self._twin.info())


class HandOut(_Twin):
    """A message that was handed out, blocking; otherwise as `AsyncHandOut`, whose fields it has."""

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
        """As `AsyncHandOut.ack`."""
        return self._wait(self._twin.ack())

    def done(self, script: str, params: Mapping[str, Any] | None = None) -> Answer | None:
        """As `AsyncHandOut.done`."""
        return self._wait(self._twin.done(script, params))

    def nack(self, *, delay: Seconds | None = None, error: str | None = None) -> bool:
        """As `AsyncHandOut.nack`."""
        return self._wait(self._twin.nack(delay=delay, error=error))

    def extend(self, by: Seconds) -> bool:
        """As `AsyncHandOut.extend`."""
        return self._wait(self._twin.extend(by))

    def give_up(self, *, error: str | None = None) -> bool:
        """As `AsyncHandOut.give_up`."""
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
        """As `AsyncConsumer.stale`."""
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
        """As `AsyncConsumer.stop`; another thread that iterates comes to the end."""
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
