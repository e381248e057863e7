"""Succession: which ISR member goes first when the lead is vacant.

A member that has shown something since its start holds everything released by then. A node that was
just started may have an older copy of its directory: frames after the last published commit index
may be missing (`docs/decisions/older-copies.md`). So it leaves the lead to the others for a moment;
they take it as soon as they learn of the vacancy.
"""

from __future__ import annotations

from typing import Final

from actors.cluster.member import ClusterMember
from protocol.environment import Clock

LEFT_SECONDS: Final = 2.0
"""Time for which a node that was just started leaves a vacant lead to other ISR members (s)."""
JUST_STARTED: Final = "this node was just started: other in-sync replicas take the lead before it"


class LeadVacancy:
    """Present vacancy, as this node has seen it. On the loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_us: int | None = None

    def ends(self) -> None:
        """Note that there is a leader."""
        self._since_us = None

    def is_left(self, member: ClusterMember, members: frozenset[str]) -> bool:
        """True if this node leaves the vacant lead to others.

        :param members: members of the ISR
        """
        # Alone in the ISR, it has no other member to wait for.
        if member.has_caught_up or members <= {member.node}:
            return False
        now_us = self._clock.monotonic_us()
        # The time counts from the first sight of the vacancy, not from the end of the lease.
        if self._since_us is None:
            self._since_us = now_us
        return now_us - self._since_us < LEFT_SECONDS * 1_000_000
