"""How a caller is let in: sign-in, tokens, and Basic on every request.

- A refused sign-in has one text and takes one time, whether the user exists or not; what it costs
  those that follow is told in `sign_in_throttle.py`. Nobody is locked out.
- A hash takes long and everything else goes on meanwhile. So a user is read again after it, in the
  turn of the loop in which the answer is made: one that was dropped or changed in between is let in
  by nobody's password.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from actors.commits import NODE, Committer
from actors.passwords import Asker, Passwords, check_password
from actors.roles import Roles
from actors.runtime import LoopActor, Runtime, handles
from actors.sessions import (
    Seen,
    Sessions,
    read_user,
    same_user,
    token_digest,
)
from actors.sign_in_throttle import SignInThrottle, Try, network
from actors.statements import Statements
from protocol import limits
from protocol.doors import Rng
from protocol.errors import Busy, Refusal, SessionEnded, SignInRefused
from protocol.requests import (
    AuthenticatePassword,
    AuthenticateToken,
    Caller,
    ChangePassword,
    Session,
    SignIn,
    SignOut,
    Surface,
    stays,
)
from protocol.values import instant
from storage import users
from storage.users import User

REFUSED: Final = "user and password do not match"
READINGS: Final = 4
"""How often a password is hashed for one sign-in, each time against the hash that took the place of
the one before it."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Said when the node begins to stop."""


Aside = Callable[[Surface, str], AbstractContextManager[None]]


class _Origin(Protocol):
    """Where something was asked."""

    @property
    def surface(self) -> Surface: ...

    @property
    def address(self) -> str: ...


