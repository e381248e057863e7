"""Sign-ins: authenticate callers by password, by token, and by Basic on each request.

- A refused sign-in has one text and takes the same time, whether the user exists or not.
  `sign_in_throttle.py` delays those after it. No user is locked out.
- A hash takes long, and other work goes on meanwhile. So the user is read again after it, in the
  loop iteration that makes the response: a user that was dropped or changed meanwhile is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from actors.commits.committer import NODE, Committer
from actors.passwords import HashRequester, Passwords, check_password
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
from protocol.environment import Rng
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
from storage.catalog import users
from storage.catalog.users import User

REFUSED: Final = "user and password do not match"
READINGS: Final = 4
"""Maximum hashes of a password in one sign-in, each against the stored hash that replaced the one
before."""


@dataclass(frozen=True, slots=True)
class ReleaseDelayed:
    """Message at the beginning of a shutdown: release delayed refusals."""


Aside = Callable[[Surface, str], AbstractContextManager[None]]


class _Origin(Protocol):
    """Origin of a request."""

    @property
    def surface(self) -> Surface: ...

    @property
    def address(self) -> str: ...


class SessionsActor(LoopActor):
    """Authenticates credentials."""

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
        """:param aside: context manager entered while a sign-in waits for a hash or its response"""
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
        """Exchange a password for a session token."""
        with self._aside(message.surface, message.address):
            seen = await self._verified(message, message.user, message.password, message.is_gone)
        # No await between that read and this, so the user can't have changed.
        user, surface, address = seen.known, message.surface, message.address
        token, session = self._sessions.open(user, surface, address, seen.users_version)
        self._statements.record_access("sign in", user.name, surface, address)
        expires = instant(self.runtime.clock.wall_us()) + timedelta(seconds=limits.SESSION_SECONDS)
        return Session(token, expires, limits.SESSION_IDLE_SECONDS, session.caller)

    @handles(SignOut)
    def sign_out(self, message: SignOut) -> None:
        """End a session."""
        caller = self._sessions.end(message.token)
        self._statements.record_access("sign out", caller.user, caller.surface, caller.address)

    @handles(AuthenticateToken)
    def authenticate_token(self, message: AuthenticateToken) -> Caller | Awaitable[Caller]:
        """Return the caller of a token, as stored now."""
        version, digest = self._committer.ledger.state.users_version, token_digest(message.token)
        known = self._sessions.unchanged(digest, message.surface, message.address, version)
        return known or self._checked_again(message)

    async def _checked_again(self, message: AuthenticateToken) -> Caller:
        """Check a session again, since users have changed since its last use."""
        name = self._sessions.use(message.token).caller.user
        seen = await self._settled(name)
        session = self._sessions.use(message.token)  # it may have ended meanwhile
        self._sessions.check(session, seen.user)
        session.users_version = seen.users_version
        return session.callers.at(message.surface, message.address)

    @handles(AuthenticatePassword)
    def authenticate_password(self, message: AuthenticatePassword) -> Caller | Awaitable[Caller]:
        """Return the caller of a user and password. Right ones are cached for a minute."""
        user, password = message.user, message.password
        surface, address = message.surface, message.address
        version = self._committer.ledger.state.users_version
        known = self._sessions.still_right(user, password, surface, address, version)
        if known is None and self._may_show(seen := self._read_user(user)):
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
            self._statements.record_access("sign in", message.user, surface, address)
        return known

    @handles(ChangePassword)
    async def change_password(self, message: ChangePassword) -> None:
        """Change the caller's own password; its other sessions end."""
        caller = message.caller
        check_password(message.new)
        self._roles.check_answering(caller)
        with self._aside(caller.surface, caller.address):
            user = (await self._verified(caller, caller.user, message.old)).known
            asker = HashRequester(caller.user, network(caller.address))
            passhash = await self._passwords.hash(message.new, asker)
        self._sessions.check_authenticated(caller)
        with self._committer.begin_transaction() as tx:
            stored = users.find(tx, user.name)
            if stored is None or stored.passhash != user.passhash or not same_user(stored, user):
                raise SignInRefused(REFUSED)  # changed concurrently
            users.alter(tx, stored, passhash=passhash)
            statement = f"ALTER USER {user.name} SET PASSWORD '...'"
            entry = self._statements.of_itself(tx, caller)
            ticket = self._committer.commit(tx, caller, statement, None, entry)
        self._sessions.renew(user.name, passhash)
        self._sessions.end_all(user.name, but=caller.session)
        await self._committer.released_in_time(ticket)

    # --- users ----------------------------------------------------------------------------------

    def _read_user(self, name: str) -> Seen:
        """Read a user. While releases are stalled, read the released state: a pending change of the
        user ends its sessions once it is released."""
        committer = self._committer
        with (
            committer.begin_transaction()
            if committer.stall is None
            else committer.begin_released_read() as tx
        ):
            seen = read_user(tx, name)
        if seen.user is not None and committer.ledger.state.users_version > committer.commit_index:
            self._sessions.unreleased.add(name)
        return seen

    def _may_show(self, seen: Seen) -> bool:
        """True if a read depends on no commit that may still be rolled back."""
        return self._committer.is_released(seen.ticket)

    async def _settled(self, name: str) -> Seen:
        """Return a user as stored and released in the loop iteration that resumes the caller.

        :raises DiskFull: a pending change of the user was rolled back
        """
        committer = self._committer
        seen = self._read_user(name)
        while not self._may_show(seen):
            await committer.released_in_time(seen.ticket)
            before, seen = seen, self._read_user(name)
            if before.user == seen.user:
                break  # the pending changes are of other users
        return seen

    # --- passwords ------------------------------------------------------------------------------

    async def _verified(
        self, origin: _Origin, name: str, password: str, is_gone: Callable[[], bool] = stays
    ) -> Seen:
        """Verify a password. Return the user as stored in the loop iteration that resumes the
        caller.

        :param origin: origin of the request
        :param is_gone: returns True once the client no longer waits
        :raises SignInRefused: after a delay, if the password is wrong or there is no such user
        :raises SessionEnded: it was right, but the user was changed during the verification
        :raises TooManyTries: very many attempts of this user or from this address came before
        :raises Busy: too many passwords wait to be hashed, or this one's hash keeps changing
        """
        surface, address = origin.surface, origin.address
        one = await self._throttle.enter(name, address, is_gone=is_gone)
        try:
            seen = await self._checked(one, password)
            if seen is None:
                await one.failed()
                self._statements.record_access(
                    "sign in", name, surface, address, SignInRefused.__name__
                )
                raise SignInRefused(REFUSED)
            one.succeeded()
        finally:
            one.end()
        return seen

    async def _checked(self, one: Try, password: str) -> Seen | None:
        """Return the user for `_verified`; None if the password is wrong or there is no user."""
        asker = HashRequester(one.user, one.network, one.rank)
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
                raise SessionEnded("the user was changed during the sign-in: sign in again")
            if seen.user.passhash == before.passhash:
                return seen
        raise Busy("the password of this user changes too often: try again")

    @handles(ReleaseDelayed)
    def let_go(self, _message: ReleaseDelayed) -> None:
        """Release all delayed refusals: the node stops."""
        self._throttle.drain()

    async def _renewed(self, user: User, passhash: str) -> User:
        """Store a hash with the current parameters. Return the user with the hash that is stored
        now."""
        try:
            with self._committer.begin_transaction() as tx:
                if users.find(tx, user.name) != user:
                    return user
                renewed = users.alter(tx, user, passhash=passhash)
                ticket = self._committer.commit(tx, NODE, reason="stronger hash parameters")
            self._sessions.renew(user.name, passhash)
            await self._committer.released_in_time(ticket)
        except Refusal:
            # A node that takes no writes keeps the old hash; the next sign-in tries again.
            return user
        return renewed
