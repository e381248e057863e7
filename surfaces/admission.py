"""What a surface lets run: each request from its beginning to its answer, up to a ceiling.

- What only waits for messages does not count, nor what waits for who asks to be found out: wrong
  passwords are answered late, and must not take the places of others' requests.
- A thousand that come at once, all of which will only wait, have not had their first turn when the
  next one is there. So one that finds no room is judged a little later (`deferred.py`), and refused
  only if there is none then.
- One that asks what runs, or ends some of it, is let in beside the others, as many of these as may
  run: where there is no room it is needed most.
- Where as many run as may, users that run few are let in all the same (`protocol/shares.py`).
- A surface that drains begins nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol import limits
from protocol.errors import Busy, Draining
from protocol.shares import fits
from surfaces.deferred import Deferred


class Admission:
    """The count of one surface.

    :param most: how many may run
    :param waiting: how many of those begun only wait for messages
    :param waiting_of: how many of these are a user's
    """

    def __init__(
        self, most: int, waiting: Callable[[], int], waiting_of: Callable[[str], int]
    ) -> None:
        self.most = most
        self.draining = False
        """Whether nothing new is begun."""
        self._waiting = waiting
        self._waiting_of = waiting_of
        self._begun_of: dict[str, int] = {}
        self.begun = 0
        """How many were begun and are not answered."""
        self.beside = 0
        """Of these, the ones that were let in where there was no room."""
        self.aside = 0
        """Of these, the ones of which it is being found out who asks."""
        self._later: Deferred | None = None

    @property
    def running(self) -> int:
        """How many run."""
        return self.begun - self._waiting() - self.beside - self.aside

    @property
    def full(self) -> bool:
        """Whether as many run as may."""
        return self.begun >= self.most and self.running >= self.most

    @property
    def lets_in_beside(self) -> bool:
        """Whether one more that asks what runs, or ends it, may be begun where there is no room."""
        return self.beside < self.most

    def has_room(self, user: str) -> bool:
        """Whether one more of a user may be begun; of nobody's as long as it is not full."""
        if not self.full:
            return True
        held = self._begun_of.get(user, 0) - self._waiting_of(user)
        return bool(user) and fits(held, 1, self.running, self.most, limits.RUNNING_OF_OTHERS)

    def begin(self, user: str, *, beside: bool = False) -> None:
        """One more of a user was begun."""
        self.begun += 1
        self.beside += beside
        self._begun_of[user] = self._begun_of.get(user, 0) + 1

    def end(self, user: str, *, beside: bool = False) -> None:
        """One of them is answered, or nobody waits for its answer. :param beside: as it began"""
        self.begun -= 1
        self.beside -= beside
        left = self._begun_of[user] - 1
        if left:
            self._begun_of[user] = left
        else:
            del self._begun_of[user]

    def pass_on(self, giver: str, taker: str) -> None:
        """One that was begun as one user's is another's: it has been found out who asks."""
        self.end(giver)
        self.begin(taker)

    def judge_later(self, again: Callable[[], None]) -> None:
        """Call `again` when there is room, or there was none for a while."""
        if self._later is None:
            self._later = Deferred(asyncio.get_running_loop(), lambda: self.full)
        self._later.judge(again)

    def busy(self) -> Busy:
        """Why one is refused for which there is no room."""
        return Busy(
            f"the node is running as many statements as it will: {self.running} on this surface"
        )

    def leaving(self) -> Draining:
        """Why nothing new is begun while it drains."""
        return Draining("the node is stopping and begins nothing new")
