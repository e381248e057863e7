"""A refusal names the place in the text where it rose, and the record or row it came up with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Refusal
from protocol.values import RecordId
from tests.nodes import Running, running

SETUP = """
DEFINE TABLE t; DEFINE TABLE p; DEFINE FIELD n ON p TYPE int ASSERT $value < 10;
DEFINE FIELD half ON p TYPE number DEFAULT 100 / n;
INSERT INTO p [{ id: 1, n: 1 }, { id: 2, n: 2 }, { id: 3, n: 9 }] RETURN NONE;
FOR $i IN 0..200 { CREATE t:$i SET n = 150 - $i, p = p:2 RETURN NONE };
"""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "store") as here:
        await here.values(SETUP)
        yield here


async def refused(node: Running, script: str) -> Refusal:
    answer = await node.answer(script, {"d": 0})
    assert answer.refusal is not None, answer
    return answer.refusal


PLACES: list[tuple[str, RecordId | None]] = [
    ("FOR $l IN (SELECT p FROM t:5, t:6) {\n  ^UPDATE $l.p SET n = n + 5 }", RecordId("p", 2)),
    ("UPDATE p SET\n n = 18 ^/ (n - 2)", RecordId("p", 2)),
    ("UPDATE t:1 SET n = ^string::len(n)", RecordId("t", 1)),
    ("SELECT * FROM t:149..151 WHERE 1 ^/ n > 0", RecordId("t", 150)),
    ("SELECT * FROM t WHERE 1 ^/ n > 0", RecordId("t", 150)),
    ("SELECT *, 1 AS one FROM t WHERE n ^IN 5", RecordId("t", 0)),
    ("DELETE t WHERE\nn >= 0 AND\n 1 ^% n = 7", RecordId("t", 150)),
    ("SELECT VALUE 1 ^/ n FROM t", RecordId("t", 150)),
    ("SELECT 1 ^/ n AS x FROM t:150", RecordId("t", 150)),
    ("1; RETURN [1, 2 ^+ 'x']", None),
    ("IF true { LET $a = 1;\n THROW 1 ^/ $d }", None),
    ("IF true { 1; ^THROW 'no' }", None),
    ("RETURN (SELECT VALUE (SELECT VALUE $parent.n ^- 'x' FROM p) FROM t)", RecordId("p", 1)),
    ("^CREATE p:9 SET n = 0", None),
    ("INSERT INTO t [{ id: 900, n: ^-'x' }]", None),
    ("SELECT count() FROM t WHERE ^string::len(n) > 1 GROUP ALL", RecordId("t", 0)),
    ("SELECT * FROM p WHERE n ^> 'x'", None),
    ("SELECT sum(1 ^/ n) FROM t GROUP ALL", RecordId("t", 150)),
    ("SELECT * FROM t WHERE n > ^$nope", None),
    ("UPDATE ^$nope SET n = 1", None),
    ("1; RETURN [1, ^$nope]", None),
    ("SELECT n FROM t ORDER BY 1 ^/ n", RecordId("t", 150)),
    ("SELECT count() AS c FROM t GROUP BY 1 ^% n", RecordId("t", 150)),
    ("SELECT *, p.n, 1 ^/ n AS x FROM t", RecordId("t", 150)),
    ("SELECT p.n, 1 ^/ n AS x FROM t", RecordId("t", 150)),
    ("SELECT CASE WHEN n > 0 THEN 1 ELSE ^-'x' END FROM t", RecordId("t", 150)),
    ("SELECT collect(n) AS c FROM t GROUP BY p HAVING c ^- 1 > 0", None),
    ("UPDATE t:150 SET n = 0 RETURN 1 ^/ n AS q", RecordId("t", 150)),
    ("UPDATE t SET n = n RETURN 1 ^/ n AS q", RecordId("t", 150)),
    ("DELETE t RETURN 1 ^/ n", RecordId("t", 150)),
    ("CREATE t:900 SET n = 0 RETURN 1 ^/ n", RecordId("t", 900)),
    ("UPSERT t:900 SET n = 0 RETURN 1 ^/ n", RecordId("t", 900)),
    ("INSERT INTO t [{ id: 900, n: 0 }] RETURN 1 ^/ n", RecordId("t", 900)),
    ("SELECT id, 1 ^/ n FROM t:149, t:150, t:151", RecordId("t", 150)),
    ("SELECT id FROM [t:149, t:150] WHERE 1 ^/ n > 0", RecordId("t", 150)),
    ("SELECT n FROM [t:149, t:150] WHERE 1 ^/ n > 0", RecordId("t", 150)),
    ("SELECT n FROM t:149, t:150 ORDER BY 1 ^/ n", RecordId("t", 150)),
    ("SELECT 1 ^/ n AS q FROM t:149, t:150 ORDER BY n DESC", RecordId("t", 150)),
    ("SELECT sum(1 ^/ n) FROM t:149, t:150 GROUP ALL", RecordId("t", 150)),
    ("LET $r = [t:149, t:150]; SELECT 1 ^/ n FROM $r", RecordId("t", 150)),
    ("LET $r = [t:149, t:150]; DELETE $r WHERE 1 ^/ n > 0", RecordId("t", 150)),
    ("SELECT 1 ^/ n FROM (SELECT * FROM t)", RecordId("t", 150)),
    ("SELECT 1 ^/ n FROM [{ n: 0 }]", None),
    ("SELECT count(), ^sum(p) FROM t GROUP ALL", RecordId("t", 0)),
    ("SELECT max(n), ^mean(p) AS m FROM t GROUP BY n", RecordId("t", 0)),
    ("SELECT 1 + ^median(p) AS m FROM t GROUP BY n", RecordId("t", 0)),
    ("SELECT n FROM t GROUP BY n ORDER BY ^stddev(p)", RecordId("t", 0)),
    ("SELECT ^sum(n) AS s FROM [{ n: 1.5 }, { n: 1.5dec }] GROUP ALL", None),
]
"""Scripts, with a mark where each is refused, and the record that it comes up with."""


async def test_where_it_rose(node: Running) -> None:
    for script, record in PLACES:
        at = script.index("^")
        found = await refused(node, script.replace("^", ""))
        line = script.count("\n", 0, at) + 1
        column = at - script.rfind("\n", 0, at)
        told: dict[str, Any] = found.answer()
        where = f"{script}\n{found.message} {told}"
        assert (told["line"], told["column"]) == (line, column), where
        assert found.detail.get("record") == record, where
        assert record is None or f"({record.table}:{record.id})" in found.message, where


async def test_a_row_of_an_insert_is_named_by_its_number(node: Running) -> None:
    found = await refused(node, "INSERT INTO p [{ n: 1 }, { n: 2 }, { n: 10 }, { n: 3 }]")
    assert found.detail["row"] == 3 and found.message.endswith("fails ASSERT $value < 10 (row 3)")
    found = await refused(node, "INSERT INTO t [{ n: 1 }, 5]")
    assert found.detail["row"] == 2
    assert "row" not in (await refused(node, "INSERT INTO p { n: 10 }")).detail


async def test_a_place_in_a_definition_is_none_in_the_script(node: Running) -> None:
    found = await refused(node, "1; UPDATE p:1 SET half = NONE, n = 0")
    assert found.code == "DivisionByZero" and found.detail["column"] == 4
    assert found.message == "division by zero (DEFAULT of p.half) (p:1)"
