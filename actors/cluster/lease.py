"""A lease that the lead was taken with: how long who leads may believe that it still does.

Whoever granted it counts from when a renewal arrived, which is later than when it was sent. So a
deadline that is counted here from the sending, and a tenth early for clocks that run apart, is over
before anybody else can take the lead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

RENEWED_IN: Final = 3
"""A lease is renewed when this part of it is over, so that two renewals may be lost."""
SPARED: Final = 10
"""This part of it, at its end, is not counted on."""
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease. All times are those of the clock that goes on while the machine is suspended."""

    id: int
    seconds: int
    sent_us: int
    """When the last request was sent of those that were answered with it."""

    @property
    def renew_us(self) -> int:
        """When it is to be renewed."""
        return self.sent_us + self.seconds * _SECOND_US // RENEWED_IN

    @property
    def ends_us(self) -> int:
        """When who leads gives up believing that it does."""
        return self.sent_us + self.seconds * _SECOND_US * (SPARED - 1) // SPARED

    def is_over(self, now_us: int) -> bool:
        """Whether somebody else may lead by now, as far as anybody here knows."""
        return now_us >= self.ends_us

    def renewed(self, sent_us: int) -> Lease:
        """A request to renew it, sent then, was answered."""
        return replace(self, sent_us=max(self.sent_us, sent_us))
