"""SIGKILL while a FULLTEXT and a VECTOR index are folded: the next start finds what was found
before."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import ores
from tests.processes import NodeProcess
from tests.reliability import faulty

KILLS = 12
ROWS = 4_000
"""Records written in each life."""
PLACE = {"ns": "shop", "db": "main"}


def values(node: NodeProcess, script: str) -> list[Any]:
    """Return the answer of each statement."""
    answer = node.script(script, **PLACE)
    assert answer.get("error") is None, answer
    return [result.get("value") for result in answer["results"]]


def are_folded(node: NodeProcess, lists: int = 1) -> bool:
    """True if no record is fresh, and all vectors are in lists."""
    return ores.are_folded(values(node, ores.INFO), lists)


def check_near(node: NodeProcess, answers: list[Any]) -> None:
    """Check that a NEAREST that reads some lists finds most of the records."""
    nearest = [row["id"] for row in answers[5]]
    assert ores.share(values(node, ores.LISTED)[0], nearest) >= 0.8


@pytest.mark.hard
@pytest.mark.timeout(900)
def test_kills_in_folds_change_no_answer(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    rng, unfinished, answers = Random(7), 0, None
    for life in range(KILLS):
        # However busy the machine is, a kill in an even life meets a fold.
        faults = "small" if life % 2 else "small,folds-slowly"
        node = NodeProcess(
            tmp_path / "store", more={faulty.FAULTS: faults}, module=faulty.MODULE
        ).start()
        try:
            if life == 0:
                places = "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                values(node, places + ores.SEED)
            if answers is not None:
                assert values(node, ores.QUESTIONS) == answers, f"after kill {life}"
                check_near(node, answers)
            values(node, ores.rows(life * ROWS, (life + 1) * ROWS))
            values(node, f"DELETE ore WHERE n = {life}; UPDATE ore:{life} SET title = 'azurite'")
            answers = values(node, ores.QUESTIONS)
            time.sleep(rng.uniform(0, 1.2))
            unfinished += not are_folded(node)
            node.kill()
        finally:
            node.end()
    node = NodeProcess(tmp_path / "store").start()
    try:
        while not are_folded(node, 2):
            time.sleep(0.05)
        assert values(node, ores.QUESTIONS) == answers
        check_near(node, answers)
        assert ores.are_whole(values(node, ores.CHECK))
    finally:
        node.stop()
    figure("kills before or in a fold", unfinished)
    assert unfinished >= KILLS / 2
