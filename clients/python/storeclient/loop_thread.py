"""Thread of a blocking client: runs the event loop of the async one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from storeclient.connection import GRACE_SECONDS
from storeclient.errors import Closed

T = TypeVar("T")


class LoopThread:
    """Event loop in a thread of its own, which starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: finalizers may run while it is held
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[Future[Any]] = set()
        """Calls that threads are waiting for."""
        self._is_closed = False

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop. :raises Closed: the client was closed"""
        try:
            loop = self._running_loop()
        except Closed:
            work.close()
            raise
        call = asyncio.run_coroutine_threadsafe(work, loop)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise Closed("the client has been closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="storeclient", daemon=True
                )
                self._thread.start()
            return self._loop

    def stop(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `close` on the loop, then end the thread. Stopping twice is fine."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(close(), loop).result()
            # Each is answered by now, or gets `Closed` at its next request.
            wait(list(self._calls), GRACE_SECONDS)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Main function of the client's thread: run the loop until it is stopped, then cancel remaining
    tasks, such as leases that renew themselves. A thread still waiting for one gets `Closed`."""
    try:
        loop.run_forever()
        loop.run_until_complete(_end_others())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
