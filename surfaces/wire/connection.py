"""One wire connection: bytes to requests, answers to bytes.

All frames of a read are decoded at once and started at once; all answers of one turn of the loop
leave in one write. Invariants:

- Every RUN is counted in `Wire.begun` from its frame to its answer, and answered exactly once.
- A script whose client has gone is cancelled: nothing runs for nobody.
- While the peer takes no answers nothing more is read from it, so what it can make the node hold
  is what was already running for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import structlog

from actors.scripts.administering import administers
from protocol import limits
from protocol.conversation import HELLO_BYTES, Conversation, State
from protocol.errors import (
    AnswerTooLarge,
    BadRequest,
    Busy,
    Cancelled,
    Draining,
    Failed,
    Refusal,
    RequestTimeout,
    SignInRefused,
)
from protocol.frames import Kind, Message, encode_in_steps
from protocol.requests import AuthenticateToken, Caller, ScriptAnswer
from protocol.spaces import KeyAnswer
from protocol.values import LONG, Tick, is_large, let_go
from surfaces.later import Later
from surfaces.logs import SparingLog
from surfaces.sockets import half_close, read_at_most
from surfaces.turns import LongWork
from surfaces.wire import bodies, spaces
from surfaces.wire.gate import Gate, Place

LINGER_SECONDS: Final = 2
"""How long a connection that has been told its last word stays open for it to be read. Closing at
once would answer what the peer is still sending with a reset, which can overtake that word."""

SMALL: Final = 2_048
SMALL_STRING: Final = 8_192
"""Parts of an answer, and characters or bytes of each, up to which it is encoded at once: a fifth
of a millisecond for a hundred messages of a topic, a few milliseconds for what is all strings."""

TOGETHER_SECONDS: Final = limits.SLICE_US / 1_000_000
"""How long scripts of one read are begun one right after the other."""

READ_BYTES: Final = 256 * limits.KIB
"""What one read of a signed-in peer brings at most; before that HELLO_BYTES, for what it brings
waits in memory while the node judges the credential in front of it."""

GOODBYE_SECONDS: Final = 2
"""How long a peer has to answer the node's BYE with its own. What it sends until then is refused
one by one, so that it knows of each request whether it was begun."""

_log = structlog.get_logger()


class Wire:
    """What the connections of one surface share: the gate, the ceilings' counts, the stage."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.coming: set[WireConnection] = set()
        """Accepted, not connected yet: a TLS handshake is under way."""
        self.connections: set[WireConnection] = set()
        self.begun = 0
        """Scripts begun and not answered, on all connections together."""
        self.beside = 0
        """Of those, the ones that were let in where there was no room; see `lets_in`."""
        self.draining = False
        self.sparing = SparingLog("surfaces.wire")
        self.made = 0
        """Connections since the start; numbers them in the names of requests."""
        self._under_way: set[asyncio.Future[Any]] = set()
        self._still = asyncio.Event()
        self._still.set()
        self._long_work: LongWork | None = None
        self._later: Later | None = None
        self._unsaid: list[WireConnection] = []

    @property
    def running(self) -> int:
        """Scripts running: those begun, but for those that wait, and those let in beside."""
        return self.begun - self.gate.waiting() - self.beside

    @property
    def held(self) -> int:
        """Connections that count against the ceiling."""
        return len(self.connections) + len(self.coming)

    @property
    def long_work(self) -> LongWork:
        """Where long frames are decoded and encoded."""
        if self._long_work is None:
            self._long_work = LongWork(asyncio.get_running_loop())
        return self._long_work

    @property
    def full(self) -> bool:
        """Whether as many scripts run as may."""
        return self.begun >= limits.RUNNING and self.running >= limits.RUNNING

    def lets_in(self, body: dict[str, Any] | None) -> bool:
        """Whether a RUN that finds no room is begun all the same: one that asks what runs, or ends
        some of it. It counts beside the others."""
        script = (body or {}).get("script")
        return self.beside < limits.RUNNING and isinstance(script, str) and administers(script)

    @property
    def later(self) -> Later:
        """Where scripts are put off for which there is no room at the moment."""
        if self._later is None:
            self._later = Later(asyncio.get_running_loop(), lambda: self.full)
        return self._later

    def leaving(self) -> Draining:
        """Why nothing new is begun while draining."""
        return Draining("the node is stopping and begins nothing new")

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` until it ends, or the surface does."""
        task = asyncio.get_running_loop().create_task(work)
        self.follow(task)
        task.add_done_callback(self._report)
        return task

    def _report(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.sparing.error("work for a connection failed", exc_info=error)

    def follow(self, future: asyncio.Future[Any]) -> None:
        """Count `future` among what is under way until it is done."""
        self._under_way.add(future)
        self._still.clear()
        future.add_done_callback(self._ended)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._under_way.discard(future)
        self.look()

    def look(self) -> None:
        """Note whether anything is left; called whenever something has ended."""
        if not self._under_way and not self.held:
            self._still.set()

    def arrived(self, connection: WireConnection) -> None:
        """A connection stands."""
        self.coming.discard(connection)
        self.connections.add(connection)
        self._still.clear()

    def left(self, connection: WireConnection) -> None:
        """A connection is over, or never came to stand."""
        self.coming.discard(connection)
        self.connections.discard(connection)
        self.look()

    async def still(self) -> None:
        """Wait until no connection is left and no request runs."""
        await self._still.wait()

    def flush_soon(self, connection: WireConnection) -> None:
        """Have a connection hand over what it has to say when this turn of the loop is over."""
        if not self._unsaid:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsaid.append(connection)

    def _flush(self) -> None:
        unsaid, self._unsaid = self._unsaid, []
        for connection in unsaid:
            try:
                connection.flush()
            except Exception as error:  # what the others have to say is not lost with it
                self.broken(connection, error)

    def broken(self, connection: WireConnection, error: Exception) -> None:
        """A bug that is no request's: the connection is cut."""
        self.sparing.error("a connection failed", exc_info=error)
        connection.abort()

    def end(self) -> None:
        """Cut every connection and drop every request, now."""
        for future in list(self._under_way):
            future.cancel()
        for connection in list(self.connections):
            connection.abort()


@dataclass(slots=True)
class _Script:
    """A RUN under way."""

    message: Message
    name: str
    beside: bool = False
    """Whether it was let in where there was no room."""
    asked: bool = False
    """Whether the node has been asked yet; before that, cancelling is not asking."""
    cancelled: bool = False


class WireConnection(asyncio.Protocol):
    """One peer, from its first byte to its last."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._talk = Conversation()
        self._scripts: dict[int, _Script] = {}
        self._out: list[bytes] = []
        self._written = 0
        self._choked = False
        self._finishing = False
        self._goodbye_over = False
        self._gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._sign_in_by = 0.0
        """On the loop's clock; for a peer that nobody has signed in for."""
        self._greeting: asyncio.TimerHandle | None = None
        self._frame: asyncio.TimerHandle | None = None
        """Ends a frame that does not come whole in time."""
        self._minor = 0
        self._token: str | None = None
        self._own_session = False
        self._batch: list[_Script] = []
        self._keys: dict[Place, spaces.Asked] = {}
        self._asking: set[asyncio.Future[Any]] = set()
        """KVs that the node has been asked."""
        self._starting: asyncio.Future[Caller] | None = None
        self._decoding = False
        self._put_off = False
        """Whether a script is judged later, and what follows it after that."""
        self._refusing = False
        """Whether a script was judged, and there is no room: what came with it is refused too."""
        self._advancing = False
        """What is said now leaves when all that was read has been acted on."""
        self._reading = True
        self._address = "unknown"
        wire.made += 1
        wire.coming.add(self)
        self._number = wire.made

    # --- what the loop calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there; it has `limits.GREETING_SECONDS` to say HELLO."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=limits.CONNECTION_BUFFER_BYTES)
        read_at_most(self._transport, HELLO_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self._wire.arrived(self)
        if self._wire.draining:
            self._break_off(self._wire.leaving())
        else:
            self._sign_in_by = self._loop.time() + limits.GREETING_SECONDS
            self._await_sign_in()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        if self._finishing:
            return
        try:
            self._talk.receive(data)
            self._advance()
        except Exception as error:
            self._wire.broken(self, error)

    def eof_received(self) -> bool:
        """The peer ended its side without BYE: it is gone, and what runs for it ends."""
        if not self._finishing:
            self._abandon()
            self._finish()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over, whoever ended it."""
        self._gone = True
        self._stop_timers()
        self._abandon()
        if self._own_session and self._token is not None:
            self._sign_out(self._token)
        self._wire.left(self)

    def pause_writing(self) -> None:
        """Answers pile up: read no more, and look whether the peer takes any."""
        self._choked = True
        self._steer()
        if not self._finishing:
            self._stop_timer()
            self._watch_taking(self._taken())

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._choked = False
        if self._finishing:
            return
        self._stop_timer()
        try:
            self._advance()
        except Exception as error:
            self._wire.broken(self, error)

    # --- reading ---------------------------------------------------------------------------------

    def _advance(self, message: Message | None = None) -> None:
        """Act on every whole message that may be acted on now.

        :param message: one that has been decoded already
        """
        self._advancing = True
        try:
            self._act_on_all(message)
        finally:
            self._advancing = False
        self.flush()

    def _act_on_all(self, message: Message | None) -> None:
        try:
            if message is not None:
                self._act(message)
            while not (self._choked or self._decoding or self._put_off):
                if self._talk.ahead > LONG:
                    self._decoding = True
                    self._wire.spawn(self._decode())
                elif (message := self._talk.next()) is not None:
                    self._act(message)
                else:
                    break
        except Refusal as refusal:
            self._break_off(refusal)
        if self._batch:
            assert self._token is not None, "a script was begun for nobody"
            batch, self._batch = self._batch, []
            self._run(batch, self._token)
        if self._keys:
            self._ask_keys()
        self._refusing = False
        self._steer()
        self._await_frame()
        if self._goodbye_over:
            self._end_if_done()

    async def _decode(self) -> None:
        """A long frame, in turns with everybody else's work. What follows it waits."""
        try:
            message = await self._wire.long_work.run(self._talk.next)
        except Refusal as refusal:
            if not (self._gone or self._finishing):
                self._break_off(refusal)
        except Exception:
            if not (self._gone or self._finishing):
                self._break_off(self._failed(f"w{self._number}"))
        else:
            self._decoding = False
            if not (self._gone or self._finishing):
                self._advance(message)
        finally:
            self._decoding = False

    def _act(self, message: Message) -> None:
        kind = message.kind
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        if kind is Kind.KV:
            self._begin_key(message)
        elif kind is Kind.RUN:
            self._begin(message)
        elif kind is Kind.PING:
            self._send(Kind.PONG, message.id)
        elif kind is Kind.CANCEL:
            self._cancel(message.id)
        elif kind is Kind.AUTH:
            self._stop_greeting()  # how long it takes now is the node's affair
            self._wire.spawn(self._sign_in_again(message))
        elif kind is Kind.HELLO:
            self._stop_greeting()
            self._wire.spawn(self._greet(message))
        elif kind is Kind.BYE:
            self._end_if_done()

    def _steer(self) -> None:
        """Read from the peer or don't. While it signs in, what follows waits in its own buffers."""
        busy = (
            self._choked or self._decoding or self._put_off or self._talk.state is State.SIGNING_IN
        )
        wanted = self._finishing or not busy
        if wanted is self._reading or self._gone or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- signing in ------------------------------------------------------------------------------

    async def _greet(self, message: Message) -> None:
        try:
            if self._wire.draining:
                raise self._wire.leaving()
            self._minor, credential = bodies.read_hello(message.body)
            caller = await self._sign_in(credential)
        except Refusal as refusal:
            self._refuse(refusal, message.id)
        except Exception:
            self._refuse(self._failed(f"w{self._number}"), message.id)
        else:
            self._welcome(message.id, caller)

    async def _sign_in_again(self, message: Message) -> None:
        if self._starting is not None:
            # What came before is being started by the session that this may end.
            await asyncio.wait([self._starting])
        if self._asking:
            await asyncio.wait(self._asking)
        try:
            caller = await self._sign_in(bodies.read_auth(message.body))
        except Refusal as refusal:
            self._send(Kind.ERROR, message.id, bodies.error(refusal, self._name(message.id)))
        except Exception:
            failed = self._failed(self._name(message.id))
            self._send(Kind.ERROR, message.id, bodies.error(failed, self._name(message.id)))
        else:
            if caller is None and self._talk.known:  # signed out: it may sign in anew
                self._sign_in_by = self._loop.time() + limits.GREETING_SECONDS
            self._welcome(message.id, caller)
            return
        if not self._talk.known:
            self._await_sign_in()
        self._advance()

    async def _sign_in(self, credential: bodies.Credential | None) -> Caller | None:
        """Take a credential in place of the one before it, which is kept when this is refused."""
        gate = self._wire.gate
        token, own, caller = None, False, None
        if credential is not None and credential.token is not None:
            token = credential.token
            found = gate.caller(token, self._address)
            caller = found if isinstance(found, Caller) else await found
        elif credential is not None and credential.user is not None:
            session = await gate.sign_in(credential.user, credential.password or "", self._address)
            token, own, caller = session.token, True, session.caller
        if self._gone:
            if own and token is not None:
                self._sign_out(token)
            return None
        if self._own_session and self._token is not None:
            self._sign_out(self._token)
        self._token, self._own_session = token, own
        return caller

    def _sign_out(self, token: str) -> None:
        self._wire.spawn(self._wire.gate.sign_out(token))

    def _welcome(self, id: int, caller: Caller | None) -> None:
        status = self._wire.gate.status()
        greeted = self._talk.welcomed
        self._talk.known = caller is not None
        read_at_most(self._transport, READ_BYTES if caller is not None else HELLO_BYTES)
        if caller is None:
            self._await_sign_in()
        self._send(Kind.WELCOME, id, bodies.welcome(self._minor, status, caller))
        if self._wire.draining and not greeted:
            self.say_goodbye()
        self._advance()

    def _await_sign_in(self) -> None:
        """Until somebody has signed in, the peer has no more than its time, however it is spent."""
        if not (self._gone or self._finishing):
            self._greeting = self._loop.call_at(self._sign_in_by, self._not_signed_in)

    def _not_signed_in(self) -> None:
        self._greeting = None
        seconds = limits.GREETING_SECONDS
        what = "nobody signed in" if self._talk.welcomed else "no HELLO"
        self._break_off(BadRequest(f"{what} within {seconds} seconds", seconds=seconds))

    def _await_frame(self) -> None:
        """A frame that has begun to come has a time to be whole, for as long as it is read."""
        awaited = self._talk.awaited
        if not awaited or self._frame is not None or self._finishing or self._gone:
            return
        seconds = limits.BODY_SECONDS + awaited / limits.BODY_SECONDS_BYTES
        self._frame = self._loop.call_later(seconds, self._frame_is_late)

    def _frame_is_late(self) -> None:
        self._frame = None
        if not self._reading:
            self._await_frame()  # it is the node that did not read on
        else:
            self._break_off(RequestTimeout("a frame did not arrive in time"))

    # --- running scripts -------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        wire, id = self._wire, message.id
        name = self._name(id)
        refusal: Refusal
        if wire.draining:
            self._send(Kind.ERROR, id, bodies.error(wire.leaving(), name))
        elif message.refusal is not None:
            self._send(Kind.ERROR, id, bodies.error(message.refusal, name))
        elif self._token is None:
            refusal = SignInRefused("a script needs a signed-in user")
            self._send(Kind.ERROR, id, bodies.error(refusal, name))
        elif not wire.full:
            self._count(_Script(message, name))
        elif wire.lets_in(message.body):
            self._count(_Script(message, name, beside=True))
        elif not self._refusing:
            self._put_off = True
            wire.later.judge(partial(self._judge, message))
        else:
            refusal = Busy("the node is running as many statements as it will")
            self._send(Kind.ERROR, id, bodies.error(refusal, name))

    def _count(self, script: _Script) -> None:
        """It runs with the others of this read."""
        self._wire.begun += 1
        self._wire.beside += script.beside
        self._scripts[script.message.id] = script
        self._batch.append(script)

    def _judge(self, message: Message) -> None:
        """Begin a script that was put off, or refuse it."""
        self._put_off = False
        if not (self._gone or self._finishing):
            self._refusing = self._wire.full
            self._advance(message)

    def _run(self, batch: list[_Script], token: str) -> None:
        """Start the scripts of one read. Who the peer is, is asked once for all of them, and anew
        for each read: a session can end at any time.

        :param token: the peer's at the time of the read; an AUTH behind them may change it
        """
        try:
            asked = self._wire.gate.caller(token, self._address)
        except Refusal as refusal:
            for script in batch:
                self._answer(script, Kind.ERROR, bodies.error(refusal, script.name))
            return
        if isinstance(asked, Caller):
            self._start_all(batch, asked)
        elif asked.done():
            self._run_as(batch, asked)
        else:
            self._starting = asked
            self._wire.follow(asked)
            asked.add_done_callback(partial(self._run_as, batch))

    def _run_as(self, batch: list[_Script], asked: asyncio.Future[Caller]) -> None:
        try:
            caller = asked.result()
        except asyncio.CancelledError:  # the surface closes
            for script in batch:
                self._answer(script, Kind.ERROR, bodies.error(self._wire.leaving(), script.name))
        except Refusal as refusal:
            for script in batch:
                self._answer(script, Kind.ERROR, bodies.error(refusal, script.name))
        except Exception:
            for script in batch:
                self._answer(
                    script, Kind.ERROR, bodies.error(self._failed(script.name), script.name)
                )
        else:
            self._start_all(batch, caller)

    def _start_all(self, batch: list[_Script], caller: Caller) -> None:
        # Those of one read begin at once as long as they are over quickly; the others queue.
        until = self._loop.time() + TOGETHER_SECONDS
        for script in batch:
            self._start(script, caller, now=self._loop.time() < until)

    def _start(self, script: _Script, caller: Caller, now: bool) -> None:
        try:
            if script.cancelled:
                raise Cancelled("the request was cancelled before it began")
            request = bodies.read_run(script.message.body, caller, script.name)
            found = self._wire.gate.run(request, now)
        except Refusal as refusal:
            self._answer(script, Kind.ERROR, bodies.error(refusal, script.name))
        except Exception:
            self._answer(script, Kind.ERROR, bodies.error(self._failed(script.name), script.name))
        else:
            script.asked = True
            if isinstance(found, ScriptAnswer):
                self._found(script, found)
            else:
                self._wire.follow(found)
                found.add_done_callback(partial(self._came, script))

    def _came(self, script: _Script, future: asyncio.Future[ScriptAnswer]) -> None:
        """A promised answer is there."""
        name = script.name
        try:
            found = future.result()
        except Refusal as refusal:
            body = bodies.error(refusal, name)
        except asyncio.CancelledError:
            body = bodies.error(self._wire.leaving(), name)
        except Exception:
            body = bodies.error(self._failed(name), name)
        else:
            self._found(script, found)
            return
        self._answer(script, Kind.ERROR, body)

    def _found(self, script: _Script, found: ScriptAnswer) -> None:
        large = is_large([result.value for result in found.results], SMALL, SMALL_STRING)
        if found.refusal is None:
            kind, body = Kind.ANSWER, bodies.answer(found)
        else:
            kind, body = Kind.ERROR, bodies.error(found.refusal, script.name, found.results)
        if large:
            self._wire.spawn(self._answer_long(script, kind, body))
        else:
            self._answer(script, kind, body)

    async def _answer_long(self, script: _Script, kind: Kind, body: dict[str, Any]) -> None:
        """An answer of many rows, encoded in turns with everybody else's work."""
        name = script.name
        try:
            encode = partial(self._encode, kind, script.message.id, body)
            data = await self._wire.long_work.run(encode)
        except Refusal as refusal:
            self._answer(script, Kind.ERROR, bodies.error(refusal, name))
        except asyncio.CancelledError:  # the surface closes
            self._answer(script, Kind.ERROR, bodies.error(self._wire.leaving(), name))
            raise
        except Exception:
            self._answer(script, Kind.ERROR, bodies.error(self._failed(name), name))
        else:
            self._answer(script, kind, body, data)
            del data
        held = [result["value"] for result in body.pop("results")]
        await self._wire.long_work.run(partial(let_go, held))

    def _encode(self, kind: Kind, id: int, body: dict[str, Any], tick: Tick) -> bytes:
        def tick_for_somebody() -> None:
            if self._gone:
                raise Cancelled("nobody is there to read the answer")
            tick()

        return encode_in_steps(kind, id, body, tick_for_somebody)

    def _answer(
        self, script: _Script, kind: Kind, body: dict[str, Any], data: bytes | None = None
    ) -> None:
        """:param data: the message, when it is encoded already"""
        self._wire.begun -= 1
        self._wire.beside -= script.beside
        del self._scripts[script.message.id]
        self._send(kind, script.message.id, body, data)
        self._end_if_done()

    # --- keys of the cache -----------------------------------------------------------------------

    def _begin_key(self, message: Message) -> None:
        id = message.id
        try:
            if self._wire.draining:
                raise self._wire.leaving()
            if message.refusal is not None:
                raise message.refusal
            if self._token is None:
                raise SignInRefused("a KV needs a signed-in user")
            place, operation = spaces.read_keys(message.body)
        except Refusal as refusal:
            self._send(Kind.ERROR, id, bodies.error(refusal, self._name(id)))
        else:
            self._keys.setdefault(place, []).append((id, operation))

    def _ask_keys(self) -> None:
        """Ask for all that one read has brought. What goes to one space in one go counts as one
        statement running."""
        assert self._token is not None, "a KV was begun for nobody"
        read, self._keys = self._keys, {}
        wire, who = self._wire, AuthenticateToken(self._token, "wire", self._address)
        parts = list(spaces.in_order(read))
        for place, asked in parts:
            try:
                if wire.running >= limits.RUNNING:
                    raise Busy("the node is running as many statements as it will")
                operations = tuple(operation for _, operation in asked)
                alone = len(parts) == 1
                found = asyncio.ensure_future(wire.gate.keys(who, place, operations, alone))
            except Refusal as refusal:
                self._answer_keys(asked, [refusal] * len(asked))
                continue
            wire.begun += 1
            if found.done():
                self._found_keys(asked, found)
                continue
            self._asking.add(found)
            wire.follow(found)
            found.add_done_callback(partial(self._found_keys, asked))

    def _found_keys(
        self, asked: spaces.Asked, future: asyncio.Future[tuple[KeyAnswer, ...]]
    ) -> None:
        self._wire.begun -= 1
        self._asking.discard(future)
        answers: Sequence[KeyAnswer]
        try:
            answers = future.result()
        except Refusal as refusal:
            answers = [refusal] * len(asked)
        except asyncio.CancelledError:
            answers = [self._wire.leaving()] * len(asked)
        except Exception:
            answers = [self._failed(self._name(asked[0][0]))] * len(asked)
        self._answer_keys(asked, answers)
        self._end_if_done()

    def _answer_keys(self, asked: spaces.Asked, answers: Sequence[KeyAnswer]) -> None:
        for (id, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Refusal):
                self._send(Kind.ERROR, id, bodies.error(answer, self._name(id)))
            else:
                self._send(Kind.VALUE, id, answer if type(answer) is dict else None)

    def _cancel(self, id: int) -> None:
        script = self._scripts.get(id)
        if script is None or script.cancelled:
            return  # its answer may have crossed the CANCEL
        script.cancelled = True
        if script.asked:
            self._wire.gate.cancel(script.name)

    def _abandon(self) -> None:
        """Nobody will read the answers: end what runs."""
        for id in list(self._scripts):
            self._cancel(id)

    def _name(self, id: int) -> str:
        return f"w{self._number}-{id}"

    def _failed(self, name: str) -> Failed:
        """The answer to a bug, whose trace goes to the log: of those that nobody signed in for, at
        most one a second does. Called while it is being handled."""
        said = _log.error if self._token is not None else self._wire.sparing.error
        said("a request failed", request=name, exc_info=True)
        return Failed("the node failed at this request; its log has the trace", request=name)

    # --- writing ---------------------------------------------------------------------------------

    def _send(
        self, kind: Kind, id: int, body: dict[str, Any] | None = None, data: bytes | None = None
    ) -> None:
        """Say something; it leaves at the end of this turn of the loop, with all said in it."""
        if self._gone or self._talk.state is State.CLOSED:
            return
        try:
            if data is None:
                data = self._talk.send(kind, id, body)
            else:
                self._talk.sent(kind, id)
        except AnswerTooLarge as refusal:
            data = self._talk.send(Kind.ERROR, id, bodies.error(refusal, self._name(id)))
        except (TypeError, ValueError, OverflowError):
            failed = self._failed(self._name(id))
            data = self._talk.send(Kind.ERROR, id, bodies.error(failed, self._name(id)))
        if not (self._out or self._advancing):
            self._wire.flush_soon(self)
        self._out.append(data)

    def flush(self) -> None:
        """Hand over what there is to say."""
        if not self._out or self._gone:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._written += len(data)
        self._transport.write(data)

    def _taken(self) -> int:
        """Bytes that the peer's side has taken so far."""
        return self._written - self._transport.get_write_buffer_size()

    def _watch_taking(self, taken_before: int) -> None:
        self._timer = self._loop.call_later(limits.WRITE_SECONDS, self._judge_taking, taken_before)

    def _judge_taking(self, taken_before: int) -> None:
        taken = self._taken()
        if taken == taken_before:
            self._transport.abort()
        else:
            self._watch_taking(taken)

    # --- ending ----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing is under way for the peer."""
        signing_in = self._talk.state is State.SIGNING_IN
        return not (self._talk.open or self._decoding or signing_in)

    def say_goodbye(self) -> None:
        """The node begins nothing new: the peer is told, and the connection ends once the peer has
        said BYE too (or has had its time) and what is under way has been answered."""
        if self._talk.state is State.AWAITING_HELLO:
            self._break_off(self._wire.leaving())
        elif self._talk.welcomed:
            self._send(Kind.BYE, 0)
            self._loop.call_later(GOODBYE_SECONDS, self._waited_for_goodbye)

    def _waited_for_goodbye(self) -> None:
        self._goodbye_over = True
        self._end_if_done()

    def abort(self) -> None:
        """End now."""
        self._transport.abort()

    def _end_if_done(self) -> None:
        """Close when no more requests come and nothing is open any more."""
        if self._finishing or self._gone:
            return
        if self._talk.state is State.CLOSED or (self._goodbye_over and self.idle):
            self._finish()

    def _refuse(self, refusal: Refusal, id: int = 0) -> None:
        self._send(Kind.REFUSED, id, {"error": refusal.answer()})
        self._finish()

    def _break_off(self, refusal: Refusal) -> None:
        """Say why, to a peer that does not speak the protocol, and close."""
        if self._talk.welcomed:
            self._send(Kind.ERROR, 0, bodies.error(refusal, None))
        else:
            self._send(Kind.REFUSED, 0, {"error": refusal.answer()})
        self._abandon()
        self._finish()

    def _finish(self) -> None:
        """Let the last word be read, then close."""
        self._talk.state = State.CLOSED
        self._finishing = True
        self._stop_timers()
        if self._gone or self._transport.is_closing():
            return
        self.flush()
        if half_close(self._transport):
            self._steer()
        else:
            self._transport.close()
        self._linger()

    def _linger(self) -> None:
        waiting = self._transport.get_write_buffer_size() > 0
        seconds = limits.WRITE_SECONDS if waiting else LINGER_SECONDS
        self._timer = self._loop.call_later(seconds, self._judge_linger, self._taken(), waiting)

    def _judge_linger(self, taken_before: int, waited: bool) -> None:
        if waited and self._taken() > taken_before:
            self._linger()
        else:
            self._transport.abort()

    def _stop_greeting(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
            self._greeting = None

    def _stop_timers(self) -> None:
        self._stop_timer()
        self._stop_greeting()
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
