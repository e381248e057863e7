"""A command on a terminal: a real pseudo-terminal, and what a person would see on it."""

from __future__ import annotations

import fcntl
import os
import pty
import selectors
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyte

from tests.architecture.sources import ROOT
from tests.processes import COMMAND, environment

SECONDS = 60
"""A screen that takes longer to come hangs; a limit on the wait, not a figure to reach."""
BEGIN = f"""
import fcntl, runpy, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches it as it does a person's
runpy.run_module({COMMAND!r}, run_name="__main__", alter_sys=True)
"""

ENTER, TAB, CTRL_C, CTRL_D, UP = "\r", "\t", "\x03", "\x04", "\x1b[A"


class Terminal:
    """A process on a terminal of its own. Use as a context manager."""

    def __init__(
        self, *words: str, home: Path, columns: int = 100, rows: int = 40, **more: str
    ) -> None:
        self._words, self._size = words, (columns, rows)
        self._environment: Mapping[str, str] = environment(
            HOME=str(home),
            XDG_STATE_HOME=str(home / "state"),
            TERM="xterm",
            PROMPT_TOOLKIT_NO_CPR="1",  # this terminal answers no questions
            **more,
        )
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1)
        self._stream = pyte.ByteStream(self._screen)

    def __enter__(self) -> Terminal:
        columns, rows = self._size
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, *self._words],
            env=self._environment,
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """All that was ever shown and not drawn over, without what is empty."""
        above = ["".join(line[x].data for x in range(self._size[0])) for line in self._above()]
        lines = [line.rstrip() for line in [*above, *self._screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return "\n".join(lines)

    def _above(self) -> list[dict[int, pyte.screens.Char]]:
        return list(self._screen.history.top)

    @property
    def last(self) -> str:
        return self.text.rpartition("\n")[2]

    def rest(self) -> bytes:
        """All bytes that come until the process has ended, as they come."""
        data = b""
        with suppress(OSError):  # EIO: nobody has the terminal open any more
            while piece := os.read(self._ours, 65536):
                data += piece
        self.process.wait(SECONDS)
        return data

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def enter(self, line: str) -> None:
        """A line, and Enter behind it once the line is drawn: until then the prompt before it looks
        as if nothing had been typed."""
        self.type(line)
        self._until(lambda: self.last.endswith(line), line)
        before = self._row
        self.type(ENTER)
        self._until(lambda: self._row > before, "the end of the line")

    @property
    def _row(self) -> int:
        """Where the cursor is, what has been scrolled away counted too."""
        return len(self._screen.history.top) + self._screen.cursor.y

    def wait_for(self, shown: str, times: int = 1) -> None:
        """Until a text stands there so often."""
        self._until(lambda: self.text.count(shown) >= times, shown)

    def wait_prompt(self, mark: str) -> None:
        """Until nothing but a prompt stands in the last line."""
        self._until(lambda: self.last == mark.rstrip(), mark)

    def wait_end(self) -> int:
        self._until(lambda: False, "the end", at_end=True)
        return self.process.wait(SECONDS)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _until(self, holds: object, what: str, at_end: bool = False) -> None:
        assert callable(holds)
        with selectors.DefaultSelector() as ready:
            ready.register(self._ours, selectors.EVENT_READ)
            while not holds():
                assert ready.select(SECONDS), f"no {what!r} on the terminal:\n{self.text}"
                try:
                    data = os.read(self._ours, 65536)
                except OSError:  # EIO: nobody has the other side open any more
                    data = b""
                if not data:
                    assert at_end, f"it ended before {what!r}:\n{self.text}"
                    return
                self._stream.feed(data)
