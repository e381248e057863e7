"""Wire connection: bytes to requests, responses to bytes.

The frames of a read are decoded and started together, up to TURN_FRAMES of them (pipelining). All
responses of one iteration of the loop leave in one write (`surfaces/flush_queue.py`). Memory for a
peer is bounded, also for one read. Frames of open requests (`Conversation.asked`) and unread
responses (`WireWriteBuffer.unsent`) are charged to the user's memory quota on this surface. Above
the limits of the connection, first no further frame is executed, then none is read (backpressure).

Life cycle (`ConnectionPhase`; the permitted messages are in the table of
`protocol/conversation.py`):

| life | bytes of the peer | responses | ended by |
|---|---|---|---|
| COMING | – | – | connection established → TALKING; never established → GONE |
| TALKING | executed, unless it waits | sent | last message sent (`_finish`) → ENDING |
| ENDING | read and dropped | buffered ones | both sides ended, or no progress in time → GONE |
| GONE | – | dropped | – |

TALKING ends when the peer has sent BYE or half-closed, or when the node has sent BYE and every
request is answered. It also ends when no user signs in or a frame is incomplete in time, and on a
protocol error. An abort leads to GONE from any state.

A TALKING connection may wait, for any of these reasons (`surfaces/wire/link.py`):

| it waits while | until |
|---|---|
| CHOKED: the peer does not read its responses; sooner with feeds | the write buffer has drained |
| OVER: unread responses of the user's connections exceed the quota | there is room in the quota |
| CROWDED: its open requests hold too much memory | some are answered |
| KEYS, MESSAGES: no room for the responses of some requests | the peer has read responses |
| PACED: frames of this loop iteration are used up, its own or all | its slice, queued by user |
| DECODING: a long frame is being decoded | it is decoded |
| PUT_OFF: admission of a script is deferred | it is admitted or refused |
| a sign-in is under way | it is answered |
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final, cast

import structlog

from protocol import limits
from protocol.conversation import HELLO_BYTES, REFUSED_ALONE, ConnectionState, Conversation
from protocol.errors import AnswerTooLarge, Busy, Failed, Refusal, RequestTimeout, after
from protocol.frames import MessageKind, WireMessage, encode
from protocol.values import LONG, Tick
from protocol.weights import weigh
from surfaces.memory_quota import NOBODY, QuotaAccount
from surfaces.sockets import half_close, read_at_most
from surfaces.wire import bodies
from surfaces.wire.keys import WireKeys
from surfaces.wire.link import CHOKED, CROWDED, DECODING, OVER, PACED
from surfaces.wire.messages import WireMessages
from surfaces.wire.scripts import WireScripts
from surfaces.wire.shared import Wire
from surfaces.wire.sign_in import WireSignIn
from surfaces.wire.spaces import with_values_packed
from surfaces.wire.timeouts import FrameTime, Linger, TakingTime
from surfaces.wire.vaults import WireVaults
from surfaces.wire.watches import WireWatches
from surfaces.wire.write_buffer import WireWriteBuffer

READ_BYTES: Final = 256 * limits.KIB
"""Bytes per read of a signed-in peer. Before the sign-in HELLO_BYTES, since later bytes stay
buffered while the credential is checked."""

TURN_FRAMES: Final = 256
"""Frames of a connection executed in one iteration of the loop. A read may contain tens of
thousands, each of 5 µs (refused) to about 60 (a script)."""

GOODBYE_SECONDS: Final = 2
"""Seconds that a peer has to answer the node's BYE with its own. Requests sent until then are
refused one by one, so that the client knows for each whether it was started."""

SMALL_ANSWER: Final = 64 * limits.KIB
"""Bytes up to which a response is always sent. A longer one needs room in the quota."""

_SAY_WHY: Final = frozenset({MessageKind.ERROR, MessageKind.REFUSED})

_log = structlog.get_logger()


class ConnectionPhase(Enum):
    """State of a connection: the first table at the head of this file."""

    COMING = auto()
    TALKING = auto()
    ENDING = auto()
    GONE = auto()


class _ReadBatch:
    """Requests of one type that came in one read."""

    __slots__ = ("answered", "at", "kind")

    def __init__(self, kind: MessageKind, at: float) -> None:
        self.kind = kind
        self.at = at
        """Arrival time on the loop's clock."""
        self.answered = 0
        """Number of these whose response is not flushed yet."""


