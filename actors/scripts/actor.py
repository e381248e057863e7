"""Scripts actor: runs many scripts at once, each in time slices on the loop (`fiber.py`)."""

from __future__ import annotations

from collections.abc import Awaitable

from actors.runtime import LoopActor, Runtime, handles
from actors.scripts import (  # noqa: F401  (handlers)
    backups,
    cluster,
    control_flow,
    ddl,
    explaining,
    functions,
    grants,
    history,
    indexes,
    inserting,
    node,
    reading,
    restoring,
    schema,
    spaces,
    statements,
    topics,
    users,
    vaults,
    writing,
)
from actors.scripts.answers import ScriptAnswers
from actors.scripts.fiber import Fiber
from actors.scripts.plans import Plans
from actors.scripts.scheduler import FiberScheduler
from actors.scripts.services import Services
from actors.scripts.transactions import ScriptRun
from protocol.errors import Draining
from protocol.requests import CancelScript, RunScript, ScriptAnswer


class ScriptsActor(LoopActor):
    """Answers `RunScript` and `CancelScript`."""

    def __init__(self, runtime: Runtime, services: Services, plans: Plans) -> None:
        super().__init__(runtime)
        self._services = services
        self._registry = services.registry
        self._plans = plans
        self._turns = FiberScheduler(runtime.loop, runtime.clock)
        self._answers = ScriptAnswers(services, runtime)

    @handles(RunScript)
    def run(self, request: RunScript) -> ScriptAnswer | Awaitable[ScriptAnswer]:
        """Run a script; the answer comes once all that it shows is durable."""
        turn = Fiber(self._turns, request.caller.user)
        execution = ScriptRun(self._services, request, self._plans, turn)
        turn.start(execution.run, execution.pause)
        # Most scripts end within their first slice.
        if turn.ended:
            return self._answers.of_ended(execution)
        return self._answers.promised(execution)

    @handles(CancelScript)
    def cancel(self, message: CancelScript) -> bool:
        """End a script at its next slice, or the wait of its answer."""
        return self._registry.kill(message.request)

    def on_stop(self) -> None:
        """Cancel the running scripts, which notice it at their next slice."""
        # Waiting answers are listed too: their commits are decided by the log, not here.
        for one in self._registry:
            if isinstance(one, ScriptRun):
                # A cancelled fiber raises in its own next slice, so it cleans up itself.
                one.end(Draining("the node is stopping"))
        self._services.moments.end_all()
