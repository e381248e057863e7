"""Catalog of cache spaces: declares, looks up and drops them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from protocol.errors import AlreadyExists
from protocol.text import check_name
from protocol.values import Tick
from storage.catalog.places import (
    Database,
    IfExists,
    absent,
    check_comment,
    declared_of,
    each_named,
    pack_declaration,
    unpack_declaration,
)
from storage.formats import keys
from storage.txn.ids import next_id

if TYPE_CHECKING:
    from storage.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Space:
    """A declared cache space."""

    id: int
    database: Database
    name: str
    expire_us: int | None = None
    """Default time to live of a key written without an expiry, in µs; None: no expiry."""
    comment: str | None = None
    entries: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its entries."""
    contents: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its large values, stored apart from their entries."""
    expiries: bytes = field(default=b"", repr=False, compare=False)
    """Key prefix of its expiry index."""
    count_key: bytes = field(default=b"", repr=False, compare=False)
    """Key of its entry counter."""

    @property
    def path(self) -> str:
        """Qualified name: `ns.db.space`."""
        return f"{self.database.path}.{self.name}"


# --- looking up -----------------------------------------------------------------------------------


def space(tx: Transaction, database: Database, name: str) -> Space:
    """Return a cache space by name. :raises Unknown: it does not exist"""
    found = find_space(tx, database, name)
    if found is None:
        raise absent("space", f"{database.path}.{name}")
    return found


def find_space(tx: Transaction, database: Database, name: str) -> Space | None:
    """Return a cache space by name, or None."""
    at = ("space", database.id, name)
    found: Space | None = tx.known(at)
    if found is None:
        value = tx.get(keys.space(database.namespace.id, database.id, name))
        if value is not None:
            found = _space(database, name, value)
            tx.remember(at, found, *declared_of_space(found))
    return found


def declared_of_space(space: Space) -> tuple[bytes, ...]:
    """Return the dependency keys of a cache space."""
    database = space.database
    key = keys.space(database.namespace.id, database.id, space.name)
    return key, *declared_of(database)


def spaces(tx: Transaction, database: Database, tick: Tick) -> Iterator[Space]:
    """Yield the cache spaces of a database, ordered by name."""
    for name, value in each_named(tx, *keys.spaces(database.namespace.id, database.id), tick):
        yield _space(database, name, value)


# --- declaring ------------------------------------------------------------------------------------


def define_space(
    tx: Transaction,
    database: Database,
    name: str,
    *,
    expire_us: int | None = None,
    comment: str | None = None,
    taken: IfExists = IfExists.REFUSE,
) -> Space:
    """Declare a cache space, as `define_namespace` does. Replacing a declaration keeps its keys and
    the expiry of each."""
    check_name(name, "space")
    check_comment(comment)
    present = find_space(tx, database, name)
    if present is not None:
        if taken is IfExists.REFUSE:
            raise AlreadyExists(f"space {present.path} exists", kind="space", name=present.path)
        if taken is IfExists.SKIP:
            return present
        made = replace(present, expire_us=expire_us, comment=comment)
    else:
        made = _made_space(next_id(tx, keys.SPACE_IDS), database, name, expire_us, comment)
    value = pack_declaration(made.id, comment, expire=expire_us)
    tx.put(keys.space(database.namespace.id, database.id, name), value)
    return made


# --- dropping -------------------------------------------------------------------------------------


def drop_space(tx: Transaction, space: Space) -> None:
    """Drop a cache space with its keys."""
    # A range for each: the frame is as small for a million keys as for none.
    for prefix in (space.entries, space.contents, space.expiries):
        tx.delete_range(*keys.within(prefix))
    tx.delete(space.count_key)
    database = space.database
    tx.delete(keys.space(database.namespace.id, database.id, space.name))


# --- values ---------------------------------------------------------------------------------------


def _space(database: Database, name: str, value: bytes) -> Space:
    fields = unpack_declaration(value)
    return _made_space(fields["id"], database, name, fields["expire"], fields["comment"])


def _made_space(
    id: int, database: Database, name: str, expire_us: int | None, comment: str | None
) -> Space:
    # Prefixes are kept with the space, since each operation on a key needs some.
    numbers = (database.namespace.id, database.id, id)
    return Space(
        id, database, name, expire_us, comment,
        entries=keys.in_space(keys.ENTRY, *numbers),
        contents=keys.in_space(keys.CONTENT, *numbers),
        expiries=keys.in_space(keys.EXPIRY, *numbers),
        count_key=keys.in_space(keys.ENTRY_COUNT, *numbers),
    )  # fmt: skip
