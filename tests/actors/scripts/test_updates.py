"""UPDATE and DELETE of many records at once answer and keep what one by one does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from actors.scripts import writing
from protocol.values import identical
from storage.records import records
from tests.actors.scripts.test_typed_inserts import INDEXES, ODD, SCHEMAS, row
from tests.nodes import Running
from tests.storage.index_entries import wrong_entries

TABLES = (
    *zip(SCHEMAS, INDEXES, strict=True),
    # Without READONLY changes are checked by column.
    (SCHEMAS[1].replace(" READONLY", ""), INDEXES[2]),
    ("ALTER TABLE t SET COMMENT 'without fields'", "DEFINE INDEX by_both ON t FIELDS n, word"),
)
BY_COLUMN = (0, 3, 4)
"""Numbers of the tables whose records are changed together."""
DATA = (
    "SET n = n + 1", "SET n += 1000, rate = 1", "SET word = 'two'", "SET price = price * 2, n -= 1",
    "SET word = $odd", "SET n = 200", "SET more.y = $odd, tags += 7", "SET tags[*] = n",
    "SET other = $odd", "SET n = $odd WHERE n = 300", "UNSET price, more", "UNSET word",
    "MERGE { n: n - 1, more: $odd }", "MERGE { id: id, word: 'one' }", "SET id = $odd",
    "CONTENT { at: at, n: n, price: 2, rate: 1, word: 'w', link: link, tags: [1] }",
    "CONTENT $odd", "SET price = 10 / (n - 400)", "SET link = $odd, at = at",
    "SET more.z = (SELECT VALUE n FROM t:7)", "SET word = NONE", "SET more = { a: [NONE, $odd] }",
)  # fmt: skip
WHERE = ("", "", "WHERE n < 400", "WHERE id IN [t:7, t:8, t:9, t:7]", "WHERE price > 30 LIMIT 90")
ENDS = ("RETURN NONE", "RETURN NONE", "", "RETURN BEFORE", "RETURN DIFF", "RETURN n, word")


class Both:
    """Two databases: in the one records are changed together, in the other one by one."""

    def __init__(self, node: Running, patch: pytest.MonkeyPatch) -> None:
        self._node = node
        self._patch = patch
        self._real: Any = writing._computed_together
        self.together = 0

    def _counted(self, *given: Any) -> Any:
        made = self._real(*given)
        self.together += 0 if made is None else len(given[3])
        return made

    async def ask(self, script: str, **parameters: Any) -> tuple[Any, Any]:
        found = []
        for place, how in (("many", self._counted), ("each", lambda *given: None)):
            self._patch.setattr(writing, "_computed_together", how)
            answer = await self._node.answer(script, parameters, place=("shop", place))
            refusal = answer.refusal
            refused = refusal and (refusal.code, refusal.message, refusal.detail)
            found.append((refused, [result.value for result in answer.results]))
        return found[0], found[1]


def script(rng: Random) -> str:
    """A few changes of one transaction."""
    parts = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        data = rng.choice(DATA)
        where = "" if "WHERE" in data else rng.choice(WHERE)
        parts.append(f"UPDATE t {data} {where} {rng.choice(ENDS)}")
    if rng.random() < 0.2:
        parts.append(f"DELETE t WHERE n % 7 = {rng.randrange(7)} RETURN NONE")
    if rng.random() < 0.2:
        parts.insert(0, "INSERT INTO t $first IGNORE RETURN NONE")
    return f"BEGIN; {'; '.join(parts)}; COMMIT"


async def compared(
    node: Running, patch: pytest.MonkeyPatch, seeds: range, at: int
) -> tuple[int, int]:
    """Change generated records both ways. Return the records changed together, and the refusals."""
    both = Both(node, patch)
    await node.values("DEFINE DATABASE shop.many; DEFINE DATABASE shop.each")
    define, indexes = TABLES[at]
    define = define.replace("DEFAULT time::now()", "DEFAULT d'2026-01-01T00:00:00Z'")
    assert (await both.ask(f"DEFINE TABLE t; {define}; {indexes}"))[0][0] is None
    refused = 0
    for seed in seeds:
        rng = Random(f"{at} {seed}")
        rows = [row(rng, number) for number in rng.sample(range(300), 150)]
        await both.ask("INSERT INTO t $rows IGNORE RETURN NONE", rows=rows)
        asked = script(rng)
        many, each = await both.ask(asked, odd=rng.choice(ODD), first=row(rng, 7))
        assert identical(_plain(many), _plain(each)), f"table {at}, seed {seed}: {asked}"
        refused += many[0] is not None
        many, each = await both.ask("SELECT * FROM t")
        assert identical(_plain(many), _plain(each)), f"table {at}, seed {seed}: {asked}"
    for place in ("many", "each"):
        assert await wrong_entries(node.node, place) == []
    return both.together, refused


def _plain(found: tuple[Any, Any]) -> list[Any]:
    refused, values = found
    return [list(refused) if refused else None, values]


@pytest.mark.parametrize("at", range(len(TABLES)))
@pytest.mark.parametrize("rounds", [12, pytest.param(1_000, marks=pytest.mark.hard)])
async def test_many_records_are_changed_as_one_by_one(
    node: Running,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str, object], None],
    at: int,
    rounds: int,
) -> None:
    together, refused = await compared(node, monkeypatch, range(rounds), at)
    figure(f"records changed together, table {at}", f"{together}, {refused} refused")
    assert (together > 100) == (at in BY_COLUMN)
    assert refused > 1


FAULTS = ("takes NONE", "leaves entries", "skips checks")


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_in_changes_together_is_seen(
    node: Running, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def kept(before: Any, after: Any, tick: Any) -> Any:
        fields = dict(after)
        del fields["id"]
        return fields

    def collect(self: Any, found: Any, rows: Any, known: Any, tick: Any) -> Any:
        size = put(self, found, rows, known, tick)
        self._collected = [one._replace(moves=False) for one in self._collected]
        return size

    put: Any = records.RecordChanges.put_together
    if fault == FAULTS[0]:
        monkeypatch.setattr(writing, "_storable_change", kept)
    elif fault == FAULTS[1]:
        monkeypatch.setattr(records.RecordChanges, "put_together", collect)
    else:
        monkeypatch.setattr(writing, "schema_of", lambda run, table: _Any())
    with pytest.raises(AssertionError):
        await compared(node, monkeypatch, range(60), 0)


class _Any:
    """A schema that takes everything."""

    changes_by_column = True

    def conform_new(self, *given: Any) -> bool:
        return True
