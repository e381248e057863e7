"""The answer of a script that has ended, while what it shows is on its way to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from actors.commits import Waiter
from actors.scripts.running import Run
from actors.scripts.services import Services
from actors.scripts.transactions import ScriptRun
from actors.topics import Late
from protocol import limits
from protocol.errors import Cancelled, Refusal, StatementTimeout
from protocol.requests import ScriptAnswer
from protocol.values import Value


class AwaitedAnswer(Waiter):
    """One of them.

    :param refusal: what the script stopped at
    :param make: makes the answer, once it may be shown
    """

    __slots__ = (
        "_execution", "_late", "_make", "_refusal", "_services", "_since_us", "promised",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        execution: ScriptRun,
        refusal: Refusal | None,
        make: Callable[[], ScriptAnswer],
        promised: asyncio.Future[ScriptAnswer],
    ) -> None:
        super().__init__(services.committer, execution.turn.began_us)
        self._services = services
        self._execution = execution
        self._refusal = refusal
        self._make = make
        self.promised = promised
        """The answer."""
        self._since_us = services.clock.monotonic_us()
        self._late = Late(services.topics, execution.handed_out, self._since_us)

    def begin(self) -> None:
        """Wait for what the script has committed and seen."""
        ends_us = self._execution.due_us
        if self._was_ended:
            # Its time is over, but a disk that works tells in a moment what became of its commits.
            ends_us = self._since_us + limits.ENDED_SECONDS * 1_000_000
        self.wait(self._execution.promise, ends_us)

    @property
    def request(self) -> str:
        return self._execution.request.request

    @property
    def written(self) -> int:
        return self._execution.written

    @property
    def _was_ended(self) -> bool:
        """Whether the script was ended in the middle; then that is what it waits with."""
        return isinstance(self._refusal, Cancelled | StatementTimeout)

    def out_of_time(self) -> Refusal:
        # Any other refusal rests on what the script has seen, which is not on the disk.
        if self._ended is None and self._was_ended and self._refusal is not None:
            return self._refusal
        return super().out_of_time()

    def end(self, why: Refusal) -> bool:
        if not self.waits:
            return False
        self.end_soon(why)
        return True

    def info(self, now_us: int) -> dict[str, Value]:
        execution = self._execution
        run = Run(execution.request, execution.turn, self.began_us, execution)
        return run.info(now_us, self)

    def settle(self, lost: BaseException | None) -> None:
        if self.promised.done():
            return  # the actor has failed
        if not self._late.prolongs:
            if lost is not None:
                told = self._execution.told(lost) if isinstance(lost, Refusal) else lost
                self.promised.set_exception(told)
                return
        elif lost is None:
            self._late.prolonged()
        # What is not prolonged is what the log says, and may be shown.
        again = None if lost is not None else self._late.again(self._services.clock.monotonic_us())
        if again is None:
            self.promised.set_result(self._make())
        else:
            self.wait(again)
