"""One run of one script: each statement a transaction of its own, or part of that of its block.

Everything here runs inside the script's greenlet and is synchronous; see `turns.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from actors.commits import Promise
from actors.rights import Names, untold
from actors.scripts.attempts import Attempts
from actors.scripts.handlers import Handler, handler_of
from actors.scripts.judging import judged
from actors.scripts.kept import Answered, Kept
from actors.scripts.plans import Plan, Plans
from actors.scripts.running import Run
from actors.scripts.services import Services
from actors.scripts.turns import Turn
from actors.topics import HandedOut
from actors.waiting import Queue, Wait
from language import tree
from language.budget import Budget, bounded, is_bounded
from language.rows import Pairs
from language.select import SelectPlan, plan_select
from protocol import limits
from protocol.binary import unpack_object
from protocol.doors import Rng
from protocol.errors import (
    BadRequest,
    Cancelled,
    Conflict,
    DiskFull,
    Draining,
    NotInTransaction,
    Refusal,
    SessionEnded,
    StatementTimeout,
    TooLarge,
)
from protocol.requests import Result, ResultKind, RunScript
from protocol.rights import READ, Verbs
from protocol.values import MICROSECOND, NONE, RecordId, Value
from storage import records
from storage.catalog import Space, Table
from storage.topics import Topic
from storage.transactions import Transaction

_FROM_OUTSIDE = (Cancelled, DiskFull, Draining, SessionEnded, StatementTimeout)
"""Refusals that rest on nothing a script has read."""

FEW_ROWS: Final = 16
FEW_RESULTS: Final = 8
ANSWER_BYTES: Final = limits.STATEMENT_MEMORY_BYTES
"""What all results of one script may hold."""


LARGE_BYTES: Final = 256 * limits.KIB
"""Changes of a transaction from which on they are encoded before its commit, in steps."""


class Place(NamedTuple):
    """Where a script stands: names, not yet looked up."""

    namespace: str | None
    database: str | None


class Returned(Exception):
    """RETURN: ends the script with a value. What its transaction wrote until then is committed,
    unless that ends in CANCEL."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Execution:
    """The state of a run. It is also the `language.env.Env` of its expressions."""

    def __init__(self, services: Services, request: RunScript, plans: Plans, turn: Turn) -> None:
        self.services = services
        self.rights = services.rights
        self.request = request
        self.caller = request.caller
        self.plans = plans
        self.plan: Plan
        self.turn = turn
        self.tick = turn.tick
        self.place = Place(request.namespace, request.database)
        self.variables: dict[str, Any] = request.parameters  # type: ignore[assignment]
        """Copied before the first statement: what came with the request stays as it came."""
        self.results: list[Result] = []
        self.generation = services.committer.generation
        """The committer's generation when `sequence` was given."""
        self.transaction: Transaction
        self._held = Budget(ANSWER_BYTES, self.tick)
        """What its results hold together; those that are surely small are not weighed."""
        self.afterwards: list[Callable[[], None]] = []
        """What to do once the transaction has committed."""

    # What a short script never changes stands here: setting it for each one costs more than its
    # statement does.

    sequence = 0
    """The newest sequence that the answer shows: it is sent once that is durable."""
    began = False
    """Whether `transaction` is set."""
    listed = False
    """Whether it stands among the running: from its first pause on. Nobody sees a run before."""
    iterations = 0
    rows_read = 0
    """By the statement at hand, its subqueries included."""
    _at: int | None = None
    _began_us = 0
    """When the statement at hand began."""
    _ids = 0
    written = 0
    """The sequence of the last commit; 0 when there was none."""
    read_at = 0
    """The sequence that the last transaction read at."""
    in_block = False
    reason: str | None = None
    wait: Wait | None = None
    """Of the statement at hand, which may have to wait for messages."""
    handed_out: tuple[HandedOut, ...] = ()
    """What its answer hands out to the caller."""
    hands_out = False
    """Whether messages are handed out to the caller by the transaction at hand."""
    goes_on = False
    """Whether the statement at hand has done a part of its work that is to be a commit of its own,
    and is to run again at once: it has answered nothing so far."""
    waits = False
    """Whether it has found nothing and is to wait: it runs again from its beginning then."""
    waiting = False
    """Whether it waits at the moment, for messages or another's barrier, and holds no
    transaction."""
    _attempts: Attempts | None = None
    """Of the transaction at hand, once it has lost."""
    _nested = 0
    """Blocks of IF and FOR around the statement at hand."""
    _kept: Kept | None = None
    """What it keeps from one statement to the next; None: nothing so far."""
    _answered: Answered | None = None
    """What subqueries of the statement at hand have answered; None: nothing so far."""

    # --- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end or to the first refusal, which is raised with its place in the script.

        :raises Refusal: what was committed before it stays committed and its results stand
        """
        self._check_variables(len(self.variables))
        if self.request.timeout_us is not None:
            self.turn.push_deadline(self.request.timeout_us)
        self.plan = plan = self.plans.get(self.request.script, self.tick)
        if not plan.about_node_only:
            self.services.roles.check_answering()
        for first, end in plan.transactions:
            if self._transact(first, end):
                return

    def _transact(self, first: int, end: int) -> bool:
        """Run statements `first` to `end` as one transaction, again when it lost a race, when it
        goes on in another commit, or when it waits and there may be something now. Answers whether
        RETURN ended the script."""
        place, variables, done = self.place, self.variables, len(self.results)
        held, kept, lost = self._held.held, self._kept, False
        shown, written = (self.sequence, self.generation), self.written
        attempts = self._attempts = None
        try:
            while True:
                if lost:
                    assert attempts is not None, "it lost no race"
                    self._rest(first, attempts)
                    lost = False
                self.place, self.variables = place, variables.copy()
                self._kept = None if kept is None else kept.copy()
                self._held.held = held
                self._begin(done)
                if attempts is not None:
                    attempts.begins(self.transaction)
                try:
                    ended = self._statements(first, end, done)
                    self._commit(first, end)
                    if not (self.waits or self.goes_on):
                        return ended
                except Refusal as refusal:
                    del self.results[done:]
                    attempts = self._attempts = attempts or self._first_attempt()
                    if not attempts.may_go_on(
                        refusal, self.transaction, lost=self._runs_again(refusal)
                    ):
                        raise self._located(refusal, first) from refusal.__cause__
                    lost = True
                finally:
                    self._release()
                if not lost:
                    del self.results[done:]
                    if attempts is not None:
                        attempts.leave()
                    if self.written != written:
                        shown, written = (self.sequence, self.generation), self.written
                    # It has answered nothing yet, so it shows nothing of what it saw: should that
                    # be taken back, it finds what there is then.
                    self.sequence, self.generation = shown
                    if self.goes_on:
                        self._part_done(first)
                    else:
                        self._wait(first)
        finally:
            if attempts is not None:
                attempts.leave()
            if self.wait is not None:
                self.wait.leave()
                self.wait = None

    def _first_attempt(self) -> Attempts:
        return Attempts(self.services.committer, self.turn, self.request.request)

    def _rest(self, number: int, attempts: Attempts) -> None:
        """Before a transaction that lost a race, or was barred, runs again. :raises Refusal: the
        script is ended"""
        try:
            if attempts.must_wait:
                self.check_session()
                self._forget()
                with self._aside():
                    attempts.wait()
            attempts.rest()
        except Refusal as refusal:
            raise self._located(refusal, number) from refusal.__cause__

    def _forget(self) -> None:
        """Keep nothing of the transaction that has ended, while it waits."""
        self.transaction = self.services.committer.begin()
        self.transaction.release()

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """While it waits and does no work. :raises Busy: as many wait as may"""
        self.waiting = True
        try:
            with self.services.running.aside(self.caller.surface):
                yield
        finally:
            self.waiting = False

    @property
    def barrier(self) -> bool:
        """Whether nobody commits to what the transaction at hand reads, until it has ended."""
        return self._attempts is not None and self._attempts.barrier

    def _part_done(self, number: int) -> None:
        """The next part of a statement begins when the one before is released: no more than one is
        ever in flight. :raises Refusal: the script is ended, or the part was taken back"""
        committer, promise, told = self.services.committer, self.promise, list[Any]()

        def hear(lost: BaseException | None) -> None:
            told.append(lost)
            self.turn.wake()

        committer.when_released(promise, hear)
        try:
            while not told:
                self.turn.park()
            if told[0] is not None:
                raise told[0]
        except Refusal as refusal:
            committer.stop_waiting(promise, hear)
            raise self._located(refusal, number) from refusal.__cause__

    def _wait(self, number: int) -> None:
        """Stand in line, until there may be something or the time is up. :raises Refusal: the
        script is ended"""
        wait = self.wait
        assert wait is not None, "a statement waits for nothing"
        try:
            self.check_session()
            wait.join()
            if not wait.woken:
                with self._aside():
                    self.turn.park(wait.until_us)
        except Refusal as refusal:
            raise self._located(refusal, number) from refusal.__cause__
        if self.services.clock.monotonic_us() >= wait.until_us:
            wait.over = True

    def _runs_again(self, refusal: Refusal) -> bool:
        """Whether the transaction lost a race, or was refused for what it read of a commit that
        was taken back since."""
        if type(refusal) is Conflict:
            return True
        return self.transaction.withdrawn and type(refusal) not in _FROM_OUTSIDE

    def _release(self) -> None:
        """End the transaction. What it saw in flight the answer shows, a refusal too; not so when
        that was taken back: then nothing that it read is shown."""
        self.transaction.release()
        if not self.transaction.withdrawn:
            self.depends_on(self.transaction.saw)
        # What follows a commit names this run, and would keep it and all that it has held: a cycle
        # that has outlived the young collections is looked at once in 50 million containers.
        self.afterwards.clear()

    def depends_on(self, sequence: int) -> None:
        """The answer shows this commit; it is still there at this moment."""
        if sequence > self.sequence:
            self.sequence = sequence
            self.generation = self.services.committer.generation

    @property
    def promise(self) -> Promise:
        """What the answer has to wait for."""
        return Promise(self.sequence, self.generation)

    @property
    def due_us(self) -> int | None:
        """When its answer is due, on the monotonic clock: the time that the request was given is
        over, or that of the statement it has ended with. None: it was given none."""
        due_us = self.turn.ends_us
        last = None if self._at is None else self.plan.script.statements[self._at]
        timeout: timedelta | None = getattr(last, "timeout", None)
        if timeout is None:
            return due_us
        own_us = self._began_us + timeout // MICROSECOND
        return own_us if due_us is None else min(own_us, due_us)

    def _check_kept(self) -> None:
        """:raises DiskFull: what this script has committed or seen before was taken back"""
        if self.services.committer.was_taken_back(self.promise):
            raise DiskFull("no room for the log: an earlier commit of the script was taken back")

    def at_statement(self) -> tuple[int, str] | None:
        """The statement being run; see `running.Progress`."""
        if self._at is None:
            return None
        number, text = self._at, self.plan.redacted(self._at, self._at + 1)
        return number + 1, text

    def _begin(self, done: int) -> None:
        self._check_kept()
        self.transaction = self.services.committer.begin()
        self.began = True
        self.read_at = self.transaction.sequence
        self._ids = 0
        self.waits = self.goes_on = self.hands_out = False
        self._nested = 0
        self.reason = None
        del self.results[done:]

    def _statements(self, first: int, end: int, done: int) -> bool:
        statements = self.plan.script.statements
        self.in_block = type(statements[first]) is tree.Begin
        ended = False
        for number in range(first, end):
            self._at = number
            try:
                if number:
                    self.tick()  # a script of a million short statements must not hold the loop
                self._statement(statements[number])
            except Returned as returned:
                self._answer(returned.value, "value", 0)
                ended = True
                break
            except Refusal as refusal:
                raise self._located(refusal, number) from refusal.__cause__
        if type(statements[end - 1]) is tree.Cancel:
            self._cancel(done)
        return ended

    def _cancel(self, done: int) -> None:
        """Nothing of the block was written, so nothing of it is answered."""
        answered, read_at = len(self.results) - done, self.read_at
        if self.transaction.withdrawn:
            raise Conflict("a commit that this transaction had seen was taken back: disk full")
        self._release()
        self._begin(done)
        self.read_at = read_at
        self.results.extend([Result(NONE, "none", 0, 0)] * answered)

    def _statement(self, statement: Any) -> None:
        handler = handler_of(statement)
        self._began_us = began_us = self.services.clock.monotonic_us()
        self.rows_read = 0
        self._answer(self._run(handler, statement), handler.kind, began_us)

    def _run(self, handler: Handler, statement: Any) -> Value:
        """Run a statement, which may stand inside another. What its subqueries answered is
        forgotten with it: the next statement reads what this one has written."""
        outer, self._answered = self._answered, None
        try:
            return self._timed(handler, statement)
        finally:
            self._answered = outer

    def _timed(self, handler: Handler, statement: Any) -> Value:
        timeout: timedelta | None = getattr(statement, "timeout", None)
        if timeout is None:
            return self.perform(handler, statement)
        self.turn.push_deadline(timeout // MICROSECOND)
        try:
            return self.perform(handler, statement)
        finally:
            self.turn.pop_deadline()

    def perform(self, handler: Handler, statement: Any) -> Value:
        """Judge what a statement needs, and run it with what it names.

        :raises NotWritable, Unknown, NotAllowed: the node, or the caller, may not
        """
        if handler.writes:
            # The commit asks too; asked here, nothing is read, hashed or waited for in vain.
            self.services.committer.check_writable()
        things = judged(self, self.plan.claims(statement))
        try:
            return handler.run(self, statement, *things)
        except Refusal as refusal:
            table = refusal.detail.get("table")
            if isinstance(table, str) and not self._may_read_named(table):
                raise untold(refusal, table) from refusal.__cause__
            raise

    def _answer(self, value: Value, kind: ResultKind, began_us: int) -> None:
        took_us = self.services.clock.monotonic_us() - began_us if began_us else 0
        rows = len(value) if kind == "rows" and isinstance(value, list) else 0
        if rows > FEW_ROWS or len(self.results) >= FEW_RESULTS:
            self._held.sample(value if isinstance(value, list) else [value])
        self.results.append(Result(value, kind, rows, took_us))

    def pause(self) -> None:
        """Called before the loop gets its turn: what was read so far stays as it was read."""
        self.enlist()
        if self.began:
            self.transaction.pause()

    def enlist(self) -> None:
        """Stand among the running, for others to see and to end."""
        if not self.listed:
            self.listed = True
            self.services.running.add(Run(self.request, self.turn, self.turn.began_us, self))

    def _commit(self, first: int, end: int) -> None:
        if self.transaction.size > LARGE_BYTES:
            for _ in self.services.committer.prepare(self.transaction):
                self.tick()
        self._check_kept()
        if self.transaction.withdrawn:
            raise Conflict("a commit that this transaction had seen was taken back: disk full")
        if self.hands_out:
            self.check_session()  # nothing is handed to somebody who has signed out
        if self.transaction.size:
            promise = self.services.committer.commit(
                self.transaction,
                self.caller,
                statement=self.plan.redacted(first, end),
                reason=self.reason or self.request.reason,
            )
            self.written = promise.sequence
            self.depends_on(self.written)
        for follow_up in self.afterwards:
            follow_up()

    def _located(self, refusal: Refusal, number: int) -> Refusal:
        statement = self.plan.script.statements[number]
        line, column = self.plan.script.position(statement.at)
        refusal.detail.setdefault("statement", number + 1)
        refusal.detail.setdefault("line", line)
        refusal.detail.setdefault("column", column)
        return refusal

    # --- for the statements -----------------------------------------------------------------------

    def block(self, block: tree.Block) -> Value:
        """Run the statements of an IF or FOR; the value is that of the last one."""
        value: Value = NONE
        self._answered = None  # what the condition asked is not asked again, and is not held on to
        self._nested += 1
        for statement in block.statements:
            self.tick()
            value = self._run(handler_of(statement), statement)
        self._nested -= 1
        return value

    def nested(self, statement: Any) -> Value:
        """Run a statement that stands inside another; its value."""
        self._nested += 1
        value = self._run(handler_of(statement), statement)
        self._nested -= 1
        return value

    @property
    def is_nested(self) -> bool:
        """Whether what the statement at hand answers may be used by others of its transaction."""
        return self._nested > 0

    @property
    def may_run_again(self) -> bool:
        """Whether the statement at hand is all of its transaction: it stands in no BEGIN … COMMIT,
        IF, FOR or LET."""
        return not (self.in_block or self._nested)

    def check_may_wait(self) -> None:
        """:raises NotInTransaction: others of its transaction would wait with the statement"""
        if not self.may_run_again:
            raise NotInTransaction("WAIT stands in a statement of its own, in no transaction")

    def check_session(self) -> None:
        """:raises SessionEnded: the session that this was sent in has ended meanwhile"""
        session = self.caller.session
        if session is not None and not self.services.sessions.is_open(session):
            raise SessionEnded("the session has ended: sign in again")

    def begin_wait(self, queue: Queue, for_us: int) -> Wait:
        """Have the statement at hand wait for so long at most, if it has to."""
        until_us = self.services.clock.monotonic_us() + for_us
        self.wait = Wait(queue, until_us, self.turn.wake)
        return self.wait

    def bind(self, name: str, value: Any) -> None:
        """Give a variable its value. :raises TooLarge: there are too many, or they hold too much"""
        if name not in self.variables:
            self._check_variables(len(self.variables) + 1)
        self.variables[name] = value
        self.keep(name, value)

    def bind_item(self, name: str, item: Any) -> None:
        """Give a variable what is kept already, as an item of a loop. :raises TooLarge: there are
        too many"""
        if name not in self.variables:
            self._check_variables(len(self.variables) + 1)
        self.variables[name] = item
        self.let_go(name)

    def keep(self, name: str | int, value: Any) -> None:
        """Count a value to what the script keeps; see `Kept.put`. :raises TooLarge:"""
        if self._kept is None:
            self._kept = Kept(self.tick)
        self._kept.put(name, value)

    def let_go(self, name: str | int) -> None:
        """Count what was kept under that name no more."""
        if self._kept is not None:
            self._kept.take(name)

    def _check_variables(self, count: int) -> None:
        if count > limits.VARIABLES:
            raise TooLarge(
                f"a script has at most {limits.VARIABLES} variables", limit=limits.VARIABLES
            )

    def count_read(self, rows: int) -> None:
        """Count rows that the statement has read. :raises TooLarge: more than it may"""
        self.rows_read += rows
        if self.rows_read > limits.ROWS_READ:
            most = limits.ROWS_READ
            raise TooLarge(f"a statement reads at most {most} rows", limit=most)

    def evaluate(self, expression: Any) -> Any:
        """The value of an expression that stands outside any row.

        :raises TooLarge: it grew too large or too deep, as one that holds itself twice, again and
            again, does in a few steps
        """
        value = self.plan.expression(expression)(self)
        return value if is_bounded(expression) else bounded(value, self.tick)

    def new_id(self) -> UUID:
        """An id for a record that was given none."""
        self._ids += 1
        return records.new_id(self.transaction, self._ids)

    # --- what is judged -----------------------------------------------------------------------

    def names(self) -> Names:
        """The database that the script stands in. :raises BadRequest: none is chosen"""
        return self.database_of(None, None)

    def namespace_of(self, name: str | None) -> str:
        """The namespace that a statement names, or stands in. :raises BadRequest: none is chosen"""
        found = name or self.place.namespace
        if found is None:
            raise BadRequest("no namespace is chosen: name one with the request, or USE it first")
        return found

    def database_of(self, namespace: str | None, name: str | None) -> Names:
        """The names of a database, as `namespace_of`."""
        if name is None:
            name = self.place.database
            if name is None:
                raise BadRequest(
                    "no database is chosen: name one with the request, or USE ns.db first"
                )
        return self.namespace_of(namespace), name

    def table(self, name: str, verbs: Verbs) -> Table:
        """A table of the present database. :raises Unknown, NotAllowed:"""
        return self.rights.table(self.transaction, self.caller, self.names(), name, verbs)

    def topic(self, name: str, verbs: Verbs) -> Topic:
        """A topic of the present database. :raises Unknown, NotAllowed:"""
        return self.rights.topic(self.transaction, self.caller, self.names(), name, verbs)

    def space(self, name: str, verbs: Verbs) -> Space:
        """A cache space of the present database. :raises Unknown, NotAllowed:"""
        return self.rights.space(self.transaction, self.caller, self.names(), name, verbs)

    def verbs(self, statement: Any) -> Verbs:
        """What a statement needs of the tables of the records that it names."""
        return self.plan.claims(statement).records

    def may_read(self, table: Table) -> bool:
        """Whether the caller may be told what records of a table hold."""
        return self.rights.holds(self.transaction, self.caller, READ, table)

    def _may_read_named(self, table: str) -> bool:
        try:
            self.table(table, READ)
        except Refusal:
            return False
        return True

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
        """The rows of a subquery; of one that looks at nothing around it the same for all of a
        statement."""
        if self._answered is not None and parent is NONE:
            known = self._answered.get(select)
            if known is not None:
                return known[1]
        outer = self.variables.get("parent", NONE)
        self.variables["parent"] = parent
        try:
            found = self._timed(handler_of(select), select)
        finally:
            self.variables["parent"] = outer
        plan: SelectPlan = self.plan.made(select, plan_select)
        if parent is NONE and plan.is_steady:
            if self._answered is None:
                self._answered = Answered(self.tick)
            self._answered.add(select, found)
        return found

    def pair(self, record: RecordId) -> Pairs | None:
        """A record of the present database as it is stored. :raises Unknown, NotAllowed:"""
        pair = records.pair(self.transaction, self.table(record.table, READ), record.id)
        return None if pair is None else Pairs([pair], lambda _key: record)

    def record(self, record: RecordId, verbs: Verbs = READ) -> dict[str, Any] | None:
        """The fields of a record of the present database, `id` among them.

        :param verbs: what is needed of its table; without READ nothing may come of it but its id
        :raises Unknown, NotAllowed:
        """
        raw = records.read(self.transaction, self.table(record.table, verbs), record.id)
        return None if raw is None else {"id": record, **unpack_object(raw)}
