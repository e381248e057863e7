"""Random scripts of many statements, and a dictionary that says what each of them must answer.

The model knows no index: it goes through all records, in the order of their ids. It says of each
statement what it answers, or the codes of which it is refused with one.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from protocol.text import format_value
from protocol.values import NONE, RecordId

IDS = 24
Row = dict[str, Any]
Rows = dict[int, Row]
UNIQUES: tuple[tuple[str, ...], ...] = ((), ("code",), ("c",), ("c", "code"), ("tags",))
PLAIN = ("a", "b, a", "a, b", "c", "code, a", "tags", "tags, a", "o.x", "b", "c, b, a")


class Refused(Exception):
    """The statement is refused with one of the codes in `args`."""


def rank(value: Any) -> tuple[int, Any]:
    """Where a value stands in the one order of values."""
    if value is NONE or value is None:
        return (0, 0) if value is NONE else (1, 0)
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 3, value
    if isinstance(value, str):
        return 4, value
    assert isinstance(value, list)
    return 5, [rank(item) for item in value]


def at(row: Row, path: str) -> Any:
    """The value at a name, or at `o.x`."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name, NONE) if isinstance(value, dict) else NONE
    return value


@dataclass
class Model:
    """A table `t` as a dictionary. Its fields: `a` is an int with a default and an assert, `b`
    optional text, `code` an optional int, `tags` optional texts, `c` and `o` anything."""

    full: bool
    unique: tuple[str, ...]
    rows: Rows = field(default_factory=dict)

    def fitted(self, row: Row) -> Row:
        """The record as the fields want it. :raises Refused: with all that is wrong with it"""
        row = {name: value for name, value in row.items() if value is not NONE}
        row.setdefault("a", 1)
        codes = set()
        if type(row["a"]) is not int:
            codes.add("TypeRefused")
        elif row["a"] > 9:
            codes.add("AssertFailed")
        if not isinstance(row.get("b", ""), str) or type(row.get("code", 0)) is not int:
            codes.add("TypeRefused")
        tags = row.get("tags", [])
        if not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
            codes.add("TypeRefused")
        if self.full and "z" in row:
            codes.add("FieldRefused")
        if codes:
            raise Refused(*codes)
        return row

    def holder(self, id: int, row: Row) -> int | None:
        """The other record that has the same values."""
        claims = self.claims(row)
        for other in sorted(self.rows):
            if other != id and claims & self.claims(self.rows[other]):
                return other
        return None

    def claims(self, row: Row) -> set[Any]:
        """What no other record may have."""
        values = [row.get(name, NONE) for name in self.unique]
        if not values or any(value is NONE or value is None for value in values):
            return set()
        if self.unique == ("tags",):
            return set(values[0])
        return {tuple(rank(value) for value in values)}

    def make(self, id: int, row: Row) -> Row:
        """Write a new record; answers it as it reads."""
        taken = {"AlreadyExists"} if id in self.rows else set()
        if self.holder(id, row) is not None:
            taken.add("Duplicate")
        try:
            row = self.fitted(row)
        except Refused as refused:
            raise Refused(*refused.args, *taken) from None
        if taken:
            raise Refused(*taken)
        self.rows[id] = row
        return shown(id, row)

    def change(self, changes: list[tuple[int, Row]]) -> list[Row]:
        """Write records together: no two have the same values once all are written."""
        fitting = [(id, self.fitted(row)) for id, row in changes]
        self.rows.update(fitting)
        if any(self.holder(id, row) is not None for id, row in fitting):
            raise Refused("Duplicate")
        return [shown(id, row) for id, row in fitting]


def shown(id: int, row: Row) -> Row:
    """A record as it reads."""
    return {"id": RecordId("t", id), **row}


@dataclass(frozen=True)
class Step:
    """A statement, and what it does to a model: answers its value."""

    text: str
    act: Callable[[Model], Any]


