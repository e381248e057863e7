"""Cache of spaces and privileges by user.

Entries come from released state, and are valid until a declaration changes: users, spaces and
grants are declarations. The credential is checked on each request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.commits.committer import Committer
from actors.rights import REMEMBERED_USERS, Privileges, Rights
from actors.roles import Roles
from actors.sessions import Sessions
from protocol.errors import NotASpace, Unknown
from protocol.requests import Caller
from protocol.rights import NOTHING
from storage.catalog.spaces import Space
from storage.txn.transaction import Transaction

REMEMBERED_SPACES: Final = 10_000
"""Most names of spaces in the cache."""

Names = tuple[str, str, str]
"""Names of namespace, database and space."""
CallerOrToken = Caller | bytes
"""A caller, or the digest of a token."""


class SpaceAccess(NamedTuple):
    """A space that a user may see, with the user's privileges."""

    space: Space
    privileges: Privileges


class SpaceAccessCache:
    """Resolves a credential and names to a space and privileges; caches the result."""

    def __init__(
        self, committer: Committer, roles: Roles, sessions: Sessions, rights: Rights
    ) -> None:
        self._committer = committer
        self._roles = roles
        self._sessions = sessions
        self._rights = rights
        self._version = 0
        """Version of the declarations that the cached entries were read at."""
        self._known: dict[Names, dict[str, SpaceAccess]] = {}
        """Cached entries by space, then by user name."""

    def known(self, who: CallerOrToken, names: Names) -> tuple[str, SpaceAccess] | None:
        """Return the caller's user and entry, if cached; None: look both up."""
        version = self._committer.ledger.state.catalog_version
        # Any declaration drops all entries: it may change any privilege.
        if version != self._version:
            self._known.clear()
            self._version = version
        access_cache = self._known.get(names)
        # A node that may not answer takes the long way, which raises its reason.
        if access_cache is None or not self._roles.answers():
            return None
        if isinstance(who, bytes):
            caller = self._sessions.glance(who, self._committer.ledger.state.users_version)
            if caller is None:
                return None
        elif who.surface == "command" or not self._sessions.is_authenticated(who):
            return None  # the operator's privileges are not its user's; `caller` refuses others
        else:
            caller = who
        entrance = access_cache.get(caller.user)
        return None if entrance is None else (caller.user, entrance)

    def caller(self, tx: Transaction, who: CallerOrToken) -> Caller:
        """Return the caller, as a transaction reads it. :raises SessionEnded:"""
        if isinstance(who, bytes):
            return self._sessions.caller(who, tx)
        self._sessions.check_authenticated(who)
        return who

    def find(self, tx: Transaction, caller: Caller, names: Names) -> SpaceAccess:
        """Return the entry of a caller, as a transaction reads it.

        :raises NotASpace: it may see no space of these names
        :raises Draining, Busy: the node answers no caller
        :raises SessionEnded: the user no longer exists
        """
        self._roles.check_answering(caller)
        namespace, database, name = names
        try:
            space = self._rights.space(tx, caller, (namespace, database), name, NOTHING)
        # Hidden and absent spaces get one answer, so names are not disclosed. The path is cut,
        # since the client chose its length.
        except Unknown:
            path = f"{namespace}.{database}.{name}"[:200]
            raise NotASpace(f"{path} is not a cache space", name=path) from None
        entrance = SpaceAccess(space, self._rights.privileges(tx, caller))
        # A pending commit may be rolled back, and its version given to another declaration.
        if self._version <= tx.released and caller.surface != "command":
            self._remember(names, caller.user, entrance)
        return entrance

    def _remember(self, names: Names, user: str, entrance: SpaceAccess) -> None:
        access_cache = self._known.get(names)
        if access_cache is None:
            if len(self._known) >= REMEMBERED_SPACES:
                self._known.clear()
            access_cache = self._known[names] = {}
        elif len(access_cache) >= REMEMBERED_USERS:
            access_cache.clear()
        access_cache[user] = entrance
