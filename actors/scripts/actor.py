"""The actor that runs scripts: many at once, each in turns on the loop (`turns.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from actors.runtime import LoopActor, Reply, Runtime, handles
from actors.scripts import (  # noqa: F401  (handlers)
    backups,
    cluster,
    explaining,
    fields,
    flow,
    functions,
    grants,
    history,
    indexes,
    inserting,
    node,
    places,
    reading,
    restoring,
    spaces,
    statements,
    topics,
    users,
    vaults,
    writing,
)
from actors.scripts.answers import AwaitedAnswer
from actors.scripts.plans import Plans
from actors.scripts.services import Services
from actors.scripts.transactions import ScriptRun
from actors.scripts.turns import Turn, Turns
from protocol.errors import Draining, Failed, Refusal
from protocol.requests import CancelScript, RunScript, ScriptAnswer


class ScriptsActor(LoopActor):
    """Answers `RunScript` and `CancelScript`."""

    def __init__(self, runtime: Runtime, services: Services, plans: Plans) -> None:
        super().__init__(runtime)
        self._services = services
        self._running = services.running
        self._plans = plans
        self._turns = Turns(runtime.loop, runtime.clock)

    @handles(RunScript)
    def run(self, request: RunScript) -> ScriptAnswer | Awaitable[ScriptAnswer]:
        """Run a script; the answer comes once all that it shows is durable."""
        turn = Turn(self._turns)
        execution = ScriptRun(self._services, request, self._plans, turn)
        turn.start(execution.run, execution.pause)
        if turn.ended:
            return self._ended(execution)
        return self._long_run(execution)

    def _long_run(self, execution: ScriptRun) -> asyncio.Future[ScriptAnswer]:
        promised: Reply[ScriptAnswer] = Reply(self.runtime.loop)
        execution.turn.outcome.add_done_callback(partial(self._long_run_ended, execution, promised))
        return promised

    def _long_run_ended(
        self,
        execution: ScriptRun,
        promised: asyncio.Future[ScriptAnswer],
        outcome: asyncio.Future[None],
    ) -> None:
        outcome.exception()  # seen: `_ended` makes a refusal of it
        try:
            ended = self._ended(execution, promised)
        except Exception as error:
            if not promised.done():
                promised.set_exception(error)
            return
        if isinstance(ended, ScriptAnswer) and not promised.done():
            promised.set_result(ended)

    def _ended(
        self, execution: ScriptRun, promised: asyncio.Future[ScriptAnswer] | None = None
    ) -> ScriptAnswer | asyncio.Future[ScriptAnswer]:
        """The answer of a script that has ended, or its promise while its commits are in flight.

        :param promised: what was promised when it did not end at once
        """
        if execution.listed:
            self._running.remove(execution.request.request)
        committer = self._services.committer
        refusal = self._refusal(execution)
        if not execution.sequence or committer.is_released(execution.promise):
            return self._answer(execution, refusal)
        if promised is None:
            promised = Reply(self.runtime.loop)
        self._once_released(execution, refusal, promised)
        return promised

    def _once_released(
        self,
        execution: ScriptRun,
        refusal: Refusal | None,
        promised: asyncio.Future[ScriptAnswer],
    ) -> None:
        """Answer when commits in flight may be shown."""
        make = partial(self._answer, execution, refusal)
        AwaitedAnswer(self._services, execution, refusal, make, promised).begin()

    def _answer(self, execution: ScriptRun, refusal: Refusal | None) -> ScriptAnswer:
        services = self._services
        released = services.committer.released_upto
        # An empty script has read nothing, so it stands at what is released, or in its moment.
        read_at = min(execution.read_at or released, released)
        sequence = execution.written or read_at
        return ScriptAnswer(
            tuple(execution.results),
            sequence,
            services.store_id,
            services.committer.ledger.epoch_at(sequence),
            execution.place[0],
            execution.place[1],
            refusal if refusal is None else execution.told(refusal),
            execution.committed,
            execution.kept_moment,
            execution.file,
            execution.size,
        )

    @handles(CancelScript)
    def cancel(self, message: CancelScript) -> bool:
        """End a script at its next slice, or the wait of its answer."""
        return self._running.cancel(message.request)

    def on_stop(self) -> None:
        """What still runs hears that the node is stopping, at its next slice."""
        for run in self._running:
            run.turn.cancel(Draining("the node is stopping"))
        self._services.moments.end_all()

    def _refusal(self, execution: ScriptRun) -> Refusal | None:
        """What a script stopped at. Anything but a refusal is a bug, or the state engine's end: the
        trace goes to the log only, and the node hears of it."""
        error = execution.turn.error
        if error is None or isinstance(error, Refusal):
            return error
        request = execution.request.request
        self.runtime.noticed("script", error, request=request)
        return Failed(f"the node failed at this script: see its log for request {request}")
