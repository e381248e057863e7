"""Message engine: runs operations that come without a script, without a fiber, many in one commit.

The fixed cost of a commit is shared by all operations in it (group commit). So operations are not
run as they come:

- Those of one iteration of the loop, and those that come while the log writes a batch, are run
  together (`actors/execution/units.py`).
- Those of one user over one surface share a transaction and a commit, which has one attribution.
- Each is atomic by itself: a refused operation has changed nothing. Exceptions are a transaction
  grown too large, a bug, and a refused commit of several. Then all of them are run once more, each
  in a commit of its own.
- They run in the order of arrival. One that takes longer than a slice (hundreds of receipts or
  values) runs as its equivalent script, scheduled fairly among all others.

A TAKE that waits stands in the same lines as those of scripts (`actors/topics/waiting.py`). Waits
woken by a commit are run in the same iteration. One that has taken lets the next look in the same
transaction: a batch of messages for thirty workers is two commits.

Credentials and privileges are checked at each operation's own run, like those of the statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

from pykka import ActorRef

from actors.commits.committer import Committer
from actors.commits.priority_locks import BlockedLines
from actors.execution.executor import Executor
from actors.execution.request import DONE
from actors.execution.transact import transact
from actors.execution.units import SharedUnit, UnitQueue
from actors.messages import operations, texts
from actors.messages.request import (
    MessageCallback,
    MessageParts,
    MessageRequest,
    Sender,
    TakeRoom,
)
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, ask, tell
from actors.sessions import Sessions
from actors.statements import Statements
from actors.topics.service import TopicService
from protocol import limits
from protocol.errors import (
    Busy,
    Conflict,
    Draining,
    NotAllowed,
    Refusal,
    SessionEnded,
    Unknown,
)
from protocol.messages import MessageOperation, PublishMessages, TakeMessages
from protocol.requests import CancelScript, RunScript, ScriptAnswer, Surface
from protocol.rights import Verbs
from storage.topics import groups
from storage.topics.topics import Topic
from storage.txn.tickets import NO_COMMIT, CommitTicket
from storage.txn.transaction import Transaction

COMMIT_BYTES: Final = 4 * limits.MIB
"""Bytes that operations put into one commit before the next one begins."""
TOGETHER: Final = 256
"""Most operations in one commit: about a slice."""
SHORT: Final = 256
"""Most receipts or values of an operation that is run here. More are run as a script."""
STATEMENTS: Final = 16
"""Most different statements that a commit names in the statement log; the others are counted."""

Whose = tuple[str, Surface]
"""User and surface whose operations share a commit."""

Judged = tuple[tuple[str, str], str, Verbs]
"""A topic by its names, and the required privilege."""


class MessageEngine:
    """Queues operations by user and surface, and commits them in groups. On the loop only.

    :param scripts: returns the current scripts actor
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        executor: Executor,
        roles: Roles,
        rights: Rights,
        sessions: Sessions,
        topics: TopicService,
        statements: Statements,
        scripts: Callable[[], ActorRef[Any]],
    ) -> None:
        self._runtime = runtime
        self.committer = committer
        self._parts = MessageParts(runtime, committer, topics, self.again)
        self._roles = roles
        self._rights = rights
        self._sessions = sessions
        self.topics = topics
        self._statements = statements
        self._scripts = scripts
        self._executor = executor
        self._units: UnitQueue[MessageRequest] = UnitQueue(
            runtime, committer, self._run_together, self._run_some, _texts, _refuse_at_stop
        )
        self.on_turn_end = self._units.on_turn_end
        """Called by a surface that adds no more operations in this iteration of the loop. The
        queued ones run now, if no other caller adds any in it and none are likely to come."""
        self.stop = self._units.stop
        """Runs nothing more: queued operations are answered with `Draining`."""
        self._blocked: BlockedLines[MessageRequest] = BlockedLines(
            committer.priority_locks, self._unblock
        )
        self.commits = 0
        """Commits made."""

    def ask(
        self,
        sender: Sender,
        operation: MessageOperation,
        told: MessageCallback,
        *,
        timeout_us: int | None = None,
        room: TakeRoom | None = None,
    ) -> MessageRequest:
        """Run an operation soon. The callback gets its result, never before this returns."""
        asked = MessageRequest(self._parts, sender, operation, timeout_us, room, told)
        if _is_short(operation):
            self.again(asked)
        else:
            # In a later iteration: the callback may not come before this call returns.
            self._runtime.loop.call_soon(self._run_as_script, asked, timeout_us)
        return asked

    def again(self, asked: MessageRequest) -> None:
        """Run an operation soon, after those queued before."""
        self._units.add(_whose(asked), asked)

    # --- one commit -----------------------------------------------------------------------------

    def _run_together(self, unit: SharedUnit[MessageRequest]) -> None:
        """Run operations in one commit. Operations that they wake join the end of their queue."""
        try:
            ticket = transact(self.committer, unit)
        except Refusal as refusal:
            self._on_refused(unit, refusal)
            return
        self.commits += unit.wrote
        for asked in unit.done:
            performed = asked.performed
            if performed is not None:
                if unit.wrote and performed.changed:
                    asked.written = ticket
                try:
                    performed.follow_up()
                except Exception as error:
                    asked.refusal = asked.refusal_of(error)
        for asked in unit.done:
            if asked.state != DONE:
                self._after(asked, ticket)

    def _on_refused(self, unit: SharedUnit[MessageRequest], refused: Refusal) -> None:
        """Run the operations of a refused transaction again, each alone; or refuse a lone one."""
        for asked in unit.done:
            asked.give_room_back()  # their deliveries did not happen
        if len(unit.done) > 1:
            # The culprit is not known, or one's fault would fail all.
            for asked in unit.done:
                self._units.run_alone(unit.group, asked)
            return
        (alone,) = unit.done
        # Its result stems from a transaction that was not committed.
        alone.performed = None
        # Only a lone operation is held back: of several, the others may not be blocked.
        if unit.blocked_by_lock and type(refused) is Conflict:
            self._hold_back(alone)
        else:
            alone.refusal = refused
            alone.leave_line()
            # The refusal may rest on pending commits that the transaction has read.
            self._answer_when(alone, unit.saw)

    def _run_some(self, tx: Transaction, unit: SharedUnit[MessageRequest]) -> None:
        """Run some operations in one transaction.

        :raises Refusal: of one that had changed something by then: nothing of the transaction may
            be committed
        """
        queue, done = unit.queue, unit.done
        judged: dict[Judged, Topic] = {}
        while queue and len(done) < TOGETHER and tx.size <= COMMIT_BYTES:
            asked = self._units.pop(queue)
            if asked.state == DONE:
                continue
            if self._blocked.requests and self._blocked.holds_up(_lines(asked)):
                self._hold_back(asked)
                continue
            done.append(asked)
            try:
                self._perform(tx, asked, judged)
            except Refusal as refusal:
                asked.refusal = refusal
                # The one refusal that comes after some changes; any other has changed nothing.
                if tx.size > limits.TRANSACTION_BYTES:
                    raise
            except Exception as error:
                # A bug may leave changes behind, so nothing of this transaction is committed.
                raise asked.refusal_of(error) from error

    def _perform(self, tx: Transaction, asked: MessageRequest, judged: dict[Judged, Topic]) -> None:
        """Run one operation. :raises Refusal: see `operations`

        :param judged: topics authorized for its caller earlier in this transaction. The transaction
            reads privileges in one state throughout; the node's role does not change meanwhile
            either
        """
        asked.performed = asked.refusal = None
        asked.written = NO_COMMIT
        operation = asked.operation
        # At the run: the session may have ended while the operation was queued.
        self._sessions.check_authenticated(asked.caller)
        if asked.is_late():
            raise asked.out_of_time()
        names = asked.sender.place, operation.topic, operation.needs
        # Once for each topic of a transaction: hundreds of operations may name the same one.
        topic = judged.get(names)
        if topic is None:
            self._roles.check_answering(asked.sender.caller)
            self.committer.check_writable()
            topic = judged[names] = self._topic(tx, asked)
        if type(operation) is PublishMessages:
            asked.performed = operations.publish(self.topics, tx, topic, operation)
            return
        assert not isinstance(operation, PublishMessages)
        group = groups.group(tx, topic, operation.group)
        if isinstance(operation, TakeMessages):
            self._take(tx, asked, operation, group)
        else:
            asked.performed = operations.apply_receipts(self.topics, tx, group, operation)

    def _topic(self, tx: Transaction, asked: MessageRequest) -> Topic:
        """Return an operation's topic, after authorization. :raises Unknown, NotAllowed:"""
        sender, operation = asked.sender, asked.operation
        try:
            return self._rights.topic(
                tx, sender.caller, sender.place, operation.topic, operation.needs
            )
        except NotAllowed as refusal:
            text = texts.statement(operation)
            self._statements.keep(
                tx, sender.caller, sender.request, sender.place, text, refusal=refusal
            )
            raise

    def _take(
        self, tx: Transaction, asked: MessageRequest, operation: TakeMessages, group: groups.Group
    ) -> None:
        wait = None
        if operation.wait_us is not None:
            of = group.topic.id, group.id
            wait = asked.line_wait(of, operation.wait_us)
            # A topic or group declared again under this name has a line of its own.
            if wait.place.of != of:
                raise Unknown("the topic or group that this waited for was dropped")
            # As the statement does: at the end of its time it looks without the turn too.
            if not self.topics.waits.line(*of).may_look(wait) and not wait.over:
                return  # it has not looked, and waits
        room = asked.room
        # Messages delivered without room would use up their deadlines in a buffer.
        if room is not None and room.left <= 0:
            asked.conclude(None)
            return
        done = asked.performed = operations.take(self.topics, tx, group, operation, wait, _always)
        if done.handed_out is not None:
            asked.leave_line()  # the next in line looks in the same transaction
            asked.take_room(sum(message["bytes"] for message in done.answer))

    def _after(self, asked: MessageRequest, ticket: CommitTicket) -> None:
        performed = asked.performed
        if asked.refusal is not None:
            asked.leave_line()
        elif performed is None or (performed.waits and not performed.goes_on):
            self._wait_in_line(asked)
            return
        self._answer_when(asked, ticket)

    def _answer_when(self, asked: MessageRequest, ticket: CommitTicket) -> None:
        """Answer once all that the answer shows is released."""
        asked.shown = ticket
        self._executor.finish(asked)

    # --- waiting --------------------------------------------------------------------------------

    def _wait_in_line(self, asked: MessageRequest) -> None:
        """Have an operation that found nothing wait in line for messages."""
        wait = asked.wait_in_line
        assert wait is not None, "it waits for nothing"
        try:
            # The registry ends only requests that it lists. A session that ended before is seen
            # here.
            self._sessions.check_authenticated(asked.caller)
        except SessionEnded as refusal:
            asked.conclude(refusal)
            return
        # Look, commit and join happen without a yield: no wake-up is lost in between.
        wait.join()
        if wait.woken:
            self.again(asked)
            return
        self._begin_waiting(asked, asked.until_us)

    def _hold_back(self, asked: MessageRequest) -> None:
        """Hold back an operation blocked by another's priority lock, or sent after a blocked one.
        It runs again when the lock goes, before operations that came since."""
        self._blocked.block(asked, _lines(asked))
        self._begin_waiting(asked, None)

    def _begin_waiting(self, asked: MessageRequest, until_us: int | None) -> None:
        try:
            asked.begin_waiting(until_us)
        except Busy as busy:
            asked.conclude(busy)

    def _unblock(self, requests: list[MessageRequest]) -> None:
        for asked in reversed(requests):
            # One that rests no more was ended meanwhile.
            if asked.rests:
                asked.end_waiting()
                self._units.add(_whose(asked), asked, first=True)

    # --- as scripts -----------------------------------------------------------------------------

    def _run_as_script(self, asked: MessageRequest, timeout_us: int | None) -> None:
        """Run an operation that takes longer than a slice as its equivalent statement."""
        if asked.state == DONE:
            return
        sender, operation = asked.sender, asked.operation
        namespace, database = sender.place
        request = RunScript(
            caller=sender.caller,
            script=texts.statement(operation),
            request=sender.request,
            parameters=texts.parameters(operation),
            namespace=namespace,
            database=database,
            timeout_us=timeout_us,
        )
        try:
            answered = ask(self._scripts(), request)
        except Refusal as refusal:
            asked.conclude(refusal)
            return
        asked.cancel_script = partial(self._cancel_script, asked.id)
        answered.add_done_callback(partial(self._ran_as_script, asked))

    def _ran_as_script(self, asked: MessageRequest, answered: asyncio.Future[ScriptAnswer]) -> None:
        asked.cancel_script = None
        if answered.cancelled():
            asked.conclude(_stopping())
            return
        error = answered.exception()
        if error is not None:
            asked.conclude(asked.refusal_of(error))
            return
        found = answered.result()
        if found.refusal is not None:
            for name in ("statement", "line", "column"):  # there is none that the caller wrote
                found.refusal.detail.pop(name, None)
            asked.conclude(found.refusal)
        else:
            # Not the sequence of the answer: that covers commits of others that it has only read.
            asked.written = self.committer.ticket(found.committed)
            asked.conclude_with(found.results[-1].value)

    def _cancel_script(self, request: str) -> None:
        tell(self._scripts(), CancelScript(request))