@dataclass
class Script:
    """Statements with the edges of their transactions."""

    parts: list[tuple[str, list[Step]]]
    """Each is one of `each`, `COMMIT`, `CANCEL` and its statements."""

    @property
    def text(self) -> str:
        found = []
        for edge, steps in self.parts:
            texts = [step.text for step in steps]
            found += texts if edge == "each" else ["BEGIN", *texts, edge]
        return ";\n".join(found)

    def on(self, model: Model) -> tuple[list[Any], set[str]]:
        """The answers up to the first refusal, and the codes it may have: none, there is none."""
        answers: list[Any] = []
        for edge, steps in self.parts:
            whole, told = deepcopy(model.rows), []
            for step in steps:
                kept = deepcopy(model.rows)
                try:
                    told.append(step.act(model))
                except Refused as refused:
                    model.rows = kept if edge == "each" else whole
                    return answers + (told if edge == "each" else []), set(refused.args)
            if edge == "CANCEL":
                model.rows, told = whole, [NONE for _ in told]
            answers += told if edge == "each" else [NONE, *told, NONE]
        return answers, set()


# --- conditions -----------------------------------------------------------------------------------

Test = Callable[[int, Row], bool]
CLASSES = {"a": 3, "b": 4, "code": 3}
"""Of what the fields that have a type may hold, as the first of `rank`."""


@dataclass(frozen=True)
class Never:
    """The test of a comparison that can be true of no record, for which a statement is refused."""

    def __call__(self, id: int, row: Row) -> bool:
        raise AssertionError("it is refused before the first record is read")


def never_holds(path: str, *values: Any) -> bool:
    """True if a field's type has no value of the class of any of these, none of which is absent."""
    met = {rank(value)[0] for value in values}
    return path in CLASSES and min(met) > 1 and CLASSES[path] not in met


def bracketed(compare: Callable[[Any, Any], bool], path: str, value: Any) -> Test:
    """A comparison by `< <= > >=`: within one class of values, and with a value that there is."""
    wanted = rank(value)

    def test(_: int, row: Row) -> bool:
        mine = rank(at(row, path))
        return mine[0] == wanted[0] > 1 and compare(mine, wanted)

    return test


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def a_value(chance: Random, name: str) -> Any:
    """One that the field may have; now and then one that it refuses."""
    if name == "a":
        return chance.choice([*list(range(9)) * 5, 9, 10, "x", NONE, None])
    if name == "b":
        return chance.choice(["p", "q", "r", "", NONE] * 5 + [5])
    if name == "code":
        return chance.choice([*range(60), NONE, NONE, NONE])
    if name == "tags":
        return [chance.choice("uvwxyzUVWXYZäöüßéñ") for _ in range(chance.randrange(3))]
    if name == "o":
        return chance.choice([{"x": chance.randrange(6)}, {"x": "s", "y": 1}, {}, 3])
    if name == "z":
        return 1
    return chance.choice([*range(30), 1.0, 2.5, True, False, None, NONE, "s", "é", 7.0])


def condition(chance: Random) -> tuple[str, Test]:
    """A condition on one field, and the same in Python."""
    kind = chance.random()
    if kind < 0.1:
        tag = chance.choice("uvwxyz")
        return f"tags CONTAINS '{tag}'", lambda _, row: tag in row.get("tags", [])
    if kind < 0.2:
        sign, bound = chance.choice(["<", ">=", "="]), chance.randrange(1, IDS)
        meets = COMPARISONS[sign]
        return f"id {sign} t:{bound}", lambda id, _: meets(id, bound)
    path = chance.choice(["a", "a", "b", "c", "code", "o.x"])
    pool = {"o.x": "a"}.get(path, path)
    if kind < 0.35:
        several = [a_value(chance, pool) for _ in range(chance.randrange(1, 4))]
        ranks = [rank(value) for value in several]
        asked = f"{path} IN [{', '.join(map(format_value, several))}]"
        if never_holds(path, *several):
            return asked, Never()
        return asked, lambda _, row: rank(at(row, path)) in ranks
    sign = chance.choice(["=", "=", "=", "<", "<=", ">", ">=", "!="])
    value = a_value(chance, pool)
    compare, asked = COMPARISONS[sign], f"{path} {sign} {format_value(value)}"
    if never_holds(path, value):
        return asked, Never()
    if sign[0] in "<>":
        return asked, bracketed(compare, path, value)
    return asked, lambda _, row: compare(rank(at(row, path)), rank(value))


