"""Logs of the node: structlog to standard error, and nowhere else.

Invariant: logging never blocks. A line goes to a writer thread through a bounded queue. If standard
error is blocked, the queue fills and further lines are dropped and counted; if it is closed, every
line is dropped. The next line that gets through is preceded by the count of dropped lines. Secrets
never reach a line: a field with a secret's name shows as '...'.

Events that a client can cause without a credential go through a `RateLimitedLog`. Log records of
libraries have the same rate limit: one line a second, and a count of the others. A flood then fills
neither the disk behind standard error nor the queue, which would drop important lines.

Lines are formatted for people if standard error is a terminal, as JSON objects otherwise.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import select
import threading
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import structlog

from actors.rate_limited_log import LINE_SECONDS, RateLimitedLog
from protocol.errors import COMMITTED, Failed

QUEUE_LINES: Final = 4096
"""Capacity of the line queue: a burst at start fits, memory stays bounded."""
FLUSH_SECONDS: Final = 1.0
"""Seconds that the end of the process waits for queued lines."""
REFUSALS_A_SECOND: Final = 100
"""Refusals of signed-in callers per second that get a line each; a client in a loop does not fill
the disk."""
ORDINARY: Final = frozenset({"NoKey"})
"""Error codes that are ordinary results, logged at level debug: cache misses are frequent."""
LEVELS: Final = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR,
}  # fmt: skip
"""Values of `--log-level`."""
STANDARD_ERROR: Final = 2
SECRET: Final = ("password", "passhash", "passphrase", "token", "secret", "authorization")
HIDDEN: Final = "..."

_STOP: Final = None


class LineWriter:
    """Writes lines to a descriptor from its own thread. `write` never blocks."""

    def __init__(self, descriptor: int, capacity: int = QUEUE_LINES) -> None:
        self._descriptor = descriptor
        self.on_terminal = os.isatty(descriptor)
        """True if the descriptor is a terminal."""
        self._lines: queue.Queue[bytes | None] = queue.Queue(capacity)
        self._lock = threading.Lock()
        self._dropped_unsaid = 0
        self.dropped = 0
        """Lines dropped since the start."""
        # A daemon: the process must be able to end while a write to a blocked terminal hangs.
        self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue one line (without a newline), or drop and count it."""
        try:
            self._lines.put_nowait(line.encode("utf-8", "replace") + b"\n")
        except queue.Full:
            self._count_dropped()

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Write queued lines, for at most `seconds`."""
        try:
            self._lines.put(_STOP, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _count_dropped(self) -> None:
        with self._lock:
            self.dropped += 1
            self._dropped_unsaid += 1

    def _run(self) -> None:
        while (line := self._lines.get()) is not _STOP:
            with self._lock:
                unsaid, self._dropped_unsaid = self._dropped_unsaid, 0
            if unsaid:
                line = _dropped_line(unsaid) + line
            if not self._write_all(line):
                with self._lock:
                    self._dropped_unsaid += unsaid
                self._count_dropped()

    def _write_all(self, data: bytes) -> bool:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                # Another process set the shared terminal non-blocking. This thread may wait for it.
                _wait_writable(self._descriptor)
            except OSError:
                return False  # closed, or its reader is gone: the line is dropped
        return True


class LineLogger:
    """Innermost logger of structlog: takes formatted lines."""

    def __init__(self, writer: LineWriter) -> None:
        self._write = writer.write

    def msg(self, line: str) -> None:
        """Queue one line; structlog's level methods all end here."""
        self._write(line)

    debug = info = warning = warn = error = critical = exception = fatal = log = msg


class RefusalLog:
    """Log of refused requests: finds the `request` id that a response names. One line at level
    info, with the code and the position in the script. Neither message nor detail is logged: these
    contain the caller's data.

    Anonymous refusals are limited to one line a second, and so are those beyond
    `REFUSALS_A_SECOND`. Their limit is apart from the surface's other lines, which they must not
    suppress. A bug (`Failed`) has its own line, with a traceback.
    """

    def __init__(self, surface: str) -> None:
        self._log: Any = structlog.get_logger("refusals")
        self._surface = surface
        self._limited_log = RateLimitedLog("refusals", counts_at="info")
        self._second = -1
        self._lines = 0

    def say(
        self, error: Mapping[str, Any], request: str | None, known: bool, **more: object
    ) -> None:
        """Log one refusal.

        :param error: error object as `Refusal.answer` returns it
        :param known: True if the caller is signed in
        """
        code = str(error["code"])
        if code == Failed.__name__:
            return
        fields = {name: error[name] for name in ("statement", "line", "column") if name in error}
        committed = error["detail"].get(COMMITTED)
        if committed is not None:
            fields[COMMITTED] = committed
        fields |= more
        if known and code in ORDINARY:
            said = self._log.debug
        elif known and self._may_say():
            said = self._log.info
        else:
            said = self._limited_log.info
        said(
            "refused", request=request, code=code, status=error["status"], surface=self._surface,
            **fields,
        )  # fmt: skip

    def close(self) -> None:
        """Flush pending counts. Idempotent."""
        self._limited_log.close()

    def _may_say(self) -> bool:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= REFUSALS_A_SECOND


class FromLibraries(logging.Handler):
    """Passes log records of libraries (standard `logging`) on to structlog: each source line at
    most once in LINE_SECONDS. The next line carries the number of suppressed records."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], tuple[float, int]] = {}
        """By source line: time of the last logged record, and records suppressed since."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log or count one record."""
        place, now = (record.pathname, record.lineno), record.created
        then, unsaid = self._last.get(place, (0.0, 0))
        if abs(now - then) < LINE_SECONDS:  # wall time may be set back
            self._last[place] = then, unsaid + 1
            return
        self._last[place] = now, 0
        log = structlog.get_logger()
        exception = record.exc_info if record.exc_info and record.exc_info[0] else None
        more = {"more_since_the_last": unsaid} if unsaid else {}
        log.log(
            record.levelno, record.getMessage(), library=record.name, exc_info=exception, **more
        )


def hide_secrets(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace the value of every field named like a secret by `...`. A structlog processor."""
    for name in event:
        if any(word in name.lower() for word in SECRET):
            event[name] = HIDDEN
    return event


def configure(writer: LineWriter, level: int = logging.INFO) -> None:
    """Send the logs of the node and of its libraries to `writer`. Call once, before anything logs.

    :param level: lowest level that is written
    """
    processors: list[Any] = [
        structlog.processors.add_log_level,
        hide_secrets,
    ]
    if writer.on_terminal:
        processors += [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=True,
                pad_event_to=0,
                # Local variables of a traceback may hold passwords, tokens and record contents.
                exception_formatter=structlog.dev.RichTracebackFormatter(show_locals=False),
            ),
        ]
    else:
        processors += [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: LineLogger(writer),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[FromLibraries()], level=logging.WARNING, force=True)


def _dropped_line(count: int) -> bytes:
    line = {"event": "log lines dropped: standard error was blocked or closed", "count": count}
    return json.dumps(line).encode() + b"\n"


def _wait_writable(descriptor: int) -> None:
    select.select([], [descriptor], [])
