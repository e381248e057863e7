"""One run of one script: each statement a transaction of its own, or part of that of its block.

Everything here runs inside the script's greenlet and is synchronous; see `turns.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from actors.access import Action, authorise
from actors.scripts.handlers import HANDLERS
from actors.scripts.prepared import Prepared, PreparedScripts
from actors.scripts.services import Services
from actors.scripts.turns import Turn
from language import tree
from protocol import limits
from protocol.binary import unpack_object
from protocol.doors import Rng
from protocol.errors import BadRequest, Conflict, NotInTransaction, Refusal
from protocol.requests import Result, ResultKind, RunScript
from protocol.values import MICROSECOND, NONE, RecordId, Value
from storage import catalog, records
from storage.catalog import Database, Table
from storage.effects import Attribution
from storage.transactions import Transaction

ANSWERED_WHILE_DRAINED = (tree.DefineNode, tree.Info)
"""What a node without the serving role still runs, so that it can be asked and given one."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a script stands: names, not yet looked up."""

    namespace: str | None
    database: str | None


class Returned(Exception):
    """RETURN: ends the script, or the block of its transaction, with a value."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Execution:
    """The state of a run. It is also the `language.env.Env` of its expressions."""

    def __init__(
        self, services: Services, request: RunScript, scripts: PreparedScripts, turn: Turn
    ) -> None:
        self.services = services
        self.request = request
        self.caller = request.caller
        self.scripts = scripts
        self.prepared: Prepared
        self.turn = turn
        self.tick = turn.tick
        self.place = Place(request.namespace, request.database)
        self.variables: dict[str, Any] = dict(request.parameters)
        self.results: list[Result] = []
        self.sequence = 0
        """The newest sequence that the answer shows: it is sent once that is durable."""
        self.iterations = 0
        self.generation = services.committer.generation
        self._ids = 0
        self.transaction: Transaction = services.committer.begin()
        self.transaction.release()  # nothing is read before the first statement
        self.written = 0
        """The sequence of the last commit; 0 when there was none."""
        self.read_at = 0
        """The sequence that the last transaction read at."""
        self.in_block = False
        self.reason: str | None = None
        self.afterwards: list[Callable[[], None]] = []
        """What to do once the transaction has committed."""

    # --- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end or to the first refusal, which is raised with its place in the script.

        :raises Refusal: what was committed before it stays committed and its results stand
        """
        if self.request.timeout_us is not None:
            self.turn.push_deadline(self.request.timeout_us)
        self.prepared = self.scripts.get(self.request.script, self.tick)
        statements = self.prepared.script.statements
        if not all(isinstance(statement, ANSWERED_WHILE_DRAINED) for statement in statements):
            self.services.roles.check_serving()
        blocks = matched_blocks(self.prepared.script)
        at = 0
        while at < len(statements):
            end = blocks.get(at, at) + 1
            if self._transact(at, end):
                return
            at = end

    def _transact(self, first: int, end: int) -> bool:
        """Run statements `first` to `end` as one transaction, again when it lost a race. Answers
        whether RETURN ended the script."""
        place, variables, done = self.place, dict(self.variables), len(self.results)
        for attempt in range(limits.COMMIT_RETRIES + 1):
            self._begin(done)
            try:
                ended = self._statements(first, end, done)
                self._commit(first, end)
                return ended
            except Conflict as conflict:
                if attempt == limits.COMMIT_RETRIES:
                    raise self._located(conflict, first) from None
                self.place, self.variables = place, dict(variables)
            except Refusal:
                del self.results[done:]
                raise
            finally:
                self.transaction.release()
        raise AssertionError("the last attempt returns or raises")

    def _begin(self, done: int) -> None:
        self.transaction = self.services.committer.begin()
        self.read_at = self.transaction.sequence
        self._ids = 0
        self.afterwards.clear()
        self.reason = None
        del self.results[done:]

    def _statements(self, first: int, end: int, done: int) -> bool:
        statements = self.prepared.script.statements
        self.in_block = type(statements[first]) is tree.Begin
        ended = False
        for number in range(first, end):
            try:
                self._statement(statements[number])
            except Returned as returned:
                self._answer(returned.value, "value", 0)
                ended = not self.in_block
                break
            except Refusal as refusal:
                raise self._located(refusal, number) from refusal.__cause__
        if type(statements[end - 1]) is tree.Cancel:
            self._cancel(done)
        return ended

    def _cancel(self, done: int) -> None:
        """Nothing of the block was written, so nothing of it is answered."""
        answered = len(self.results) - done
        self.transaction.release()
        self._begin(done)
        self.results.extend([Result(NONE, "none", 0, 0)] * answered)

    def _statement(self, statement: Any) -> None:
        handler = HANDLERS[type(statement)]
        began_us = self.services.clock.monotonic_us()
        with self.within(getattr(statement, "timeout", None)):
            value = handler.run(self, statement)
        self._answer(value, handler.kind, began_us)

    def _answer(self, value: Value, kind: ResultKind, began_us: int) -> None:
        took_us = self.services.clock.monotonic_us() - began_us if began_us else 0
        rows = len(value) if kind == "rows" and isinstance(value, list) else 0
        self.results.append(Result(value, kind, rows, took_us))

    def pause(self) -> None:
        """Called before the loop gets its turn: what was read so far stays as it was read."""
        self.transaction.pause()

    def _commit(self, first: int, end: int) -> None:
        wrote = self.transaction.size > 0
        if wrote:
            self.services.roles.check_writable()
        sequence = self.services.committer.commit(self.transaction, self._attribution(first, end))
        self.sequence = max(self.sequence, sequence)
        if wrote:
            self.written = sequence
        for follow_up in self.afterwards:
            follow_up()

    def _attribution(self, first: int, end: int) -> Attribution:
        return Attribution(
            by=self.caller.user,
            how=self.caller.surface,
            statement=self.prepared.redacted(first, end),
            reason=self.reason or self.request.reason,
        )

    def _located(self, refusal: Refusal, number: int) -> Refusal:
        statement = self.prepared.script.statements[number]
        line, column = self.prepared.script.position(statement.at)
        refusal.detail.setdefault("statement", number + 1)
        refusal.detail.setdefault("line", line)
        refusal.detail.setdefault("column", column)
        return refusal

    # --- for the statements -----------------------------------------------------------------------

    def block(self, block: tree.Block) -> Value:
        """Run the statements of an IF or FOR; the value is that of the last one."""
        value: Value = NONE
        for statement in block.statements:
            with self.within(getattr(statement, "timeout", None)):
                value = HANDLERS[type(statement)].run(self, statement)
        return value

    def evaluate(self, expression: Any) -> Any:
        """The value of an expression that stands outside any row."""
        return self.prepared.expression(expression)(self)

    @contextmanager
    def within(self, timeout: timedelta | None) -> Iterator[None]:
        """Let ticks raise StatementTimeout once `timeout` has passed."""
        if timeout is None:
            yield
            return
        self.turn.push_deadline(timeout // MICROSECOND)
        try:
            yield
        finally:
            self.turn.pop_deadline()

    def database(self) -> Database:
        """The database the script stands in. :raises BadRequest: none is chosen"""
        place, transaction = self.place, self.transaction
        if place.database is None:
            raise BadRequest("no database is chosen: name one with the request, or USE ns.db first")
        namespace = catalog.namespace(transaction, chosen(place.namespace))
        return catalog.database(transaction, namespace, place.database)

    def new_id(self) -> UUID:
        """An id for a record that was given none."""
        self._ids += 1
        return records.new_id(self.transaction, self._ids)

    def authorise(self, verb: str, table: Table | None = None) -> None:
        """:raises NotAllowed: the caller may not do that here"""
        authorise(self.caller, Action(verb, self._noun(table)))

    def _noun(self, table: Table | None) -> str:
        place = self.place
        if table is not None:
            return f"TABLE {place.namespace}.{place.database}.{table.name}"
        return "NODE"

    def table(self, name: str) -> Table:
        """A table of the present database. :raises Unknown: it has none of that name"""
        return catalog.table(self.transaction, self.database(), name)

    # --- the environment of expressions -----------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The transaction's time."""
        return self.transaction.now

    @property
    def rng(self) -> Rng:
        """The transaction's randomness."""
        return self.transaction.rng

    def select(self, select: tree.Select, parent: Value) -> Value:
        """The rows of a subquery."""
        outer = self.variables.get("parent", NONE)
        self.variables["parent"] = parent
        try:
            with self.within(select.timeout):
                return HANDLERS[tree.Select].run(self, select)
        finally:
            self.variables["parent"] = outer

    def record(self, record: RecordId) -> dict[str, Any] | None:
        """The fields of a record of the present database, `id` among them."""
        raw = records.read(self.transaction, self.table(record.table), record.id)
        return None if raw is None else {"id": record, **unpack_object(raw)}


def chosen(namespace: str | None) -> str:
    """The namespace that a script stands in. :raises BadRequest: none is chosen"""
    if namespace is None:
        raise BadRequest("no namespace is chosen: name one with the request, or USE it first")
    return namespace


def matched_blocks(script: tree.Script) -> dict[int, int]:
    """Where each BEGIN's block ends: the offset of its COMMIT or CANCEL by that of its BEGIN.

    :raises NotInTransaction: one without the other, or a BEGIN inside a block
    """
    blocks: dict[int, int] = {}
    begun: int | None = None
    for number, statement in enumerate(script.statements):
        kind = type(statement)
        problem = None
        if kind is tree.Begin:
            problem = None if begun is None else "BEGIN inside a transaction"
            begun = number if begun is None else begun
        elif kind is tree.Commit or kind is tree.Cancel:
            if begun is None:
                problem = f"{kind.__name__.upper()} without BEGIN"
            else:
                blocks[begun], begun = number, None
        if problem:
            raise _misplaced(script, number, problem)
    if begun is not None:
        raise _misplaced(script, begun, "BEGIN without COMMIT or CANCEL")
    return blocks


def _misplaced(script: tree.Script, number: int, problem: str) -> NotInTransaction:
    line, column = script.position(script.statements[number].at)
    return NotInTransaction(problem, statement=number + 1, line=line, column=column)
