"""What the command says beside its logs: answers on standard output, the rest on standard error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Console:
    """Where the command says what."""

    tell: Callable[[str], None]
    """Takes a line for standard error; the logs' own writer, so that lines keep their order and a
    blocked standard error holds nothing up."""
    terminal: bool
    """Whether a person reads standard error."""

    def answer(self, text: str) -> None:
        """What was asked for, on standard output."""
        print(text, flush=True)

    def complain(self, text: str) -> None:
        """Why it was not done: one line, whatever the text holds."""
        self.tell("storenode: " + " ".join(text.split()))
