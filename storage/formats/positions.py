"""Positions in a log's history, its leader epochs, and the origin of a restored store.

    {"first": 1042, "reigns": [[1, 17, "9c…"], [58, 1041, "04…"]]}     log/HISTORY

`reigns` are the ends of epochs: epoch, last sequence, digest of that frame.

An epoch has one leader, and a leader never rolls back a frame it has written. So two nodes that
compare the last frame of an epoch and its digest (Kafka KIP-101) know how far their logs agree
(`actors/cluster/log_matching.py`).

HISTORY holds the ended epochs (`EpochEnd`), also those whose frames were pruned. It is durable
before the first frame of the next epoch is written. For the current epoch the log itself takes
precedence over HISTORY. Hence a crash in between, or a truncation, needs no repair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, Self

from msgspec import Meta, Struct

from storage.formats.frames import DIGEST_BYTES, Frame

MOST: Final = (1 << 53) - 1
"""Upper bound of sequences and epochs, so that every client's number type can hold them."""
LATEST_US: Final = 253_402_300_799_999_999
"""End of the year 9999, the last the calendar supports, in µs since 1970."""
Count = Annotated[int, Meta(ge=0, le=MOST)]
TimeUs = Annotated[int, Meta(ge=0, le=LATEST_US)]


class LogPosition(Struct, frozen=True):
    """Log position: a frame that identifies the history up to it."""

    sequence: Count
    epoch: Count
    time: TimeUs
    """Log time of the frame, microseconds since 1970."""
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    """Digest of the frame (`frames.Frame.digest`); zeros before the first frame."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """End of a store's log."""

    sequence: int = 0
    epoch: int = 1
    """Epoch of the last frame."""
    time: int = 0
    """Log time of the last frame, microseconds since 1970."""
    store_id: bytes = bytes(16)
    next_epoch: int = 1
    """Epoch of the next frames; a restore begins a new one."""


class RestoreOrigin(Struct, frozen=True):
    """Origin of a restored store. The store's own commits follow it."""

    store: str
    """Id (UUID) of the store that was backed up."""
    at: LogPosition
    """Last frame of that store that this one contains."""
    place: str | None = None
    """Name of the only namespace or database restored, `ns` or `ns.db`; None: the whole store."""

    def facts(self) -> dict[str, object]:
        """Encode for the file STORE."""
        at = self.at
        return {
            "store": self.store,
            "sequence": at.sequence,
            "epoch": at.epoch,
            "time": at.time,
            "digest": at.digest.hex(),
            "place": self.place,
        }

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> Self:
        """Decode from the file STORE. :raises KeyError, ValueError: the content is invalid"""
        place = facts["place"]
        return cls(
            str(facts["store"]),
            LogPosition(
                # Through `str`: `int` alone would take fractions and booleans of damaged files.
                int(str(facts["sequence"])),
                int(str(facts["epoch"])),
                int(str(facts["time"])),
                bytes.fromhex(str(facts["digest"])),
            ),
            None if place is None else str(place),
        )


EPOCHS_KEPT: Final = 4_096
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


def whole_history(ended: EpochHistory, present: EpochEnd) -> EpochHistory:
    """Return the epoch history of a log, current epoch included.

    :param ended: epochs in HISTORY
    :param present: end of the log
    """
    # An empty log has no frame whose digest could be compared.
    if not present.last:
        return ()
    # HISTORY may go further: it is written before the first frame of the next epoch, and
    # the log may have been truncated since.
    return (*(one for one in ended if one.epoch < present.epoch), present)


def epochs_ended(present: EpochEnd, frames: Sequence[Frame]) -> list[EpochEnd]:
    """Return the epochs that end when frames are appended.

    :param present: end of the log before them
    """
    found: list[EpochEnd] = []
    # An epoch without frames has no end, so it is left out.
    if present.last and frames[0].epoch > present.epoch:
        found.append(present)
    # A follower that catches up may append frames of several epochs at once.
    for frame, following in pairwise(frames):
        if following.epoch > frame.epoch:
            found.append(EpochEnd(frame.epoch, frame.sequence, frame.digest()))
    return found


def pack_history(ended: EpochHistory, first: int) -> dict[str, object]:
    """Encode HISTORY.

    :param first: sequence of the first frame of the next epoch
    """
    # The name of the field is on the disk: another one would need another format.
    rows = [[one.epoch, one.last, one.digest.hex()] for one in ended]
    return {"first": first, "reigns": rows}


def read_history(told: Mapping[str, object] | None) -> EpochHistory:
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
