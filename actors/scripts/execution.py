"""What a statement is run with: the place and variables of its script, its transaction, the gate.

Everything here runs inside the script's greenlet and is synchronous; see `turns.py`. How a script
becomes transactions is `transactions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from actors.redaction import redacted
from actors.rights import Names
from actors.scripts import calling
from actors.scripts.announcing import announce
from actors.scripts.denied_access import turned_away
from actors.scripts.handlers import Audited
from actors.scripts.judging import judged, touch_named
from actors.scripts.moments import KeptMoment
from actors.scripts.plans import Plan, Step, rowless
from actors.scripts.script_state import Answered, ScriptState
from actors.scripts.services import Services
from actors.scripts.turns import Turn
from actors.topics import HandedOut, Queue, Wait
from language import tree
from language.pieces import cost_of
from language.sizing import WorkingMemory, made
from protocol import limits
from protocol.binary import unpack_object
from protocol.doors import Rng
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
from protocol.requests import HeldFile, Result, RunScript
from protocol.rights import NOTHING, READ, Verbs
from protocol.values import NONE, RecordId, Value
from storage import records
from storage.catalog import Space, Table
from storage.fields import Field
from storage.functions import Function
from storage.tickets import NO_COMMIT, CommitTicket
from storage.topics import Topic
from storage.transactions import Transaction
from storage.vaults import Vault

Place = tuple[str | None, str | None]
"""Where a script stands: the names of a namespace and a database, not yet looked up."""


SEEN_ROLLED_BACK: Final = "a commit that this transaction had seen was taken back"
"""Message of the conflict in which a transaction ends that rests on such a commit."""

_UNTOLD: Final = -1
"""In the place of a count that would tell what records there are."""

_UNBOUND: Final = object()
"""In the place of a variable that is not bound."""


class Returned(Exception):
    """RETURN: ends the script with a value. What its transaction wrote until then is committed,
    unless that ends in CANCEL."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Work(Protocol):
    """A statement that is done in several commits."""

    def leave(self) -> None:
        """It has ended, at its end or before."""


