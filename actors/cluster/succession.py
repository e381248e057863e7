"""Succession: who of the set goes first where nobody has the lead.

Who has shown something since it was started holds what was released then. A node that was just
started may have an older copy of its directory, by less than what was told in etcd since
(`docs/decisions/older-copies.md`): it leaves the lead to the others for a moment, and they take it
as soon as they hear of it.
"""

from __future__ import annotations

from typing import Final

from actors.cluster.member import Member
from protocol.doors import Clock

LEFT_SECONDS: Final = 2.0
"""For so long to others of the set."""
JUST_STARTED: Final = "this node has just been started: others of the set take the lead before it"


class Succession:
    """As this node has seen it. On the loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_us: int | None = None

    def ends(self) -> None:
        """Somebody leads."""
        self._since_us = None

    def is_left(self, member: Member, members: frozenset[str]) -> bool:
        """Whether this node leaves the lead to others.

        :param members: those of the set
        """
        if member.is_told or members <= {member.node}:
            return False
        now_us = self._clock.monotonic_us()
        if self._since_us is None:
            self._since_us = now_us
        return now_us - self._since_us < LEFT_SECONDS * 1_000_000
