"""Collects what the code under test logs, and says which of it nobody expected.

Both kinds end here: structlog events of the node, and the standard `logging` of the
libraries below it (asyncio's "Task exception was never retrieved", pykka, tornado).
"""

from __future__ import annotations

import logging
import re
from collections.abc import MutableMapping
from typing import Any

import structlog

LOUD = {"warning", "error", "critical", "exception"}


class Logbook(logging.Handler):
    """What was logged during one test. `allow` names what is meant to be there."""

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.events: list[dict[str, Any]] = []
        self.refusals: list[dict[str, Any]] = []
        """Lines about refused requests, which most tests cause by the dozen."""
        self.loud: list[str] = []
        self._allowed: list[re.Pattern[str]] = []

    def allow(self, pattern: str) -> None:
        """Warnings and errors that match the regular expression `pattern` are expected."""
        self._allowed.append(re.compile(pattern))

    def names(self) -> list[str]:
        """The events logged through structlog so far, in order, every level."""
        return [str(event.get("event")) for event in self.events]

    def unexpected(self) -> list[str]:
        """Warnings and errors that no `allow` covers."""
        return [
            line for line in self.loud if not any(known.search(line) for known in self._allowed)
        ]

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record of the standard library's logging."""
        self.loud.append(f"{record.levelname.lower()} {record.name}: {self.format(record)}")

    def capture(
        self, _logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Take one structlog event; a structlog processor."""
        if isinstance(
            event.get("exc_info"), BaseException
        ):  # whose frames hold a node that is over
            event = {**event, "exc_info": repr(event["exc_info"])}
        times = event.get("times")
        counted = isinstance(times, dict) and "refused" in times
        about_refusals = event.get("event") == "refused" or counted
        (self.refusals if about_refusals else self.events).append({**event, "level": method})
        if method in LOUD:
            fields = " ".join(f"{key}={value!r}" for key, value in event.items() if key != "event")
            self.loud.append(f"{method} {event.get('event')} {fields}".rstrip())
        raise structlog.DropEvent

    def install(self) -> None:
        """Receive everything logged from now on."""
        structlog.configure(processors=[self.capture], cache_logger_on_first_use=False)
        logging.getLogger().addHandler(self)

    def remove(self) -> None:
        """Receive nothing more."""
        logging.getLogger().removeHandler(self)
        structlog.reset_defaults()