class Execution:
    """The run of a script, as its statements see it. It is also the `language.env.Env` of its
    expressions."""

    plan: Plan
    transaction: Transaction

    def __init__(self, services: Services, request: RunScript, turn: Turn) -> None:
        self.services = services
        self.rights = services.rights
        self.request = request
        self.caller = request.caller
        self.turn = turn
        self.tick = turn.tick
        self.place: Place = (request.namespace, request.database)
        self.variables: dict[str, Any] = request.parameters  # type: ignore[assignment]
        """Copied before the first statement: what came with the request stays as it came."""
        self.memory = WorkingMemory()
        """Memory held by its text and by the statement at hand."""
        self.results: list[Result] = []
        self.afterwards: list[Callable[[], None]] = []
        """What to do once the transaction has committed."""
        # Not below: where a protocol is compiled its None at a class is lost.
        self.work: Work | None = None
        """What a statement that goes on in several commits keeps from one to the next."""

    # What a short script never changes stands here: setting it for each one costs more than its
    # statement does.

    holds: tuple[Callable[[], None], ...] = ()
    """What has to hold yet when the transaction commits: each raises `Conflict` if it does not."""
    moment: KeptMoment | None = None
    """The moment of the store that it reads in; None: each of its transactions reads what is there
    when it begins."""
    ticket = NO_COMMIT
    """The newest commit that its transactions so far have made or seen: the answer is sent once
    that is released."""
    beside = NO_COMMIT
    """The newest commit that the transaction at hand rests on and has not read itself."""
    iterations = 0
    """Passes of all its loops so far."""
    rows_read = 0
    """By the statement at hand, its subqueries included."""
    _changed: int | None = None
    """Records made, changed or deleted by the statement at hand; None: it writes none."""
    says_written = False
    """True if a statement of the transaction at hand answers that it has written something, be it
    what was there."""
    _ids = 0
    written = NO_COMMIT
    """Its own last commit."""
    in_block = False
    audited = Audited.NEVER
    """Cases in which the audit trail keeps the transaction at hand, by its statements so far."""
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
    file: HeldFile | None = None
    """What it hands over beside its answer."""
    calls = 0
    """Functions of the database that are running, one inside another."""
    _reads_newest = False
    """Whether what is only released does not do for it."""
    _at: int | None = None
    """The offset of the statement at hand in the script."""
    _nested = 0
    """Blocks of IF and FOR around the statement at hand."""
    _kept: ScriptState | None = None
    """What it keeps from one statement to the next; None: nothing so far."""
    _answered: Answered | None = None
    """What subqueries of the statement at hand have answered; None: nothing so far."""

    # --- statements -------------------------------------------------------------------------------

    def run_step(self, step: Step) -> Value:
        """Run a statement, which may stand inside another. What its subqueries answered is
        forgotten with it: the next statement reads what this one has written."""
        outer, self._answered = self._answered, None
        held = self.memory.held
        try:
            return self.timed(step)
        finally:
            self._answered = outer
            self.memory.return_to(held)

    def timed(self, step: Step) -> Value:
        """As `perform`, for as long as the statement's own TIMEOUT says."""
        if step.timeout_us is None:
            return self.perform(step)
        self.turn.push_deadline(step.timeout_us)
        try:
            return self.perform(step)
        finally:
            self.turn.pop_deadline()

    def perform(self, step: Step) -> Value:
        """Judge what a statement needs, and run it with what it names.

        :raises NotWritable, Unknown, NotAllowed: the node, or the caller, may not
        """
        if step.writes:
            if self.moment is not None:
                raise BadRequest("nothing is written in a moment that is over: leave `moment` out")
            # The commit asks too; asked here, nothing is read, hashed or waited for in vain.
            committer = self.services.committer
            committer.check_writable()
            if committer.stall is not None:
                committer.check_replicated()
            self.need_newest()
        if step.audited > self.audited:
            self.audited = step.audited
        try:
            things = judged(self, step.claims) if step.claims else ()
        except (NotAllowed, Unknown) as refusal:
            turned_away(self, step.statement, step.claims, refusal)
            touch_named(self, step.claims)
            raise
        try:
            value = (step.work or step.compiled())(self, *things)
            if self.transaction.noted is not None:
                announce(self)
            return value
        except Refusal as refusal:
            self._locate(refusal, step)
            table = refusal.detail.get("table")
            if isinstance(table, str) and (fields := self._unread(table)) is not None:
                raise redacted(refusal, table, fields) from refusal.__cause__
            raise

    def _locate(self, refusal: Refusal, step: Step) -> None:
        """Say where in the text it rose: at an expression, or else at the innermost statement."""
        if "line" not in refusal.detail:
            at = step.statement.at if refusal.offset is None else refusal.offset
            line, column = self.plan.script.position(at)
            refusal.detail.update(line=line, column=column)

    def block(self, block: tree.Block) -> Value:
        """Run the statements of an IF or FOR; the value is that of the last one."""
        value: Value = NONE
        self._answered = None  # what the condition asked is not asked again
        self._nested += 1
        for statement in block.statements:
            self.tick()
            value = self.run_step(self.plan.step(statement))
        self._nested -= 1
        return value

    def nested(self, statement: Any) -> Value:
        """Run a statement that stands inside another; its value."""
        self._nested += 1
        value = self.run_step(self.plan.step(statement))
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
        """:raises NotInTransaction: others of its transaction would wait with the statement
        :raises BadRequest: it would wait in vain
        """
        if self.moment is not None:
            raise BadRequest("nothing comes in a moment that is over: leave WAIT out, or `moment`")
        if not self.may_run_again:
            raise NotInTransaction("WAIT stands in a statement of its own, in no transaction")

    def at_statement(self) -> tuple[int, str] | None:
        """The statement being run; see `running.Progress`."""
        if self._at is None:
            return None
        number, text = self._at, self.plan.redacted(self._at, self._at + 1)
        return number + 1, text

    def depends_on(self, ticket: CommitTicket) -> None:
        """Have the transaction at hand rest on a commit, as if it had read it.

        :raises Conflict: that was rolled back, or what it rests on already: it runs again
        """
        if ticket.sequence:
            try:
                self.beside = self.services.committer.merge(self.beside, ticket)
            except Refusal as gone:
                raise Conflict(SEEN_ROLLED_BACK) from gone

    def rest_on(self, ticket: CommitTicket) -> None:
        """Have the answer wait for a commit, whatever becomes of the transaction at hand. Where
        something was rolled back that it rests on already, that is what is answered."""
        committer = self.services.committer
        if ticket.sequence and not committer.was_taken_back(self.ticket):
            self.ticket = committer.merge(self.ticket, ticket)

    @property
    def saw_rolled_back(self) -> bool:
        """True if a commit was rolled back that the transaction at hand rests on."""
        committer = self.services.committer
        return self.transaction.withdrawn or committer.was_taken_back(self.beside)

    def rest_on_seen(self) -> None:
        """Have the answer, or its refusal, wait for what the transaction at hand rests on. Nothing
        that it read is shown where that was rolled back."""
        if not self.saw_rolled_back:
            self.rest_on(self.transaction.ticket)
            self.rest_on(self.beside)

    @contextmanager
    def reading_beside(self) -> Iterator[Transaction]:
        """Open a transaction of the statement's own, which may pause, beside that of the script.
        There is no other way to open one: the answer rests on what it has read.

        :raises Conflict: what it has read was rolled back: the script's transaction runs again
        """
        with self.new_transaction() as transaction:
            try:
                yield transaction
            except Refusal as refusal:
                if not isinstance(refusal, FROM_OUTSIDE):
                    self.depends_on(transaction.ticket)
                raise
            self.depends_on(transaction.ticket)

    def stop_reading(self) -> None:
        """The statement at hand, all of its transaction, has read what it had to: nothing is kept
        for it as it was while it waits."""
        self.transaction.release()

    def new_transaction(self) -> Transaction:
        """One to read in. :raises Unknown: the moment that the script reads has ended"""
        if self.moment is not None:
            return self.moment.begin()
        committer = self.services.committer
        if (committer.stall is not None or self.plan.tells_of_cluster) and self._may_read_past():
            return committer.begin_shown()
        return committer.begin()

    def _may_read_past(self) -> bool:
        """Whether what is released answers the statements to come: where nothing can be released
        for now, they would wait in vain for what is on its way. Nothing that is not released has
        been answered to anybody. What the script itself has written, or has seen on its way, it
        goes on to see."""
        committer = self.services.committer
        stall = committer.stall
        knows = self.plan.tells_of_cluster or (stall is not None and stall.shows_all)
        in_flight = self.ticket.sequence <= committer.released_upto < committer.committed
        return knows and in_flight and not self._reads_newest

    def need_newest(self) -> None:
        """The statement at hand has to see what is on its way. :raises Conflict: its transaction
        does not, and runs again"""
        if self.transaction.is_past and self.moment is None:
            self._reads_newest = True
            raise Conflict("what is released is not all that there is to see")

    def check_authenticated(self) -> None:
        """:raises SessionEnded: the credential that this was sent with is no longer good"""
        self.services.sessions.check_authenticated(self.caller)

    def begin_wait(self, queue: Queue, for_us: int | None = None) -> Wait:
        """Have the statement at hand wait for so long at most, if it has to. None: as long as its
        script has time."""
        until_us = limits.INT_MAX
        if for_us is not None:
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
        """Count a value to what the script keeps; see `ScriptState.put`. :raises TooLarge:"""
        if self._kept is None:
            self._kept = ScriptState(self.tick)
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

    def count_changed(self, records: int) -> None:
        """Count records that the statement has made, changed or deleted, those of an answer's
        `changed`. One that stays as it was counts."""
        if records:
            self.says_written = True
        if self._changed is None:
            self._changed = records
        elif self._changed != _UNTOLD:
            self._changed += records

    def begin_count(self, tables: Iterable[Table]) -> None:
        """Count what is written of records that are there already. How many there are is told
        only to a caller who may read each of the tables."""
        self.count_changed(0)
        if not all(map(self.may_read, tables)):
            self._changed = _UNTOLD

    @property
    def changed(self) -> int | None:
        """Records that the statement has made, changed or deleted, as far as the caller may know;
        None: it writes none."""
        return None if self._changed == _UNTOLD else self._changed

    def evaluate(self, expression: Any) -> Any:
        """The value of an expression that stands outside any row.

        :raises TooLarge: it grew too large or too deep; see `plans.rowless`
        """
        return self.plan.made(expression, rowless)(self)

    def new_id(self) -> UUID:
        """An id for a record that was given none."""
        self._ids += 1
        return records.new_id(self.transaction, self._ids)

    # --- what is judged -----------------------------------------------------------------------

    def names(self) -> Names:
        """The database that the script stands in. :raises BadRequest: none is chosen"""
        namespace, database = self.place
        if namespace is None or database is None:
            return self.database_of(None, None)
        return self.place  # type: ignore[return-value]

    def namespace_of(self, name: str | None) -> str:
        """The namespace that a statement names, or stands in. :raises BadRequest: none is chosen"""
        found = name or self.place[0]
        if found is None:
            raise BadRequest("no namespace is chosen: name one with the request, or USE it first")
        return found

    def database_of(self, namespace: str | None, name: str | None) -> Names:
        """The names of a database, as `namespace_of`."""
        if name is None:
            name = self.place[1]
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

    def vault(self, name: str, verbs: Verbs) -> Vault:
        """A vault of the present database. :raises Unknown, NotAllowed:"""
        return self.rights.vault(self.transaction, self.caller, self.names(), name, verbs)

    def function(self, name: str, verbs: Verbs) -> Function:
        """A function of the present database. :raises Unknown, NotAllowed:"""
        return self.rights.function(self.transaction, self.caller, self.names(), name, verbs)

    def may_read(self, table: Table) -> bool:
        """Whether the caller may be told what records of a table hold."""
        return self.rights.holds(self.transaction, self.caller, READ, table)

    def _unread(self, name: str) -> tuple[Field, ...] | None:
        """The fields of a table of which the caller may not be told what records hold; None: it
        may."""
        try:
            table = self.table(name, NOTHING)
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
        """The rows of a subquery; of one that looks at nothing around it the same for all of a
        statement."""
        if self._answered is not None and parent is NONE:
            known = self._answered.get(select)
            if known is not None:
                return known[1]
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
            if self._answered is None:
                self._answered = Answered(self.tick)
            self._answered.add(select, found)
        return found

    def call(self, name: str, arguments: list[Any]) -> Any:
        """What a function of the present database answers; see `calling.call`."""
        return calling.call(self, name, arguments)

    def raw(self, record: RecordId, verbs: Verbs = READ) -> bytes | None:
        """The packed fields of a record of the present database.

        :param verbs: what is needed of its table; without READ nothing may come of it but its id
        :raises Unknown, NotAllowed:
        """
        return records.read(self.transaction, self.table(record.table, verbs), record.id)

    def record(self, record: RecordId, verbs: Verbs = READ) -> dict[str, Any] | None:
        """The fields of a record, `id` among them; as `raw`."""
        raw = self.raw(record, verbs)
        if raw is None:
            return None
        made(len(raw))
        self.tick(cost_of(len(raw)))
        return {"id": record, **unpack_object(raw)}
