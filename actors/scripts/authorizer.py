"""Authorization of a statement: resolves the things it names, and checks the privileges on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from actors.rights import IN_DATABASE, Names, Rights
from actors.scripts.handlers import UNNAMED, RequiredPrivilege
from protocol.errors import BadRequest
from protocol.requests import Caller
from protocol.rights import READ, Securable, SecurableKind, Verbs
from storage.catalog.analyzers import Analyzer
from storage.catalog.functions import Function
from storage.catalog.spaces import Space
from storage.catalog.tables import Table
from storage.topics.topics import Topic
from storage.txn.transaction import Transaction
from storage.vaults.vaults import Vault

Place = tuple[str | None, str | None]
"""Current namespace and database of a script: their names, not yet looked up."""


def namespace_in(place: Place, name: str | None) -> str:
    """Return the namespace that a statement names, or the current one. :raises BadRequest: none is
    chosen"""
    found = name or place[0]
    if found is None:
        raise BadRequest("no namespace is chosen: name one with the request, or USE it first")
    return found


def database_in(place: Place, namespace: str | None = None, name: str | None = None) -> Names:
    """Return the names of a database, or of the current one, as `namespace_in`."""
    if name is None:
        name = place[1]
        if name is None:
            raise BadRequest("no database is chosen: name one with the request, or USE ns.db first")
    return namespace_in(place, namespace), name


class Authorizer:
    """Authorization of one caller in one transaction.

    :param place: completes names without a namespace or database
    """

    def __init__(self, rights: Rights, tx: Transaction, caller: Caller, place: Place) -> None:
        self.rights, self.tx, self.caller, self.place = rights, tx, caller, place

    # --- a statement ------------------------------------------------------------------------------

    def authorize(self, claims: Sequence[RequiredPrivilege]) -> list[Any]:
        """Return the things that a statement names, in the order of its handler's needs; None if
        not given.

        :raises Unknown, NotAllowed: see `actors.rights`
        """
        found = []
        for claim in claims:
            # Stops at the first refusal: the names after it disclose nothing.
            if claim.as_securable:
                target: Any = self._securable(claim)
            else:
                target = _RESOLVE[claim.kind](self, claim)
            if claim.is_handed and (claim.as_securable or claim.kind not in UNNAMED):
                found.append(target)
        return found

    def touch_named(self, claims: Sequence[RequiredPrivilege]) -> None:
        """Touch every namespace and database that a refused statement names: authorization stopped
        at the first refusal, but the audit entry names all of them."""
        for claim in claims:
            names: list[str | None] = [name for name in claim.names if name is not None]
            if claim.kind in IN_DATABASE:
                names = names[:-1]  # the last one is its own, the others those of its database
            if not names or claim.kind not in _PLACED:
                continue
            if len(names) == 1 and claim.kind not in (
                SecurableKind.NAMESPACE,
                SecurableKind.VAULTS,
            ):
                # A database without its namespace lies in the current one.
                names = [self.place[0], *names]
            namespace, database = (*names, None)[:2]
            self.rights.named(self.tx, self.caller, namespace, database)

    def _securable(self, claim: RequiredPrivilege) -> Securable:
        # Outer names may be left out: the current place completes them.
        names = [name for name in claim.names if name is not None]
        if claim.kind is SecurableKind.DATABASE and len(names) == 1:
            names = [*database_in(self.place, None, names[0])]
        elif claim.kind in IN_DATABASE:
            if len(names) == 1:
                names = [*database_in(self.place), *names]
            elif len(names) == 2:
                names = [namespace_in(self.place, None), *names]
        return self.rights.securable(self.tx, self.caller, claim.kind, names, claim.verbs)

    # --- things of the current database -----------------------------------------------------------

    def table(self, name: str, verbs: Verbs) -> Table:
        """Return a table, authorized. :raises Unknown, NotAllowed:"""
        return self.rights.table(self.tx, self.caller, database_in(self.place), name, verbs)

    def topic(self, name: str, verbs: Verbs) -> Topic:
        """Return a topic, authorized. :raises Unknown, NotAllowed:"""
        return self.rights.topic(self.tx, self.caller, database_in(self.place), name, verbs)

    def space(self, name: str, verbs: Verbs) -> Space:
        """Return a cache space, authorized. :raises Unknown, NotAllowed:"""
        return self.rights.space(self.tx, self.caller, database_in(self.place), name, verbs)

    def vault(self, name: str, verbs: Verbs) -> Vault:
        """Return a vault, authorized. :raises Unknown, NotAllowed:"""
        return self.rights.vault(self.tx, self.caller, database_in(self.place), name, verbs)

    def function(self, name: str, verbs: Verbs) -> Function:
        """Return a function, authorized. :raises Unknown, NotAllowed:"""
        return self.rights.function(self.tx, self.caller, database_in(self.place), name, verbs)

    def analyzer(self, name: str, verbs: Verbs) -> Analyzer:
        """Return an analyzer, authorized. :raises Unknown, NotAllowed:"""
        return self.rights.analyzer(self.tx, self.caller, database_in(self.place), name, verbs)

    def may_read(self, table: Table) -> bool:
        """True if the caller may see the content of a table's records."""
        return self.rights.holds(self.tx, self.caller, READ, table)


