"""CHECK INDEX: it finds what an index lacks, and what it has too much of."""

from __future__ import annotations

import asyncio
from typing import Any

from protocol.values import RecordId
from storage.engine.engine import Engine
from storage.formats import keys
from storage.indexes import index_rows
from storage.indexes.entries import Index
from storage.search.segments import POSTINGS
from tests.nodes import Running

SETUP = """
DEFINE ANALYZER plain TOKENIZERS class; DEFINE TABLE ore;
DEFINE INDEX value ON ore FIELDS n; DEFINE INDEX text ON ore FIELDS title FULLTEXT ANALYZER plain;
INSERT INTO ore [{ id: 1, n: 7, title: 'tin' }, { id: 2, n: 8, title: 'gold' }] RETURN NONE
"""


async def prepared(node: Running) -> tuple[Engine, dict[str, Index]]:
    """The state engine with all entries in it, and the indexes by name."""
    await node.values(SETUP)
    while (await node.value("INFO FOR INDEX text ON ore"))["fresh"]["records"]:
        await asyncio.sleep(0.01)
    engine = node.node.committer.ledger.state.engine
    indexes = [index_rows.read(*pair) for pair in found(engine, keys.all_indexes())]
    return engine, {index.name: index for index in indexes}


def found(engine: Engine, span: keys.Range) -> list[tuple[bytes, bytes]]:
    """The pairs of a range."""
    return [pair for pairs in engine.scan(*span) for pair in pairs]


def rewritten(engine: Engine, gone: bytes, put: tuple[bytes, bytes] | None = None) -> None:
    """Damage: a key goes, and another comes."""
    batch = engine.batch()
    batch.delete(gone)
    if put is not None:
        batch.put(*put)
    engine.write(batch, engine.applied)


async def checked(node: Running, index: str) -> Any:
    return await node.value(f"CHECK INDEX {index} ON ore")


async def test_an_entry_that_is_missing_and_one_too_many(node: Running) -> None:
    engine, indexes = await prepared(node)
    whole = {"records": 2, "entries": 2, "missing": 0, "surplus": 0}
    assert await checked(node, "value") == whole
    first, second = found(engine, keys.within(indexes["value"].entries))
    rewritten(engine, first[0])
    damaged = {**whole, "entries": 1, "missing": 1, "first": RecordId("ore", 1)}
    assert await checked(node, "value") == damaged
    # The entry of a record that is not there.
    rewritten(engine, second[0], (second[0][:-1] + b"\x7f", second[1]))
    told = await checked(node, "value")
    assert (told["missing"], told["surplus"], told["first"]) == (2, 1, RecordId("ore", 1))


async def test_a_term_that_is_missing(node: Running) -> None:
    engine, indexes = await prepared(node)
    whole = {"records": 2, "entries": 2, "missing": 0, "surplus": 0}
    assert await checked(node, "text") == whole
    (gold,) = [
        key for key, _ in found(engine, keys.within(indexes["text"].entries + POSTINGS))
        if key.endswith(b"gold")
    ]  # fmt: skip
    rewritten(engine, gold)
    assert await checked(node, "text") == {**whole, "missing": 1, "first": RecordId("ore", 2)}
