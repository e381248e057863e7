"""Answers of ended scripts: at once, or when the commits they show are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from actors.execution.request import Request
from actors.runtime import Reply, Runtime
from actors.scripts.services import Services
from actors.scripts.transactions import ScriptRun
from actors.topics.deadlines import LateDeadlines
from protocol import limits
from protocol.errors import ENDED, FROM_OUTSIDE, Failed, Refusal
from protocol.requests import ScriptAnswer
from protocol.values import Value
from storage.txn.tickets import CommitTicket


class ScriptAnswers:
    """Answers of one scripts actor."""

    def __init__(self, services: Services, runtime: Runtime) -> None:
        self._services = services
        self._runtime = runtime

    def of_ended(
        self, execution: ScriptRun, promised: Reply[ScriptAnswer] | None = None
    ) -> ScriptAnswer | asyncio.Future[ScriptAnswer]:
        """Return the answer of a script that has ended, or a future while its commits are pending.

        :param promised: the future returned earlier, if it did not end at once
        """
        answer: ScriptAnswer | asyncio.Future[ScriptAnswer] | None = None
        try:
            answer = self._answer_of_ended(execution, promised)
            return answer
        finally:
            # An answer that waits holds its results, so their memory counts until it is done.
            if isinstance(answer, Reply) and not answer.done():
                answer.add_callback(lambda _: execution.release_memory())
            else:
                execution.release_memory()

    def _answer_of_ended(
        self, execution: ScriptRun, promised: Reply[ScriptAnswer] | None
    ) -> ScriptAnswer | Reply[ScriptAnswer]:
        services = self._services
        # Listed once at a time: an answer that waits enters in place of its script.
        if execution.listed:
            services.registry.leave(execution)
        execution.keep_results_only()
        refusal = self._refusal(execution)
        # The ticket covers commits made and commits read: neither is shown before its release.
        if services.committer.is_released(execution.ticket):
            return self._answer(execution, refusal)
        if promised is None:
            promised = Reply(self._runtime.loop)
        # Made at the release: the commit index and the epoch are those of that time.
        make = partial(self._answer, execution, refusal)
        AwaitedAnswer(services, execution, refusal, make, promised).start_waiting()
        return promised

    def promised(self, execution: ScriptRun) -> asyncio.Future[ScriptAnswer]:
        """Return a future for the answer of a script that runs on."""
        promised: Reply[ScriptAnswer] = Reply(self._runtime.loop)
        execution.fiber.outcome.add_done_callback(partial(self._has_ended, execution, promised))
        return promised

    def _has_ended(
        self,
        execution: ScriptRun,
        promised: Reply[ScriptAnswer],
        outcome: asyncio.Future[None],
    ) -> None:
        outcome.exception()  # retrieved, or asyncio would log it; `of_ended` makes a refusal of it
        try:
            ended = self.of_ended(execution, promised)
        except Exception as error:
            if not promised.done():
                promised.set_exception(error)
            return
        if isinstance(ended, ScriptAnswer) and not promised.done():
            promised.set_result(ended)

    def _answer(self, execution: ScriptRun, refusal: Refusal | None) -> ScriptAnswer:
        services = self._services
        released = services.committer.commit_index
        # An empty script has read nothing: its sequence is the released one, or its snapshot's.
        read_at = min(execution.read_at or released, released)
        sequence = execution.written.sequence or read_at
        return ScriptAnswer(
            tuple(execution.results),
            sequence,
            services.store_id,
            services.committer.ledger.epoch_at(sequence),
            execution.place[0],
            execution.place[1],
            refusal if refusal is None else execution.with_outcome(refusal),
            execution.committed,
            execution.kept_moment,
            execution.file,
            execution.size,
        )

    def _refusal(self, execution: ScriptRun) -> Refusal | None:
        """Return the refusal that a script stopped at. Anything but a refusal is a bug, or a failed
        state engine: its traceback goes to the log only, and the node is notified."""
        error = execution.fiber.error
        if error is None or isinstance(error, Refusal):
            return error
        request = execution.request.request
        self._runtime.report_error("script", error, request=request)
        return Failed(f"the node failed at this script: see its log for request {request}")


class AwaitedAnswer(Request):
    """Answer that waits for its commits to be released.

    :param refusal: the refusal that the script stopped at
    :param make: makes the answer, once its commits are released
    """

    def __init__(
        self,
        services: Services,
        execution: ScriptRun,
        refusal: Refusal | None,
        make: Callable[[], ScriptAnswer],
        promised: asyncio.Future[ScriptAnswer],
    ) -> None:
        super().__init__(services.committer, execution.fiber.began_us)
        self._services = services
        self._execution = execution
        self._refusal = refusal
        self._make = make
        self.promised = promised
        """Future of the answer."""
        self._since_us = services.clock.monotonic_us()
        self._late = LateDeadlines(services.topics, execution.handed_out, self._since_us)

    def start_waiting(self) -> None:
        """Wait for the commits that the script has made and seen."""
        ends_us = self._execution.due_us
        if isinstance(self._refusal, ENDED):
            # Its time is over, but a working disk decides the fate of its commits in a moment.
            ends_us = self._since_us + limits.ENDED_SECONDS * 1_000_000
        self.wait(self._execution.ticket, ends_us)

    @property
    def id(self) -> str:
        return self._execution.id

    @property
    def written(self) -> CommitTicket:
        return self._execution.written

    def out_of_time(self) -> Refusal:
        # Any other refusal rests on commits that the script has read and that are not durable.
        if self.ended_by is None and isinstance(self._refusal, FROM_OUTSIDE):
            return self._refusal
        return super().out_of_time()

    def end(self, why: Refusal) -> bool:
        if not self.waits:
            return False
        self.end_soon(why)
        return True

    def describe(self, now_us: int) -> dict[str, Value]:
        return self._execution.describe(now_us, self)

    def on_result(self, lost: BaseException | None) -> None:
        if self.promised.done():
            return  # the actor has failed
        # The first wait is for the script's own ticket: its loss is the answer.
        if not self._late.prolongs:
            if lost is not None:
                told = self._execution.with_outcome(lost) if isinstance(lost, Refusal) else lost
                self.promised.set_exception(told)
                return
        elif lost is None:
            self._late.write_deadlines()
        # If the new deadlines are lost, those in the answer are those of the log, and hold.
        again = None if lost is not None else self._late.again(self._services.clock.monotonic_us())
        if again is None:
            self.promised.set_result(self._make())
        else:
            self.wait(again)