_PLACED: Final = frozenset(
    {SecurableKind.NAMESPACE, SecurableKind.DATABASE, SecurableKind.VAULTS, *IN_DATABASE}
)
"""Kinds that are in a namespace or database, or are one themselves."""


def _store(of: Authorizer, claim: RequiredPrivilege) -> None:
    of.rights.store(of.tx, of.caller, claim.verbs)


def _node(of: Authorizer, claim: RequiredPrivilege) -> None:
    of.rights.node(of.tx, of.caller, claim.verbs)


def _namespace(of: Authorizer, claim: RequiredPrivilege) -> Any:
    name = claim.names[0] if claim.names else None
    return of.rights.namespace(of.tx, of.caller, namespace_in(of.place, name), claim.verbs)


def _database(of: Authorizer, claim: RequiredPrivilege) -> Any:
    namespace, name = claim.names or (None, None)
    return of.rights.database(
        of.tx, of.caller, *database_in(of.place, namespace, name), claim.verbs
    )


def _user(of: Authorizer, claim: RequiredPrivilege) -> Any:
    (name,) = claim.names
    # Without a name it is about the caller.
    return of.rights.user(of.tx, of.caller, name or of.caller.user, claim.verbs)


def _replica(of: Authorizer, claim: RequiredPrivilege) -> Any:
    (name,) = claim.names
    if name is None:
        return None
    return of.rights.replica(of.tx, of.caller, name, claim.verbs)


def _in_database(
    find: Callable[[Authorizer, str, Verbs], Any],
) -> Callable[[Authorizer, RequiredPrivilege], Any]:
    def target(of: Authorizer, claim: RequiredPrivilege) -> Any:
        (name,) = claim.names
        # A thing that is not named requires nothing.
        return None if name is None else find(of, name, claim.verbs)

    return target


_RESOLVE: Final[dict[SecurableKind, Callable[[Authorizer, RequiredPrivilege], Any]]] = {
    SecurableKind.STORE: _store,
    SecurableKind.NODE: _node,
    SecurableKind.NAMESPACE: _namespace,
    SecurableKind.DATABASE: _database,
    SecurableKind.USER: _user,
    SecurableKind.REPLICA: _replica,
    SecurableKind.TABLE: _in_database(Authorizer.table),
    SecurableKind.TOPIC: _in_database(Authorizer.topic),
    SecurableKind.FUNCTION: _in_database(Authorizer.function),
    SecurableKind.ANALYZER: _in_database(Authorizer.analyzer),
    SecurableKind.SPACE: _in_database(Authorizer.space),
    SecurableKind.VAULT: _in_database(Authorizer.vault),
}
