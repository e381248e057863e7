"""Run of a script: each statement is a transaction of its own, or part of its BEGIN … COMMIT.

The executor runs these transactions, and runs one again after a conflict
(`execution/conflict_retry.py`). All of it runs synchronously inside the script's fiber.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from actors.commits.committer import Author
from actors.execution.conflict_retry import ConflictRetry
from actors.execution.fiber import Fiber, FiberWait
from actors.execution.transact import transact_in_fiber
from actors.memory import STEP_BYTES, MemoryAccount
from actors.scripts.answer_sizes import measured
from actors.scripts.execution import SEEN_ROLLED_BACK, Execution, Returned
from actors.scripts.handlers import Audited
from actors.scripts.plans import Plans
from actors.scripts.request_checks import check_handed_over, check_keep
from actors.scripts.script_state import PACKED_WEIGHT, SMALL_BYTES
from actors.scripts.services import Services
from actors.scripts.steps import Step
from language import tree
from language.budget import Budget
from language.sizing import MEMORY
from protocol import limits
from protocol.errors import (
    FROM_OUTSIDE,
    BadRequest,
    Conflict,
    DiskFull,
    NotAllowed,
    Refusal,
    StatementTimeout,
    UnknownOutcome,
    after,
)
from protocol.requests import NEW_MOMENT, Result, ResultKind, RunScript
from protocol.values import NONE, Value
from storage.formats.entries import Entry
from storage.txn.tickets import NO_COMMIT, CommitTicket
from storage.txn.transaction import Transaction

log = structlog.get_logger("scripts")

FEW_ROWS: Final = 16
FEW_RESULTS: Final = 8
QUICK_US: Final = 500
"""Duration (µs) below which a statement's value is assumed to be small."""
ANSWER_BYTES: Final = limits.STATEMENT_MEMORY_BYTES
"""Memory limit of all results of one script."""
TEXT_CHARACTERS: Final = 512
"""Characters of a slow statement's text in the log."""
LARGE_BYTES: Final = 256 * limits.KIB
"""Size of a transaction's changes from which they are encoded in steps before its commit."""


