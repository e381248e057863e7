"""The epochs of a log: of which it holds frames, and where each of them ends.

    {"first": 1042, "reigns": [[1, 17, "9c…"], [58, 1041, "04…"]]}     log/HISTORY

An epoch has one leader, and a leader takes no frame back that it has written. So where two nodes
name the last frame that they have of an epoch, and its digest, they know how far their logs are
the same (`actors/cluster/following.py`).

HISTORY holds the reigns that have ended, also of what was pruned. It is durable before the first
frame of the next epoch is written. What the log itself says of the epoch it ends in goes over what
stands there: after a crash in between, and after a cut, nothing has to be put right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from storage.frames import Frame

KEPT: Final = 4_096
"""The newest reigns. Two logs that have none of these in common are copied, not compared."""


class Reign(NamedTuple):
    """What a log has of one epoch."""

    epoch: int
    last: int
    """The last frame of it, and …"""
    digest: bytes
    """… that frame's digest."""


History = Sequence[Reign]
"""The reigns of a log, oldest first. It survives pruning, so it may begin before the log does."""


def whole(ended: History, present: Reign) -> History:
    """The history of a log.

    :param ended: the reigns that HISTORY has
    :param present: where the log ends
    """
    if not present.last:
        return ()
    return (*(one for one in ended if one.epoch < present.epoch), present)


def ending(present: Reign, frames: Sequence[Frame]) -> list[Reign]:
    """The reigns that end because frames follow.

    :param present: where the log ends before them
    """
    found: list[Reign] = []
    if present.last and frames[0].epoch > present.epoch:
        found.append(present)
    for frame, following in pairwise(frames):
        if following.epoch > frame.epoch:
            found.append(Reign(frame.epoch, frame.sequence, frame.digest()))
    return found


def facts(ended: History, first: int) -> dict[str, object]:
    """What HISTORY is to say.

    :param first: the first frame of the epoch that follows
    """
    rows = [[one.epoch, one.last, one.digest.hex()] for one in ended]
    return {"first": first, "reigns": rows}


def read(told: Mapping[str, object] | None) -> History:
    """What HISTORY says; None: there is none, and no reign has ended.

    :raises KeyError, TypeError, ValueError: it says something else
    """
    if told is None:
        return ()
    rows = told["reigns"]
    if not isinstance(rows, list):
        raise ValueError("its reigns are no list")
    return tuple(
        Reign(int(epoch), int(last), bytes.fromhex(digest)) for epoch, last, digest in rows
    )
