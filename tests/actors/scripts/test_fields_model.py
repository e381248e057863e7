"""Random definitions and random writes, on a node and on a plain dictionary that knows the rules.

The model judges whole records and says every rule that is broken; the node names one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from language.parser import parse_type
from protocol.text import format_value
from protocol.values import NONE, RecordId, equal
from tests.language.test_schema import belongs
from tests.nodes import running

SCRIPTS = 80
STATEMENTS = 12
TYPES = ["int", "option<int>", "float", "number | NULL", "option<string>", "any", "1 | 2 | 'x'"]
VALUES: list[Any] = [0, 1, 2, 7, 1.5, "x", "long", None, True, [1], {"b": 1}]
NAMES = ["a", "b", "c"]


@dataclass
class Spec:
    """A field as the model knows it. Its ASSERT is `$value != 7 AND $value != 'long'`."""

    name: str
    type: str
    default: Any = NONE
    asserts: bool = False
    readonly: bool = False

    def statement(self) -> str:
        parts = [f"DEFINE FIELD {self.name} ON t TYPE {self.type}"]
        if self.default is not NONE:
            parts.append(f"DEFAULT {format_value(self.default)}")
        if self.asserts:
            parts.append("ASSERT $value != 7 AND $value != 'long'")
        if self.readonly:
            parts.append("READONLY")
        return " ".join(parts)


@dataclass
class Model:
    """A table as a dictionary."""

    specs: list[Spec]
    full: bool
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def write(self, id: int, after: dict[str, Any], content: bool) -> set[str]:
        """Store a record, or say the codes of what it is refused for."""
        before, broken = self.rows.get(id), set()
        after = {name: value for name, value in after.items() if value is not NONE}
        for spec in self.specs:
            value = after.get(spec.name, NONE)
            if spec.readonly and before is not None:
                was = before.get(spec.name, NONE)
                if content and value is NONE:
                    value = was
                elif not same(widened(spec, value), was):
                    broken.add("FieldRefused")
            if value is NONE:
                value = spec.default
            if not belongs(parse_type(spec.type), value):
                broken.add("TypeRefused")
            value = widened(spec, value)
            asked = value is not NONE or not spec.type.startswith("option")
            if spec.asserts and asked and (equal(value, 7) or equal(value, "long")):
                broken.add("AssertFailed")
            if value is not NONE:
                after[spec.name] = value
        if self.full and after.keys() - {spec.name for spec in self.specs}:
            broken.add("FieldRefused")
        if not broken:
            self.rows[id] = after
        return broken


def widened(spec: Spec, value: Any) -> Any:
    return float(value) if spec.type == "float" and type(value) is int else value


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def specs(chance: random.Random) -> list[Spec]:
    found = []
    for name in NAMES:
        if chance.random() < 0.7:
            spec = Spec(name, chance.choice(TYPES))
            fitting = [one for one in VALUES if belongs(parse_type(spec.type), one)]
            if chance.random() < 0.4:
                spec.default = chance.choice(fitting)
            spec.asserts = chance.random() < 0.4
            spec.readonly = chance.random() < 0.3
            found.append(spec)
    return found


def fields(chance: random.Random) -> dict[str, Any]:
    return {name: chance.choice([*VALUES, NONE]) for name in NAMES if chance.random() < 0.6}


def step(chance: random.Random, model: Model) -> tuple[str, set[str]]:
    """A statement, and the codes of which it is refused with one; none: it is not refused."""
    id, given = chance.randint(1, 3), fields(chance)
    known = model.rows.get(id)
    kind = chance.choice(["CREATE", "INSERT", "IGNORE", "DUPLICATE", "SET", "MERGE", "CONTENT",
                          "UNSET", "UPSERT SET", "UPSERT CONTENT", "DELETE"])  # fmt: skip
    shown = format_value(given)
    pairs = ", ".join(f"{name} = {format_value(value)}" for name, value in given.items())
    if kind == "DELETE":
        model.rows.pop(id, None)
        return f"DELETE t:{id}", set()
    if kind in ("CREATE", "INSERT"):
        text = f"CREATE t:{id} CONTENT {shown}"
        if kind == "INSERT":
            text = f"INSERT INTO t {format_value({'id': id, **given})}"
        return text, {"AlreadyExists"} if known is not None else model.write(id, given, False)
    if kind in ("IGNORE", "DUPLICATE"):
        row = format_value({"id": id, **given})
        if kind == "IGNORE":
            text = f"INSERT INTO t {row} IGNORE"
            return text, set() if known is not None else model.write(id, given, False)
        text = f"INSERT INTO t {row} ON DUPLICATE UPDATE SET a = 2"
        after = given if known is None else {**known, "a": 2}
        return text, model.write(id, after, False)
    if kind.startswith("UPSERT"):
        if kind == "UPSERT SET" and given:
            return f"UPSERT t:{id} SET {pairs}", model.write(id, {**(known or {}), **given}, False)
        return f"UPSERT t:{id} CONTENT {shown}", model.write(id, given, True)
    target = {"SET": f"SET {pairs}" if given else "SET z = NONE", "CONTENT": f"CONTENT {shown}",
              "MERGE": f"MERGE {shown}", "UNSET": "UNSET a, b"}[kind]  # fmt: skip
    if known is None:
        return f"UPDATE t:{id} {target}", set()
    if kind == "CONTENT":
        return f"UPDATE t:{id} {target}", model.write(id, given, True)
    if kind == "UNSET":
        given = {"a": NONE, "b": NONE}
    merged = {**known, **given}
    for name, value in given.items():
        if kind == "MERGE" and type(value) is dict and type(known.get(name)) is dict:
            merged[name] = {**known[name], **value}
    return f"UPDATE t:{id} {target}", model.write(id, merged, False)


def setup(model: Model) -> str:
    table = f"DEFINE TABLE t {'SCHEMAFULL' if model.full else ''}"
    return "; ".join(["DROP DATABASE shop.main", "DEFINE DATABASE shop.main", table,
                      *(spec.statement() for spec in model.specs)])  # fmt: skip


async def compared(tmp_path: Path, seeds: range) -> tuple[int, int]:
    """Statements run, and how many of them were refused. :raises AssertionError: they differ"""
    ran = refused = 0
    async with running(tmp_path / "store") as node:
        for seed in seeds:
            chance = random.Random(seed)
            model = Model(specs(chance), chance.random() < 0.3)
            await node.values(setup(model))
            told = [setup(model)]
            for _ in range(STATEMENTS):
                text, codes = step(chance, model)
                told.append(text)
                answer = await node.answer(text)
                code = None if answer.refusal is None else answer.refusal.code
                assert (code in codes) if codes else code is None, (seed, code, codes, told)
                ran, refused = ran + 1, refused + bool(codes)
            expected = [{"id": RecordId("t", id), **row} for id, row in sorted(model.rows.items())]
            found = await node.value("SELECT * FROM t")
            exact = [sorted(map(str, row.items())) for row in found]
            assert exact == [sorted(map(str, row.items())) for row in expected], (seed, told)
    return ran, refused


async def test_a_node_obeys_fields_as_the_model_does(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    first = random.SystemRandom().randrange(10**6)
    ran, refused = await compared(tmp_path, range(first, first + SCRIPTS))
    figure("fields against a model", f"{ran} statements, {refused} refused, from seed {first}")
    assert refused > ran // 10


async def test_a_rule_that_is_not_kept_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("language.schema.identical", lambda one, other, tick: True)
    with pytest.raises(AssertionError):
        await compared(tmp_path, range(200))
