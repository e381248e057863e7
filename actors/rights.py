"""Authorization: the only module that decides what a caller may do.

1. A name is resolved to an object only here. Statements, operations on keys and messages, and
   metrics get tables, topics, spaces, places and users from `Rights`, which authorizes the caller
   first. No other module under actors/ resolves names for a caller;
   `tests/architecture/test_rights.py` checks that.
2. An object that the caller may not see is `Unknown`, with the same message as if it were absent,
   at the outermost place that is hidden. An object that it may see but not use is `NotAllowed`;
   `detail.needs` names the missing privilege.
3. Privileges are those of the user row that the transaction reads, at each statement, not those at
   sign-in. So a changed role affects running requests, and the user row is part of the
   transaction's read set.
4. Every object that a caller is authorized for counts as touched by its transaction. Entries of
   the statement log and the audit trail record these objects. An owner sees an entry only if all
   of them are its own.

A returned object is valid for the statement that it was authorized for.

A *place* is a namespace or database, or the store.

Revocation: these enforce a REVOKE, or a dropped or altered user, on work that runs already.

| work | enforced by |
|---|---|
| a transaction that writes | the user row in its read set: `storage/txn/validation.py` |
| the next statement of a script | rule 3: `actors/scripts/execution.py` |
| operations on messages | rule 3; a wait is refused when it wakes: `actors/messages/engine.py` |
| operations on keys | the cache of privileges is cleared: `actors/spaces/access_cache.py` |
| reveals | rule 3, when the queue is committed: `actors/vaults/reveals.py` |
| feeds | `actors/feeds/hub.py` has `Feed.reauthorize` called |
| pinned snapshots | all end: `storage/txn/ledger.py` |
| sessions, cached passwords | end with their user: `actors/sessions.py`, `actors/sign_ins.py` |
| requests of an ended session | are ended: `actors/execution/registry.py` |

A priority lock never delays a revocation (`storage/txn/priority_lock.py`). A follower without news
of the leader answers only owners of the store (`actors/cluster/role.py`). A read-only transaction
that runs already ends on its snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from operator import itemgetter
from typing import Any, Final, TypeVar

from actors.entry_views import Ids, shown_inside, since
from actors.securables import SecurableObject, securable_of, told_apart
from protocol.errors import NotAllowed, SessionEnded
from protocol.requests import Caller
from protocol.rights import (
    ALL,
    INFO,
    NODE,
    NOTHING,
    OWN,
    PLACES,
    ROLES,
    STORE,
    VERBS,
    Grant,
    Securable,
    SecurableKind,
    Verbs,
    is_inside,
    needed,
)
from protocol.values import Tick, unpaced
from storage.audit.trail import LoggedEntry
from storage.catalog import analyzers, functions, replicas, spaces, tables, users
from storage.catalog import places as catalog_places
from storage.catalog.analyzers import Analyzer
from storage.catalog.functions import Function
from storage.catalog.places import Database, Namespace, absent
from storage.catalog.replicas import Replica
from storage.catalog.spaces import Space
from storage.catalog.tables import Table
from storage.catalog.users import User
from storage.topics import topics
from storage.topics.topics import Topic
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from storage.vaults.vaults import Vault

LOOKED_AT: Final = 256
"""Tables of a database that are searched for a similar name."""
COMPARED: Final = 4
"""Similar names, visible to the caller, that are compared letter by letter. Each comparison of long
names takes up to 0.6 ms without a yield."""
ALIKE: Final = 0.5
"""Minimum share of common letters (0–1) for two names to be compared."""
NEAR: Final = 0.7
"""Minimum similarity (0–1) of a name and a mistyped one; that of `persn` and `person` is 0.91."""

Judgement = tuple[Verbs, bool, tuple[Securable, ...]]
"""Result of an authorization of a user for an object:

