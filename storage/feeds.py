"""What a commit says to those who follow tables: its frame, read for what they want to know.

Of records a frame tells what each was made and which commit changed it before; of the catalog, what
ends a feed: a table that is no more, a user whose row has changed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from protocol.values import Tick
from storage import effects, keys
from storage.frames import Frame


class Change(NamedTuple):
    """What became of one record."""

    key: bytes
    fields: bytes | None
    """Packed; None: it was deleted."""
    previous: int
    """The commit that changed it before; 0: it did not exist."""


@dataclass(slots=True)
class Commit:
    """One frame, as far as somebody follows what it changes."""

    sequence: int
    epoch: int
    """In which it was written."""
    time: int
    """Log time, microseconds since 1970."""
    size: int
    """Bytes of its body."""
    by: str
    how: str
    """The surface that it came by."""
    reason: str | None
    changes: dict[bytes, list[Change]] = field(default_factory=dict)
    """Of each table asked for, by the prefix of its records, in the order of the commit."""
    dropped: list[keys.Range] = field(default_factory=list)
    """The keys in these ranges were deleted before anything was written."""
    users: dict[str, bytes | None] = field(default_factory=dict)
    """Rows of users that it wrote, by their names; None: it dropped them."""

    def drops(self, prefix: bytes) -> bool:
        """Whether it dropped the table whose records have this prefix."""
        return any(start <= prefix < end for start, end in self.dropped)


def read(frame: Frame, wanted: Container[bytes], tick: Tick) -> Commit:
    """What a frame says.

    :param wanted: the prefixes of the tables whose changes are asked for
    :param tick: called now and then while a long one is read
    :raises EffectsDamaged: it is no commit
    """
    who, each = effects.read(frame.body, tick)
    commit = Commit(
        frame.sequence, frame.epoch, frame.time, len(frame.body), who.by, who.how, who.reason
    )
    _note(commit, each, wanted)
    return commit


def _note(commit: Commit, each: Iterable[Any], wanted: Container[bytes]) -> None:
    changes = commit.changes
    for effect in each:
        op, key = effect[0], effect[1]
        if op == effects.PUT_RECORD or op == effects.DELETE_RECORD:
            prefix = key[: keys.RECORD_PREFIX_BYTES]
            if prefix in wanted:
                made = (
                    Change(key, effect[2], effect[3])
                    if op == effects.PUT_RECORD
                    else Change(key, None, effect[2])
                )
                known = changes.get(prefix)
                if known is None:
                    changes[prefix] = [made]
                else:
                    known.append(made)
        elif op == effects.DELETE_RANGE:
            commit.dropped.append((key, effect[2]))
        elif keys.is_of_access(key):
            commit.users[keys.user_name(key)] = effect[2] if op == effects.PUT else None
