"""The scripts being run, for INFO FOR RUNNING, KILL, and callers that go away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from actors.scripts.turns import Turn
from protocol.errors import Cancelled
from protocol.requests import RunScript
from protocol.text import duration
from protocol.values import Value


@dataclass(frozen=True, slots=True)
class Run:
    """One of them."""

    request: RunScript
    turn: Turn
    began_us: int


class Running:
    """All of them, by the id of their request."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    def add(self, run: Run) -> None:
        """A script has begun."""
        self._runs[run.request.request] = run

    def remove(self, request: str) -> None:
        """A script has ended."""
        self._runs.pop(request, None)

    def cancel(self, request: str) -> bool:
        """Make a script end at its next slice. Answers whether there was one."""
        run = self._runs.get(request)
        if run is not None:
            run.turn.cancel(Cancelled("the script was cancelled"))
        return run is not None

    def slices(self) -> int:
        """How often the scripts now running have handed the loop back."""
        return sum(run.turn.slices for run in self)

    def info(self, now_us: int) -> list[Value]:
        """What INFO FOR RUNNING answers, longest first."""
        return [
            {
                "id": run.request.request,
                "user": run.request.caller.user,
                "surface": run.request.caller.surface,
                "address": run.request.caller.address,
                "namespace": run.request.namespace,
                "database": run.request.database,
                "since": duration(now_us - run.began_us),
                "slices": run.turn.slices,
            }
            for run in self._runs.values()
        ]
