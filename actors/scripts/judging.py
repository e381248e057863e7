"""Authorization of a statement: resolves the things it names, and checks the privileges on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from actors.rights import IN_DATABASE
from actors.scripts.handlers import UNNAMED, RequiredPrivilege
from protocol.rights import Securable, SecurableKind

if TYPE_CHECKING:
    from actors.scripts.execution import Execution


def authorize(run: Execution, claims: Sequence[RequiredPrivilege]) -> list[Any]:
    """Return the things that a statement names, in the order of its handler's needs; None if not
    given.

    :raises Unknown, NotAllowed: see `actors.rights`
    """
    found = []
    for claim in claims:
        # Stops at the first refusal: the names after it disclose nothing.
        target = _securable(run, claim) if claim.as_securable else _JUDGE[claim.kind](run, claim)
        if claim.is_handed and (claim.as_securable or claim.kind not in UNNAMED):
            found.append(target)
    return found


def touch_named(run: Execution, claims: Sequence[RequiredPrivilege]) -> None:
    """Touch every namespace and database that a refused statement names: authorization stopped at
    the first refusal, but the audit entry names all of them."""
    for claim in claims:
        names: list[str | None] = [name for name in claim.names if name is not None]
        if claim.kind in IN_DATABASE:
            names = names[:-1]  # the last one is its own, the others those of its database
        if not names or claim.kind not in _PLACED:
            continue
        if len(names) == 1 and claim.kind not in (SecurableKind.NAMESPACE, SecurableKind.VAULTS):
            # A database without its namespace lies in the current one.
            names = [run.place[0], *names]
        namespace, database = (*names, None)[:2]
        run.rights.named(run.transaction, run.caller, namespace, database)


_PLACED: Final = frozenset(
    {SecurableKind.NAMESPACE, SecurableKind.DATABASE, SecurableKind.VAULTS, *IN_DATABASE}
)
"""Kinds that are in a namespace or database, or are one themselves."""


def _securable(run: Execution, claim: RequiredPrivilege) -> Securable:
    # Outer names may be left out: the current place completes them.
    names = [name for name in claim.names if name is not None]
    if claim.kind is SecurableKind.DATABASE and len(names) == 1:
        names = [*run.database_of(None, names[0])]
    elif claim.kind in IN_DATABASE:
        if len(names) == 1:
            names = [*run.names(), *names]
        elif len(names) == 2:
            names = [run.namespace_of(None), *names]
    return run.rights.securable(run.transaction, run.caller, claim.kind, names, claim.verbs)


def _store(run: Execution, claim: RequiredPrivilege) -> None:
    run.rights.store(run.transaction, run.caller, claim.verbs)


def _node(run: Execution, claim: RequiredPrivilege) -> None:
    run.rights.node(run.transaction, run.caller, claim.verbs)


def _namespace(run: Execution, claim: RequiredPrivilege) -> Any:
    name = claim.names[0] if claim.names else None
    return run.rights.namespace(run.transaction, run.caller, run.namespace_of(name), claim.verbs)


def _database(run: Execution, claim: RequiredPrivilege) -> Any:
    namespace, name = claim.names or (None, None)
    return run.rights.database(
        run.transaction, run.caller, *run.database_of(namespace, name), claim.verbs
    )


def _user(run: Execution, claim: RequiredPrivilege) -> Any:
    (name,) = claim.names
    # Without a name it is about the caller.
    return run.rights.user(run.transaction, run.caller, name or run.caller.user, claim.verbs)


def _replica(run: Execution, claim: RequiredPrivilege) -> Any:
    (name,) = claim.names
    if name is None:
        return None
    return run.rights.replica(run.transaction, run.caller, name, claim.verbs)


def _in_database(
    judge: Callable[[Execution, str, Any], Any],
) -> Callable[[Execution, RequiredPrivilege], Any]:
    def target(run: Execution, claim: RequiredPrivilege) -> Any:
        (name,) = claim.names
        # A thing that is not named requires nothing.
        return None if name is None else judge(run, name, claim.verbs)

    return target


_JUDGE: Final[dict[SecurableKind, Callable[[Execution, RequiredPrivilege], Any]]] = {
    SecurableKind.STORE: _store,
    SecurableKind.NODE: _node,
    SecurableKind.NAMESPACE: _namespace,
    SecurableKind.DATABASE: _database,
    SecurableKind.USER: _user,
    SecurableKind.REPLICA: _replica,
    SecurableKind.TABLE: _in_database(lambda run, name, verbs: run.table(name, verbs)),
    SecurableKind.TOPIC: _in_database(lambda run, name, verbs: run.topic(name, verbs)),
    SecurableKind.FUNCTION: _in_database(lambda run, name, verbs: run.function(name, verbs)),
    SecurableKind.ANALYZER: _in_database(lambda run, name, verbs: run.analyzer_row(name, verbs)),
    SecurableKind.SPACE: _in_database(lambda run, name, verbs: run.space(name, verbs)),
    SecurableKind.VAULT: _in_database(lambda run, name, verbs: run.vault(name, verbs)),
}
