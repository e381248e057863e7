"""Leader epochs of a log: the end of each epoch, as in Kafka KIP-101.

    {"first": 1042, "reigns": [[1, 17, "9c…"], [58, 1041, "04…"]]}     log/HISTORY

An epoch has one leader, and a leader never takes back a frame it has written. So two nodes that
compare the last frame of an epoch and its digest know how far their logs agree
(`actors/cluster/following.py`).

HISTORY holds the ended epochs (`EpochEnd`), also those whose frames were pruned. It is durable
before the first frame of the next epoch is written. For the current epoch the log itself takes
precedence over HISTORY. Hence a crash in between, or a truncation, needs no repair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from storage.formats.frames import Frame

KEPT: Final = 4_096
"""Maximum number of epochs kept, newest first. Two logs with none of them in common are copied, not
compared."""


class EpochEnd(NamedTuple):
    """The end of one epoch in a log."""

    epoch: int
    last: int
    """Sequence of its last frame."""
    digest: bytes
    """Digest of that frame."""


EpochHistory = Sequence[EpochEnd]
"""The epochs of a log, oldest first. It survives pruning, so it may begin before the log does."""


def whole(ended: EpochHistory, present: EpochEnd) -> EpochHistory:
    """Return the epoch history of a log, current epoch included.

    :param ended: epochs in HISTORY
    :param present: end of the log
    """
    if not present.last:
        return ()
    return (*(one for one in ended if one.epoch < present.epoch), present)


def ending(present: EpochEnd, frames: Sequence[Frame]) -> list[EpochEnd]:
    """Return the epochs that end when frames are appended.

    :param present: end of the log before them
    """
    found: list[EpochEnd] = []
    if present.last and frames[0].epoch > present.epoch:
        found.append(present)
    for frame, following in pairwise(frames):
        if following.epoch > frame.epoch:
            found.append(EpochEnd(frame.epoch, frame.sequence, frame.digest()))
    return found


def facts(ended: EpochHistory, first: int) -> dict[str, object]:
    """Encode HISTORY.

    :param first: sequence of the first frame of the next epoch
    """
    rows = [[one.epoch, one.last, one.digest.hex()] for one in ended]
    return {"first": first, "reigns": rows}


def read(told: Mapping[str, object] | None) -> EpochHistory:
    """Decode HISTORY; None: the file is absent, and no epoch has ended.

    :raises KeyError, TypeError, ValueError: the content is invalid
    """
    if told is None:
        return ()
    rows = told["reigns"]
    if not isinstance(rows, list):
        raise ValueError("its reigns are no list")
    return tuple(
        EpochEnd(int(epoch), int(last), bytes.fromhex(digest)) for epoch, last, digest in rows
    )