class ScriptRun(Execution):
    """Run of a script, from its text to the tickets that its answer has to wait for.

    :param enlist: enters its request into the registry, where it can be seen and ended
    """

    def __init__(
        self,
        services: Services,
        request: RunScript,
        plans: Plans,
        fiber: Fiber,
        enlist: Callable[[], None],
    ) -> None:
        super().__init__(services, request, fiber)
        self._plans = plans
        self.enlist = enlist
        self._commits: list[CommitTicket] = []
        """Its commits so far, oldest first."""

    kept_moment: str | None = None
    """Name of the pinned snapshot that it read, if that is kept."""
    began = False
    """True once `transaction` is set."""
    paused = False
    """True from its first pause on."""
    read_at = 0
    """Sequence that the last transaction read at."""
    waiting = False
    """True while it waits, for messages or another's priority lock, and holds no transaction."""
    _due_us = 0
    """End of the TIMEOUT of a statement in the current transaction, on the monotonic clock; 0: none
    has begun with one."""
    blocked_by_lock = False
    saw = NO_COMMIT
    retry: ConflictRetry | None = None
    """Retry state of the current transaction, after its first conflict."""
    _ended = False
    """True if RETURN has ended the script."""
    _held: Budget | None = None
    """Memory of its results; surely small ones are not measured."""
    account: MemoryAccount | None = None
    """Its memory account, once it holds much."""
    _answers = (0, 0)
    """Number of its results that were measured at the last commit, and their size in bytes."""

    def run(self) -> None:
        """Run to the end or to the first refusal, which is raised with its place in the script.

        :raises Refusal: earlier commits of the script stay, and their results stand
        """
        outer = MEMORY.set(self.memory)
        try:
            self._run_request()
        finally:
            MEMORY.reset(outer)

    def _run_request(self) -> None:
        request = self.request
        if request.keep_us is not None:
            check_keep(request)
        if request.timeout_us is not None:
            self.fiber.push_deadline(request.timeout_us)
        after = request.after or 0
        if request.current:
            after = max(after, self._present())
        # Wait before a new snapshot is pinned: pinned earlier, it would not show `after`.
        if after > self.services.committer.commit_index:
            self._await(after)
        if request.moment is None:
            self._run()
            return
        if request.moment == NEW_MOMENT:
            self._await_rights()
        moments = self.services.moments
        kept = self.moment = moments.enter(request.moment, self.caller.user)
        self.read_at = kept.moment.sequence
        # Without an answer no client knows the name of a new snapshot: it ends at once.
        keep_us = 0 if request.moment == NEW_MOMENT else request.keep_us
        try:
            if after > self.read_at:
                raise BadRequest(
                    f"the moment is of sequence {self.read_at} and will never show {after}: leave"
                    " `after` out"
                )
            self._run()
            keep_us = request.keep_us
        finally:
            if moments.leave(kept, keep_us):
                self.kept_moment = kept.name

    def _run(self) -> None:
        self._check_and_compile()
        # A CURRENT in the text is known only once it is parsed: its wait comes here.
        if self.plan.current and not self.request.current:
            after = self._present()
            if after > self.services.committer.commit_index:
                self._await(after)
        for first, end in self.plan.transactions:
            if self._transact(first, end):
                return

    def _check_and_compile(self) -> None:
        """Check the request, and compile its script, before any of it is run. :raises Refusal: it
        can't be run"""
        self.check_authenticated()  # it may have queued since its surface checked
        if len(self.variables) > limits.VARIABLES:
            self._check_variables(len(self.variables))
        self.plan = plan = self._plans.get(self.request.script, self.tick, self.memory)
        if self.request.hands_over:
            check_handed_over(plan.script, self.request.hands_over)
        if not plan.begins_about_node:
            self.services.roles.check_answering(self.caller)

    def _await(self, after: int) -> None:
        """Wait until the node shows a sequence, before any of the script is run. Each statement is
        authorized after that.

        :raises StatementTimeout: it is not shown in time
        """
        self._check_and_compile()
        committer, wait = self.services.committer, FiberWait(self.fiber)
        try:
            with self._aside(), self._limited():
                committer.block_until_shown(wait, after)
                wait.until_resumed()
        except StatementTimeout:
            shown = committer.commit_index
            raise StatementTimeout(
                f"the node shows sequence {shown}, but not {after} yet: nothing was run",
                after=after,
                seq=shown,
            ) from None

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Limit a wait by the request's deadline, or by the default if it has none."""
        fiber = self.fiber
        limited = fiber.ends_us is not None
        if not limited:
            fiber.push_deadline(limits.AFTER_SECONDS * 1_000_000)
        try:
            yield
        finally:
            if not limited:
                fiber.pop_deadline()

    def _prove_found(self) -> None:
        """Confirm this node's lead after a write that found its target state already there. Under
        another leader that state may be gone, and this write has no commit whose ticket would fail.

        :raises Refusal: as for `_present`
        """
        # The round to the replicas may take long: no old versions are kept for it.
        self.transaction.release()
        self._present("nothing was changed")

    def _present(self, so_far: str = "nothing was run") -> int:
        """Return the read index: a sequence that covers all that was released anywhere by now.

        :param so_far: progress of the script, for the message of a timeout
        :raises Busy: it can't be determined
        :raises StatementTimeout: not all replicas have confirmed it in time
        :raises BadRequest: it reads a pinned snapshot, which is of the past
        """
        if self.request.moment not in (None, NEW_MOMENT) or self.moment is not None:
            raise BadRequest(
                "a moment is of the past and cannot be current: leave `current` or `moment` out"
            )
        self._check_and_compile()
        found = self.services.cluster.present()
        if isinstance(found, int):
            return found
        wait = FiberWait(self.fiber)
        found.add_done_callback(lambda _: wait.resume(None))
        try:
            with self._aside(), self._limited():
                wait.until_resumed()
        except StatementTimeout:
            shown = self.services.committer.commit_index
            raise StatementTimeout(
                f"the node shows sequence {shown}, but not enough nodes confirmed in time that it"
                f" is current: {so_far}",
                seq=shown,
            ) from None
        finally:
            if not found.cancel() and not found.cancelled():
                found.exception()  # retrieved, or asyncio would log it if the script was ended
        return found.result()

    def _await_rights(self) -> None:
        """Wait until pending changes of privileges are released. A snapshot is of released state: a
        new one would end with that release, before any read."""
        committer = self.services.committer
        while (changed := committer.ledger.state.users_version) > committer.commit_index:
            ticket = committer.ticket(changed)
            try:
                self.until_released(ticket)
            except (DiskFull, UnknownOutcome):
                if not committer.was_rolled_back(ticket):  # rolled back: the old privileges hold
                    raise

    def _transact(self, first: int, end: int) -> bool:
        """Run statements `first` to `end` as one transaction: again for the next part of its work,
        or after a wait. Return True if RETURN ended the script."""
        self._first, self._end = first, end
        held, done = 0 if self._held is None else self._held.held, len(self.results)
        # The state that every attempt starts from: a failed attempt changes any of it.
        self._before = (
            self.place, self.variables, self.iterations, self._kept, self._answers, held, done,
        )  # fmt: skip
        self._written_before = self.written
        shown, self._due_us = self.ticket, 0
        try:
            while True:
                transact_in_fiber(self.services.committer, self)
                if not (self.waits or self.goes_on):
                    return self._ended
                del self.results[done:]
                if self.retry is not None:
                    self.retry.leave()
                # A committed part counts: the answer waits for it, whatever the next runs read.
                if self.written != self._written_before:
                    shown, self._written_before = self.ticket, self.written
                # It has no answer yet, so the answer need not wait for the commits it has read:
                # if they are rolled back, its next run reads the state of then.
                self.ticket = shown
                if self.goes_on:
                    self._part_done(first)
                else:
                    self._wait(first)
        finally:
            if self._due_us and not self.in_block:
                self.fiber.pop_deadline()
            if self.retry is not None:
                self.retry.leave()
                self.retry = None
            if self.wait is not None:
                self.wait.leave()
                self.wait = None
            if self.statement_work is not None:
                self.statement_work.leave()
                self.statement_work = None

    # --- one transaction, run by the executor -----------------------------------------------------

    @property
    def id(self) -> str:
        """Id of the request."""
        return self.request.request

    def begin_attempt(self) -> Transaction:
        """Begin the next attempt from the state before the first."""
        self.place, variables, self.iterations, kept, self._answers, held, done = self._before
        self.variables = variables.copy()
        self._kept = None if kept is None else kept.copy()
        if self._held is not None:
            self._held.held = held
        self._begin_transaction(done)
        return self.transaction

    def work(self, tx: Transaction) -> None:
        """Run the statements, and make sure that the changes may be committed. :raises Refusal:"""
        self._ended = self._statements(self._first, self._end, self._before[-1])
        transaction = self.transaction
        # Validate and encode in steps with yields, since the commit itself holds the loop.
        if transaction.size > LARGE_BYTES or (transaction.size and transaction.paused):
            for _ in self.services.committer.prepare(transaction):
                self.tick()
        # With a new snapshot too: without the answer no client would know its name.
        named = self.request.moment == NEW_MOMENT
        measured = self._measured() if transaction.size or self._commits or named else self._answers
        # Nothing yields from here to the commit: each check still holds when it is made.
        if self.ticket.sequence:
            self._check_kept()
        if self.saw_rolled_back:
            raise Conflict(SEEN_ROLLED_BACK)
        if self.hands_out:
            self.check_authenticated()  # no delivery after a sign-out
        for check in self.holds:
            check()
        if not (self.waits or self.goes_on):  # otherwise the statement has no result yet
            self._answers = measured

    def attribution(self) -> tuple[Author, str, str | None, Entry]:
        """Return what the commit records."""
        caller, request = self.caller, self.request
        audited = self.audited is not Audited.NEVER
        entry = self.services.statements.of(
            self.transaction, caller, request.request, self.place, audited
        )
        text = self.plan.redacted(self._first, self._end)
        return caller, text, self.reason or request.reason, entry

    def on_committed(self, ticket: CommitTicket) -> None:
        """Follow up a commit, or the end of statements that have changed nothing."""
        transaction = self.transaction
        if transaction.size:
            self.written = ticket
            self._commits.append(ticket)
            self.rest_on(ticket)
        # Nothing was rolled back since `work` has looked.
        self.rest_on_read()
        refused: Refusal | None = None
        for follow_up in self.afterwards:
            try:
                follow_up()
            except Refusal as refusal:  # the other callbacks have to run all the same
                refused = refused or refusal
        if refused is not None:
            raise refused
        is_unchanged = self.written == self._written_before
        if is_unchanged and self.says_written:
            self._prove_found()
        # A commit carries its own entry; without one it is kept apart.
        is_kept = self._is_audited() or self.request.record
        if is_unchanged and is_kept and not (self.waits or self.goes_on):
            self._keep(self._first, self._end)

    def is_conflict(self, refusal: Refusal) -> bool:
        """True after a conflict, or after a refusal that rests on a commit rolled back since."""
        if type(refusal) is Conflict:
            return True
        # A refusal from outside rests on no read: it stands after a roll back too.
        return self.saw_rolled_back and not isinstance(refusal, FROM_OUTSIDE)

    def refused(self, refusal: Refusal) -> Refusal:
        """Return the refusal of a transaction that is not run again."""
        del self.results[self._before[-1] :]
        if type(refusal) is NotAllowed or self._is_audited() or self.request.record:
            self._keep(self._first, self._end, refusal)
        # A refusal discloses state too: it waits for the commits that it has read.
        self.rest_on_seen()
        return self._located(refusal, self._first)

    def before_retry(self, retry: ConflictRetry) -> None:
        """Wait if needed, then yield. :raises Refusal: the script is ended"""
        del self.results[self._before[-1] :]
        try:
            if retry.must_wait:
                # An expiry ends waiting scripts only: check one that precedes the wait.
                self.check_authenticated()
                self._forget()
                with self._aside():
                    retry.wait()
            retry.yield_now()
        except Refusal as refusal:
            raise self._located(refusal, self._first) from refusal.__cause__

    def end_attempt(self) -> None:
        """End the transaction, whatever its outcome."""
        self.transaction.release()
        # These callbacks reference this run, which would live on with all that it held: a reference
        # cycle beyond the young generations is collected once in 50 million containers.
        self.afterwards.clear()
        if self.holds:
            self.holds = ()
        self._cached = None
        self.memory.largest = 0

    def _keep(self, first: int, end: int, refusal: Refusal | None = None) -> None:
        """Add an entry to the statement log for statements without a change. After a refusal it
        covers the statements reached: the others were not authorized."""
        request = self.request
        if refusal is not None and self._at is not None:
            end = self._at + 1
        self.services.statements.keep(
            self.transaction,
            self.caller,
            request.request,
            self.place,
            self.plan.redacted(first, end),
            self.reason or request.reason,
            audited=self._is_audited(),
            refusal=refusal,
        )

    def _is_audited(self) -> bool:
        """True if the audit trail keeps statements without a change, or refused ones."""
        return self.audited is Audited.ALWAYS

    def _forget(self) -> None:
        """Hold nothing of the ended transaction during a wait."""
        # An empty one in its place: the ended one may hold 64 MiB of changes.
        self.transaction = self.new_transaction()
        self.transaction.release()

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Count the script as waiting, without work. :raises Busy: the limit of waiting requests is
        reached"""
        self.waiting = True
        try:
            with self.services.registry.aside(self.caller.surface, self.caller.user):
                yield
        finally:
            self.waiting = False

    @property
    def barrier(self) -> bool:
        """True if it holds a priority lock: no other transaction commits to its read set until it
        ends."""
        return self.retry is not None and self.retry.barrier

    def _part_done(self, number: int) -> None:
        """Wait until the last part of a statement is released, so that at most one is pending.

        :raises Refusal: the script is ended, or the part was rolled back
        """
        try:
            self.until_released(self.ticket)
        except Refusal as refusal:
            raise self._located(refusal, number) from refusal.__cause__

    def until_released(self, ticket: CommitTicket) -> None:
        """Wait until a commit is released. :raises Refusal: the script is ended, or the commit was
        rolled back, or not released in time"""
        committer = self.services.committer
        wait = FiberWait(self.fiber, committer.monotonic_us())
        committer.block(wait, ticket)
        wait.until_resumed()

    def _wait(self, number: int) -> None:
        """Wait for messages or an index, or until the time is up. :raises Refusal: the script is
        ended"""
        wait = self.wait
        assert wait is not None, "a statement waits for nothing"
        try:
            self.check_authenticated()
            # A commit between its read and its place in the line has not woken it: a lost wake-up.
            shown = max(self.read_at, self.written.sequence)
            wait.join(overtaken=self.services.committer.committed > shown)
            # A wake before the park resumes nothing: only `woken` remembers it.
            if not wait.woken:
                with self._aside():
                    self.fiber.park(wait.until_us)
        except Refusal as refusal:
            raise self._located(refusal, number) from refusal.__cause__
        if self.services.clock.monotonic_us() >= wait.until_us:
            wait.over = True

    @property
    def committed(self) -> int:
        """Sequence of the newest of its commits that is released; 0: none is."""
        committer = self.services.committer
        for ticket in reversed(self._commits):
            if committer.is_released(ticket):
                return ticket.sequence
        return 0

    def with_outcome(self, refusal: Refusal) -> Refusal:
        """Return a refusal with the information whether earlier commits of the script stand."""
        return after(refusal, self.committed)

    @property
    def due_us(self) -> int | None:
        """Deadline of the answer, on the monotonic clock: that of the request, or of the statement
        it ended with. None: there is none."""
        due_us = self.fiber.ends_us
        if self._at is None:
            return due_us
        own_us = self._due_us
        step = self.plan.step(self.plan.script.statements[self._at])
        if not own_us or step.timeout_us is None:
            return due_us
        return own_us if due_us is None else min(own_us, due_us)

    def _check_kept(self) -> None:
        """Check the commits that the answer rests on.

        :raises DiskFull, UnknownOutcome: a commit that the script made or read was rolled back
        """
        # `merge` raises for a ticket that was rolled back; its result is not needed.
        self.services.committer.merge(self.ticket, NO_COMMIT)

    def _begin_transaction(self, done: int) -> None:
        if self.ticket.sequence:
            self._check_kept()
        self.beside = NO_COMMIT
        self.transaction = transaction = self.new_transaction()
        self.began = True
        self.read_at = transaction.sequence
        self._ids = self._nested = 0
        self.waits = self.goes_on = self.hands_out = self.says_written = False
        self.audited = Audited.NEVER
        self.reason = None
        del self.results[done:]

    def _statements(self, first: int, end: int, done: int) -> bool:
        plan = self.plan
        statements = plan.script.statements
        self.in_block = type(statements[first]) is tree.Begin
        ended = False
        for number in range(first, end):
            self._at = number
            try:
                step = plan.step(statements[number])
                if number:
                    self.tick()  # a script of a million short statements must not hold the loop
                    if not step.about_node:  # the node's roles may have changed since it began
                        self.services.roles.check_answering(self.caller)
                self._statement(step)
            except Returned as returned:
                self._kept = None  # no later statement uses a variable
                self._answer(returned.value, "value", 0)
                ended = True
                break
            except Refusal as refusal:
                raise self._located(refusal, number) from refusal.__cause__
        if type(statements[end - 1]) is tree.Cancel:
            self._cancel(done)
        return ended

    def _cancel(self, done: int) -> None:
        """Cancel the block: replace its results, since nothing of it was written."""
        answered, read_at = len(self.results) - done, self.read_at
        if self.saw_rolled_back:
            raise Conflict(SEEN_ROLLED_BACK)
        self.rest_on_seen()
        self.end_attempt()
        # An empty transaction: the commit that follows writes nothing.
        # The answer keeps the sequence that the cancelled statements have read at.
        self._begin_transaction(done)
        self.read_at = read_at
        self.results.extend([Result(NONE, "none", 0, 0)] * answered)

    def _statement(self, step: Step) -> None:
        fiber = self.fiber
        began_us, timeout_us = fiber.now_us, step.timeout_us
        self.rows_read = 0
        self._changed = self._cached = None
        memory = self.memory
        memory.largest, held = 0, memory.held
        try:
            value = self.perform(step) if timeout_us is None else self._in_time(step, timeout_us)
        finally:
            memory.return_to(held)
            took_us = fiber.refresh_clock() - began_us
            if took_us >= self.services.slow_us:
                self._say_slow(took_us)
        self._answer(value, step.kind, took_us)

    def _in_time(self, step: Step, timeout_us: int) -> Value:
        """Run a statement within its own TIMEOUT. If it is the whole transaction, that covers every
        attempt, the commit, and the waits in between."""
        fiber = self.fiber
        if self.in_block:
            # The commit belongs to the block: the limit covers the statement's own work alone.
            self._due_us = fiber.now_us + timeout_us
            return self.timed(step)
        if not self._due_us:  # the first attempt
            fiber.push_deadline(timeout_us)  # `_transact` pops it
            self._due_us = fiber.refresh_clock() + timeout_us
        return self.perform(step)

    def _say_slow(self, took_us: int) -> None:
        """Log a slow statement; its text without secrets, and truncated."""
        self.services.registry.slow += 1
        number, text = self.at_statement() or (0, "")
        log.info(
            "slow statement", request=self.request.request, user=self.caller.user,
            statement=number, text=text[:TEXT_CHARACTERS], took_ms=took_us // 1000,
            rows_read=self.rows_read, namespace=self.place[0], database=self.place[1],
        )  # fmt: skip

    def _answer(self, value: Value, kind: ResultKind, took_us: int) -> None:
        rows = len(value) if kind == "rows" and isinstance(value, list) else 0
        # Measuring costs more than a short statement does: a few quick rows go unmeasured.
        few = rows <= FEW_ROWS and len(self.results) < FEW_RESULTS and took_us < QUICK_US
        if self.paused or not few:
            if self._held is None:
                self._held = Budget(ANSWER_BYTES, self.tick)
            self._held.sample(value if isinstance(value, list) else [value])
        self.results.append(Result(value, kind, rows, took_us, self.changed))
        self.memory.largest = 0

    def pause(self) -> None:
        """Prepare a yield: from here on the transaction reads a fixed snapshot."""
        self.paused = True
        if self.began:
            self.transaction.pause()
        self._count_memory()

    def _count_memory(self) -> None:
        """Update the memory account of its user and node. The request's own data is counted by its
        surface."""
        memory = self.memory
        held, apart = memory.held, memory.largest + memory.tree
        # Small variables are not in `_kept`: each counts as the largest of them.
        apart += SMALL_BYTES * max(0, len(self.variables) - len(self.request.parameters))
        if self._held is not None:
            held += self._held.held
        if self._kept is not None:
            held += self._kept.size
        if self._cached is not None:
            held += self._cached.size
        if self.began and not self.transaction.reads.ended:
            apart += self.transaction.size * PACKED_WEIGHT
        if self.account is None:
            # Most scripts hold little, and never open an account.
            if held + apart <= STEP_BYTES:
                return
            self.account = MemoryAccount(self.caller.user, self.fiber.cancel, self._commits)
        self.services.registry.memory.set(self.account, held, apart)

    def keep_results_only(self) -> None:
        """Release everything but the results: the script has ended."""
        self.variables = {}
        self._kept = self._cached = None
        self.enlist = _nothing  # no reference cycle with its request
        self.memory.held = self.memory.largest = 0
        if self.account is not None:
            self.account.can_end = False
            self._count_memory()

    def release_memory(self) -> None:
        """Close the memory account: the script is answered, or needs no answer."""
        if self.account is not None:
            self.services.registry.memory.close(self.account)
            self.account = None

    def _measured(self) -> tuple[int, int]:
        """Return the number of results, and their size in the answer. Checked before the commit:
        the outcome of a commit must not be lost because it can't be sent.

        :raises AnswerTooLarge: the limit is exceeded
        """
        most = self.request.answer_bytes
        if most is None:
            return self._answers
        known, size = self._answers
        return len(self.results), measured(self.results[known:], size, most, self.tick)

    @property
    def size(self) -> int | None:
        """Size of its results in the answer, about; None: not all were measured."""
        known, size = self._answers
        return size if known and known == len(self.results) else None

    def _located(self, refusal: Refusal, number: int) -> Refusal:
        statement = self.plan.script.statements[number]
        line, column = self.plan.script.position(statement.at)
        refusal.detail.setdefault("statement", number + 1)
        refusal.detail.setdefault("line", line)
        refusal.detail.setdefault("column", column)
        return refusal


def _nothing() -> None:
    """Replaces the callback of an ended script."""
