"""Who a caller is: sign-in, tokens, and Basic on every request.

- Of a token only its SHA-256 is kept, in memory: a restart signs everyone out. It ends 12 h after
  it was given, after an hour without use, at sign-out, and when its user is dropped or changed.
- A refused sign-in has one text and takes one time, whether the user exists or not; what it costs
  those that follow is told in `tries.py`. Nobody is locked out.
- A user and password that were right may be remembered for a minute, under a hash keyed with a
  secret of this process.
- A hash takes long and everything else goes on meanwhile. So a user is read again after it, in the
  turn of the loop in which the answer is made: one that was dropped or changed in between is let in
  by nobody's password. A session keeps the user and the users' version of that reading.

All times here are monotonic: no step of the wall clock ends or prolongs a session.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import blake2b, sha256
from typing import Final, Protocol

from actors.commits import NODE, Committer, Promise
from actors.passwords import Asker, Passwords, check_password
from actors.runtime import LoopActor, Runtime, handles
from actors.statements import Statements
from actors.tries import Tries, Try, network
from protocol import limits
from protocol.doors import Clock, Rng
from protocol.errors import (
    Busy,
    DiskFull,
    Refusal,
    SessionEnded,
    SignInRefused,
)
from protocol.requests import (
    AuthenticatePassword,
    AuthenticateToken,
    Caller,
    ChangePassword,
    Session,
    SignIn,
    SignOut,
    Surface,
)
from protocol.values import instant
from storage import users
from storage.transactions import Transaction
from storage.users import User

_SECOND_US: Final = 1_000_000
IDLE_US: Final = limits.SESSION_IDLE_SECONDS * _SECOND_US
REMEMBERED: Final = 10_000
"""Credentials that were right, kept at once; the oldest go first."""
CALLERS: Final = 256
"""Connections of one session whose callers are kept at once: clients pool some tens."""
REFUSED: Final = "user and password do not match"
UNSETTLED: Final = -1
"""No version of the users."""
READINGS: Final = 4
"""How often a password is hashed for one sign-in, each time against the hash that took the place of
the one before it."""


@dataclass(slots=True)
class _Open:
    """An open session."""

    caller: Caller
    user: User
    """As stored when it was last looked at. Its hash may be renewed, see `Sessions.renew`."""
    ends_us: int
    used_us: int
    users_version: int
    """The durable version of the users at which the user was last seen unchanged."""
    _callers: dict[tuple[Surface, str], Caller] = field(default_factory=dict)
    """The caller as it comes from elsewhere: clients share a token among connections, and a request
    would make it anew each time another connection's has come between."""

    def __post_init__(self) -> None:
        self._callers[self.caller.surface, self.caller.address] = self.caller

    def caller_at(self, surface: Surface, address: str) -> Caller:
        """The caller, come over a surface and from an address."""
        at = (surface, address)
        found = self._callers.get(at)
        if found is None:
            if len(self._callers) >= CALLERS:
                self._callers.clear()
            found = replace(self.caller, surface=surface, address=address)
            self._callers[at] = found
        return found

    @property
    def name(self) -> str:
        """As in `Caller.session`."""
        assert self.caller.session is not None, "a session has a name"
        return self.caller.session


@dataclass(frozen=True, slots=True)
class _Seen:
    """A user as one reading found it."""

    user: User | None
    users_version: int
    """The users' version that was read, UNSETTLED while that is in flight: its number may be
    given again, to another change, when a full disk takes it back."""
    saw: int
    """What must be durable before anything is answered that rests on this."""

    @property
    def known(self) -> User:
        """The user, which must be there."""
        assert self.user is not None
        return self.user


@dataclass(slots=True)
class _Remembered:
    """A user and password that were right."""

    user: str
    passhash: str = field(repr=False)
    ends_us: int


class Rests(Protocol):
    """What rests on sessions, and ends with them."""

    def session_ended(self, name: str, cut: bool, sparing: str | None) -> None:
        """A session has ended.

        :param name: as in `Caller.session`
        :param cut: somebody has ended it; False: its time was over, or there were too many
        :param sparing: the request that has ended it, if it is a script's
        """

    def sessions_ended(self, user: str, but: str | None, sparing: str | None) -> None:
        """All of a user have, and whoever brings its password with every request is asked anew.

        :param but: name of the session that goes on
        :param sparing: as above
        """


