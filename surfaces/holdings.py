"""What the users of a surface make it hold, and who may make it hold more.

There is one ceiling for all. A user may take more as long as what it holds then is no more than
what is left free after it: one alone gets half of the ceiling, a second one half of the rest, and
so on, so that whoever comes next still gets in. No share is fixed, none has to be taken back.
"""

from __future__ import annotations


class Holdings:
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
        mine = self._of.get(user, 0) + size
        free = self.most - self.total - size
        # Who holds nothing yet may take the last: one request always gets its turn.
        if free < 0 or (mine > free and mine > size):
            return False
        self._of[user] = mine
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
