"""Change feeds: a frame decoded for the subscribers of tables.

For each record a frame holds the new fields and the commit that changed the record before. From the
catalog it yields the events that end a feed: a dropped table, or a changed row of a user.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from protocol.values import Tick
from storage.formats import effects, keys
from storage.formats.frames import Frame


class RecordChange(NamedTuple):
    """Change of one record."""

    key: bytes
    fields: bytes | None
    """Packed fields; None: the record was deleted."""
    previous: int
    """Sequence of the commit that changed it before; 0: it did not exist."""


@dataclass(slots=True)
class FeedCommit:
    """A frame, reduced to the changes that feeds subscribe to."""

    sequence: int
    epoch: int
    """Leader epoch in which it was written."""
    time: int
    """Log time, microseconds since 1970."""
    size: int
    """Size of the body in bytes."""
    by: str
    how: str
    """Surface: the protocol the request came by."""
    reason: str | None
    changes: dict[bytes, list[RecordChange]] = field(default_factory=dict)
    """Changes by record prefix of each subscribed table, in commit order."""
    dropped: list[keys.Range] = field(default_factory=list)
    """Key ranges that were deleted before anything was written."""
    users: dict[str, bytes | None] = field(default_factory=dict)
    """Changed rows of users by name; None: the user was dropped."""

    def drops(self, prefix: bytes) -> bool:
        """Return True if this commit dropped the table with this record prefix."""
        return any(start <= prefix < end for start, end in self.dropped)


def read(frame: Frame, wanted: Container[bytes], tick: Tick) -> FeedCommit:
    """Decode a frame.

    :param wanted: record prefixes of the subscribed tables
    :param tick: called now and then while a long frame is decoded
    :raises EffectsDamaged: it is not a valid commit
    """
    who, each = effects.read(frame.body, tick)
    commit = FeedCommit(
        frame.sequence, frame.epoch, frame.time, len(frame.body), who.by, who.how, who.reason
    )
    _note(commit, each, wanted)
    return commit


def _note(commit: FeedCommit, each: Iterable[Any], wanted: Container[bytes]) -> None:
    changes = commit.changes
    for effect in each:
        op, key = effect[0], effect[1]
        # Other stamped keys have these ops too; `wanted` holds prefixes of records only.
        if op == effects.PUT_RECORD or op == effects.DELETE_RECORD:
            prefix = key[: keys.RECORD_PREFIX_BYTES]
            if prefix in wanted:
                made = (
                    RecordChange(key, effect[2], effect[3])
                    if op == effects.PUT_RECORD
                    else RecordChange(key, None, effect[2])
                )
                known = changes.get(prefix)
                if known is None:
                    changes[prefix] = [made]
                else:
                    known.append(made)
        elif op == effects.DELETE_RANGE:
            # A frame begins with its range deletes, so these come before all writes.
            commit.dropped.append((key, effect[2]))
        # Declarations, counters and index builds end here too, and are passed over.
        elif keys.is_of_access(key):
            commit.users[keys.user_name(key)] = effect[2] if op == effects.PUT else None
