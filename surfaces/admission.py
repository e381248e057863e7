"""Admission control of a surface: limits concurrent requests, counted from start to response.

- A request that only waits for messages (long poll) does not count. Neither does one whose
  credential is still being checked: a wrong password is answered late and must not take a slot.
- When a thousand long polls arrive at once, most have not run their first slice when the next one
  arrives. A request that finds no slot is therefore judged a little later (`admission_queue.py`),
  and refused only if there is still none.
- A request that lists or ends running work is admitted beside the others, up to the same ceiling:
  it is needed most when the surface is full.
- At the ceiling, users that run few requests are still admitted (`protocol/shares.py`).
- A draining surface admits nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol import limits
from protocol.errors import Busy, Draining
from protocol.shares import fits
from surfaces.admission_queue import AdmissionQueue


class Admission:
    """Admission counters of one surface.

    :param most: ceiling of concurrently running requests
    :param waiting: returns the number of admitted requests that only wait for messages
    :param waiting_of: returns the number of these that belong to a user
    """

    def __init__(
        self, most: int, waiting: Callable[[], int], waiting_of: Callable[[str], int]
    ) -> None:
        self.most = most
        self.draining = False
        """True while draining: no new request is admitted."""
        self._waiting = waiting
        self._waiting_of = waiting_of
        self._begun_of: dict[str, int] = {}
        self.begun = 0
        """Requests admitted and not yet answered."""
        self.beside = 0
        """Number of these admitted beside the ceiling, without a free slot."""
        self.aside = 0
        """Number of these whose credential is still being checked."""
        self._later: AdmissionQueue | None = None

    @property
    def running(self) -> int:
        """Number of running requests, as counted against the ceiling."""
        return self.begun - self._waiting() - self.beside - self.aside

    @property
    def full(self) -> bool:
        """True if the ceiling is reached."""
        return self.begun >= self.most and self.running >= self.most

    @property
    def lets_in_beside(self) -> bool:
        """True if one more request that lists or ends running work may be admitted without a free
        slot."""
        return self.beside < self.most

    def has_room(self, user: str) -> bool:
        """True if one more request of a user fits. Anonymous requests need a free slot."""
        if not self.full:
            return True
        held = self._begun_of.get(user, 0) - self._waiting_of(user)
        return bool(user) and fits(held, 1, self.running, self.most, limits.RUNNING_OF_OTHERS)

    def admit(self, user: str, *, beside: bool = False) -> None:
        """Count one more request of a user."""
        self.begun += 1
        self.beside += beside
        self._begun_of[user] = self._begun_of.get(user, 0) + 1

    def end(self, user: str, *, beside: bool = False) -> None:
        """Count one request less: it was answered, or its client is gone.

        :param beside: as passed to `admit`
        """
        self.begun -= 1
        self.beside -= beside
        left = self._begun_of[user] - 1
        if left:
            self._begun_of[user] = left
        else:
            del self._begun_of[user]

    def pass_on(self, giver: str, taker: str) -> None:
        """Move one request to another user: its credential has been checked."""
        self.end(giver)
        self.admit(taker)

    def admit_later(self, again: Callable[[], None]) -> None:
        """Call `again` once there is a free slot, or after a short delay without one."""
        if self._later is None:
            self._later = AdmissionQueue(asyncio.get_running_loop(), lambda: self.full)
        self._later.judge(again)

    def busy(self) -> Busy:
        """Return the refusal for a request that found no slot."""
        return Busy(
            "too many running statements: the limit of this surface is reached"
            f" ({self.running}); retry later"
        )

    def leaving(self) -> Draining:
        """Return the refusal for a request that arrives while draining."""
        return Draining("the node is stopping and accepts no new requests")
