"""What a script answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from storeclient.changes import Position
from storeclient.errors import ProtocolBroken

ResultKind = Literal["rows", "value", "none", "info"]


@dataclass(frozen=True, slots=True)
class Result:
    """What one statement answered."""

    value: Any
    kind: ResultKind
    rows: int
    """How many rows `value` holds."""
    took: timedelta
    changed: int | None = None
    """Records that the statement has made, changed or deleted, whatever it answers of them, those
    that stay as they were too; None: it writes none, the user must not know how many, or the node
    is of a version that does not tell."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script answered: one result for each statement, in their order."""

    results: tuple[Result, ...]
    seq: int
    """The committed sequence after the script's last write."""
    store: str | None = None
    """The id of the store …"""
    epoch: int | None = None
    """… and that of its history; None: the node is of a version that does not tell."""
    moment: str | None = None
    """The moment of the store that it read, if that is kept; see `AsyncDatabase.moment`."""

    @property
    def position(self) -> Position:
        """Where to follow tables from: what comes behind this answer, of this history."""
        return Position(self.seq, self.store, self.epoch)

    @property
    def value(self) -> Any:
        """The value of the last statement; None of a script that has none."""
        return self.results[-1].value if self.results else None


@dataclass(frozen=True, slots=True)
class Fields:
    """What an operation on a key or on messages answered; none where there is no such key."""

    fields: dict[str, Any]
    seq: int | None = None
    """The commit that it has made; 0: none; None: not told."""

    def with_own_seq(self) -> Fields:
        """The same, of a node that tells the commit. :raises ProtocolBroken: it does not"""
        seq = self.fields.pop("seq", 0)
        if type(seq) is not int or seq < 0:
            raise ProtocolBroken(f"the node tells no seq with {str(seq)[:40]!r}")
        return Fields(self.fields, seq)


def read_results(found: Any) -> tuple[Result, ...]:
    """The `results` of a message. :raises ProtocolBroken: they have another form"""
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
    """The answer in the body of ANSWER. :raises ProtocolBroken: it has another form"""
    if type(body.get("seq")) is not int:
        raise ProtocolBroken("an answer of the node has no seq")
    moment = body.get("moment")
    if not isinstance(moment, str | None):
        raise ProtocolBroken("an answer of the node has a moment without a name")
    store, epoch = body.get("store"), body.get("epoch")
    if not (isinstance(store, str | None) and isinstance(epoch, int | None)):
        raise ProtocolBroken("an answer of the node does not name its history")
    return Answer(read_results(body.get("results")), body["seq"], store, epoch, moment)
