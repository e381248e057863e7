"""How far a history has come, and which one a restored store goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Self

from msgspec import Meta, Struct

from storage.frames import DIGEST_BYTES

MOST: Final = (1 << 53) - 1
"""No sequence and no epoch goes beyond it: every client's numbers hold them."""
LATEST_US: Final = 253_402_300_799_999_999
"""Microseconds from 1970 to the end of the year 9999, with which the calendar ends."""
Count = Annotated[int, Meta(ge=0, le=MOST)]
TimeUs = Annotated[int, Meta(ge=0, le=LATEST_US)]


class Standing(Struct, frozen=True):
    """A frame of a store's log, and so how far a history has come."""

    sequence: Count
    epoch: Count
    time: TimeUs
    """Log time of the frame, microseconds since 1970."""
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    """`frames.Frame.digest`; zeros where there is no frame before the first."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log of a store ends."""

    sequence: int = 0
    epoch: int = 1
    """Of the last frame."""
    time: int = 0
    """Log time of the last frame, microseconds since 1970."""
    store_id: bytes = bytes(16)
    next_epoch: int = 1
    """Of the frames to come: a restore begins another."""


class Origin(Struct, frozen=True):
    """Where a restored store comes from. What it commits itself comes after that."""

    store: str
    """Id of the store that the backup was taken of, a UUID."""
    at: Standing
    """The last frame of that store that is in this one."""
    place: str | None = None
    """`ns` or `ns.db`, where no more than that was restored."""

    def facts(self) -> dict[str, object]:
        """As the file STORE has it."""
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
        """What STORE says. :raises KeyError, ValueError: it says something else"""
        place = facts["place"]
        return cls(
            str(facts["store"]),
            Standing(
                int(str(facts["sequence"])),
                int(str(facts["epoch"])),
                int(str(facts["time"])),
                bytes.fromhex(str(facts["digest"])),
            ),
            None if place is None else str(place),
        )
