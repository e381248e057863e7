"""Messages of a change feed: changes, their commits, and the position of a reader."""

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
    """Cursor of a reader in the log. Store all three parts, and resume with them."""

    seq: int
    """Last processed commit, or a later one without changes of the table."""
    store: str | None = None
    """Id of the store."""
    epoch: int | None = None
    """Leader epoch of that commit; None: unknown. With store and epoch a position is never mistaken
    for one of another history (KIP-101)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of one record by a commit."""

    seq: int
    """Sequence of the commit."""
    at: datetime
    """Log time of the commit."""
    by: str | None
    """Author of the commit, with the `reason` given; None if the reader lacks INFO on the table."""
    reason: str | None
    action: Action
    id: RecordId
    value: dict[str, Any] | None
    """Record after the commit; None: deleted."""
    before: dict[str, Any] | None = None
    """Previous version of the record; None: not requested, the record did not exist, or it is
    `missing`."""
    missing: Missing | None = None
    """Reason why the previous version is absent: the log no longer has it, or it is too large."""
    last: bool = False
    """True for the last change of its commit."""


@dataclass(frozen=True, slots=True)
class Commit:
    """All changes of a table by one commit."""

    seq: int
    at: datetime
    by: str | None
    reason: str | None
    changes: tuple[Change, ...]
    position: Position
    """Cursor of a reader that has processed the commit: store it together with the result."""


Body = Mapping[str, Any]


def read_seq(body: Body) -> int:
    """Return the `seq` of a feed's message. :raises ProtocolBroken: it is missing"""
    seq = body.get("seq")
    if type(seq) is not int:
        raise ProtocolBroken("the node sent a commit without seq")
    return seq


def read_epoch(body: Body, name: str = "epoch") -> int | None:
    """Return the epoch of a commit in a feed's message; None: it has none.

    :raises ProtocolBroken: it is not a number
    """
    epoch = body.get(name)
    if epoch is not None and type(epoch) is not int:
        raise ProtocolBroken(f"the node sent an invalid {name} in a feed, {str(epoch)[:40]!r}")
    return epoch


def is_whole(body: Body) -> bool:
    """True if no other part of its commit follows."""
    return body.get("part") == body.get("of")


def read_commit(parts: list[Body], position: Position) -> Commit:
    """Assemble a commit from its parts. :raises ProtocolBroken: invalid form"""
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
        if type(seq) is not int or not isinstance(at, datetime):
            raise TypeError("a commit has a seq and a time")
        if not all(isinstance(one.id, RecordId) for one in changes):
            raise TypeError("changes are of records")
    except (KeyError, TypeError, AttributeError) as error:
        raise ProtocolBroken("the node sent an invalid commit in a feed") from error
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