class WireConnection(asyncio.Protocol):
    """Client connection, from its first byte to its last."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.talk = Conversation()
        self.outgoing = WireWriteBuffer(QuotaAccount(wire.answers))
        self.address = "unknown"
        self.token: str | None = None
        self.who = b""
        self.minor = 0
        self._loop = asyncio.get_running_loop()
        self._requests = QuotaAccount(wire.requests)
        """Memory charged for open requests and the incoming frame."""
        self._scripts = WireScripts(self)
        self._keys = WireKeys(self)
        self._messages = WireMessages(self)
        self._watches = WireWatches(self)
        self._vaults = WireVaults(self)
        parts = (self._scripts, self._messages, self._keys, self._watches, self._vaults)
        self._sign_in = WireSignIn(self, *parts)
        self._become(ConnectionPhase.COMING)
        self._waits = 0
        """Bit set of reasons to wait: the second table at the head of this file."""
        self._goodbye_over = False
        self._reading = True
        self._frame = FrameTime(self.talk, self._frame_is_late)
        self._linger = Linger(self.outgoing)
        self._taking = TakingTime(self.outgoing)
        wire.made += 1
        wire.coming.add(self)
        self._number = wire.made
        self._counters = wire.counters
        self._read_at = 0.0
        self._asked = _ReadBatch(MessageKind.HELLO, 0.0)
        """Newest entry of `_begun`."""
        self._begun: dict[int, _ReadBatch] = {}
        """Unanswered requests, by id."""
        self._answered: list[_ReadBatch] = []
        """Requests whose responses are not flushed yet."""

    # --- callbacks of the loop -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit for HELLO, or refuse the connection while draining."""
        self._become(ConnectionPhase.TALKING)
        self._transport = self.outgoing.transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=limits.CONNECTION_BUFFER_BYTES)
        read_at_most(self._transport, HELLO_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self.wire.arrived(self)
        if self.wire.admission.draining:
            self.break_off(self.wire.admission.leaving())
        else:
            self._sign_in.start()

    def data_received(self, data: bytes) -> None:
        """Execute the frames in bytes of the peer."""
        if self.over:
            return
        self._counters.received += len(data)
        self._read_at = self._loop.time()
        try:
            self.talk.receive(data)
            if not self.wire.budget.is_spent:
                self.advance()
            else:
                self._stand_in_line()
                self._count()
                self._steer()
        except Exception as error:
            self.wire.broken(self, error)

    def eof_received(self) -> bool:
        """Cancel running requests: the peer closed its side without BYE."""
        if not self.over:
            self._abandon()
            self._finish()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up after the end of the connection, whichever side ended it."""
        self._become(ConnectionPhase.GONE)
        self._stop_timers()
        self._abandon()
        self._sign_in.end()
        self._requests.hold(0)
        self.outgoing.close()
        self.wire.left(self)

    def pause_writing(self) -> None:
        """Stop reading: the write buffer is full (backpressure)."""
        self.hold(CHOKED)
        self._steer()

    def resume_writing(self) -> None:
        """Continue: the write buffer has drained."""
        self.release(CHOKED)
        if self.over:
            return
        try:
            self._resume_streams()
            self.advance()
        except Exception as error:
            self.wire.broken(self, error)

    # --- reading ---------------------------------------------------------------------------------

    def _become(self, life: ConnectionPhase) -> None:
        self._life = life
        self.gone = life is ConnectionPhase.GONE
        """True if the connection is closed."""
        self.over = self.gone or life is ConnectionPhase.ENDING
        """True if no further request is accepted."""

    @property
    def choked(self) -> bool:
        """True if the peer, or the user's connections together, do not read responses."""
        return self._waits & (CHOKED | OVER) != 0

    def answers_wait_at(self, size: int) -> None:
        """Set the unread bytes above which the peer is no longer read."""
        if not self.gone:
            self._transport.set_write_buffer_limits(high=size)

    def hold(self, why: int) -> None:
        """Execute no frame until `release`."""
        self._waits |= why

    def release(self, why: int) -> None:
        """Drop this reason to wait."""
        self._waits &= ~why

    def advance(self, message: WireMessage | None = None) -> None:
        """Execute every complete message that may be executed now.

        :param message: a message already taken from the conversation
        """
        began = self._loop.time()
        self._act_on_all(message)
        self.wire.gate.on_turn_end()
        self.wire.budget.spend(int((self._loop.time() - began) * 1_000_000))

    def _stand_in_line(self) -> None:
        """Continue in a later iteration of the loop, fairly among users."""
        if not self._waits & PACED:
            self.hold(PACED)
            self.wire.budget.later(self.user, self._turn_has_come)

    def _turn_has_come(self) -> None:
        self.release(PACED)
        self._advance_later()

    def _act_on_all(self, message: WireMessage | None) -> None:
        talk, left = self.talk, TURN_FRAMES
        try:
            if message is not None:
                self._act(message)
            much = talk.unread > LONG
            while not self._waits:
                if much and talk.ahead > LONG:
                    self._take_long()
                elif not left:
                    if talk.unread:
                        self._stand_in_line()
                    break
                elif (message := talk.next()) is not None:
                    left -= 1
                    self._act(message)
                    if message.size > limits.UNCOUNTED_BYTES:
                        talk.weigh(message.id, weigh(message.body))
                    if talk.asked > limits.CONNECTION_REQUESTS_BYTES:
                        self.hold(CROWDED)
                else:
                    break
        except Refusal as refusal:
            self.break_off(refusal)
        self._scripts.run()
        self._messages.ask()
        self._keys.ask()
        self._watches.ask()
        if (
            talk.quiet
            and self._reading
            and not (self._waits or self._requests.counted or self._goodbye_over)
        ):
            return  # nothing to charge, await or end
        self._count()
        self._steer()
        if not self.over:
            self._frame.start()
        if self._goodbye_over:
            self.end_if_done()

    def _take_long(self) -> None:
        """Decode the next, long frame once there is room for it."""
        if self._fits(self.talk.ahead):
            self.hold(DECODING)
            self.wire.background.spawn(self._decode())
        else:
            self.hold(CROWDED)

    async def _decode(self) -> None:
        """Decode a long frame in slices; later frames wait. A user has one such frame decoded at a
        time, since its size in memory is known only afterwards."""
        work, user = self.wire.long_work, self._requests.user
        try:
            async with work.reading_of(user):
                try:
                    message = await work.run(user, self._next_weighed)
                finally:
                    self.release(DECODING)  # before `advance`, which may hold it for the next frame
        except Refusal as refusal:
            if not self.over:
                self.break_off(refusal)
        except Exception:
            if not self.over:
                self.break_off(self.failed(f"w{self._number}"))
        else:
            if not self.over:
                self.advance(message)

    def _next_weighed(self, tick: Tick) -> WireMessage | None:
        """Return the next message, with its memory charged: it may be many times the size of the
        frame."""
        message = self.talk.next(tick)
        if message is not None and message.body is not None:
            self.talk.weigh(message.id, weigh(message.body, tick))
            if message.kind in REFUSED_ALONE and not self._count_asked():
                message = WireMessage(message.kind, message.id, None, _too_much())
            elif message.kind is MessageKind.KV:
                message = with_values_packed(message, tick)
        return message

    def _act(self, message: WireMessage) -> None:
        kind = message.kind
        if self._frame.timer is not None:
            self._frame.stop()
        if (
            kind is not MessageKind.CANCEL
            and kind is not MessageKind.UNWATCH
            and kind is not MessageKind.BYE
        ):
            asked = self._asked
            if asked.kind is not kind or asked.at != self._read_at:
                asked = self._asked = _ReadBatch(kind, self._read_at)
            self._begun[message.id] = asked
        if kind is MessageKind.KV:
            self._keys.receive(message)
        elif kind is MessageKind.TOPIC:
            self._messages.receive(message)
        elif kind is MessageKind.RUN:
            self._scripts.receive(message)
        elif kind is MessageKind.PING:
            self.send(MessageKind.PONG, message.id)
        elif kind is MessageKind.CANCEL:
            self._scripts.cancel(message.id)
            self._messages.cancel(message.id)
        elif kind is MessageKind.AUTH:
            self._sign_in.change(message)
        elif kind is MessageKind.WATCH or kind is MessageKind.VAULT:
            (self._watches if kind is MessageKind.WATCH else self._vaults).receive(message)
        elif kind is MessageKind.UNWATCH:
            self._watches.unwatch(message.id)
        elif kind is MessageKind.HELLO:
            self._sign_in.greet(message)
        elif kind is MessageKind.BYE:
            self._watches.leave()
            self.end_if_done()

    def _steer(self) -> None:
        """Resume or pause reading from the peer. During a sign-in, later bytes wait in the peer's
        buffers."""
        busy = self._waits or self.talk.state is ConnectionState.SIGNING_IN
        wanted = self._life is ConnectionPhase.ENDING or not busy
        if wanted is self._reading or self.gone or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- memory of its requests ------------------------------------------------------------------

    def _fits(self, length: int) -> bool:
        """True if a frame fits beside the open requests. A single frame always fits."""
        asked = self.talk.asked
        return not asked or asked + length <= limits.CONNECTION_REQUESTS_BYTES

    def _count_asked(self) -> bool:
        """Charge the memory of the open requests. Return False if the quota is exceeded. A closed
        connection, whose last message is still decoded, is charged nothing."""
        return self.gone or self._requests.hold(self.talk.asked + self.talk.unread)

    def _count(self) -> None:
        """Charge open requests and the incoming frame after a read. A frame that exceeds the quota
        is refused by its header, before its body is read."""
        talk = self.talk
        coming = talk.begun
        if not (coming or talk.unread or talk.asked or self._requests.counted) or self.over:
            return
        if coming > limits.UNCOUNTED_BYTES:
            if not self._fits(coming):
                self.hold(CROWDED)
                return
            if self._requests.hold(talk.asked + coming):
                return
            if talk.known:
                self._refuse_by_head()
                return
        elif self._count_asked():
            return
        if not talk.known:
            self.break_off(_too_much())
        elif talk.asked:
            self.hold(CROWDED)

    def _refuse_by_head(self) -> None:
        try:
            self._act(self.talk.refuse(_too_much()))
        except Refusal as refusal:
            self.break_off(refusal)

    def _frame_is_late(self) -> None:
        if not self._reading:
            self._frame.start()  # reading was paused
        else:
            self.break_off(RequestTimeout("a frame did not arrive in time"))

    # --- answering -------------------------------------------------------------------------------

    def send(
        self,
        kind: MessageKind,
        id: int,
        body: dict[str, Any] | None = None,
        data: bytes | None = None,
        committed: int = 0,
    ) -> None:
        """Queue a message. It leaves at the end of this iteration of the loop, in one write."""
        if self.gone or self.talk.state is ConnectionState.CLOSED:
            return
        refused = body.get("error") if body and kind in _SAY_WHY else None
        try:
            if data is None:
                data = encode(kind, id, body)
            if len(data) > SMALL_ANSWER and not self.outgoing.takes(len(data)):
                why = (
                    f"the answer has {len(data)} bytes, more than the unread answers leave room"
                    " for: read those first"
                )
                raise AnswerTooLarge(why, bytes=len(data))
        except (AnswerTooLarge, TypeError, ValueError, OverflowError) as error:
            own = error if isinstance(error, AnswerTooLarge) else self.failed(self.name(id))
            told = after(own, committed)
            kind, refused = MessageKind.ERROR, told.answer()
            data = encode(kind, id, bodies.error(told, self.name(id)))
        if refused is not None:
            self.wire.refusals.say(refused, self.name(id), self.token is not None)
            self._counters.refuse(refused["code"])
        self.talk.sent(kind, id)
        if kind is not MessageKind.CHANGE and kind is not MessageKind.PART:
            asked = self._begun.pop(id, None)
            if asked is not None:
                if not asked.answered:
                    self._answered.append(asked)
                asked.answered += 1
        if not self.outgoing.waiting:
            self.wire.flush_queue.add(self)
        self.outgoing.add(data)

    def refuse(self, id: int, refusal: Refusal) -> None:
        """Answer a request with an error."""
        self.send(MessageKind.ERROR, id, bodies.error(refusal, self.name(id)))

    def look_again(self) -> None:
        """Schedule a flush at the end of this iteration, although nothing is sent."""
        self.wire.flush_queue.add(self)

    def flush(self) -> None:
        """Write the buffered responses, and continue requests that waited for room."""
        if self.gone:
            return
        waited, outgoing = self._waits, self.outgoing
        if outgoing.waiting:
            self._count_answers()
            if outgoing.flush() or outgoing.account.counted:
                self._watch()
        if waited or self._requests.counted or (self.talk.open and self._stand_still):
            self._resume_requests(waited)

    def _count_answers(self) -> None:
        """Count the responses of this flush, and their latency since the read."""
        counters, now = self._counters, self._loop.time()
        counters.sent += self.outgoing.waiting_bytes
        for asked in self._answered:
            kind, count = asked.kind.name, asked.answered
            asked.answered = 0
            counters.answer(kind, count)
            if asked.kind is not MessageKind.WATCH:  # the latency of a feed has no meaning
                counters.ran(kind, now - asked.at, count)
        self._answered.clear()

    def _watch(self) -> None:
        """Charge unread responses, and watch if the peer reads any."""
        if self._taking.start():
            self.wire.watch(self)
        self._count_unsent()

    def _count_unsent(self) -> None:
        if self.outgoing.count():
            self.release(OVER)
        elif self.talk.known:
            self.hold(OVER)
            self._steer()
        elif not self.over:
            self.abort()  # an anonymous peer is not entitled to memory

    def is_slow(self) -> bool:
        """True if the peer has unread responses. Abort it if it has read none for too long."""
        self._taking.runs = False
        if self.gone:
            return False
        waited = self._waits
        if self._taking.ran_out():
            self.abort()
            return False
        self._count_unsent()
        if waited or self._stand_still:
            self._resume_requests(waited)
        self._taking.runs = self.outgoing.unsent > 0
        return self._taking.runs

    def _resume_requests(self, waited: int) -> None:
        """Drop reasons to wait that have ended: a request was answered, or the peer has read."""
        if self.over:
            return
        asked = self.talk.asked
        if waited & CROWDED and (not asked or self._has_room(asked)):
            self.release(CROWDED)
        self._requests.hold(asked + self.talk.unread)
        if not self.choked:
            self._resume_streams()
        if waited and not self._waits:
            self._loop.call_soon(self._advance_later)

    def _resume_streams(self) -> None:
        """Continue requests and feeds that wait for the peer to read."""
        self._keys.on_peer_read()
        self._messages.on_peer_read()
        self._watches.on_peer_read()
        self._scripts.streams.on_peer_read()

    @property
    def _stand_still(self) -> bool:
        """True if a feed or a streamed backup waits for the peer to read."""
        return self._watches.stand_still or self._scripts.streams.stand_still

    def _has_room(self, asked: int) -> bool:
        """True if the frame that the connection waited for fits now."""
        talk = self.talk
        coming = max(talk.begun, talk.ahead if talk.ahead > LONG else 0)
        return asked + coming <= limits.CONNECTION_REQUESTS_BYTES

    def _advance_later(self) -> None:
        if not self.over:
            try:
                self.advance()
            except Exception as error:
                self.wire.broken(self, error)

    def name(self, id: int) -> str:
        """Return the id of a request in responses and logs."""
        return f"w{self._number}-{id}"

    def failed(self, name: str, error: BaseException | None = None) -> Failed:
        """Log a bug, and return its error. For anonymous peers at most one a second is logged."""
        said = _log.error if self.token is not None else self.wire.limited_log.error
        said("a request failed", request=name, exc_info=error or True)
        return Failed("internal error: the node's log has the trace", request=name)

    # --- sign-in and shutdown --------------------------------------------------------------------

    @property
    def user(self) -> str:
        return self._requests.user

    def welcome(self, id: int, user: str | None, body: dict[str, Any]) -> None:
        """Answer a sign-in or sign-out, and move the memory charges to that user."""
        greeted = self.talk.welcomed
        self.talk.known = user is not None
        for account in (self._requests, self.outgoing.account):
            account.move_charge(user or NOBODY)
        if not self.gone:
            read_at_most(self._transport, READ_BYTES if user is not None else HELLO_BYTES)
        self.send(MessageKind.WELCOME, id, body)
        if self.wire.admission.draining and not greeted:
            self.send_bye()
        self.advance()

    @property
    def idle(self) -> bool:
        """True if no request is open."""
        signing_in = self.talk.state is ConnectionState.SIGNING_IN
        return not (self.talk.open or self._waits & (DECODING | PACED) or signing_in)

    def send_bye(self) -> None:
        """Send BYE: the node is draining. The connection ends once open requests are answered and
        the peer has sent BYE too, or its time is over."""
        if self.talk.state is ConnectionState.AWAITING_HELLO:
            self.break_off(self.wire.admission.leaving())
        elif self.talk.welcomed:
            self._watches.drain()
            self.send(MessageKind.BYE, 0)
            self._loop.call_later(GOODBYE_SECONDS, self._waited_for_goodbye)

    def _waited_for_goodbye(self) -> None:
        self._goodbye_over = True
        self.end_if_done()

    def abort(self) -> None:
        """Abort the connection."""
        self._transport.abort()

    def end_if_done(self) -> None:
        """Close if no more requests come and none is open."""
        if self.over:
            return
        if self.talk.state is ConnectionState.CLOSED or (self._goodbye_over and self.idle):
            self._finish()

    def turn_away(self, id: int, refusal: Refusal) -> None:
        """Answer HELLO with REFUSED, and close."""
        self.send(MessageKind.REFUSED, id, {"error": refusal.answer()})
        self._finish()

    def break_off(self, refusal: Refusal) -> None:
        """Send the reason, for instance to a peer that breaks the protocol, and close."""
        if self.talk.welcomed:
            self.send(MessageKind.ERROR, 0, bodies.error(refusal, None))
        else:
            self.send(MessageKind.REFUSED, 0, {"error": refusal.answer()})
        self._abandon()
        self._finish()

    def _abandon(self) -> None:
        """Cancel everything that runs: its responses will not be read."""
        self._scripts.abandon()
        self._messages.abandon()
        self._watches.abandon()
        self._scripts.streams.wake_streams()
        self._keys.abandon()

    def _finish(self) -> None:
        """Half-close after the last message, so that the peer can read it."""
        self.talk.state = ConnectionState.CLOSED
        self._stop_timers()
        if self.gone:
            return
        self._become(ConnectionPhase.ENDING)
        if self._transport.is_closing():
            return
        self.flush()
        if half_close(self._transport):
            self._steer()
        else:
            self._transport.close()
        self._linger.start()

    def _stop_timers(self) -> None:
        self._sign_in.stop()
        self._linger.stop()
        self._frame.stop()


def _too_much() -> Busy:
    return Busy("too many bytes of requests in memory, of this user or of all: retry later")