def where(chance: Random, often: float = 0.8) -> tuple[str, Test]:
    """A WHERE, or none."""
    if chance.random() > often:
        return "", lambda _id, _row: True
    one, first = condition(chance)
    if chance.random() < 0.5:
        return f" WHERE {one}", first
    other, second = condition(chance)
    never = Never() if Never in (type(first), type(second)) else None
    if chance.random() < 0.7:
        return f" WHERE {one} AND {other}", never or (
            lambda id, row: first(id, row) and second(id, row)
        )
    return f" WHERE {one} OR {other}", never or (lambda id, row: first(id, row) or second(id, row))


def found(model: Model, fits: Test) -> list[int]:
    """Ids of the records that fit, in their order. :raises Refused: nothing ever fits"""
    if type(fits) is Never:
        raise Refused("TypeRefused")
    return [id for id in sorted(model.rows) if fits(id, model.rows[id])]


# --- statements -----------------------------------------------------------------------------------


def fields(chance: Random) -> Row:
    """Some fields with values."""
    names = [name for name in ("a", "b", "c", "code", "tags", "o") if chance.random() < 0.55]
    return {name: a_value(chance, name) for name in names + ["z"] * (chance.random() < 0.04)}


def create(chance: Random) -> Step:
    id, given = chance.randint(1, IDS), fields(chance)

    def act(model: Model) -> Any:
        return [model.make(id, given)]

    return Step(f"CREATE t:{id} CONTENT {format_value(given)}", act)


def insert(chance: Random) -> Step:
    given = [{"id": chance.randint(1, IDS), **fields(chance)} for _ in range(chance.randint(1, 3))]
    for row in given:
        if "tags" in row:  # with more, two records may be in the way
            row["tags"] = row["tags"][:1]
    how = chance.choice(["", " IGNORE", " ON DUPLICATE UPDATE SET a = a + 1, b = $input.b"])

    parted = [(row["id"], {name: row[name] for name in row if name != "id"}) for row in given]

    def act(model: Model) -> Any:
        if "UPDATE" in how:
            return inserted_or_changed(model, parted)
        told = []
        for id, content in parted:
            other = id if id in model.rows else model.holder(id, content)
            if other is None:
                told.append(model.make(id, content))
            elif not how:
                raise Refused("AlreadyExists" if other == id else "Duplicate")
        return told

    return Step(f"INSERT INTO t {format_value(given)}{how}", act)


def inserted_or_changed(model: Model, given: list[tuple[int, Row]]) -> list[Row]:
    """ON DUPLICATE UPDATE: rows meet the records that were there before the statement, each of
    them one row at most."""
    changes: dict[int, Row] = {}
    parts: list[tuple[int, Row]] = []
    for id, content in given:
        other = id if id in model.rows else model.holder(id, content)
        if other in changes:
            raise Refused("AlreadyExists" if other == id else "Duplicate")
        if other not in (None, id) and any(id == one for one, _ in parts if one not in changes):
            raise Refused("AlreadyExists")  # by another of the rows, whatever else it meets
        if other is not None:
            before = model.rows[other]
            after = {**before, "a": before["a"] + 1, "b": content.get("b", NONE)}
            changes[other] = model.fitted(after)
            parts.append((other, changes[other]))
            continue
        parts.append((id, content))
        try:
            model.fitted(content)
        except Refused:
            break  # or whatever is found to be wrong with one before it
    model.rows.update(changes)
    told = []
    for id, row in parts:
        if id not in changes:
            told.append(model.make(id, row))
        elif model.holder(id, row) is not None:
            raise Refused("Duplicate")
        else:
            told.append(shown(id, row))
    return told


