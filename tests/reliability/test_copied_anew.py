"""A node that was away for longer than its leader keeps the log copies the store anew, by itself.
Real processes, sockets and certificates."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from tests import ores
from tests.processes import NodeProcess
from tests.reliability import faulty

FAULTS = {faulty.FAULTS: "small,lists-soon"}
LISTS = 60


def value(node: NodeProcess, text: str) -> Any:
    answer = node.script(text)
    assert "error" not in answer, answer
    return answer["results"][-1].get("value")


def found_by_indexes(node: NodeProcess) -> list[Any]:
    """Answers by indexes that are folded, and have the lists that the leader has trained."""

    def values(text: str) -> list[Any]:
        answer = node.script(text, ns="n", db="d")
        assert "error" not in answer, answer
        return [result.get("value") for result in answer["results"]]

    while not ores.are_folded(values(ores.INFO), LISTS):
        pass
    assert ores.are_whole(values(ores.CHECK))
    return values(ores.QUESTIONS + ores.LISTED)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[NodeProcess]:
    words = ("--http", "127.0.0.1:0", "--peer", f"127.0.0.1:{free_port()}")
    found = NodeProcess(tmp_path / "leader", words, FAULTS, module=faulty.MODULE).start()
    place = "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t"
    value(found, f"{place}; {ores.SEED} {ores.rows(0, 300)}")
    try:
        yield found
    finally:
        found.end()


def test_who_was_away_for_too_long_is_back_by_itself(tmp_path: Path, leader: NodeProcess) -> None:
    value(leader, "DEFINE REPLICA n2 PEER 'n2.example:8002'")
    token = tmp_path / "token"
    token.write_text(value(leader, "CREATE JOIN TOKEN FOR n2")["token"])
    at = ("--http", f"127.0.0.1:{free_port()}", "--peer", f"127.0.0.1:{free_port()}")
    node = NodeProcess(tmp_path / "new", (*at, "--join", str(token))).start()
    try:
        # Before it is attached the leader keeps the log for it, from where its copy ends.
        while (found := value(node, "INFO FOR NODE"))["upstream"] != "in sync":
            pass
        id = found["id"]
        assert node.stop() == 0
        token.unlink()
        by_indexes = found_by_indexes(leader)
        lacks = value(leader, "INFO FOR NODE")["sequence"] + 1
        number = 0
        while value(leader, "INFO FOR NODE")["log_begins"] <= lacks:
            number += 1
            value(leader, f"USE n.d; CREATE t:{number}")
        # It begins again as it was begun: with an interpreter of its own.
        node = NodeProcess(tmp_path / "new", at, cold=True).start()
        process = node.process.pid
        assert node.wait_line("the store is copied anew: the node begins again") is not None
        node.lines.clear()
        assert node.wait_line("ready") is not None
        assert any("joined store" in line["event"] for line in node.lines)
        assert node.process.pid == process and node.process.poll() is None
        while True:  # an entry of a sign-in may come between the two
            there, found = (value(one, "INFO FOR STATE") for one in (leader, node))
            if found["sequence"] == there["sequence"]:
                break
        assert found == there
        assert found_by_indexes(node) == by_indexes
        assert value(node, "INFO FOR NODE")["id"] == id
        node.signal(signal.SIGTERM)  # heard as by any other
        assert node.process.wait() == 0
    finally:
        node.end()
