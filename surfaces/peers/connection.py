"""Connection between two nodes: handshake, link, end.

Memory per peer is bounded. The node buffers one incomplete message, up to its size limit. It
buffers complete messages not yet received, up to `limits.LINK_BUFFER_BYTES` and the last of them;
then reading pauses (backpressure). It buffers unsent bytes up to `limits.LINK_UNSENT_BYTES`. An
unknown peer may send one message of `limits.LINK_UNKNOWN_BYTES`; any byte after it ends the
connection. Time is bounded too: for the handshake, for a message that has begun, and for a peer
that reads nothing.

A protocol error of the peer ends the connection with a line in the log. The peer gets no reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from protocol import limits
from protocol.errors import TooLarge
from protocol.links import BadMessage, LinkClosed, Message, NotKnown, Peer, encode
from surfaces.peers.messages import MessageReader
from surfaces.peers.tls import CertificateRejected, Channel, PeerCertificate, TlsFailed

WRITE_BYTES: Final = 256 * limits.KIB
"""Bytes encrypted and not taken by the system; further data waits unencrypted."""


@dataclass(frozen=True, slots=True)
class PeerTimeouts:
    """Time limits of a peer, seconds."""

    greeting: float = limits.GREETING_PEER_SECONDS
    """For the handshake, from there to its greeting, and from there to its first request."""
    message: float = limits.BODY_SECONDS
    """For a message that has begun; longer for a long one."""
    taking: float = limits.WRITE_SECONDS
    """For reading any of the data buffered for it."""


class PeerConnection(asyncio.Protocol):
    """End of a connection. It is a `protocol.links.Link` once `know` has been called.

    :param made: called when the connection is established
    :param is_known: called after the handshake, before any message is read. True if the peer may
        send more than one short message before its greeting.
    :param failed: called with the reason when a connection ends abnormally
    :param left: called when the connection is over
    """

    def __init__(
        self,
        channel: Channel,
        patience: PeerTimeouts,
        made: Callable[[PeerConnection], None],
        is_known: Callable[[PeerCertificate], bool],
        failed: Callable[[PeerConnection, str], None],
        left: Callable[[PeerConnection], None],
    ) -> None:
        self._channel = channel
        self._patience = patience
        self._made = made
        self._is_known = is_known
        self._failed = failed
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = MessageReader()
        self._trust_checked = False
        """True if `is_known` has been called."""
        self._received: deque[tuple[Message, int]] = deque()
        """Complete messages not yet received."""
        self._received_bytes = 0
        self._unread = False
        """True if reading is paused because of these."""
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._sealed_bytes = 0
        """Encrypted bytes handed to the transport in all."""
        self._choked = False
        """True while the transport's write buffer is full."""
        self._why: str | None = None
        """Reason why it has ended, or is ending."""
        self._not_accepted = False
        """True if the peer rejected this node's certificate."""
        self._gone = False
        self._wakes: list[asyncio.Future[None]] = []
        """Futures of the tasks that wait for a change of this connection."""
        self._turn: asyncio.Handle | None = None
        """Scheduled callback that writes more."""
        self._late: asyncio.TimerHandle | None = None
        """Timer of an incomplete message."""
        self._slow: asyncio.TimerHandle | None = None
        """Timer of a peer with unread data."""
        self._peer: Peer | None = None
        self.address = "unknown"
        """The peer's address."""

    # --- callbacks of the loop --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        if self._why is not None:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self._made(self)
        if self._why is None:
            self._with_channel(self._channel.start_handshake)

    def data_received(self, data: bytes) -> None:
        """Decrypt and decode bytes of the peer."""
        if self._why is not None:
            return
        said = b""

        def receive() -> None:
            nonlocal said
            said = self._channel.receive(data)

        if not self._with_channel(receive):
            return
        if not self._trust_checked and self.shown is not None:
            self._trust_checked = True
            if self._is_known(self.shown):
                self._reader.trust()
        if said:
            self._reader.feed(said)
            self._decode_messages()
        if self._channel.ended:
            self._end("the peer ended the connection")
        self._pump()
        self._wake()

    def eof_received(self) -> bool:
        """End the connection: the peer sends no more, and an incomplete message is dropped."""
        self._end("the peer ended the connection")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up after the end of the connection, whichever side ended it."""
        if self._why is None:
            self._why = "the connection broke" if error else "the peer ended the connection"
        self._gone = True
        self._stop_timers()
        self._unsent.clear()
        self._unsent_bytes = 0
        self._wake()
        self._left(self)

    def pause_writing(self) -> None:
        """Stop writing: the transport's buffer is full."""
        self._choked = True
        self._look_at_taking()

    def resume_writing(self) -> None:
        """Go on writing."""
        self._choked = False
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        self._pump()
        self._wake()

    # --- the handshake and the greeting -----------------------------------------------------------

    async def established(self) -> PeerCertificate:
        """Wait for the end of the handshake. Return the peer's certificate.

        :raises LinkClosed: the connection ended first
        """
        while not self._channel.established:
            self._check_open()
            await self._change()
        assert self._channel.shown is not None
        return self._channel.shown

    def know(self, peer: Peer) -> None:
        """Make this a link: the peer has greeted."""
        self._peer = peer
        self._reader.trust()  # its row may have been added since the handshake

    @property
    def known(self) -> Peer | None:
        """The peer that has greeted, or None."""
        return self._peer

    @property
    def shown(self) -> PeerCertificate | None:
        """The peer's certificate, once the handshake is done."""
        return self._channel.shown if self._channel.established else None

    def give_back(self, message: Message) -> None:
        """Put a message back, to be received before all others."""
        self._received.appendleft((message, 0))

    # --- the link ---------------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        """The linked peer."""
        assert self._peer is not None, "nobody has greeted"
        return self._peer

    def send(self, message: Message) -> None:
        """Queue a message for the peer."""
        data = encode(message)
        if len(data) > limits.LINK_MESSAGE_BYTES:
            raise TooLarge(
                f"a message of {len(data)} bytes is over the limit of a link",
                limit=limits.LINK_MESSAGE_BYTES,
            )
        if self._why is not None:
            return
        self._unsent.append(memoryview(data))
        self._unsent_bytes += len(data)
        self._pump()
        if self.unsent > limits.LINK_UNSENT_BYTES:
            self.fail(f"the peer has not read {self.unsent} bytes")

    async def drained(self) -> None:
        """Wait until few unsent bytes are left (backpressure)."""
        while self.unsent > limits.LINK_BUFFER_BYTES:
            self._check_open()
            await self._change()
        self._check_open()

    async def receive(self) -> Message:
        """Wait for the next message of the peer."""
        while not self._received:
            self._check_open()
            await self._change()
        message, size = self._received.popleft()
        self._received_bytes -= size
        if self._unread and self._received_bytes <= limits.LINK_BUFFER_BYTES and self._why is None:
            self._unread = False
            self._open_transport.resume_reading()
            self._look_at_message()
        return message

    def close(self, why: str = "") -> None:
        """Close the link after queued messages have been sent."""
        if self._why is None:
            self._why = why or "this side closed the link"
            self._stop_late()
            if self._channel.established:
                self._pump()
                self._wake()
            else:
                self.cut(self._why)

    def fail(self, why: str) -> None:
        """Abort the connection, and log the reason."""
        if self._why is None:
            self._failed(self, why)
            self.cut(why)

    def turn_away(self, why: str) -> None:
        """Close it after queued messages have been sent, and log the reason."""
        if self._why is None:
            self._failed(self, why)
            self.close(why)

    def cut(self, why: str) -> None:
        """Abort it at once: unsent messages are dropped."""
        if self._why is None:
            self._why = why
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._transport is not None and not self._gone:
            self._transport.abort()
        self._wake()

    @property
    def ends(self) -> bool:
        """True if it is over, or about to be."""
        return self._why is not None

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._unsent_bytes + waiting

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None, "connected"
        return self._transport

    def _with_channel(self, work: Callable[[], None]) -> bool:
        """Run a TLS operation, and send its output. Return False if it failed and ended the
        connection."""
        why: str | None = None
        try:
            work()
        except TlsFailed as error:
            why = str(error)
            self._not_accepted = isinstance(error, CertificateRejected)
        self._write(self._channel.take())
        if why is None:
            return True
        self._failed(self, why)
        self._end(why)
        return False

    def _write(self, sealed: bytes) -> None:
        if sealed:
            self._sealed_bytes += len(sealed)
            self._open_transport.write(sealed)

    def _end(self, why: str) -> None:
        """Close the connection. Only bytes encrypted before may still leave."""
        if self._why is None:
            self._why = why
        self._unsent.clear()
        self._unsent_bytes = 0
        self._stop_late()
        if self._transport is not None and not self._gone:
            self._transport.close()
            self._look_at_taking()
        self._wake()

    def _decode_messages(self) -> None:
        try:
            while (found := self._reader.next()) is not None:
                self._stop_late()
                self._received.append(found)
                self._received_bytes += found[1]
        except BadMessage as error:
            self._reader.forget()
            self.fail(str(error))
            return
        if self._received_bytes > limits.LINK_BUFFER_BYTES and not self._unread:
            self._unread = True
            self._open_transport.pause_reading()
        self._look_at_message()

    def _look_at_message(self) -> None:
        """Start or stop the timer of an incomplete message. It runs only while the connection is
        read."""
        begun = self._reader.begun
        if self._unread or not begun:
            self._stop_late()
        elif self._late is None:
            seconds = self._patience.message + begun / limits.BODY_SECONDS_BYTES
            self._late = self._loop.call_later(seconds, self._message_is_late)

    def _message_is_late(self) -> None:
        self._late = None
        self.fail("the rest of a message did not arrive in time")

    def _pump_later(self) -> None:
        """Write more in the next iteration of the loop, so that other callbacks run first."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._pump_on)

    def _pump_on(self) -> None:
        self._turn = None
        self._pump()
        self._wake()

    def _pump(self) -> None:
        """Encrypt and write a part of the queue; after the last part of a closing link, send the
        TLS close."""
        if not self._channel.established or self._gone or self._open_transport.is_closing():
            return
        if self._unsent and not self._choked:
            first = self._unsent[0]
            part, rest = first[:WRITE_BYTES], first[WRITE_BYTES:]
            if rest:
                self._unsent[0] = rest
            else:
                self._unsent.popleft()
            self._unsent_bytes -= len(part)
            if not self._with_channel(lambda part=part: self._channel.send(part)):  # type: ignore[misc]
                return
            if self._unsent and not self._choked:
                self._pump_later()
        if self._why is not None and not self._unsent:
            self._channel.end()
            self._write(self._channel.take())
            self._open_transport.close()
        if self._why is not None:
            self._look_at_taking()

    def _look_at_taking(self) -> None:
        """Start the timer within which the peer must read some of its data."""
        if self._slow is None and not self._gone:
            seconds = self._patience.taking
            self._slow = self._loop.call_later(seconds, self._judge_taking, self._taken)

    @property
    def _taken(self) -> int:
        """Bytes that the system has taken."""
        return self._sealed_bytes - self._open_transport.get_write_buffer_size()

    def _judge_taking(self, before: int) -> None:
        self._slow = None
        if self._taken > before:
            self._look_at_taking()
        elif self._why is None:
            self.fail("the peer reads nothing")
        else:
            self.cut(self._why)

    def _stop_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _stop_timers(self) -> None:
        self._stop_late()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _check_open(self) -> None:
        if self._why is not None:
            raise (NotKnown if self._not_accepted else LinkClosed)(self._why)

    async def _change(self) -> None:
        """Wait for a change of this connection."""
        wake: asyncio.Future[None] = self._loop.create_future()
        self._wakes.append(wake)
        try:
            await wake
        finally:
            if wake in self._wakes:
                self._wakes.remove(wake)

    def _wake(self) -> None:
        wakes, self._wakes = self._wakes, []
        for wake in wakes:
            if not wake.done():
                wake.set_result(None)
