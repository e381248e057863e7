"""The examples of the page on topics run as they are written, one after the other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.architecture.sources import ROOT
from tests.docs.test_tour import BLOCK, play
from tests.processes import PASSWORD, NodeProcess, serving

PAGE = ROOT / "docs" / "topics.md"
PLACE = "USE shop.main; "


def blocks(language: str) -> list[str]:
    """The code of the page in one language."""
    return [code for name, code in BLOCK.findall(PAGE.read_text()) if name == language]


def run(node: NodeProcess, script: str) -> list[object]:
    """What the statements of a script answer."""
    answer = node.script(PLACE + script)
    assert "error" not in answer, answer
    return [result.get("value") for result in answer["results"]][1:]


def test_examples(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node:
        node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main")
        messages, bounds, readers, groups, outbox, changes = blocks("store")
        *_, page = run(node, messages)
        assert isinstance(page, list)
        assert [one["value"] for one in page] == ["one", "two"]
        assert run(node, bounds)[-1] == {"position": 1, "duplicate": True}
        assert run(node, readers)[-1] == {"position": 2}
        *_, figures = run(node, groups)
        assert isinstance(figures, dict)
        named = re.search(r"`INFO FOR GROUP` answers `\{(.*?)\}`", PAGE.read_text(), re.DOTALL)
        assert named is not None
        assert set(figures) == set(re.split(r",\s+", named[1]))
        assert figures["in_flight"] == 2
        run(node, outbox)
        told = run(node, changes)[-1]
        assert isinstance(told, list)
        assert [each["value"]["action"] for each in told] == ["create", "update"]

        once, client = blocks("python")
        assert "'n': 3" in here(node, once)  # of five, two are out
        assert here(node, client) == "1005\n"


def here(node: NodeProcess, code: str) -> str:
    """What an example prints when it signs in at this node."""
    code = "from storeclient import Client\n" + code.replace("correct horse", PASSWORD)
    return play(node, sys.executable, code=code)
