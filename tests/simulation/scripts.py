"""Random scripts, each with its expected effect on a model of plain dictionaries.

A script is a list of parts, and a part is one transaction: a statement, or BEGIN … COMMIT. A step
of a part is its text and a function over a `Draft`. The function changes the dictionaries and
returns the expected answer of the statement, or raises `ExpectedRefusal` with the expected error
code.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from protocol.values import NONE, RecordId
from tests.receipts import named
from tests.simulation.answers import ANYTHING, AtLeast
from tests.simulation.expiring import KEY as EXPIRING_KEY
from tests.simulation.expiring import REFUSALS, Expirer
from tests.simulation.inspecting import Inspector
from tests.simulation.queues import DEFINED, QUEUE, Publisher, QueueState, Said

Fields = dict[str, Any]
Rows = dict[Any, Fields]

TABLES = ("t", "u", "c")
FLEETING = "x"
"""A table that is defined and dropped all the time."""
IDS = 8
SPACE = "k"
KEYS = ("a", "b", "c")
"""Keys of the space that never expire: their values are known exactly."""
TOPIC = "m"
"""Topic whose messages are known exactly.

Its group has short visibility timeouts. The group, the topic of its dead letters and that of
redriven ones are used at random, and their content depends on log time. So only their bytes,
positions and counts are compared.
"""
DEAD = "d"
AGAIN = "e"
DEFINE_GROUP = (
    f"DEFINE GROUP IF NOT EXISTS g ON {TOPIC} DEADLINE 25ms IN FLIGHT 6 DELIVERIES 2"
    f" DEAD LETTER {DEAD} BACKOFF 0s, 2ms"
)
INDEXES = {"by_n": ("t", "n"), "by_both": ("t", "n, s"), "by_s": ("u", "s")}
"""Indexes that are defined and dropped all the time: equal answers show that they are correct."""
USERS = ("bea", "cid")
PASSWORD = "correct horse"
UNSEEN = tuple(UUID(int=number) for number in range(8))
"""Ids generated for records that the same transaction deleted again."""


class ExpectedRefusal(Exception):
    """The node must refuse the statement, with this code."""


@dataclass
class StoreState:
    """Model of a store after one of its commits. Immutable: a `Draft` makes the next one."""

    tables: dict[str, Rows] = field(default_factory=dict)
    entries: Fields = field(default_factory=dict)
    """The keys of the space that never expire."""
    indexes: frozenset[str] = frozenset()
    messages: tuple[Any, ...] = ()
    """All values published into the topic, trimmed ones too."""
    trimmed: int = 0
    """Number of trimmed messages among them."""
    users: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()
    queue: QueueState = field(default_factory=QueueState)


class Draft:
    """A state that one transaction is changing.

    :param new_ids: the ids that the node has generated, in order
    :param tie: True if it commits at the same log time as the last one, for order by time
    """

    def __init__(
        self, state: StoreState, new_ids: Iterable[UUID] = UNSEEN, tie: bool = False
    ) -> None:
        self.before = state
        self.queue = state.queue.copy()
        self.tie = tie
        self.tables = {name: dict(rows) for name, rows in state.tables.items()}
        self.entries = dict(state.entries)
        self.indexes = set(state.indexes)
        self.messages = state.messages
        self.trimmed = state.trimmed
        self.users = set(state.users)
        self.places = set(state.places)
        self.new_ids = iter(new_ids)
        self.variables: dict[str, Any] = {}
        self.wrote = False
        self.perhaps = False
        """True if it may have written entries outside of the model."""
        self.puts: set[tuple[str, Any]] = set()
        """Keys written, even if their value stays: table and id of records, and cache keys."""

    def state(self) -> StoreState:
        return StoreState(
            self.tables,
            self.entries,
            frozenset(self.indexes),
            self.messages,
            self.trimmed,
            frozenset(self.users),
            frozenset(self.places),
            self.queue,
        )

    def published(self, positions: Iterable[int]) -> None:
        self.wrote = True
        self.puts |= {(QUEUE, position) for position in positions}

    def same(self, other: StoreState) -> bool:
        """True if it equals the content of a state; of messages only untrimmed ones count.

        Namespaces and databases are compared by their content.
        """
        return (
            self.tables == other.tables
            and self.users == other.users
            and self.entries == other.entries
            and self.indexes == other.indexes
            and self.queue == other.queue
            and self.messages[self.trimmed :] == other.messages
            and len(self.messages) == other.trimmed + len(other.messages)
        )

    def table(self, name: str) -> Rows:
        if name not in self.tables:
            raise ExpectedRefusal("Unknown")
        return self.tables[name]

    def put(self, table: str, id: Any, fields: Fields) -> Fields:
        """Put a record. An unchanged one is not written."""
        rows = self.table(table)
        if rows.get(id) != fields:
            rows[id] = fields
            self.wrote = True
            self.puts.add((table, id))
        return shown(table, id, fields)

    def set(self, key: str, value: Any) -> None:
        self.entries[key] = value
        self.wrote = True
        self.puts.add((SPACE, key))

    def remove(self, table: str, id: Any) -> Fields:
        fields = self.table(table).pop(id)
        self.wrote = True
        self.puts.discard((table, id))
        return shown(table, id, fields)

    def rows(self, table: str) -> list[tuple[Any, Fields]]:
        return sorted(self.table(table).items(), key=by_id)


def shown(table: str, id: Any, fields: Fields) -> Fields:
    return {"id": RecordId(table, id), **fields}


def by_id(item: tuple[Any, Fields]) -> tuple[int, Any]:
    id = item[0]
    return (0, id) if isinstance(id, int) else (1, id.bytes)


@dataclass(frozen=True)
class ModelStatement:
    text: str
    run: Callable[[Draft], Any]
    makes_id: bool = False
    may: frozenset[str] = frozenset()
    """Codes of errors that are allowed because the model does not predict them."""


@dataclass(frozen=True)
class ScriptTransaction:
    """A transaction. `ending` is COMMIT or CANCEL for a block, empty for a single statement."""

    steps: tuple[ModelStatement, ...]
    ending: str = ""
    waits: bool = False
    """True if it may commit several times: once for expired deliveries, and once after a wait."""

    @property
    def results(self) -> int:
        return len(self.steps) + (2 if self.ending else 0)

    def text(self) -> str:
        body = "; ".join(step.text for step in self.steps)
        return f"BEGIN; {body}; {self.ending}" if self.ending else body

    def run(self, draft: Draft) -> list[Any]:
        """Apply the part to a draft and return its results. Changes of a cancelled block are not
        `wrote`."""
        values = [step.run(draft) for step in self.steps]
        if self.ending == "CANCEL":
            draft.wrote = draft.perhaps = False
            return [NONE] * self.results
        return [NONE, *values, NONE] if self.ending else values


@dataclass(frozen=True)
class ClientScript:
    parts: tuple[ScriptTransaction, ...]
    parameters: dict[str, Any]
    timeout_us: int | None = None
    roles: tuple[str, ...] | None = None
    """Roles of the node after it, if it changes them."""

    @property
    def text(self) -> str:
        return "; ".join(part.text() for part in self.parts)

    @property
    def may(self) -> frozenset[str]:
        """Codes of errors that any of its steps may get."""
        return frozenset().union(*(step.may for part in self.parts for step in part.steps))


def _define_place(draft: Draft, name: str) -> Any:
    if name not in draft.places:
        draft.places.add(name)
        draft.wrote = True
    return NONE


def _skip(draft: Draft, name: str) -> Any:
    if name not in draft.tables:
        draft.tables[name] = {}
        draft.wrote = True
    return NONE


def _unseen(draft: Draft, name: str) -> Any:
    """Define something that the model does not hold, unless it exists."""
    draft.perhaps = True
    return NONE


def _prepared(kind: str, name: str, run: Callable[[Draft, str], Any]) -> ScriptTransaction:
    return ScriptTransaction(
        (ModelStatement(f"DEFINE {kind} IF NOT EXISTS {name}", lambda draft: run(draft, name)),)
    )


ADDED: Final = "added($n: option<int>, $by: int) -> int { ($n ?? 0) + $by }"
"""A function, and how it is defined."""

PREPARE = ClientScript(
    (
        _prepared("NAMESPACE", "a", _define_place),
        _prepared("DATABASE", "a.b", _define_place),
        *(_prepared("TABLE", name, _skip) for name in TABLES),
        _prepared("FUNCTION", ADDED, _unseen),
        _prepared("SPACE", SPACE, _unseen),
        _prepared("TOPIC", TOPIC, _unseen),
        _prepared("TOPIC", f"{DEAD} KEEP 40ms BYTES 2KB DEDUP 20ms", _unseen),
        _prepared("TOPIC", AGAIN, _unseen),
        ScriptTransaction((ModelStatement(DEFINE_GROUP, lambda draft: _unseen(draft, "g")),)),
        *(
            ScriptTransaction((ModelStatement(text, lambda draft: _unseen(draft, QUEUE)),))
            for text in DEFINED
        ),
    ),
    {},
)
"""Run at the beginning of each life: the one before may have been cut off at any statement."""


class Author:
    """Writes random scripts.

    :param inspects: True for scripts that read the node's own data (statement log, audit trail)
    :param expires: True for scripts that declare and drop short-lived spaces and topics
    """

    def __init__(
        self, chance: random.Random, inspects: bool = False, expires: bool = False
    ) -> None:
        self._chance = chance
        self._inspects, self._expires = inspects, expires
        self._inspector, self._expirer = Inspector(chance), Expirer(chance)
        self._parameters: dict[str, Any] = {}
        self._receipts: list[str] = []
        self._publisher = publisher = Publisher(chance)
        self._answered = False
        """True if the present script acknowledges deliveries: two such steps could not be
        distinguished."""
        self._kinds: list[tuple[int, Callable[[], ModelStatement]]] = [
            (6, self._count_up), (4, self._create), (3, self._create_new), (3, self._upsert),
            (3, self._update), (3, self._update_where), (2, self._unset), (3, self._delete),
            (2, self._delete_where), (4, self._insert), (1, self._insert_many),
            (4, self._select), (3, self._select_range), (3, self._select_where),
            (3, self._select_records), (3, self._count), (2, self._info_table), (3, self._each),
            (2, self._delete_if), (2, self._define), (2, self._drop),
            (2, self._set), (2, self._incr), (1, self._swap), (1, self._delete_key),
            (2, self._get), (3, self._fleeting), (1, self._index),
            (4, self._publish), (3, self._read_topic), (1, self._trim), (6, self._consume),
            (5, _step_of(publisher.publish)), (2, _step_of(publisher.read)),
            (5, _step_of(publisher.take)), (5, self._answer), (1, _step_of(publisher.redrive)),
            (1, _step_of(publisher.figures)),
        ]  # fmt: skip

    def script(self) -> ClientScript:
        chance, self._parameters, self._answered = self._chance, {}, False
        if chance.random() < 0.04:
            return self._administer()
        if self._inspects and chance.random() < 0.5:
            return ClientScript(self._inspecting(), self._parameters)
        if self._expires and chance.random() < 0.5:
            steps = (ModelStatement(*said, may=REFUSALS) for said in self._expirer.story())
            return ClientScript(tuple(ScriptTransaction((step,)) for step in steps), {})
        parts = tuple(self._part() for _ in range(chance.choice((1, 1, 1, 1, 2, 3))))
        timeout_us = chance.choice((1_000, 20_000, 100_000)) if chance.random() < 0.05 else None
        return ClientScript(parts, self._parameters, timeout_us)

    def hear(self, value: Any) -> None:
        """Keep the receipts in an answer, for later statements."""
        for one in value if type(value) is list else ():
            if type(one) is dict and "receipt" in one:
                self._receipts.append(one["receipt"])

    def reads(self) -> list[ClientScript]:
        """Return scripts that read everything, table by table, rows and count."""
        both = ((_all_of(name), _count_of(name)) for name in TABLES)
        return [ClientScript((ScriptTransaction(steps, "COMMIT"),), {}) for steps in both]

    def all_roles(self) -> ClientScript:
        """Return the script that makes the node serve and accept writes again."""
        return _roles(("serving", "writable"))

    def _part(self) -> ScriptTransaction:
        chance = self._chance
        if chance.random() < 0.6:
            return ScriptTransaction((self._step(),))
        if chance.random() < 0.1:
            return ScriptTransaction((self._wait(),), waits=True)
        if chance.random() < 0.1:
            wait = f" WAIT {chance.choice((0, 2, 15))}ms"
            made = chance.choice((self._publisher.take, self._publisher.take, self._publisher.read))
            return ScriptTransaction((ModelStatement(*made(wait)),))
        steps = [self._step() for _ in range(chance.randrange(1, 5))]
        if chance.random() < 0.3:
            steps[0:0] = [self._look(), _work(chance.randrange(1, 40)), self._note()]
        if chance.random() < 0.4:
            steps.insert(chance.randrange(len(steps) + 1), _work(chance.randrange(1, 40)))
        if chance.random() < 0.08:
            steps.append(ModelStatement("THROW 'no'", _throw))
        return ScriptTransaction(tuple(steps), "CANCEL" if chance.random() < 0.1 else "COMMIT")

    def _inspecting(self) -> tuple[ScriptTransaction, ...]:
        """Return statements, some of them introspective, perhaps after a commit of the same
        script."""
        chance, inspector = self._chance, self._inspector
        made = chance.choice((inspector.entries, inspector.entries, inspector.store))
        tells = ScriptTransaction((ModelStatement(*made()),))
        before = [ScriptTransaction((self._step(),)) for _ in range(chance.choice((0, 1, 1, 2)))]
        behind = [ScriptTransaction((self._step(),)) for _ in range(chance.choice((0, 0, 1)))]
        works = (
            [ScriptTransaction((_work(chance.randrange(1, 20)),))] if chance.random() < 0.5 else []
        )
        return (*before, *works, tells, *behind)

    def _step(self) -> ModelStatement:
        (_, make), *_ = self._chance.choices(
            self._kinds, weights=[weight for weight, _ in self._kinds]
        )
        return make()

    def _answer(self) -> ModelStatement:
        """Acknowledge deliveries, or trim the topic, which ends them as well."""
        if self._answered:
            return _step_of(self._publisher.publish)()
        self._answered = True
        made = self._publisher.trim if self._chance.random() < 0.1 else self._publisher.answer
        return _step_of(made)()

    def _administer(self) -> ClientScript:
        chance, name = self._chance, self._chance.choice(USERS)

        def define(draft: Draft) -> Any:
            if name in draft.users:
                raise ExpectedRefusal("AlreadyExists")
            draft.users.add(name)
            draft.wrote = True
            return NONE

        def drop(draft: Draft) -> Any:
            if name not in draft.users:
                raise ExpectedRefusal("Unknown")
            draft.users.remove(name)
            draft.wrote = True
            return NONE

        steps = (
            ModelStatement(f"DEFINE USER {name} ROLE owner PASSWORD '{PASSWORD}'", define),
            ModelStatement(f"DROP USER {name}", drop),
            ModelStatement("INFO FOR USERS", lambda draft: sorted(draft.users)),
            ModelStatement("INFO FOR STATE", lambda draft: STATE),
        )
        kind = chance.randrange(5)
        if kind < len(steps):
            return ClientScript((ScriptTransaction((steps[kind],)),), {})
        roles = chance.choice((("serving",), ()))
        return _roles(roles)

    # --- what statements are made of ------------------------------------------------------------

    def _table(self) -> str:
        return self._chance.choice((*TABLES, "t", "t", FLEETING))

    def _id(self) -> int:
        return self._chance.randrange(IDS)

    def _parameter(self, value: Any) -> str:
        name = f"p{len(self._parameters)}"
        self._parameters[name] = value
        return f"${name}"

    def _fields(self) -> Fields:
        fields: Fields = {"n": self._chance.randrange(10)}
        if self._chance.random() < 0.4:
            fields["s"] = "s" * self._chance.choice((1, 5, 700))
        return fields

    # --- writing --------------------------------------------------------------------------------

    def _count_up(self) -> ModelStatement:
        table, id, by = self._chance.choice(("c", "c", "t")), self._chance.randrange(3), self._id()

        def run(draft: Draft) -> Any:
            fields = draft.table(table).get(id, {})
            return [draft.put(table, id, {**fields, "n": fields.get("n", 0) + by})]

        # Drawn from what was drawn already: the story of a seed stays the same.
        added = f"n += {by}" if by % 2 else f"n = fn::added(n, {by})"
        return ModelStatement(f"UPSERT {table}:{id} SET {added}", run)

    def _create(self) -> ModelStatement:
        table, id, fields = self._table(), self._id(), self._fields()

        def run(draft: Draft) -> Any:
            if id in draft.table(table):
                raise ExpectedRefusal("AlreadyExists")
            return [draft.put(table, id, fields)]

        return ModelStatement(f"CREATE {table}:{id} CONTENT {self._parameter(fields)}", run)

    def _create_new(self) -> ModelStatement:
        table, fields = self._table(), self._fields()

        def run(draft: Draft) -> Any:
            draft.table(table)
            return [draft.put(table, next(draft.new_ids), fields)]

        return ModelStatement(
            f"CREATE {table} CONTENT {self._parameter(fields)}", run, makes_id=True
        )

    def _upsert(self) -> ModelStatement:
        table, id, fields = self._table(), self._id(), self._fields()

        def run(draft: Draft) -> Any:
            before = draft.table(table).get(id)
            draft.put(table, id, fields)
            return [NONE if before is None else shown(table, id, before)]

        text = f"UPSERT {table}:{id} CONTENT {self._parameter(fields)} RETURN BEFORE"
        return ModelStatement(text, run)

    def _update(self) -> ModelStatement:
        table, id, by = self._table(), self._id(), self._id()

        def run(draft: Draft) -> Any:
            fields = draft.table(table).get(id)
            if fields is None:
                return []
            return [draft.put(table, id, {**fields, "n": fields["n"] + by})]

        return ModelStatement(f"UPDATE {table}:{id} SET n = n + {by}", run)

    def _update_where(self) -> ModelStatement:
        table, low = self._table(), self._chance.randrange(10)

        def run(draft: Draft) -> Any:
            met = [(id, fields) for id, fields in draft.rows(table) if fields["n"] < low]
            return [draft.put(table, id, {**fields, "n": fields["n"] + 3}) for id, fields in met]

        added = "n += 3" if low % 2 else "n = n + 3"
        return ModelStatement(f"UPDATE {table} SET {added} WHERE n < {low}", run)

    def _unset(self) -> ModelStatement:
        table, id = self._table(), self._id()

        def run(draft: Draft) -> Any:
            fields = draft.table(table).get(id)
            if fields is None:
                return []
            return [draft.put(table, id, {"n": fields["n"]})]

        return ModelStatement(f"UPDATE {table}:{id} UNSET s", run)

    def _delete(self) -> ModelStatement:
        table, id = self._table(), self._id()

        def run(draft: Draft) -> Any:
            return [draft.remove(table, id)] if id in draft.table(table) else []

        return ModelStatement(f"DELETE {table}:{id} RETURN BEFORE", run)

    def _delete_where(self) -> ModelStatement:
        table, low = self._table(), self._chance.randrange(6, 30)
        most = None if low % 3 else 2

        def run(draft: Draft) -> Any:
            met = [id for id, fields in draft.rows(table) if fields["n"] >= low]
            for id in met[:most]:
                draft.remove(table, id)
            return []

        limit = "" if most is None else f" LIMIT {most}"
        return ModelStatement(f"DELETE {table} WHERE n >= {low}{limit}", run)

    def _insert(self) -> ModelStatement:
        table, chance = self._table(), self._chance
        ids = [self._id() for _ in range(chance.randrange(1, 4))]
        rows = [{"id": id, **self._fields()} for id in ids]
        taken = chance.choice(("", " IGNORE", " ON DUPLICATE UPDATE SET n = n + 2"))

        def run(draft: Draft) -> Any:
            draft.table(table)
            answers = []
            if "UPDATE" in taken and len(set(ids)) < len(ids):
                raise ExpectedRefusal("AlreadyExists")  # a statement never meets its own rows
            for row in rows:
                id, fields = row["id"], {name: row[name] for name in row if name != "id"}
                present = draft.table(table).get(id)
                if present is None:
                    answers.append(draft.put(table, id, fields))
                elif not taken:
                    raise ExpectedRefusal("AlreadyExists")
                elif "UPDATE" in taken:
                    answers.append(draft.put(table, id, {**present, "n": present["n"] + 2}))
            return answers

        return ModelStatement(f"INSERT INTO {table} {self._parameter(rows)}{taken}", run)

    def _insert_many(self) -> ModelStatement:
        """Insert more rows than go to the engine in one step."""
        first = 100 + self._chance.randrange(60)
        rows = [{"id": id, "n": id} for id in range(first, first + self._chance.randrange(10, 30))]

        def run(draft: Draft) -> Any:
            return [
                draft.put("u", row["id"], {"n": row["n"]})
                for row in rows
                if row["id"] not in draft.table("u")
            ]

        return ModelStatement(f"INSERT INTO u {self._parameter(rows)} IGNORE", run)

    def _each(self) -> ModelStatement:
        table = self._table()
        ids = [self._id() for _ in range(self._chance.randrange(1, 4))]

        def run(draft: Draft) -> Any:
            for id in ids:
                fields = draft.table(table).get(id)
                if fields is not None:
                    draft.put(table, id, {**fields, "n": fields["n"] + 1})
            return NONE

        records = self._parameter([RecordId(table, id) for id in ids])
        return ModelStatement(f"FOR $r IN {records} {{ UPDATE $r SET n = n + 1; }}", run)

    def _delete_if(self) -> ModelStatement:
        """Delete if enough records exist: two concurrent transactions must not both find the last
        (write skew)."""
        table, id, least = self._chance.choice(TABLES), self._id(), self._chance.randrange(3, 8)

        def run(draft: Draft) -> Any:
            if len(draft.table(table)) <= least:
                return NONE
            return [draft.remove(table, id)] if id in draft.table(table) else []

        some = f"array::len((SELECT VALUE n FROM {table})) > {least}"
        return ModelStatement(f"IF {some} {{ DELETE {table}:{id} RETURN BEFORE }}", run)

    def _look(self) -> ModelStatement:
        table = self._chance.choice(TABLES)

        def run(draft: Draft) -> Any:
            draft.variables["seen"] = len(draft.table(table))
            return NONE

        return ModelStatement(f"LET $seen = array::len((SELECT VALUE n FROM {table}))", run)

    def _note(self) -> ModelStatement:
        """Write the count that `_look` read: correct only if no commit came in between."""
        id = self._chance.randrange(200, 204)

        def run(draft: Draft) -> Any:
            return [draft.put("u", id, {"n": draft.variables["seen"]})]

        return ModelStatement(f"UPSERT u:{id} CONTENT {{ n: $seen }}", run)

    # --- cache keys -----------------------------------------------------------------------------

    def _key(self) -> str:
        return self._chance.choice(KEYS)

    def _set(self) -> ModelStatement:
        key, value = self._key(), self._id()
        when = self._chance.choice(("", "", " IF ABSENT", " IF PRESENT"))

        def run(draft: Draft) -> Any:
            written = not when or (key in draft.entries) == when.endswith("PRESENT")
            if written:
                draft.set(key, value)
            return {"written": written}

        return ModelStatement(f"SET '{key}' IN {SPACE} VALUE {value}{when}", run)

    def _incr(self) -> ModelStatement:
        key, by = self._key(), self._id()

        def run(draft: Draft) -> Any:
            draft.set(key, draft.entries.get(key, 0) + by)
            return {"value": draft.entries[key]}

        return ModelStatement(f"INCR '{key}' IN {SPACE} BY {by}", run)

    def _swap(self) -> ModelStatement:
        key, expect, value = self._key(), self._id(), self._id()

        def run(draft: Draft) -> Any:
            written = draft.entries.get(key) == expect
            if written:
                draft.set(key, value)
            return {"written": written}

        return ModelStatement(f"SWAP '{key}' IN {SPACE} EXPECT {expect} VALUE {value}", run)

    def _delete_key(self) -> ModelStatement:
        key = self._key()

        def run(draft: Draft) -> Any:
            deleted = draft.entries.pop(key, None) is not None
            if deleted:
                draft.wrote = True
                draft.puts.discard((SPACE, key))
            return {"deleted": deleted}

        return ModelStatement(f"DELETE '{key}' FROM {SPACE}", run)

    def _get(self) -> ModelStatement:
        key = self._key()

        def run(draft: Draft) -> Any:
            if key not in draft.entries:
                return NONE
            return {"value": draft.entries[key], "ttl": None}

        return ModelStatement(f"GET '{key}' FROM {SPACE}", run)

    def _fleeting(self) -> ModelStatement:
        """Use keys that expire, locks and large values, which the node sweeps meanwhile."""
        key = f"'{EXPIRING_KEY} {self._chance.randrange(4)}'"
        lasts = self._chance.choice(("1ms", "5ms", "40ms", "1h"))
        large = self._parameter("v" * self._chance.choice((1, 100, 20_000)))

        def run(draft: Draft) -> Any:
            draft.perhaps = True
            return ANYTHING

        text = self._chance.choice((
            f"SET {key} IN {SPACE} VALUE {large} EXPIRE {lasts}",
            f"SET {key} IN {SPACE} VALUE 1 EXPIRE {lasts} IF ABSENT",
            f"LOCK {key} IN {SPACE} HOLDER 'h{self._id()}' EXPIRE {lasts}",
            f"UNLOCK {key} IN {SPACE} HOLDER 'h{self._id()}'",
            f"EXPIRE {key} IN {SPACE} {lasts}",
            f"PERSIST {key} IN {SPACE}",
            f"DELETE {key} FROM {SPACE}",
            f"GET {key} FROM {SPACE}",
            f"KEYS FROM {SPACE} PREFIX '{EXPIRING_KEY}'",
        ))  # fmt: skip
        return ModelStatement(text, run)

    # --- topics ---------------------------------------------------------------------------------

    def _publish(self) -> ModelStatement:
        chance, values = self._chance, [self._id() for _ in range(self._chance.choice((1, 1, 3)))]
        expect = chance.randrange(12) if chance.random() < 0.1 else None

        def run(draft: Draft) -> Any:
            last = len(draft.messages)
            if expect is not None and expect != last:
                raise ExpectedRefusal("AssertFailed")
            draft.messages += tuple(values)
            draft.wrote = True
            if len(values) == 1:
                return {"position": last + 1, "duplicate": False}
            return {"first": last + 1, "last": last + len(values), "count": len(values)}

        said = f"VALUE {values[0]}" if len(values) == 1 else f"VALUES {values}"
        said += chance.choice(("", "", f" KEY 'k{values[0]}'", " HEADERS { h: 'x' }", " DELAY 3ms"))
        return ModelStatement(
            f"PUBLISH INTO {TOPIC} {said}" + ("" if expect is None else f" EXPECT {expect}"), run
        )

    def _read_topic(self) -> ModelStatement:
        after, limit = self._chance.randrange(12), self._chance.randrange(1, 6)

        def run(draft: Draft) -> Any:
            first = max(after, draft.trimmed)
            some = draft.messages[first : first + limit]
            return [AtLeast(position=n, value=v) for n, v in enumerate(some, first + 1)]

        return ModelStatement(f"READ FROM {TOPIC} AFTER {after} LIMIT {limit}", run)

    def _trim(self) -> ModelStatement:
        before = self._chance.randrange(1, 8)

        def run(draft: Draft) -> Any:
            trimmed = max(min(before - 1, len(draft.messages)), draft.trimmed)
            count = trimmed - draft.trimmed
            draft.trimmed = trimmed
            draft.wrote |= count > 0
            return {"trimmed": count}

        return ModelStatement(f"TRIM TOPIC {TOPIC} BEFORE {before}", run)

    def _consume(self) -> ModelStatement:
        """Act as a worker: take, acknowledge, extend. Some receipts are guessed."""
        chance = self._chance
        receipts = [self._receipt() for _ in range(chance.randrange(1, 4))]
        said = f"{TOPIC} AS g RECEIPTS {receipts}"
        return _whatever(
            chance.choice((
                f"TAKE {chance.randrange(1, 5)} FROM {TOPIC} AS g",
                f"TAKE {chance.randrange(1, 5)} FROM {TOPIC} AS g MEMBER 'w'",
                f"ACK {said}",
                f"ACK {said}",
                f"NACK {said} ERROR 'no'",
                f"NACK {said} DELAY 3ms",
                f"EXTEND {said} BY 5ms",
                f"GIVE UP {said}",
                f"PUBLISH INTO {DEAD} VALUE 1 ID 'i{chance.randrange(3)}'",
                f"REDRIVE FROM {DEAD} TO {AGAIN} LIMIT 2",
                f"ALTER GROUP g ON {TOPIC} SET IN FLIGHT {chance.choice((2, 6))}",
                f"DEFINE READER IF NOT EXISTS r ON {TOPIC}",
            ))
        )  # fmt: skip

    def _receipt(self) -> str:
        chance = self._chance
        if self._receipts and chance.random() < 0.9:
            return chance.choice(self._receipts[-8:])
        epoch, attempt = chance.choice((1, 1, 2)), chance.choice((1, 1, 2))
        return f"{named(1)}.1.{epoch}.{chance.randrange(1, 12)}.{attempt}"

    def _wait(self) -> ModelStatement:
        """Wait for messages, while nothing is held: not in a block."""
        return _whatever(
            self._chance.choice((
                f"TAKE 2 FROM {TOPIC} AS g WAIT {self._chance.choice(('1ms', '20ms', '1s'))}",
                f"READ FROM {AGAIN} AFTER 3 WAIT 5ms",
            ))
        )  # fmt: skip

    # --- declaring ------------------------------------------------------------------------------

    def _define(self) -> ModelStatement:
        skip = self._chance.random() < 0.5

        def run(draft: Draft) -> Any:
            if FLEETING in draft.tables and not skip:
                raise ExpectedRefusal("AlreadyExists")
            return _skip(draft, FLEETING)

        return ModelStatement(f"DEFINE TABLE {'IF NOT EXISTS ' if skip else ''}{FLEETING}", run)

    def _drop(self) -> ModelStatement:
        def run(draft: Draft) -> Any:
            draft.table(FLEETING)
            del draft.tables[FLEETING]
            draft.wrote = True
            draft.puts = {(table, id) for table, id in draft.puts if table != FLEETING}
            return NONE

        return ModelStatement(f"DROP TABLE {FLEETING}", run)

    def _index(self) -> ModelStatement:
        name = self._chance.choice(list(INDEXES))
        table, fields = INDEXES[name]

        form = self._chance.choice(("", " IF NOT EXISTS", " OVERWRITE", "DROP"))

        def run(draft: Draft) -> Any:
            there = name in draft.indexes
            if not form and there:
                raise ExpectedRefusal("AlreadyExists")
            if form == "DROP" and not there:
                raise ExpectedRefusal("Unknown")
            if form == "DROP":
                draft.indexes.remove(name)
                draft.wrote = True
            elif form == " OVERWRITE" or not there:
                draft.indexes.add(name)
                draft.wrote = True
            return NONE

        if form == "DROP":
            return ModelStatement(f"DROP INDEX {name} ON {table}", run)
        return ModelStatement(f"DEFINE INDEX{form} {name} ON {table} FIELDS {fields}", run)

    # --- reading --------------------------------------------------------------------------------

    def _select(self) -> ModelStatement:
        return _all_of(self._table())

    def _count(self) -> ModelStatement:
        return _count_of(self._table())

    def _info_table(self) -> ModelStatement:
        table = self._table()

        def run(draft: Draft) -> Any:
            return AtLeast(name=table, records=len(draft.table(table)))

        return ModelStatement(f"INFO FOR TABLE {table}", run)

    def _select_range(self) -> ModelStatement:
        table, low = self._table(), self._id()
        high = low + self._id()

        def run(draft: Draft) -> Any:
            rows = draft.rows(table)
            return [
                shown(table, id, fields)
                for id, fields in rows
                if isinstance(id, int) and low <= id < high
            ]

        return ModelStatement(f"SELECT * FROM {table}:{low}..{high}", run)

    def _select_where(self) -> ModelStatement:
        table, low = self._table(), self._id()

        def run(draft: Draft) -> Any:
            found = (fields["n"] for _, fields in draft.rows(table))
            met = [n for n in found if n > low]
            return sorted(set(met) if low % 2 else met, reverse=True)

        what = "DISTINCT VALUE n" if low % 2 else "VALUE n"
        return ModelStatement(f"SELECT {what} FROM {table} WHERE n > {low} ORDER BY n DESC", run)

    def _select_records(self) -> ModelStatement:
        table, ids = self._table(), [self._id(), self._id()]

        def run(draft: Draft) -> Any:
            rows = draft.table(table)
            return [shown(table, id, rows[id]) for id in ids if id in rows]

        return ModelStatement(
            f"SELECT * FROM {self._parameter([RecordId(table, id) for id in ids])}", run
        )


STATE = "what INFO FOR STATE answers"
"""Placeholder for the state hash: the checker computes it by itself."""


def _step_of(make: Callable[[], Said]) -> Callable[[], ModelStatement]:
    return lambda: ModelStatement(*make())


def _roles(roles: tuple[str, ...]) -> ClientScript:
    text = f"DEFINE NODE ROLES {', '.join(roles) or 'NONE'}"
    return ClientScript(
        (ScriptTransaction((ModelStatement(text, lambda draft: NONE),)),), {}, roles=roles
    )


def _all_of(table: str) -> ModelStatement:
    def run(draft: Draft) -> Any:
        return [shown(table, id, fields) for id, fields in draft.rows(table)]

    return ModelStatement(f"SELECT * FROM {table}", run)


def _count_of(table: str) -> ModelStatement:
    return ModelStatement(
        f"SELECT count() FROM {table} GROUP ALL",
        lambda draft: [{"count": len(draft.table(table))}],
    )


def _work(passes: int) -> ModelStatement:
    """Loop for a while without an effect: other scripts run in between."""
    return ModelStatement(f"FOR $i IN 1..={passes} {{ LET $y = $i; }}", lambda draft: NONE)


def _whatever(text: str) -> ModelStatement:
    """Return a step whose writes and answer the model can't predict."""

    def run(draft: Draft) -> Any:
        draft.perhaps = True
        return ANYTHING

    return ModelStatement(text, run)


def _throw(draft: Draft) -> Any:
    raise ExpectedRefusal("Thrown")