class SessionsActor(LoopActor):
    """Answers who a credential stands for."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        committer: Committer,
        roles: Roles,
        passwords: Passwords,
        rng: Rng,
        statements: Statements,
        aside: Aside = lambda _surface, _address: nullcontext(),
    ) -> None:
        """:param aside: entered for as long as a sign-in waits for a hash or its answer"""
        super().__init__(runtime)
        self._sessions = sessions
        self._committer = committer
        self._roles = roles
        self._passwords = passwords
        self._statements = statements
        self._aside = aside
        self._throttle = SignInThrottle(runtime.clock, rng, self.after)

    @handles(SignIn)
    async def sign_in(self, message: SignIn) -> Session:
        """A token for a password."""
        with self._aside(message.surface, message.address):
            seen = await self._verified(message, message.user, message.password, message.is_gone)
        # Nothing is awaited between that reading and this.
        user, surface, address = seen.known, message.surface, message.address
        token, session = self._sessions.begin(user, surface, address, seen.users_version)
        self._statements.came("sign in", user.name, surface, address)
        expires = instant(self.runtime.clock.wall_us()) + timedelta(seconds=limits.SESSION_SECONDS)
        return Session(token, expires, limits.SESSION_IDLE_SECONDS, session.caller)

    @handles(SignOut)
    def sign_out(self, message: SignOut) -> None:
        """End a session."""
        caller = self._sessions.end(message.token)
        self._statements.came("sign out", caller.user, caller.surface, caller.address)

    @handles(AuthenticateToken)
    def authenticate_token(self, message: AuthenticateToken) -> Caller | Awaitable[Caller]:
        """Who a token stands for, as stored now."""
        version, digest = self._committer.ledger.users_version, token_digest(message.token)
        known = self._sessions.unchanged(digest, message.surface, message.address, version)
        return known or self._checked_again(message)

    async def _checked_again(self, message: AuthenticateToken) -> Caller:
        """Declarations have changed since this session was last used: perhaps its user."""
        name = self._sessions.use(message.token).caller.user
        seen = await self._settled(name)
        session = self._sessions.use(message.token)  # it may have ended meanwhile
        self._sessions.check(session, seen.user)
        session.users_version = seen.users_version
        return session.callers.at(message.surface, message.address)

    @handles(AuthenticatePassword)
    def authenticate_password(self, message: AuthenticatePassword) -> Caller | Awaitable[Caller]:
        """Who a user and password are. Right ones are remembered for a minute."""
        user, password = message.user, message.password
        surface, address = message.surface, message.address
        version = self._committer.ledger.users_version
        known = self._sessions.still_right(user, password, surface, address, version)
        if known is None and self._may_show(seen := self._look(user)):
            known = self._sessions.remembers(seen, password, surface, address)
        return known or self._authenticated(message)

    async def _authenticated(self, message: AuthenticatePassword) -> Caller:
        surface, address = message.surface, message.address
        seen = await self._settled(message.user)
        known = self._sessions.remembers(seen, message.password, surface, address)
        if known is None:
            with self._aside(surface, address):
                seen = await self._verified(
                    message, message.user, message.password, message.is_gone
                )
            known = self._sessions.remember(seen, message.password, surface, address)
            self._statements.came("sign in", message.user, surface, address)
        return known

    @handles(ChangePassword)
    async def change_password(self, message: ChangePassword) -> None:
        """A user's own password; its other sessions end."""
        caller = message.caller
        check_password(message.new)
        self._roles.check_answering(caller)
        with self._aside(caller.surface, caller.address):
            user = (await self._verified(caller, caller.user, message.old)).known
            asker = Asker(caller.user, network(caller.address))
            passhash = await self._passwords.hash(message.new, asker)
        self._sessions.check_authenticated(caller)
        with self._committer.begin() as tx:
            stored = users.find(tx, user.name)
            if stored is None or stored.passhash != user.passhash or not same_user(stored, user):
                raise SignInRefused(REFUSED)  # somebody else changed it meanwhile
            users.alter(tx, stored, passhash=passhash)
            statement = f"ALTER USER {user.name} SET PASSWORD '...'"
            entry = self._statements.of_itself(tx, caller)
            ticket = self._committer.commit(tx, caller, statement, None, entry)
        self._sessions.renew(user.name, passhash)
        self._sessions.end_all(user.name, but=caller.session)
        await self._committer.released_in_time(ticket)

    # --- users ----------------------------------------------------------------------------------

    def _look(self, name: str) -> Seen:
        """A user as it is. Where nothing can be released for now, as it was released: what is on
        its way ends its sessions when it comes to be."""
        committer = self._committer
        with committer.begin() if committer.stall is None else committer.begin_shown() as tx:
            seen = read_user(tx, name)
        if seen.user is not None and committer.ledger.users_version > committer.released_upto:
            self._sessions.unreleased.add(name)
        return seen

    def _may_show(self, seen: Seen) -> bool:
        """Whether a reading rests on nothing that may yet be taken back."""
        return self._committer.is_released(seen.ticket)

    async def _settled(self, name: str) -> Seen:
        """A user as it is in the turn of the loop that hears this, and durably so.

        :raises DiskFull: what it was about to become was taken back
        """
        committer = self._committer
        seen = self._look(name)
        while not self._may_show(seen):
            await committer.released_in_time(seen.ticket)
            before, seen = seen, self._look(name)
            if before.user == seen.user:
                break  # what is in flight now is about others
        return seen

    # --- passwords ------------------------------------------------------------------------------

    async def _verified(
        self, origin: _Origin, name: str, password: str, is_gone: Callable[[], bool] = stays
    ) -> Seen:
        """The user as it is in the turn of the loop that hears this, when the password is right.

        :param origin: where it was asked
        :param is_gone: true once nobody waits for it
        :raises SignInRefused: after a while, when it is not or there is no such user
        :raises SessionEnded: it was right, and the user was changed while that was being found out
        :raises TooManyTries: very many of this user or from this address came before
        :raises Busy: too many passwords wait to be hashed, or this one's hash is changed all along
        """
        surface, address = origin.surface, origin.address
        one = await self._throttle.begin(name, address, is_gone=is_gone)
        try:
            seen = await self._checked(one, password)
            if seen is None:
                await one.failed()
                self._statements.came("sign in", name, surface, address, SignInRefused.__name__)
                raise SignInRefused(REFUSED)
            one.succeeded()
        finally:
            one.end()
        return seen

    async def _checked(self, one: Try, password: str) -> Seen | None:
        """The user as `_verified` says; None when the password is wrong, or there is no user."""
        asker = Asker(one.user, one.network, one.rank)
        for _ in range(READINGS):
            before = (await self._settled(one.user)).user
            passhash = before.passhash if before is not None else None
            verdict = await self._passwords.verify(password, passhash, asker)
            if before is None or not verdict.matches:
                return None
            if verdict.renewed is not None:
                before = await self._renewed(before, verdict.renewed)
            seen = await self._settled(one.user)
            if seen.user is None:
                return None
            if not same_user(seen.user, before):
                raise SessionEnded("the user was changed while it signed in: sign in again")
            if seen.user.passhash == before.passhash:
                return seen
        raise Busy("the password of this user is being changed again and again")

    @handles(LetGo)
    def let_go(self, _message: LetGo) -> None:
        """The node stops: nobody is made to wait for a refusal any more."""
        self._throttle.drain()

    async def _renewed(self, user: User, passhash: str) -> User:
        """Store a hash with today's parameters; the user with the hash that is stored now."""
        try:
            with self._committer.begin() as tx:
                if users.find(tx, user.name) != user:
                    return user
                renewed = users.alter(tx, user, passhash=passhash)
                ticket = self._committer.commit(tx, NODE, reason="stronger hash parameters")
            self._sessions.renew(user.name, passhash)
            await self._committer.released_in_time(ticket)
        except Refusal:
            # A node that takes no writes keeps the old hash, and the next sign-in tries again.
            return user
        return renewed
