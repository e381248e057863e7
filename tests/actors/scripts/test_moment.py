"""A statement reads the state as it was when it began, and asks what stays the same only once."""

from __future__ import annotations

from typing import Any

import pytest

from actors.scripts import reading
from protocol import limits
from protocol.errors import TooLarge
from tests.nodes import Running


class Runs:
    """Counts how often a SELECT or the search for records is run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._real = reading.rows
        monkeypatch.setattr(reading, "rows", self._rows)

    def _rows(self, *given: Any) -> list[Any]:
        self.count += 1
        return self._real(*given)


STEADY = "array::first((SELECT VALUE max(n) FROM thing GROUP ALL))"


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE thing SET m = {STEADY} + n RETURN NONE",
        f"UPDATE thing SET m = 1 WHERE n < {STEADY} RETURN NONE",
        f"UPDATE thing SET m = n RETURN {STEADY} AS top",
        f"SELECT n, {STEADY} AS top FROM thing",
        f"SELECT n FROM thing WHERE n < {STEADY} ORDER BY n + {STEADY}",
        f"INSERT INTO other [{{ a: 1 }}, {{ a: 2 }}, {{ a: 3 }}] RETURN {STEADY} AS top",
    ],
)
async def test_a_subquery_that_looks_at_no_row_is_run_once(
    node: Running, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    rows = [{"id": number, "n": number} for number in range(200)]
    await node.values("DEFINE TABLE other; INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    runs = Runs(monkeypatch)
    await node.value(statement)
    # The SELECT of the subquery once for each place where it stands, and that of the statement.
    assert runs.count <= statement.count(STEADY) + 1


async def test_one_that_looks_at_the_row_is_run_for_each(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": number, "n": number} for number in range(20)]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    runs = Runs(monkeypatch)
    below = "array::len((SELECT id FROM thing WHERE n < $parent.n))"
    assert await node.value(f"UPDATE thing SET n = {below} RETURN n") == [
        {"n": number} for number in range(20)
    ]
    assert runs.count == 20


async def test_the_next_statement_asks_again(node: Running) -> None:
    count = "LET $n = array::len((SELECT id FROM thing));"
    script = f"FOR $i IN 0..5 {{ {count} CREATE thing:$i SET n = $n }}; SELECT VALUE n FROM thing"
    assert await node.value(script) == [0, 1, 2, 3, 4]


async def test_what_a_statement_is_going_to_write_has_the_bound_of_a_transaction(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first of it is written: or it would be collected without end."""
    rows = [{"id": number, "text": "x" * 900} for number in range(40)]
    await node.values("INSERT INTO thing $rows RETURN NONE", {"rows": rows})
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 30_000)
    with pytest.raises(TooLarge, match="a transaction changes at most 30000 bytes"):
        await node.value("UPDATE thing SET n = 1 RETURN NONE")
    # What is written a second time takes the room of the first.
    script = "BEGIN; UPDATE thing:0..20 SET n = 1 RETURN NONE; UPDATE thing:0..20 SET n = 2; COMMIT"
    await node.values(script)
    assert await node.value("SELECT count() AS n FROM thing WHERE n = 2 GROUP ALL") == [{"n": 20}]
