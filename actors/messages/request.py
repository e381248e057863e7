"""An operation on messages that came without a script, from its request to its answer.

| state | until | ended early by |
|---|---|---|
| queued | it is run, in this iteration of the loop or after the batch at the log | the client |
| resting | its wait is woken, or a priority lock that held it back is gone | KILL, its time |
| waiting for the disk | all that its answer shows is released | KILL, its time: see `Request` |
| run as a script | that has ended | KILL, its time: as any script |
| done | | |

It is answered once, whatever happens. INFO FOR RUNNING does not show it while it is only queued.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from actors.commits.committer import Committer
from actors.execution.registry import ENDED
from actors.execution.request import (
    COMMITTING,
    DONE,
    QUEUED,
    ExecutedRequest,
    RequestOrigin,
    described,
)
from actors.messages.operations import OperationResult
from actors.messages.texts import statement
from actors.runtime import Runtime
from actors.topics.deadlines import LateDeadlines
from actors.topics.service import TopicService
from actors.topics.waiting import StatementWait, WaitTarget
from protocol.errors import Failed, Refusal, SessionEnded
from protocol.messages import MessageOperation
from protocol.requests import Caller
from protocol.values import Value

MessageCallback = Callable[[Any, Refusal | None], None]
"""Callback with the answer, or the refusal. Both None: given back for want of room."""


class TakeRoom(Protocol):
    """Byte budget of a client for messages delivered and not yet sent (backpressure)."""

    @property
    def left(self) -> int:
        """Bytes of messages that may be delivered; at 0 none is."""

    def take(self, size: int) -> None:
        """Count delivered bytes; negative: they were not delivered after all."""


class Sender(NamedTuple):
    """Sender of an operation, and the database it is for."""

    request: str
    """Id of the request, for KILL."""
    caller: Caller
    place: tuple[str, str]
    """Names of the namespace and the database."""


class MessageParts:
    """Parts of the node that requests on messages use.

    :param run_again: queues a request, behind those queued before
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        topics: TopicService,
        run_again: Callable[[MessageRequest], None],
    ) -> None:
        self.runtime = runtime
        self.committer = committer
        self.topics = topics
        self.run_again = run_again


