"""Answers of the node to scripts and operations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from storeclient.changes import Position
from storeclient.errors import ProtocolBroken

ResultKind = Literal["rows", "value", "none", "info"]


@dataclass(frozen=True, slots=True)
class Result:
    """Answer of one statement."""

    value: Any
    kind: ResultKind
    rows: int
    """Number of rows in `value`."""
    took: timedelta
    changed: int | None = None
    """Records that the statement created, updated or deleted, whatever it answers of them,
    including those left as they were. None: it writes none, the user may not know the number, or
    the node is of a version that does not send it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a script: one result for each statement, in order."""

    results: tuple[Result, ...]
    seq: int
    """Committed sequence after the script's last write."""
    store: str | None = None
    """Id of the store."""
    epoch: int | None = None
    """Leader epoch of `seq`; None: the node is of a version that does not send it."""
    moment: str | None = None
    """Name of the moment (pinned snapshot) that it read, if it is kept; see `AsyncDatabase.moment`.
    """

    @property
    def position(self) -> Position:
        """Start of a watch that yields the commits after this answer."""
        return Position(self.seq, self.store, self.epoch)

    @property
    def value(self) -> Any:
        """Value of the last statement; None if there is none."""
        return self.results[-1].value if self.results else None


@dataclass(frozen=True, slots=True)
class Fields:
    """Answer of an operation on a key or on messages; empty if the key does not exist."""

    fields: dict[str, Any]
    seq: int | None = None
    """Sequence of its commit; 0: it made none; None: unknown."""

    def with_own_seq(self) -> Fields:
        """Return the answer with its commit's sequence. :raises ProtocolBroken: invalid form"""
        seq = self.fields.pop("seq", 0)
        if type(seq) is not int or seq < 0:
            raise ProtocolBroken(f"the node sent an invalid seq, {str(seq)[:40]!r}")
        return Fields(self.fields, seq)


def read_results(found: Any) -> tuple[Result, ...]:
    """Decode the `results` of a message. :raises ProtocolBroken: invalid form"""
    try:
        return tuple(_result(one) for one in found or ())
    except (TypeError, KeyError) as error:
        raise ProtocolBroken("an answer of the node has no results") from error


def _result(found: Any) -> Result:
    rows, took, changed = found["rows"], found["took"], found.get("changed")
    if not (isinstance(rows, int) and isinstance(took, timedelta)):
        raise TypeError("rows are counted, and took is a time")
    if not isinstance(changed, int | None):
        raise TypeError("changed records are counted")
    return Result(found["value"], found["kind"], rows, took, changed)


def read_answer(body: dict[str, Any]) -> Answer:
    """Decode the body of an ANSWER. :raises ProtocolBroken: invalid form"""
    if type(body.get("seq")) is not int:
        raise ProtocolBroken("an answer of the node has no seq")
    moment = body.get("moment")
    if not isinstance(moment, str | None):
        raise ProtocolBroken("an answer of the node has a moment without a name")
    store, epoch = body.get("store"), body.get("epoch")
    if not (isinstance(store, str | None) and isinstance(epoch, int | None)):
        raise ProtocolBroken("an answer of the node has no epoch")
    return Answer(read_results(body.get("results")), body["seq"], store, epoch, moment)


def within(results: tuple[Result, ...], before: int) -> tuple[Result, ...]:
    """Return the results of a script without those of the statements around it.

    :param before: statements before it. With a RETURN it ended before COMMIT had a result
    """
    found = results[before:]
    return found[:-1] if found and found[-1].kind == "none" else found