class Sessions:
    """The open sessions of the node; on the loop only."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._open: OrderedDict[bytes, _Open] = OrderedDict()  # the one idle longest first
        self._digests: dict[str, bytes] = {}
        """Under what the open sessions are kept, by their names."""
        self._of_users: Counter[str] = Counter()
        """How many of them each user has."""
        self._secret = rng.bytes(32)
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self.rests: Rests = _Nothing()
        """What rests on sessions, and ends with them."""

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self, user: User, surface: Surface, address: str, users_version: int
    ) -> tuple[str, _Open]:
        """A new token and its session.

        :param users_version: the version of the users that it was read at
        """
        token = urlsafe_b64encode(self._rng.bytes(limits.TOKEN_BYTES)).rstrip(b"=").decode()
        digest = token_digest(token)
        now = self._clock.monotonic_us()
        caller = _caller(user, digest[:6].hex(), surface, address)
        session = _Open(caller, user, now + limits.SESSION_SECONDS * _SECOND_US, now, users_version)
        while len(self._open) >= limits.SESSIONS:
            self._make_room()
        self._open[digest] = session
        self._digests[session.name] = digest
        self._of_users[user.name] += 1
        return token, session

    def _make_room(self) -> None:
        """End the session idle longest of the user who has most: whoever signs in again and again
        ends nobody's sessions but its own."""
        ((most, _),) = self._of_users.most_common(1)
        for digest, session in self._open.items():
            if session.caller.user == most:
                self._end(digest)
                return

    def use(self, token: str) -> _Open:
        """The session of a token. :raises SessionEnded:"""
        return self._use(token_digest(token))

    def _use(self, digest: bytes) -> _Open:
        session = self._open.get(digest)
        now = self._clock.monotonic_us()
        if session is not None:
            idle_us = now - session.used_us
            if now < session.ends_us and idle_us < IDLE_US:
                session.used_us = now
                self._open.move_to_end(digest)
                return session
            self._end(digest)
        raise SessionEnded("the session has ended: sign in again")

    def glance(self, digest: bytes, users_version: int) -> Caller | None:
        """Who a token stands for, if its user was seen unchanged at this version of the users;
        counts as use. None: ask `caller`. Its address and surface may be those of another of the
        session's requests.

        :param digest: `token_digest` of the token
        """
        session = self._open.get(digest)
        if session is None or session.users_version != users_version:
            return None
        now = self._clock.monotonic_us()
        if now >= session.ends_us or now - session.used_us >= IDLE_US:
            return None
        session.used_us = now
        self._open.move_to_end(digest)
        return session.caller

    def caller(self, digest: bytes, tx: Transaction) -> Caller:
        """Who a token stands for, as stored in the state that a transaction reads: for who asks in
        the midst of other work, and waits for what the transaction saw before it answers. The
        caller's address and surface may be those of another of the session's requests.

        :param digest: `token_digest` of the token
        :raises SessionEnded:
        """
        session = self._use(digest)
        if session.users_version != tx.users_version:
            seen = _read(tx, session.caller.user)
            self.check(session, seen.user)
            session.users_version = seen.users_version
        return session.caller

    def unchanged(self, asked: AuthenticateToken, users_version: int) -> Caller | None:
        """Who a token stands for; None when declarations have changed since its user was looked at.

        :param users_version: the users' version now
        :raises SessionEnded:
        """
        session = self.use(asked.token)
        if session.users_version != users_version:
            return None
        caller = session.caller
        if caller.address != asked.address or caller.surface != asked.surface:
            session.caller = caller = session.caller_at(asked.surface, asked.address)
        return caller

    def check(self, session: _Open, user: User | None) -> None:
        """End all sessions of a session's user when it is not the one of the sign-in any more.

        :param user: as stored now
        :raises SessionEnded:
        """
        if _is_another(user, session.user):
            self.end_all(session.caller.user)
            raise SessionEnded("the session has ended: sign in again")

    def look_at_users(self, tx: Transaction) -> None:
        """Other nodes have changed users: what rests on a sign-in of one that is not the same any
        more ends now, and not when it is used next."""
        known = {session.caller.user: session.user for session in self._open.values()}
        gone = {name for name, user in known.items() if _is_another(users.find(tx, name), user)}
        for one in self._remembered.values():
            user = users.find(tx, one.user)
            if user is None or user.passhash != one.passhash:
                gone.add(one.user)
        for name in sorted(gone):
            self.end_all(name)

    def is_open(self, name: str) -> bool:
        """Whether a session goes on; asking is no use of it. :param name: as in `Caller.session`"""
        digest = self._digests.get(name)
        return digest is not None and self._clock.monotonic_us() < self._open[digest].ends_us

    def keep(self, name: str) -> bool:
        """Count as used by what goes on in it. False: it has ended. :param name: as `is_open`"""
        if not self.is_open(name):
            return False
        self._open[self._digests[name]].used_us = self._clock.monotonic_us()
        self._open.move_to_end(self._digests[name])
        return True

    def end(self, token: str) -> Caller:
        """Sign out; who that was. :raises SessionEnded: there is no such session"""
        session = self.use(token)
        self._end(token_digest(token), cut=True)
        return session.caller

    def _end(self, digest: bytes, cut: bool = False, sparing: str | None = None) -> None:
        session = self._open.pop(digest)
        name, user = session.name, session.caller.user
        # Should two have one name, the first to go leaves the other without it: that one ends then.
        self._digests.pop(name, None)
        self._of_users[user] -= 1
        if not self._of_users[user]:
            del self._of_users[user]
        self.rests.session_ended(name, cut, sparing)

    def end_all(self, user: str, but: str | None = None, sparing: str | None = None) -> None:
        """End every session of a user, with what runs in it, and forget what was remembered of its
        password.

        :param but: name of the session that goes on
        :param sparing: the request that runs on, though its session ends: it has ended it
        """
        for digest, session in list(self._open.items()):
            if session.caller.user == user and session.name != but:
                self._end(digest, cut=True, sparing=sparing)
        for key, remembered in list(self._remembered.items()):
            if remembered.user == user:
                del self._remembered[key]
        self.rests.sessions_ended(user, but, sparing)

    def renew(self, user: str, passhash: str) -> None:
        """The stored hash of a user has changed, and its sessions go on."""
        for session in self._open.values():
            if session.caller.user == user:
                session.user = replace(session.user, passhash=passhash)

    def remember(self, user: User, password: str) -> None:
        """This password was right."""
        ends = self._clock.monotonic_us() + limits.CREDENTIAL_MEMO_SECONDS * _SECOND_US
        self._remembered[self._key(user.name, password)] = _Remembered(
            user.name, user.passhash, ends
        )
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)

    def remembers(self, user: User, password: str) -> bool:
        """Whether this password was right within the last minute, for this very hash."""
        key = self._key(user.name, password)
        found = self._remembered.get(key)
        if found is None:
            return False
        if found.ends_us <= self._clock.monotonic_us() or found.passhash != user.passhash:
            del self._remembered[key]
            return False
        return True

    def _key(self, user: str, password: str) -> bytes:
        text = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._secret, digest_size=32).digest()


