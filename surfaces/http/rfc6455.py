"""RFC 6455 enforced strictly on top of Tornado's WebSocket protocol.

Tornado's class does the handshake, reads frames and assembles messages. But it aborts the
connection without a close frame on a protocol error, accepts frames without a mask, and echoes
invalid close codes. So the header of each frame is checked before Tornado reads it, and text and
close payloads before Tornado handles them. A violation is answered with a close frame that names
it. Pings and the closing timeout are the stream's task.
"""

from __future__ import annotations

import asyncio
from typing import cast

from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketHandler, WebSocketProtocol13, _WebSocketParams

from protocol import limits
from protocol.errors import Busy
from surfaces.http import frames
from surfaces.http.stream import Stream


class WebSocketConversation(WebSocketProtocol13):
    """Server side of one WebSocket."""

    def __init__(self, handler: WebSocketHandler) -> None:
        # Checked here before Tornado, which counts a ping into the message around it.
        most = limits.SOCKET_MESSAGE_BYTES + frames.REASON_BYTES + 2
        params = _WebSocketParams(ping_interval=0, max_message_size=most)
        super().__init__(handler, mask_outgoing=False, params=params)
        self.last_word = frames.CUT
        """Close code received from the peer."""

    @property
    def over(self) -> Stream | None:
        """Stream of the connection, once the request is upgraded."""
        return cast("Stream | None", self.stream)

    def start_pinging(self) -> None:
        """Do nothing: the surface's timer sends the pings of all streams."""

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Send a close frame, once. The connection ends when the peer has sent its own."""
        stream = self.over
        assert stream is not None
        if not self.server_terminated:
            self.server_terminated = True
            if not stream.closed():
                if code is None and reason is not None:
                    code = frames.NORMAL
                stream.send(frames.close_frame(code, reason or ""))
                stream.part()
        if self.client_terminated:
            stream.hang_up(linger=False)

    def fail(self, code: int, why: str) -> None:
        """Send a close frame with the reason, and end without waiting for the peer's."""
        stream = self.over
        assert stream is not None
        self.close(code, why)
        self.client_terminated = True
        stream.hang_up(linger=True)

    def _abort(self) -> None:
        """Handle a failed callback or a lost peer (called by Tornado)."""
        if self.over is None:
            self.client_terminated = self.server_terminated = True
        elif self.is_closing():
            self.client_terminated = self.server_terminated = True
            self.over.close()
        else:
            self.fail(frames.NODE_FAILED, "internal error")

    async def _receive_frame(self) -> None:
        stream = self.over
        assert stream is not None
        assembling: bytearray | None = self._fragmented_message_buffer
        stream.assembled = 0 if assembling is None else len(assembling)
        try:
            head = await stream.peek(2)
            head = await stream.peek(frames.head_bytes(head))
            wrong = frames.violation(head, within=assembling is not None)
            if wrong is not None:
                self.fail(frames.PROTOCOL_ERROR, wrong)
                return
            size = frames.payload_bytes(head)
            most = limits.SOCKET_MESSAGE_BYTES
            if not frames.is_control(head) and size + stream.assembled > most:
                self.fail(frames.TOO_BIG, f"a message has at most {most} bytes")
                return
            await super()._receive_frame()
        except Busy as busy:
            self.fail(frames.TRY_LATER, busy.message)

    def _handle_message(self, opcode: int, data: bytes) -> asyncio.Future[None] | None:
        if opcode == frames.CLOSE:
            wrong = frames.close_violation(data)
            if wrong is not None:
                self.fail(*wrong)
                return None
            self.last_word = int.from_bytes(data[:2], "big") or frames.NO_CODE
        elif opcode == frames.TEXT and not frames.is_utf8(data):
            self.fail(frames.NOT_UTF8, "the text is not UTF-8")
            return None
        elif self.server_terminated:
            return None  # sent before our close frame was read
        try:
            return super()._handle_message(opcode, data)
        except StreamClosedError:
            self._abort()
            return None