class MessageRequest(ExecutedRequest):
    """An operation that came without a script; the table in the module's docstring has its states.

    :param timeout_us: time to the answer, from now on; None: unlimited
    :param room: byte budget of its deliveries; an operation that finds none left is given back
    """

    has_grace = True

    def __init__(
        self,
        parts: MessageParts,
        sender: Sender,
        operation: MessageOperation,
        timeout_us: int | None,
        room: TakeRoom | None,
        told: MessageCallback,
    ) -> None:
        super().__init__(parts.committer, parts.committer.monotonic_us())
        self._parts = parts
        self.sender = sender
        self.caller = sender.caller
        self.operation = operation
        self.room = room
        self.promised = True
        self._took = 0
        """Bytes taken of its budget."""
        self._callback = told
        self._due_us = None if timeout_us is None else self.began_us + timeout_us
        self.performed: OperationResult | None = None
        """Result of its last run."""
        self._result: Any = None
        """Result of the script that it was run as."""
        self.cancel_script: Callable[[], None] | None = None
        """Cancels the script that it is run as; None: it is run as none."""
        self.wait_in_line: StatementWait | None = None
        """Its wait in a group's line."""
        self.until_us = 0
        self.rests = False
        """True while it waits for messages, or for a priority lock to go."""
        self._late: LateDeadlines | None = None

    # --- identity -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.sender.request

    @property
    def sequence(self) -> int:
        """Sequence of its own newest commit; 0: it has made none."""
        return self.written.sequence

    def describe(self, now_us: int) -> dict[str, Value]:
        return described(
            RequestOrigin.of(self.id, self.caller),
            self.caller.user,
            self.sender.place,
            statement(self.operation),
            since_us=now_us - self.began_us,
            left_us=None if self._due_us is None else self._due_us - now_us,
            commit=self.ticket.sequence if self.waits else None,
        )

    # --- its room -------------------------------------------------------------------------------

    def take_room(self, size: int) -> None:
        """Count delivered bytes against its budget; the surface returns them when they are sent."""
        if self.room is not None:
            self._took += size
            self.room.take(size)

    def give_room_back(self) -> None:
        """Return its bytes to the budget: its deliveries will not be sent."""
        size, self._took = self._took, 0
        if self.room is not None and size:
            self.room.take(-size)

    # --- waiting for messages -------------------------------------------------------------------

    def line_wait(self, of: WaitTarget, for_us: int) -> StatementWait:
        """Return its wait in the line of a group; made at its first run."""
        wait = self.wait_in_line
        if wait is None:
            now_us = self._committer.monotonic_us()
            # Set once: a run after a priority lock has only the time that is left.
            self.until_us = self.until_us or now_us + for_us
            wait = StatementWait(self._parts.topics.waits.line(*of), self.until_us, self.woken)
            # One that was in line before, and is run again, may have no time left.
            wait.over = for_us == 0 or now_us >= self.until_us
            self.wait_in_line = wait
        return wait

    def leave_line(self) -> None:
        """End its wait for messages: the turn goes to the next."""
        wait, self.wait_in_line = self.wait_in_line, None
        if wait is not None:
            wait.leave()

    def woken(self) -> None:
        """Run again: there may be messages, or its time is over. While it does not rest, it reads
        `StatementWait.woken` by itself."""
        if self.rests:
            self.end_waiting()
            self._parts.run_again(self)

    def begin_waiting(self, until_us: int | None) -> None:
        """Wait for messages, or for a priority lock to go.

        :param until_us: time at which it answers with the messages there are; None: it does not
        :raises Busy: the limit of waiting requests is reached
        """
        self._committer.registry.begin_waiting(self)
        self.rests = True
        # Its own time-out or the end of WAIT, whichever is earlier.
        if self._due_us is not None:
            until_us = self._due_us if until_us is None else min(self._due_us, until_us)
        if until_us is not None:
            self._committer.deadlines.set(self, until_us)

    def end_waiting(self) -> None:
        """End the rest."""
        self.rests = False
        self._committer.registry.end_waiting(self)
        self._committer.deadlines.clear(self)

    def on_deadline(self) -> None:
        if not self.rests:
            super().on_deadline()
            return
        # A time-out is a refusal; the end of WAIT is an answer, maybe an empty one.
        if self.is_late():
            self.conclude(self.out_of_time())
        elif self.wait_in_line is not None:
            self.wait_in_line.end()

    def is_late(self) -> bool:
        """True if its own time is over."""
        return self._due_us is not None and self._committer.monotonic_us() >= self._due_us

    # --- its result -----------------------------------------------------------------------------

    def wait_for_shown(self) -> None:
        performed = self.performed
        if performed is not None and performed.handed_out is not None:
            now_us = self._committer.monotonic_us()
            self._late = LateDeadlines(self._parts.topics, (performed.handed_out,), now_us)
        self.wait(self.shown, self._due_us)

    def on_result(self, lost: BaseException | None) -> None:
        if self.state == DONE:
            return
        if self._late is not None:
            lost, again = self._late.on_released(lost, self._committer.monotonic_us())
            if again is not None:
                self.wait(again)
                return
        goes_on = self.performed is not None and self.performed.goes_on
        if goes_on and lost is None and self.refusal is None:
            # A kill during the wait for this part: the next part does not begin.
            if self.ended_by is None:
                self.state = QUEUED
                self._parts.run_again(self)
                return
            lost = self.ended_by
        self.conclude(None if lost is None else self.refusal_of(lost))

    def refusal_of(self, error: BaseException) -> Refusal:
        """Return the refusal to answer with. Anything but a refusal is a bug, or a failed state
        engine."""
        if isinstance(error, Refusal):
            return error
        self._parts.runtime.report_error("messages", error, request=self.id)
        return Failed(f"the node failed at this request: see its log for request {self.id}")

    def conclude(self, why: Refusal | None) -> None:
        """Answer with its result, or a refusal. Neither: it is given back without effect, since its
        budget has no room for deliveries."""
        assert self.state != DONE, f"{self.id} is answered twice"
        if self.rests:
            self.end_waiting()
        self.leave_line()
        if why is not None or self.refusal is not None:
            self.give_room_back()  # delivered or not
        super().on_result(why)

    def conclude_with(self, result: Any) -> None:
        """Answer with the result of its script."""
        self._result = result
        self.conclude(None)

    def answer(self, lost: BaseException | None) -> Any:
        if lost is not None:
            return None
        return self._result if self.performed is None else self.performed.answer

    def notify(self, answer: Any, lost: BaseException | None) -> None:
        assert lost is None or isinstance(lost, Refusal)
        self._callback(answer, lost)

    # --- the end --------------------------------------------------------------------------------

    def end(self, why: Refusal) -> bool:
        if self.state in (COMMITTING, DONE):
            return super().end(why)
        if self.cancel_script is None:
            self.conclude(why)
        else:
            self.cancel_script()
        return True

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        # In the registry by its credential only while it rests: later messages are not for it.
        self.end(SessionEnded(ENDED))
