"""Request: one request of a client, from its arrival to its result.

| state | until | ended early by |
|---|---|---|
| QUEUED | it has its turn, or the priority lock that blocks it is gone | KILL, its credential |
| RUNNING | its operations are done | KILL, its credential, if it takes several slices |
| COMMITTING | all that its answer rests on is released | KILL, its client, its deadline |
| DONE | | |

A stalled disk may take minutes, so a wait for a release can be listed and ended. The answer is
UnknownOutcome then if a commit of its own is pending: it may still become durable, or not. An
answer that has only read another's pending commit gets the reason of its end, and nothing of what
it read.

`executor.py` runs requests. A result needs no future: writing it out is most of the work, and a
future costs one more iteration of the loop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from actors.execution.blocking import Wait
from actors.execution.registry import ENDED
from protocol import limits
from protocol.errors import Refusal, SessionEnded, StatementTimeout, UnknownOutcome
from protocol.requests import Caller, Surface
from protocol.text import duration
from protocol.values import Value
from storage.txn.tickets import NO_COMMIT, CommitTicket

if TYPE_CHECKING:
    from actors.commits.committer import Committer
    from actors.execution.fiber import Fiber
    from actors.execution.registry import Credential

Answer_contra = TypeVar("Answer_contra", contravariant=True)

QUEUED: Final = 0
RUNNING: Final = 1
COMMITTING: Final = 2
DONE: Final = 3


class RequestOrigin(NamedTuple):
    """Origin of a request, as INFO FOR RUNNING shows it."""

    request: str
    """Names it, as KILL does."""
    surface: Surface
    address: str

    @classmethod
    def of(cls, request: str, caller: Caller) -> RequestOrigin:
        """Return that of a caller's request."""
        return cls(request, caller.surface, caller.address)


class Requester(Protocol[Answer_contra]):
    """Requester of one operation. It may have been abandoned when its result comes."""

    @property
    def surface(self) -> Surface:
        """Surface of the request, recorded with its changes."""

    @property
    def origin(self) -> RequestOrigin:
        """Origin, made on demand: most requests end before it is needed."""

    @property
    def connection(self) -> object:
        """Connection, whose requests keep their order."""

    def on_result(self, answer: Answer_contra | None, lost: BaseException | None) -> None:
        """Receive the result. Called at most once, never before the requesting call has returned.

        :param lost: the reason why there is no answer; None: there is one
        """


class Request(Wait):
    """A request, or the answer of one. A wait for a release is resumed by the committer.

    :param began_us: its arrival, on the monotonic clock
    """

    ticket: CommitTicket
    """Ticket that it waits for."""
    ended_by: Refusal | None = None
    """Refusal that ends it, during the delay that `end_soon` gives."""

    def __init__(self, committer: Committer, began_us: int) -> None:
        self._committer = committer
        self.began_us = began_us

    # --- identity -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def id(self) -> str:
        """Id of the request, for KILL."""

    @property
    @abstractmethod
    def written(self) -> CommitTicket:
        """The newest commit of the request's own."""

    @abstractmethod
    def describe(self, now_us: int) -> dict[str, Value]:
        """Return its row of INFO FOR RUNNING."""

    # --- waiting for a release ------------------------------------------------------------------

    @abstractmethod
    def on_result(self, lost: BaseException | None) -> None:
        """Answer; or `wait` for something else.

        :param lost: the reason why the commit is not released; None: it is
        """

    def wait(self, ticket: CommitTicket, until_us: int | None = None) -> None:
        """Wait for a ticket; `on_result` is called in the end, which may be before this returns.

        :param until_us: deadline, on the monotonic clock; None: that of an earlier wait, if any
        """
        self.ticket = ticket
        self._committer.registry.enter(self)
        if until_us is not None:
            self.wait_until(until_us)
        # Last: it may resume at once, which undoes the entry and the deadline.
        self._committer.block(self, ticket)

    @property
    def waits(self) -> bool:
        """True until it is resumed."""
        return self.queue is not None

    def wait_at_most(self, for_us: int) -> None:
        """Wait no longer than that from now on."""
        self.wait_until(self._committer.monotonic_us() + for_us)

    def wait_until(self, until_us: int) -> None:
        """Wait no longer than that, on the monotonic clock."""
        # The earlier deadline stands: no wait is prolonged.
        if self.deadline_us is None or self.deadline_us > until_us:
            self._committer.deadlines.set(self, until_us)

    def resume(self, lost: BaseException | None) -> None:
        """Handle the release, or its failure: called once for each `wait`."""
        # Before `on_result`, which may wait for another ticket.
        self.queue = None
        self._committer.registry.leave(self)
        self.on_result(lost)
        # A further wait keeps the deadline: it is that of the whole answer.
        if self.deadline_us is not None and self.queue is None:
            self._committer.deadlines.clear(self)

    # --- ends -----------------------------------------------------------------------------------

    def end(self, why: Refusal) -> bool:
        """End the wait. False: it has ended already."""
        return self._give_up(why)

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        """Wait on: what the answer shows was done with a good credential."""
        return

    def end_soon(self, why: Refusal) -> None:
        """End the wait after a grace period. A working disk brings the answer meanwhile, with
        messages in it, perhaps, that would stay delivered to no consumer."""
        # The first reason stands.
        self.ended_by = self.ended_by or why
        self.wait_at_most(limits.ENDED_SECONDS * 1_000_000)

    def on_deadline(self) -> None:
        self._give_up(self.out_of_time())

    def out_of_time(self) -> Refusal:
        """Return the refusal at its deadline."""
        return self.ended_by or StatementTimeout("the statement used up its time")

    def _give_up(self, why: Refusal) -> bool:
        # The committer has resumed it already: its answer is on the way.
        if not self.cancel():
            return False
        self.answer_ended(self.why_ended(why))
        return True

    def why_ended(self, why: Refusal) -> Refusal:
        """Return the refusal of an ended wait: the reason, or UnknownOutcome if a commit of its own
        is pending."""
        written, committer = self.written, self._committer
        # No commit of its own is pending: its outcome is certain.
        if committer.is_released(written):
            return why
        try:
            # Raises the reason if that commit was rolled back.
            committer.merge(written, NO_COMMIT)
        except Refusal as rolled_back:
            return rolled_back
        return UnknownOutcome(
            f"the outcome of commit {written.sequence} is unknown: {why.message}",
            sequence=written.sequence,
        )

    def answer_ended(self, why: Refusal) -> None:
        """Answer with the reason of its end."""
        self.resume(why)


