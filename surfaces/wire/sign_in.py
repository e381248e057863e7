"""Sign-in on a wire connection: HELLO, AUTH, and their time limit.

Until a user has signed in, a peer has `limits.GREETING_SECONDS` in all: to send HELLO, and AUTH if
HELLO had no credential. The time that the node takes to check a credential does not count.
"""

from __future__ import annotations

import asyncio

from actors.sessions import token_digest
from protocol import limits
from protocol.errors import BadRequest, Refusal
from protocol.frames import WireMessage
from protocol.requests import Caller
from surfaces.wire import bodies
from surfaces.wire.keys import WireKeys
from surfaces.wire.link import WireLink
from surfaces.wire.messages import WireMessages
from surfaces.wire.scripts import WireScripts
from surfaces.wire.vaults import WireVaults
from surfaces.wire.watches import WireWatches


class WireSignIn:
    """:param link: the connection
    :param scripts, messages, keys, watches, vaults: its parts, whose open requests belong to the
        present caller
    """

    def __init__(
        self,
        link: WireLink,
        scripts: WireScripts,
        messages: WireMessages,
        keys: WireKeys,
        watches: WireWatches,
        vaults: WireVaults,
    ) -> None:
        self._link = link
        self._scripts = scripts
        self._messages = messages
        self._keys = keys
        self._watches = watches
        self._vaults = vaults
        self._loop = asyncio.get_running_loop()
        self._own_session = False
        """True if the session was opened here, and ends with the connection."""
        self._by = 0.0
        """Deadline of the sign-in, on the loop's clock."""
        self.timer: asyncio.TimerHandle | None = None

    # --- the peer's time ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the time limit: the peer has connected, or signed out."""
        self._by = self._loop.time() + limits.GREETING_SECONDS
        self._await()

    def stop(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _await(self) -> None:
        if not self._link.over:
            self.timer = self._loop.call_at(self._by, self._late)

    def _late(self) -> None:
        self.timer = None
        seconds = limits.GREETING_SECONDS
        what = "no sign-in" if self._link.talk.welcomed else "no HELLO"
        self._link.break_off(BadRequest(f"{what} within {seconds} seconds", seconds=seconds))

    # --- HELLO and AUTH -------------------------------------------------------------------------

    def greet(self, message: WireMessage) -> None:
        """Answer HELLO: WELCOME, or REFUSED and the end."""
        self.stop()
        self._link.wire.background.spawn(self._greet(message))

    def change(self, message: WireMessage) -> None:
        """Answer AUTH: WELCOME, or ERROR without any change."""
        self.stop()
        self._link.wire.background.spawn(self._change(message))

    def end(self) -> None:
        """End the session of a closed connection, if it was opened here."""
        self.stop()
        if self._own_session and self._link.token is not None:
            self._sign_out(self._link.token)

    async def _greet(self, message: WireMessage) -> None:
        link = self._link
        try:
            if link.wire.admission.draining:
                raise link.wire.admission.leaving()
            link.minor, credential = bodies.read_hello(message.body)
            caller = await self._sign_in(credential)
        except Refusal as refusal:
            link.turn_away(message.id, refusal)
        except Exception:
            link.turn_away(message.id, link.failed(link.name(message.id)))
        else:
            self._welcome(message.id, caller)

    async def _change(self, message: WireMessage) -> None:
        link, id = self._link, message.id
        for begun in (self._scripts, self._watches, self._vaults):
            starting = begun.starting
            if starting is not None:
                # Earlier requests are being started in the session that this may end.
                await asyncio.wait([starting])
        await self._keys.done()
        await self._messages.done()
        known = link.talk.known
        try:
            caller = await self._sign_in(bodies.read_auth(message.body))
        except Refusal as refusal:
            link.refuse(id, refusal)
        except Exception:
            link.refuse(id, link.failed(link.name(id)))
        else:
            if caller is None and known:  # signed out: it may sign in again
                self._by = self._loop.time() + limits.GREETING_SECONDS
            self._welcome(id, caller)
            return
        if not known:
            self._await()
        link.advance()

    async def _sign_in(self, credential: bodies.Credential | None) -> Caller | None:
        """Replace the present credential. The former one is kept if the new one is refused."""
        link, gate = self._link, self._link.wire.gate
        token, own, caller = None, False, None
        if credential is not None and credential.token is not None:
            token = credential.token
            found = gate.caller(token, token_digest(token), link.address)
            caller = found if isinstance(found, Caller) else await found
        elif credential is not None and credential.user is not None:
            session = await gate.sign_in(
                credential.user, credential.password or "", link.address, lambda: link.gone
            )
            token, own, caller = session.token, True, session.caller
        if link.gone:
            if own and token is not None:
                self._sign_out(token)
            return None
        if self._own_session and link.token is not None:
            self._sign_out(link.token)
        link.token, self._own_session = token, own
        link.who = b"" if token is None else token_digest(token)
        return caller

    def _sign_out(self, token: str) -> None:
        self._link.wire.background.spawn(self._link.wire.gate.sign_out(token))

    def _welcome(self, id: int, caller: Caller | None) -> None:
        gate = self._link.wire.gate
        body = bodies.welcome(self._link.minor, gate.status(), gate.not_writable(), caller)
        if caller is None:
            self._await()
        self._link.welcome(id, None if caller is None else caller.user, body)
