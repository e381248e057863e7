"""Sessions: open sessions, and recently verified passwords.

- Of a token only its SHA-256 is kept, in memory: a restart signs everyone out. A session ends 12 h
  after its start, after an hour without use, at sign-out, and when its user is dropped or changed.
- A verified user and password may be cached for a minute, under a hash keyed with a secret of this
  process.
- One copy of a user row is kept for all its sessions and cached passwords, as read in the loop
  iteration that authenticated. If another row is stored, all credentials of that user end.
  `sign_ins.py` authenticates callers.
- Code that acts for a caller calls `check_authenticated` in the loop iteration that acts: the
  session or password may have been revoked since authentication.

All times here are monotonic: a step of the wall clock neither ends nor prolongs a session.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from typing import Final, Protocol

from actors.commits.committer import NODE, Committer
from actors.execution.registry import ENDED
from protocol import limits
from protocol.environment import Clock, Rng
from protocol.errors import (
    SessionEnded,
)
from protocol.requests import (
    Caller,
    Surface,
)
from storage.catalog import users
from storage.catalog.users import User
from storage.formats.frames import Frame
from storage.records import commit_changes
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction

_SECOND_US: Final = 1_000_000
IDLE_US: Final = limits.SESSION_IDLE_SECONDS * _SECOND_US
REMEMBERED: Final = 10_000
"""Cached passwords; the oldest are evicted."""
CALLERS: Final = 256
"""Cached callers per session, one per connection: client pools have some tens."""
CALLERS_BY_PASSWORD: Final = 64
"""Cached callers per cached password. A client with a new connection for each request fills it."""
KNOWN: Final = 10_000
"""User rows kept for users without a session."""
REVOKED: Final = 10_000
"""Users whose last revocation is kept."""
UNSETTLED: Final = -1
"""Placeholder for an unreleased version of the users; never equal to a real version."""


class _Callers:
    """Callers of one credential, by surface and address.

    Clients use one credential on many connections; without this cache each switch between them
    would build a new caller.

    :param caller: the first caller of the credential
    :param most: capacity
    """

    def __init__(self, caller: Caller, most: int) -> None:
        self._caller = caller
        self._most = most
        self._by_origin = {(caller.surface, caller.address): caller}

    def at(self, surface: Surface, address: str) -> Caller:
        """Return the caller for a surface and an address."""
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
    """User row shared by all credentials of a user."""

    user: User
    passhashes: tuple[str, ...] = field(repr=False)
    """Accepted password hashes: the current one, and after a change without revocation also the
    previous one, since the new one may still be rolled back."""

    def is_stored_as(self, user: User | None) -> bool:
        """True if the stored user has the same password and privileges."""
        return user is not None and user.passhash in self.passhashes and same_user(user, self.user)

    def renew(self, passhash: str) -> None:
        """Accept another hash of the password too."""
        if passhash not in self.passhashes:
            self.passhashes = self.passhashes[-1], passhash


@dataclass(slots=True)
class _OpenSession:
    """An open session."""

    caller: Caller
    ends_us: int
    used_us: int
    users_version: int
    """Released version of the users at which the user was last found unchanged."""
    callers: _Callers = field(init=False)

    def __post_init__(self) -> None:
        self.callers = _Callers(self.caller, CALLERS)

    @property
    def name(self) -> str:
        """Name of the session, as in `Caller.session`."""
        assert self.caller.session is not None, "a session has a name"
        return self.caller.session


@dataclass(frozen=True, slots=True)
class Seen:
    """User as one read found it."""

    user: User | None
    users_version: int
    """Version of the users that was read. UNSETTLED while it is unreleased: after a full disk rolls
    it back, the same number is given to another change."""
    ticket: CommitTicket
    """Ticket of the commit that must be released before an answer that depends on this read."""

    @property
    def known(self) -> User:
        """The user, which must exist."""
        assert self.user is not None
        return self.user


@dataclass(slots=True)
class _Remembered:
    """A verified user and password."""

    user: str
    passhash: str = field(repr=False)
    ends_us: int
    users_version: int
    """Released version of the users at which the user was last found with that hash."""
    callers: _Callers
    """Callers at that version."""


class CredentialWork(Protocol):
    """Component that holds work for credentials and ends it with them."""

    def on_credential_ended(
        self, user: str, session: str | None, cut: bool, sparing: str | None
    ) -> None:
        """End the work of a credential.

        :param session: as in `Caller.session`; None: the password that comes with each request
        :param cut: True if it was ended on purpose; False: it expired, or was evicted
        :param sparing: request of the script that ended the credential, if any; it goes on
        """


class Sessions:
    """Open sessions of the node; on the loop only."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._open: OrderedDict[bytes, _OpenSession] = OrderedDict()  # longest idle first
        self._digests: dict[str, bytes] = {}
        """Token digests of the open sessions, by session name."""
        self._of_users: Counter[str] = Counter()
        """Number of open sessions by user."""
        self._known: OrderedDict[str, _Known] = OrderedDict()  # last authenticated at the end
        """Users with open sessions or cached passwords."""
        self.unreleased: set[str] = set()
        """Users that were authenticated while changes of users were unreleased."""
        self._revocations = 0
        """Number of revocations so far, of all users."""
        self._revoked: OrderedDict[str, int] = OrderedDict()
        """Number of each user's last revocation, oldest first."""
        self._revoked_before = 0
        """Last number evicted from `_revoked`; it stands for all users that are not in there."""
        self._secret = rng.bytes(32)
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self.rests: CredentialWork = _Nothing()
        """Component that ends the work of ended sessions."""

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, user: User, surface: Surface, address: str, users_version: int
    ) -> tuple[str, _OpenSession]:
        """Open a session. Return its token and the session.

        :param users_version: version of the users at which the user was read
        """
        token = urlsafe_b64encode(self._rng.bytes(limits.TOKEN_BYTES)).rstrip(b"=").decode()
        digest = token_digest(token)
        now = self._clock.monotonic_us()
        caller = caller_of(user, session_name(digest), surface, address)
        session = _OpenSession(
            caller, now + limits.SESSION_SECONDS * _SECOND_US, now, users_version
        )
        while len(self._open) >= limits.SESSIONS:
            self._make_room()
        self._learn(user)
        self._open[digest] = session
        self._digests[session.name] = digest
        self._of_users[user.name] += 1
        return token, session

    def _make_room(self) -> None:
        """End the longest idle session of the user with the most sessions.

        So a user that signs in again and again only ends its own sessions.
        """
        ((most, _),) = self._of_users.most_common(1)
        for digest, session in self._open.items():
            if session.caller.user == most:
                self._end(digest)
                return

    def use(self, token: str) -> _OpenSession:
        """Return the session of a token, and count that as use. :raises SessionEnded:"""
        return self._use(token_digest(token))

    def _use(self, digest: bytes) -> _OpenSession:
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
        """Return the caller of a token if its user was found unchanged at this version of the
        users; counts as use.

        None: ask `caller`. The result's address and surface may be those of another request of the
        session.

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
        """Return the caller of a token, as stored in the state that a transaction reads.

        For code within other work that waits for the transaction's ticket before it answers. The
        result's address and surface may be those of another request of the session.

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
        """Return the caller of a token; None if users have changed since its user was last checked.

        :param digest: `token_digest` of the token
        :param users_version: current version of the users
        :raises SessionEnded:
        """
        session = self._use(digest)
        if session.users_version != users_version:
            return None
        caller = session.caller
        if caller.address != address or caller.surface != surface:
            session.caller = caller = session.callers.at(surface, address)
        return caller

    def check(self, session: _OpenSession, user: User | None) -> None:
        """End all sessions of a session's user if another user row is stored.

        :param user: as stored now
        :raises SessionEnded:
        """
        name = session.caller.user
        if not self._known[name].is_stored_as(user):
            self.end_all(name)
            raise SessionEnded(ENDED)

    def on_user_declared(self, name: str) -> None:
        """End the credentials of an earlier user whose name is given to a new one."""
        if name in self._known:
            self.end_all(name)

    def look_at_released(self, tx: Transaction) -> None:
        """End credentials of users whose row has changed since they were authenticated against
        unreleased state."""
        names, self.unreleased = self.unreleased, set()
        for name in sorted(names):
            known = self._known.get(name)
            if known is not None and not known.is_stored_as(users.find(tx, name)):
                self.end_all(name)

    def on_user_followed(self, name: str, user: User | None, *, rehashed: bool) -> None:
        """Handle a change of a user, or of its grants, by another node: end its outdated
        credentials.

        :param user: as stored now; None: it was dropped
        :param rehashed: True if the password is the same, with a stronger hash
        """
        known = self._known.get(name)
        if known is not None and user is not None and rehashed:
            known.renew(user.passhash)
        # For an unknown user the change can't be determined, so its credentials end in any case.
        if known is None or not known.is_stored_as(user):
            self.end_all(name)

    def _learn(self, user: User) -> None:
        """Remember the row of a user that is authenticated."""
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
        """Evict the row of the user authenticated longest ago, among those without a session."""
        if len(self._known) > KNOWN + len(self._of_users):
            names = (name for name in self._known if name not in self._of_users)
            del self._known[next(names)]

    # --- whether a credential is still good -------------------------------------------------------

    def is_authenticated(self, caller: Caller) -> bool:
        """True if the session or password of a caller is neither revoked nor expired. Does not
        count as use."""
        if caller.session is not None:
            return self.is_open(caller.session)
        if caller.surface == "command":
            return True  # file access to the directory replaces a password
        return caller.credential_version >= self._revoked.get(caller.user, self._revoked_before)

    def check_authenticated(self, caller: Caller) -> None:
        """Check the credential of a caller. :raises SessionEnded: it is revoked or expired"""
        if not self.is_authenticated(caller):
            raise SessionEnded(ENDED)

    def _revoke(self, user: str) -> None:
        """Invalidate all earlier password verifications of a user."""
        self._revocations += 1
        self._revoked[user] = self._revocations
        self._revoked.move_to_end(user)
        if len(self._revoked) > REVOKED:
            _, self._revoked_before = self._revoked.popitem(last=False)

    def user_of(self, digest: bytes) -> str | None:
        """Return the user of an open session, without use of it. :param digest: as in `glance`"""
        session = self._open.get(digest)
        return None if session is None else session.caller.user

    def is_open(self, name: str) -> bool:
        """True if a session is open. :param name: as in `Caller.session`"""
        digest = self._digests.get(name)
        return digest is not None and self._clock.monotonic_us() < self._open[digest].ends_us

    def keep(self, caller: Caller) -> None:
        """Count a session as used, by work that goes on in it.

        :raises SessionEnded: as in `check_authenticated`
        """
        self.check_authenticated(caller)
        if caller.session is not None:
            digest = self._digests[caller.session]
            self._open[digest].used_us = self._clock.monotonic_us()
            self._open.move_to_end(digest)

    def end(self, token: str) -> Caller:
        """Sign out. Return the caller. :raises SessionEnded: there is no such session"""
        session = self.use(token)
        self._end(token_digest(token), cut=True)
        return session.caller

    def _end(self, digest: bytes, cut: bool = False, sparing: str | None = None) -> None:
        session = self._open.pop(digest)
        name, user = session.name, session.caller.user
        # If two sessions share a name, the end of one makes `is_open` false for the other too.
        self._digests.pop(name, None)
        self._of_users[user] -= 1
        if not self._of_users[user]:
            del self._of_users[user]
        self.rests.on_credential_ended(user, name, cut, sparing)

    def end_all(self, user: str, but: str | None = None, sparing: str | None = None) -> None:
        """End every session of a user, with its work, and forget its cached passwords.

        :param but: name of the session that goes on
        :param sparing: request that goes on although it has ended its own session
        """
        self._revoke(user)
        for digest, session in list(self._open.items()) if user in self._of_users else ():
            # The callback of one end may end another session: check that it is still open.
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
        """Accept another hash of a user's password; its sessions go on."""
        known = self._known.get(user)
        if known is not None:
            known.renew(passhash)

    def remember(self, seen: Seen, password: str, surface: Surface, address: str) -> Caller:
        """Cache a verified password. Return its caller."""
        now, remembered = self._clock.monotonic_us(), self._remembered
        user = seen.known
        self._learn(user)
        key, caller = self._key(user.name, password), self._by_password(user, surface, address)
        remembered.pop(key, None)  # reinsert at the end: entries are ordered by expiry
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
        """Return the caller of a cached password (at most a minute old) whose user is unchanged
        since; None: the user has to be read.

        :param users_version: current version of the users
        """
        found = self._remembered.get(self._key(user, password))
        if found is None or found.users_version != users_version:
            return None
        if found.ends_us <= self._clock.monotonic_us():
            return None
        caller = found.callers.at(surface, address)
        return caller if self.is_authenticated(caller) else None

    def remembers(self, seen: Seen, password: str, surface: Surface, address: str) -> Caller | None:
        """Return the caller of a cached password (at most a minute old), if it was verified against
        this very hash; else None."""
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
        """Return the caller of a user whose password was just verified."""
        caller = caller_of(user, None, surface, address)
        return replace(caller, credential_version=self._revocations)

    def _key(self, user: str, password: str) -> bytes:
        text = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        return blake2b(text, key=self._secret, digest_size=32).digest()


