"""Log scrubbing: reads older segments in the background to find damage before their data is needed.

A start reads only the last segment, and of the others the headers.

A small part is read at a time, and less often while commits come, to keep the load unnoticed.
Damage is logged once, counted, and shown by INFO FOR NODE until its segment is pruned. It stops
nothing: the state holds the effects of those frames, and the rest of the log is still checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from actors.commits.committer import Committer
from actors.log_reads import CheckNextPart
from actors.runtime import LoopActor, Runtime, Supervised, ask, handles, tell
from protocol import limits

BUSY_TIMES: Final = 10
"""Factor by which pauses lengthen while commits come."""


@dataclass(frozen=True, slots=True)
class _CheckDue:
    pass


class LogChecksActor(LoopActor):
    """Schedules the reads.

    :param reader: supervised actor that reads the log
    """

    def __init__(self, runtime: Runtime, committer: Committer, reader: Supervised[Any]) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._reader = reader
        self._seen = 0

    def on_start(self) -> None:
        """Schedule the first read, after the start of the node."""
        self.after(limits.LOG_CHECK_AFTER_SECONDS, self._wake)

    def _wake(self) -> None:
        tell(self.actor_ref, _CheckDue())

    @handles(_CheckDue)
    async def read_next_part(self, _message: _CheckDue) -> None:
        """Have the next part read, and schedule the one after it."""
        over = await ask(self._reader.ref, CheckNextPart())
        if over:
            self.after(limits.LOG_CHECK_ROUND_SECONDS, self._wake)
            return
        committed = self._committer.committed
        pause = limits.LOG_CHECK_PAUSE_SECONDS * (1 if committed == self._seen else BUSY_TIMES)
        self._seen = committed
        self.after(pause, self._wake)
