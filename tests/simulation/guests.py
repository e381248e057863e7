"""Clients with a session token or a password that gets revoked: nothing they send later may commit.

A guest is authenticated and sends its work in the same iteration of the loop, as a surface does.
The client that revokes is answered once the revocation is durable. The invariant: no work that the
revoked credential let in commits after that answer.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from actors.messages.request import Sender
from actors.runtime import ask, call_now
from actors.sessions import token_digest
from protocol.errors import Refusal
from protocol.messages import PublishMessages
from protocol.requests import AuthenticatePassword, AuthenticateToken, Caller, SignIn, SignOut
from protocol.values import NONE
from tests.simulation.scripts import (
    AGAIN,
    ClientScript,
    Draft,
    ExpectedRefusal,
    ModelStatement,
    ScriptTransaction,
)

if TYPE_CHECKING:
    from tests.simulation.world import NodeLife

NAMES: Final = ("gil", "ida")
ADDRESS: Final = "192.0.2.9:5000"
ENDED: Final = ("SessionEnded", "NotAllowed", "UnknownOutcome")
"""Errors that a guest may get: it may be cut off while its answer waits for the disk."""


class Guests:
    def __init__(self, life: NodeLife, chance: random.Random) -> None:
        self._life = life
        self._chance = chance
        self._passwords: dict[str, str] = {}
        """Known valid passwords, by guest."""
        self._tokens: dict[str, str] = {}
        """Tokens of the guests that have signed in."""

    async def prepare(self) -> None:
        for name in NAMES:
            await self._life.send(_defined(name))
            await self._change_password(name)

    # --- what they do -----------------------------------------------------------------------------

    async def live(self) -> None:
        """Run one guest, until it has sent enough."""
        chance = self._chance
        for _ in range(2 * self._life.world.shape.scripts):
            await asyncio.sleep(chance.choice((0, 0, 0.0005, 0.003)))
            name = chance.choice(NAMES)
            if chance.random() < 0.4:
                self._life.guesting.append(asyncio.ensure_future(self.cut(name)))
                await asyncio.sleep(chance.choice((0, 0, 0.0005, 0.001)))
            try:
                caller, let_in_by = await self._let_in(name)
            except Refusal:
                continue
            for _ in range(chance.choice((1, 1, 8))):
                if chance.random() < 0.3:
                    self._publish(caller, let_in_by)
                else:
                    script = self._life.author.script()
                    if script.roles is None:
                        self._life.send_soon(script, caller, let_in_by)

    async def _let_in(self, name: str) -> tuple[Caller, str]:
        """Authenticate a guest. Return its caller and credential, in the same iteration of the
        loop."""
        node, token, password = self._life.node, self._tokens.get(name), self._passwords.get(name)
        if token is not None and self._chance.random() < 0.7:
            known = node.caller(token_digest(token), "wire", ADDRESS)
            if known is not None:
                return known, token
            asked: Any = AuthenticateToken(token, "wire", ADDRESS)
            by = token
        elif password is None:
            raise Refusal("its password is being changed")
        elif self._chance.random() < 0.4:
            session = await ask(node.sessions, SignIn(name, password, "wire", ADDRESS))
            self._life.world.history.let_in(session.token, password)
            self._tokens[name] = session.token
            return session.caller, session.token
        else:
            asked, by = AuthenticatePassword(name, password, "wire", ADDRESS), password
        found = call_now(node.sessions, asked)
        return (await found if isinstance(found, asyncio.Future) else found), by

    def _publish(self, caller: Caller, let_in_by: str) -> None:
        """Publish a message as the wire protocol does, without a script."""
        name = self._life.world.new_name("w")
        self._life.world.history.guests[name] = let_in_by
        self._life.node.messages.ask(
            Sender(name, caller, ("a", "b")), PublishMessages(AGAIN, [name]), _unheard
        )

    # --- what is done to them ---------------------------------------------------------------------

    async def cut(self, name: str | None = None) -> None:
        """Change a guest's password, or sign it out."""
        name = name or self._chance.choice(NAMES)
        token = self._tokens.get(name)
        if token is None or self._chance.random() < 0.6:
            await self._change_password(name)
            return
        try:
            await ask(self._life.node.sessions, SignOut(token))
        except Refusal:
            return
        self._tokens.pop(name, None)
        self._is_cut(token)

    async def _change_password(self, name: str) -> None:
        life, history = self._life, self._life.world.history
        new = f"password {len(history.passwords)} of {name}"
        old = self._passwords.pop(name, None)
        history.passwords.append(new)
        step = ModelStatement(f"ALTER USER {name} SET PASSWORD '{new}'", partial(_alters, name))
        if not await life.send(ClientScript((ScriptTransaction((step,)),), {})):
            return  # the password may be the old or the new one
        self._tokens.pop(name, None)
        self._passwords[name] = new
        if old is not None:
            self._is_cut(old)

    def _is_cut(self, let_in_by: str) -> None:
        if not self._life.over:
            self._life.world.history.is_cut(let_in_by, self._life.node.committer.committed)


def _defined(name: str) -> ClientScript:
    def run(draft: Draft) -> Any:
        if name not in draft.users:
            draft.users.add(name)
            draft.wrote = True
        return NONE

    text = f"DEFINE USER IF NOT EXISTS {name} ROLE owner PASSWORD 'the first password'"
    return ClientScript((ScriptTransaction((ModelStatement(text, run),)),), {})


def _unheard(_answer: Any, _refusal: Refusal | None) -> None:
    """Ignore the outcome of a message."""


def _alters(name: str, draft: Draft) -> Any:
    if name not in draft.users:
        raise ExpectedRefusal("Unknown")  # a full disk has taken its declaration back
    draft.perhaps = True
    return NONE
