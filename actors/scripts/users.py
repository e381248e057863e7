"""Statements on users. Secrets come in as text and leave as argon2id hashes only."""

from __future__ import annotations

from actors.passwords import Asker, check_passhash
from actors.scripts.execution import Execution
from actors.scripts.handlers import handles
from actors.tries import network
from language import tree
from protocol.errors import AlreadyExists, BadRequest, Unknown
from protocol.values import NONE, Value
from storage import users

ROLES = ("owner",)
"""Of the roles, those whose rights are enforced today; another would promise what is not kept."""


@handles(tree.DefineUser, "none", writes=True)
def define_user(run: Execution, statement: tree.DefineUser) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    _may_administer(run)
    _check_role(statement.role)
    if statement.space:
        # A user that is not held to its space would be one of the whole store.
        raise BadRequest(f"user {statement.name}: ON is not in this version, users are store-wide")
    if users.find(run.transaction, statement.name) is not None:
        if statement.exists is tree.Exists.SKIP:
            return NONE
        if statement.exists is tree.Exists.REFUSE:
            raise AlreadyExists(f"user {statement.name} exists", kind="user", name=statement.name)
    users.define(
        run.transaction,
        statement.name,
        statement.role,
        _passhash(run, statement),
        comment=statement.comment,
        overwrite=statement.exists is tree.Exists.OVERWRITE,
    )
    _end_sessions(run, statement.name)
    return NONE


@handles(tree.AlterUser, "none", writes=True)
def alter_user(run: Execution, statement: tree.AlterUser) -> Value:
    """Change a user's password or role; its sessions end.

    :raises LastOwner: it is the last store-wide owner and would be one no longer
    """
    _may_administer(run)
    if statement.password is not None:
        user = users.get(run.transaction, statement.name)
        passhash = _hash(run, statement.password)
        users.alter(run.transaction, user, passhash=passhash)
    else:
        assert statement.role is not None, "the parser asks for one of the two"
        _check_role(statement.role)
        users.alter(
            run.transaction, users.get(run.transaction, statement.name), role=statement.role
        )
    _end_sessions(run, statement.name)
    return NONE


@handles(tree.DropUser, "none", writes=True)
def drop_user(run: Execution, statement: tree.DropUser) -> Value:
    """Remove a user with its grants; its sessions end.

    :raises LastOwner: it is the last store-wide owner
    """
    _may_administer(run)
    run.reason = statement.reason
    users.drop(run.transaction, users.get(run.transaction, statement.name))
    _end_sessions(run, statement.name)
    return NONE


def info_for_users(run: Execution, names: tuple[str, ...]) -> Value:
    """Every user."""
    run.authorise("ADMINISTER")
    return [_described(user) for user in users.everyone(run.transaction)]


def info_for_user(run: Execution, names: tuple[str, ...]) -> Value:
    """One user. A user may always see itself."""
    if names[0] != run.caller.user:
        run.authorise("ADMINISTER")
    return _described(users.get(run.transaction, names[0]))


def _described(user: users.User) -> dict[str, Value]:
    return {
        "name": user.name,
        "role": user.role,
        "space": user.space,
        "comment": user.comment,
        "created": user.created,
    }


def _passhash(run: Execution, statement: tree.DefineUser) -> str:
    if statement.passhash is not None:
        return check_passhash(statement.passhash, run.caller.space)
    assert statement.password is not None, "the parser asks for one of the two"
    return _hash(run, statement.password)


def _hash(run: Execution, password: str) -> str:
    asker = Asker(run.caller.user, network(run.caller.address))
    return run.turn.wait(run.services.passwords.hash(password, asker))


def _may_administer(run: Execution) -> None:
    run.authorise("ADMINISTER")


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise Unknown(f"{role!r} is no role; roles: {', '.join(ROLES)}", role=role)


def _end_sessions(run: Execution, name: str) -> None:
    run.afterwards.append(lambda: run.services.sessions.end_all(name))
