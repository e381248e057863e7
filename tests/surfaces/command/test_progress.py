"""A bar for people, a few lines for files."""

from __future__ import annotations

import pytest

from surfaces.command.console import Console
from surfaces.command.progress import shown


def test_plain_lines_are_few() -> None:
    lines: list[str] = []
    with shown("replaying the log", Console(lines.append, terminal=False)) as report:
        for done in range(1001):
            report(done, 1000)
    assert lines[0] == "replaying the log: 100 of 1000"
    assert lines[-1] == "replaying the log: 1000 of 1000"
    assert len(lines) == 10


def test_an_end_that_is_not_known_is_not_told() -> None:
    lines: list[str] = []
    with shown("writing", Console(lines.append, terminal=False)) as report:
        for done in (1 << 19, 1 << 20, 3 << 19, 4 << 20):
            report(done, None)
        report(5 << 20, 5 << 20)
    assert lines == [
        f"writing: {1 << 20}",
        f"writing: {4 << 20}",
        f"writing: {5 << 20} of {5 << 20}",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_no_progress_shows_nothing(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with shown("replaying the log", Console(lines.append, terminal)):
        pass
    assert (lines, capsys.readouterr().err.strip()) == ([], "")


def test_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with shown("replaying the log", Console(lines.append, terminal=True)) as report:
        report(5, 10)
        report(10, 10)
    shown_text = capsys.readouterr().err
    assert "replaying the log" in shown_text
    assert "10/10" in shown_text
    assert lines == []