class _Nothing:
    """Placeholder: no work depends on credentials."""

    def on_credential_ended(
        self, user: str, session: str | None, cut: bool, sparing: str | None
    ) -> None:
        pass


def read_user(tx: Transaction, name: str) -> Seen:
    """Read a user, pending writes included."""
    user = users.find(tx, name)
    since = tx.users_version
    # `tx.saw` is at least as high as any unreleased version that the transaction has read.
    return Seen(user, since if since > tx.saw else UNSETTLED, tx.ticket)


def end_with_users(sessions: Sessions, committer: Committer) -> None:
    """End credentials when other nodes change their users. For changes by this node, the statement
    does it."""

    def look(frames: Sequence[Frame]) -> None:
        for frame in frames:
            commit = commit_changes.read(frame, (), _nothing)
            for name, row in commit.users.items():
                user = None if row is None else users.read_row(name, row)
                # The node itself never changes a password, only the hash of the same one.
                sessions.on_user_followed(name, user, rehashed=commit.how == NODE.surface)

    def look_at_released() -> None:
        if sessions.unreleased and committer.ledger.state.users_version <= committer.commit_index:
            with committer.begin_transaction() as tx:
                sessions.look_at_released(tx)

    committer.on_users_followed.append(look)
    committer.on_release_notified.append(look_at_released)


def _nothing() -> None:
    """Do not yield: all frames of one release are handled in one loop iteration."""


def same_user(one: User, other: User) -> bool:
    """True if two reads found the same user with the same privileges.

    A user that was dropped and declared again is another one, however similar.
    """
    return (one.created, one.role, one.space) == (other.created, other.role, other.space)


def caller_of(user: User, session: str | None, surface: Surface, address: str) -> Caller:
    """Return the caller of a user for a session, a surface and an address."""
    return Caller(user.name, user.role, user.space, session, surface, address)


def session_name(digest: bytes) -> str:
    """Return the name of a session, as in `Caller.session`. :param digest: `token_digest` of its
    token"""
    return digest[:6].hex()


def token_digest(token: str) -> bytes:
    """Return the key under which a token's session is kept."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
