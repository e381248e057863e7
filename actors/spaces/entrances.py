"""Who asks, for which space, and what it may do there: looked up once, remembered for all.

What is remembered was found in a state that was released, and counts for as long as no declaration
has changed since: users, spaces and grants are declarations. Whether the credential is still good
is asked each time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.commits import Committer
from actors.rights import REMEMBERED_USERS, Rights, Standing
from actors.roles import Roles
from actors.sessions import Sessions
from protocol.errors import NotASpace, Unknown
from protocol.requests import Caller
from protocol.rights import NOTHING
from storage.catalog import Space
from storage.transactions import Transaction

REMEMBERED_SPACES: Final = 10_000
"""Names of spaces of which it is remembered what they stand for."""

Names = tuple[str, str, str]
"""Of namespace, database and space."""
Who = Caller | bytes
"""A caller, or the digest of a token."""


class Entrance(NamedTuple):
    """Of a user to a space that it may see."""

    space: Space
    standing: Standing


class Entrances:
    """See the head of the file."""

    def __init__(
        self, committer: Committer, roles: Roles, sessions: Sessions, rights: Rights
    ) -> None:
        self._committer = committer
        self._roles = roles
        self._sessions = sessions
        self._rights = rights
        self._version = 0
        """Of the declarations that what is remembered was found in."""
        self._known: dict[Names, dict[str, Entrance]] = {}
        """By the names of the users."""

    def known(self, who: Who, names: Names) -> tuple[str, Entrance] | None:
        """The user that asks, and its entrance; None: look both up."""
        version = self._committer.ledger.catalog_version
        if version != self._version:
            self._known.clear()
            self._version = version
        entrances = self._known.get(names)
        if entrances is None or not self._roles.answers():
            return None
        if isinstance(who, bytes):
            caller = self._sessions.glance(who, self._committer.ledger.users_version)
            if caller is None:
                return None
        elif who.surface == "command" or not self._sessions.is_authenticated(who):
            return None  # what the operator may do is not its user's; others hear why in `caller`
        else:
            caller = who
        entrance = entrances.get(caller.user)
        return None if entrance is None else (caller.user, entrance)

    def caller(self, tx: Transaction, who: Who) -> Caller:
        """Who asks, as a transaction reads it. :raises SessionEnded:"""
        if isinstance(who, bytes):
            return self._sessions.caller(who, tx)
        self._sessions.check_authenticated(who)
        return who

    def find(self, tx: Transaction, caller: Caller, names: Names) -> Entrance:
        """The entrance of a caller, as a transaction reads it.

        :raises NotASpace: it may see no space of these names
        :raises Draining, Busy: the node answers nobody
        :raises SessionEnded: there is no such user any more
        """
        self._roles.check_answering(caller)
        namespace, database, name = names
        try:
            space = self._rights.space(tx, caller, (namespace, database), name, NOTHING)
        except Unknown:
            path = f"{namespace}.{database}.{name}"[:200]
            raise NotASpace(f"{path} is no cache space", name=path) from None
        entrance = Entrance(space, self._rights.standing(tx, caller))
        # What is in flight may be taken back, and its number given to another declaration.
        if self._version <= tx.released and caller.surface != "command":
            self._remember(names, caller.user, entrance)
        return entrance

    def _remember(self, names: Names, user: str, entrance: Entrance) -> None:
        entrances = self._known.get(names)
        if entrances is None:
            if len(self._known) >= REMEMBERED_SPACES:
                self._known.clear()
            entrances = self._known[names] = {}
        elif len(entrances) >= REMEMBERED_USERS:
            entrances.clear()
        entrances[user] = entrance
