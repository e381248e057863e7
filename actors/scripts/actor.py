"""Scripts actor: runs many scripts at once, each in slices of the loop (`execution/fiber.py`)."""

from __future__ import annotations

from collections.abc import Awaitable

from actors.execution.executor import PENDING
from actors.runtime import LoopActor, Reply, Runtime, handles
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
    measuring,
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
from actors.scripts.plans import Plans
from actors.scripts.request import ScriptRequest
from actors.scripts.services import Services
from protocol.errors import Draining
from protocol.requests import CancelScript, RunScript, ScriptAnswer


class ScriptsActor(LoopActor):
    """Answers `RunScript` and `CancelScript`."""

    def __init__(self, runtime: Runtime, services: Services, plans: Plans) -> None:
        super().__init__(runtime)
        self._executor = services.executor
        self._services = services
        self._registry = services.registry
        self._plans = plans

    @handles(RunScript)
    def run(self, request: RunScript) -> ScriptAnswer | Awaitable[ScriptAnswer]:
        """Run a script; the answer comes once all that it shows is durable."""
        script = ScriptRequest(self._services, request, self._plans)
        answer = self._executor.spawn(script)
        if answer is PENDING:
            script.reply = Reply(self.runtime.loop)
            return script.reply
        return answer  # type: ignore[no-any-return]

    @handles(CancelScript)
    def cancel(self, message: CancelScript) -> bool:
        """End a script at its next slice, or the wait of its answer."""
        return self._registry.kill(message.request)

    def on_stop(self) -> None:
        """Cancel the running scripts, which notice it at their next slice."""
        # Waiting answers are listed too: their commits are decided by the log, not here.
        for one in self._registry:
            if isinstance(one, ScriptRequest) and one.is_running:
                # A cancelled fiber raises in its own next slice, so it cleans up itself.
                one.end(Draining("the node is stopping"))
        self._services.moments.end_all()
