"""Lease of the lead: the time for which the leader may assume that it still leads.

etcd counts from the arrival of a renewal, which is later than its sending. The deadline here counts
from the sending, less a tenth for clock drift. So it is over before another node can take the lead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

RENEWED_IN: Final = 3
"""A lease is renewed after this fraction of it (1/n), so that two renewals may be lost."""
SPARED: Final = 10
"""Fraction at its end (1/n) that is not relied on."""
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LeadLease:
    """Lease of the lead. Times are on the boot-time clock, which also runs during suspension."""

    id: int
    seconds: int
    sent_us: int
    """Sending time of the newest answered request (µs)."""

    @property
    def renew_us(self) -> int:
        """Time of the next renewal (µs)."""
        return self.sent_us + self.seconds * _SECOND_US // RENEWED_IN

    @property
    def ends_us(self) -> int:
        """Deadline (µs): from then on the leader assumes that it no longer leads."""
        return self.sent_us + self.seconds * _SECOND_US * (SPARED - 1) // SPARED

    def is_over(self, now_us: int) -> bool:
        """True if another node may lead by now, as far as this node knows."""
        return now_us >= self.ends_us

    def renewed(self, sent_us: int) -> LeadLease:
        """Note that a renewal sent at this time was answered."""
        # An answer to an older renewal never moves the deadline back.
        return replace(self, sent_us=max(self.sent_us, sent_us))
