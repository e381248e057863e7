"""The rules of users: a name, a role, a space and a password's hash.

There is always a store-wide owner once there was one: who could declare another?
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from protocol import binary, limits
from protocol.errors import AlreadyExists, BadRequest, LastOwner, TooLarge, Unknown
from protocol.text import check_name
from storage import keys
from storage.transactions import Transaction

OWNER: Final = "owner"
ROLES: Final = (OWNER, "editor", "viewer", "member")


@dataclass(frozen=True, slots=True)
class User:
    """A declared user."""

    name: str
    role: str
    """One of `ROLES`."""
    space: str | None
    """The namespace or `ns.db` the user belongs to; None: store-wide."""
    passhash: str = field(repr=False)
    """argon2id in PHC form."""
    comment: str | None
    created: datetime
    """Log time."""

    @property
    def owns_store(self) -> bool:
        """Whether this is a store-wide owner."""
        return self.role == OWNER and self.space is None


def get(tx: Transaction, name: str) -> User:
    """The user of that name. :raises Unknown:"""
    found = find(tx, name)
    if found is None:
        raise Unknown(f"there is no user {name}", kind="user", name=name)
    return found


def find(tx: Transaction, name: str) -> User | None:
    """The user of that name, if there is one."""
    at = (None, name)
    found: User | None = tx.known(at)
    if found is None:
        key = keys.user(name)
        value = tx.get(key)
        if value is not None:
            found = tx.remember(at, _user(name, value), key)
    return found


def is_taken(tx: Transaction, name: str) -> bool:
    """Whether there is a user of that name."""
    return find(tx, name) is not None


def everyone(tx: Transaction) -> list[User]:
    """All users, by name."""
    start, end = keys.users()
    return [
        _user(key[len(start) :].decode(), value)
        for pairs in tx.scan(start, end)
        for key, value in pairs
    ]


def define(
    tx: Transaction,
    name: str,
    role: str,
    passhash: str,
    *,
    space: str | None = None,
    comment: str | None = None,
    skip: bool = False,
    overwrite: bool = False,
) -> User:
    """Declare a user. The space must have been looked up before.

    :param skip: a user there is stays as it is
    :param overwrite: a user there is gets this role, password and comment, and keeps its space
    :raises AlreadyExists: the name is taken
    :raises Unknown: of the role
    :raises BadRequest: another space for a user there is
    :raises LastOwner: the last store-wide owner would lose its role
    """
    check_name(name, "user")
    _check_role(role)
    if comment is not None and len(comment) > limits.COMMENT_CHARACTERS:
        raise TooLarge(f"a comment has at most {limits.COMMENT_CHARACTERS} characters")
    present = find(tx, name)
    if present is None:
        return _put(tx, User(name, role, space, passhash, comment, tx.now))
    if skip:
        return present
    if not overwrite:
        raise AlreadyExists(f"user {name} exists", kind="user", name=name)
    if present.space != space:
        raise BadRequest(f"the space of user {name} can't be altered")
    _keep_an_owner(tx, present, role)
    return _put(tx, replace(present, role=role, passhash=passhash, comment=comment))


def alter(
    tx: Transaction, user: User, *, role: str | None = None, passhash: str | None = None
) -> User:
    """Change a user's role, password or both. :raises Unknown: of the role :raises LastOwner:"""
    if role is not None:
        _check_role(role)
        _keep_an_owner(tx, user, role)
        user = replace(user, role=role)
    if passhash is not None:
        user = replace(user, passhash=passhash)
    return _put(tx, user)


def drop(tx: Transaction, user: User) -> None:
    """Remove a user. :raises LastOwner:"""
    _keep_an_owner(tx, user, None)
    tx.delete(keys.user(user.name))


def drop_of_space(tx: Transaction, space: str) -> None:
    """Remove the users that belong to a place that is being dropped: a new place of the same name
    must not inherit them."""
    for user in everyone(tx):
        if user.space == space:
            tx.delete(keys.user(user.name))


def _keep_an_owner(tx: Transaction, user: User, role: str | None) -> None:
    if user.owns_store and role != OWNER:
        others = any(other.owns_store and other.name != user.name for other in everyone(tx))
        if not others:
            raise LastOwner(f"{user.name} is the last owner of the store", name=user.name)


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise Unknown(f"{role!r} is no role; there are {', '.join(ROLES)}", kind="role", name=role)


def _put(tx: Transaction, user: User) -> User:
    fields: dict[str, Any] = {
        "role": user.role,
        "space": user.space,
        "passhash": user.passhash,
        "comment": user.comment,
        "created": user.created,
    }
    tx.put(keys.user(user.name), binary.pack(fields))
    return user


def _user(name: str, value: bytes) -> User:
    fields = binary.unpack(value)
    assert isinstance(fields, dict)
    return User(name=name, **fields)
