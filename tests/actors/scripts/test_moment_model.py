"""Statements that read what they write, and fields with names like wildcards, against a model.

The model is a dictionary, and says of each statement what it must answer when it reads the state as
it was before. Nothing of the node is asked for that.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random, randrange
from typing import Any

import pytest

from actors.scripts.execution import Execution
from language.parsing.expressions import ExpressionParser
from protocol.paths import EACH
from protocol.values import NONE, RecordId, identical
from storage.records.records import RecordChanges
from tests.nodes import Running, running

IDS = 12
KEYS = ("*", "a", "[*]", "**")
WORLDS = 24
SCRIPTS = 12
HARD_WORLDS = 400
Row = dict[str, Any]
Rows = dict[int, Row]


class Refused(Exception):
    """The statement is refused with the code in `args`."""


class Model:
    """A table: `v` is an int, `prev` may be a link into the table, `o` an object of ints."""

    def __init__(self, unique: bool) -> None:
        self.unique = unique
        self.rows: Rows = {}

    def change(self, changes: Rows) -> None:
        """Write them together. :raises Refused: two have the same `v` then, where it is UNIQUE"""
        self.rows = {**self.rows, **changes}
        values = [row["v"] for row in self.rows.values()]
        if self.unique and len(set(values)) < len(values):
            raise Refused("Duplicate")

    def meets(self, id: int, v: int) -> int | None:
        """The record that a new one would meet."""
        if id in self.rows:
            return id
        same = (other for other, row in self.rows.items() if self.unique and row["v"] == v)
        return next(same, None)

    def top(self) -> int:
        top: int = max(row["v"] for row in self.rows.values())
        return top

    def before(self, row: Row) -> int | None:
        """What `prev.v` says."""
        prev = row.get("prev")
        if prev is None or prev.id not in self.rows:
            return None
        v: int = self.rows[prev.id]["v"]
        return v


def shown(id: int, row: Row) -> Row:
    return {"id": RecordId("t", id), **row}


Act = Callable[[Model], Any]
Step = tuple[str, Act]
TOP = "array::first((SELECT VALUE max(v) FROM t GROUP ALL))"
ALL = "array::len((SELECT id FROM t))"


def updated(model: Model, work: Callable[[int, Row], Row], fits: Callable[[Row], bool]) -> Any:
    """What an UPDATE of all records that fit answers."""
    now = {id: work(id, row) for id, row in sorted(model.rows.items()) if fits(row)}
    model.change(now)
    return [shown(id, row) for id, row in now.items()]


def update(chance: Random) -> Step:
    """An UPDATE whose new value hangs on records that it changes itself."""
    more, low = chance.randrange(1, 5), chance.randrange(-5, 40)
    where, fits = chance.choice(
        [("", lambda row: True), (f" WHERE v >= {low}", lambda row: row["v"] >= low)]
    )
    kind = chance.randrange(5)
    if kind == 0:
        text = f"prev.v ?? v + {more}"

        def new(model: Model, row: Row) -> int:
            found = model.before(row)
            return found if found is not None else row["v"] + more
    elif kind == 1:
        text, new = f"{TOP} + v + {more}", lambda model, row: model.top() + row["v"] + more
    elif kind == 2:
        text = "array::len((SELECT id FROM t WHERE v < $parent.v))"

        def new(model: Model, row: Row) -> int:
            return sum(other["v"] < row["v"] for other in model.rows.values())
    elif kind == 3:
        text, new = f"{ALL} - v", lambda model, row: len(model.rows) - row["v"]
    else:
        text, new = f"v + {more}", lambda model, row: row["v"] + more

    def act(model: Model) -> Any:
        was = Model(model.unique)
        was.rows = model.rows
        return updated(model, lambda id, row: {**row, "v": new(was, row)}, fits)

    return f"UPDATE t SET v = {text}{where}", act


def update_named(chance: Random) -> Step:
    """An UPDATE of records that are named, some of them twice."""
    ids = [chance.randrange(1, IDS) for _ in range(chance.randrange(1, 5))]

    def act(model: Model) -> Any:
        there = [id for id in dict.fromkeys(ids) if id in model.rows]
        now = {id: {**model.rows[id], "v": model.rows[id]["v"] + 1} for id in there}
        size = len(model.rows)
        model.change(now)
        return [{"v": now[id]["v"], "n": size} for id in there]

    named = ", ".join(f"t:{id}" for id in ids)
    return f"UPDATE [{named}] SET v = v + 1 RETURN v, {ALL} AS n", act


def upsert(chance: Random) -> Step:
    id = chance.randrange(1, IDS)

    def act(model: Model) -> Any:
        row = {**model.rows.get(id, {"v": 0, "o": {}}), "v": len(model.rows) * 100 + id}
        model.change({id: row})
        return [{"v": row["v"]}]

    return f"UPSERT t:{id} SET o = o ?? {{}}, v = {ALL} * 100 + {id} RETURN v", act


def insert(chance: Random) -> Step:
    given: list[dict[str, Any]] = [
        {"id": chance.randrange(1, IDS), "v": chance.randrange(60), "o": {}}
        for _ in range(chance.randrange(1, 4))
    ]
    kind = chance.choice(["IGNORE", "DUPLICATE"])
    rows = ", ".join(f"{{ id: {row['id']}, v: {row['v']}, o: {{}} }}" for row in given)

    def ignoring(model: Model) -> Any:
        told = []
        for row in given:
            if model.meets(row["id"], row["v"]) is None:
                model.rows = {**model.rows, row["id"]: {"v": row["v"], "o": {}}}
                told.append(shown(row["id"], model.rows[row["id"]]))
        return told

    def changing(model: Model) -> Any:
        changes: Rows = {}
        made: list[tuple[int, Row]] = []
        told = []
        for row in given:
            met = model.meets(row["id"], row["v"])
            code = "AlreadyExists" if met == row["id"] else "Duplicate"
            if met in changes:
                raise Refused(code)
            if met is not None:
                old = model.rows[met]
                changes[met] = {**old, "v": row["v"] * 7 + model.top()}
                told.append(shown(met, changes[met]))
            else:
                made.append((row["id"], {"v": row["v"], "o": {}}))
                told.append(shown(*made[-1]))
        if len(dict(made)) < len(made):
            raise Refused("AlreadyExists", "Duplicate")
        model.change({**changes, **dict(made)})
        return told

    if kind == "IGNORE":
        return f"INSERT INTO t [{rows}] IGNORE", ignoring
    return f"INSERT INTO t [{rows}] ON DUPLICATE UPDATE SET v = $input.v * 7 + {TOP}", changing


def insert_found(chance: Random) -> Step:
    """Rows that a subquery finds in the table that they go into."""
    more = chance.randrange(1, IDS)

    def act(model: Model) -> Any:
        told = []
        for id, row in sorted(model.rows.copy().items()):
            new = {"v": row["v"] + 1000, "o": {}}
            if id + more < IDS and model.meets(id + more, new["v"]) is None:
                model.rows = {**model.rows, id + more: new}
                told.append(shown(id + more, new))
        return told

    found = f"SELECT record::id(id) + {more} AS id, v + 1000 AS v, {{}} AS o FROM t"
    return f"INSERT INTO t ({found} WHERE id < t:{max(IDS - more, 0)}) IGNORE", act


def delete(chance: Random) -> Step:
    def act(model: Model) -> Any:
        if not model.rows:
            return []
        top, size = model.top(), len(model.rows)
        gone = [id for id, row in sorted(model.rows.items()) if row["v"] * 2 > top]
        model.rows = {id: row for id, row in model.rows.items() if id not in gone}
        return [{"n": size}] * len(gone)

    return f"DELETE t WHERE v * 2 > {TOP} RETURN {ALL} AS n", act


def link(chance: Random) -> Step:
    id, other = chance.randrange(1, IDS), chance.randrange(1, IDS)

    def act(model: Model) -> Any:
        if id not in model.rows:
            return []
        model.rows = {**model.rows, id: {**model.rows[id], "prev": RecordId("t", other)}}
        return []

    return f"UPDATE t:{id} SET prev = t:{other} RETURN NONE", act


def written(chance: Random, key: str) -> str:
    """A step to a field of that name."""
    return chance.choice([f"o['{key}']", f"o.`{key}`"])


def name(chance: Random) -> Step:
    """One key of `o`, by its name, is set, unset or asked for; or all of them, by a wildcard."""
    key, value = chance.choice(KEYS), chance.randrange(9)
    path, every = written(chance, key), chance.choice(["o[*]", "o.*"])
    kind = chance.choice(["set", "set", "set", "each", "unset", "none", "omit", "where", "merge"])

    def fits(row: Row) -> bool:
        return True

    def keep(row: Row, o: Row) -> Row:
        return {**row, "o": o}

    acts: dict[str, Step] = {
        "set": (f"UPDATE t SET {path} = {value}", lambda model: updated(
            model, lambda id, row: keep(row, {**row["o"], key: value}), fits)),
        "each": (f"UPDATE t SET {every} = {value}", lambda model: updated(
            model, lambda id, row: keep(row, dict.fromkeys(row["o"], value)), fits)),
        "unset": (f"UPDATE t UNSET {path}", lambda model: updated(
            model, lambda id, row: keep(row, without(row["o"], key)), fits)),
        "none": (f"UPDATE t UNSET {every}", lambda model: updated(
            model, lambda id, row: keep(row, {}), fits)),
        "merge": (f"UPDATE t MERGE {{ o: {{ '{key}': {value} }} }}", lambda model: updated(
            model, lambda id, row: keep(row, {**row["o"], key: value}), fits)),
        "omit": (f"SELECT VALUE o FROM (SELECT * OMIT {path} FROM t)", lambda model: [
            without(row["o"], key) for _, row in sorted(model.rows.items())]),
        "where": (f"SELECT VALUE id FROM t WHERE {path} = {value}", lambda model: [
            RecordId("t", id) for id, row in sorted(model.rows.items())
            if row["o"].get(key) == value]),
    }  # fmt: skip
    return acts[kind]


def without(fields: Row, key: str) -> Row:
    return {name: value for name, value in fields.items() if name != key}


def loop(chance: Random) -> Step:
    """A statement again and again: each time it reads what it wrote before."""
    (text, act), times = update(chance), chance.randrange(2, 4)

    def each(model: Model) -> Any:
        for _ in range(times):
            act(model)
        return NONE

    return f"FOR $i IN 0..{times} {{ {text} }}", each


KINDS = (
    *[update] * 5, update_named, upsert, *[insert] * 3, insert_found, delete, *[link] * 3,
    *[name] * 6, loop,
)  # fmt: skip


def expected(model: Model, steps: list[Step], edge: str) -> tuple[list[Any], tuple[str, ...]]:
    """What a script answers up to its first refusal, and the codes of that."""
    told: list[Any] = []
    whole = deepcopy(model.rows)
    for _, act in steps:
        kept = deepcopy(model.rows)
        try:
            told.append(deepcopy(act(model)))
        except Refused as refused:
            model.rows = whole if edge else kept
            return [] if edge else told, refused.args
    if edge == "CANCEL":
        model.rows, told = whole, [NONE] * len(told)
    return [NONE, *told, NONE] if edge else told, ()


INDEXES = (
    "DEFINE INDEX star ON t FIELDS o['*']", "DEFINE INDEX every ON t FIELDS o[*]",
    "DEFINE INDEX both ON t FIELDS o.`[*]`, v", "DEFINE INDEX v ON t FIELDS v",
)  # fmt: skip


async def compare(node: Running, seed: int) -> int:
    """One world: a database, a model, and scripts for both. Answers how many were refused."""
    chance, refused = Random(seed), 0
    model = Model(unique=chance.random() < 0.5)
    defined = ["DEFINE TABLE t", *chance.sample(INDEXES, chance.randrange(3))]
    if model.unique:
        defined.append("DEFINE INDEX only ON t FIELDS v UNIQUE")
    await node.values("DROP DATABASE shop.main REASON 'next'; DEFINE DATABASE shop.main")
    await node.values("; ".join(defined))
    for _ in range(SCRIPTS):
        edge = chance.choice(["", "", "COMMIT", "CANCEL"])
        steps = [chance.choice(KINDS)(chance) for _ in range(chance.randrange(1, 5))]
        texts = [text for text, _ in steps]
        script = ";\n".join(["BEGIN", *texts, edge] if edge else texts)
        wanted, codes = expected(model, steps, edge)
        answer = await node.answer(script)
        about = f"seed {seed}, {defined}\n{script}"
        code = None if answer.refusal is None else answer.refusal.code
        assert (code in codes) if codes else code is None, f"{about}\n{answer.refusal} {codes}"
        found = [result.value for result in answer.results]
        assert identical(found, wanted), f"{about}\nfound  {found}\nwanted {wanted}"
        rows = await node.value("SELECT * FROM t")
        stored = [shown(id, row) for id, row in sorted(model.rows.items())]
        assert identical(rows, stored), f"{about}\nfound  {rows}\nwanted {stored}"
        refused += code is not None
    return refused


async def compare_some(directory: Path, seeds: range) -> int:
    async with running(directory) as node:
        return sum([await compare(node, seed) for seed in seeds])


async def test_statements_read_what_a_model_reads(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    first = randrange(1_000_000)
    refused = await compare_some(tmp_path / "store", range(first, first + WORLDS))
    figure(
        "self-reading statements",
        f"{WORLDS * SCRIPTS} scripts from seed {first}, {refused} refused",
    )


@pytest.mark.hard
@pytest.mark.timeout(1_200)
async def test_statements_read_what_a_model_reads_in_many_worlds(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    first = randrange(1_000_000)
    refused = await compare_some(tmp_path / "store", range(first, first + HARD_WORLDS))
    told = f"{HARD_WORLDS * SCRIPTS} scripts from seed {first}, {refused} refused"
    figure("self-reading statements, many worlds", told)


FAULTS = ["written at once", "answers outlive their statement", "a name is a wildcard",
          "UNIQUE as each is written"]  # fmt: skip


def plant(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put: Any = RecordChanges.put
    if fault == "written at once":

        def at_once(self: RecordChanges, *given: Any) -> int:
            held: int = put(self, *given)
            self.write(lambda: None)
            return held

        monkeypatch.setattr(RecordChanges, "put", at_once)
    if fault == "answers outlive their statement":
        monkeypatch.setattr(Execution, "run_step", Execution.timed)
        monkeypatch.setattr(Execution, "block", kept_answers)
    if fault == "a name is a wildcard":
        path: Any = ExpressionParser.path
        monkeypatch.setattr(
            ExpressionParser,
            "path",
            lambda self: tuple(EACH if step == "*" else step for step in path(self)),
        )
    if fault == "UNIQUE as each is written":
        write: Any = RecordChanges.write

        def one_by_one(self: RecordChanges, tick: Any, *more: Any) -> Any:
            waiting, passed = self._collected, set[int]()
            for change in waiting:
                self._collected = [change]
                passed |= write(self, tick, *more)
            return passed

        monkeypatch.setattr(RecordChanges, "write", one_by_one)


def kept_answers(self: Execution, block: Any) -> Any:
    value: Any = NONE
    for statement in block.statements:
        value = self.nested(statement)
    return value


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    plant(fault, monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        await compare_some(tmp_path / "store", range(60))
