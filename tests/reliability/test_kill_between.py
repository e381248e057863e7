"""A script outside BEGIN, killed on its way."""

from __future__ import annotations

import contextlib
import threading
from http.client import HTTPException
from pathlib import Path

from tests.processes import NodeProcess

PLACE = {"ns": "shop", "db": "main"}
STATEMENTS = 20_000


def test_a_script_killed_between_its_statements_keeps_a_beginning_of_it(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "store").start()
    node.script(
        "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
        "DEFINE TABLE done; DEFINE TABLE going; CREATE done:1; CREATE done:2"
    )
    script = "; ".join(f"CREATE going:{n} RETURN NONE" for n in range(STATEMENTS))

    def send() -> None:
        with contextlib.suppress(OSError, HTTPException):  # the node dies before it answers
            node.script(script, **PLACE)

    sending = threading.Thread(target=send)
    sending.start()
    while not node.script("SELECT VALUE id FROM going LIMIT 1", **PLACE)["results"][0]["value"]:
        pass
    node.kill()
    sending.join()

    again = NodeProcess(tmp_path / "store").start()
    try:
        answer = again.script("SELECT VALUE id FROM going; SELECT VALUE id FROM done", **PLACE)
    finally:
        again.stop()
    going, done = (result["value"] for result in answer["results"])
    assert 0 < len(going) < STATEMENTS
    assert going == [{"$rec": f"going:{n}"} for n in range(len(going))]
    assert done == [{"$rec": "done:1"}, {"$rec": "done:2"}]
