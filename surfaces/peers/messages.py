"""Bytes of a link, cut anywhere, to messages. See `protocol/links.py` for the map of them."""

from __future__ import annotations

from protocol import limits
from protocol.links import PREFIX_BYTES, BadMessage, Message, decode


class MessageReader:
    """Keeps one message that is not whole, and never more of it than it may be long: what a peer
    announces is judged before anything of it is kept.

    Until `trust` is called one message of `limits.LINK_UNKNOWN_BYTES` is all that may come: what
    comes behind it is not read.
    """

    __slots__ = ("_has_come", "_is_trusted", "_kept", "bytes_max")

    def __init__(self) -> None:
        self.bytes_max = limits.LINK_UNKNOWN_BYTES
        self._is_trusted = self._has_come = False
        self._kept = bytearray()

    def trust(self) -> None:
        """Take as many messages as come, each as long as any may be."""
        self._is_trusted = True
        self.bytes_max = limits.LINK_MESSAGE_BYTES

    def forget(self) -> None:
        """Keep nothing of what has come."""
        self._kept.clear()

    def feed(self, data: bytes) -> None:
        """Take bytes of the peer."""
        self._kept += data

    @property
    def begun(self) -> int:
        """How long the message is that has begun to come, its length included; 0: none has, or not
        enough of it to tell."""
        if len(self._kept) < PREFIX_BYTES:
            return len(self._kept) and PREFIX_BYTES
        return PREFIX_BYTES + int.from_bytes(self._kept[:PREFIX_BYTES], "big")

    def next(self) -> tuple[Message, int] | None:
        """The next whole message and how many bytes it was; None: it has not come.

        :raises BadMessage: it is longer than it may be, or none, or none may come any more
        """
        if self._has_come and self._kept and not self._is_trusted:
            raise BadMessage("it said more than the one message that may be, of who is not known")
        if len(self._kept) < PREFIX_BYTES:
            return None
        whole = self.begun
        if whole - PREFIX_BYTES > self.bytes_max:
            raise BadMessage(
                f"a message of {whole - PREFIX_BYTES} bytes is announced: {self.bytes_max} may be"
            )
        if len(self._kept) < whole:
            return None
        with memoryview(self._kept) as view, view[PREFIX_BYTES:whole] as body:
            message = decode(body)
        del self._kept[:whole]
        self._has_come = True
        return message, whole
