"""Rate-limited log, for lines that any client can cause: at most one per second.

So a flood fills neither the disk of the log nor the queue in front of it, where it would displace
more important lines.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import structlog

LINE_SECONDS: Final = 1.0
"""Minimum interval between two lines."""


class RateLimitedLog:
    """Logger that writes at most one line per LINE_SECONDS.

    The first line is written at once. Lines within the interval after it are counted by event, and
    the counts form the next line.

    Only for the loop's thread; close it while the loop runs.

    :param counts_at: log level of the lines with counts
    """

    def __init__(self, name: str, counts_at: str = "warning") -> None:
        self._log: Any = structlog.get_logger(name)
        self._counts_at = counts_at
        self._unsaid: Counter[str] = Counter()
        self._pause: asyncio.TimerHandle | None = None

    def info(self, event: str, **fields: object) -> None:
        """Log an informational line, or count it."""
        self._say("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a warning, or count it."""
        self._say("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log an error, or count it."""
        self._say("error", event, fields)

    def close(self) -> None:
        """Write the pending counts. Idempotent."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._count()

    def _say(self, level: str, event: str, fields: dict[str, object]) -> None:
        if self._pause is not None:
            self._unsaid[event] += 1
            return
        self._start_interval()
        getattr(self._log, level)(event, **fields)

    def _start_interval(self) -> None:
        self._pause = asyncio.get_running_loop().call_later(LINE_SECONDS, self._over)

    def _over(self) -> None:
        self._pause = None
        if self._unsaid:
            self._start_interval()
            self._count()

    def _count(self) -> None:
        if self._unsaid:
            times, self._unsaid = dict(self._unsaid), Counter()
            getattr(self._log, self._counts_at)("not logged one by one", times=times)
