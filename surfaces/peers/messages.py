"""Message reader: bytes of a link, split anywhere, to messages. `protocol/links.py` lists these."""

from __future__ import annotations

from protocol import limits
from protocol.links import PREFIX_BYTES, BadMessage, Message, decode


class MessageReader:
    """Buffers one incomplete message. An announced length is checked before any of the message is
    buffered.

    Until `trust` is called, only one message of `limits.LINK_UNKNOWN_BYTES` is accepted, and none
    after it.
    """

    __slots__ = ("_has_come", "_is_trusted", "_kept", "bytes_max")

    def __init__(self) -> None:
        self.bytes_max = limits.LINK_UNKNOWN_BYTES
        self._is_trusted = self._has_come = False
        self._kept = bytearray()

    def trust(self) -> None:
        """Accept any number of messages, each up to the normal size limit."""
        self._is_trusted = True
        self.bytes_max = limits.LINK_MESSAGE_BYTES

    def forget(self) -> None:
        """Drop the buffered bytes."""
        self._kept.clear()

    def feed(self, data: bytes) -> None:
        """Buffer bytes of the peer."""
        self._kept += data

    @property
    def begun(self) -> int:
        """Length in bytes of the incomplete message, its length prefix included. If the prefix is
        incomplete, the prefix's length; 0 if no message has begun."""
        if len(self._kept) < PREFIX_BYTES:
            return len(self._kept) and PREFIX_BYTES
        return PREFIX_BYTES + int.from_bytes(self._kept[:PREFIX_BYTES], "big")

    def next(self) -> tuple[Message, int] | None:
        """Return the next complete message and its size in bytes, or None if it is incomplete.

        :raises BadMessage: it is too long, malformed, or a second message of an unknown peer
        """
        if self._has_come and self._kept and not self._is_trusted:
            raise BadMessage("an unknown peer sent more than one message")
        if len(self._kept) < PREFIX_BYTES:
            return None
        whole = self.begun
        if whole - PREFIX_BYTES > self.bytes_max:
            raise BadMessage(
                f"a message of {whole - PREFIX_BYTES} bytes is over the limit of {self.bytes_max}"
            )
        if len(self._kept) < whole:
            return None
        with memoryview(self._kept) as view, view[PREFIX_BYTES:whole] as body:
            message = decode(body)
        del self._kept[:whole]
        self._has_come = True
        return message, whole
