"""Scripts actor: runs many scripts at once, each in slices of the loop (`execution/fiber.py`)."""

from __future__ import annotations

from collections.abc import Awaitable

from actors.execution.fiber import Fiber
from actors.execution.scheduler import SCRIPT, FiberScheduler
from actors.runtime import LoopActor, Runtime, handles
from actors.scripts import (  # noqa: F401  (handlers)
    analyzers,
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
from actors.scripts.plans import Plans
from actors.scripts.services import Services
from actors.scripts.transactions import ScriptRun
from protocol.errors import Draining
from protocol.requests import CancelScript, RunScript, ScriptAnswer


class ScriptsActor(LoopActor):
    """Answers `RunScript` and `CancelScript`."""

    def __init__(
        self, runtime: Runtime, scheduler: FiberScheduler, services: Services, plans: Plans
    ) -> None:
        super().__init__(runtime)
        self._scheduler = scheduler
        self._services = services
        self._registry = services.registry
        self._plans = plans
        self._answers = ScriptAnswers(services, runtime)

    @handles(RunScript)
    def run(self, request: RunScript) -> ScriptAnswer | Awaitable[ScriptAnswer]:
        """Run a script; the answer comes once all that it shows is durable."""
        fiber = Fiber(self._scheduler, SCRIPT, request.caller.user)
        execution = ScriptRun(self._services, request, self._plans, fiber)
        fiber.start(execution.run, execution.pause)
        # Most scripts end within their first slice.
        if fiber.ended:
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
