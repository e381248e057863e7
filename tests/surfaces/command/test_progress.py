"""A bar for people, a few lines for files."""

from __future__ import annotations

import io

from surfaces.command.progress import shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_are_few() -> None:
    out = io.StringIO()
    with shown("replaying the log", out) as report:
        for done in range(1001):
            report(done, 1000)
    lines = out.getvalue().splitlines()
    assert lines[0] == "replaying the log: 100 of 1000"
    assert lines[-1] == "replaying the log: 1000 of 1000"
    assert len(lines) == 10


def test_nothing_to_do_is_done() -> None:
    out = io.StringIO()
    with shown("replaying the log", out) as report:
        report(0, 0)
    assert out.getvalue() == "replaying the log: 0 of 0\n"


def test_terminal_gets_a_bar() -> None:
    out = Terminal()
    with shown("replaying the log", out) as report:
        report(5, 10)
        report(10, 10)
    assert "replaying the log" in out.getvalue()
    assert "10/10" in out.getvalue()
