"""Write buffer of one client: responses are collected until the end of the loop's iteration, and
charged until the client has read them."""

from __future__ import annotations

import asyncio
from typing import Final

from protocol import limits
from surfaces.memory_quota import NOBODY, QuotaAccount
from surfaces.sockets import unsent

BATCH_BYTES: Final = 256 * limits.KIB
"""Bytes of responses that wait for the end of the iteration. The requests of one read take a
hundredth of the bytes of their responses."""

SMALL_ANSWER: Final = 64 * limits.KIB
"""Bytes up to which a response is always sent. A longer one needs room in the quota."""


class HttpWriteBuffer:
    """:param account: account charged for unread bytes"""

    def __init__(self, account: QuotaAccount) -> None:
        self.account = account
        self.transport: asyncio.Transport
        self.paused = False
        """True if the client reads more slowly than responses are made."""
        self.over = False
        """True if unread responses of the user's connections fill the memory quota."""
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._drained: list[asyncio.Future[None]] = []
        self._written = 0
        """Bytes queued so far."""
        self._taken = 0
        self._stalled_since = 0.0
        self._sending = False

    @property
    def choked(self) -> bool:
        """True if no more responses should be made (backpressure)."""
        return self.paused or self.over

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""
        return self._batch_bytes + unsent(self.transport)

    def send(self, data: bytes) -> bool:
        """Queue bytes of the current response. Return True if they are the first that wait for
        `flush`."""
        first = not self._batch
        self._batch.append(data)
        self._written += len(data)
        self._batch_bytes += len(data)
        if self._batch_bytes > BATCH_BYTES:  # from here on the client sets the pace
            self.flush()
            return False
        return first

    def flush(self) -> None:
        """Write the queued bytes."""
        batch, self._batch = self._batch, []
        self._batch_bytes = 0
        if batch:
            self._write(batch[0] if len(batch) == 1 else b"".join(batch))

    def takes(self, size: int) -> bool:
        """Return True if there is room for a large response, which is then charged."""
        return self.account.hold(self.unsent + size)

    def count(self) -> None:
        """Charge the unread bytes. An anonymous connection is aborted if the quota is exceeded."""
        unsent = self.unsent
        if not unsent and not self.account.counted:
            self.over = False
            return
        self.over = not self.account.hold(unsent)
        if self.over and self.account.user == NOBODY:
            self.transport.abort()

    def still_sending(self, now: float) -> bool:
        """Return True if responses are unread. Note since when the client has read nothing."""
        unsent = self.unsent
        taken = self._written - unsent
        # A client that reads slower than the node sends has a growing backlog, but is not stalled.
        if not unsent or taken > self._taken or not self._sending:
            self._stalled_since = now
        self._sending = unsent > 0
        self._taken = taken
        return self._sending

    def stalled(self, now: float) -> float:
        """Return the seconds since the client last read something."""
        return now - self._stalled_since

    def written(self, waiter: asyncio.Future[None]) -> None:
        """Set `waiter` when the client keeps up with the sent bytes."""
        if self.paused:
            self._drained.append(waiter)
        else:
            waiter.set_result(None)

    def resume(self) -> None:
        """Continue: the client has caught up, or is gone."""
        self.paused = False
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_result(None)
        self._drained.clear()

    def close(self) -> None:
        """Release the charge: the connection is closed."""
        self.resume()
        self.account.hold(0)

    def _write(self, data: bytes) -> None:
        self.transport.write(data)
        if self.unsent:
            self.count()
