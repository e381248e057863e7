"""`docs/shell.md` names what there is, and its transcript is what a terminal shows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from surfaces.shell import arguments, transfers
from surfaces.shell.shortcuts import SHORTCUTS
from tests.architecture.sources import ROOT
from tests.docs import machines
from tests.processes import PASSWORD, serving
from tests.surfaces.shell.terminal import ENTER, Terminal

PATH = ROOT / "docs" / "shell.md"
PAGE = PATH.read_text(encoding="utf-8")
COMMAND = "$ storenode shell\n"
TRANSCRIPT = re.compile(rf"(?<=^```\n){re.escape(COMMAND)}(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"(storenode> |shop\.main> |\.{10} )(.*)")
TOOK = re.compile(r"\([0-9.]+ m?s\)")
WIDTH = 100


def missing(page: str) -> list[str]:
    tables = (arguments.SHELL_FLAGS, transfers.IMPORT_FLAGS, transfers.EXPORT_FLAGS)
    wanted = [flag.name for table in tables for flag in table]
    wanted += re.findall(r"STORE_\w+", arguments.ENVIRONMENT)
    wanted += [shortcut.word for shortcut in SHORTCUTS]
    return [word for word in wanted if not re.search(rf"`{re.escape(word)}[` ]", page)]


def test_flags_variables_and_shortcuts_are_named() -> None:
    assert missing(PAGE) == []
    assert arguments.USAGE in PAGE
    assert transfers.EXPORT_USAGE + transfers.IMPORT_USAGE in PAGE


def replayed(transcript: str, home: Path) -> str:
    """What a terminal shows when a person types what a transcript says they did."""
    with (
        serving(home / "store") as node,
        # Without a password in the environment it is asked for.
        Terminal("shell", node.at("wire"), home=home, columns=WIDTH, STORE_PASSWORD="") as terminal,
    ):
        terminal.wait_for("password of root:")
        terminal.type(PASSWORD + ENTER)
        for line in transcript.splitlines():
            found = PROMPT.fullmatch(line)
            if found is not None:
                terminal.wait_prompt(found[1])
                terminal.enter(found[2])
        assert terminal.wait_end() == 0
        shown = terminal.text.splitlines()
        return "".join(f"{line}\n" for line in shown if not machines.IMPATIENT.fullmatch(line))


def same(one: str, other: str) -> bool:
    return TOOK.sub("", one) == TOOK.sub("", other)


def test_the_transcript_is_what_a_terminal_shows(tmp_path: Path) -> None:
    found = TRANSCRIPT.search(PAGE)
    assert found is not None
    shown = replayed(found[1], tmp_path)
    if os.environ.get("CASES_ACCEPT"):
        PATH.write_text(TRANSCRIPT.sub(lambda _: COMMAND + shown, PAGE), encoding="utf-8")
        pytest.skip("written anew: read the difference")
    assert same(shown, found[1]), f"`make cases-accept` writes it anew:\n{shown}"
