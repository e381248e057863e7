"""What the command says beside its logs: answers on standard output, refusals on standard error."""

from __future__ import annotations

import sys


class Console:
    """Two streams. A reader that is gone is no reason to fail."""

    def answer(self, text: str) -> None:
        """What was asked for."""
        self._write(sys.stdout, text)

    def complain(self, text: str) -> None:
        """Why it was not done: one line, whatever the text holds."""
        self._write(sys.stderr, "storenode: " + " ".join(text.split()))

    def tell(self, text: str) -> None:
        """What a person at the terminal wants to know."""
        self._write(sys.stderr, text)

    def _write(self, stream: object, text: str) -> None:
        try:
            print(text, file=stream, flush=True)  # type: ignore[call-overload]
        except (OSError, ValueError):
            return  # nobody is left to be told, and the exit code still says how it went
