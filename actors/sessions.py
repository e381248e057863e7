"""What is kept of callers that were let in: open sessions, and passwords that were right.

- Of a token only its SHA-256 is kept, in memory: a restart signs everyone out. It ends 12 h after
  it was given, after an hour without use, at sign-out, and when its user is dropped or changed.
- A user and password that were right may be remembered for a minute, under a hash keyed with a
  secret of this process.
- A user is kept once for all who were let in as it, as it was read in the turn of the loop that
  did that. Where another one is stored, everything that was let in as it is ended. How somebody is
  let in is told in `sign_ins.py`.
- Whoever acts for a caller asks one question, `check_authenticated`, in the turn of the loop that
  acts: a session or a password may have been revoked since the caller was authenticated.

All times here are monotonic: no step of the wall clock ends or prolongs a session.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from typing import Final, Protocol

from actors.commits import NODE, Committer
from protocol import limits
from protocol.doors import Clock, Rng
from protocol.errors import (
    SessionEnded,
)
from protocol.requests import (
    Caller,
    Surface,
)
from storage import feeds, users
from storage.frames import Frame
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
KNOWN: Final = 10_000
"""Users without a session that are kept as they were when they were let in."""
REVOKED: Final = 10_000
"""Users whose last revocation is kept."""
ENDED: Final = "the session has ended: sign in again"
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
class _Known:
    """A user as it is for all who were let in as it."""

    user: User
    passhashes: tuple[str, ...] = field(repr=False)
    """The hash of its password; once that was replaced, and nobody was to go, the one before too:
    the newer may yet be taken back."""

    def is_stored_as(self, user: User | None) -> bool:
        """True if this user is stored now, with the same password and rights."""
        return user is not None and user.passhash in self.passhashes and same_user(user, self.user)

    def renew(self, passhash: str) -> None:
        """Take another hash for the user's as well."""
        if passhash not in self.passhashes:
            self.passhashes = self.passhashes[-1], passhash


