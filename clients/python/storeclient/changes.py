"""What a feed tells: changes, the commits that they stand in, and where a reader has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from storeclient.errors import ProtocolBroken
from storeclient.values import RecordId

Action = Literal["create", "update", "delete"]
Missing = Literal["pruned", "omitted"]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader has come to: keep all three, and come back with them."""

    seq: int
    """The last commit that was dealt with, or a later one that has nothing of the table."""
    store: str | None = None
    """The id of the store …"""
    epoch: int | None = None
    """… and the epoch in which that commit was written; None: not known. With both a position is
    never taken for one of another history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit has made of one record."""

    seq: int
    """The commit's."""
    at: datetime
    """When it was committed, by the node's log time."""
    by: str | None
    """Who did it, and the `reason` given; None to whoever may not have INFO of the table."""
    reason: str | None
    action: Action
    id: RecordId
    value: dict[str, Any] | None
    """The record after the commit; None: it is gone."""
    before: dict[str, Any] | None = None
    """The record as it was; None: that was not asked for, it was not there, or it is `missing`."""
    missing: Missing | None = None
    """Why the record as it was is not shown: the log no longer has it, or it is too large."""
    last: bool = False
    """Whether it is the last of its commit."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit has changed of a table, whole."""

    seq: int
    at: datetime
    by: str | None
    reason: str | None
    changes: tuple[Change, ...]
    position: Position
    """Where a reader has come to that has dealt with it: to be kept with what came of it."""


Body = Mapping[str, Any]


def read_seq(body: Body) -> int:
    """The `seq` of what a feed says. :raises ProtocolBroken: there is none"""
    seq = body.get("seq")
    if type(seq) is not int:
        raise ProtocolBroken("a feed of the node tells no seq")
    return seq


def read_epoch(body: Body, name: str = "epoch") -> int | None:
    """The epoch that a feed says a commit is of; None: it does not.

    :raises ProtocolBroken: it is no number
    """
    epoch = body.get(name)
    if epoch is not None and type(epoch) is not int:
        raise ProtocolBroken(f"a feed of the node tells {name} {str(epoch)[:40]!r}")
    return epoch


def is_whole(body: Body) -> bool:
    """Whether no other part of its commit follows."""
    return body.get("part") == body.get("of")


def read_commit(parts: list[Body], position: Position) -> Commit:
    """A commit of all its parts. :raises ProtocolBroken: they have another form"""
    head = parts[0]
    try:
        seq, at, by, reason = head["seq"], head["at"], head["by"], head["reason"]
        found = [change for part in parts for change in part["changes"]]
        _check_parts(parts)
        end = len(found) - 1
        changes = tuple(
            Change(
                seq=seq, at=at, by=by, reason=reason, last=number == end, action=one["action"],
                id=one["id"], value=one["value"], before=one.get("before"), missing=_missing(one),
            )
            for number, one in enumerate(found)
        )  # fmt: skip
        if type(seq) is not int or not all(isinstance(one.id, RecordId) for one in changes):
            raise TypeError("a commit has a seq, and changes are of records")
    except (KeyError, TypeError, AttributeError) as error:
        raise ProtocolBroken("a feed of the node tells what is no commit") from error
    return Commit(seq, at, by, reason, changes, position)


def _check_parts(parts: list[Body]) -> None:
    known = parts[0]["seq"], len(parts) if "of" in parts[0] else None
    for number, part in enumerate(parts, 1):
        found = part["seq"], part.get("of"), part.get("part")
        if found != (*known, None if known[1] is None else number):
            raise ProtocolBroken("the parts of a commit don't belong together")


_WORDS: Final[tuple[Missing, ...]] = ("pruned", "omitted")


def _missing(change: Body) -> Missing | None:
    return next((word for word in _WORDS if change.get(f"before_{word}")), None)
