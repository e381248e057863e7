"""The memory of requests: an account for each, summed for its user and for the node.

A request sets its account whenever it gives the loop its turn: what it holds then stays while
others run, whether it goes on soon or waits for messages, a lock or the disk. What it takes within
one slice is not asked for beforehand.

Past the bound of a request it is ended with `TooLarge`, whatever others hold. A user whose requests
hold more than its share (`protocol/shares.py`) has the largest of them ended with `Busy`: one user
alone gets `USER_MEMORY_BYTES`, and what is left up to `NODE_MEMORY_BYTES` is shared out to those
who come after it. So all together never hold more than that, and no request is ended for what
another user takes.

A request that has committed something is ended only where no other one is left, and never once its
answer waits for the disk. What an ended request holds counts until it is gone, but no other one is
ended for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protocol import limits
from protocol.errors import Busy, Refusal, TooLarge
from protocol.shares import fits

STEP_BYTES: Final = 16 * limits.KIB
"""The step in which requests count. A request that holds no more counts as nothing."""


class NodeMemory:
    """Memory held by all requests of a node."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes, those of requests that are being ended included."""
        self.of: dict[str, UserMemory] = {}
        """By user, of those who hold anything."""
        self.going = 0
        """Bytes, without those of requests that are being ended."""

    def set(self, account: MemoryAccount, held: int, apart: int) -> None:
        """A request holds so much now. End what is too much.

        :param held: bytes that count against the bound of a request
        :param apart: bytes that have a bound of their own there
        """
        total = held + apart
        total = 0 if total <= STEP_BYTES else -(-total // STEP_BYTES) * STEP_BYTES
        change = total - account.held
        if change:
            self._count(account, change)
        if held > limits.REQUEST_MEMORY_BYTES:
            self._end(
                account,
                TooLarge(
                    f"a request holds at most {limits.REQUEST_MEMORY_BYTES} bytes of rows,"
                    f" variables and results together, this one about {held}",
                    limit=limits.REQUEST_MEMORY_BYTES,
                ),
            )
        elif change > 0:
            self._bound(account, change)

    def close(self, account: MemoryAccount) -> None:
        """A request holds nothing any more."""
        self._count(account, -account.held)

    def _count(self, account: MemoryAccount, change: int) -> None:
        user = self.of.get(account.user)
        if user is None:
            user = self.of[account.user] = UserMemory()
        account.held += change
        self.held += change
        if not account.ended:
            user.going += change
            self.going += change
        if account.held:
            user.accounts[account] = None
            return
        user.accounts.pop(account, None)
        if not user.accounts:
            del self.of[account.user]

    def _bound(self, account: MemoryAccount, change: int) -> None:
        """End requests of a user until what one of them has taken more fits."""
        user, alone = self.of[account.user], limits.USER_MEMORY_BYTES
        others = limits.NODE_MEMORY_BYTES - alone
        while not account.ended:
            before = user.going - change, self.going - change
            if fits(before[0], change, before[1], alone, others):
                return
            largest = user.largest()
            if largest is None:
                return
            self._end(
                largest,
                Busy(
                    f"the scripts of {account.user} hold too much memory together: {user.going}"
                    f" bytes, all of the node {self.going}; the largest, of {largest.held}, was"
                    " ended: run fewer at once, or have each hold less"
                ),
            )

    def _end(self, account: MemoryAccount, why: Refusal) -> None:
        """End a request, once."""
        if account.can_end and not account.ended:
            account.ended = True
            self.of[account.user].going -= account.held
            self.going -= account.held
            account.end(why)


class UserMemory:
    """Memory held by the requests of one user."""

    def __init__(self) -> None:
        self.going = 0
        """Bytes, without those of requests that are being ended."""
        self.accounts: dict[MemoryAccount, None] = {}

    def largest(self) -> MemoryAccount | None:
        """Return the largest request that can be ended, one that has committed nothing before any
        other."""
        return max(
            (one for one in self.accounts if one.can_end and not one.ended),
            key=lambda one: (not one.commits, one.held),
            default=None,
        )


class MemoryAccount:
    """Memory held by one request.

    :param user: its user
    :param end: ends the request with a refusal, at its next slice
    :param commits: what it has committed so far
    """

    __slots__ = ("can_end", "commits", "end", "ended", "held", "user")

    def __init__(
        self, user: str, end: Callable[[Refusal], None], commits: Sequence[object]
    ) -> None:
        self.user = user
        self.end = end
        self.commits = commits
        self.held = 0
        """Bytes that count."""
        self.ended = False
        """True if it is being ended."""
        self.can_end = True
        """False once only its answer is left."""
