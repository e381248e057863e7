"""Random records and random questions on them, for comparing ways to the same answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from protocol.text import format_value
from protocol.values import NONE, RecordId

INDEXES = (
    "a ON t FIELDS a",
    "ab ON t FIELDS a, b",
    "bca ON t FIELDS b, c, a",
    "tags ON t FIELDS tags",
    "tag_b ON t FIELDS tags, b",
    "b_tag ON t FIELDS b, tags",
    "nested ON t FIELDS n.x",
    "deep ON t FIELDS n.y[0], c",
    "skus ON t FIELDS items.sku",
    "each ON t FIELDS items[*].q, a",
    "linked ON t FIELDS link.a",
    "code ON t FIELDS code UNIQUE",
    "pair ON t FIELDS c, code UNIQUE",
    "text ON t FIELDS text",
    "text_a ON t FIELDS text, a",
)
PATHS = ("a", "b", "c", "tags", "n.x", "n.y[0]", "items.sku", "items[*].q", "link.a", "code",
         "text", "tags[0]", "n", "absent")  # fmt: skip
LONG = "long " * 150
NUMBERS = (0, 1, 2, 3, -1, 1.0, 2.5, -0.0, Decimal("1.0"), Decimal("2.50"), 2**53, 2**53 + 1, 7)
OTHERS: tuple[Any, ...] = (
    "x", "y", "xy", "", "x\0", "é", None, True, False, NONE, b"x", timedelta(seconds=1),
    datetime(2026, 1, 1, tzinfo=UTC), UUID(int=5), [], ["x"], [1, "y"], {"x": 1}, {},
    RecordId("t", 3), RecordId("u", 1),
)  # fmt: skip


def scalar(rng: Random) -> Any:
    """A value of any type, a number more often than not."""
    return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.choice(OTHERS)


def long_text(rng: Random) -> str:
    return (
        rng.choice(["", "a", "long"])
        + (LONG if rng.random() < 0.5 else "")
        + rng.choice("abcdefgh")
    )


def tags(rng: Random) -> Any:
    kind = rng.random()
    if kind < 0.15:  # what CONTAINS takes
        return rng.choice(["x", "xy", "zz", "", None, NONE, {"x": 1}])
    return [rng.choice([scalar(rng), rng.choice("xyz")]) for _ in range(rng.randrange(4))]


def record(rng: Random, number: int) -> dict[str, Any]:
    """The fields of one record; any may be absent."""
    fields: dict[str, Any] = {
        "a": scalar(rng),
        "b": rng.randrange(5),
        "c": rng.choice(["p", "q", "r"]),
        "tags": tags(rng),
        "n": {"x": scalar(rng), "y": tags(rng)} if rng.random() < 0.8 else scalar(rng),
        "items": [
            {"sku": rng.choice("xyz"), "q": rng.randrange(3)} for _ in range(rng.randrange(3))
        ],
        "code": f"code {number}" if rng.random() < 0.9 else None,
        "text": long_text(rng),
    }
    return {name: value for name, value in fields.items() if rng.random() < 0.9}


def value(rng: Random) -> str:
    """A value as it is written in a question."""
    kind = rng.random()
    if kind < 0.08:
        return format_value(long_text(rng))
    if kind < 0.16:
        return format_value(f"code {rng.randrange(60)}")
    return format_value(scalar(rng) if kind < 0.7 else rng.choice([0, 1, 2, 3, "p", "q", "x", "y"]))


def condition(rng: Random) -> str:
    """A condition; most are such that an index may help."""
    path, kind = rng.choice(PATHS), rng.random()
    if path == "text" and rng.random() < 0.5:
        return f"text {rng.choice(['=', '<', '<=', '>', '>='])} {format_value(long_text(rng))}"
    if path == "text" and rng.random() < 0.5:
        start = rng.choice(
            ["", "a", "lo", "long", long_text(rng), "long l+o", "lonk?", "(?i)L", "x|a"]
        )
        if rng.random() < 0.3:
            return f"text != NONE AND string::starts(text, {format_value(start)})"
        return f"text ~ {format_value(rng.choice(['^', '^', '']) + start[:900])}"
    if kind < 0.35:
        return f"{path} = {value(rng)}"
    if kind < 0.5:
        return f"{path} {rng.choice(['<', '<=', '>', '>='])} {value(rng)}"
    if kind < 0.55:
        return f"{value(rng)} {rng.choice(['<', '<=', '>', '>=', '='])} {path}"
    if kind < 0.65:
        return f"{path} IN [{', '.join(value(rng) for _ in range(rng.randrange(5)))}]"
    if kind < 0.75:
        return f"tags CONTAINS {value(rng)}"
    if kind < 0.78:
        return f"{value(rng)} IN items.sku"
    if kind < 0.81:
        return f"{path} IN {rng.randrange(3)}..{rng.choice(['', '='])}{rng.randrange(5)}"
    if kind < 0.84:
        return f"id {rng.choice(['=', '<', '<=', '>', '>='])} t:{rng.randrange(60)}"
    if kind < 0.87:
        return f"id IN [t:{rng.randrange(60)}, t:{rng.randrange(60)}, u:1, 3]"
    if kind < 0.9:
        if rng.random() < 0.5:
            return f"({path} = {value(rng)} OR b = {rng.randrange(5)})"
        branches = [
            f"a = {value(rng)}", f"b = {rng.randrange(5)}", f"code = {value(rng)}",
            f"a > {value(rng)}", f"tags CONTAINS {value(rng)}", f"(a = {value(rng)} AND c = 'p')",
            f"link.a = {value(rng)}", condition(rng),
        ]  # fmt: skip
        return f"({' OR '.join(rng.sample(branches, rng.randrange(2, 4)))})"
    if kind < 0.95:
        return f"{path} != {value(rng)}"
    return f"NOT ({path} = {value(rng)})"


def order(rng: Random) -> str:
    if rng.random() < 0.4:
        return ""
    paths = rng.choice(
        [["a"], ["b"], ["a", "b"], ["b", "c", "a"], ["c", "a"], ["n.x"], ["code"], ["c", "code"],
         ["text"], ["id"], ["a", "id"], ["b", "c"], ["tags"], ["n.y[0]", "c"], ["items.sku"]]
    )  # fmt: skip
    one = rng.choice(["", " DESC"])
    parts = (path + (one if rng.random() < 0.85 else rng.choice(["", " DESC"])) for path in paths)
    return f" ORDER BY {', '.join(parts)}"


def question(rng: Random) -> str:
    """A SELECT."""
    conditions = [condition(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3]))]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    source = "t" if rng.random() < 0.9 else f"t:{rng.randrange(30)}..{rng.randrange(60)}"
    if rng.random() < 0.1:
        return f"SELECT b, count() AS n FROM {source}{where} GROUP BY b"
    shown = rng.choice(["*", "VALUE id", "id, a", "*, b AS a2", "VALUE a"])
    limit = f" LIMIT {rng.randrange(1, 12)}" if rng.random() < 0.6 else ""
    start = f" START {rng.randrange(4)}" if rng.random() < 0.2 else ""
    return f"SELECT {shown} FROM {source}{where}{order(rng)}{limit}{start}"


def change(rng: Random) -> str:
    """An UPDATE or DELETE of what a condition finds."""
    where = f"WHERE {condition(rng)} AND {condition(rng)}"
    if rng.random() < 0.1:
        return f"DELETE t {where} RETURN BEFORE"
    field, new = rng.choice([("a", value(rng)), ("tags", f"[{value(rng)}]"), ("n.x", value(rng))])
    return f"UPDATE t SET {field} = {new} {where}"
