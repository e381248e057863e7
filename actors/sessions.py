"""What is kept of callers that were let in: open sessions, and passwords that were right.

- Of a token only its SHA-256 is kept, in memory: a restart signs everyone out. It ends 12 h after
  it was given, after an hour without use, at sign-out, and when its user is dropped or changed.
- A user and password that were right may be remembered for a minute, under a hash keyed with a
  secret of this process.
- A session keeps the user, and the users' version, as they were read in the turn of the loop that
  let it in. How somebody is let in is told in `sign_ins.py`.

All times here are monotonic: no step of the wall clock ends or prolongs a session.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from typing import Final, Protocol

from actors.commits import Committer
from protocol import limits
from protocol.doors import Clock, Rng
from protocol.errors import (
    SessionEnded,
)
from protocol.requests import (
    Caller,
    Surface,
)
from storage import users
from storage.tickets import CommitTicket
from storage.transactions import Transaction
from storage.users import User

_SECOND_US: Final = 1_000_000
IDLE_US: Final = limits.SESSION_IDLE_SECONDS * _SECOND_US
REMEMBERED: Final = 10_000
"""Credentials that were right, kept at once; the oldest go first."""
CALLERS: Final = 256
"""Connections of one session whose callers are kept at once: clients pool some tens."""
CALLERS_BY_PASSWORD: Final = 64
"""The same of a password that is remembered: who has one connection for each request fills it."""
UNSETTLED: Final = -1
"""No version of the users."""


class _Callers:
    """Who shows one credential, by where it comes from: clients share one among connections, and a
    request would make its caller anew each time another connection's has come between.

    :param caller: as it came first
    :param most: so many are kept at once
    """

    def __init__(self, caller: Caller, most: int) -> None:
        self._caller = caller
        self._most = most
        self._by_origin = {(caller.surface, caller.address): caller}

    def at(self, surface: Surface, address: str) -> Caller:
        """The caller, come over a surface and from an address."""
        origin = (surface, address)
        found = self._by_origin.get(origin)
        if found is None:
            if len(self._by_origin) >= self._most:
                self._by_origin.clear()
            found = replace(self._caller, surface=surface, address=address)
            self._by_origin[origin] = found
        return found


def _callers_by_password(caller: Caller) -> _Callers:
    return _Callers(caller, CALLERS_BY_PASSWORD)


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
    callers: _Callers = field(init=False)

    def __post_init__(self) -> None:
        self.callers = _Callers(self.caller, CALLERS)

    @property
    def name(self) -> str:
        """As in `Caller.session`."""
        assert self.caller.session is not None, "a session has a name"
        return self.caller.session


@dataclass(frozen=True, slots=True)
class Seen:
    """A user as one reading found it."""

    user: User | None
    users_version: int
    """The users' version that was read, UNSETTLED while that is in flight: its number may be
    given again, to another change, when a full disk takes it back."""
    ticket: CommitTicket
    """The commit that must be released before anything is answered that rests on this."""

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
    users_version: int
    """The durable version of the users at which the user was last seen with that hash …"""
    callers: _Callers
    """… and who it was there."""


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
        caller = caller_of(user, session_name(digest), surface, address)
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
            seen = read_user(tx, session.caller.user)
            self.check(session, seen.user)
            session.users_version = seen.users_version
        return session.caller

    def unchanged(
        self, digest: bytes, surface: Surface, address: str, users_version: int
    ) -> Caller | None:
        """Who a token stands for; None when declarations have changed since its user was looked at.

        :param digest: `token_digest` of the token
        :param users_version: the users' version now
        :raises SessionEnded:
        """
        session = self._use(digest)
        if session.users_version != users_version:
            return None
        caller = session.caller
        if caller.address != address or caller.surface != surface:
            session.caller = caller = session.callers.at(surface, address)
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

    def user_of(self, digest: bytes) -> str | None:
        """Whose an open session is; asking is no use of it. :param digest: as `glance`"""
        session = self._open.get(digest)
        return None if session is None else session.caller.user

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
            # Who is told of an end may end another one.
            if session.caller.user == user and session.name != but and digest in self._open:
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

    def remember(self, seen: Seen, password: str, surface: Surface, address: str) -> Caller:
        """This password was right. Who it stands for."""
        now, remembered = self._clock.monotonic_us(), self._remembered
        user = seen.known
        key, caller = self._key(user.name, password), caller_of(user, None, surface, address)
        remembered.pop(key, None)  # it goes behind the others: they stand in the order of their end
        ends = now + limits.CREDENTIAL_MEMO_SECONDS * _SECOND_US
        remembered[key] = _Remembered(
            user.name, user.passhash, ends, seen.users_version, _callers_by_password(caller)
        )
        while len(remembered) > REMEMBERED or next(iter(remembered.values())).ends_us <= now:
            remembered.popitem(last=False)
        return caller

    def still_right(
        self, user: str, password: str, surface: Surface, address: str, users_version: int
    ) -> Caller | None:
        """Who a password stands for that was right within the last minute, and of whose user
        nothing has changed since; None: the user has to be looked at.

        :param users_version: the users' version now
        """
        found = self._remembered.get(self._key(user, password))
        if found is None or found.users_version != users_version:
            return None
        if found.ends_us <= self._clock.monotonic_us():
            return None
        return found.callers.at(surface, address)

    def remembers(self, seen: Seen, password: str, surface: Surface, address: str) -> Caller | None:
        """Who a password stands for that was right within the last minute, for the very hash that
        was seen. None: it was not."""
        user = seen.user
        if user is None:
            return None
        key = self._key(user.name, password)
        found = self._remembered.get(key)
        if found is None:
            return None
        if found.ends_us <= self._clock.monotonic_us() or found.passhash != user.passhash:
            del self._remembered[key]
            return None
        caller = caller_of(user, None, surface, address)
        found.users_version = seen.users_version
        found.callers = _callers_by_password(caller)
        return caller

    def _key(self, user: str, password: str) -> bytes:
        text = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._secret, digest_size=32).digest()


class _Nothing:
    """Nothing rests on any session."""

    def session_ended(self, name: str, cut: bool, sparing: str | None) -> None:
        pass

    def sessions_ended(self, user: str, but: str | None, sparing: str | None) -> None:
        pass


def read_user(tx: Transaction, name: str) -> Seen:
    """A user as it is stored, in flight or not."""
    user = users.find(tx, name)
    since = tx.users_version
    # A version in flight counts among what the transaction saw.
    return Seen(user, since if since > tx.saw else UNSETTLED, tx.ticket)


def _is_another(user: User | None, known: User) -> bool:
    """Whether what is stored of a user is not what it was at its sign-in."""
    return user is None or user.passhash != known.passhash or not same_user(user, known)


def end_with_users(sessions: Sessions, committer: Committer) -> None:
    """Have sessions end with what other nodes change of their users. What this node changes, the
    statement that does it says."""

    def look() -> None:
        with committer.begin() as tx:
            sessions.look_at_users(tx)

    committer.on_users_followed.append(look)


def same_user(one: User, other: User) -> bool:
    """Whether two readings found one user with the same rights. One that was dropped and declared
    again is another, whatever it has in common with the first."""
    return (one.created, one.role, one.space) == (other.created, other.role, other.space)


def caller_of(user: User, session: str | None, surface: Surface, address: str) -> Caller:
    """The caller that a user is, come over a surface and from an address."""
    return Caller(user.name, user.role, user.space, session, surface, address)


def session_name(digest: bytes) -> str:
    """As in `Caller.session`. :param digest: `token_digest` of its token"""
    return digest[:6].hex()


def token_digest(token: str) -> bytes:
    """Under what a token's session is kept."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
