"""One wire connection: bytes to requests, answers to bytes.

The frames of a read are decoded and started together, up to TURN_FRAMES of them; all answers of one
turn of the loop leave in one write (`surfaces/outbox.py`). The node's memory for a peer is bounded,
also that for one read. Frames of open requests (`Conversation.asked`) and answers that the peer has
not taken (`Outgoing.unsent`) count for its user among all that the surface holds. Past the bounds
of the connection no further frame is acted on, then none is read.

Its life, from the first byte to the last (`Life`; who may say what in it is the table of
`protocol/conversation.py`):

| life | bytes of the peer | answers | what ends it |
|---|---|---|---|
| COMING | – | – | the connection stands → TALKING; it never does → GONE |
| TALKING | acted on, unless it waits | sent | the last word said (`_finish`) → ENDING |
| ENDING | read and dropped | those said | both sides ended, or nothing moved in time → GONE |
| GONE | – | dropped | – |

It leaves TALKING when the peer has said BYE or ended its side, when the node has said BYE and all
is answered, when nobody signs in or a frame does not come in time, and when the peer does not speak
the protocol. An abort goes to GONE from wherever it is.

While it is TALKING it may wait, for one reason or several (`surfaces/wire/link.py`):

| it waits while | until |
|---|---|
| CHOKED: the peer does not take its answers; sooner with feeds | the transport says that it does |
| OVER: all peers of its user together don't | there is room among what they hold |
| CROWDED: its open requests hold too much | some are answered |
| KEYS, MESSAGES: there is no room for what some ask for | the peer has taken what there was |
| PACED: the frames of this turn of the loop are used up, its own or all | its turn, by user |
| DECODING: a long frame is being decoded | it is |
| PUT_OFF: a script is to be judged later | it is judged |
| the conversation signs somebody in | that is answered |
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final, cast

import structlog

from protocol import limits
from protocol.conversation import HELLO_BYTES, REFUSED_ALONE, Conversation, State
from protocol.errors import AnswerTooLarge, Busy, Failed, Refusal, RequestTimeout, after
from protocol.frames import Kind, Message, encode
from protocol.values import LONG, Tick
from protocol.weights import weigh
from surfaces.held_bytes import NOBODY, Account
from surfaces.sockets import half_close, read_at_most
from surfaces.wire import bodies
from surfaces.wire.keys import Keys
from surfaces.wire.link import CHOKED, CROWDED, DECODING, OVER, PACED
from surfaces.wire.messages import Messages
from surfaces.wire.outgoing import Outgoing
from surfaces.wire.scripts import Scripts
from surfaces.wire.shared import Wire
from surfaces.wire.sign_in import SignIn
from surfaces.wire.spaces import with_values_packed
from surfaces.wire.timeouts import FrameTime, Linger, TakingTime
from surfaces.wire.vaults import Vaults
from surfaces.wire.watches import Watches

READ_BYTES: Final = 256 * limits.KIB
"""What one read of a signed-in peer brings at most; before that HELLO_BYTES, for what it brings
waits in memory while the node judges the credential in front of it."""

TURN_FRAMES: Final = 256
"""Frames of a connection acted on in one turn of the loop. A read may bring tens of thousands, each
of 5 µs (refused) to some 60 (a script)."""

GOODBYE_SECONDS: Final = 2
"""How long a peer has to answer the node's BYE with its own. What it sends until then is refused
one by one, so that it knows of each request whether it was begun."""

SMALL_ANSWER: Final = 64 * limits.KIB
"""Up to this an answer is sent wherever it is due; a longer one only where there is room for it."""

_SAY_WHY: Final = frozenset({Kind.ERROR, Kind.REFUSED})

_log = structlog.get_logger()


class Life(Enum):
    """See the first table at the head of this file."""

    COMING = auto()
    TALKING = auto()
    ENDING = auto()
    GONE = auto()


class _Asked:
    """Requests of one kind that came in one read."""

    __slots__ = ("answered", "at", "kind")

    def __init__(self, kind: Kind, at: float) -> None:
        self.kind = kind
        self.at = at
        """The time of the loop."""
        self.answered = 0
        """Of these, answers that have not left yet."""


class WireConnection(asyncio.Protocol):
    """One peer, from its first byte to its last."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.talk = Conversation()
        self.outgoing = Outgoing(Account(wire.answers))
        self.address = "unknown"
        self.token: str | None = None
        self.who = b""
        self.minor = 0
        self._loop = asyncio.get_running_loop()
        self._requests = Account(wire.requests)
        """What its open requests, and the one that is coming, hold."""
        self._scripts = Scripts(self)
        self._keys = Keys(self)
        self._messages = Messages(self)
        self._watches = Watches(self)
        self._vaults = Vaults(self)
        parts = (self._scripts, self._messages, self._keys, self._watches, self._vaults)
        self._sign_in = SignIn(self, *parts)
        self._become(Life.COMING)
        self._waits = 0
        """The reasons why nothing is acted on, as the second table has them."""
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
        self._asked = _Asked(Kind.HELLO, 0.0)
        """The newest of `_begun`."""
        self._begun: dict[int, _Asked] = {}
        """Requests that are not answered, by id."""
        self._answered: list[_Asked] = []
        """Requests whose answers have not left yet."""

    # --- what the loop calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there."""
        self._become(Life.TALKING)
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
            self._sign_in.begin()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        if self.over:
            return
        self._counters.received += len(data)
        self._read_at = self._loop.time()
        try:
            self.talk.receive(data)
            if not self.wire.pace.is_spent:
                self.advance()
            else:
                self._stand_in_line()
                self._count()
                self._steer()
        except Exception as error:
            self.wire.broken(self, error)

    def eof_received(self) -> bool:
        """The peer ended its side without BYE: it is gone, and what runs for it ends."""
        if not self.over:
            self._abandon()
            self._finish()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over, whoever ended it."""
        self._become(Life.GONE)
        self._stop_timers()
        self._abandon()
        self._sign_in.end()
        self._requests.hold(0)
        self.outgoing.close()
        self.wire.left(self)

    def pause_writing(self) -> None:
        """Answers pile up: read no more."""
        self.hold(CHOKED)
        self._steer()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.release(CHOKED)
        if self.over:
            return
        try:
            self._take_up()
            self.advance()
        except Exception as error:
            self.wire.broken(self, error)

    # --- reading ---------------------------------------------------------------------------------

    def _become(self, life: Life) -> None:
        self._life = life
        self.gone = life is Life.GONE
        """Whether nobody is there."""
        self.over = self.gone or life is Life.ENDING
        """Whether nothing is begun any more."""

    @property
    def choked(self) -> bool:
        """As `Link.choked`."""
        return self._waits & (CHOKED | OVER) != 0

    def answers_wait_at(self, size: int) -> None:
        """As `Link.answers_wait_at`."""
        if not self.gone:
            self._transport.set_write_buffer_limits(high=size)

    def hold(self, why: int) -> None:
        """Act on nothing more until `release`."""
        self._waits |= why

    def release(self, why: int) -> None:
        """This reason to wait is over."""
        self._waits &= ~why

    def advance(self, message: Message | None = None) -> None:
        """Act on every whole message that may be acted on now.

        :param message: one that has been taken already
        """
        began = self._loop.time()
        self._act_on_all(message)
        self.wire.gate.turn_ends()
        self.wire.pace.spend(self._loop.time() - began)

    def _stand_in_line(self) -> None:
        """Act on more in a later turn of the loop, in turns with other users' connections."""
        if not self._waits & PACED:
            self.hold(PACED)
            self.wire.long_work.later(self.user, self._turn_has_come)

    def _turn_has_come(self) -> None:
        self.release(PACED)
        self._advance_later()

    def _act_on_all(self, message: Message | None) -> None:
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
            return  # there is nothing to count, await or end
        self._count()
        self._steer()
        if not self.over:
            self._frame.begin()
        if self._goodbye_over:
            self.end_if_done()

    def _take_long(self) -> None:
        """Decode the long frame that is ahead, once there is room for it."""
        if self._fits(self.talk.ahead):
            self.hold(DECODING)
            self.wire.background.spawn(self._decode())
        else:
            self.hold(CROWDED)

    async def _decode(self) -> None:
        """A long frame, in turns with everybody else's work. What follows it waits. Of one user one
        is decoded at a time: what it takes counts only once it is there."""
        work, user = self.wire.long_work, self._requests.user
        try:
            async with work.reading_of(user):
                message = await work.run(user, self._next_weighed)
        except Refusal as refusal:
            if not self.over:
                self.break_off(refusal)
        except Exception:
            if not self.over:
                self.break_off(self.failed(f"w{self._number}"))
        else:
            self.release(DECODING)
            if not self.over:
                self.advance(message)
        finally:
            self.release(DECODING)

    def _next_weighed(self, tick: Tick) -> Message | None:
        """The next message; what it holds may be many times what its frame had."""
        message = self.talk.next(tick)
        if message is not None and message.body is not None:
            self.talk.weigh(message.id, weigh(message.body, tick))
            if message.kind in REFUSED_ALONE and not self._count_asked():
                message = Message(message.kind, message.id, None, _too_much())
            elif message.kind is Kind.KV:
                message = with_values_packed(message, tick)
        return message

    def _act(self, message: Message) -> None:
        kind = message.kind
        if self._frame.timer is not None:
            self._frame.stop()
        if kind is not Kind.CANCEL and kind is not Kind.UNWATCH and kind is not Kind.BYE:
            asked = self._asked
            if asked.kind is not kind or asked.at != self._read_at:
                asked = self._asked = _Asked(kind, self._read_at)
            self._begun[message.id] = asked
        if kind is Kind.KV:
            self._keys.begin(message)
        elif kind is Kind.TOPIC:
            self._messages.begin(message)
        elif kind is Kind.RUN:
            self._scripts.begin(message)
        elif kind is Kind.PING:
            self.send(Kind.PONG, message.id)
        elif kind is Kind.CANCEL:
            self._scripts.cancel(message.id)
            self._messages.cancel(message.id)
        elif kind is Kind.AUTH:
            self._sign_in.change(message)
        elif kind is Kind.WATCH or kind is Kind.VAULT:
            (self._watches if kind is Kind.WATCH else self._vaults).begin(message)
        elif kind is Kind.UNWATCH:
            self._watches.unwatch(message.id)
        elif kind is Kind.HELLO:
            self._sign_in.greet(message)
        elif kind is Kind.BYE:
            self._watches.leave()
            self.end_if_done()

    def _steer(self) -> None:
        """Read from the peer or don't. While it signs in, what follows waits in its own buffers."""
        busy = self._waits or self.talk.state is State.SIGNING_IN
        wanted = self._life is Life.ENDING or not busy
        if wanted is self._reading or self.gone or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- what its requests hold ------------------------------------------------------------------

    def _fits(self, length: int) -> bool:
        """Whether a frame may be taken beside what is open. One may always."""
        asked = self.talk.asked
        return not asked or asked + length <= limits.CONNECTION_REQUESTS_BYTES

    def _count_asked(self) -> bool:
        """Count what its open requests hold; of a connection that is gone, of which something is
        read to its end, nothing. False: there is no room for it."""
        return self.gone or self._requests.hold(self.talk.asked + self.talk.unread)

    def _count(self) -> None:
        """Count what is held after a read: open requests, and what has come of the next. A frame
        that there is no room for is refused by its head, before its body is taken."""
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
            self._frame.begin()  # it is the node that did not read on
        else:
            self.break_off(RequestTimeout("a frame did not arrive in time"))

    # --- answering -------------------------------------------------------------------------------

    def send(
        self,
        kind: Kind,
        id: int,
        body: dict[str, Any] | None = None,
        data: bytes | None = None,
        committed: int = 0,
    ) -> None:
        """Say something; it leaves at the end of this turn of the loop, with all said in it."""
        if self.gone or self.talk.state is State.CLOSED:
            return
        refused = body.get("error") if body and kind in _SAY_WHY else None
        try:
            if data is None:
                data = encode(kind, id, body)
            if len(data) > SMALL_ANSWER and not self.outgoing.takes(len(data)):
                why = f"{len(data)} bytes find no room beside the answers that were not read yet"
                raise AnswerTooLarge(why, bytes=len(data))
        except (AnswerTooLarge, TypeError, ValueError, OverflowError) as error:
            own = error if isinstance(error, AnswerTooLarge) else self.failed(self.name(id))
            told = after(own, committed)
            kind, refused = Kind.ERROR, told.answer()
            data = encode(kind, id, bodies.error(told, self.name(id)))
        if refused is not None:
            self.wire.refusals.say(refused, self.name(id), self.token is not None)
            self._counters.refuse(refused["code"])
        self.talk.sent(kind, id)
        if kind is not Kind.CHANGE and kind is not Kind.PART:
            asked = self._begun.pop(id, None)
            if asked is not None:
                if not asked.answered:
                    self._answered.append(asked)
                asked.answered += 1
        if not self.outgoing.waiting:
            self.wire.outbox.add(self)
        self.outgoing.add(data)

    def refuse(self, id: int, refusal: Refusal) -> None:
        """Answer a request with an error."""
        self.send(Kind.ERROR, id, bodies.error(refusal, self.name(id)))

    def look_again(self) -> None:
        """As `Link.look_again`."""
        self.wire.outbox.add(self)

    def flush(self) -> None:
        """Hand over what there is to say, and go on where that has made room."""
        if self.gone:
            return
        waited, outgoing = self._waits, self.outgoing
        if outgoing.waiting:
            self._count_answers()
            if outgoing.flush() or outgoing.account.counted:
                self._watch()
        if waited or self._requests.counted or (self.talk.open and self._stand_still):
            self._go_on(waited)

    def _count_answers(self) -> None:
        """Count what leaves now, and how long it took since it was read."""
        counters, now = self._counters, self._loop.time()
        counters.sent += self.outgoing.waiting_bytes
        for asked in self._answered:
            kind, count = asked.kind.name, asked.answered
            asked.answered = 0
            counters.answer(kind, count)
            if asked.kind is not Kind.WATCH:  # that lasts for as long as its reader wants
                counters.ran(kind, now - asked.at, count)
        self._answered.clear()

    def _watch(self) -> None:
        """The peer has answers to take: count them, and see whether it takes any."""
        if self._taking.begin():
            self.wire.watch(self)
        self._count_unsent()

    def _count_unsent(self) -> None:
        if self.outgoing.count():
            self.release(OVER)
        elif self.talk.known:
            self.hold(OVER)
            self._steer()
        elif not self.over:
            self.abort()  # whom nobody signed in for is owed nothing

    def is_slow(self) -> bool:
        """As `Connected.is_slow`."""
        self._taking.runs = False
        if self.gone:
            return False
        waited = self._waits
        if self._taking.ran_out():
            self.abort()
            return False
        self._count_unsent()
        if waited or self._stand_still:
            self._go_on(waited)
        self._taking.runs = self.outgoing.unsent > 0
        return self._taking.runs

    def _go_on(self, waited: int) -> None:
        """Something was answered, or taken: see whether that ends the reasons to wait that there
        were before."""
        if self.over:
            return
        asked = self.talk.asked
        if waited & CROWDED and (not asked or self._has_room(asked)):
            self.release(CROWDED)
        self._requests.hold(asked + self.talk.unread)
        if not self.choked:
            self._take_up()
        if waited and not self._waits:
            self._loop.call_soon(self._advance_later)

    def _take_up(self) -> None:
        """The peer has taken something: go on with what waits for that."""
        self._keys.go_on()
        self._messages.go_on()
        self._watches.go_on()
        self._scripts.streams.go_on()

    @property
    def _stand_still(self) -> bool:
        """Whether something is told that goes on once the peer has taken what there was."""
        return self._watches.stand_still or self._scripts.streams.stand_still

    def _has_room(self, asked: int) -> bool:
        """Whether what made it wait fits by now."""
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
        """What a request is called in answers and logs."""
        return f"w{self._number}-{id}"

    def failed(self, name: str, error: BaseException | None = None) -> Failed:
        """As `Link.failed`: of those that nobody signed in for, at most one a second is logged."""
        said = _log.error if self.token is not None else self.wire.limited_log.error
        said("a request failed", request=name, exc_info=error or True)
        return Failed("the node failed at this request; its log has the trace", request=name)

    # --- signing in, and the end -----------------------------------------------------------------

    @property
    def user(self) -> str:
        return self._requests.user

    def welcome(self, id: int, user: str | None, body: dict[str, Any]) -> None:
        """Somebody has signed in, or out."""
        greeted = self.talk.welcomed
        self.talk.known = user is not None
        for account in (self._requests, self.outgoing.account):
            account.pass_to(user or NOBODY)
        if not self.gone:
            read_at_most(self._transport, READ_BYTES if user is not None else HELLO_BYTES)
        self.send(Kind.WELCOME, id, body)
        if self.wire.admission.draining and not greeted:
            self.say_goodbye()
        self.advance()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way for the peer."""
        signing_in = self.talk.state is State.SIGNING_IN
        return not (self.talk.open or self._waits & DECODING or signing_in)

    def say_goodbye(self) -> None:
        """The node begins nothing new: the peer is told, and the connection ends once the peer has
        said BYE too (or has had its time) and what is under way has been answered."""
        if self.talk.state is State.AWAITING_HELLO:
            self.break_off(self.wire.admission.leaving())
        elif self.talk.welcomed:
            self._watches.drain()
            self.send(Kind.BYE, 0)
            self._loop.call_later(GOODBYE_SECONDS, self._waited_for_goodbye)

    def _waited_for_goodbye(self) -> None:
        self._goodbye_over = True
        self.end_if_done()

    def abort(self) -> None:
        """End now."""
        self._transport.abort()

    def end_if_done(self) -> None:
        """Close when no more requests come and nothing is open any more."""
        if self.over:
            return
        if self.talk.state is State.CLOSED or (self._goodbye_over and self.idle):
            self._finish()

    def turn_away(self, id: int, refusal: Refusal) -> None:
        """Answer HELLO with REFUSED, and close."""
        self.send(Kind.REFUSED, id, {"error": refusal.answer()})
        self._finish()

    def break_off(self, refusal: Refusal) -> None:
        """Say why, to a peer that does not speak the protocol, and close."""
        if self.talk.welcomed:
            self.send(Kind.ERROR, 0, bodies.error(refusal, None))
        else:
            self.send(Kind.REFUSED, 0, {"error": refusal.answer()})
        self._abandon()
        self._finish()

    def _abandon(self) -> None:
        """Nobody will read the answers: end what runs."""
        self._scripts.abandon()
        self._messages.abandon()
        self._watches.abandon()
        self._scripts.streams.look()
        self._keys.abandon()

    def _finish(self) -> None:
        """Let the last word be read, then close."""
        self.talk.state = State.CLOSED
        self._stop_timers()
        if self.gone:
            return
        self._become(Life.ENDING)
        if self._transport.is_closing():
            return
        self.flush()
        if half_close(self._transport):
            self._steer()
        else:
            self._transport.close()
        self._linger.begin()

    def _stop_timers(self) -> None:
        self._sign_in.stop()
        self._linger.stop()
        self._frame.stop()


def _too_much() -> Busy:
    return Busy("the node holds as many bytes of requests as it will, for this user or in all")