def changed(chance: Random, upsert: bool = False) -> tuple[str, Callable[[Row], Row]]:
    """What UPDATE and UPSERT do to a record, and the same in Python."""
    given = fields(chance) or {"a": 3}
    kind = chance.choice(["SET", "MERGE", "CONTENT"] if upsert else
                         ["SET", "MERGE", "CONTENT", "UNSET", "PLUS", "PLUS"])  # fmt: skip
    if kind == "SET":
        pairs = ", ".join(f"{name} = {format_value(value)}" for name, value in given.items())
        return f"SET {pairs}", lambda row: {**row, **given}
    if kind == "MERGE":
        return f"MERGE {format_value(given)}", lambda row: merged(row, given)
    if kind == "CONTENT":
        return f"CONTENT {format_value(given)}", lambda _: given
    if kind == "UNSET":
        gone = chance.choice([["a", "b"], ["code"], ["tags", "c"], ["o"]])
        return (
            f"UNSET {', '.join(gone)}",
            lambda row: {name: value for name, value in row.items() if name not in gone},
        )
    more = chance.choice([1, -1, -3])
    return f"SET a = a + {more}, c = 'e' + (b ?? '')".replace("+ -", "- "), lambda row: {
        **row,
        "a": row["a"] + more,
        "c": "e" + row.get("b", ""),
    }


def merged(row: Row, given: Row) -> Row:
    after = {**row, **given}
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(row.get(name), dict):
            after[name] = merged(row[name], value)
    return after


def upsert(chance: Random) -> Step:
    id, (text, change) = chance.randint(1, IDS), changed(chance, upsert=True)
    return Step(
        f"UPSERT t:{id} {text}", lambda model: model.change([(id, change(model.rows.get(id, {})))])
    )


def update(chance: Random) -> Step:
    text, change = changed(chance)
    target, one = "t", chance.randint(1, IDS)
    clause, fits = where(chance, 0.95)
    if chance.random() < 0.5:
        target = f"t:{one}"
        clause, fits = where(chance, 0.3)
    before = chance.random() < 0.3

    def act(model: Model) -> Any:
        ids = [id for id in found(model, fits) if target in ("t", f"t:{id}")]
        was = [shown(id, model.rows[id]) for id in ids]
        now = model.change([(id, change(model.rows[id])) for id in ids])
        return was if before else now

    return Step(f"UPDATE {target} {text}{clause}{' RETURN BEFORE' if before else ''}", act)


def update_found(chance: Random) -> Step:
    """An UPDATE of what a subquery finds, in its order."""
    clause, fits = where(chance, 1)
    by, order = ordering(chance)
    limit = chance.randint(1, 3)

    def act(model: Model) -> Any:
        ids = order(model, found(model, fits))[:limit]
        return model.change([(id, {**model.rows[id], "b": "found"}) for id in ids])

    chosen = f"(SELECT VALUE id FROM t{clause}{by} LIMIT {limit})"
    return Step(f"UPDATE {chosen} SET b = 'found'", act)


def delete(chance: Random) -> Step:
    clause, fits = where(chance, 1)
    target, one = "t", chance.randint(1, IDS)
    if chance.random() < 0.7:
        target, clause, fits = f"t:{one}", "", lambda _id, _row: True

    def act(model: Model) -> Any:
        ids = [id for id in found(model, fits) if target in ("t", f"t:{id}")]
        return [shown(id, model.rows.pop(id)) for id in ids]

    return Step(f"DELETE {target}{clause} RETURN BEFORE", act)


Order = Callable[[Model, list[int]], list[int]]


def ordering(chance: Random) -> tuple[str, Order]:
    """An ORDER BY, or none; equal ones stay in the order of their ids."""
    if chance.random() < 0.3:
        return "", lambda _, ids: ids
    paths = chance.choice([["a"], ["c"], ["code"], ["b", "a"], ["a", "b"], ["o.x"], ["tags"]])
    if "tags" in paths:
        paths = ["tags", "a"]
    down = [chance.random() < 0.5 for _ in paths]
    if chance.random() < 0.7:
        down = [down[0]] * len(paths)

    def order(model: Model, ids: list[int]) -> list[int]:
        for path, backwards in reversed([*zip(paths, down, strict=True)]):
            ids = sorted(ids, key=lambda id: rank(at(model.rows[id], path)), reverse=backwards)
        return ids

    parts = (path + " DESC" * backwards for path, backwards in zip(paths, down, strict=True))
    return f" ORDER BY {', '.join(parts)}", order


