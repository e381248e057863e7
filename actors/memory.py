"""Memory accounts: bytes held by each request, summed by user and for the node.

A request updates its account whenever it yields: memory held then stays while others run, whether
the request resumes soon or waits for messages, a lock or the disk. Within a slice a request takes
memory without a check.

A request above its own limit is ended with `TooLarge`, whatever others hold. A user above its share
(`protocol/shares.py`) has its largest request ended with `Busy`. A single active user gets
`USER_MEMORY_BYTES`; the rest up to `NODE_MEMORY_BYTES` is shared by the users that come after it.
So the total is bounded, and no request is ended for the memory of another user.

Memory bounds of a SELECT (`protocol/limits.py`); nothing spills to the disk:

| of | limit | checked by | refusal |
|---|---|---|---|
| rows of one statement | `STATEMENT_MEMORY_BYTES` | `language/budget.py`, by batch | `TooLarge` |
| a script's variables | `SCRIPT_MEMORY_BYTES` | `actors/scripts/script_state.py` | `TooLarge` |
| one request | `REQUEST_MEMORY_BYTES` | here, at each yield | `TooLarge` |
| one user | `USER_MEMORY_BYTES` | here, at each yield | `Busy` |
| the node | `NODE_MEMORY_BYTES` | here, at each yield | `Busy` |

A request that has committed is ended only if no other one is left, and never once its response
waits for the disk. The memory of an ended request counts until it is released, but no further
request is ended for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protocol import limits
from protocol.errors import Busy, Refusal, TooLarge
from protocol.shares import fits

STEP_BYTES: Final = 16 * limits.KIB
"""Granularity of accounts, in bytes. A request that holds no more counts as 0."""


class NodeMemory:
    """Memory held by all requests of a node."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes held, including requests that are being ended."""
        self.of: dict[str, UserMemory] = {}
        """Accounts by user, of users that hold memory."""
        self.going = 0
        """Bytes held, excluding requests that are being ended."""

    def set(self, account: MemoryAccount, held: int, apart: int) -> None:
        """Set the bytes that a request holds, and end requests above a limit.

        :param held: bytes that count against the limit of a request
        :param apart: bytes with a separate limit within the request
        """
        total = held + apart
        # Rounded, so that small changes, and small requests, cost no update of the sums.
        total = 0 if total <= STEP_BYTES else -(-total // STEP_BYTES) * STEP_BYTES
        change = total - account.held
        if change:
            self._count(account, change)
        if held > limits.REQUEST_MEMORY_BYTES:
            self._end(
                account,
                TooLarge(
                    f"a request holds at most {limits.REQUEST_MEMORY_BYTES} bytes of rows,"
                    f" variables and results together, this one holds about {held}",
                    limit=limits.REQUEST_MEMORY_BYTES,
                ),
            )
        elif change > 0:
            self._bound(account, change)

    def close(self, account: MemoryAccount) -> None:
        """Set an account to zero: its request has ended."""
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
        """End requests of a user until the growth of one of them fits into the user's share."""
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
                    f"the scripts of {account.user} hold too much memory together, {user.going}"
                    f" bytes of {self.going} on this node. The largest, of {largest.held} bytes,"
                    " was ended: run fewer scripts at once, or have each hold less"
                ),
            )

    def _end(self, account: MemoryAccount, why: Refusal) -> None:
        """End a request, at most once."""
        if account.can_end and not account.ended:
            account.ended = True
            self.of[account.user].going -= account.held
            self.going -= account.held
            account.end(why)


class UserMemory:
    """Memory held by the requests of one user."""

    def __init__(self) -> None:
        self.going = 0
        """Bytes held, excluding requests that are being ended."""
        self.accounts: dict[MemoryAccount, None] = {}

    def largest(self) -> MemoryAccount | None:
        """Return the largest request that can be ended. One without commits precedes any with."""
        return max(
            (one for one in self.accounts if one.can_end and not one.ended),
            key=lambda one: (not one.commits, one.held),
            default=None,
        )


class MemoryAccount:
    """Memory held by one request.

    :param user: its user
    :param end: ends the request with a refusal, at its next slice
    :param commits: commits of the request so far
    """

    __slots__ = ("can_end", "commits", "end", "ended", "held", "user")

    def __init__(
        self, user: str, end: Callable[[Refusal], None], commits: Sequence[object]
    ) -> None:
        self.user = user
        self.end = end
        self.commits = commits
        self.held = 0
        """Accounted bytes, rounded up to STEP_BYTES."""
        self.ended = False
        """True if it is being ended."""
        self.can_end = True
        """False once only the response is left to send."""
