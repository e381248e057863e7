"""RUN requests (scripts) of one wire connection.

All of one read are started together. Each is counted by `Admission` from its frame to its response,
and answered exactly once. A script whose client has gone is cancelled.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from protocol import limits
from protocol.errors import Cancelled, Refusal, SignInRefused, after
from protocol.frames import MessageKind, WireMessage, encode_in_steps
from protocol.requests import Caller, HeldFile, ScriptAnswer
from protocol.values import Tick, is_large, let_go
from surfaces.wire import bodies
from surfaces.wire.backups import BackupStreams
from surfaces.wire.link import PUT_OFF, WireLink, tick_for

SMALL: Final = 2_048
SMALL_STRING: Final = 8_192
"""Number of parts of a response, and characters or bytes of each, up to which it is encoded at
once. That takes a fifth of a millisecond for a hundred messages of a topic, and a few milliseconds
for a response full of long strings."""

TOGETHER_SECONDS: Final = limits.SLICE_US / 1_000_000
"""Seconds during which scripts of one read are started one right after the other."""


@dataclass(slots=True)
class _Script:
    """An open RUN request."""

    message: WireMessage
    name: str
    user: str
    beside: bool = False
    """True if it was admitted beside the ceiling."""
    asked: bool = False
    """True once it is submitted to the node. Before that, cancelling needs no call."""
    cancelled: bool = False
    committed: int = 0
    """Sequence of its newest durable commit, once it has ended; 0: none."""


class WireScripts:
    """:param link: the connection"""

    def __init__(self, link: WireLink) -> None:
        self._link = link
        self._time = asyncio.get_running_loop().time
        self._open: dict[int, _Script] = {}
        self._batch: list[_Script] = []
        self._refusing = False
        """True if one was judged and there was no slot: later scripts of the same read are refused
        too."""
        self.streams = BackupStreams(link)
        """Streamed backups under way."""
        self.starting: asyncio.Future[Caller] | None = None
        """Done when the caller of the newest scripts is known."""

    def receive(self, message: WireMessage) -> None:
        """Admit a RUN with the others of its read, defer or refuse it."""
        link, id = self._link, message.id
        wire = link.wire
        if wire.admission.draining:
            link.refuse(id, wire.admission.leaving())
        elif message.refusal is not None:
            link.refuse(id, message.refusal)
        elif link.token is None:
            link.refuse(id, SignInRefused("a script needs a signed-in user"))
        elif wire.admission.has_room(link.user):
            self._count(_Script(message, link.name(id), link.user))
        elif wire.admission.lets_in_beside and bodies.administers(message.body):
            self._count(_Script(message, link.name(id), link.user, beside=True))
        elif not self._refusing:
            link.hold(PUT_OFF)
            wire.admission.admit_later(partial(self._judge, message))
        else:
            link.refuse(id, wire.admission.busy())

    def _count(self, script: _Script) -> None:
        """Count a script, and add it to the batch of this read."""
        self._link.wire.admission.admit(script.user, beside=script.beside)
        self._open[script.message.id] = script
        self._batch.append(script)

    def _judge(self, message: WireMessage) -> None:
        """Start a deferred script, or refuse it."""
        if not self._link.over:
            self._refusing = not self._link.wire.admission.has_room(self._link.user)
            self._link.release(PUT_OFF)
            self._link.advance(message)

    def run(self) -> None:
        """Start the scripts of one read. The caller is looked up once for all of them, and again
        for each read, since a session can end at any time. A later AUTH does not affect them."""
        self._refusing = False
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        link = self._link
        assert link.token is not None, "a script was begun for nobody"
        try:
            asked = link.wire.gate.caller(link.token, link.who, link.address)
        except Refusal as refusal:
            self._refuse_all(batch, refusal)
            return
        if isinstance(asked, Caller):
            self._start_all(batch, asked)
        elif asked.done():
            self._run_as(batch, asked)
        else:
            self.starting = asked
            self._link.wire.background.follow(asked, partial(self._run_as, batch))

    def _run_as(self, batch: list[_Script], asked: asyncio.Future[Caller]) -> None:
        try:
            caller = asked.result()
        except asyncio.CancelledError:  # the surface closes
            self._refuse_all(batch, self._link.wire.admission.leaving())
        except Refusal as refusal:
            self._refuse_all(batch, refusal)
        except Exception:
            for script in batch:
                self._refuse(script, self._link.failed(script.name))
        else:
            self._start_all(batch, caller)

    def _start_all(self, batch: list[_Script], caller: Caller) -> None:
        # Scripts of one read start at once while they are short; the remaining ones are queued.
        until = self._time() + TOGETHER_SECONDS
        for script in batch:
            self._start(script, caller, now=self._time() < until)

    def _start(self, script: _Script, caller: Caller, now: bool) -> None:
        try:
            if script.cancelled:
                raise Cancelled("the request was cancelled before it began")
            request = bodies.read_run(script.message.body, caller, script.name, self._link.minor)
            found = self._link.wire.gate.run(request, now)
        except Refusal as refusal:
            self._refuse(script, refusal)
        except Exception:
            self._refuse(script, self._link.failed(script.name))
        else:
            script.asked = True
            if isinstance(found, ScriptAnswer):
                self._found(script, found)
            else:
                self._link.wire.background.follow(found, partial(self._on_answer, script))

    def _on_answer(self, script: _Script, future: asyncio.Future[ScriptAnswer]) -> None:
        """Handle an awaited response."""
        try:
            found = future.result()
        except Refusal as refusal:
            self._refuse(script, refusal)
        except asyncio.CancelledError:
            self._refuse(script, self._link.wire.admission.leaving())
        except Exception:
            self._refuse(script, self._link.failed(script.name))
        else:
            self._found(script, found)

    def _found(self, script: _Script, found: ScriptAnswer) -> None:
        # A response of few bytes has few parts, and no long one.
        large = (found.size is None or found.size > SMALL) and is_large(
            [result.value for result in found.results], SMALL, SMALL_STRING
        )
        script.committed = found.committed
        minor = self._link.minor
        if found.refusal is None:
            kind, body = MessageKind.ANSWER, bodies.answer(found, minor)
        else:
            kind, body = (
                MessageKind.ERROR,
                bodies.error(found.refusal, script.name, found.results, minor),
            )
        if found.file is not None:
            self._link.wire.background.spawn(self._stream(script, found.file, body))
        elif large:
            self._link.wire.background.spawn(self._answer_long(script, kind, body))
        else:
            self._answer(script, kind, body)

    async def _stream(self, script: _Script, file: HeldFile, body: dict[str, Any]) -> None:
        """Stream a backup in parts, then send the response."""
        try:
            await self.streams.send(script.message.id, file, lambda: script.cancelled)
        except Refusal as refusal:
            self._refuse(script, refusal)
        except asyncio.CancelledError:  # the surface closes
            self._refuse(script, self._link.wire.admission.leaving())
            raise
        except Exception:
            self._refuse(script, self._link.failed(script.name))
        else:
            self._answer(script, MessageKind.ANSWER, body)
        finally:
            file.close()

    async def _answer_long(self, script: _Script, kind: MessageKind, body: dict[str, Any]) -> None:
        """Encode and send a response of many rows, in slices."""
        try:
            encode = partial(self._encode, kind, script.message.id, body)
            data = await self._link.wire.long_work.run(script.user, encode)
        except Refusal as refusal:
            self._refuse(script, refusal)
        except asyncio.CancelledError:  # the surface closes
            self._refuse(script, self._link.wire.admission.leaving())
            raise
        except Exception:
            self._refuse(script, self._link.failed(script.name))
        else:
            self._answer(script, kind, body, data)
            del data
        held = [result["value"] for result in body.pop("results")]
        await self._link.wire.long_work.run(script.user, partial(let_go, held))

    def _encode(self, kind: MessageKind, id: int, body: dict[str, Any], tick: Tick) -> bytes:
        return encode_in_steps(kind, id, body, partial(tick_for, self._link, tick))

    def _refuse_all(self, batch: list[_Script], refusal: Refusal) -> None:
        for script in batch:
            self._refuse(script, refusal)

    def _refuse(self, script: _Script, refusal: Refusal) -> None:
        told = after(refusal, script.committed)
        self._answer(script, MessageKind.ERROR, bodies.error(told, script.name))

    def _answer(
        self, script: _Script, kind: MessageKind, body: dict[str, Any], data: bytes | None = None
    ) -> None:
        """Send the response of a script.

        :param data: the encoded message, if it exists already
        """
        self._link.wire.admission.end(script.user, beside=script.beside)
        del self._open[script.message.id]
        self._link.send(kind, script.message.id, body, data, script.committed)
        self._link.end_if_done()

    def cancel(self, id: int) -> None:
        """Cancel a script; its response may have crossed the CANCEL."""
        script = self._open.get(id)
        if script is None or script.cancelled:
            return
        script.cancelled = True
        self.streams.wake_streams()
        if script.asked:
            self._link.wire.gate.cancel(script.name)

    def abandon(self) -> None:
        """Cancel every script: the responses will not be read."""
        for id in list(self._open):
            self.cancel(id)
