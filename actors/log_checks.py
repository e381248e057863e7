"""Older segments of the log are read through in the background, so that damage in them shows before
somebody needs what they hold. A start reads the last segment, and of the others their headers.

A little at a time, and less often while others commit: nobody is to notice. Damage is logged once,
counted, and shown by INFO FOR NODE until its segment is pruned. It ends nothing: the state holds
what those frames did, and the rest of the log is read all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from actors.commits import Committer
from actors.log_reads import CheckSome
from actors.runtime import LoopActor, Runtime, Supervised, ask, handles, tell
from protocol import limits

BUSY_TIMES: Final = 10
"""So many times longer are the pauses while others commit."""


@dataclass(frozen=True, slots=True)
class _Look:
    pass


class LogChecksActor(LoopActor):
    """Decides when the next part is read.

    :param reader: the place of the actor that reads
    """

    def __init__(self, runtime: Runtime, committer: Committer, reader: Supervised[Any]) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._reader = reader
        self._seen = 0

    def on_start(self) -> None:
        """Begin, when the start is over."""
        self.after(limits.LOG_CHECK_AFTER_SECONDS, self._wake)

    def _wake(self) -> None:
        tell(self.actor_ref, _Look())

    @handles(_Look)
    async def look(self, _message: _Look) -> None:
        """Have the next part read, and come back."""
        over = await ask(self._reader.ref, CheckSome())
        if over:
            self.after(limits.LOG_CHECK_ROUND_SECONDS, self._wake)
            return
        committed = self._committer.committed
        pause = limits.LOG_CHECK_PAUSE_SECONDS * (1 if committed == self._seen else BUSY_TIMES)
        self._seen = committed
        self.after(pause, self._wake)
