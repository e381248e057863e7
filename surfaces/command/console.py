"""What the command says beside its logs: answers on standard output, the rest on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from surfaces.logs import LineWriter


@dataclass(frozen=True, slots=True)
class Console:
    """Where the command says what."""

    tell: Callable[[str], None]
    """Takes a line for standard error; the logs' own writer, so that lines keep their order and a
    blocked standard error holds nothing up."""
    terminal: bool
    """Whether a person reads standard error."""
    complain_in: Callable[[str], None] | None = None
    """Takes the line of a complaint, where these have a form of their own."""

    def answer(self, text: str) -> None:
        """What was asked for, on standard output."""
        print(text, flush=True)

    def complain(self, text: str) -> None:
        """Why it was not done: one line, whatever the text holds."""
        (self.complain_in or self.tell)("storenode: " + " ".join(text.split()))


def say_json(writer: LineWriter, level: str, event: str) -> None:
    """A line of the command's own, in the form that the logs have off a terminal."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    writer.write(json.dumps({"event": event, "level": level, "timestamp": now}))
