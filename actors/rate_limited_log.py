"""Lines of the node's log that anybody can cause, one in a second at most.

A flood then fills neither the disk below standard error nor the queue in front of it, which would
cost the lines that matter.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import structlog

LINE_SECONDS: Final = 1.0
"""Between two lines that anybody can cause."""


class RateLimitedLog:
    """For what anybody can cause: at most one line in LINE_SECONDS. The first is written at
    once; those that follow it within that time are counted by their event, and the counts are the
    next line.

    For the loop's thread only; it is to be closed while the loop runs.

    :param counts_at: the level of the lines that count
    """

    def __init__(self, name: str, counts_at: str = "warning") -> None:
        self._log: Any = structlog.get_logger(name)
        self._counts_at = counts_at
        self._unsaid: Counter[str] = Counter()
        self._pause: asyncio.TimerHandle | None = None

    def info(self, event: str, **fields: object) -> None:
        """Log what is no trouble, or count it."""
        self._say("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a warning, or count it."""
        self._say("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log an error, or count it."""
        self._say("error", event, fields)

    def close(self) -> None:
        """Say what is not said yet. Harmless when done twice."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._count()

    def _say(self, level: str, event: str, fields: dict[str, object]) -> None:
        if self._pause is not None:
            self._unsaid[event] += 1
            return
        self._rest()
        getattr(self._log, level)(event, **fields)

    def _rest(self) -> None:
        self._pause = asyncio.get_running_loop().call_later(LINE_SECONDS, self._over)

    def _over(self) -> None:
        self._pause = None
        if self._unsaid:
            self._rest()
            self._count()

    def _count(self) -> None:
        if self._unsaid:
            times, self._unsaid = dict(self._unsaid), Counter()
            getattr(self._log, self._counts_at)("not logged one by one", times=times)
