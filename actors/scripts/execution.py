"""Execution context of a statement: database and variables of its script, transaction, rights.

All of it runs synchronously inside the script's fiber; see `fiber.py`. `transactions.py` divides a
script into transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from actors.execution.fiber import Fiber
from actors.messages.operations import telling
from actors.redaction import redacted
from actors.scripts import analyzing, calling, text_search
from actors.scripts.announcing import announce
from actors.scripts.authorizer import Authorizer, Place, database_in
from actors.scripts.denied_access import record_denied
from actors.scripts.handlers import Audited
from actors.scripts.named_snapshots import NamedSnapshot
from actors.scripts.plans import Plan, rowless
from actors.scripts.script_state import ScriptState, StatementCache
from actors.scripts.services import Services
from actors.scripts.steps import Step
from actors.topics.service import DeliveredMessages
from actors.topics.waiting import StatementWait, WaitQueue
from language import tree
from language.pieces import cost_of
from language.search import analysis
from language.search.terms import Query
from language.sizing import WorkingMemory, made
from protocol import limits, order
from protocol.binary import unpack_object
from protocol.environment import Rng
from protocol.errors import (
    FROM_OUTSIDE,
    BadRequest,
    Conflict,
    NotAllowed,
    NotInTransaction,
    Refusal,
    TooLarge,
    Unknown,
)  # fmt: skip
from protocol.paths import Path
from protocol.requests import HeldFile, Result, RunScript
from protocol.rights import NOTHING, READ, Verbs
from protocol.values import NONE, RecordId, Value
from storage.catalog.tables import Field, Table
from storage.records import records
from storage.txn.tickets import NO_COMMIT, CommitTicket
from storage.txn.transaction import Transaction
from storage.txn.write_set import UNCHANGED

SEEN_ROLLED_BACK: Final = "a commit that this transaction had read was rolled back"
"""Message of the conflict that ends a transaction which has read a commit rolled back since."""

FOLLOWED: Final = 64
"""Cost of looking up the record behind a link, as `Env.tick` takes it."""

_UNTOLD: Final = -1
"""Replaces a count that would disclose the number of records."""

_UNBOUND: Final = object()
"""Marks a variable that is not bound."""


class Returned(Exception):
    """RETURN: ends the script with a value. Its transaction's writes so far are committed, unless
    the transaction ends in CANCEL."""

    def __init__(self, value: Value) -> None:
        self.value = value


class StatementWork(Protocol):
    """State of a statement that takes several commits."""

    def leave(self) -> None:
        """Clean up: the statement has ended, complete or not."""


class Execution:
    """Run of a script, as its statements see it. Implements `language.env.Env`."""

    plan: Plan
    transaction: Transaction

    def __init__(self, services: Services, request: RunScript, fiber: Fiber) -> None:
        self.services = services
        self.rights = services.rights
        self.request = request
        self.caller = request.caller
        self.fiber = fiber
        self.tick = fiber.tick
        self.place: Place = (request.namespace, request.database)
        self.variables: dict[str, Any] = request.parameters  # type: ignore[assignment]
        """Bound variables. Copied before the first statement: the request's parameters stay
        unchanged."""
        self.memory = WorkingMemory()
        """Memory held by its text and by the current statement."""
        self.results: list[Result] = []
        self.afterwards: list[Callable[[], None]] = []
        """Callbacks after the transaction's commit."""
        # Set here: a compiled class loses a None default whose type is a Protocol.
        self.statement_work: StatementWork | None = None
        """State of the current statement between its commits, if it takes several."""

    # Class attributes are defaults: to set them for each short script costs more than its
    # statement does.

    holds: tuple[Callable[[], None], ...] = ()
    """Checks at the commit: each raises `Conflict` if its condition no longer holds."""
    moment: NamedSnapshot | None = None
    """Pinned snapshot that it reads in; None: each of its transactions reads the newest state at
    its begin."""
    ticket = NO_COMMIT
    """Newest commit that its transactions so far have made or seen: the answer waits for it."""
    beside = NO_COMMIT
    """Newest commit that the current transaction rests on and has not read itself."""
    iterations = 0
    """Iterations of all its loops so far."""
    rows_read = 0
    """Rows read by the current statement, its subqueries included."""
    _changed: int | None = None
    """Records created, changed or deleted by the current statement; None: it writes none."""
    says_written = False
    """True if the answer of a statement of the current transaction reports a write, even one
    without a change."""
    _ids = 0
    written = NO_COMMIT
    """Ticket of its own last commit."""
    in_block = False
    audited = Audited.NEVER
    """Cases in which the audit trail keeps the current transaction, by its statements so far."""
    reason: str | None = None
    wait: StatementWait | None = None
    """Wait of the current statement, which may have to wait for messages."""
    handed_out: tuple[DeliveredMessages, ...] = ()
    """Messages that its answer delivers."""
    hands_out = False
    """True if the current transaction delivers messages to the caller."""
    goes_on = False
    """True if the current statement has done a part of its work that is to be a commit of its own.
    It runs again at once; it has no result yet."""
    waits = False
    """True if the current statement has found nothing and is to wait; then it runs again from its
    beginning."""
    file: HeldFile | None = None
    """File handed over beside its answer."""
    distances: dict[tuple[str, bytes], float] | None = None
    """Distances of the rows that NEAREST of the innermost SELECT has found, by table and id."""
    texts: text_search.TextScope | None = None
    """Tables that the innermost SELECT with `@@` reads."""
    calls = 0
    """Nested calls of database functions that are running."""
    _reads_newest = False
    """True if it has to read pending commits too: released state does not suffice."""
    _at: int | None = None
    """Number of the current statement in the script."""
    _nested = 0
    """Blocks of IF and FOR around the current statement."""
    _kept: ScriptState | None = None
    """Values kept from one statement to the next; None: nothing so far."""
    _cached: StatementCache | None = None
    """Cached results of the current statement; None: nothing so far."""

    # --- statements -------------------------------------------------------------------------------

    def run_step(self, step: Step) -> Value:
        """Run a statement, possibly nested. Cached results are dropped at its end: the next
        statement reads its writes."""
        outer, self._cached = self._cached, None
        held = self.memory.held
        try:
            return self.timed(step)
        finally:
            self._cached = outer
            self.memory.return_to(held)

    def timed(self, step: Step) -> Value:
        """Like `perform`, within the statement's own TIMEOUT."""
        if step.timeout_us is None:
            return self.perform(step)
        self.fiber.push_deadline(step.timeout_us)
        try:
            return self.perform(step)
        finally:
            self.fiber.pop_deadline()

    def perform(self, step: Step) -> Value:
        """Authorize a statement, and run it with the things it names.

        :raises NotWritable, Unknown, NotAllowed: the node, or the caller, may not
        """
        if step.writes:
            if self.moment is not None:
                raise BadRequest("a past moment is read-only: leave `moment` out")
            # The commit checks too; checked here, nothing is read, hashed or waited for in vain.
            committer = self.services.committer
            committer.check_writable()
            if committer.stall is not None:
                committer.check_replicated()
            self.need_newest()
        # Before the authorization: refused statements are audited too.
        if step.audited > self.audited:
            self.audited = step.audited
        try:
            # Judged in this transaction: the user row enters its read set.
            targets = self.authorizer.authorize(step.claims) if step.claims else ()
        except (NotAllowed, Unknown) as refusal:
            authorizer, request = self.authorizer, self.request.request
            trail = self.services.vaults.trail
            record_denied(trail, authorizer, step, refusal, self.variables, request)
            authorizer.touch_named(step.claims)
            raise
        try:
            value = (step.work or step.compiled())(self, *targets)
            # Published in the same transaction: change and message commit together (outbox).
            if self.transaction.noted is not None:
                topics = self.services.topics
                # Their takers are woken once the transaction has committed.
                for messages in announce(self.authorizer, self.tick):
                    self.afterwards.append(telling(topics, messages))
            return value
        except Refusal as refusal:
            self._locate(refusal, step)
            table = refusal.detail.get("table")
            # UNIQUE or ASSERT would disclose stored values to a caller without READ.
            if isinstance(table, str) and (fields := self._unread(table)) is not None:
                raise redacted(refusal, table, fields) from refusal.__cause__
            raise

    def _locate(self, refusal: Refusal, step: Step) -> None:
        """Add the position in the text to a refusal: of its expression, or else of the innermost
        statement."""
        if "line" not in refusal.detail:
            at = step.statement.at if refusal.offset is None else refusal.offset
            line, column = self.plan.script.position(at)
            refusal.detail.update(line=line, column=column)

    def block(self, block: tree.Block) -> Value:
        """Run the statements of an IF or FOR; return the value of the last one."""
        value: Value = NONE
        self._cached = None  # the condition's subqueries are not run again: free their results
        # No `finally`: a refusal ends the transaction, and the next one begins at 0.
        self._nested += 1
        for statement in block.statements:
            self.tick()
            value = self.run_step(self.plan.step(statement))
        self._nested -= 1
        return value

    def nested(self, statement: Any) -> Value:
        """Run a nested statement; return its value."""
        self._nested += 1
        value = self.run_step(self.plan.step(statement))
        self._nested -= 1
        return value

    @property
    def is_nested(self) -> bool:
        """True if other statements of its transaction may use the current statement's result."""
        return self._nested > 0

    @property
    def may_run_again(self) -> bool:
        """True if the current statement is the whole transaction: it stands in no BEGIN … COMMIT,
        IF, FOR or LET."""
        return not (self.in_block or self._nested)

    def check_may_wait(self) -> None:
        """Check that the current statement may WAIT.

        :raises NotInTransaction: other statements of its transaction would wait with it
        :raises BadRequest: it would wait in vain
        """
        if self.moment is not None:
            raise BadRequest("nothing new can come in a past moment: leave WAIT or `moment` out")
        if not self.may_run_again:
            raise NotInTransaction("WAIT must be in a statement of its own, outside a transaction")

    def at_statement(self) -> tuple[int, str] | None:
        """Return the number of the current statement, from 1, and its text without secrets; None
        before the first."""
        if self._at is None:
            return None
        number, text = self._at, self.plan.redacted(self._at, self._at + 1)
        return number + 1, text

    def depends_on(self, ticket: CommitTicket) -> None:
        """Have the current transaction rest on a commit, as if it had read it.

        :raises Conflict: that commit, or another it rests on, was rolled back: the transaction runs
            again
        """
        if ticket.sequence:
            try:
                self.beside = self.services.committer.merge(self.beside, ticket)
            except Refusal as gone:
                raise Conflict(SEEN_ROLLED_BACK) from gone

    def rest_on(self, ticket: CommitTicket) -> None:
        """Have the answer wait for a commit, whatever the outcome of the current transaction. If a
        commit it rests on was rolled back already, the answer reports that."""
        committer = self.services.committer
        # A lost ticket is kept: merged, it would raise here and not in the answer.
        if ticket.sequence and not committer.was_rolled_back(self.ticket):
            self.ticket = committer.merge(self.ticket, ticket)

    @property
    def saw_rolled_back(self) -> bool:
        """True if a commit was rolled back that the current transaction rests on."""
        committer = self.services.committer
        return self.transaction.reads.rolled_back or committer.was_rolled_back(self.beside)

    def rest_on_seen(self) -> None:
        """Have the answer, or its refusal, wait for the commits that the current transaction rests
        on. If any was rolled back, nothing that it read is shown."""
        if not self.saw_rolled_back:
            self.rest_on_read()

    def rest_on_read(self) -> None:
        """Have the answer wait for the commits that the current transaction rests on, none of which
        was rolled back."""
        self.rest_on(self.transaction.ticket)
        self.rest_on(self.beside)

    @contextmanager
    def reading_beside(self) -> Iterator[Transaction]:
        """Open a transaction of the statement's own, which may pause, beside that of the script.
        This is the only way to open one, since the answer has to wait for the commits it reads.

        :raises Conflict: a commit that it read was rolled back: the script's transaction runs again
        """
        with self.new_transaction() as transaction:
            try:
                yield transaction
            except Refusal as refusal:
                # The refusal may show data of pending commits, so it waits for them too.
                if not isinstance(refusal, FROM_OUTSIDE):
                    self.depends_on(transaction.ticket)
                raise
            self.depends_on(transaction.ticket)

    def stop_reading(self) -> None:
        """Release the snapshot of the current statement, which is the whole transaction and has
        read all it needs: no old versions are kept while it waits."""
        self.transaction.release()

    def new_transaction(self) -> Transaction:
        """Begin a transaction to read in. :raises Unknown: the pinned snapshot has ended"""
        if self.moment is not None:
            return self.moment.begin_transaction()
        committer = self.services.committer
        # Otherwise reads of a leader that releases nothing would wait in vain.
        if (committer.stall is not None or self.plan.tells_of_cluster) and self._may_read_past():
            return committer.begin_released_read()
        return committer.begin_transaction()

    def _may_read_past(self) -> bool:
        """True if the released state suffices for the statements to come.

        While nothing can be released, answers that rest on pending commits would wait in vain. No
        pending commit has been answered to any client, so skipping them is consistent. Pending
        commits that the script itself has made or seen stay visible to it.
        """
        committer = self.services.committer
        stall = committer.stall
        knows = self.plan.tells_of_cluster or (stall is not None and stall.shows_all)
        in_flight = self.ticket.sequence <= committer.commit_index < committer.committed
        return knows and in_flight and not self._reads_newest

    def need_newest(self) -> None:
        """Have the current statement read pending commits too. :raises Conflict: its transaction
        reads released state only, and runs again"""
        if self.transaction.is_past and self.moment is None:
            # A conflict costs one attempt: the next begins with pending commits.
            self._reads_newest = True
            raise Conflict("newer commits exist that are not released yet")

    def check_authenticated(self) -> None:
        """Check the caller's credential. :raises SessionEnded: it is no longer good"""
        self.services.sessions.check_authenticated(self.caller)

    def begin_wait(self, queue: WaitQueue, for_us: int | None = None) -> StatementWait:
        """Return a wait for the current statement.

        :param for_us: longest wait; None: as long as the script has time
        """
        # The deadlines of the fiber end the wait as well.
        until_us = limits.INT_MAX
        if for_us is not None:
            until_us = self.services.clock.monotonic_us() + for_us
        self.wait = StatementWait(queue, until_us, self.fiber.wake)
        return self.wait

    def bind(self, name: str, value: Any) -> None:
        """Set a variable. :raises TooLarge: there are too many, or they hold too much"""
        if name not in self.variables:
            self._check_variables(len(self.variables) + 1)
        self.variables[name] = value
        self.keep(name, value)

    def bind_item(self, name: str, item: Any) -> None:
        """Set a variable to a value whose memory is counted already: an item of a loop.

        :raises TooLarge: there are too many variables
        """
        if name not in self.variables:
            self._check_variables(len(self.variables) + 1)
        # The variable may have held a counted value before the loop.
        self.variables[name] = item
        self.let_go(name)

    def keep(self, name: str | int, value: Any) -> None:
        """Count a value against the script's memory; see `ScriptState.put`. :raises TooLarge:"""
        if self._kept is None:
            self._kept = ScriptState(self.tick)
        self._kept.put(name, value)

    def let_go(self, name: str | int) -> None:
        """Count the value kept under that name no more."""
        if self._kept is not None:
            self._kept.take(name)

    def _check_variables(self, count: int) -> None:
        if count > limits.VARIABLES:
            raise TooLarge(
                f"a script has at most {limits.VARIABLES} variables", limit=limits.VARIABLES
            )

    def count_read(self, rows: int) -> None:
        """Count rows that the statement has read. :raises TooLarge: the limit is exceeded"""
        self.rows_read += rows
        if self.rows_read > limits.ROWS_READ:
            most = limits.ROWS_READ
            raise TooLarge(f"a statement reads at most {most} rows", limit=most)

    def hold(self, size: int) -> None:
        """Count bytes that the statement holds until it ends."""
        self.memory.held += size

    def count_changed(self, records: int) -> None:
        """Count records that the statement has created, changed or deleted, for the answer's
        `changed`. A record that stays as it was counts."""
        if records:
            self.says_written = True
        if self._changed is None:
            self._changed = records
        # Once hidden, the count stays hidden for the whole statement.
        elif self._changed != _UNTOLD:
            self._changed += records

    def begin_count(self, tables: Iterable[Table]) -> None:
        """Start counting writes to existing records. The count is shown only to a caller who may
        read each of the tables."""
        self.count_changed(0)
        # A count of the records that WHERE selects would disclose their content.
        if not all(map(self.may_read, tables)):
            self._changed = _UNTOLD

    @property
    def changed(self) -> int | None:
        """Records created, changed or deleted by the statement, if the caller may know; None: it
        writes none."""
        return None if self._changed == _UNTOLD else self._changed

    def evaluate(self, expression: Any) -> Any:
        """Return the value of an expression outside any row.

        :raises TooLarge: it grew too large or too deep; see `plans.rowless`
        """
        return self.plan.made(expression, rowless)(self)

    def new_id(self) -> UUID:
        """Return a new id for a record without one."""
        self._ids += 1
        return records.new_id(self.transaction, self._ids)

    # --- authorization ------------------------------------------------------------------------

    @property
    def authorizer(self) -> Authorizer:
        """Authorization of the caller, in the current transaction and place."""
        return Authorizer(self.rights, self.transaction, self.caller, self.place)

    def table(self, name: str, verbs: Verbs) -> Table:
        """Return a table of the current database, authorized. :raises Unknown, NotAllowed:"""
        return self.rights.table(
            self.transaction, self.caller, database_in(self.place), name, verbs
        )

    def may_read(self, table: Table) -> bool:
        """True if the caller may see the content of a table's records."""
        return self.rights.holds(self.transaction, self.caller, READ, table)

    def _unread(self, name: str) -> tuple[Field, ...] | None:
        """Return the fields of a table if the caller may not see the content of its records; None:
        it may."""
        try:
            table = self.table(name, NOTHING)
        # A hidden table discloses no field name either.
        except Refusal:
            return ()
        return None if self.may_read(table) else table.fields

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
        """Return the rows of a subquery. The rows of an uncorrelated one are cached for the
        statement."""
        # Inside a row the result may depend on that row.
        if self._cached is not None and parent is NONE:
            known = self._cached.subquery(select)
            if known is not None:
                return known[1]
        # `$parent` is restored afterwards: subqueries nest, and share one set of variables.
        step = self.plan.step(select)
        variables = self.variables
        outer = variables.get("parent", _UNBOUND)
        variables["parent"] = parent
        memory = self.memory
        held = memory.held
        try:
            found = self.timed(step)
            made(memory.held - held)
        finally:
            memory.return_to(held)
            if outer is _UNBOUND:
                del variables["parent"]
            else:
                variables["parent"] = outer
        if parent is NONE and step.is_steady():
            self._cache().add_subquery(select, found)
        return found

    def call(self, name: str, arguments: list[Any]) -> Any:
        """Return the result of a function of the current database; see `calling.call`."""
        self.tick()
        declared = self.authorizer.function(name, NOTHING)
        depth = self.calls
        self.calls = depth + 1
        try:
            function = calling.compiled(self.transaction, declared)
            return calling.call(self, function, arguments, depth)
        finally:
            self.calls = depth

    def analyzer(self, name: str) -> analysis.Analyzer:
        """Return an analyzer of the current database, compiled."""
        declared = self.authorizer.analyzer(name, NOTHING)
        return analyzing.compiled(self.transaction, declared)

    def text_match(self, paths: tuple[Path, ...], values: list[Any], query: Any) -> bool:
        """Return the value of `@@` for the fields of a row."""
        if self.texts is None:
            raise text_search.no_table()
        return self.texts.match(paths, values, query)

    def text_score(self, record: Any, path: Path | None) -> float:
        """Return the score of a row by the `@@` of its WHERE."""
        if self.texts is None or type(record) is not RecordId:
            raise BadRequest("search::score is about records that `@@` has found, and this is none")
        return self.texts.score(self.table(record.table, READ), order.encode(record.id), path)

    def text_queries(self, path: Path) -> list[tuple[analysis.Analyzer, Query]]:
        """Return the queries of the `@@` of WHERE that are over a field."""
        return [] if self.texts is None else self.texts.queries(path)

    def distance(self, record: Any) -> float:
        """Return the distance of a row that NEAREST has found."""
        if type(record) is RecordId and self.distances is not None:
            found = self.distances.get((record.table, order.encode(record.id)))
            if found is not None:
                return found
        raise BadRequest("vector::distance is about the rows that NEAREST has found")

    def raw(self, record: RecordId, verbs: Verbs = READ) -> bytes | None:
        """Return the packed fields of a record of the current database.

        :param verbs: privileges required on its table; without READ the caller may learn nothing
            but the record's id
        :raises Unknown, NotAllowed:
        """
        return records.read(self.transaction, self.table(record.table, verbs), record.id)

    def record(self, record: RecordId) -> dict[str, Any] | None:
        """Return the fields of a linked record, `id` among them. They are shared by all rows of
        the statement that link to it."""
        # A transaction without changes reads the same each time.
        if self.transaction.own is not UNCHANGED:
            return self.read_record(record, READ)[0]
        cache = self._cache()
        found = cache.linked(record, _UNBOUND)
        if found is _UNBOUND:
            found, size = self.read_record(record, READ)
            cache.add_linked(record, found, size)
        else:
            self.tick(1)
        return found  # type: ignore[no-any-return]

    def read_record(self, record: RecordId, verbs: Verbs) -> tuple[dict[str, Any] | None, int]:
        """Return the fields of a record, `id` among them, and their packed size; as `raw`."""
        raw = self.raw(record, verbs)
        if raw is None:
            # A missing record costs a lookup too: a loop over dead links has to yield.
            self.tick(FOLLOWED)
            return None, 0
        made(len(raw))
        self.tick(FOLLOWED + cost_of(len(raw)))
        return {"id": record, **unpack_object(raw)}, len(raw)

    def _cache(self) -> StatementCache:
        if self._cached is None:
            self._cached = StatementCache(self.tick)
        return self._cached
