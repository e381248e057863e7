"""Hand-written part of the blocking client. The rest, `blocking.py`, is generated.

The generated class of `AsyncX` inherits from `XTwin` if there is one, else from one of the first
three classes. A method that is defined here is not generated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, ItemsView, Iterator, Mapping, ValuesView
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from storeclient.answers import Answer
from storeclient.async_client import AsyncClient
from storeclient.cache import AsyncCache, Loader
from storeclient.changes import Change
from storeclient.errors import Closed
from storeclient.groups import AsyncGroup
from storeclient.loop_thread import LoopThread
from storeclient.mirrors import AsyncMirror, Rows
from storeclient.topics import AsyncPublisher, Headers, Published
from storeclient.values import RecordId, Seconds
from storeclient.watches import AsyncWatch

if TYPE_CHECKING:
    from storeclient.blocking import Delivery

A = TypeVar("A")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])
T = TypeVar("T")
_END: Final = object()


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


class Twin(Generic[A]):
    """Blocking twin of an async object. A call blocks its own thread only."""

    def __init__(self, twin: A, submit: Submit) -> None:
        self._twin = twin
        self._submit = submit

    def __repr__(self) -> str:
        return repr(self._twin).replace("Async", "")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return result_of(self._submit(work))

    def _next(self, found: AsyncIterator[T]) -> T:
        """Return the next item. :raises StopIteration: there is none"""

        async def following() -> T | object:
            return await anext(found, _END)

        if (item := self._wait(following())) is _END:
            raise StopIteration
        return item  # type: ignore[return-value]

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an async iterator from this thread. Leaving the loop closes it."""

        running = asyncio.Lock()
        """Held while the iterator runs. If a thread is interrupted while it waits for an item, the
        iterator first runs to that item on the loop, and only then is closed."""

        home: asyncio.AbstractEventLoop | None = None

        async def following() -> T | object:
            nonlocal home
            home = asyncio.get_running_loop()
            async with running:
                return await anext(found, _END)

        async def closing() -> None:
            async with running:
                await found.aclose()  # type: ignore[attr-defined]

        try:
            while (item := self._wait(following())) is not _END:
                yield item  # type: ignore[misc]
        finally:
            with suppress(Closed):  # the client's end has closed it
                closed = self._submit(closing())
                if home is None or home is not _running_here():
                    result_of(closed)
                # Else it is finalized in the loop's own thread: waiting would be a deadlock.


class ContextTwin(Twin[C]):
    """Twin for `with`. Entering it does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait(self._twin.__aexit__(kind, error, trace))


class EnteredTwin(ContextTwin[C]):
    """Twin for `with`. Entering it makes requests."""

    def __enter__(self) -> Self:
        self._wait(self._twin.__aenter__())
        return self


class ClientTwin(Twin[AsyncClient]):
    """Client with the thread of its event loop."""

    def __init__(self, twin: AsyncClient) -> None:
        self._thread = LoopThread()
        super().__init__(twin, self._thread.submit)

    def close(self) -> None:
        """Wait for pending requests, then end the connection and the thread. Closing twice is fine.
        Threads that wait for messages or for a connection get `Closed`, see `AsyncClient.close`."""
        self._thread.stop(self._twin.close)

    def __enter__(self) -> Self:
        try:
            self._wait(self._twin.connect())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class CacheTwin(Twin[AsyncCache]):
    """Cache space whose loaders may block."""

    def get_or_set(
        self, key: str, ttl: Seconds | None, loader: Loader, *, single: bool = False
    ) -> Any:
        """Return the stored or loaded value; see `AsyncCache.get_or_set`. The loader runs in a
        thread, and may block."""

        async def load() -> Any:
            return await asyncio.to_thread(loader)

        return self._wait(self._twin.get_or_set(key, ttl, load, single=single))


class PublisherTwin(ContextTwin[AsyncPublisher]):
    """Publisher whose `publish` does not block."""

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


class GroupTwin(Twin[AsyncGroup]):
    """Group whose messages are blocking, too."""

    def done(
        self, message: Delivery, script: str, params: Mapping[str, Any] | None = None
    ) -> Answer | None:
        """Run a script and acknowledge a message, in one transaction; see `AsyncGroup.done`."""
        return message.done(script, params)


class WatchTwin(ContextTwin[AsyncWatch]):
    """Watch that gets its changes from the loop commit by commit, not one by one."""

    def __iter__(self) -> Iterator[Change]:
        for commit in self._each(self._twin.commits()):
            yield from commit.changes


class MirrorTwin(EnteredTwin[AsyncMirror], Rows):
    """Mirror for threads: each call sees whole commits."""

    def __getitem__(self, id: RecordId) -> dict[str, Any]:
        with self._twin.lock:
            return self._twin[id]

    def __iter__(self) -> Iterator[RecordId]:
        with self._twin.lock:
            return iter(list(self._twin))

    def __len__(self) -> int:
        with self._twin.lock:
            return len(self._twin)

    def items(self) -> ItemsView[RecordId, dict[str, Any]]:
        """Return the items of one commit."""
        return self.snapshot().items()

    def values(self) -> ValuesView[dict[str, Any]]:
        """Return the values of one commit."""
        return self.snapshot().values()

    def snapshot(self) -> dict[RecordId, dict[str, Any]]:
        """Return a copy of the mirror's current state."""
        with self._twin.lock:
            return dict(self._twin)
