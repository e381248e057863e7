"""The bytes that the peers of a surface make it hold, and who may make it hold more.

There is one ceiling for all, of which one user alone gets half (`protocol/shares.py`).
Peers that nobody has signed in for are one user together, NOBODY.

A connection counts through an `Account`, in steps: what a small request holds for a moment costs
a comparison.
"""

from __future__ import annotations

from typing import Final

from protocol import limits
from protocol.shares import fits

NOBODY: Final = ""
"""No name of a user: they have at least one character."""


class HeldBytes:
    """:param most: bytes that all users together make the surface hold"""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._of: dict[str, int] = {}

    def of(self, user: str) -> int:
        """What a user holds."""
        return self._of.get(user, 0)

    def take(self, user: str, size: int) -> bool:
        """Count so many bytes more for a user. False: they are too many, and nothing is counted."""
        held, half = self._of.get(user, 0), self.most // 2
        if not fits(held, size, self.total, half, self.most - half):
            return False
        self._of[user] = held + size
        self.total += size
        return True

    def give(self, user: str, size: int) -> None:
        """So many bytes of a user's are let go."""
        left = self._of[user] - size
        assert left >= 0, f"{user} gives back more than it took"
        if left:
            self._of[user] = left
        else:
            del self._of[user]
        self.total -= size

    def pass_on(self, giver: str, taker: str, size: int) -> None:
        """So many bytes of one user's are another's from now on: a connection has changed hands.
        What all hold stays the same, so this is never refused."""
        self.give(giver, size)
        self._of[taker] = self._of.get(taker, 0) + size
        self.total += size


class Account:
    """What one connection holds of them, in steps of `limits.UNCOUNTED_BYTES`.

    :ivar counted: what of it counts; nothing up to the first step
    """

    __slots__ = ("_held", "_user", "counted")

    def __init__(self, held: HeldBytes, user: str = NOBODY) -> None:
        self._held = held
        self._user = user
        self.counted = 0

    def hold(self, size: int) -> bool:
        """It holds so many bytes now. False: they are too many, and what counted before does."""
        step = limits.UNCOUNTED_BYTES
        counts = 0 if size <= step else -(-size // step) * step
        if counts > self.counted:
            if not self._held.take(self._user, counts - self.counted):
                return False
        elif counts < self.counted:
            self._held.give(self._user, self.counted - counts)
        self.counted = counts
        return True

    def pass_to(self, user: str) -> None:
        """It is another user's from now on."""
        if self.counted and user != self._user:
            self._held.pass_on(self._user, user, self.counted)
        self._user = user

    @property
    def user(self) -> str:
        """Whose it is."""
        return self._user
