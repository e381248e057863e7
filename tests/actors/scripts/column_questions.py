"""Generated tables and statements, each run by column and by row in one transaction.

`FROM t` reads columns and `FROM t:..` rows, so the same script asks both. Between the statements
records are written, by commits that have not reached the disk and by the transaction itself; tables
are dropped and come again, and scripts read kept moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

from protocol.errors import Refusal, UnexpectedToken, Unknown
from protocol.requests import NEW_MOMENT
from protocol.values import RecordId
from tests.nodes import OWNER, Running

ROWS: Final = 260
FIELDS: Final = ("a", "b", "c", "d", "e")
TABLES: Final = ("t", "u")
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS: Final = ("", "a", "B", "ab", "ü", "zebra", "a b")
Value = Callable[[Random], Any]

PROFILES: Final[dict[str, Value]] = {
    "few ints": lambda chance: chance.randrange(-3, 9),
    "ints": lambda chance: chance.randrange(-(10**6), 10**6),
    "large ints": lambda chance: chance.choice((1, -1)) * chance.randrange(2**61, 2**63 - 1),
    "even ints": lambda chance: chance.randrange(2**54, 2**54 + 9),
    "floats": lambda chance: chance.uniform(-1e3, 1e3) * 10 ** chance.randrange(-9, 9),
    "few floats": lambda chance: chance.choice((0.5, 1.0, -2.0, 3.25)),
    "zeros": lambda chance: chance.choice((0.0, -0.0, 1.5)),
    "huge floats": lambda chance: chance.choice((1e308, -1e308, 1e300, 1.0)),
    "money": lambda chance: Decimal(chance.randrange(-(10**7), 10**7)).scaleb(-2),
    "scales": lambda chance: Decimal(chance.randrange(-999, 999)).scaleb(-chance.randrange(4)),
    "exact": lambda chance: (
        Decimal(chance.randrange(10**17, 10**18)).scaleb(-chance.choice((0, 18)))
    ),
    "zero decimals": lambda chance: Decimal(chance.choice(("0.00", "-0.00", "1.50", "-1.50"))),
    "times": lambda chance: _BEGIN + timedelta(seconds=chance.randrange(10**7), microseconds=7),
    "old times": lambda chance: datetime(1, 1, chance.randrange(1, 9), 5, tzinfo=UTC),
    "words": lambda chance: chance.choice(_WORDS),
    "texts": lambda chance: f"text {chance.randrange(10**6)}",
    "bools": lambda chance: chance.choice((True, False)),
    "links": lambda chance: RecordId("k", chance.randrange(9)),
    "numbers": lambda chance: chance.choice((1, 1.0, Decimal(1), 2, 2.5, Decimal("2.50"), -1)),
    "uuids": lambda chance: UUID(int=chance.randrange(20)),
    "durations": lambda chance: timedelta(seconds=chance.randrange(50)),
    "anything": lambda chance: chance.choice(
        (1, 1.0, True, "1", None, [1, 2], {"x": 1}, b"a", RecordId("k", 1), Decimal("1.0"), 0)
    ),
    "long": lambda chance: chance.choice("xy") * 300,
}  # fmt: skip
_STEADY: Final = ("few ints", "ints", "floats", "money", "times", "words", "bools", "links")


_KINDS: Final = {
    "number": (
        "few ints", "ints", "large ints", "even ints", "floats", "few floats", "zeros", "money",
        "scales", "exact", "huge floats", "zero decimals",
    ),
    "time": ("times", "old times"),
}  # fmt: skip
_ANY: Final = ("{f}", "{f}.n", "type::of({f})", "{f} ?? 0", "IF {f} = NONE {{ 1 }} ELSE {{ {g} }}")
_VALUES: Final = {
    "any": _ANY,
    "number": (
        *_ANY[:1], "{f} + {f}", "{f} - 1", "{f} * 2", "{f} * {f}", "{f} / 2", "{f} + 1", "-{f}",
        "math::abs({f})", "{f} * {g}", "{f} + {g}", "{f} * 1.5dec", "{f} + 0.25", "{f} - {f}",
    ),
    "time": (
        "time::floor({f}, 1h)", "time::trunc({f}, 'month')", "time::year({f})", "{f} + 1d",
        "time::trunc({f}, 'minute')", "time::hour({f})", "time::floor({f}, 30d)",
        "time::trunc({f}, 'week')", "time::trunc({f}, 'year')", "time::weekday({f})",
    ),
}  # fmt: skip
"""Expressions over fields `f` and `g`, by the kind of values of `f`."""


class Column:
    """Values of one field of a table."""

    def __init__(self, chance: Random) -> None:
        self.profile = chance.choice(_STEADY if chance.random() < 0.6 else tuple(PROFILES))
        self._make = PROFILES[self.profile]
        self._other = PROFILES[chance.choice(tuple(PROFILES))]
        self.missing = chance.choice((0, 0, 0, 0.1, 0.9))
        self._odd = chance.choice((0, 0, 0, 0.004))

    def put(self, chance: Random, row: dict[str, Any], name: str) -> None:
        """Put a value into a row, or none."""
        if chance.random() < self.missing:
            if chance.random() < 0.5:
                row[name] = None
            return
        row[name] = (self._other if chance.random() < self._odd else self._make)(chance)

    def constant(self, chance: Random) -> Any:
        """Return a value to compare with."""
        if chance.random() < 0.15:
            return PROFILES[chance.choice(tuple(PROFILES))](chance)
        return self._make(chance)


class Table:
    """A generated table."""

    def __init__(self, name: str, chance: Random) -> None:
        self.name = name
        self.columns = {field: Column(chance) for field in FIELDS}
        self.texts = chance.random() < 0.4
        """True if its ids are texts."""

    def id(self, number: int) -> Any:
        """Return the id of a number."""
        return f"id{number:05}" if self.texts else number

    def row(self, chance: Random, number: int) -> dict[str, Any]:
        """Return a record."""
        row: dict[str, Any] = {"id": self.id(number)}
        for name, column in self.columns.items():
            column.put(chance, row, name)
        return row


class Question:
    """A generated SELECT; `@` stands for the table."""

    def __init__(self, chance: Random, table: Table) -> None:
        self._chance = chance
        self._table = table
        self.parameters: dict[str, Any] = {}
        self.text = self._select()

    def _field(self) -> str:
        return self._chance.choice(FIELDS)

    def _parameter(self, value: Any) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"${name}"

    def _constant(self, field: str) -> str:
        if self._chance.random() < 0.06:
            return self._chance.choice(("NONE", "NULL"))
        return self._parameter(self._table.columns[field].constant(self._chance))

    def _condition(self, depth: int = 0) -> str:
        chance, field = self._chance, self._field()
        kind = chance.randrange(16 if depth < 3 else 10)
        if kind < 5:
            operator = chance.choice(("=", "!=", "<", "<=", ">", ">="))
            left, right = field, self._constant(field)
            return (
                f"{left} {operator} {right}"
                if chance.random() < 0.8
                else f"{right} {operator} {left}"
            )
        if kind == 5:
            items = [self._constant(field) for _ in range(chance.randrange(5))]
            return f"{field} {chance.choice(('IN', 'NOT IN'))} [{', '.join(items)}]"
        if kind == 6:
            low = chance.randrange(-4, 5)
            dots = chance.choice(("..", "..="))
            return (
                f"{field} {chance.choice(('IN', 'NOT IN'))} {low}{dots}{low + chance.randrange(6)}"
            )
        if kind == 7:
            return f"{field} {chance.choice(('=', '<', '!='))} {self._field()}"
        if kind == 8:
            return f"{self._value()} {chance.choice(('<', '>=', '='))} {self._constant(field)}"
        if kind == 9:
            return self._texts(field)
        if kind < 12:
            return f"NOT ({self._condition(depth + 1)})"
        operator = chance.choice((" AND ", " OR "))
        return f"({self._condition(depth + 1)}{operator}{self._condition(depth + 1)})"

    def _texts(self, field: str) -> str:
        return self._chance.choice((
            f"{field} CONTAINS 'a'", f"{field} ~ 'b$'", f"type::of({field}) = 'string'",
            f"{field}.n > 3", f"{field} = k:1", f"({field} ?? 2) = 2", field,
        ))  # fmt: skip

    def _value(self) -> str:
        chance, field = self._chance, self._field()
        column = self._table.columns[field]
        kinds = [kind for kind, names in _KINDS.items() if column.profile in names]
        # Sometimes of another kind: it is refused, or NONE.
        kind = kinds[0] if kinds and chance.random() < 0.95 else chance.choice(tuple(_VALUES))
        if column.missing and chance.random() < 0.9:
            kind = "any"
        return chance.choice(_VALUES[kind]).format(f=field, g=self._field())

    def _aggregate(self) -> str:
        chance, field = self._chance, self._field()
        names: tuple[str, ...] = ("min", "max", "count", "count_distinct")
        if self._table.columns[field].profile in _KINDS["number"] or chance.random() < 0.05:
            names = ("sum", "sum", "mean", "stddev", *names)
        return f"{chance.choice(names)}({self._value() if chance.random() < 0.2 else field})"

    def _where(self) -> str:
        return f" WHERE {self._condition()}" if self._chance.random() < 0.7 else ""

    def _select(self) -> str:
        chance = self._chance
        kind = chance.randrange(10)
        if kind < 6:
            return self._grouped()
        if kind == 6:
            return f"SELECT * FROM @ WHERE {self._condition()}"
        if kind == 7:
            fields = ", ".join(dict.fromkeys(self._field() for _ in range(chance.randrange(1, 3))))
            limit = f" LIMIT {chance.randrange(1, 9)} START {chance.randrange(4)}"
            return f"SELECT DISTINCT {fields} FROM @{self._where()}{chance.choice(('', limit))}"
        if kind == 8:
            return f"SELECT id, {self._value()} AS v FROM @ WHERE {self._condition()}"
        order = f"{self._value()}{chance.choice((' DESC', ''))}"
        if chance.random() < 0.3:
            later = self._value() if chance.random() < 0.3 else self._field()
            order += f", {later}{chance.choice((' DESC', ''))}"
        limit = f"LIMIT {chance.randrange(1, 12)}{chance.choice(('', ' START 3'))}"
        return f"SELECT id, {self._field()} FROM @{self._where()} ORDER BY {order} {limit}"

    def _grouped(self) -> str:
        chance = self._chance
        values = [
            "count() AS n0",
            *(f"{self._aggregate()} AS n{n}" for n in range(1, chance.randrange(1, 4))),
        ]
        where = self._where()
        if chance.random() < 0.3:
            return f"SELECT {', '.join(values)} FROM @{where} GROUP ALL"
        keys = [
            self._value() if chance.random() < 0.3 else self._field()
            for _ in range(chance.choice((1, 1, 1, 2, 3)))
        ]
        named = [f"{key} AS k{n}" for n, key in enumerate(keys)]
        tail = f" GROUP BY {', '.join(f'k{n}' for n in range(len(keys)))}"
        if chance.random() < 0.2:
            tail += " HAVING count() > 2"
        if chance.random() < 0.2:
            tail += f" ORDER BY n0 DESC LIMIT {chance.randrange(1, 6)}"
        return f"SELECT {', '.join([*named, *values])} FROM @{where}{tail}"

    def by_column(self) -> str:
        """Return its text over columns."""
        return self.text.replace("@", f"{self._table.name}   ")

    def by_row(self) -> str:
        """Return its text over rows, of the same length."""
        return self.text.replace("@", f"{self._table.name}:..")


class Differs(Exception):
    """An answer by column is not that by row."""


class Asking:
    """Asks a node generated questions, and writes between them."""

    def __init__(self, node: Running, seed: int) -> None:
        self._node = node
        self._chance = Random(seed)
        self._seed = seed
        self._tables: dict[str, Table] = {}
        self._moments: list[str] = []
        self._writing: list[Awaitable[Any]] = []
        self.asked = 0
        self.refused = 0

    async def begin(self) -> None:
        """Fill the tables."""
        await self._node.values(
            "DEFINE TABLE IF NOT EXISTS k;INSERT INTO k $rows IGNORE RETURN NONE",
            {"rows": [{"id": number, "n": number % 4} for number in range(7)]},
        )
        for name in TABLES:
            await self._fill(name)

    async def _fill(self, name: str) -> None:
        drop = f"DROP TABLE {name};" if name in self._tables else ""
        table = self._tables[name] = Table(name, self._chance)
        rows = [table.row(self._chance, 3 * number) for number in range(ROWS)]
        await self._node.values(
            f"{drop} DEFINE TABLE {name}; INSERT INTO {name} $rows RETURN NONE",
            {"rows": rows},
        )

    async def round(self) -> None:
        """Write something, and ask some questions."""
        chance = self._chance
        table = self._tables[chance.choice(TABLES)]
        kind = chance.randrange(12)
        if kind == 0 and chance.random() < 0.3:
            await self._fill(table.name)
            table = self._tables[table.name]
        if kind == 1:
            await self._keep_moment()
        self._writing = []
        if kind in (2, 3, 4):
            await self._run(*self._write(table))
        elif kind in (5, 6):
            # Not awaited: the questions meet it as a pending commit.
            self._writing = [
                asyncio.ensure_future(self._node.answer(*self._write(table))) for _ in range(2)
            ]
            await asyncio.sleep(0)
        own = self._write(table) if kind in (7, 8) else None
        moment = chance.choice(self._moments) if kind == 9 and self._moments else None
        for _ in range(chance.randrange(1, 4)):
            await self._ask(table, own, moment)
        await asyncio.gather(*self._writing)

    async def _keep_moment(self) -> None:
        answer = await self._node.answer("RETURN 1", moment=NEW_MOMENT, keep_us=600_000_000)
        if answer.refusal is None and answer.moment is not None:
            self._moments.append(answer.moment)
            del self._moments[:-2]

    async def _run(self, script: str, parameters: dict[str, Any]) -> None:
        answer = await self._node.answer(script, parameters)
        assert answer.refusal is None or isinstance(answer.refusal, Refusal)

    def _write(self, table: Table) -> tuple[str, dict[str, Any]]:
        """Return a statement that writes records, and its parameters."""
        chance, name = self._chance, table.name
        kind = chance.randrange(7)
        some = [table.id(chance.randrange(3 * ROWS)) for _ in range(chance.randrange(1, 9))]
        links = {"ids": [RecordId(name, id) for id in some]}
        field = chance.choice(FIELDS)
        if kind == 0:
            return "DELETE $ids RETURN NONE", links
        if kind == 1:
            value = table.columns[field].constant(chance)
            return f"UPDATE $ids SET {field} = $v RETURN NONE", {**links, "v": value}
        if kind == 2:
            start = chance.randrange(3 * ROWS)
            rows = [table.row(chance, start + number) for number in range(chance.randrange(1, 40))]
        elif kind == 3:
            start = 3 * ROWS + chance.randrange(10**4)
            rows = [table.row(chance, start + number) for number in range(chance.randrange(1, 90))]
        elif kind == 4:
            return f"UPDATE $ids UNSET {field} RETURN NONE", links
        elif kind == 5 and chance.random() < 0.2:
            return f"UPDATE {name} SET {field} = $v RETURN NONE", {"v": chance.randrange(5)}
        else:
            rows = [table.row(chance, chance.randrange(3 * ROWS))]
        return f"INSERT INTO {name} $rows ON DUPLICATE UPDATE SET {field} = $v RETURN NONE", {
            "rows": rows, "v": table.columns[field].constant(chance),
        }  # fmt: skip

    async def _ask(
        self, table: Table, own: tuple[str, dict[str, Any]] | None, moment: str | None
    ) -> None:
        question = Question(self._chance, table)
        texts = question.by_column(), question.by_row()
        before, parameters = "", dict(question.parameters)
        if own is not None:
            before = f"BEGIN; {own[0].replace('$v', '$own')}; "
            parameters |= {"own" if name == "v" else name: one for name, one in own[1].items()}
        after = "; CANCEL" if own is not None else ""
        # Both in one script where they can be: nothing is written between them.
        both = f"{before or 'BEGIN; '}{texts[0]}; {texts[1]}{after or '; COMMIT'}"
        answer = await self._node.answer(both, parameters, moment=moment)
        self.asked += 1
        if answer.refusal is None:
            column, row = (result.value for result in answer.results[-3:-1])
            self._compare(question, parameters, repr(column), repr(row))
            return
        self.refused += 1
        # Asked one by one: nothing may be written between them.
        await asyncio.gather(*self._writing)
        found = []
        for text in texts:
            one = await self._node.answer(f"{before}{text}{after}", parameters, moment=moment)
            refusal = one.refusal
            assert not isinstance(refusal, UnexpectedToken | Unknown), refusal
            said = f"{type(refusal).__name__}: {refusal} {getattr(refusal, 'detail', '')}"
            found.append(said.replace(f"{table.name}:..", f"{table.name}   "))
        self._compare(question, parameters, *found)

    def _compare(self, question: Question, parameters: Any, column: str, row: str) -> None:
        if column != row:
            at = next((n for n, (x, y) in enumerate(zip(column, row, strict=False)) if x != y), 0)
            start = max(0, at - 80)
            profiles = {name: one.profile for name, one in question._table.columns.items()}
            raise Differs(
                f"seed {self._seed}, question {self.asked}: {question.text}\n{parameters!r:.600}\n"
                f"fields {profiles}\nby column …{column[start : start + 300]}\nby row    …"
                f"{row[start : start + 300]}"
            )


async def ask_all(node: Running, seed: int, count: int) -> Asking:
    """Ask a number of questions of a seed. :raises Differs: an answer differs"""
    asking = Asking(node, seed)
    await asking.begin()
    while asking.asked < count:
        await asking.round()
    return asking


__all__ = ["OWNER", "Asking", "Differs", "ask_all"]
