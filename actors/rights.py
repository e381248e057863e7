"""Who may do what: the one place that judges.

1. A name becomes a thing only here. Statements, operations on keys and messages, and metrics get
   tables, topics, spaces, places and users from `Rights`, which has judged the caller first; nobody
   else in this room looks a name up for a caller. `tests/architecture/test_rights.py` holds that.
2. What a caller may not see is `Unknown`, word for word as if it were absent: from the outermost
   place on that it may not see. What it may see and not do is `NotAllowed`;
   `detail.needs` says what is missing.
3. Rights are those of the user as the transaction reads it, at each statement, not those of the
   sign-in: a changed role acts on what is under way, and the transaction rests on the user's row as
   on everything else it has read.

4. Whatever a caller is judged for, its transaction has touched: the entries of the statement log
   and the audit trail say so, and are seen by an owner only if all they touched is that owner's.

A thing that was handed out stays with the statement it was judged for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from operator import itemgetter
from typing import Any, Final, TypeVar

from actors.entry_views import Ids, shown_inside, since
from actors.nouns import Thing, noun_of, told_apart
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
    Kind,
    Noun,
    Verbs,
    is_inside,
    needed,
)
from protocol.values import Tick, unpaced
from storage import catalog, functions, replicas, topics, users, vaults
from storage.catalog import Database, Namespace, Space, Table, absent
from storage.functions import Function
from storage.replicas import Replica
from storage.statements import Kept
from storage.topics import Topic
from storage.transactions import Transaction
from storage.users import User
from storage.vaults import Vault

LOOKED_AT: Final = 256
"""Tables of a database among which one of a near name is looked for."""
COMPARED: Final = 4
"""Of those that the caller sees, names compared letter by letter: of long names each takes up to
0.6 ms, in one go."""
ALIKE: Final = 0.5
"""Least share of letters that two names have in common for these to be compared."""
NEAR: Final = 0.7
"""Least likeness of a name and a mistyped one: that of `persn` and `person` is 0.91."""

Judgement = tuple[Verbs, bool, tuple[Noun, ...]]
"""Of somebody and a thing: the verbs it holds on it; whether it sees it by its role, or by a grant
on it or around it; and where neither, what it holds anything on in it, which may be no more."""

Found = TypeVar("Found", Table, Topic, Space, Function, Vault)

REMEMBERED_USERS: Final = 1_024
REMEMBERED_THINGS: Final = 4_096
"""Of whom, and of how many things each, it is remembered what they hold."""


@dataclass(slots=True)
class Standing:
    """What one user holds, as long as its row does not change."""

    name: str
    user: User | None
    """None of whoever opened the directory."""
    all: bool = False
    """Whether it may do everything: a store-wide owner, or whoever opened the directory."""
    _known: dict[tuple[Any, ...], Judgement] = field(default_factory=dict)
    _at: dict[tuple[int, ...], list[Grant]] = field(default_factory=dict)
    """Its grants, by the ids of what they are on, once something was judged."""

    def holds(self, thing: Thing) -> Verbs:
        """The verbs that it holds on something."""
        return ALL if self.all else self._judged(thing)[0]

    def sees(self, tx: Transaction, thing: Thing) -> bool:
        """Whether it holds anything on it, on a place around it, or on something in it that a
        transaction finds there: a grant may be on what was dropped."""
        if self.all:
            return True
        _, has_part, inside = self._judged(thing)
        return has_part or any(_is_there(tx, noun) for noun in inside)

    def check(self, thing: Thing, verbs: Verbs) -> None:
        """:raises NotAllowed: it does not hold all of these verbs"""
        if self.all:
            return
        missing = verbs - self._judged(thing)[0]
        if missing:
            raise self.refusal(needed(missing, noun_of(thing)))

    def refusal(self, needs: str) -> NotAllowed:
        """The refusal of what it may see and not do."""
        return NotAllowed(f"{self.name} may not: {needs} is needed", needs=needs)

    def _judged(self, thing: Thing) -> Judgement:
        if isinstance(thing, Function):
            return self._judged(thing.database)
        key = told_apart(thing)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED_THINGS:
                self._known.clear()
            found = self._known[key] = self._judge(noun_of(thing))
        return found

    def _judge(self, noun: Noun) -> Judgement:
        user = self.user
        assert user is not None, "who may do everything is not judged"
        held: Verbs = NOTHING
        is_vault = noun.kind in (Kind.VAULT, Kind.VAULTS)
        if is_inside(noun.path, user.space) and (not is_vault or user.role == OWNER):
            held = ROLES[user.role]
        held |= {grant.verb for grant in self._about(noun) if grant.noun.covers(noun)}
        # What is held on a place shows what is in it, whether or not it means anything there.
        if held or noun.kind not in PLACES:
            return held & VERBS[noun.kind], bool(held), ()
        if ROLES[user.role] and user.space is not None and is_inside(user.space, noun.path):
            return NOTHING, True, ()
        return NOTHING, False, self._inside(noun, user)

    def _about(self, noun: Noun) -> Iterator[Grant]:
        """Those of its grants that may cover something: on it, and on the places around it. A user
        may hold a thousand, and figures are judged of thousands of topics."""
        user = self.user
        assert user is not None, "who may do everything is not judged"
        if not self._at:
            for grant in user.grants:
                self._at.setdefault(grant.noun.ids, []).append(grant)
        for depth in range(len(noun.ids) + 1):
            yield from self._at.get(noun.ids[:depth], ())

    def _inside(self, place: Noun, user: User) -> tuple[Noun, ...]:
        """What it holds anything on that lies, or lay, in a place."""
        depth = len(place.ids)
        return tuple(
            dict.fromkeys(
                grant.noun
                for grant in user.grants
                if grant.noun.ids[:depth] == place.ids
                or (grant.noun.kind is Kind.VAULTS and place.ids[:1] == grant.noun.ids)
            )
        )


OWNER: Final = "owner"


class Rights:
    """Judges callers and hands out what they name.

    Every method takes the transaction whose state is judged, and the caller. `verbs` is what it
    needs; `NOTHING`: it must be able to see it.
    """

    def __init__(self) -> None:
        self._standings: OrderedDict[str, Standing] = OrderedDict()

    def standing(self, tx: Transaction, caller: Caller) -> Standing:
        """What a caller holds. :raises SessionEnded: its user is no more"""
        if caller.surface == "command":
            return _OPERATOR  # whoever may open the directory may do everything
        user = users.find(tx, caller.user)
        if user is None:
            raise SessionEnded(f"there is no user {caller.user} any more: sign in again")
        return self.standing_of(user)

    def standing_of(self, user: User) -> Standing:
        """What a user holds whose row this is."""
        if user.role == OWNER and user.space is None:
            return _STORE_OWNER
        known = self._standings.get(user.name)
        if known is None or known.user is not user:
            if known is None and len(self._standings) >= REMEMBERED_USERS:
                self._standings.popitem(last=False)
            known = self._standings[user.name] = Standing(user.name, user)
        return known

    def holds(self, tx: Transaction, caller: Caller, verbs: Verbs, thing: Thing) -> bool:
        """Whether a caller holds all of these verbs on something."""
        return verbs <= self.standing(tx, caller).holds(thing)

    def sees(self, tx: Transaction, caller: Caller, thing: Thing) -> bool:
        """Whether a caller may know that something is there."""
        return self.standing(tx, caller).sees(tx, thing)

    # --- what has no name -----------------------------------------------------------------------

    def store(self, tx: Transaction, caller: Caller, verbs: Verbs) -> None:
        """:raises NotAllowed:"""
        tx.touch(STORE)
        self.standing(tx, caller).check(STORE, verbs)

    def node(self, tx: Transaction, caller: Caller, verbs: Verbs) -> None:
        """:raises NotAllowed:"""
        tx.touch(STORE)
        self.standing(tx, caller).check(NODE, verbs)

    def replica(self, tx: Transaction, caller: Caller, name: str, verbs: Verbs) -> Replica:
        """A row of the cluster by its name. :raises NotAllowed, Unknown:"""
        self.store(tx, caller, verbs)
        found = replicas.find(tx, name)
        if found is None:
            raise absent("replica", name)
        return found

    def reads_node(self, tx: Transaction, caller: Caller) -> bool:
        """Whether a caller may have what INFO FOR NODE shows."""
        return self.standing(tx, caller).holds(NODE) >= INFO

    def owns_all(self, tx: Transaction, caller: Caller) -> bool:
        """Whether a caller owns the store."""
        return self.standing(tx, caller).holds(STORE) >= OWN

    # --- places ---------------------------------------------------------------------------------

    def namespace(self, tx: Transaction, caller: Caller, name: str, verbs: Verbs) -> Namespace:
        """A namespace by its name. :raises Unknown, NotAllowed:"""
        who = self.standing(tx, caller)
        found = _namespace(tx, who, name)
        if verbs:
            tx.touch(found)
        who.check(found, verbs)
        return found

    def database(
        self, tx: Transaction, caller: Caller, namespace: str, name: str, verbs: Verbs
    ) -> Database:
        """A database by its names. :raises Unknown, NotAllowed:"""
        who = self.standing(tx, caller)
        found = _database(tx, who, namespace, name)
        tx.touch(found)
        who.check(found, verbs)
        return found

    def enter(
        self, tx: Transaction, caller: Caller, namespace: Namespace, database: str | None
    ) -> None:
        """Let a caller stand in a place, which its transaction has to do with from now on.

        :param database: None: in the namespace itself
        :raises Unknown:
        """
        if database is None:
            tx.touch(namespace)
        else:
            self.database(tx, caller, namespace.name, database, NOTHING)

    def namespaces(self, tx: Transaction, caller: Caller, tick: Tick) -> Iterator[Namespace]:
        """All namespaces, to whom may have all of them listed.

        :param tick: called for each
        :raises NotAllowed:
        """
        self.store(tx, caller, INFO)
        return catalog.namespaces(tx, tick)

    # --- what stands in a database --------------------------------------------------------------

    def table(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Table:
        """A table by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, catalog.find_table, "table")

    def space(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Space:
        """A cache space by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, catalog.find_space, "space")

    def topic(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Topic:
        """A topic by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, topics.find_topic, "topic")

    def function(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Function:
        """A function by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, functions.find, "function")

    def vault(
        self, tx: Transaction, caller: Caller, place: Names, name: str, verbs: Verbs
    ) -> Vault:
        """A vault by its name. :raises Unknown, NotAllowed:"""
        return self._inside(tx, caller, place, name, verbs, vaults.find, "vault")

    def vaults(self, tx: Transaction, caller: Caller) -> Iterator[Vault | None]:
        """Every vault of the store that a caller sees, and None for those it doesn't and for each
        database: there may be very many, and whoever goes through them may pause at each."""
        who = self.standing(tx, caller)
        for database in _databases(tx, who, unpaced):
            yield None
            for vault in vaults.each(tx, database, unpaced):
                yield vault if who.sees(tx, vault) else None

    def vaults_in(
        self, tx: Transaction, caller: Caller, database: Database, tick: Tick
    ) -> Iterator[Vault]:
        """Iterate over the vaults of a database that a caller sees, by name.

        :param tick: called for each there is
        """
        who = self.standing(tx, caller)
        for vault in vaults.each(tx, database, tick):
            if who.sees(tx, vault):
                yield vault

    def every_vault(self, tx: Transaction) -> Iterator[Vault | None]:
        """Every vault there is, and None for each database: for the node itself, which looks after
        their keys, and may pause at each."""
        for database in catalog.every_database(tx, unpaced):
            yield None
            yield from vaults.each(tx, database, unpaced)

    def under_store(self, tx: Transaction) -> Iterator[Vault | None]:
        """Those that the store's passphrase opens, and None as `every_vault`."""
        return filter(lambda vault: vault is None or not vault.own, self.every_vault(tx))

    def tried(self, tx: Transaction, place: Names, name: str) -> Vault | None:
        """The vault that somebody named who was turned away: for its trail, never for an
        answer."""
        namespace = catalog.find_namespace(tx, place[0])
        database = None if namespace is None else catalog.find_database(tx, namespace, place[1])
        return None if database is None else vaults.find(tx, database, name)

    def topics(
        self, tx: Transaction, caller: Caller, verbs: Verbs, tick: Tick
    ) -> Iterator[tuple[Database, Iterator[Topic]]]:
        """The databases of the store that a caller sees, each with those of its topics on which it
        holds these verbs. :param tick: called for each database and topic there is"""
        who = self.standing(tx, caller)
        for database in _databases(tx, who, tick):
            yield database, _held(who, topics.each_topic(tx, database, tick), verbs)

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
        who = self.standing(tx, caller)
        # What the names lead to is remembered as one look-up, which rests on all of them; whether
        # the caller may see it is asked each time. Who does sees the places around it too.
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
        """A user by its name. A user may see itself; another one is seen, and may be changed, by
        an owner of the place it belongs to. :raises Unknown, NotAllowed:"""
        who = self.standing(tx, caller)
        found = self._touched_user(tx, who, name)
        if found is None:
            raise absent("user", name)
        if verbs and not _owns(who, found):
            raise who.refusal(needed(verbs, Noun(Kind.USER, (), name)))
        return found

    def _touched_user(self, tx: Transaction, who: Standing, name: str) -> User | None:
        """A user whom somebody sees, and the place that it belongs to is touched; None: there is
        none of that name, or a hidden one. For the owner of that one's place a statement that was
        refused so is somebody else's, and may name anything else of theirs."""
        found = users.find(tx, name)
        if found is not None and not (found is who.user or _owns(who, found)):
            found = None
        tx.touch(STORE if found is None else self._place_of(tx, found))
        return found

    def owns_user(self, tx: Transaction, caller: Caller, name: str) -> bool:
        """Whether a caller owns the place that a user belongs to."""
        return _owns(self.standing(tx, caller), users.find(tx, name))

    def users(self, tx: Transaction, caller: Caller, tick: Tick) -> list[User]:
        """All users that an owner owns: of the store all, of a place those that belong to it.

        :param tick: called for each user there is
        :raises NotAllowed: refused to everybody else, never narrowed
        """
        who = self.standing(tx, caller)
        if self._owned(tx, who) is None:
            tx.touch(STORE)
            raise who.refusal(needed(OWN, STORE))
        tx.touch(STORE if who.user is None else self._place_of(tx, who.user))
        return [user for user in users.everyone(tx, tick) if _owns(who, user)]

    def _place_of(self, tx: Transaction, user: User) -> Namespace | Database | Noun:
        """What a user belongs to."""
        if user.space is None:
            return STORE
        names = user.space.split(".")
        found: Namespace | Database | None = catalog.find_namespace(tx, names[0])
        if isinstance(found, Namespace) and len(names) > 1:
            found = catalog.find_database(tx, found, names[1])
        return STORE if found is None else found

    # --- what is kept of statements ---------------------------------------------------------------

    def named(
        self, tx: Transaction, caller: Caller, namespace: str | None, database: str | None
    ) -> None:
        """Let a transaction touch a place that is named and that nobody was judged for: the store,
        where the caller does not see it.

        :param namespace: None: the database is named alone, where no namespace is chosen
        """
        found: Namespace | Database | None = None
        if namespace is not None:
            found = catalog.find_namespace(tx, namespace)
        if isinstance(found, Namespace) and database is not None:
            found = catalog.find_database(tx, found, database)
        tx.touch(found if found is not None and self.sees(tx, caller, found) else STORE)

    def places(self, tx: Transaction) -> tuple[Ids, ...]:
        """All that a transaction has touched, as an entry says it; see `Entry.places`."""
        touched = tx.touched
        if len(touched) == 1:
            (only,) = touched
            return (ids_of(only),)
        return tuple(dict.fromkeys(map(ids_of, touched))) or ((),)

    def home(self, tx: Transaction, name: str) -> tuple[Ids, ...]:
        """The same of what is done with a user itself, as it signs in."""
        found = users.find(tx, name)
        return (() if found is None else ids_of(self._place_of(tx, found)),)

    def of_whom(self, tx: Transaction, caller: Caller, user: str | None) -> None:
        """Let a transaction touch what entries are asked for in: those of one user, or all that the
        caller may see."""
        self._touched_user(tx, self.standing(tx, caller), caller.user if user is None else user)

    def entries(self, tx: Transaction, caller: Caller, user: str | None) -> Shown:
        """What a caller may see of entries of the statement log: its own, and an owner those that
        touched nothing outside of its place.

        :param user: of whom; None: of everybody
        :raises Unknown: somebody who is no owner asks for another's
        """
        who = self.standing(tx, caller)
        of_place = self._owned(tx, who)
        own = who.user if who.user is not None else users.find(tx, caller.user)
        if of_place is None and user is not None and (own is None or user != own.name):
            raise absent("user", user)
        space = None if who.user is None else who.user.space

        def shown(kept: Kept) -> Kept | None:
            if user is not None and kept.user != user:
                return None
            # A user who has the name of one that was dropped is another.
            if own is not None and kept.user == own.name and since(kept, own.created):
                return kept
            return None if of_place is None else shown_inside(of_place, space, kept)

        return shown

    def audited(self, tx: Transaction, caller: Caller) -> Shown:
        """What a caller may see of entries of the audit trail. :raises NotAllowed: it is no
        owner"""
        who = self.standing(tx, caller)
        of_place = self._owned(tx, who)
        if of_place is None:
            raise who.refusal(needed(OWN, STORE))
        space = None if who.user is None else who.user.space
        return lambda kept: shown_inside(of_place, space, kept)

    def _owned(self, tx: Transaction, who: Standing) -> Ids | None:
        """The place that somebody owns; None: it is no owner."""
        if who.all:
            return ()
        if who.user is None or who.user.role != OWNER:
            return None
        return ids_of(self._place_of(tx, who.user)) or None

    # --- what a grant is on -----------------------------------------------------------------------

    def noun(
        self, tx: Transaction, caller: Caller, kind: Kind, names: Sequence[str], verbs: Verbs
    ) -> Noun:
        """What a grant, or the space of a user, is on.

        :param names: from the namespace down to its own
        :param verbs: what the caller needs of the place that it lies in, or that it is
        :raises Unknown, NotAllowed:
        """
        if kind is Kind.STORE:
            self.store(tx, caller, verbs)
            return STORE
        if kind is Kind.NODE:
            self.node(tx, caller, verbs)
            return NODE
        if kind is Kind.NAMESPACE or len(names) == 1:
            return _on(kind, noun_of(self.namespace(tx, caller, names[0], verbs)))
        place = (names[0], names[1])
        database = self.database(tx, caller, *place, verbs)
        if kind in (Kind.DATABASE, Kind.VAULTS):
            return _on(kind, noun_of(database))
        find, word = IN_DATABASE[kind], kind.value.lower()
        return noun_of(self._inside(tx, caller, place, names[2], NOTHING, find, word))

    def gone(self, tx: Transaction, user: User) -> set[Noun]:
        """What a user has grants on that is no more."""
        return {grant.noun for grant in user.grants if not _is_there(tx, grant.noun)}


Names = tuple[str, str]
"""Of a namespace and a database in it."""
Shown = Callable[[Kept], Kept | None]
"""What somebody may see of an entry; None: nothing."""

IN_DATABASE: Final[dict[Kind, Callable[[Transaction, Database, str], Any]]] = {
    Kind.TABLE: catalog.find_table,
    Kind.TOPIC: topics.find_topic,
    Kind.SPACE: catalog.find_space,
    Kind.VAULT: vaults.find,
}
"""What a right may be on that stands in a database, and what finds it by its name."""

_STORE_OWNER: Final = Standing("", None, all=True)
_OPERATOR: Final = Standing("operator", None, all=True)


def ids_of(place: object) -> Ids:
    """A place that was judged, as an entry says it: the ids of its noun, without the noun, for
    every change of the store asks."""
    if type(place) is Database:
        return place.namespace.id, place.id
    return (place.id,) if type(place) is Namespace else ()


def _is_there(tx: Transaction, noun: Noun) -> bool:
    if noun.kind in (Kind.STORE, Kind.NODE):
        return True
    names = noun.path.split(".")
    found: Any = catalog.find_namespace(tx, names[0])
    if found is not None and len(names) > 1:
        found = catalog.find_database(tx, found, names[1])
    if found is not None and len(names) > 2:
        found = IN_DATABASE[noun.kind](tx, found, names[2])
    return found is not None and _on(noun.kind, noun_of(found)) == noun


def _on(kind: Kind, place: Noun) -> Noun:
    """A place as a noun, or all vaults in it."""
    return Noun(kind, place.ids, place.path) if kind is Kind.VAULTS else place


def _owns(who: Standing, user: User | None) -> bool:
    """Whether somebody owns the place that a user belongs to."""
    if user is None or who.all:
        return user is not None
    owner = who.user
    if owner is None or owner.role != OWNER or owner.space is None or user.space is None:
        return False
    return is_inside(user.space, owner.space)


_DECLARED: Final[dict[type, Callable[[Any], tuple[bytes, ...]]]] = {
    Table: catalog.declared_of_table, Topic: topics.declared_of_topic,
    Function: functions.declared_of_function, Vault: vaults.declared_of_vault,
    Space: catalog.declared_of_space,
}  # fmt: skip
"""What the way by names to something rests on."""


def _near_table(tx: Transaction, who: Standing, database: Database, name: str) -> str | None:
    """Return the name of a table that somebody sees, which is near to one that it sees no table
    of; None: there is none."""
    letters, left = set(name), COMPARED
    shares = [
        (2 * len(letters & others) / (len(letters) + len(others)), near)
        for near in catalog.table_names(tx, database, LOOKED_AT)
        if near != name
        for others in (set(near),)
    ]
    for share, near in sorted(shares, key=itemgetter(0), reverse=True):
        if share < ALIKE or not left:
            break
        found = catalog.find_table(tx, database, near)
        if found is not None and who.sees(tx, found):
            if SequenceMatcher(None, near, name).ratio() >= NEAR:
                return near
            left -= 1
    return None


def _held(who: Standing, every: Iterator[Topic], verbs: Verbs) -> Iterator[Topic]:
    """The topics on which somebody holds these verbs."""
    for topic in every:
        if verbs <= who.holds(topic):
            yield topic


def _databases(tx: Transaction, who: Standing, tick: Tick) -> Iterator[Database]:
    """The databases of the store that somebody sees."""
    return catalog.every_database(tx, tick, lambda place: who.sees(tx, place))


def _namespace(tx: Transaction, who: Standing, name: str) -> Namespace:
    found = catalog.find_namespace(tx, name)
    if found is None or not who.sees(tx, found):
        tx.touch(STORE)
        raise absent("namespace", name)
    return found


def _database(tx: Transaction, who: Standing, namespace: str, name: str) -> Database:
    within = _namespace(tx, who, namespace)
    found = catalog.find_database(tx, within, name)
    if found is None or not who.sees(tx, found):
        tx.touch(within)
        raise absent("database", f"{within.path}.{name}")
    return found
