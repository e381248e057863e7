"""Statements on users. Passwords come in as text and are stored as argon2id hashes only."""

from __future__ import annotations

from functools import partial

from actors.passwords import HashRequester, check_passhash
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, RequiresOnSecurable, handles, informs
from actors.sign_in_throttle import network
from language import tree
from language.operators import parameter
from protocol.errors import AlreadyExists, TypeRefused
from protocol.rights import NOTHING, OWN, Securable, SecurableKind
from protocol.values import NONE, Value, paced
from storage.catalog import users
from storage.catalog.users import User, check_role


@handles(
    tree.DefineUser, "none", writes=True, needs=[RequiresOnSecurable(OWN, "space")], audited=True
)
def define_user(run: Execution, statement: tree.DefineUser, space: Securable) -> Value:
    """Define a user.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE; or the caller does not own that user
    """
    check_role(statement.role)
    is_taken = users.is_taken(run.transaction, statement.name)
    if is_taken:
        # Names are unique in the whole store. For a user of another owner nothing is disclosed but
        # that the name is taken, whatever the clause.
        owns = run.rights.owns_user(run.transaction, run.caller, statement.name)
        if statement.exists is tree.Exists.REFUSE or not owns:
            raise AlreadyExists(f"user {statement.name} exists", kind="user", name=statement.name)
        if statement.exists is tree.Exists.SKIP:
            return NONE
    users.define(
        run.transaction,
        statement.name,
        statement.role,
        _passhash(run, statement),
        space=space.path or None,
        comment=statement.comment,
        overwrite=statement.exists is tree.Exists.OVERWRITE,
        tick=run.tick,
    )
    if is_taken:
        end_sessions(run, statement.name)
    else:
        # A name may have belonged to a dropped user: its requests must not run as the new one.
        run.afterwards.append(partial(run.services.sessions.on_user_declared, statement.name))
    return NONE


@handles(
    tree.AlterUser,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.USER, ("name",))],
    audited=True,
)
def alter_user(run: Execution, statement: tree.AlterUser, user: User) -> Value:
    """Change a user's password or role; its sessions end.

    :raises LastOwner: it is the last store-wide owner, and would no longer be one
    """
    if statement.role is not None:
        check_role(statement.role)
        users.alter(run.transaction, user, role=statement.role, tick=run.tick)
    else:
        users.alter(run.transaction, user, passhash=_hashed(run, statement))
    end_sessions(run, statement.name)
    return NONE


@handles(
    tree.DropUser,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.USER, ("name",))],
    audited=True,
)
def drop_user(run: Execution, statement: tree.DropUser, user: User) -> Value:
    """Drop a user with its grants; its sessions end.

    :raises LastOwner: it is the last store-wide owner
    """
    run.reason = statement.reason
    users.drop(run.transaction, user, run.tick)
    end_sessions(run, statement.name)
    return NONE


@informs("USERS", needs=[])
def info_for_users(run: Execution, statement: tree.Info) -> Value:
    """Return every user that the caller owns. :raises NotAllowed: it is no owner"""
    every = run.rights.users(run.transaction, run.caller, run.tick)
    return [_described(user) for user in paced(every, run.tick)]


@informs("USER", needs=[Requires(NOTHING, SecurableKind.USER, (0,))])
def info_for_user(run: Execution, statement: tree.Info, user: User) -> Value:
    """Describe a user. A user may always see itself."""
    return _described(user)


def _described(user: User) -> dict[str, Value]:
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
    return _hashed(run, statement)


def _hashed(run: Execution, statement: tree.DefineUser | tree.AlterUser) -> str:
    """Return the hash of the given password. :raises TypeRefused: it is no string"""
    password: Value = statement.password
    if statement.bound is not None:
        password = parameter(run, statement.bound)
    if not isinstance(password, str):
        raise TypeRefused("a password must be a string")
    asker = HashRequester(run.caller.user, network(run.caller.address))
    # argon2id runs on a thread: the script yields, and its commit validates the user.
    return run.fiber.wait(run.services.passwords.hash(password, asker))


def end_sessions(run: Execution, name: str) -> None:
    """End a user's sessions and their requests after the commit, this request excepted."""
    # Not at once: a change that is refused, or runs again, ends no session.
    own = run.request.request
    run.afterwards.append(lambda: run.services.sessions.end_all(name, sparing=own))
