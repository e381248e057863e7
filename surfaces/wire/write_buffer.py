"""Write buffer of one peer: responses are collected, written in one call, and charged until the
peer has read them."""

from __future__ import annotations

import asyncio

from protocol import limits
from surfaces.memory_quota import QuotaAccount
from surfaces.sockets import unsent


class WireWriteBuffer:
    """:param account: account charged for unread bytes"""

    def __init__(self, account: QuotaAccount) -> None:
        self.account = account
        self.transport: asyncio.Transport
        self.waiting: list[bytes] = []
        """Queued messages, not written yet."""
        self.waiting_bytes = 0
        """Bytes of these."""
        self._written = 0

    @property
    def unsent(self) -> int:
        """Bytes not taken by the peer's side."""
        return self.waiting_bytes + unsent(self.transport)

    @property
    def taken(self) -> int:
        """Bytes taken by the peer's side so far."""
        return self._written - unsent(self.transport)

    @property
    def said(self) -> int:
        """Bytes queued so far. Once `taken` reaches this value, the last of them has been taken."""
        return self._written + self.waiting_bytes

    @property
    def room(self) -> int:
        """Bytes of responses that may still be requested."""
        return limits.CONNECTION_BUFFER_BYTES - self.unsent

    def takes(self, size: int) -> bool:
        """True if there is room for a large response, which is then charged."""
        all_told = self.unsent + size
        return all_told <= limits.CONNECTION_ANSWERS_BYTES and self.account.hold(all_told)

    def add(self, data: bytes) -> None:
        """Queue a message for the next `flush`."""
        self.waiting.append(data)
        self.waiting_bytes += len(data)

    def flush(self) -> int:
        """Write all queued messages. Return the bytes that the peer has not taken at once."""
        data = self.waiting[0] if len(self.waiting) == 1 else b"".join(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        self._written += len(data)
        self.transport.write(data)
        return unsent(self.transport)

    def count(self) -> bool:
        """Charge the unread bytes. Return False, and keep the former charge, if the user's quota is
        exceeded."""
        return self.account.hold(self.unsent)

    def close(self) -> None:
        """Release the charge: the connection is closed."""
        self.account.hold(0)
