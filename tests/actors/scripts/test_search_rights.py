"""Nobody without READ on a table learns of its terms and vectors, by whatever statement."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protocol.errors import NotAllowed
from storage.formats import keys
from storage.indexes import index_rows
from storage.search.segments import POSTINGS
from tests.callers import declare
from tests.nodes import Running

SETUP = """
DEFINE ANALYZER plain TOKENIZERS class FILTERS lowercase; DEFINE TABLE ore; DEFINE TABLE mine;
DEFINE INDEX text ON ore FIELDS title FULLTEXT ANALYZER plain;
DEFINE INDEX own ON mine FIELDS title FULLTEXT ANALYZER plain;
DEFINE INDEX near ON ore FIELDS v VECTOR DIMENSION 2;
INSERT INTO ore (array::map(0..20, |$n| { id: $n, title: ['tin', 'gold'][$n % 2], v: [1, $n] }))
    RETURN NONE;
CREATE mine:1 SET title = 'tin', ore = ore:1 RETURN NONE
"""
MATCH, NEAREST = "title @@ 'tin'", "v NEAREST 2 TO [1, 1]"
READS = (
    f"SELECT VALUE id FROM ore WHERE {MATCH}",
    f"SELECT VALUE id FROM ore WHERE {NEAREST}",
    f"SELECT search::score() AS s FROM ore WHERE {MATCH} ORDER BY search::score() DESC LIMIT 1",
    "SELECT VALUE id FROM ore ORDER BY vector::cosine(v, [1, 1]) DESC LIMIT 1",
    f"SELECT VALUE search::score() FROM [ore:0] WHERE {MATCH}",
    f"SELECT VALUE title FROM ore:0 WHERE {MATCH}",
    f"SELECT VALUE (SELECT count() AS c FROM ore WHERE {MATCH} GROUP ALL) FROM mine",
    f"SELECT VALUE (SELECT VALUE vector::distance() FROM ore WHERE {NEAREST}) FROM mine",
    f"SELECT VALUE id FROM mine WHERE id IN (SELECT VALUE id FROM ore WHERE {MATCH})",
    f"LET $found = (SELECT id FROM ore WHERE {MATCH}); SELECT * FROM search::rrf([$found])",
    f"IF array::len((SELECT VALUE id FROM ore WHERE {NEAREST})) > 0 {{ RETURN 1 }}",
    "SELECT VALUE id FROM mine WHERE search::matches(ore.title, 'tin', 'plain')",
    f"EXPLAIN SELECT id FROM ore WHERE {MATCH}",
    f"EXPLAIN ANALYZE SELECT id FROM ore WHERE {NEAREST}",
    f"EXPLAIN UPDATE ore SET n = 1 WHERE {MATCH}",
    f"UPDATE ore SET n = 1 WHERE {MATCH}",
    f"UPDATE ore:0 SET n = 1 WHERE {MATCH}",
    f"DELETE ore WHERE {NEAREST}",
    f"DELETE ore:0 WHERE {MATCH}",
    "UPSERT ore:0 SET n = search::matches(title, 'tin', 'plain')",
    "UPDATE ore:0 SET n = vector::cosine(v, [1, 1])",
)
"""Each reads the table, so it needs READ."""


async def member(node: Running, *verbs: str) -> Any:
    """A user with all rights on its own table, and some on the other."""
    name = "_".join(verbs).lower()
    found = await declare(node.node, name, "member")
    await node.values(
        f"GRANT {', '.join(verbs)} ON TABLE ore TO {name};"
        f"GRANT READ, WRITE, DEFINE, INFO ON TABLE mine TO {name}"
    )
    return found


@pytest.fixture
async def ores(node: Running) -> Running:
    await node.values(SETUP)
    while True:
        infos = await node.values("INFO FOR INDEX text ON ore; INFO FOR INDEX near ON ore")
        if not infos[0]["fresh"]["records"] and not infos[1]["fresh"]:
            return node
        await asyncio.sleep(0.01)


async def test_a_search_takes_read(ores: Running) -> None:
    other = await member(ores, "WRITE", "DEFINE", "INFO")
    for script in READS:
        answer = await ores.answer(script, caller=other)
        assert type(answer.refusal) is NotAllowed, script
        assert answer.refusal.detail["needs"] == "READ ON TABLE shop.main.ore", script
    reader = await member(ores, "READ", "WRITE")
    for script in READS:
        answer = await ores.answer(f"BEGIN; {script}; CANCEL", caller=reader)
        assert answer.refusal is None, (script, answer.refusal)


async def test_functions_of_others_search_nothing(ores: Running) -> None:
    for body in (f"SELECT VALUE id FROM ore WHERE {MATCH}", f"{MATCH}", NEAREST, "search::score()"):
        refusal = (await ores.answer(f"DEFINE FUNCTION f($x: any) -> any {{ {body} }}")).refusal
        assert refusal is not None, body


async def test_no_statement_about_an_index_tells_its_terms(ores: Running) -> None:
    """The number of terms tells a writer of a word if it was there."""
    other = await member(ores, "WRITE", "DEFINE", "INFO")
    reader = await member(ores, "READ", "INFO")

    async def info(caller: Any) -> Any:
        return (await ores.answer("INFO FOR INDEX text ON ore", caller=caller)).results[0].value

    secret = {"terms", "tokens", "bytes"}
    assert secret <= (await info(reader)).keys()
    assert not secret & (await info(other)).keys()
    _damage(ores)
    for index in ("text", "near"):
        checked = (await ores.answer(f"CHECK INDEX {index} ON ore", caller=other)).results[0].value
        assert isinstance(checked, dict) and "first" not in checked
        assert (checked["missing"] > 0) is (index == "text")


def _damage(ores: Running) -> None:
    """Remove the terms of the FULLTEXT index."""
    engine = ores.node.committer.ledger.state.engine
    (index,) = [
        one
        for pairs in engine.scan(*keys.all_indexes())
        for one in (index_rows.read(*pair) for pair in pairs)
        if one.text is not None and one.table == "ore"
    ]
    batch = engine.batch()
    batch.delete_range(*keys.within(index.entries + POSTINGS))
    engine.write(batch, engine.applied)
