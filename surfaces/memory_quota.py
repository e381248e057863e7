"""Memory quota of a surface: bytes buffered on behalf of its clients, and their limits by user.

All users share one ceiling, of which a single user gets half (`protocol/shares.py`). Connections
without a signed-in user share the quota of one user, NOBODY.

A connection counts through an `QuotaAccount`, in steps, so that a small request costs one
comparison.
"""

from __future__ import annotations

from typing import Final

from protocol import limits
from protocol.shares import fits

NOBODY: Final = ""
"""Key of anonymous connections. No user has this name: names have at least one character."""


class MemoryQuota:
    """:param most: ceiling of bytes buffered for all users together"""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._of: dict[str, int] = {}

    def of(self, user: str) -> int:
        """Return the bytes counted for a user."""
        return self._of.get(user, 0)

    def take(self, user: str, size: int) -> bool:
        """Charge bytes to a user. Return False, and charge nothing, if the quota is exceeded."""
        held, half = self._of.get(user, 0), self.most // 2
        if not fits(held, size, self.total, half, self.most - half):
            return False
        self._of[user] = held + size
        self.total += size
        return True

    def give_back_bytes(self, user: str, size: int) -> None:
        """Return bytes of a user to the quota."""
        left = self._of[user] - size
        assert left >= 0, f"{user} gives back more than it took"
        if left:
            self._of[user] = left
        else:
            del self._of[user]
        self.total -= size

    def pass_on(self, giver: str, taker: str, size: int) -> None:
        """Move bytes from one user to another: a connection has signed in. The total stays the
        same, so this is never refused."""
        self.give_back_bytes(giver, size)
        self._of[taker] = self._of.get(taker, 0) + size
        self.total += size


class QuotaAccount:
    """Bytes charged by one connection, in steps of `limits.UNCOUNTED_BYTES`.

    :ivar counted: bytes charged; 0 up to the first step
    """

    __slots__ = ("_held", "_user", "counted")

    def __init__(self, held: MemoryQuota, user: str = NOBODY) -> None:
        self._held = held
        self._user = user
        self.counted = 0

    def hold(self, size: int) -> bool:
        """Set the bytes held by this connection. Return False, and keep the former charge, if the
        quota is exceeded."""
        step = limits.UNCOUNTED_BYTES
        counts = 0 if size <= step else -(-size // step) * step
        if counts > self.counted:
            if not self._held.take(self._user, counts - self.counted):
                return False
        elif counts < self.counted:
            self._held.give_back_bytes(self._user, self.counted - counts)
        self.counted = counts
        return True

    def move_charge(self, user: str) -> None:
        """Move the charge to another user."""
        if self.counted and user != self._user:
            self._held.pass_on(self._user, user, self.counted)
        self._user = user

    @property
    def user(self) -> str:
        """User that is charged."""
        return self._user
