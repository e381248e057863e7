"""Users: name, role, space, password hash and grants.

A store that has had a store-wide owner always keeps one, since only an owner can declare another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from protocol import binary, limits
from protocol.errors import AlreadyExists, BadRequest, LastOwner, TooLarge, Unknown
from protocol.rights import Grant, Securable, SecurableKind, Verb, Verbs
from protocol.text import check_name
from protocol.values import Tick, instant, paced, unpaced
from storage.formats import keys

if TYPE_CHECKING:
    from storage.txn.transaction import Transaction

OWNER: Final = "owner"
ROLES: Final = (OWNER, "editor", "viewer", "member")


@dataclass(frozen=True, slots=True)
class User:
    """A declared user."""

    name: str
    role: str
    """Role, one of `ROLES`."""
    space: str | None
    """Namespace or `ns.db` that the user belongs to; None: store-wide."""
    passhash: str = field(repr=False)
    """Password hash, argon2id in PHC form."""
    comment: str | None
    created: datetime
    """Log time of the declaration."""
    grants: tuple[Grant, ...] = ()
    """Grants beside those of the role, in the order given. They may name dropped objects, whose ids
    are never assigned again."""

    @property
    def owns_store(self) -> bool:
        """True if this is a store-wide owner."""
        return self.role == OWNER and self.space is None


def get(tx: Transaction, name: str) -> User:
    """Return the user of that name.

    :raises Unknown:
    """
    found = find(tx, name)
    if found is None:
        raise Unknown(f"there is no user {name}", kind="user", name=name)
    return found


def find(tx: Transaction, name: str) -> User | None:
    """Return the user of that name, or None."""
    at = (None, name)
    found: User | None = tx.known(at)
    if found is None:
        key = keys.user(name)
        value = tx.get(key)
        if value is not None:
            found = tx.remember(at, read_row(name, value), key)
    return found


def is_taken(tx: Transaction, name: str) -> bool:
    """True if a user of that name exists."""
    return find(tx, name) is not None


def everyone(tx: Transaction, tick: Tick = unpaced) -> Iterator[User]:
    """Yield all users, by name.

    :param tick: called for each, since there may be very many
    """
    for key, value in tx.rows(*keys.users(), tick):
        yield read_row(keys.user_name(key), value)


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
    tick: Tick = unpaced,
) -> User:
    """Declare a user. The caller must have looked up the space before.

    :param skip: leave an existing user unchanged
    :param overwrite: give an existing user this role, password and comment; it keeps its space and
        grants
    :param tick: called for each user while all are searched
    :raises NameRefused, TooLarge: the name is invalid, or the comment too long
    :raises AlreadyExists: the name is taken
    :raises Unknown: the role is unknown
    :raises BadRequest: an existing user has another space
    :raises LastOwner: the last store-wide owner would lose its role
    """
    check_name(name, "user")
    check_role(role)
    if comment is not None and len(comment) > limits.COMMENT_CHARACTERS:
        raise TooLarge(f"a comment has at most {limits.COMMENT_CHARACTERS} characters")
    present = find(tx, name)
    if present is None:
        # Completed at the commit: `created` tells this user from an earlier one of its name.
        tx.put_time(keys.user(name), _declared_at)
        return _put(tx, User(name, role, space, passhash, comment, tx.now))
    if skip:
        return present
    if not overwrite:
        raise AlreadyExists(f"user {name} exists", kind="user", name=name)
    # All its grants lie inside its space, and could be outside of another one.
    if present.space != space:
        raise BadRequest(f"user {name} cannot be moved to another namespace or database")
    _keep_an_owner(tx, present, role, tick)
    return _put(tx, replace(present, role=role, passhash=passhash, comment=comment))


def alter(
    tx: Transaction,
    user: User,
    *,
    role: str | None = None,
    passhash: str | None = None,
    tick: Tick = unpaced,
) -> User:
    """Change a user's role, password or both.

    :param tick: as for `define`
    :raises Unknown: the role is unknown
    :raises LastOwner:
    """
    if role is not None:
        check_role(role)
        _keep_an_owner(tx, user, role, tick)
        user = replace(user, role=role)
    if passhash is not None:
        user = replace(user, passhash=passhash)
    return _put(tx, user)


def grant(tx: Transaction, user: User, verbs: Verbs, securable: Securable) -> User:
    """Grant verbs on an object, beside the user's other grants.

    :raises TooLarge: the user has too many grants
    """
    held = {each.verb for each in user.grants if each.securable == securable}
    # In the order of `Verb`: the order of a set differs from run to run.
    more = tuple(Grant(verb, securable) for verb in Verb if verb in verbs - held)
    if len({each.securable for each in (*user.grants, *more)}) > limits.GRANTS:
        raise TooLarge(
            f"user {user.name} has grants on {limits.GRANTS} objects, which is the limit: grant"
            " on the namespace or database that contains them",
            limit=limits.GRANTS,
        )
    return _put(tx, replace(user, grants=user.grants + more)) if more else user


def revoke(tx: Transaction, user: User, verbs: Verbs, securable: Securable) -> User:
    """Revoke verbs that were granted on exactly this object."""
    left = tuple(
        each for each in user.grants if each.securable != securable or each.verb not in verbs
    )
    # No write without a change: a written row ends the running work of its user.
    return user if left == user.grants else _put(tx, replace(user, grants=left))


def forget(tx: Transaction, user: User, gone: Collection[Securable]) -> User:
    """Remove the grants on dropped objects."""
    if not gone:
        return user
    return _put(tx, replace(user, grants=tuple(g for g in user.grants if g.securable not in gone)))


def drop(tx: Transaction, user: User, tick: Tick = unpaced) -> None:
    """Drop a user.

    :param tick: as for `define`
    :raises LastOwner:
    """
    _keep_an_owner(tx, user, None, tick)
    tx.delete(keys.user(user.name))


def drop_of_spaces(tx: Transaction, spaces: Collection[str], tick: Tick) -> list[str]:
    """Drop the users of namespaces and databases that are being dropped.

    A new one of the same name must not inherit them.

    :param tick: called for each existing user, and each that is dropped
    :returns: their names
    """
    # No look for the last owner: a user of a space never owns the store.
    gone = [user.name for user in everyone(tx, tick) if user.space in spaces]
    for name in paced(gone, tick):
        tx.delete(keys.user(name))
    return gone


def _keep_an_owner(tx: Transaction, user: User, role: str | None, tick: Tick) -> None:
    if user.owns_store and role != OWNER:
        # All rows join the read set: if two commits each take one of the last two owners, one
        # of them conflicts (write skew).
        every = everyone(tx, tick)
        if not any(other.owns_store and other.name != user.name for other in every):
            raise LastOwner(
                f"{user.name} is the last owner of the store: make another user an owner first",
                name=user.name,
            )


def check_role(role: str) -> None:
    """Check a role.

    :raises Unknown: there is no such role
    """
    if role not in ROLES:
        raise Unknown(
            f"{role!r} is not a role: the roles are {', '.join(ROLES)}", kind="role", name=role
        )


def _put(tx: Transaction, user: User) -> User:
    fields: dict[str, Any] = {
        "role": user.role,
        "space": user.space,
        "passhash": user.passhash,
        "comment": user.comment,
        "created": user.created,
    }
    if user.grants:
        fields["grants"] = _stored(user.grants)
    tx.put(keys.user(user.name), binary.pack(fields))
    return user


def _declared_at(value: bytes, time_us: int) -> bytes:
    """Set the creation time in a new user's row to that of its commit.

    It is later than any action of an earlier user of the same name, even of one dropped in the same
    commit.
    """
    fields = binary.unpack(value)
    assert isinstance(fields, dict)
    return binary.pack({**fields, "created": instant(time_us)})


def read_row(name: str, value: bytes) -> User:
    """Decode the row of a user."""
    fields = binary.unpack(value)
    assert isinstance(fields, dict)
    grants = tuple(
        Grant(Verb(verb), Securable(SecurableKind(kind), tuple(ids), path))
        # Only rows with grants have the field.
        for kind, ids, path, verbs in fields.pop("grants", ())
        for verb in verbs
    )
    return User(name=name, **fields, grants=grants)


def _stored(grants: tuple[Grant, ...]) -> list[Any]:
    found: dict[Securable, list[str]] = {}
    for each in grants:
        # By object: its kind, ids and path are stored once for all its verbs.
        found.setdefault(each.securable, []).append(each.verb.value)
    return [
        [securable.kind.value, list(securable.ids), securable.path, verbs]
        for securable, verbs in found.items()
    ]
