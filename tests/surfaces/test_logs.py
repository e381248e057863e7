"""Logs never block, never lose count, never show a secret."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import pty
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from rich.pretty import pretty_repr

from actors import rate_limited_log
from protocol.requests import AuthenticatePassword, AuthenticateToken
from surfaces import logs
from tests.logbook import Logbook

LINES = 50_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        os.close(descriptor)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []  # basicConfig(force=True) would close those of the test run
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def configured(descriptor: int) -> logs.LineWriter:
    writer = logs.LineWriter(descriptor)
    logs.configure(writer)
    return writer


def read_lines(descriptor: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in os.read(descriptor, 1 << 20).splitlines()]


def test_line_is_json_with_level_time_and_fields(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = configured(writing)
    structlog.get_logger().info("listening", port=8000)
    writer.close()
    (line,) = read_lines(reading)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "listening", "level": "info", "port": 8000}


class Terminal:
    """A terminal that a node's log is written to, and all that it showed."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()

    def shown(self) -> str:
        """All of it: one read of a terminal may give a part. Closes it."""
        os.close(self.theirs)
        pieces = []
        try:
            while piece := os.read(self._ours, 1 << 16):
                pieces.append(piece)
        except OSError as error:
            if error.errno != errno.EIO:  # how Linux tells that nobody holds the other side
                raise
        finally:
            os.close(self._ours)
        return b"".join(pieces).decode()


def test_line_on_a_terminal_is_for_people() -> None:
    terminal = Terminal()
    writer = configured(terminal.theirs)
    structlog.get_logger().info("listening", port=8000)
    writer.close()
    text = terminal.shown()
    assert "listening" in text and "8000" in text and not text.startswith("{")


def test_a_trace_on_a_terminal_shows_no_variables() -> None:
    """They are what was asked: passwords among it, and what records hold."""
    terminal = Terminal()
    writer = configured(terminal.theirs)
    asked = ["not-for-", "the-log"]
    secret, message = "".join(asked), AuthenticatePassword("ana", "".join(asked), "http", "x:1")
    try:
        raise RuntimeError(f"planted for {message}")
    except RuntimeError as error:
        structlog.get_logger().error("request failed", exc_info=error)
    writer.close()
    said = terminal.shown()
    assert "planted" in said and "test_logs" in said
    assert secret not in said
    for one in (message, AuthenticateToken(secret, "http", "x:1")):
        assert secret not in pretty_repr(one)


def test_exception_is_one_line_with_its_trace(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = configured(writing)
    try:
        raise ValueError("planted")
    except ValueError:
        structlog.get_logger().exception("failed")
    writer.close()
    (line,) = read_lines(reading)
    assert "ValueError: planted" in line["exception"]


def test_libraries_log_through_it(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = configured(writing)
    logging.getLogger("asyncio").error("task %s", "lost")
    writer.close()
    (line,) = read_lines(reading)
    assert (line["event"], line["library"], line["level"]) == ("task lost", "asyncio", "error")


@pytest.mark.parametrize(
    "field", ["password", "old_password", "PASSHASH", "token", "Authorization", "client_secret"]
)
def test_secret_is_hidden(pipe: tuple[int, int], field: str) -> None:
    reading, writing = pipe
    writer = configured(writing)
    structlog.get_logger().info("signed in", **{field: "canary-7f3a"})
    writer.close()
    (line,) = read_lines(reading)
    assert line[field] == "..."


def test_blocked_reader_blocks_nobody_and_is_told_what_it_missed(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    writer = logs.LineWriter(writing, capacity=16)
    for number in range(LINES):  # a write that waited would hang here: nobody reads
        writer.write(json.dumps({"event": "line", "number": number}))
    assert writer.dropped > 0

    got: list[bytes] = []

    def read_on() -> None:
        while chunk := os.read(reading, 1 << 16):
            got.append(chunk)
            if b'"last"' in b"".join(got):
                return

    reader = threading.Thread(target=read_on)
    reader.start()
    while b'"last"' not in b"".join(got):
        writer.write(json.dumps({"event": "last"}))
    reader.join()
    lines = [json.loads(line) for line in b"".join(got).splitlines() if line.endswith(b"}")]
    numbered = [line for line in lines if line["event"] == "line"]
    missed = sum(line["count"] for line in lines if "dropped" in line["event"])
    assert [line["number"] for line in numbered] == sorted(line["number"] for line in numbered)
    assert missed >= LINES - len(numbered)
    os.set_blocking(reading, False)
    while writer._thread.is_alive():
        writer.close(0.05)
        try:
            os.read(reading, 1 << 20)
        except BlockingIOError:
            continue


def test_closed_reader_is_survived_and_counted() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = logs.LineWriter(writing)
    for _ in range(100):
        writer.write("nobody reads this")
    writer.close()
    os.close(writing)
    assert writer.dropped == 100


def test_descriptor_set_non_blocking_by_another_loses_nothing(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    writer = logs.LineWriter(writing)
    for number in range(1000):
        writer.write(f"{number:064}")
    got = b""
    while got.count(b"\n") < 1000:
        got += os.read(reading, 1 << 16)
    writer.close()
    assert [int(line) for line in got.splitlines()] == list(range(1000))
    assert writer.dropped == 0


async def test_what_anybody_can_cause_is_a_line_a_second(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("planted")
    logbook.allow("not logged one by one")
    monkeypatch.setattr(rate_limited_log, "LINE_SECONDS", 0.5)
    said = rate_limited_log.RateLimitedLog("test")
    for _ in range(40):
        said.error("planted", number=1)
    said.warning("planted too")
    assert logbook.names() == ["planted"]
    async with asyncio.timeout(10):
        while len(logbook.events) < 2:
            await asyncio.sleep(0.01)
    assert logbook.events[1]["times"] == {"planted": 39, "planted too": 1}
    said.error("planted", number=2)  # the counts were the line of their time
    assert len(logbook.events) == 2
    said.close()
    assert logbook.events[2]["times"] == {"planted": 1}
    said.close()
    assert len(logbook.events) == 3


async def test_after_a_pause_the_next_line_is_written_at_once(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("planted")
    monkeypatch.setattr(rate_limited_log, "LINE_SECONDS", 0.01)
    said = rate_limited_log.RateLimitedLog("test")
    said.error("planted")
    async with asyncio.timeout(10):
        while said._pause is not None:
            await asyncio.sleep(0.01)
    said.error("planted")
    assert logbook.names() == ["planted"] * 2
    said.close()


def test_what_a_library_repeats_is_a_line_a_second(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = pipe
    writer = configured(writing)
    now = [100.0]
    monkeypatch.setattr("logging.time.time", lambda: now[0])
    for number in range(50):
        logging.getLogger("asyncio").error("Fatal error %d", number)
        logging.getLogger("tornado").warning("another")
    now[0] += 1.0
    logging.getLogger("asyncio").error("elsewhere")
    for number in range(3):
        now[0] += 0.5
        logging.getLogger("asyncio").error("Fatal error %d", number)
    writer.close()
    lines = [(line["event"], line.get("more_since_the_last")) for line in read_lines(reading)]
    assert lines == [
        ("Fatal error 0", None), ("another", None), ("elsewhere", None), ("Fatal error 0", None),
        ("Fatal error 2", 1),
    ]  # fmt: skip