- the verbs that the user holds on it
- True if its role, or a grant on the object or around it, makes the object visible
- otherwise the securables inside it that the user holds grants on; these may be dropped
"""

Held = TypeVar("Held", Table, Topic)
Found = TypeVar("Found", Table, Topic, Space, Function, Analyzer, Vault)

REMEMBERED_USERS: Final = 1_024
REMEMBERED_THINGS: Final = 4_096
"""Bounds of the cache: users, and objects per user."""


@dataclass(slots=True)
class Privileges:
    """Privileges of one user, valid as long as its row does not change."""

    name: str
    user: User | None
    """None for the operator and for store-wide owners."""
    all: bool = False
    """True if everything is allowed: for a store-wide owner, or the operator of the directory."""
    _known: dict[tuple[Any, ...], Judgement] = field(default_factory=dict)
    _at: dict[tuple[int, ...], list[Grant]] = field(default_factory=dict)
    """Grants of the user, by the ids of their securables; filled at the first authorization."""

    def holds(self, target: SecurableObject) -> Verbs:
        """Return the verbs that the user holds on an object."""
        return ALL if self.all else self._judged(target)[0]

    def sees(self, tx: Transaction, target: SecurableObject) -> bool:
        """True if the user holds a privilege on an object, on a place around it, or on an object
        inside it that exists. The latter is checked, since a grant may be on a dropped object."""
        if self.all:
            return True
        _, has_part, inside = self._judged(target)
        return has_part or any(_is_there(tx, securable) for securable in inside)

    def check(self, target: SecurableObject, verbs: Verbs) -> None:
        """Check that the user holds all of these verbs. :raises NotAllowed: it does not"""
        if self.all:
            return
        missing = verbs - self._judged(target)[0]
        if missing:
            raise self.refusal(needed(missing, securable_of(target)))

    def refusal(self, needs: str) -> NotAllowed:
        """Return the refusal for an object that is visible but not allowed."""
        return NotAllowed(f"{self.name} may not: {needs} is needed", needs=needs)

    def _judged(self, target: SecurableObject) -> Judgement:
        if isinstance(target, Function):
            return self._judged(target.database)
        key = told_apart(target)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED_THINGS:
                self._known.clear()
            found = self._known[key] = self._judge(securable_of(target))
        return found

    def _judge(self, securable: Securable) -> Judgement:
        user = self.user
        assert user is not None, "who may do everything is not judged"
        held: Verbs = NOTHING
        is_vault = securable.kind in (SecurableKind.VAULT, SecurableKind.VAULTS)
        if is_inside(securable.path, user.space) and (not is_vault or user.role == OWNER):
            held = ROLES[user.role]
        held |= {
            grant.verb for grant in self._about(securable) if grant.securable.covers(securable)
        }
        # A privilege on a place makes its objects visible, even one with no meaning for them.
        if held or securable.kind not in PLACES:
            return held & VERBS[securable.kind], bool(held), ()
        if ROLES[user.role] and user.space is not None and is_inside(user.space, securable.path):
            return NOTHING, True, ()
        return NOTHING, False, self._inside(securable, user)

    def _about(self, securable: Securable) -> Iterator[Grant]:
        """Return the grants that may cover an object: those on it and on the places around it.

        Not all grants are scanned: a user may hold a thousand, and /metrics authorizes thousands of
        topics.
        """
        user = self.user
        assert user is not None, "who may do everything is not judged"
        if not self._at:
            for grant in user.grants:
                self._at.setdefault(grant.securable.ids, []).append(grant)
        for depth in range(len(securable.ids) + 1):
            yield from self._at.get(securable.ids[:depth], ())

    def _inside(self, place: Securable, user: User) -> tuple[Securable, ...]:
        """Return the securables with grants of the user that lie, or lay, inside a place."""
        depth = len(place.ids)
        return tuple(
            dict.fromkeys(
                grant.securable
                for grant in user.grants
                if grant.securable.ids[:depth] == place.ids
                or (
                    grant.securable.kind is SecurableKind.VAULTS
                    and place.ids[:1] == grant.securable.ids
                )
            )
        )


OWNER: Final = "owner"


class Rights:
    """Authorizes callers and resolves the names that they use.

    Every method takes the transaction whose state decides, and the caller. `verbs` are the required
    privileges; `NOTHING`: the object must only be visible.
    """

    def __init__(self) -> None:
        self._remembered: OrderedDict[str, Privileges] = OrderedDict()

    def privileges(self, tx: Transaction, caller: Caller) -> Privileges:
        """Return the privileges of a caller. :raises SessionEnded: its user was dropped"""
        if caller.surface == "command":
            return _OPERATOR  # file access to the directory already gives full control
        user = users.find(tx, caller.user)
        if user is None:
            raise SessionEnded(f"user {caller.user} no longer exists: sign in again")
        return self.privileges_of(user)

    def privileges_of(self, user: User) -> Privileges:
        """Return the privileges of a user, given its row."""
        if user.role == OWNER and user.space is None:
            return _STORE_OWNER
        known = self._remembered.get(user.name)
        if known is None or known.user is not user:
            if known is None and len(self._remembered) >= REMEMBERED_USERS:
                self._remembered.popitem(last=False)
            known = self._remembered[user.name] = Privileges(user.name, user)
        return known

    def holds(self, tx: Transaction, caller: Caller, verbs: Verbs, target: SecurableObject) -> bool:
        """True if a caller holds all of these verbs on an object."""
        return verbs <= self.privileges(tx, caller).holds(target)

    def sees(self, tx: Transaction, caller: Caller, target: SecurableObject) -> bool:
        """True if a caller may know that an object exists."""
        return self.privileges(tx, caller).sees(tx, target)

    # --- store and node -------------------------------------------------------------------------

    def store(self, tx: Transaction, caller: Caller, verbs: Verbs) -> None:
        """Authorize an action on the store. :raises NotAllowed:"""
        tx.touch(STORE)
        self.privileges(tx, caller).check(STORE, verbs)

    def node(self, tx: Transaction, caller: Caller, verbs: Verbs) -> None:
        """Authorize an action on the node. :raises NotAllowed:"""
        tx.touch(STORE)
        self.privileges(tx, caller).check(NODE, verbs)

    def replica(self, tx: Transaction, caller: Caller, name: str, verbs: Verbs) -> Replica:
        """Return a row of the cluster by its name. :raises NotAllowed, Unknown:"""
        self.store(tx, caller, verbs)
        found = replicas.find(tx, name)
        if found is None:
            raise absent("replica", name)
        return found

    def reads_node(self, tx: Transaction, caller: Caller) -> bool:
        """True if a caller may see INFO FOR NODE."""
        return self.privileges(tx, caller).holds(NODE) >= INFO

    def owns_all(self, tx: Transaction, caller: Caller) -> bool:
        """True if a caller owns the store."""
        return self.privileges(tx, caller).holds(STORE) >= OWN

    # --- places ---------------------------------------------------------------------------------

    def namespace(self, tx: Transaction, caller: Caller, name: str, verbs: Verbs) -> Namespace:
        """Return a namespace by its name. :raises Unknown, NotAllowed:"""
        who = self.privileges(tx, caller)
        found = _namespace(tx, who, name)
        if verbs:
            tx.touch(found)
        who.check(found, verbs)
        return found

    def database(
        self, tx: Transaction, caller: Caller, namespace: str, name: str, verbs: Verbs
    ) -> Database:
        """Return a database by its names. :raises Unknown, NotAllowed:"""
        who = self.privileges(tx, caller)
        found = _database(tx, who, namespace, name)
        tx.touch(found)
        who.check(found, verbs)
        return found

    def enter(
        self, tx: Transaction, caller: Caller, namespace: Namespace, database: str | None
    ) -> None:
        """Authorize a caller to use a place, which its transaction touches from now on.

        :param database: None: the namespace itself
        :raises Unknown:
        """
        if database is None:
            tx.touch(namespace)
        else:
            self.database(tx, caller, namespace.name, database, NOTHING)

    def namespaces(self, tx: Transaction, caller: Caller, tick: Tick) -> Iterator[Namespace]:
        """Iterate over all namespaces, for a caller that may list them.

        :param tick: called for each namespace
        :raises NotAllowed:
        """
        self.store(tx, caller, INFO)
        return catalog_places.namespaces(tx, tick)

    # --- objects in a database ------------------------------------------------------------------

    def table(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Table:
        """Return a table by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, tables.find_table, "table")

    def space(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Space:
        """Return a cache space by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, spaces.find_space, "space")

    def topic(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Topic:
        """Return a topic by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, topics.find_topic, "topic")

    def function(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Function:
        """Return a function by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, functions.find, "function")

    def analyzer(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Analyzer:
        """Return an analyzer by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, analyzers.find, "analyzer")

    def vault(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Vault:
        """Return a vault by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, vaults.find, "vault")

    def vaults(self, tx: Transaction, caller: Caller) -> Iterator[Vault | None]:
        """Iterate over the vaults of the store; None is a database, or a hidden vault.

        There may be very many, and the loop can be yielded at each.
        """
        who = self.privileges(tx, caller)
        for database in _databases(tx, who, unpaced):
            yield None
            for vault in vaults.each(tx, database, unpaced):
                yield vault if who.sees(tx, vault) else None

    def vaults_in(
        self, tx: Transaction, caller: Caller, database: Database, tick: Tick
    ) -> Iterator[Vault]:
        """Iterate over the vaults of a database that a caller sees, by name.

        :param tick: called for each vault of the database
        """
        who = self.privileges(tx, caller)
        for vault in vaults.each(tx, database, tick):
            if who.sees(tx, vault):
                yield vault

    def every_vault(self, tx: Transaction) -> Iterator[Vault | None]:
        """Iterate over all vaults, for the node itself, which maintains their keys; None stands for
        each database, so that the loop can be yielded."""
        for database in catalog_places.every_database(tx, unpaced):
            yield None
            yield from vaults.each(tx, database, unpaced)

    def under_store(self, tx: Transaction) -> Iterator[Vault | None]:
        """Iterate over the vaults that the store's passphrase opens; None as in `every_vault`."""
        return filter(lambda vault: vault is None or not vault.own, self.every_vault(tx))

    def tried(self, tx: Transaction, place: Names, name: str) -> Vault | None:
        """Return the vault that a refused caller named: for its trail, never for a response."""
        namespace = catalog_places.find_namespace(tx, place[0])
        database = (
            None if namespace is None else catalog_places.find_database(tx, namespace, place[1])
        )
        return None if database is None else vaults.find(tx, database, name)

    def topics(
        self, tx: Transaction, caller: Caller, verbs: Verbs, tick: Tick
    ) -> Iterator[tuple[Database, Iterator[Topic]]]:
        """Iterate over the databases that a caller sees, each with the topics on which it holds
        these verbs.

        :param tick: called for each database and topic of the store
        """
        who = self.privileges(tx, caller)
        for database in _databases(tx, who, tick):
            yield database, _held(who, topics.each_topic(tx, database, tick), verbs)

    def tables(self, tx: Transaction, caller: Caller, verbs: Verbs, tick: Tick) -> Iterator[Table]:
        """Iterate over the tables on which a caller holds these verbs.

        :param tick: called for each database and table of the store
        """
        who = self.privileges(tx, caller)
        for database in _databases(tx, who, tick):
            yield from _held(who, tables.tables(tx, database, tick), verbs)

    def _inside(
        self,
        tx: Transaction,
        caller: Caller,
        place: Names,
        name: str,
        verbs: Verbs,
        find: Callable[[Transaction, Database, str], Found | None],
        kind: str,
    ) -> Found:
        who = self.privileges(tx, caller)
        # The resolved object is cached for this transaction, as one read that depends on all the
        # names. Visibility is checked each time; it implies that of the places around.
        at = (kind, place, name)
        known: Found | None = tx.known(at)
        if known is not None and (who.all or who.sees(tx, known)):
            if tx.place is not known.database:
                tx.touch(known.database)
            who.check(known, verbs)
            return known
        database = _database(tx, who, *place)
        tx.touch(database)
        found = find(tx, database, name)
        if found is None or not who.sees(tx, found):
            meant = _near_table(tx, who, database, name) if kind == "table" else None
            raise absent(kind, f"{database.path}.{name}", meant)
        tx.remember(at, found, *_DECLARED[type(found)](found))
        who.check(found, verbs)
        return found

    # --- users ----------------------------------------------------------------------------------

    def user(self, tx: Transaction, caller: Caller, name: str, verbs: Verbs) -> User:
        """Return a user by its name. :raises Unknown, NotAllowed:

        A user may see itself. Only owners of the place that a user belongs to may see or change it.
        """
        who = self.privileges(tx, caller)
        found = self._touched_user(tx, who, name)
        if found is None:
            raise absent("user", name)
        if verbs and not _owns(who, found):
            raise who.refusal(needed(verbs, Securable(SecurableKind.USER, (), name)))
        return found

    def _touched_user(self, tx: Transaction, who: Privileges, name: str) -> User | None:
        """Return a user if it is visible, and touch the place that it belongs to.

        Return None if there is no such user or it is hidden, and touch the store. So the owner of a
        hidden user's place does not see the refused statement, which may name any object of others.
        """
        found = users.find(tx, name)
        if found is not None and not (found is who.user or _owns(who, found)):
            found = None
        tx.touch(STORE if found is None else self._place_of(tx, found))
        return found

    def owns_user(self, tx: Transaction, caller: Caller, name: str) -> bool:
        """True if a caller owns the place that a user belongs to."""
        return _owns(self.privileges(tx, caller), users.find(tx, name))

    def users(self, tx: Transaction, caller: Caller, tick: Tick) -> list[User]:
        """Return the users that an owner owns: all of them for the store, or those that belong to
        its place.

        :param tick: called for each user of the store
        :raises NotAllowed: the caller is no owner; the result is never silently narrowed
        """
        who = self.privileges(tx, caller)
        if self._owned(tx, who) is None:
            tx.touch(STORE)
            raise who.refusal(needed(OWN, STORE))
        tx.touch(STORE if who.user is None else self._place_of(tx, who.user))
        return [user for user in users.everyone(tx, tick) if _owns(who, user)]

    def _place_of(self, tx: Transaction, user: User) -> Namespace | Database | Securable:
        """Return the place that a user belongs to."""
        if user.space is None:
            return STORE
        names = user.space.split(".")
        found: Namespace | Database | None = catalog_places.find_namespace(tx, names[0])
        if isinstance(found, Namespace) and len(names) > 1:
            found = catalog_places.find_database(tx, found, names[1])
        return STORE if found is None else found

    # --- entries of statements --------------------------------------------------------------------

    def named(
        self, tx: Transaction, caller: Caller, namespace: str | None, database: str | None
    ) -> None:
        """Touch a place that a statement names without an authorization; if it is hidden, touch the
        store.

        :param namespace: None: only the database is named, and no namespace is selected
        """
        found: Namespace | Database | None = None
        if namespace is not None:
            found = catalog_places.find_namespace(tx, namespace)
        if isinstance(found, Namespace) and database is not None:
            found = catalog_places.find_database(tx, found, database)
        tx.touch(found if found is not None and self.sees(tx, caller, found) else STORE)

    def places(self, tx: Transaction) -> tuple[Ids, ...]:
        """Return the places that a transaction has touched, in the form of an entry; see
        `Entry.places`."""
        touched = tx.touched
        if len(touched) == 1:
            (only,) = touched
            return (ids_of(only),)
        return tuple(dict.fromkeys(map(ids_of, touched))) or ((),)

    def home(self, tx: Transaction, name: str) -> tuple[Ids, ...]:
        """Return the place that a user belongs to in the form of an entry, for entries such as its
        sign-in."""
        found = users.find(tx, name)
        return (() if found is None else ids_of(self._place_of(tx, found)),)

    def of_whom(self, tx: Transaction, caller: Caller, user: str | None) -> None:
        """Touch the place of a request for entries of one user, or for all visible entries."""
        self._touched_user(tx, self.privileges(tx, caller), caller.user if user is None else user)

    def entries(self, tx: Transaction, caller: Caller, user: str | None) -> Shown:
        """Return the filter of statement log entries for a caller.

        A caller sees its own entries. An owner also sees those that touched nothing outside of its
        place.

        :param user: user whose entries are wanted; None: all
        :raises Unknown: the caller is no owner and wants the entries of another user
        """
        who = self.privileges(tx, caller)
        of_place = self._owned(tx, who)
        own = who.user if who.user is not None else users.find(tx, caller.user)
        if of_place is None and user is not None and (own is None or user != own.name):
            raise absent("user", user)
        space = None if who.user is None else who.user.space

        def shown(kept: LoggedEntry) -> LoggedEntry | None:
            if user is not None and kept.user != user:
                return None
            # A user with the name of a dropped user must not see that one's entries.
            if own is not None and kept.user == own.name and since(kept, own.created):
                return kept
            return None if of_place is None else shown_inside(of_place, space, kept)

        return shown

    def audited(self, tx: Transaction, caller: Caller) -> Shown:
        """Return the filter of audit trail entries for an owner. :raises NotAllowed: the caller is
        none"""
        who = self.privileges(tx, caller)
        of_place = self._owned(tx, who)
        if of_place is None:
            raise who.refusal(needed(OWN, STORE))
        space = None if who.user is None else who.user.space
        return lambda kept: shown_inside(of_place, space, kept)

    def _owned(self, tx: Transaction, who: Privileges) -> Ids | None:
        """Return the place that a user owns; None if it is no owner."""
        if who.all:
            return ()
        if who.user is None or who.user.role != OWNER:
            return None
        return ids_of(self._place_of(tx, who.user)) or None

    # --- securables of grants ---------------------------------------------------------------------

    def securable(
        self,
        tx: Transaction,
        caller: Caller,
        kind: SecurableKind,
        names: Sequence[str],
        verbs: Verbs,
    ) -> Securable:
        """Return the securable that a grant, or the space of a user, names.

        :param names: from the namespace down to the object's own name
        :param verbs: required privileges on the place, or on the place around the object
        :raises Unknown, NotAllowed:
        """
        if kind is SecurableKind.STORE:
            self.store(tx, caller, verbs)
            return STORE
        if kind is SecurableKind.NODE:
            self.node(tx, caller, verbs)
            return NODE
        if kind is SecurableKind.NAMESPACE or len(names) == 1:
            return _on(kind, securable_of(self.namespace(tx, caller, names[0], verbs)))
        place = (names[0], names[1])
        database = self.database(tx, caller, *place, verbs)
        if kind in (SecurableKind.DATABASE, SecurableKind.VAULTS):
            return _on(kind, securable_of(database))
        find, word = IN_DATABASE[kind], kind.value.lower()
        return securable_of(self._inside(tx, caller, place, names[2], NOTHING, find, word))

    def gone(self, tx: Transaction, user: User) -> set[Securable]:
        """Return the securables of a user's grants that no longer exist."""
        return {grant.securable for grant in user.grants if not _is_there(tx, grant.securable)}


Names = tuple[str, str]
"""Names of a namespace and of a database in it."""
Shown = Callable[[LoggedEntry], LoggedEntry | None]
"""Filter of entries: returns the visible part of an entry, or None."""

IN_DATABASE: Final[dict[SecurableKind, Callable[[Transaction, Database, str], Any]]] = {
    SecurableKind.TABLE: tables.find_table,
    SecurableKind.TOPIC: topics.find_topic,
    SecurableKind.SPACE: spaces.find_space,
    SecurableKind.VAULT: vaults.find,
}
"""Lookup by name for each kind of securable inside a database."""

_STORE_OWNER: Final = Privileges("", None, all=True)
_OPERATOR: Final = Privileges("operator", None, all=True)


def ids_of(place: object) -> Ids:
    """Return the ids of an authorized place, in the form of an entry.

    It builds no securable, since every commit calls it.
    """
    if type(place) is Database:
        return place.namespace.id, place.id
    return (place.id,) if type(place) is Namespace else ()


def _is_there(tx: Transaction, securable: Securable) -> bool:
    if securable.kind in (SecurableKind.STORE, SecurableKind.NODE):
        return True
    names = securable.path.split(".")
    found: Any = catalog_places.find_namespace(tx, names[0])
    if found is not None and len(names) > 1:
        found = catalog_places.find_database(tx, found, names[1])
    if found is not None and len(names) > 2:
        found = IN_DATABASE[securable.kind](tx, found, names[2])
    return found is not None and _on(securable.kind, securable_of(found)) == securable


def _on(kind: SecurableKind, place: Securable) -> Securable:
    """Return the securable of a place, or of all vaults in it."""
    return Securable(kind, place.ids, place.path) if kind is SecurableKind.VAULTS else place


def _owns(who: Privileges, user: User | None) -> bool:
    """True if a user is an owner of the place that another user belongs to."""
    if user is None or who.all:
        return user is not None
    owner = who.user
    if owner is None or owner.role != OWNER or owner.space is None or user.space is None:
        return False
    return is_inside(user.space, owner.space)


_DECLARED: Final[dict[type, Callable[[Any], tuple[bytes, ...]]]] = {
    Table: tables.declared_of_table, Topic: topics.declared_of_topic,
    Function: functions.declared_of_function, Vault: vaults.declared_of_vault,
    Space: spaces.declared_of_space, Analyzer: analyzers.declared_of_analyzer,
}  # fmt: skip
"""Catalog rows that the resolution of an object's names depends on."""


def _near_table(tx: Transaction, who: Privileges, database: Database, name: str) -> str | None:
    """Return the name of a visible table that is similar to an unknown one, or None."""
    letters, left = set(name), COMPARED
    shares = [
        (2 * len(letters & others) / (len(letters) + len(others)), near)
        for near in tables.table_names(tx, database, LOOKED_AT)
        if near != name
        for others in (set(near),)
    ]
    for share, near in sorted(shares, key=itemgetter(0), reverse=True):
        if share < ALIKE or not left:
            break
        found = tables.find_table(tx, database, near)
        if found is not None and who.sees(tx, found):
            if SequenceMatcher(None, near, name).ratio() >= NEAR:
                return near
            left -= 1
    return None


def _held(who: Privileges, every: Iterator[Held], verbs: Verbs) -> Iterator[Held]:
    """Iterate over the topics or tables on which a user holds these verbs."""
    for one in every:
        if verbs <= who.holds(one):
            yield one


def _databases(tx: Transaction, who: Privileges, tick: Tick) -> Iterator[Database]:
    """Iterate over the databases of the store that a user sees."""
    return catalog_places.every_database(tx, tick, lambda place: who.sees(tx, place))


def _namespace(tx: Transaction, who: Privileges, name: str) -> Namespace:
    found = catalog_places.find_namespace(tx, name)
    if found is None or not who.sees(tx, found):
        tx.touch(STORE)
        raise absent("namespace", name)
    return found


def _database(tx: Transaction, who: Privileges, namespace: str, name: str) -> Database:
    within = _namespace(tx, who, namespace)
    found = catalog_places.find_database(tx, within, name)
    if found is None or not who.sees(tx, found):
        tx.touch(within)
        raise absent("database", f"{within.path}.{name}")
    return found
