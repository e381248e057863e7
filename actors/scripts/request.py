"""A script, from its arrival to its answer: run in a fiber, listed from its first pause on."""

from __future__ import annotations

from typing import Any

from actors.execution.fiber import Fiber
from actors.execution.registry import ENDED, Credential, credential_of
from actors.execution.request import COMMITTING, DONE, FiberRequest, RequestOrigin, described
from actors.runtime import Reply
from actors.scripts.plans import Plans
from actors.scripts.services import Services
from actors.scripts.transactions import ScriptRun
from actors.topics.deadlines import LateDeadlines
from protocol import limits
from protocol.errors import ENDED as ENDS
from protocol.errors import FROM_OUTSIDE, Failed, Refusal, SessionEnded
from protocol.requests import RunScript, ScriptAnswer
from protocol.values import Value


class ScriptRequest(FiberRequest):
    """A script of a client."""

    run: ScriptRun
    reply: Reply[ScriptAnswer]
    """Future of the answer, if the script has not ended at once."""
    late: LateDeadlines | None = None
    """Restarts the ack deadlines in the answer if the disk is late."""
    finishes = True
    has_grace = True

    def __init__(self, services: Services, request: RunScript, plans: Plans) -> None:
        self._committer = services.committer
        self._services = services
        self._plans = plans
        self.request = request

    # --- run by the executor --------------------------------------------------------------------

    def go_on(self, fiber: Fiber) -> None:
        self.began_us = fiber.began_us
        self.run = ScriptRun(self._services, self.request, self._plans, fiber, self.enlist)
        self.run.run()

    def pause(self) -> None:
        self.enlist()
        self.run.pause()

    def on_fiber_ended(self, error: Exception | None) -> None:
        run = self.run
        run.keep_results_only()
        # Of an ended script, the ticket covers commits made and commits read.
        self.written, self.shown = run.written, run.ticket
        if error is not None and not isinstance(error, Refusal):
            # A bug, or a failed state engine: its traceback goes to the log only.
            error = Failed(f"the node failed at this script: see its log for request {self.id}")
        self.refusal = error

    def wait_for_shown(self) -> None:
        run, now_us = self.run, self._services.clock.monotonic_us()
        if run.handed_out:
            self.late = LateDeadlines(self._services.topics, run.handed_out, now_us)
        ends_us = run.due_us
        if isinstance(self.refusal, ENDS):
            # Its time is over, but a working disk decides the fate of its commits in a moment.
            ends_us = now_us + limits.ENDED_SECONDS * 1_000_000
        self.wait(self.shown, ends_us)

    def out_of_time(self) -> Refusal:
        # Any other refusal rests on commits that the script has read and that are not durable.
        if self.ended_by is None and isinstance(self.refusal, FROM_OUTSIDE):
            return self.refusal
        return super().out_of_time()

    # --- its result -----------------------------------------------------------------------------

    def on_result(self, lost: BaseException | None) -> None:
        if self.late is not None:
            lost, again = self.late.on_released(lost, self._services.clock.monotonic_us())
            if again is not None:
                self.wait(again)
                return
        if isinstance(lost, Refusal):
            lost = self.run.with_outcome(lost)
        super().on_result(lost)

    def answer(self, lost: BaseException | None) -> ScriptAnswer | None:
        run, committer = self.run, self._committer
        refusal: Refusal | None = self.refusal
        # An answer that waits holds its results, so their memory counts until here.
        if run.account is not None:
            run.release_memory()
        if self.lost is not None:
            return None
        # Made at the release: the commit index and the epoch are those of that time.
        released = committer.commit_index
        # An empty script has read nothing: its sequence is the released one, or its snapshot's.
        read_at = min(run.read_at or released, released)
        sequence = run.written.sequence or read_at
        return ScriptAnswer(
            tuple(run.results),
            sequence,
            self._services.store_id,
            committer.ledger.epoch_at(sequence),
            run.place[0],
            run.place[1],
            refusal if refusal is None else run.with_outcome(refusal),
            run.committed,
            run.kept_moment,
            run.file,
            run.size,
        )

    def notify(self, answer: Any, lost: BaseException | None) -> None:
        reply = self.reply
        # It is done if the actor has failed.
        if reply.done():
            return
        if lost is None:
            reply.set_result(answer)
        else:
            reply.set_exception(lost)

    # --- identity -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.request.request

    @property
    def user(self) -> str:
        return self.request.caller.user

    @property
    def credential(self) -> Credential:
        caller = self.request.caller
        return credential_of(caller.user, caller.session)

    def end(self, why: Refusal) -> bool:
        if not self.is_running:
            return super().end(why)
        self.run.fiber.cancel(why)
        return True

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        """End it at its next slice.

        If its session has expired it goes on, unless it waits, since later messages are not for
        it, or holds a priority lock, which blocks others. It goes on if it ended its own session.
        """
        if self.id != sparing and (cut or self.run.waiting or self.run.barrier):
            self.end(SessionEnded(ENDED))

    def describe(self, now_us: int) -> dict[str, Value]:
        request, run = self.request, self.run
        number, text = run.at_statement() or (None, None)
        waits = self.state == COMMITTING
        ends_us = self.deadline_us if waits else run.fiber.ends_us
        return described(
            RequestOrigin.of(self.id, request.caller),
            self.user,
            (request.namespace, request.database),
            text,
            since_us=now_us - self.began_us,
            left_us=None if ends_us is None else ends_us - now_us,
            statement=number,
            slices=run.fiber.slices,
            rows_read=run.rows_read,
            waiting=run.waiting or waits,
            commit=self.ticket.sequence if waits else None,
            barrier=run.barrier,
        )

    @property
    def is_running(self) -> bool:
        """True until its script has ended."""
        return self.state not in (COMMITTING, DONE)
