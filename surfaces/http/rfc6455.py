"""Tornado's side of RFC 6455, held to the letter.

Tornado's class shakes hands, reads frames and puts messages together. It cuts the connection
without a word, though, where the peer breaks the rules, takes frames without a mask, and answers
close codes that nobody may send with the same. So the head of each frame is judged before Tornado
reads it, and what text and close frames say before Tornado acts on them; what is wrong is answered
with a close frame that says what. Pings, and how long a goodbye may take, are the stream's.
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


class Conversation(WebSocketProtocol13):
    """One socket's, on the server's side."""

    def __init__(self, handler: WebSocketHandler) -> None:
        # Judged here before Tornado counts; it would count a ping to the message around it.
        most = limits.SOCKET_MESSAGE_BYTES + frames.REASON_BYTES + 2
        params = _WebSocketParams(ping_interval=0, max_message_size=most)
        super().__init__(handler, mask_outgoing=False, params=params)
        self.last_word = frames.CUT
        """What the peer said goodbye with."""

    @property
    def over(self) -> Stream | None:
        """What it goes over, once the request is upgraded."""
        return cast("Stream | None", self.stream)

    def start_pinging(self) -> None:
        """The stream does, for all of them in one go."""

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Say goodbye, once. The connection ends when the peer has said it too."""
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
        """The conversation can't go on: say why, and end it without waiting for an answer."""
        stream = self.over
        assert stream is not None
        self.close(code, why)
        self.client_terminated = True
        stream.hang_up(linger=True)

    def _abort(self) -> None:
        """What Tornado does where a callback failed, or the peer is gone."""
        if self.over is None:
            self.client_terminated = self.server_terminated = True
        elif self.is_closing():
            self.client_terminated = self.server_terminated = True
            self.over.close()
        else:
            self.fail(frames.NODE_FAILED, "the node failed on this")

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
            return None  # sent before our goodbye was read
        try:
            return super()._handle_message(opcode, data)
        except StreamClosedError:
            self._abort()
            return None