class _Nothing:
    """Nothing rests on any session."""

    def session_ended(self, name: str, cut: bool, sparing: str | None) -> None:
        pass

    def sessions_ended(self, user: str, but: str | None, sparing: str | None) -> None:
        pass


def _read(tx: Transaction, name: str) -> _Seen:
    user = users.find(tx, name)
    since = tx.users_version
    # A version in flight counts among what the transaction saw.
    return _Seen(user, since if since > tx.saw else UNSETTLED, tx.saw)


def _is_another(user: User | None, known: User) -> bool:
    """Whether what is stored of a user is not what it was at its sign-in."""
    return user is None or user.passhash != known.passhash or not _same(user, known)


def end_with_users(sessions: Sessions, committer: Committer) -> None:
    """Have sessions end with what other nodes change of their users. What this node changes, the
    statement that does it says."""

    def look() -> None:
        with committer.begin() as tx:
            sessions.look_at_users(tx)

    committer.on_users_followed.append(look)


def _same(one: User, other: User) -> bool:
    """Whether two readings found one user with the same rights. One that was dropped and declared
    again is another, whatever it has in common with the first."""
    return (one.created, one.role, one.space) == (other.created, other.role, other.space)


@dataclass(frozen=True, slots=True)
class LetGo:
    """Said when the node begins to stop."""


