"""SIGKILL while a FULLTEXT index is folded: the next start finds what was found before."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import texts
from tests.processes import NodeProcess
from tests.reliability import faulty

KILLS = 12
ROWS = 4_000
"""Records written in each life, whose fold takes about a second."""
PLACE = {"ns": "shop", "db": "main"}


def values(node: NodeProcess, script: str) -> list[Any]:
    """Return the answer of each statement."""
    answer = node.script(script, **PLACE)
    assert answer.get("error") is None, answer
    return [result.get("value") for result in answer["results"]]


def is_folded(node: NodeProcess) -> bool:
    """True if no record is fresh."""
    return not values(node, texts.INFO)[-1]["fresh"]["records"]


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_kills_in_folds_change_no_answer(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    rng, unfinished, answers = Random(7), 0, None
    for life in range(KILLS):
        node = NodeProcess(
            tmp_path / "store", more={faulty.FAULTS: "small"}, module=faulty.MODULE
        ).start()
        try:
            if life == 0:
                places = "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
                values(node, places + texts.SEED)
            if answers is not None:
                assert values(node, texts.QUESTIONS) == answers, f"after kill {life}"
            values(node, texts.rows(life * ROWS, (life + 1) * ROWS))
            values(node, f"DELETE ore WHERE n = {life}; UPDATE ore:{life} SET title = 'azurite'")
            answers = values(node, texts.QUESTIONS)
            time.sleep(rng.uniform(0, 1.2))
            unfinished += not is_folded(node)
            node.kill()
        finally:
            node.end()
    node = NodeProcess(tmp_path / "store").start()
    try:
        while not is_folded(node):
            time.sleep(0.05)
        assert values(node, texts.QUESTIONS) == answers
        checked = values(node, texts.CHECK)[-1]
        assert checked["missing"] == checked["surplus"] == 0
    finally:
        node.stop()
    figure("kills before or in a fold", unfinished)
    assert unfinished
