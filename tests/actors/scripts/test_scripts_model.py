"""Random scripts on a node with fields and indexes, and on a plain dictionary: the same answers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.indexes import entries
from tests.actors.scripts.scripts_model import script, select, shown, world
from tests.nodes import Running, running

WORLDS = 10
SCRIPTS = 36
"""In each world."""
ABREAST = 8
"""Worlds at once, each in a database of its own: their commits share a sync."""


def exact(value: Any) -> Any:
    """The value in a form in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    return type(value).__name__, value


async def compare(node: Running, seed: int, count: Counter[str]) -> None:
    """A world from its seed. :raises AssertionError: node and model differ; it names the seed"""
    chance = random.Random(seed)
    model, made = world(chance)
    place = ("shop", f"w{seed}")
    defined = await node.answer(f"DEFINE DATABASE w{seed}; USE shop.w{seed}; " + "; ".join(made))
    assert defined.refusal is None, (seed, defined.refusal, made)
    for _ in range(SCRIPTS):
        one, before = script(chance), dict(model.rows)
        expected, codes = one.on(model)
        told = await node.answer(one.text, place=place)
        code = None if told.refusal is None else told.refusal.code
        about = f"seed {seed}\n{made}\n{before}\n{one.text}\n{told.refusal}"
        assert (code in codes) if codes else code is None, f"{about}: not {codes or 'refused'}"
        answers = [result.value for result in told.results]
        assert exact(answers) == exact(expected), f"{about}\n{answers}\n  is not\n{expected}"
        count.update(scripts=1, statements=len(answers), refused=code is not None)
    everything = await node.answer("SELECT * FROM t", place=place)
    expected = [shown(id, row) for id, row in sorted(model.rows.items())]
    assert exact(everything.results[0].value) == exact(expected), f"seed {seed}"
    for _ in range(5):
        explained = await node.answer(f"EXPLAIN {select(chance).text}", place=place)
        if explained.refusal is not None:
            assert explained.refusal.code == "TypeRefused", f"seed {seed}"
            continue
        plan: Any = explained.results[0].value
        way = plan["sources"][0]["access"]
        count.update(explained=1, indexed=way.startswith("index"))


async def compared(directory: Path, seeds: range) -> Counter[str]:
    """Several worlds at a time on one node."""
    count: Counter[str] = Counter()
    waiting = iter(seeds)

    async def some(node: Running) -> None:
        for seed in waiting:
            await compare(node, seed, count)

    async with running(directory) as node, asyncio.TaskGroup() as group:
        for _ in range(ABREAST):
            group.create_task(some(node))
    return count


async def test_scripts_answer_as_a_dictionary_does(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    first = random.SystemRandom().randrange(10**6)
    count = await compared(tmp_path / "store", range(first, first + WORLDS))
    told = ", ".join(f"{number} {name}" for name, number in count.items())
    figure("C scripts against a dictionary", f"{told}, seeds {first} to {first + WORLDS - 1}")
    assert count["scripts"] == WORLDS * SCRIPTS
    assert count["refused"] > count["scripts"] // 10
    assert count["indexed"] > count["explained"] // 8


def _forgets_no_entry(*_: Any) -> bool:
    return False


async def test_an_index_that_keeps_what_is_gone_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_may_delete", _forgets_no_entry)
    with pytest.raises(ExceptionGroup) as caught:
        await compared(tmp_path / "store", range(ABREAST))
    assert all("seed " in str(error) for error in caught.value.exceptions)
