"""Introspection of a node: entries of its statement log and audit trail, the end of its log.

Such a statement reads in a transaction of its own, so the dictionaries of `scripts.py` can't
predict its answer. The frames of the history can: an entry belongs to a commit, and it is shown
only once that commit is durable.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.formats import effects
from storage.formats.entries import AUDIT, STATEMENTS
from tests.simulation.answers import ANYTHING

if TYPE_CHECKING:
    from storage.formats.frames import Frame
    from tests.simulation.history import SentScript
    from tests.simulation.queues import Said
    from tests.simulation.scripts import Draft

_KEPT: Final = {"INFO FOR STATEMENTS": STATEMENTS, "INFO FOR AUDIT": AUDIT}
_OF_STORE: Final = "INFO FOR STORE"


def _anything(_draft: Draft) -> Any:
    return ANYTHING


class Inspector:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def entries(self) -> Said:
        """Return a statement that reads entries: the newest ones, or all."""
        kind = self._chance.choice(("STATEMENTS", "STATEMENTS", "AUDIT"))
        return f"INFO FOR {kind} LIMIT {self._chance.choice((3, 40, 1000))}", _anything

    def store(self) -> Said:
        """Return the end of the log."""
        return _OF_STORE, _anything


class InspectionAnswer(NamedTuple):
    text: str
    value: Any
    after: int
    """Newest commit that it must show: an acknowledged one, or the script's own."""
    until: int
    """The newest commit that was durable when the answer came."""


def told(request: SentScript, owned: dict[int, int]) -> Iterator[InspectionAnswer]:
    """Return the introspective answers of a request.

    :param owned: by the number of its part, the last commit that it made there
    """
    if request.answer is None:
        return
    values = [result.value for result in request.answer.results]
    at, after = 0, request.after
    for number, part in enumerate(request.script.parts):
        begins = at + bool(part.ending)
        at += part.results
        if at > len(values):
            return  # refused there
        for step, value in zip(part.steps, values[begins:], strict=False):
            if part.ending != "CANCEL":
                yield InspectionAnswer(step.text, value, after, request.until)
        after = max(after, owned.get(number, 0))


class Inspected:
    """Checks such answers against the commits of a store."""

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames

    @cached_property
    def _attributions(self) -> list[effects.Attribution]:
        return [effects.decode(frame.body).attribution for frame in self._frames]

    def wrong(self, one: InspectionAnswer) -> str | None:
        """Return the error in an answer, or None."""
        if one.text == _OF_STORE:
            return self._wrong_sequence(one)
        for begins, kept in _KEPT.items():
            if one.text.startswith(begins):
                return self._wrong_entries(one, kept)
        return None

    def _wrong_sequence(self, one: InspectionAnswer) -> str | None:
        found = one.value["sequence"]
        if one.after <= found <= one.until:
            return None
        return f"{found} is told, and {one.until} is durable, {one.after} was known"

    def _wrong_entries(self, one: InspectionAnswer, kept: int) -> str | None:
        """Check that the entries are the newest at some sequence: a sweep may have removed older
        ones."""
        for entry in one.value:
            at = entry["seq"]
            if at > one.until:
                return f"an entry of {at} is told, and {one.until} is durable"
            whose = self._attributions[at - 1]
            said = (whose.by, whose.statement, whose.reason)
            if (entry["user"] or "", entry["statement"], entry["reason"]) != said:
                return f"the entry of {at} is {entry}, and its commit {said}"
        newest = max([one.after, *(entry["seq"] for entry in one.value)])
        wanted = [
            at
            for at in range(newest, 0, -1)
            if (entry := self._attributions[at - 1].entry) is not None and entry.kept & kept
        ]
        found = [entry["seq"] for entry in one.value]
        if found != wanted[: len(found)]:
            return f"entries of {found} are told, and there were {wanted[: len(found)]}"
        return None