def select(chance: Random) -> Step:
    clause, fits = where(chance)
    if chance.random() < 0.25:
        return grouped(chance, clause, fits)
    by, order = ordering(chance)
    first, limit = chance.choice([0, 0, 0, 1, 3]), chance.choice([None, 1, 2, 5, 100])
    what = chance.choice(["*", "VALUE id", "VALUE c", "id, a, o.x AS x"])

    def act(model: Model) -> Any:
        ids = order(model, found(model, fits))[first:]
        return [projected(what, id, model.rows[id]) for id in ids[:limit]]

    tail = (f" LIMIT {limit}" if limit else "") + (f" START {first}" if first else "")
    return Step(f"SELECT {what} FROM t{clause}{by}{tail}", act)


def projected(what: str, id: int, row: Row) -> Any:
    if what == "*":
        return shown(id, row)
    if what == "VALUE id":
        return RecordId("t", id)
    if what == "VALUE c":
        return row.get("c", NONE)
    told = {"id": RecordId("t", id), "a": row["a"], "x": at(row, "o.x")}
    return {name: value for name, value in told.items() if value is not NONE}


def grouped(chance: Random, clause: str, fits: Test) -> Step:
    """Counts and sums, of all or for each `b`."""
    if chance.random() < 0.3:
        return Step(
            f"SELECT VALUE count() FROM t{clause} GROUP ALL",
            lambda model: [len(found(model, fits))],
        )
    least = chance.choice([0, 2])

    def act(model: Model) -> Any:
        groups: dict[Any, list[int]] = {}
        for id in found(model, fits):
            row = model.rows[id]
            groups.setdefault(row.get("b", NONE), []).append(row["a"])
        told = [
            {"b": b, "n": len(all_a), "s": sum(all_a), "lo": min(all_a), "hi": max(all_a)}
            for b, all_a in sorted(groups.items(), key=lambda item: rank(item[0]))
            if len(all_a) >= least
        ]
        return [{k: v for k, v in row.items() if v is not NONE} for row in told]

    return Step(
        "SELECT b, count() AS n, sum(a) AS s, min(a) AS lo, max(a) AS hi "
        f"FROM t{clause} GROUP BY b HAVING n >= {least} ORDER BY b",
        act,
    )


def throw(_: Random) -> Step:
    def act(_: Model) -> Any:
        raise Refused("Thrown")

    return Step("THROW 'enough'", act)


KINDS = [create] * 4 + [insert] * 4 + [upsert] * 4 + [update] * 6 + [update_found] * 2
KINDS += [delete] * 3 + [select] * 12


def script(chance: Random) -> Script:
    """Up to three parts of up to five statements."""
    parts = []
    for _ in range(chance.randint(1, 3)):
        edge = chance.choice(["each", "each", "COMMIT", "CANCEL"])
        steps = [chance.choice(KINDS)(chance) for _ in range(chance.randint(1, 5))]
        if chance.random() < 0.04:
            steps.append(throw(chance))
        parts.append((edge, steps))
    return Script(parts)


def world(chance: Random) -> tuple[Model, list[str]]:
    """An empty table, and the statements that define it."""
    model = Model(chance.random() < 0.4, chance.choice(UNIQUES))
    made = [
        f"DEFINE TABLE t {'SCHEMAFULL' if model.full else ''}",
        "DEFINE FIELD a ON t TYPE int DEFAULT 1 ASSERT $value <= 9",
        "DEFINE FIELD b ON t TYPE option<string>",
        "DEFINE FIELD c ON t TYPE any",
        "DEFINE FIELD code ON t TYPE option<int>",
        "DEFINE FIELD o ON t TYPE any",
        "DEFINE FIELD tags ON t TYPE option<array<string>>",
    ]
    if model.unique:
        made.append(f"DEFINE INDEX only ON t FIELDS {', '.join(model.unique)} UNIQUE")
    for number, paths in enumerate(chance.sample(PLAIN, chance.randint(1, 5))):
        made.append(f"DEFINE INDEX plain{number} ON t FIELDS {paths}")
    return model, made
