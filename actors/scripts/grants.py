"""GRANT, REVOKE, and INFO FOR GRANTS."""

from __future__ import annotations

from collections.abc import Iterable

from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, RequiresOnSecurable, handles, informs
from language import tree
from protocol.errors import BadRequest, GrantOutsideSpace, Unknown
from protocol.rights import (
    NOTHING,
    OWN,
    ROLES,
    STORE,
    VERBS,
    Securable,
    SecurableKind,
    Verb,
    Verbs,
    is_inside,
)
from protocol.values import NONE, Value
from storage.catalog import users
from storage.catalog.users import User


@handles(
    tree.Grant,
    "none",
    writes=True,
    # Both sides: without OWN of the securable, a caller could hand out more than it holds.
    needs=[Requires(OWN, SecurableKind.USER, ("user",)), RequiresOnSecurable(OWN)],
    audited=True,
)
def grant(run: Execution, statement: tree.Grant, user: User, securable: Securable) -> Value:
    """Grant a user privileges on a securable, in addition to those it has.

    :raises Unknown: there is no such privilege
    :raises BadRequest: the privilege does not apply to that kind of securable
    :raises GrantOutsideSpace: the securable lies outside the user's space
    """
    verbs = _verbs(statement, securable)
    # A user of a space gets nothing outside of it, whoever grants.
    if not is_inside(securable.path, user.space):
        raise GrantOutsideSpace(
            f"user {user.name} belongs to {user.space}: privileges outside of it cannot be granted",
            user=user.name,
            space=user.space,
        )
    tx = run.transaction
    # Grants on dropped objects go first: they would count against the bound of grants.
    users.grant(tx, users.forget(tx, user, run.rights.gone(tx, user)), verbs, securable)
    return NONE


@handles(
    tree.Revoke,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.USER, ("user",)), RequiresOnSecurable(OWN)],
    audited=True,
)
def revoke(run: Execution, statement: tree.Revoke, user: User, securable: Securable) -> Value:
    """Revoke privileges granted on exactly that securable; those of a role, or of a grant on an
    enclosing namespace or database, stay. Revoking nothing is no error."""
    # The changed user row ends running work: see the table in `actors/rights.py`.
    users.revoke(run.transaction, user, _verbs(statement, securable), securable)
    return NONE


@informs("GRANTS", needs=[Requires(NOTHING, SecurableKind.USER, (0,))])
def info_for_grants(run: Execution, statement: tree.Info, user: User) -> Value:
    """Return a user's privileges and their source: its role, or grants. A user may always see its
    own."""
    found: list[Value] = []
    role = ROLES[user.role]
    if role:
        found.append(_held(role - {Verb.OWN}, _space(user), f"role {user.role}"))
    # Grants on dropped objects may stay in the row until the next GRANT.
    gone = run.rights.gone(run.transaction, user)
    for securable in dict.fromkeys(each.securable for each in user.grants):
        if securable not in gone:
            verbs = frozenset(each.verb for each in user.grants if each.securable == securable)
            found.append(_held(verbs, f"{securable}", "grant"))
    return found


def _space(user: User) -> str:
    if user.space is None:
        return str(STORE)
    kind = SecurableKind.DATABASE if "." in user.space else SecurableKind.NAMESPACE
    return f"{kind.value} {user.space}"


def _held(verbs: Verbs, on: str, via: str) -> Value:
    return {"on": on, "verbs": list(_in_order(verbs)), "from": via}


def _in_order(verbs: Iterable[Verb]) -> list[Value]:
    return [verb.value for verb in Verb if verb in verbs]


def _verbs(statement: tree.Grant | tree.Revoke, securable: Securable) -> Verbs:
    # OWN comes with a role only: no GRANT passes it on.
    meant = VERBS[securable.kind] - {Verb.OWN}
    known = {verb.value: verb for verb in Verb if verb is not Verb.OWN}
    for word in statement.verbs:
        if word not in known:
            raise Unknown(
                f"{word} is not a verb: the verbs are {', '.join(known)}", kind="verb", name=word
            )
        if known[word] not in meant:
            may = ", ".join(map(str, _in_order(meant)))
            raise BadRequest(f"{word} does not apply to {securable}: use {may}")
    return frozenset(known[word] for word in statement.verbs)
