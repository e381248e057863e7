"""The actor that runs scripts: many at once, each in turns on the loop (`turns.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from actors.runtime import LoopActor, Runtime, handles
from actors.scripts import (  # noqa: F401  (handlers)
    brief_creation,
    explaining,
    fields,
    flow,
    indexes,
    node,
    places,
    reading,
    spaces,
    topics,
    users,
    writing,
)
from actors.scripts.brief import Lookups
from actors.scripts.execution import Execution
from actors.scripts.prepared import PreparedScripts
from actors.scripts.running import Run
from actors.scripts.services import Services
from actors.scripts.turns import Turn, Turns
from protocol.errors import Draining, Failed, Refusal
from protocol.requests import CancelScript, RunScript, ScriptAnswer


class ScriptsActor(LoopActor):
    """Answers `RunScript` and `CancelScript`."""

    def __init__(self, runtime: Runtime, services: Services, prepared: PreparedScripts) -> None:
        super().__init__(runtime)
        self._services = services
        self._running = services.running
        self._prepared = prepared
        self._lookups = Lookups(services, prepared)
        self._turns = Turns(runtime.loop, runtime.clock)

    @handles(RunScript)
    def run(self, request: RunScript) -> ScriptAnswer | Awaitable[ScriptAnswer]:
        """Run a script; the answer comes once all that it shows is durable."""
        answer = self._lookups.answer(request)
        if answer is not None:
            return answer
        created = self._create(request)
        if created is not None:
            return created
        turn = Turn(self._turns)
        execution = Execution(self._services, request, self._prepared, turn)
        self._running.add(Run(request, turn, self._services.clock.monotonic_us(), execution))
        turn.start(execution.run, execution.pause)
        if turn.outcome.done():
            return self._ended(execution)
        # When the node stops, nobody is left to look at what the script ended with.
        turn.outcome.add_done_callback(asyncio.Future.exception)
        return self._long_run(execution)

    def _create(self, request: RunScript) -> asyncio.Future[ScriptAnswer] | None:
        """Run a script that only creates a record, if it has come before and can be run briefly."""
        prepared = self._prepared.known(request.script)
        if prepared is None or prepared.creation is None:
            return None
        statement = prepared.redacted(0, 1)
        made = brief_creation.create(self._services, request, prepared.creation, statement)
        if made is None:
            return None
        return self._once_durable(made.sequence, made.generation, lambda: made.answer)

    def _once_durable(
        self, sequence: int, generation: int, answer: Callable[[], ScriptAnswer]
    ) -> asyncio.Future[ScriptAnswer]:
        """The promise of an answer that shows commits in flight."""
        promised: asyncio.Future[ScriptAnswer] = self.runtime.loop.create_future()

        def settle(lost: BaseException | None) -> None:
            if promised.done():
                return
            if lost is None:
                promised.set_result(answer())
            else:
                promised.set_exception(lost)

        self._services.committer.tell_durable(sequence, generation, settle)
        return promised

    async def _long_run(self, execution: Execution) -> ScriptAnswer:
        await asyncio.wait((execution.turn.outcome,))
        ended = self._ended(execution)
        return ended if isinstance(ended, ScriptAnswer) else await ended

    def _ended(self, execution: Execution) -> ScriptAnswer | asyncio.Future[ScriptAnswer]:
        """The answer of a script that has ended, or its promise while its commits are in flight."""
        self._running.remove(execution.request.request)
        committer = self._services.committer
        refusal = self._refusal(execution)
        if committer.is_durable(execution.sequence, execution.generation):
            return self._answer(execution, refusal)
        return self._once_durable(
            execution.sequence, execution.generation, lambda: self._answer(execution, refusal)
        )

    def _answer(self, execution: Execution, refusal: Refusal | None) -> ScriptAnswer:
        durable = self._services.committer.sequence
        # An empty script has read nothing, so it stands at what is durable.
        read_at = min(execution.read_at, durable) if execution.began else durable
        return ScriptAnswer(
            tuple(execution.results),
            execution.written or read_at,
            execution.place.namespace,
            execution.place.database,
            refusal,
        )

    @handles(CancelScript)
    def cancel(self, message: CancelScript) -> bool:
        """End a script at its next slice."""
        return self._running.cancel(message.request)

    def on_stop(self) -> None:
        """What still runs hears that the node is stopping, at its next slice."""
        for run in self._running:
            run.turn.cancel(Draining("the node is stopping"))

    def _refusal(self, execution: Execution) -> Refusal | None:
        """What a script stopped at. Anything but a refusal is a bug, or the state engine's end: the
        trace goes to the log only, and the node hears of it."""
        error = execution.turn.outcome.exception()
        if error is None or isinstance(error, Refusal):
            return error
        request = execution.request.request
        self.runtime.noticed("script", error, request=request)
        return Failed(f"the node failed at this script: see its log for request {request}")