Aside = Callable[[Surface], AbstractContextManager[None]]


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
        passwords: Passwords,
        rng: Rng,
        statements: Statements,
        aside: Aside = lambda _surface: nullcontext(),
    ) -> None:
        """:param aside: entered for as long as a sign-in waits for a hash or its answer"""
        super().__init__(runtime)
        self._sessions = sessions
        self._committer = committer
        self._passwords = passwords
        self._statements = statements
        self._aside = aside
        self._tries = Tries(runtime.clock, rng, self.after)

    @handles(SignIn)
    async def sign_in(self, message: SignIn) -> Session:
        """A token for a password."""
        with self._aside(message.surface):
            seen = await self._verified(message, message.user, message.password)
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
        users_version = self._committer.ledger.users_version
        return self._sessions.unchanged(message, users_version) or self._checked_again(message)

    async def _checked_again(self, message: AuthenticateToken) -> Caller:
        """Declarations have changed since this session was last used: perhaps its user."""
        name = self._sessions.use(message.token).caller.user
        seen = await self._settled(name)
        session = self._sessions.use(message.token)  # it may have ended meanwhile
        self._sessions.check(session, seen.user)
        session.users_version = seen.users_version
        return session.caller_at(message.surface, message.address)

    @handles(AuthenticatePassword)
    def authenticate_password(self, message: AuthenticatePassword) -> Caller | Awaitable[Caller]:
        """Who a user and password are. Right ones are remembered for a minute."""
        seen = self._look(message.user)
        if self._may_show(seen) and self._remembers(seen, message.password):
            return _caller(seen.known, None, message.surface, message.address)
        return self._authenticated(message)

    async def _authenticated(self, message: AuthenticatePassword) -> Caller:
        seen = await self._settled(message.user)
        if not self._remembers(seen, message.password):
            with self._aside(message.surface):
                seen = await self._verified(message, message.user, message.password)
            self._sessions.remember(seen.known, message.password)
            self._statements.came("sign in", message.user, message.surface, message.address)
        return _caller(seen.known, None, message.surface, message.address)

    def _remembers(self, seen: _Seen, password: str) -> bool:
        return seen.user is not None and self._sessions.remembers(seen.user, password)

    @handles(ChangePassword)
    async def change_password(self, message: ChangePassword) -> None:
        """A user's own password; its other sessions end."""
        caller = message.caller
        check_password(message.new)
        with self._aside(caller.surface):
            user = (await self._verified(caller, caller.user, message.old)).known
            asker = Asker(caller.user, network(caller.address))
            passhash = await self._passwords.hash(message.new, asker)
        if message.session is not None and not self._sessions.is_open(message.session):
            raise SessionEnded("the session has ended: sign in again")
        with self._committer.begin() as tx:
            stored = users.find(tx, user.name)
            if stored is None or stored.passhash != user.passhash or not _same(stored, user):
                raise SignInRefused(REFUSED)  # somebody else changed it meanwhile
            users.alter(tx, stored, passhash=passhash)
            statement = f"ALTER USER {user.name} SET PASSWORD '...'"
            entry = self._statements.of_itself(tx, caller)
            promise = self._committer.commit(tx, caller, statement, None, entry)
        self._sessions.end_all(user.name, but=message.session or "")
        await self._kept(user, passhash, promise)

    # --- users ----------------------------------------------------------------------------------

    def _look(self, name: str) -> _Seen:
        with self._committer.begin() as tx:
            return _read(tx, name)

    def _may_show(self, seen: _Seen) -> bool:
        """Whether a reading rests on nothing that may yet be taken back."""
        return seen.saw <= self._committer.released_upto

    async def _settled(self, name: str) -> _Seen:
        """A user as it is in the turn of the loop that hears this, and durably so.

        :raises DiskFull: what it was about to become was taken back
        """
        committer = self._committer
        seen = self._look(name)
        while not self._may_show(seen):
            await committer.released(committer.promise(seen.saw))
            before, seen = seen, self._look(name)
            if before.user == seen.user:
                break  # what is in flight now is about others
        return seen

    async def _kept(self, user: User, passhash: str, promise: Promise) -> None:
        """Have a user's sessions go on under a new hash, once that is durable.

        :raises DiskFull: it never came to be, and they go on under the old one
        """
        self._sessions.renew(user.name, passhash)
        try:
            await self._committer.released(promise)
        except DiskFull:
            self._sessions.renew(user.name, user.passhash)
            raise

    # --- passwords ------------------------------------------------------------------------------

    async def _verified(self, origin: _Origin, name: str, password: str) -> _Seen:
        """The user as it is in the turn of the loop that hears this, when the password is right.

        :param origin: where it was asked
        :raises SignInRefused: after a while, when it is not or there is no such user
        :raises SessionEnded: it was right, and the user was changed while that was being found out
        :raises TooManyTries: after very many failures of this user from this address
        :raises Busy: too many passwords wait to be hashed, or this one's hash is changed all along
        """
        surface, address = origin.surface, origin.address
        one = await self._tries.begin(name, address)
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

    async def _checked(self, one: Try, password: str) -> _Seen | None:
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
            if not _same(seen.user, before):
                raise SessionEnded("the user was changed while it signed in: sign in again")
            if seen.user.passhash == before.passhash:
                return seen
        raise Busy("the password of this user is being changed again and again")

    @handles(LetGo)
    def let_go(self, _message: LetGo) -> None:
        """The node stops: nobody is made to wait for a refusal any more."""
        self._tries.drain()

    async def _renewed(self, user: User, passhash: str) -> User:
        """Store a hash with today's parameters; the user with the hash that is stored now."""
        try:
            with self._committer.begin() as tx:
                if users.find(tx, user.name) != user:
                    return user
                renewed = users.alter(tx, user, passhash=passhash)
                promise = self._committer.commit(tx, NODE, reason="stronger hash parameters")
            await self._kept(user, passhash, promise)
        except Refusal:
            # A node that takes no writes keeps the old hash, and the next sign-in tries again.
            return user
        return renewed


def _caller(user: User, session: str | None, surface: Surface, address: str) -> Caller:
    return Caller(user.name, user.role, user.space, session, surface, address)


def token_digest(token: str) -> bytes:
    """Under what a token's session is kept."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
