"""Console of the command: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from surfaces.logs import LineWriter


@dataclass(frozen=True, slots=True)
class Console:
    """Output channels of the command."""

    print_line: Callable[[str], None]
    """Writes a line to standard error through the logs' writer, so that lines keep their order and
    a blocked standard error never blocks the caller."""
    terminal: bool
    """True if standard error is a terminal."""
    complain_in: Callable[[str], None] | None = None
    """Writes the line of a complaint, if these have their own format."""

    def answer(self, text: str) -> None:
        """Print a result on standard output."""
        print(text, flush=True)

    def complain(self, text: str) -> None:
        """Report a failure: one line, whatever the text contains."""
        (self.complain_in or self.print_line)("storenode: " + " ".join(text.split()))


def say_json(writer: LineWriter, level: str, event: str) -> None:
    """Write a line of the command's own, in the JSON format of the logs."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    writer.write(json.dumps({"event": event, "level": level, "timestamp": now}))
