"""R22: a node that restores a script is killed, at any moment: the places are there wholly, or not
at all, and what was there before is as it was.
"""

from __future__ import annotations

import http.client
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.actors.backups.scripts import sealed
from tests.processes import NodeProcess

ROWS = 40_000
BODY = 100
BEFORE = """
    DEFINE NAMESPACE mine; DEFINE DATABASE mine.d; USE mine.d; DEFINE TABLE t;
    FOR $i IN 0..50 { CREATE t SET v = $i }
"""


def script() -> bytes:
    rows = "".join(
        "INSERT INTO t ["
        + ", ".join(f"{{ id: {at}, v: '{'x' * BODY}' }}" for at in range(start, start + 100))
        + "] RETURN NONE;\n"
        for start in range(0, ROWS, 100)
    )
    head = "DEFINE NAMESPACE n;\nDEFINE DATABASE n.d;\nUSE n.d;\nDEFINE TABLE t;\n"
    return sealed(head + rows, statements=4 + ROWS // 100)


def found(node: NodeProcess) -> tuple[Any, int | None]:
    """What was there before, and how many of the restored records are; None: not even their
    place."""
    mine = node.script("SELECT * FROM t", ns="mine", db="d")["results"][0]["value"]
    answer = node.script("SELECT VALUE count() FROM ONLY t GROUP ALL", ns="n", db="d")
    if "error" in answer:
        assert answer["error"]["code"] == "Unknown"
        return mine, None
    return mine, int(answer["results"][0]["value"])


@pytest.mark.parametrize("least", [0, 1, 15_000, 30_000])
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
