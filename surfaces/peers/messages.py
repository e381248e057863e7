"""Bytes of a link, cut anywhere, to messages. See `protocol/links.py` for the map of them."""

from __future__ import annotations

from protocol.links import PREFIX_BYTES, BadMessage, Message, decode


class MessageReader:
    """Keeps one message that is not whole, and never more of it than it may be long: what a peer
    announces is judged before anything of it is kept.

    :param bytes_max: the longest that is taken; may be set higher once more is allowed
    """

    __slots__ = ("_kept", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._kept = bytearray()

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

        :raises BadMessage: it is longer than it may be, or none
        """
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
        return message, whole
