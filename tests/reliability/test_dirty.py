"""Dirty input, sent to a real node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import NodeProcess, serving
from tests.reliability.test_bombs import memory

MIB = 1024 * 1024
KEPT = 128 * MIB
"""What allocator and engine may keep of a transaction of 64 MiB that is gone."""

ALPHABETS = [
    "имя", "名前", "اسم", "naïve", "ηλίθιος", "नाम", "💥", "a b", "1a", "a-b", "select", "NONE",
]  # fmt: skip
MIXED = [
    "NULL", "false", "true", "-1", "2.5", "2.50dec", "3", "''", "'a'", "b''", "1h",
    "d'2026-01-01T00:00:00Z'", "u'018f0000-0000-7000-8000-000000000000'", "[]", "[1]", "{}",
    "{ a: 1 }", "t:1",
]  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder: Path = tmp_path_factory.mktemp("dirty")
    with serving(folder / "store") as running:
        made = running.script(
            "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE TABLE t;"
            "DEFINE INDEX n ON t FIELDS n UNIQUE; DEFINE INDEX v ON t FIELDS v"
        )
        assert "error" not in made
        yield running
        assert running.stop() == 0
        assert not [line for line in running.lines if line.get("level") == "error"]


def run(node: NodeProcess, script: str, **parameters: Any) -> dict[str, Any]:
    body = {"script": script, "ns": "shop", "db": "main", "params": parameters}
    answer = node.request(
        "POST", "/script", json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert isinstance(answer.json, dict)
    return answer.json


def value(node: NodeProcess, script: str) -> Any:
    answer = run(node, script)
    assert "error" not in answer, answer["error"]
    return answer["results"][-1]["value"]


def left_behind(node: NodeProcess) -> list[str]:
    """What a refused script left that should be gone."""
    found = []
    if value(node, "SELECT count() AS n FROM t GROUP ALL") not in ([], [{"n": 0}]):
        found.append("records")
    if value(node, "SELECT VALUE id FROM t WHERE n = 0 OR n > 5 LIMIT 3"):
        found.append("index entries")
    if len(value(node, "INFO FOR RUNNING")) != 1:
        found.append("a script that runs")
    if "error" in run(node, "CREATE t:probe SET n = 0; DELETE t:probe"):
        found.append("a claim of the UNIQUE index")
    return found


def test_a_million_rows_in_one_transaction_are_too_many_and_leave_nothing(
    node: NodeProcess, figure: Callable[[str, object], None]
) -> None:
    before, sequence = memory(node, "VmRSS"), value(node, "INFO FOR STORE")["sequence"]
    script = "BEGIN; FOR $i IN 0..1000000 { CREATE t SET n = $i, v = $text RETURN NONE }; COMMIT"
    answer = run(node, script, text="x" * 5_000)
    assert answer["error"]["code"] == "TooLarge"
    assert answer["error"]["detail"] == {"limit": 64 * MIB}
    assert answer.get("results", []) == []
    assert left_behind(node) == []
    grown = memory(node, "VmRSS") - before
    assert grown < KEPT
    assert value(node, "INFO FOR STORE")["sequence"] == sequence + 2, "its commits are the probe's"
    figure("a transaction of a million rows", f"refused, {max(grown, 0) // MIB} MiB kept after it")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("CREATE t:1 SET text = $text", "TooLarge"),
        ("CREATE t:1 SET v = [$text, $text]", "TooLarge"),
        ("RETURN " + "[" * 65 + "]" * 65, "TooLarge"),
        ("LET $x = 1; FOR $i IN 0..65 { LET $x = [$x] }; CREATE t:1 SET v = $x", "TooLarge"),
        ("CREATE t:1 SET v = " + "1" * 1000 + "dec", "NumberTooLarge"),
        ("CREATE t:1 SET v = 0." + "1" * 1000 + "dec", "NumberTooLarge"),
        ("CREATE t:1 SET v = type::decimal('" + "1" * 1000 + "')", "NumberTooLarge"),
        ("CREATE t:1 SET v = 1e6144dec", "NumberTooLarge"),
        ("CREATE t:1 SET v = " + "1" * 1000, "NumberTooLarge"),
        ("RETURN 'a' ~ '(x{1000}){1000}'", "BadRequest"),
        (r"RETURN 'aa' ~ '(a)\\1'", "BadRequest"),
        ("CREATE t:1 SET v = array::flatten([0..6000, 0..6000])", "TooLarge"),
    ],
)
def test_what_is_too_much_is_refused_by_name_and_leaves_nothing(
    node: NodeProcess, script: str, code: str
) -> None:
    text = {"text": "x" * (8 * MIB)} if "$text" in script else {}
    assert run(node, script, **text)["error"]["code"] == code
    assert left_behind(node) == []


def test_patterns_meant_to_explode_are_answered(node: NodeProcess) -> None:
    for pattern in (
        "(a+)+$",
        "^(a|aa)+$",
        "(.*)*(.*)*(.*)*x",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(a?){50}" * 9 + "b",
    ):
        letters = 200_000 if len(pattern) < 60 else 10_000
        answer = run(node, f"RETURN $text ~ '{pattern}'", text="a" * letters + "!")
        assert answer["results"][0]["value"] is False


@pytest.mark.parametrize("name", ALPHABETS)
def test_fields_and_ids_have_names_of_every_alphabet(node: NodeProcess, name: str) -> None:
    """Names of tables do not: they stand in paths, metrics and files."""
    script = f"UPSERT t:`{name}` SET `{name}` = '{name}'; SELECT * FROM t; DELETE t:`{name}`"
    answer = run(node, script)
    assert "error" not in answer
    (found,) = answer["results"][1]["value"]
    assert found[name] == name and name in found["id"]["$rec"]
    defined = run(node, f"DEFINE TABLE `{name}`; DROP TABLE `{name}`")
    if name in ("a-b", "select", "NONE"):
        assert "error" not in defined
    else:
        assert defined["error"]["code"] == "NameRefused"
    assert left_behind(node) == []


@pytest.mark.parametrize("way", ["ASC", "DESC"])
def test_values_of_all_types_have_one_order_by_scan_and_by_index(
    node: NodeProcess, way: str
) -> None:
    rows = ", ".join(f"{{ id: {number}, v: {one} }}" for number, one in enumerate(MIXED))
    assert "error" not in run(node, f"INSERT INTO t [{rows}, {{ id: 99 }}] RETURN NONE")
    try:
        order = [99, *range(len(MIXED))]
        wanted = [{"$rec": f"t:{one}"} for one in (order if way == "ASC" else order[::-1])]
        # 2.5 and 2.50dec are worth the same: they stay as the records are.
        if way == "DESC":
            at = wanted.index({"$rec": "t:5"})
            wanted[at : at + 2] = [{"$rec": "t:4"}, {"$rec": "t:5"}]
        for limit in ("", " LIMIT 100", " LIMIT 19"):
            found = value(node, f"SELECT VALUE id FROM t ORDER BY v {way}{limit}")
            assert found == wanted
    finally:
        run(node, "DELETE t")