class ExecutedRequest(Request):
    """A request that the executor answers once, when all that it rests on is released."""

    # Class attributes are defaults: a GET or SET saves the time to set them.

    state = QUEUED
    shown = NO_COMMIT
    """Newest commit that the answer rests on, or its refusal: it waits for that."""
    written = NO_COMMIT
    refusal: Refusal | None = None
    """Refusal of the request, told when all that it rests on is released; except for changes that
    are committed already."""
    lost: BaseException | None = None
    """Failure, told at once."""
    promised = False
    """True if the asker is to be notified."""
    listed = False
    """True while it is in the registry with its credential, which ends it."""
    has_grace = False
    """True if KILL leaves its commit a moment, in which a working disk brings the answer."""

    def wait_for_shown(self) -> None:
        """Wait until all that the answer rests on is released."""
        self.wait(self.shown)

    # --- its result -----------------------------------------------------------------------------

    @abstractmethod
    def answer(self, lost: BaseException | None) -> Any:
        """Return the answer; of a failed request the part that stands, None: there is none."""

    @abstractmethod
    def notify(self, answer: Any, lost: BaseException | None) -> None:
        """Give the requester the answer, or the reason why there is none."""

    def outcome(self) -> Any:
        """Return the answer. :raises BaseException: the reason why there is none"""
        lost = self.lost or self.refusal
        answer = self.answer(lost)
        if answer is None:
            assert lost is not None, "there is neither an answer nor a reason"
            raise lost
        return answer

    def on_result(self, lost: BaseException | None) -> None:
        self.state, self.lost = DONE, lost
        if self.listed:
            self.delist()
        if self.promised:
            lost = lost or self.refusal
            try:
                answer = self.answer(lost)
            except Exception as error:  # a bug: the requester is notified all the same
                answer, lost = None, error
            try:
                self.notify(answer, lost if answer is None else None)
            except Exception as error:  # a bug of one requester must not fail other requests
                self._committer.report_error(error)

    # --- in the registry ------------------------------------------------------------------------

    def delist(self) -> None:
        """Leave the registry."""
        self.listed = False
        self._committer.registry.leave(self)

    def end(self, why: Refusal) -> bool:
        if self.state == COMMITTING:
            if not self.has_grace:
                return super().end(why)
            if not self.waits:
                return False
            self.end_soon(why)
            return True
        if self.state == DONE:
            return False
        # Its place in a queue is passed over.
        self.state = DONE
        self.answer_ended(why)
        return True

    def answer_ended(self, why: Refusal) -> None:
        # Later: the callback may run the next request at once, inside the code that ends this one.
        self._committer.call_soon(self.resume, why)


