"""R21, R22: who restores is killed, at any moment."""

from __future__ import annotations

import http.client
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.actors.backups.scripts import sealed
from tests.processes import NodeProcess, run
from tests.reliability.rigs import killed_at_line
from tests.sweeps import some_of

ROWS = 8_000
BODY = 100
BEFORE = """
    DEFINE NAMESPACE mine; DEFINE DATABASE mine.d; USE mine.d; DEFINE TABLE t;
    FOR $i IN 0..50 { CREATE t SET v = $i }
"""


def script(count: int = ROWS, body: int = BODY) -> bytes:
    rows = "".join(
        "INSERT INTO t ["
        + ", ".join(f"{{ id: {at}, v: '{'x' * body}' }}" for at in range(start, start + 100))
        + "] RETURN NONE;\n"
        for start in range(0, count, 100)
    )
    head = "DEFINE NAMESPACE n;\nDEFINE DATABASE n.d;\nUSE n.d;\nDEFINE TABLE t;\n"
    return sealed(head + rows, statements=4 + count // 100)


def found(node: NodeProcess) -> tuple[Any, int | None]:
    """What was there before, and how many of the restored records are; None: not even their
    place."""
    mine = node.script("SELECT * FROM t", ns="mine", db="d")["results"][0]["value"]
    answer = node.script("SELECT VALUE count() FROM ONLY t GROUP ALL", ns="n", db="d")
    if "error" in answer:
        assert answer["error"]["code"] == "Unknown"
        return mine, None
    return mine, int(answer["results"][0]["value"])


@pytest.mark.parametrize("least", some_of([0, 1, 3_000, 6_000], 2))
def test_a_node_that_is_killed_while_it_restores(tmp_path: Path, least: int) -> None:
    """:param least: it is killed once so many records are seen"""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x").write_bytes(script())
    words = ("--http", "127.0.0.1:0", "--backup-dir", str(folder))
    node = NodeProcess(tmp_path / "store", words).start()
    try:
        assert "error" not in node.script(BEFORE)
        before, nothing = found(node)
        assert nothing is None
        asked = threading.Thread(target=_ask, args=(node,))
        asked.start()
        while True:
            _, there = found(node)
            if least == 0 or (there is not None and there >= least):
                break
        node.kill()
        asked.join()
        node = NodeProcess(tmp_path / "store", words).start()
        mine, there = found(node)
        assert mine == before
        assert there in (None, ROWS)
        again = node.script("RESTORE SCRIPT FROM 'x'")
        assert ("error" in again) == (there is not None)
        assert found(node) == (before, ROWS)
    finally:
        node.end()


def _ask(node: NodeProcess) -> None:
    with suppress(OSError, http.client.HTTPException):  # it was killed
        node.script("RESTORE SCRIPT FROM 'x'")


# --- by the command line --------------------------------------------------------------------------

FILL = """
    DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t; DEFINE INDEX i ON t FIELDS v;
    FOR $at IN 0..3000 { CREATE t SET v = $at, text = 'TEXT' };
""".replace("TEXT", "x" * 400)
HASH = re.compile(r"state ([0-9a-f]{64})")


def made_of(file: Path, directory: Path) -> str:
    """A restore that comes to its end; the hash of what it made."""
    done = run(str(directory), "--restore", str(file))
    found = HASH.search(done.stdout)
    assert done.returncode == 0 and found is not None, done.stderr
    return found[1]


@pytest.mark.hard
@pytest.mark.parametrize("form", ["a snapshot", "a log", "a log on top"])
def test_a_command_that_restores_is_killed(tmp_path: Path, form: str) -> None:
    """Killed whenever it says how far it is: what is there is no store, until the same has come
    to its end."""
    fill, store = tmp_path / "fill", tmp_path / "store"
    fill.write_text(FILL)
    assert run(str(store), "-f", str(fill)).returncode == 0
    snapshot, log = tmp_path / "x.storesnap", tmp_path / "x.storelog"
    if form == "a log on top":
        assert run(str(store), "--backup", str(snapshot)).returncode == 0
        begun = made_of(snapshot, tmp_path / "begun")
        fill.write_text("USE n.d; FOR $at IN 0..3000 { CREATE t SET v = -$at }")
        assert run(str(store), "-f", str(fill)).returncode == 0
    assert run(str(store), "--backup", str(snapshot.with_name("y.storesnap"))).returncode == 0
    assert run(str(store), "--backup", str(log), "--from", "1").returncode == 0
    whole = made_of(snapshot.with_name("y.storesnap"), tmp_path / "whole")
    file = snapshot.with_name("y.storesnap") if form == "a snapshot" else log
    unfinished = 0
    for lines in range(1, 40):
        new = tmp_path / f"new{lines}"
        if form == "a log on top":
            assert made_of(snapshot, new) == begun
        if not killed_at_line(lines, str(new), "--restore", str(file)):
            break
        looked = run(str(new), "--health")
        if (new / "RESTORING").exists():
            unfinished += 1
            assert looked.returncode == 1 and "holds an unfinished restore" in looked.stderr
        assert made_of(file, new) == whole, lines
    assert unfinished > 1


@pytest.mark.hard
def test_a_command_that_runs_a_script_is_killed(tmp_path: Path) -> None:
    """What a script makes in a new directory is no store either until it has come to its end."""
    file, whole = tmp_path / "x.storeql", tmp_path / "whole"
    file.write_bytes(script(3_000, body=1_000))
    assert run(str(whole), "--restore", str(file)).returncode == 0
    rows = _rows(whole)
    assert len(rows) == 3_000
    unfinished = 0
    for lines in (1, 12):
        new = tmp_path / f"new{lines}"
        if not killed_at_line(lines, str(new), "--restore", str(file)):
            break
        if (new / "RESTORING").exists():
            unfinished += 1
            for looked in (run(str(new), "--health"), run(str(new), "-f", str(file))):
                assert looked.returncode == 1 and "holds an unfinished restore" in looked.stderr
        assert run(str(new), "--restore", str(file)).returncode == 0
        assert not (new / "RESTORING").exists()
        assert _rows(new) == rows
    assert unfinished


def _rows(store: Path) -> list[bytes]:
    file = store.with_suffix(".dumped")
    assert run(str(store), "--dump", str(file)).returncode == 0
    return re.findall(rb"id: \d+", file.read_bytes())


def test_what_a_script_is_refused_with_keeps_what_ran(tmp_path: Path) -> None:
    file, new = tmp_path / "x", tmp_path / "new"
    file.write_bytes(sealed("DEFINE NAMESPACE n;\nDEFINE NAMESPACE n;\n", statements=2))
    done = run(str(new), "--restore", str(file))
    assert done.returncode == 1 and "AlreadyExists" in done.stderr and "1 ran" in done.stderr
    assert run(str(new), "--health").returncode == 0
    again = run(str(new), "--restore", str(file))
    assert again.returncode == 1 and "holds a store" in again.stderr
