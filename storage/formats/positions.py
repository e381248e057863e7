"""Positions in a log's history, and the origin of a restored store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Self

from msgspec import Meta, Struct

from storage.formats.frames import DIGEST_BYTES

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
                int(str(facts["sequence"])),
                int(str(facts["epoch"])),
                int(str(facts["time"])),
                bytes.fromhex(str(facts["digest"])),
            ),
            None if place is None else str(place),
        )