def _whose(asked: MessageRequest) -> Whose:
    return asked.caller.user, asked.caller.surface


def _refuse_at_stop(asked: MessageRequest) -> None:
    if asked.state != DONE:
        asked.conclude(_stopping())


def _always() -> bool:
    """True always: each part without a result is a commit of its own, since only a commit yields to
    the loop."""
    return True


def _lines(asked: MessageRequest) -> tuple[Hashable, ...]:
    """Return the line that it keeps the order of: its connection's, about. A waiting TAKE has none:
    holding the turn of its group, it would keep all others there from looking."""
    if asked.wait_in_line is not None:
        return ()
    caller = asked.caller
    return ((caller.user, caller.address, caller.surface),)


def _is_short(operation: MessageOperation) -> bool:
    if isinstance(operation, TakeMessages):
        return True
    if isinstance(operation, PublishMessages):
        return len(operation.values) <= SHORT
    return len(operation.receipts) <= SHORT


def _texts(unit: SharedUnit[MessageRequest]) -> tuple[str, None]:
    """Return the equivalent statements of the operations that changed something, each text once."""
    found = dict.fromkeys(
        texts.statement(asked.operation)
        for asked in unit.done
        if asked.performed is not None and asked.performed.changed
    ) or {"messages": None}
    if len(found) == 1:
        return next(iter(found)), None
    named = list(found)[:STATEMENTS]
    more = len(found) - len(named)
    return "; ".join(named) + (f" … ({more} more)" if more else ""), None


def _stopping() -> Draining:
    return Draining("the node is stopping")
