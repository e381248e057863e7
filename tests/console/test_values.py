"""What the page makes of values and of scripts, judged by the node: nothing is lost on the way
through a browser, and all is written as the language writes it."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page

from tests.console.conftest import IMPORT
from tests.processes import NodeProcess

VALUES = [
    "NONE", "NULL", "true", "0", "-1", "1.0", "-0.5", "1e20", "0.1", "1.5e-7", "9007199254740992",
    "9007199254740993", "-9223372036854775808", "12.30dec", "1.00dec", "0.000000001dec", "''",
    r"'it\'s\n\t\\ \"so\"'", r"'\u{0}\u{202e}\u{1f600}'", "b'aGk='",
    "d'2026-01-02T03:04:05.123456Z'",
    "1w2d3h4m5s6ms7us", "0s", "u'018f2b1e-7c1e-4e0b-9d4e-3f3a5f0d9f11'", "person:1", "person:`a b`",
    "person:['a', 1]", "[]", "{}", "[NONE, [1.0, { a: 2dec }]]", "{ a: { b: [] }, 'c d': '1.0}' }",
    "{ '$dt': 'no datetime' }", "{ '$x': { '$int': 1 } }", "{ `__proto__`: 1, constructor: 2.0 }",
    "{ 'with ` and \\\\': 1 }", "['\"x\":1.0,', 1.0]",
]  # fmt: skip

SCRIPTS = [
    "1",
    "1; 2;; 3;",
    "-- a; comment\n'a;b'; // ; \n 2 /* ; */; # ;\n3",
    'LET $a = { b: [1, 2] }; IF $a.b[0] = 1 { LET $c = 1; $c }; "x;\\"y"; b\'aGk=\'',
    "{ `a;b`: 1 }; 1h30m; d'2026-01-02T03:04:05Z'; $x; 12.30dec; [1, 2][0]",
]


def answered(node: NodeProcess, script: str, **fields: Any) -> Any:
    """The last value that a script answers, as JSON; NONE where it is refused is a failure."""
    answer = node.script(script, ns="shop", db="main", **fields)
    assert "error" not in answer, (script, answer)
    return json.dumps(answer["results"][-1]["value"])


def test_a_value_goes_through_the_page_as_it_is(modules: Page, node: NodeProcess) -> None:
    for value in VALUES:
        told = answered(node, f"RETURN {value}")
        written, literal, cut = modules.evaluate(
            f"""async (told) => {{
              const values = await ({IMPORT})('values.js');
              const value = values.parse(told);
              return [values.written(value), values.literal(value), values.literal(value, 3)];
            }}""",
            told,
        )
        assert answered(node, "RETURN $v", params={"v": json.loads(written)}) == told, value
        assert answered(node, f"RETURN {literal}") == told, value
        assert len(cut) <= 4


def test_values_sort_as_the_node_sorts_them(modules: Page, node: NodeProcess) -> None:
    mixed = [one for one in VALUES if not one.startswith("{ '$")] + [
        "2", "'b'", "'a'", "5m", "person:10", "person:9", "person:`9`", "a:1",
        "d'2026-01-02T03:04:05Z'", "d'2026-01-02T03:04:05.5Z'", "d'2026-01-02T03:04:06Z'",
        r"'\u{1f600}'", r"'\u{ff5e}'", "person:`😀`", "person:`\uff5e`",
        "b'AQ=='", "b'/w=='", "b''", "[10]", "[2]", "[2, 1]", "['b']", "{ a: 10 }", "{ a: 2 }",
        "{ b: 1, a: 2 }",
    ]  # fmt: skip
    told = answered(node, f"RETURN [{', '.join(mixed)}]")
    mine = modules.evaluate(
        f"""async (told) => {{
          const values = await ({IMPORT})('values.js');
          return values.parse(told).sort(values.compare).map((one) => values.literal(one));
        }}""",
        told,
    )
    assert answered(node, f"RETURN [{', '.join(mine)}]") == answered(
        node, f"RETURN array::sort([{', '.join(mixed)}])"
    )


def test_a_number_that_somebody_types_stays_that_number(modules: Page, node: NodeProcess) -> None:
    for typed, meant in {
        "9007199254740993": "9007199254740993", "-9223372036854775808": "-9223372036854775808",
        '{"$toString": 1}': "{ '$toString': 1 }",
        "12.00": "12.0", "[12.000, 1]": "[12.0, 1]", "120e-1": "12.0", "12.50": "12.5",
    }.items():  # fmt: skip
        written = modules.evaluate(
            f"""async (typed) => {{
              const values = await ({IMPORT})('values.js');
              return values.written(values.parse(typed));
            }}""",
            typed,
        )
        told = answered(node, "RETURN $v", params={"v": json.loads(written)})
        assert told == answered(node, f"RETURN {meant}"), typed
    for beyond in ("12345678901234567890", "1e400"):
        written = modules.evaluate(
            f"async (it) => (await ({IMPORT})('values.js')).written("
            f"(await ({IMPORT})('values.js')).parse(it))",
            beyond,
        )
        assert written in (f'{{"$int":"{beyond}"}}', beyond)


def test_statements_are_found_where_the_node_finds_them(modules: Page, node: NodeProcess) -> None:
    for script in SCRIPTS:
        found = modules.evaluate(
            f"async (text) => (await ({IMPORT})('storeql.js')).statements(text)", script
        )
        answer = node.script(script, params={"x": 1})
        told = len(answer["results"]) + ("error" in answer and "statement" in answer["error"])
        assert len(found) == told, (script, answer)
        assert all(script[one["at"] :].startswith(one["text"]) for one in found)
