"""Every case of the case files, on a real node.

`make cases-accept` writes what is answered now into the files: read the difference before it is
committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from protocol.requests import ScriptAnswer
from protocol.text import format_value
from tests.cases.format import Case, read, write
from tests.nodes import Running, running

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("**/*.case"))
ACCEPT = os.environ.get("CASES_ACCEPT") == "1"
PARAMETERS = {"one": 1, "name": "Ana", "list": [1, 2, 3]}


CHANGING = re.compile(
    r"\b(at|created|directory|fresh|hash|id|in_log_until|indexed|leader|log_begins|log_bytes"
    r"|segments|seq|sequence|since|slices|store|took|until|uptime|version|build|words): "
    r"(?:'[^']*'|\{[^{}]*\}|[^,{}\[\]]+?)(?= ?[,}])"
)
"""What differs from one run to the next, in the answers of INFO and EXPLAIN ANALYZE."""
FOLDED = re.compile(r"\b(bytes|largest_list|records|terms|tokens|without): \d+")
"""Figures of INFO that change with a fold in the background, of an index with segments."""


TOPIC_OF_RECEIPT = re.compile(r"\b[0-9a-f]{8}(?=(?:\.\d+){4})")
"""How receipts begin, of each topic otherwise."""


def shown(answer: ScriptAnswer) -> list[str]:
    """An answer as the lines of a case, with `…` for what differs from run to run."""
    lines = lines_of(answer)
    for number, result in enumerate(answer.results):
        if result.kind == "info":
            lines[number] = CHANGING.sub(r"\1: …", lines[number])
            if "segments: …" in lines[number]:
                lines[number] = FOLDED.sub(r"\1: …", lines[number])
    return lines


def lines_of(answer: ScriptAnswer) -> list[str]:
    """An answer as lines: one for each result, and the refusal's."""
    lines = [f"= {format_value(result.value)}" for result in answer.results]
    if answer.refusal is not None:
        message = answer.refusal.message.split("\n")[0]
        lines.append(f"! {answer.refusal.code}: {message}")
    return lines


async def answered(node: Running, setup: str, case: Case) -> list[str]:
    """What a case answers on a database of its own."""
    fresh = "DROP DATABASE shop.main REASON 'next case'; DEFINE DATABASE shop.main"
    for script, place in ((fresh, (None, None)), (setup, ("shop", "main"))):
        if script:
            prepared = await node.answer(script, place=place)
            assert prepared.refusal is None, prepared.refusal
    lines = shown(await node.answer(case.script, PARAMETERS, place=case.place))
    return [TOPIC_OF_RECEIPT.sub("TOPIC", line) for line in lines]


def on_one_node() -> dict[str, list[Path]]:
    """The files by folder: but those about users, who are of the whole store, one by one."""
    found: dict[str, list[Path]] = {}
    for path in FILES:
        folder = path.parent.name
        found.setdefault(path.stem if folder == "users" else folder, []).append(path)
    return found


@pytest.mark.parametrize("folder", on_one_node())
async def test_what_the_language_answers(folder: str, tmp_path: Path) -> None:
    wrong: list[str] = []
    async with running(tmp_path / "store") as node:
        if folder == "vaults":
            await node.unseal()
        for path in on_one_node()[folder]:
            file = read(path)
            for case in file.cases:
                found = await answered(node, file.setup, case)
                if ACCEPT:
                    case.expected = found
                elif found != case.expected:
                    told = "\n".join(["  expected", *case.expected, "  found", *found])
                    wrong.append(f"{path.name}: {case.title}\n{told}")
            if ACCEPT:
                path.write_text(write(file))
    assert not wrong, "\n\n".join(wrong)


async def test_a_wrong_answer_is_found(tmp_path: Path) -> None:
    case = Case("planted", "", "1; RETURN nothing", ["= 2"])
    async with running(tmp_path / "store") as node:
        found = await answered(node, "", case)
    assert found[0] == "= 1" and found[1].startswith("! Unknown: ") and found != case.expected
