"""Answers on their way to one peer: gathered, handed over in one write, counted until it has taken
them."""

from __future__ import annotations

import asyncio

from protocol import limits
from surfaces.held_bytes import Account
from surfaces.sockets import unsent


class Outgoing:
    """:param account: what the peer has not taken counts there"""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.transport: asyncio.Transport
        self.waiting: list[bytes] = []
        """Said, and not handed over yet."""
        self.waiting_bytes = 0
        """Bytes of that."""
        self._written = 0

    @property
    def unsent(self) -> int:
        """Bytes that the peer's side has not taken."""
        return self.waiting_bytes + unsent(self.transport)

    @property
    def taken(self) -> int:
        """Bytes that the peer's side has taken so far."""
        return self._written - unsent(self.transport)

    @property
    def said(self) -> int:
        """Bytes said so far: where the last of them is taken, `taken` has come here."""
        return self._written + self.waiting_bytes

    @property
    def room(self) -> int:
        """How many more bytes of answers may be asked for."""
        return limits.CONNECTION_BUFFER_BYTES - self.unsent

    def takes(self, size: int) -> bool:
        """Whether there is room for a large answer; it counts from now on."""
        all_told = self.unsent + size
        return all_told <= limits.CONNECTION_ANSWERS_BYTES and self.account.hold(all_told)

    def add(self, data: bytes) -> None:
        """Say something; it leaves with what else is said until `flush`."""
        self.waiting.append(data)
        self.waiting_bytes += len(data)

    def flush(self) -> int:
        """Hand over what there is to say. The bytes that the peer has not taken at once."""
        data = self.waiting[0] if len(self.waiting) == 1 else b"".join(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        self._written += len(data)
        self.transport.write(data)
        return unsent(self.transport)

    def count(self) -> bool:
        """Count what is left now. False: there is no room for it among what is held of its user,
        and none of it has come to count."""
        return self.account.hold(self.unsent)

    def close(self) -> None:
        """Nobody takes any of it any more."""
        self.account.hold(0)