class FiberRequest(ExecutedRequest):
    """A request that `submit` or `spawn` runs, in a fiber if it takes several slices: they return
    its result, or it is notified."""

    finishes = False
    """True if a drain waits for it while it is listed."""
    fiber: Fiber | None = None
    """Runs it, or the rest of what takes several slices."""

    # --- run by the executor --------------------------------------------------------------------

    @property
    @abstractmethod
    def credential(self) -> Credential:
        """Credential that ends it while it is QUEUED or RUNNING."""

    @property
    @abstractmethod
    def user(self) -> str:
        """Name of its user; empty: not known yet."""

    @abstractmethod
    def go_on(self, fiber: Fiber) -> None:
        """Run, or do the rest, in a fiber."""

    @abstractmethod
    def pause(self) -> None:
        """Prepare for a yield of its fiber."""

    @abstractmethod
    def on_fiber_ended(self, error: Exception | None) -> BaseException | None:
        """Take the end of its fiber. Return the failure to answer with at once; None: it is
        answered when all that it rests on is released.

        :param error: exception that the fiber ended with
        """

    def rest_on(self, ticket: CommitTicket) -> None:
        """Have the answer wait for a commit.

        :raises DiskFull, UnknownOutcome: a commit that it rests on was rolled back
        """
        if ticket.sequence:
            shown = self.shown
            self.shown = self._committer.merge(shown, ticket) if shown.sequence else ticket

    # --- in the registry ------------------------------------------------------------------------

    def enlist(self) -> None:
        """Enter the registry: it runs on or waits, where it can be seen and ended."""
        if not self.listed:
            self.listed = True
            self._committer.registry.enter(self, self.credential, finishes=self.finishes)

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        self.end(SessionEnded(ENDED))

    def end(self, why: Refusal) -> bool:
        if self.state == COMMITTING or self.fiber is None:
            return super().end(why)
        if self.ended_by is not None:
            return False
        self.ended_by = why
        self.fiber.cancel(why)
        return True


class OrderedRequest(FiberRequest):
    """A request that is run in its turn, by `Executor.submit`: a short one is a plain call."""

    blocked_by_lock = False
    """True if another's priority lock has blocked its transaction: it is run again."""
    saw = NO_COMMIT
    """Ticket that the refusal of its transaction rests on."""

    @abstractmethod
    def run(self, until_us: int) -> bool:
        """Run it. Return False if it is to go on in a fiber.

        :param until_us: end of its slice, on the monotonic clock
        :raises Refusal: nothing has happened
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget an attempt without effect: it will be run again from its beginning."""

    @abstractmethod
    def let_go(self) -> None:
        """Release its snapshots."""

    @abstractmethod
    def takes(self) -> Iterator[Hashable]:
        """Yield the lines that it stands in: later requests of its connection stay behind it."""

    @abstractmethod
    def follows(self) -> Iterator[Hashable]:
        """Yield the lines that it may not overtake a request in."""


def described(
    origin: RequestOrigin,
    user: str | None,
    place: tuple[str | None, str | None],
    text: str | None,
    *,
    since_us: int,
    left_us: int | None = None,
    statement: int | None = None,
    slices: int = 0,
    rows_read: int = 0,
    waiting: bool = True,
    commit: int | None = None,
    barrier: bool = False,
) -> dict[str, Value]:
    """Return the row of INFO FOR RUNNING of a live request.

    :param place: names of its namespace and database
    :param text: of its statement, without secrets
    :param since_us: microseconds since it began
    :param left_us: microseconds until its deadline; None: it has none
    :param statement: the number of the statement being run, from 1
    :param commit: sequence of the commit that its answer waits for
    :param barrier: True if it holds the priority lock
    """
    namespace, database = place
    # One set of columns for requests of every kind: the answer is a table.
    return {
        "id": origin.request,
        "user": user,
        "surface": origin.surface,
        "address": origin.address,
        "namespace": namespace,
        "database": database,
        "statement": statement,
        "text": text,
        "since": duration(since_us),
        # Not negative: a deadline may pass before its timer fires.
        "left": None if left_us is None else duration(max(left_us, 0)),
        "slices": slices,
        "rows_read": rows_read,
        "waiting": waiting,
        "commit": commit,
        "barrier": barrier,
    }
