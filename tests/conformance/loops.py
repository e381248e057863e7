"""An event loop in a thread, for servers beside a test that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.conformance.testee import PATIENCE_SECONDS

T = TypeVar("T")


class LoopThread:
    """The loop, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def call(self, work: Callable[[], T]) -> T:
        """Call a function there, and return its result."""

        async def there() -> T:
            return work()

        return self.run(there())

    def close(self) -> None:
        """End the loop."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