@dataclass(slots=True)
class _Open:
    """An open session."""

    caller: Caller
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
    """What rests on credentials, and ends with them."""

    def on_credential_ended(
        self, user: str, session: str | None, cut: bool, sparing: str | None
    ) -> None:
        """End what runs by a credential.

        :param session: as in `Caller.session`; None: the password that comes with each request
        :param cut: somebody has ended it; False: its time was over, or there were too many
        :param sparing: the request that has ended it, if it is a script's
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
        self._known: OrderedDict[str, _Known] = OrderedDict()  # the one let in last at the end
        """Users with open sessions, and those whose passwords were right lately."""
        self.unreleased: set[str] = set()
        """Users who were let in while changes of users were on their way."""
        self._revocations = 0
        """How often the credentials of some user were revoked."""
        self._revoked: OrderedDict[str, int] = OrderedDict()
        """The number of each user's last revocation, oldest first …"""
        self._revoked_before = 0
        """… and the last number that was dropped from there: it counts for everybody else."""
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
        session = _Open(caller, now + limits.SESSION_SECONDS * _SECOND_US, now, users_version)
        while len(self._open) >= limits.SESSIONS:
            self._make_room()
        self._learn(user)
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
        raise SessionEnded(ENDED)

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
        """End all sessions of a session's user when another one is stored.

        :param user: as stored now
        :raises SessionEnded:
        """
        name = session.caller.user
        if not self._known[name].is_stored_as(user):
            self.end_all(name)
            raise SessionEnded(ENDED)

    def on_user_declared(self, name: str) -> None:
        """End what was let in as an earlier user of a name that is given to a new one."""
        if name in self._known:
            self.end_all(name)

    def look_at_released(self, tx: Transaction) -> None:
        """End what was let in as a user that has become another since, while its change was on its
        way and nothing could be released."""
        names, self.unreleased = self.unreleased, set()
        for name in sorted(names):
            known = self._known.get(name)
            if known is not None and not known.is_stored_as(users.find(tx, name)):
                self.end_all(name)

    def on_user_followed(self, name: str, user: User | None, *, rehashed: bool) -> None:
        """Another node has changed a user, or its grants: end now what was let in as another one.

        :param user: as stored now; None: it was dropped
        :param rehashed: its password is the same, and has a stronger hash
        """
        known = self._known.get(name)
        if known is not None and user is not None and rehashed:
            known.renew(user.passhash)
        # Of a user that is not known it can't be told what of it has changed.
        if known is None or not known.is_stored_as(user):
            self.end_all(name)

    def _learn(self, user: User) -> None:
        """Keep a user as it is while somebody is let in as it."""
        known = self._known.get(user.name)
        if known is not None and not known.is_stored_as(user):
            self.end_all(user.name)
            known = None
        if known is None:
            self._known[user.name] = _Known(user, (user.passhash,))
            self._forget_known()
        else:
            self._known.move_to_end(user.name)

    def _forget_known(self) -> None:
        """Drop the user that was let in longest ago, of those without a session."""
        if len(self._known) > KNOWN + len(self._of_users):
            names = (name for name in self._known if name not in self._of_users)
            del self._known[next(names)]

    # --- whether a credential is still good -------------------------------------------------------

    def is_authenticated(self, caller: Caller) -> bool:
        """True if nobody has revoked the session or password that a caller was let in by, and its
        time is not over. Asking is no use of it."""
        if caller.session is not None:
            return self.is_open(caller.session)
        if caller.surface == "command":
            return True  # who may open the directory brings no password
        return caller.credential_version >= self._revoked.get(caller.user, self._revoked_before)

    def check_authenticated(self, caller: Caller) -> None:
        """:raises SessionEnded: the credential of a caller is no longer good"""
        if not self.is_authenticated(caller):
            raise SessionEnded(ENDED)

    def _revoke(self, user: str) -> None:
        """Let no password of a user that was checked before count any more."""
        self._revocations += 1
        self._revoked[user] = self._revocations
        self._revoked.move_to_end(user)
        if len(self._revoked) > REVOKED:
            _, self._revoked_before = self._revoked.popitem(last=False)

    def user_of(self, digest: bytes) -> str | None:
        """Whose an open session is; asking is no use of it. :param digest: as `glance`"""
        session = self._open.get(digest)
        return None if session is None else session.caller.user

    def is_open(self, name: str) -> bool:
        """True if a session goes on. :param name: as in `Caller.session`"""
        digest = self._digests.get(name)
        return digest is not None and self._clock.monotonic_us() < self._open[digest].ends_us

    def keep(self, caller: Caller) -> None:
        """Count a session as used by what goes on in it.

        :raises SessionEnded: as `check_authenticated`
        """
        self.check_authenticated(caller)
        if caller.session is not None:
            digest = self._digests[caller.session]
            self._open[digest].used_us = self._clock.monotonic_us()
            self._open.move_to_end(digest)

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
        self.rests.on_credential_ended(user, name, cut, sparing)

    def end_all(self, user: str, but: str | None = None, sparing: str | None = None) -> None:
        """End every session of a user, with what runs in it, and forget what was remembered of its
        password.

        :param but: name of the session that goes on
        :param sparing: the request that runs on, though its session ends: it has ended it
        """
        self._revoke(user)
        for digest, session in list(self._open.items()) if user in self._of_users else ():
            # Who is told of an end may end another one.
            if session.caller.user == user and session.name != but and digest in self._open:
                self._end(digest, cut=True, sparing=sparing)
        if user in self._known:
            for key, remembered in list(self._remembered.items()):
                if remembered.user == user:
                    del self._remembered[key]
            if user not in self._of_users:
                del self._known[user]
        self.rests.on_credential_ended(user, None, True, sparing)

    def renew(self, user: str, passhash: str) -> None:
        """The password of a user is stored with another hash as well, and its sessions go on."""
        known = self._known.get(user)
        if known is not None:
            known.renew(passhash)

    def remember(self, seen: Seen, password: str, surface: Surface, address: str) -> Caller:
        """This password was right. Who it stands for."""
        now, remembered = self._clock.monotonic_us(), self._remembered
        user = seen.known
        self._learn(user)
        key, caller = self._key(user.name, password), self._by_password(user, surface, address)
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
        caller = found.callers.at(surface, address)
        return caller if self.is_authenticated(caller) else None

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
        self._learn(user)
        caller = self._by_password(user, surface, address)
        found.users_version = seen.users_version
        found.callers = _callers_by_password(caller)
        return caller

    def _by_password(self, user: User, surface: Surface, address: str) -> Caller:
        """The caller that a user is whose password was right just now."""
        caller = caller_of(user, None, surface, address)
        return replace(caller, credential_version=self._revocations)

    def _key(self, user: str, password: str) -> bytes:
        text = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._secret, digest_size=32).digest()


class _Nothing:
    """Nothing rests on any credential."""

    def on_credential_ended(
        self, user: str, session: str | None, cut: bool, sparing: str | None
    ) -> None:
        pass


def read_user(tx: Transaction, name: str) -> Seen:
    """A user as it is stored, in flight or not."""
    user = users.find(tx, name)
    since = tx.users_version
    # A version in flight counts among what the transaction saw.
    return Seen(user, since if since > tx.saw else UNSETTLED, tx.ticket)


def end_with_users(sessions: Sessions, committer: Committer) -> None:
    """Have credentials end with what other nodes change of their users. What this node changes, the
    statement that does it says."""

    def look(frames: Sequence[Frame]) -> None:
        for frame in frames:
            commit = feeds.read(frame, (), _nothing)
            for name, row in commit.users.items():
                user = None if row is None else users.read_row(name, row)
                # The node itself writes no password: it makes the hash of the same one stronger.
                sessions.on_user_followed(name, user, rehashed=commit.how == NODE.surface)

    def look_at_released() -> None:
        if sessions.unreleased and committer.ledger.users_version <= committer.released_upto:
            with committer.begin() as tx:
                sessions.look_at_released(tx)

    committer.on_users_followed.append(look)
    committer.on_told.append(look_at_released)


def _nothing() -> None:
    """Frames of one turn of the loop are read in one."""


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
