"""Answers on their way to one client: gathered until the end of the loop's turn, and counted until
the client has taken them."""

from __future__ import annotations

import asyncio
from typing import Final

from protocol import limits
from surfaces.held_bytes import NOBODY, Account
from surfaces.sockets import unsent

BATCH_BYTES: Final = 256 * limits.KIB
"""Of answers that wait for the end of the turn. Requests that a read brings take a hundredth of
what their answers may."""

SMALL_ANSWER: Final = 64 * limits.KIB
"""Up to this an answer is sent wherever it is due; a longer one only where there is room for it."""


class Outgoing:
    """:param account: what the client has not taken counts there"""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.transport: asyncio.Transport
        self.paused = False
        """Whether the client reads more slowly than answers are made."""
        self.over = False
        """Whether what all clients of its user have not taken fills the room that there is."""
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._drained: list[asyncio.Future[None]] = []
        self._written = 0
        """So many bytes are said."""
        self._taken = 0
        self._stalled_since = 0.0
        self._sending = False

    @property
    def choked(self) -> bool:
        """Whether no more answers should be made."""
        return self.paused or self.over

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""
        return self._batch_bytes + unsent(self.transport)

    def send(self, data: bytes) -> bool:
        """Send bytes of the current answer. Whether they are the first that wait for `flush`."""
        first = not self._batch
        self._batch.append(data)
        self._written += len(data)
        self._batch_bytes += len(data)
        if self._batch_bytes > BATCH_BYTES:  # the client says now how fast it takes them
            self.flush()
            return False
        return first

    def flush(self) -> None:
        """Hand over what waits."""
        batch, self._batch = self._batch, []
        self._batch_bytes = 0
        if batch:
            self._write(batch[0] if len(batch) == 1 else b"".join(batch))

    def takes(self, size: int) -> bool:
        """Whether there is room for a large answer; it counts from now on."""
        return self.account.hold(self.unsent + size)

    def count(self) -> None:
        """Count what the client has not taken; of who is nobody it is taken away where there is no
        room for it."""
        unsent = self.unsent
        if not unsent and not self.account.counted:
            self.over = False
            return
        self.over = not self.account.hold(unsent)
        if self.over and self.account.user == NOBODY:
            self.transport.abort()

    def still_sending(self, now: float) -> bool:
        """Whether answers wait for the client; notes since when it has taken nothing."""
        unsent = self.unsent
        taken = self._written - unsent
        # A peer may take less than is sent to it, so that ever more waits, and yet not be stalled.
        if not unsent or taken > self._taken or not self._sending:
            self._stalled_since = now
        self._sending = unsent > 0
        self._taken = taken
        return self._sending

    def stalled(self, now: float) -> float:
        """For how long the client has taken nothing."""
        return now - self._stalled_since

    def written(self, waiter: asyncio.Future[None]) -> None:
        """Set `waiter` when the client keeps up with what was sent."""
        if self.paused:
            self._drained.append(waiter)
        else:
            waiter.set_result(None)

    def resume(self) -> None:
        """The client has caught up, or is gone."""
        self.paused = False
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_result(None)
        self._drained.clear()

    def close(self) -> None:
        """Nobody takes any of it any more."""
        self.resume()
        self.account.hold(0)

    def _write(self, data: bytes) -> None:
        self.transport.write(data)
        if self.unsent:
            self.count()
