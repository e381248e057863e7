"""Older segments of the log are read through in the background, so that damage in them shows before
somebody needs what they hold. A start reads the last segment, and of the others their headers.

A little at a time, and less often while others commit: nobody is to notice. Damage is logged once,
counted, and shown by INFO FOR NODE until its segment is pruned. It ends nothing: the state holds
what those frames did, and the rest of the log is read all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from actors.commits import Committer
from actors.runtime import LoopActor, Runtime, Supervised, ThreadActor, ask, handles, tell
from protocol import limits
from protocol.errors import LogPruned
from protocol.requests import Request
from protocol.values import Value
from storage.faults import LogDamaged
from storage.frames import FRAME_HEADER_BYTES, Frame
from storage.log import Log

log = structlog.get_logger("node")

BUSY_TIMES: Final = 10
"""So many times longer are the pauses while others commit."""


@dataclass(slots=True)
class LogChecks:
    """How far it has come. Written by one thread, read by any."""

    checked: int = 0
    """The sequence that this round has come to."""
    rounds: int = 0
    """Rounds that have come to their end."""
    damage: dict[tuple[str, int], LogDamaged] = field(default_factory=dict)
    """By file and offset."""

    def found(self, begins: int) -> list[LogDamaged]:
        """The damage in what the log still holds.

        :param begins: the first sequence that it does
        """
        return [one for one in list(self.damage.values()) if one.sequence >= begins]

    def info(self, begins: int) -> dict[str, Value]:
        """What INFO FOR NODE shows of it."""
        return {
            "checked": self.checked,
            "rounds": self.rounds,
            "damage": [
                {"file": one.file, "offset": one.offset, "sequence": one.sequence, "what": one.what}
                for one in self.found(begins)
            ],
        }


@dataclass(frozen=True, slots=True)
class CheckSome(Request[bool]):
    """Read the next part. Answers whether the round is over."""


class LogReadActor(ThreadActor):
    """Waits for the disk while older segments are read.

    :param log: read from this thread too; see `Log`
    :param checks: is told what is found
    """

    def __init__(self, runtime: Runtime, log: Log, checks: LogChecks) -> None:
        super().__init__(runtime)
        self._log = log
        self._checks = checks
        self._frames: Iterator[Frame] | None = None

    @handles(CheckSome)
    def check_some(self, _message: CheckSome) -> bool:
        """Read the next part."""
        if self._frames is None:
            self._go_on(self._log.first)
        try:
            return self._read_some()
        except LogPruned:
            self._go_on(self._log.first)
        except LogDamaged as damage:
            self._note(damage)
            self._go_on(self._log.segment_after(damage.sequence))
        except OSError as error:  # the disk can't read what it was given: damage by another name
            at = self._checks.checked + 1
            self._note(LogDamaged(error.filename or "log", 0, at, f"it can't be read: {error}"))
            self._go_on(self._log.segment_after(at))
        return False

    def on_stop(self) -> None:
        """Close the segment that was being read."""
        self._frames = None

    def _go_on(self, sequence: int) -> None:
        """Go on from a sequence, up to the last segment: that one was read at the start, and what
        has been written since is in memory."""
        upto = self._log.newest - 1
        self._frames = iter(()) if sequence > upto else self._log.read(sequence, upto)

    def _read_some(self) -> bool:
        left = limits.LOG_CHECK_BYTES
        assert self._frames is not None
        for frame in self._frames:
            self._checks.checked = frame.sequence
            left -= len(frame.body) + FRAME_HEADER_BYTES
            if left <= 0:
                return False
        self._frames = None
        self._checks.rounds += 1
        return True

    def _note(self, damage: LogDamaged) -> None:
        if self._checks.damage.setdefault((damage.file, damage.offset), damage) is damage:
            log.error(
                "the log is damaged",
                file=damage.file,
                offset=damage.offset,
                sequence=damage.sequence,
                what=damage.what,
            )


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
