"""`storenode shell` on a terminal."""

from __future__ import annotations

import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from bench.ports import free_port
from surfaces.shell import history
from surfaces.shell.completion import StatementCompleter
from surfaces.shell.history import open_history, state_folder
from surfaces.shell.names import Names
from tests.processes import serving
from tests.surfaces.shell.conftest import Here
from tests.surfaces.shell.terminal import CTRL_C, CTRL_D, TAB, UP, Terminal


@pytest.fixture
def terminal(here: Here, tmp_path: Path) -> Iterator[Terminal]:
    here.script("DEFINE TABLE person; CREATE person:ana SET age = 34; DEFINE TOPIC jobs")
    words = ("shell", here.address, "--use", here.place)
    with Terminal(*words, home=tmp_path) as terminal:
        terminal.wait_prompt(f"{here.place}> ")
        yield terminal


def test_a_person_at_the_prompt(here: Here, terminal: Terminal, tmp_path: Path) -> None:
    mark = f"{here.place}> "

    terminal.type(f"SELECT age FROM pe{TAB}")
    terminal.wait_for("FROM person")
    terminal.type(f" WHERE ag{TAB}")
    terminal.wait_for("WHERE age")
    terminal.enter(" > 33;")
    terminal.wait_for("1 row")
    terminal.wait_prompt(mark)

    terminal.type("SELECT 'never ends")
    terminal.wait_for("never ends")
    terminal.type(CTRL_C)  # gives up the line, not the shell
    terminal.wait_prompt(mark)

    terminal.enter("READ FROM jobs AFTER 0 WAIT 1m;")
    while not any("READ" in (one["text"] or "") for one in here.script("INFO FOR RUNNING")):
        pass
    terminal.type(CTRL_C)
    terminal.wait_for("Cancelled")
    terminal.wait_prompt(mark)

    terminal.enter("DEFINE USER bo ROLE owner PASSWORD 'hush hush';")
    terminal.wait_for("done", 1)
    terminal.wait_prompt(mark)
    (tmp_path / "more.storeql").write_text("DEFINE TABLE more;\nCREATE nix;")
    terminal.enter(f"\\i {tmp_path}/more.storeql")
    terminal.wait_for("more.storeql:2:1: Unknown")
    terminal.wait_prompt(mark)
    terminal.enter("help")
    terminal.wait_for("this list")
    terminal.wait_prompt(mark)
    terminal.enter("\\x")
    terminal.wait_for("one below the other")
    terminal.wait_prompt(mark)
    terminal.enter("USE NAMESPACE shop;")
    terminal.wait_prompt("shop> ")
    terminal.enter(f"\\use {here.place}")
    terminal.wait_prompt(mark)
    terminal.type(UP + UP)  # \x and USE NAMESPACE are further down
    terminal.wait_for("USE NAMESPACE shop;", 2)
    terminal.type(CTRL_C)
    terminal.wait_prompt(mark)
    terminal.type(CTRL_D)
    assert terminal.wait_end() == 0

    file = tmp_path / "state" / "storenode" / "shell_history"
    kept = file.read_text()
    assert "SELECT age FROM person WHERE age > 33;" in kept and "\\x" in kept
    assert "hush" not in kept and "USER bo" not in kept
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_an_outage(tmp_path: Path) -> None:
    store, at = tmp_path / "store", f"127.0.0.1:{free_port()}"
    with serving(store, "--serve", at, "--http", "127.0.0.1:0") as node:
        node.script("DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TOPIC t")
        with Terminal("shell", at, "--use", "a.b", home=tmp_path) as terminal:
            terminal.wait_prompt("a.b> ")
            terminal.enter("READ FROM t AFTER 0 WAIT 1m;")
            while "READ" not in str(node.script("INFO FOR RUNNING")["results"][0]["value"]):
                pass
            node.kill()
            terminal.wait_for("OutcomeUnknown")
            terminal.wait_prompt("a.b> ")
            terminal.enter("RETURN 40 + 2;")
            terminal.wait_for("no connection yet; retrying for 10 s")
            with serving(store, "--serve", at):
                terminal.wait_for("connected again to node")
                terminal.wait_for("\n42")
                terminal.wait_prompt("a.b> ")
                terminal.signal(signal.SIGTERM)
                assert terminal.wait_end() == 130


# --- completion ----------------------------------------------------------------------------------


@pytest.fixture
def completer() -> StatementCompleter:
    completer = StatementCompleter()
    completer.names = Names(
        namespaces=["shop"],
        databases=["shop.main"],
        tables=["person", "city", "order", "due-later"],
        topics=["jobs"],
        spaces=["sessions"],
        functions=["fn::greet"],
        fields={"person": ["id", "name", "age"], "city": ["id", "people"]},
    )
    return completer


@pytest.mark.parametrize(
    ("text", "become"),
    [
        ("SELECT * FROM p", ["person"]),
        ("SELECT * FROM o", ["`order`"]),  # a word of the language as a name
        ("SELECT * FROM ", ["person", "city", "`order`", "`due-later`", "jobs", "sessions"]),
        ("UPDATE ci", ["city"]),
        ("READ FROM j", ["jobs"]),
        ("GET 'k' FROM se", ["sessions"]),
        ("USE sh", ["shop.main", "shop"]),
        ("\\use shop.", ["shop.main"]),
        ("\\d c", ["city"]),
        ("\\ti", ["\\timing"]),
        ("\\x ", []),
        ("SELECT nam", ["name", "namespace"]),
        ("SELECT peo", ["people"]),
        ("SELECT * FROM person WHERE peo", []),  # no field of this table
        ("SELECT string::up", ["string::upper("]),
        ("SELECT fn::g", ["fn::greet("]),
        ("DROP FUNCTION g", ["greet"]),
        ("selec", ["select"]),
        ("SELEC", ["SELECT"]),
        ("SELECT 'na", []),
        ("SELECT 1 -- na", []),
        ("SELECT `na", []),
        ("SELECT 1 -- done\n, peo", ["people"]),
    ],
)
def test_what_a_word_may_become(
    completer: StatementCompleter, text: str, become: list[str]
) -> None:
    found = completer.get_completions(Document(text), CompleteEvent(completion_requested=True))
    assert [one.text for one in found] == become


# --- history -------------------------------------------------------------------------------------


def test_where_a_history_is() -> None:
    assert state_folder({"XDG_STATE_HOME": "/x"}) == Path("/x/storenode")
    assert state_folder({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/storenode"


def test_a_history_is_kept_private_and_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "shell_history"
    kept, problem = open_history(path)
    assert problem is None
    path.chmod(0o644)
    for number in range(100):
        kept.store_string(f"SELECT {number}\nFROM t;")
    kept.store_string("ALTER USER ana SET PASWORD 'hush'")
    monkeypatch.setattr(history, "MOST_BYTES", 1000)
    again, problem = open_history(path)
    assert problem is None and stat.S_IMODE(path.stat().st_mode) == 0o600
    entries = list(again.load_history_strings())
    assert entries[0] == "SELECT 99\nFROM t;" and 1 < len(entries) < 30
    assert set(entries) <= {f"SELECT {number}\nFROM t;" for number in range(100)}


def test_a_history_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept, problem = open_history(tmp_path / "file" / "shell_history")
    assert isinstance(kept, InMemoryHistory)
    assert problem is not None and "the history is not saved" in problem
