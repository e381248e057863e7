"""Vaults: declarations, and the storage of sealed values. Plain keys and values never occur here.

- A version of a record is never assigned twice, not even after the record was erased.
- A transaction that puts a value has read the vault's key row, so it conflicts with a key change.
  So no value is sealed under a key version that is being retired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from protocol import binary, limits
from protocol.errors import AlreadyExists, BadRequest, TooLarge, TypeRefused
from protocol.text import check_name
from protocol.values import Tick
from storage.catalog.places import Database, check_comment, declared_of, each_named
from storage.formats import keys
from storage.formats.keys import Range
from storage.txn.ids import next_id
from storage.txn.transaction import Transaction
from storage.vaults import rows
from storage.vaults.cipher import DOMAIN_BYTES, Random, ValueAddress
from storage.vaults.rows import KeysRow, RecordRow, StoreRow, ValueRow


@dataclass(frozen=True, slots=True)
class Vault:
    """A declared vault."""

    id: int
    """Id, assigned once for the whole store and never reused."""
    database: Database
    name: str
    own: bool = False
    """True if it has a passphrase of its own; otherwise the store's opens it."""
    versions: int = 1
    """Number of versions kept of each record."""
    comment: str | None = None

    @property
    def path(self) -> str:
        """Path as users write it: `ns.db.vault`."""
        return f"{self.database.path}.{self.name}"

    @property
    def numbers(self) -> rows.Numbers:
        """Ids of namespace, database and vault, as its keys contain them."""
        return self.database.namespace.id, self.database.id, self.id


# --- declarations ---------------------------------------------------------------------------------


def find(tx: Transaction, database: Database, name: str) -> Vault | None:
    """Return the vault of that name in a database, or None."""
    at = ("vault", database.id, name)
    found: Vault | None = tx.known(at)
    if found is None:
        value = tx.get(rows.declared(database.namespace.id, database.id, name))
        if value is not None:
            found = _vault(database, name, value)
            tx.remember(at, found, *declared_of_vault(found))
    return found


def declared_of_vault(vault: Vault) -> tuple[bytes, ...]:
    """Return the declared keys that a vault depends on; see `catalog_cache.py`."""
    return _key(vault), *declared_of(vault.database)


def each(tx: Transaction, database: Database, tick: Tick) -> Iterator[Vault]:
    """Yield the vaults of a database by name, lazily.

    :param tick: called for each
    """
    declared = rows.all_declared(database.namespace.id, database.id)
    for name, value in each_named(tx, *declared, tick):
        yield _vault(database, name, value)


def define(
    tx: Transaction,
    database: Database,
    name: str,
    *,
    own: bool = False,
    versions: int = 1,
    comment: str | None = None,
) -> Vault:
    """Declare a vault. An existing one is never changed; look it up before.

    :raises AlreadyExists: the name is taken
    :raises NameRefused, TooLarge, BadRequest: invalid name, comment or number of versions
    """
    check_name(name, "vault")
    check_comment(comment)
    check_versions(versions)
    # An overwrite would orphan the keys, and with them every value.
    if find(tx, database, name) is not None:
        path = f"{database.path}.{name}"
        raise AlreadyExists(f"vault {path} exists", kind="vault", name=path)
    made = Vault(next_id(tx, keys.VAULT_IDS), database, name, own, versions, comment)
    _put(tx, made)
    return made


def alter(
    tx: Transaction, vault: Vault, *, versions: int | None = None, comment: str | None = None
) -> Vault:
    """Change the given settings. Surplus versions are removed at the next WRITE of each record.

    :raises TooLarge, BadRequest: invalid comment or number of versions
    """
    if versions is not None:
        check_versions(versions)
        vault = replace(vault, versions=versions)
    if comment is not None:
        check_comment(comment)
        vault = replace(vault, comment=comment)
    _put(tx, vault)
    return vault


def drop(tx: Transaction, vault: Vault) -> None:
    """Drop a vault with its contents; its trail stays."""
    for start, end in rows.in_vault(vault.numbers):
        tx.delete_range(start, end)
    tx.delete(_key(vault))


def check_versions(versions: int) -> None:
    """Check a number of versions.

    :raises BadRequest: it is out of range
    """
    if not 1 <= versions <= limits.VAULT_VERSIONS:
        raise BadRequest(f"a vault keeps 1 to {limits.VAULT_VERSIONS} versions of a record")


def check_id(id: object) -> bytes:
    """Encode the id of a record for its keys.

    :raises TypeRefused, BadRequest, TooLarge:
    """
    if not isinstance(id, str):
        raise TypeRefused("the id of a record in a vault must be a string")
    # Control characters are refused: among them is 00, the end mark of an id in keys.
    encoded = id.encode("utf-8", "surrogatepass")
    if not id or any(character < " " or character == "\x7f" for character in id):
        raise BadRequest(
            "the id of a record in a vault must not be empty or hold control characters"
        )
    if len(encoded) > limits.VAULT_ID_BYTES:
        raise TooLarge(
            f"the id of a record in a vault takes at most {limits.VAULT_ID_BYTES} bytes",
            limit=limits.VAULT_ID_BYTES,
        )
    return encoded


def _key(vault: Vault) -> bytes:
    database = vault.database
    return rows.declared(database.namespace.id, database.id, vault.name)


def _put(tx: Transaction, vault: Vault) -> None:
    kept = {
        "id": vault.id, "own": vault.own, "versions": vault.versions, "comment": vault.comment,
    }  # fmt: skip
    tx.put(_key(vault), binary.pack(kept))


def _vault(database: Database, name: str, value: bytes) -> Vault:
    kept: Any = binary.unpack(value)
    return Vault(kept["id"], database, name, kept["own"], kept["versions"], kept["comment"])


# --- keys -----------------------------------------------------------------------------------------


def store_row(tx: Transaction) -> StoreRow | None:
    """Return the store-wide row on which all vaults depend; None before its first use."""
    row = tx.get(rows.STORE_KEY)
    return None if row is None else rows.read_store(row)


def need_store_row(tx: Transaction, random: Random) -> StoreRow:
    """Return the store-wide row, created if missing."""
    found = store_row(tx)
    if found is None:
        found = StoreRow(random(DOMAIN_BYTES))
        put_store_row(tx, found)
    return found


def put_store_row(tx: Transaction, row: StoreRow) -> None:
    """Write the store-wide row."""
    tx.put(rows.STORE_KEY, row.pack())


def keys_row(tx: Transaction, vault: Vault) -> KeysRow:
    """Return the keys of a vault."""
    return rows.read_keys(tx.get(rows.of_vault(keys.VAULT_KEYS, vault.numbers)))


def put_keys_row(tx: Transaction, vault: Vault, row: KeysRow) -> None:
    """Write the keys of a vault."""
    tx.put(rows.of_vault(keys.VAULT_KEYS, vault.numbers), row.pack())


def approximate_sealed(tx: Transaction, vault: Vault) -> int:
    """Return the approximate number of values that a vault's keys have sealed. Not added to the
    read set."""
    # A hint: an exact count would make all writers of a vault conflict.
    at = rows.of_vault(keys.VAULT_SEALED, vault.numbers)
    return keys.unpack_counter(tx.hint(at))


def values_to_reseal(
    tx: Transaction, vault: Vault, key_version: int, most: int
) -> list[UnrotatedValue]:
    """Return up to `most` values that a key version has sealed.

    :param most: largest number of values
    """
    found: list[UnrotatedValue] = []
    for pairs in tx.scan(*rows.uses(vault.numbers, key_version)):
        for key, _ in pairs:
            found.append(UnrotatedValue(*rows.used(key)))
            if len(found) == most:
                return found
    return found


class UnrotatedValue(NamedTuple):
    """Value that is still sealed with an older key."""

    id: bytes
    version: int


# --- records --------------------------------------------------------------------------------------


def spot(store: StoreRow, vault: Vault, id: bytes, version: int) -> ValueAddress:
    """Return the place that a value's encryption is bound to."""
    return ValueAddress(store.domain, vault.numbers, id, version)


def find_record(tx: Transaction, vault: Vault, id: bytes) -> RecordRow | None:
    """Return the versions of a record; None if there is no such record."""
    row = tx.get(rows.record(vault.numbers, id))
    return None if row is None else rows.read_record(row)


def find_value(tx: Transaction, vault: Vault, id: bytes, version: int) -> ValueRow | None:
    """Return one version of a record, or None."""
    row = tx.get(rows.value(vault.numbers, id, version))
    return None if row is None else rows.read_value(row)


def next_version(tx: Transaction, vault: Vault, id: bytes, present: RecordRow | None) -> int:
    """Return the version number of a record's next value."""
    if present is not None:
        return present.last + 1
    # The number goes on behind an erasure: an old sealed value can't pose as the new version.
    return rows.read_version(tx.get(rows.erased(vault.numbers, id))) + 1


def put_value(
    tx: Transaction,
    vault: Vault,
    id: bytes,
    present: RecordRow | None,
    version: int,
    made: ValueRow,
) -> None:
    """Put a record's next value, and delete its surplus versions.

    :param present: the record as `find_record` returned it
    :raises TooLarge: the transaction exceeds its limit
    """
    numbers = vault.numbers
    kept = (*(() if present is None else present.kept), version)
    # More than one version goes if the vault keeps fewer than before.
    gone, kept = kept[: -vault.versions], kept[-vault.versions :]
    for old in gone:
        _remove(tx, vault, id, old)
    tx.put(rows.record(numbers, id), RecordRow(version, kept).pack())
    tx.put(rows.value(numbers, id, version), made.pack())
    tx.put(rows.use(numbers, made.key_version, id, version), b"")
    tx.add(rows.of_vault(keys.VAULT_SEALED, numbers), 1)
    if present is None:
        # The record itself carries its last version from here on.
        tx.delete(rows.erased(numbers, id))
        tx.add(rows.of_vault(keys.VAULT_COUNT, numbers), 1)
    if gone:
        note_removed(tx, vault)


def seal_again(
    tx: Transaction, vault: Vault, one: UnrotatedValue, before: ValueRow, after: ValueRow
) -> None:
    """Replace a value by the same value, sealed with another key."""
    numbers = vault.numbers
    # Same version, so the address that the value is bound to stays.
    tx.put(rows.value(numbers, one.id, one.version), after.pack())
    tx.delete(rows.use(numbers, before.key_version, one.id, one.version))
    tx.put(rows.use(numbers, after.key_version, one.id, one.version), b"")
    tx.add(rows.of_vault(keys.VAULT_SEALED, numbers), 1)


def erase(tx: Transaction, vault: Vault, id: bytes, present: RecordRow) -> None:
    """Delete a record with all its versions."""
    numbers = vault.numbers
    for version in present.kept:
        _remove(tx, vault, id, version)
    tx.delete(rows.record(numbers, id))
    # Outlives the record, see `next_version`.
    tx.put(rows.erased(numbers, id), rows.pack_version(present.last))
    tx.add(rows.of_vault(keys.VAULT_COUNT, numbers), -1)
    note_removed(tx, vault)


def _remove(tx: Transaction, vault: Vault, id: bytes, version: int) -> None:
    found = find_value(tx, vault, id, version)
    if found is not None:
        tx.delete(rows.value(vault.numbers, id, version))
        tx.delete(rows.use(vault.numbers, found.key_version, id, version))


def note_removed(tx: Transaction, vault: Vault) -> None:
    """Record that this commit removes values. The log contains them until it is pruned beyond this
    commit."""
    # A stamped row: the commit itself fills in its sequence, known only then.
    tx.put_record(rows.of_vault(keys.VAULT_REMOVED, vault.numbers), b"", 0)


def removed_at(tx: Transaction, vault: Vault) -> int:
    """Return the sequence of the commit that last removed a value; 0: none."""
    row = tx.get(rows.of_vault(keys.VAULT_REMOVED, vault.numbers))
    return 0 if row is None else int.from_bytes(row[:8], "big")


def count(tx: Transaction, vault: Vault) -> int:
    """Return the number of records in a vault."""
    at = rows.of_vault(keys.VAULT_COUNT, vault.numbers)
    return keys.unpack_counter(tx.get(at))


def ids(tx: Transaction, vault: Vault, prefix: bytes, after: bytes) -> Iterator[list[str]]:
    """Yield the ids of records that begin with `prefix` and come after `after`, in byte order, in
    batches."""
    start, end = _ids_range(vault, prefix)
    if after:
        start = max(start, rows.record(vault.numbers, after) + b"\x00")
    for pairs in tx.scan(start, end):
        yield [rows.record_id(key).decode("utf-8", "surrogatepass") for key, _ in pairs]


def _ids_range(vault: Vault, prefix: bytes) -> Range:
    return keys.within(rows.record(vault.numbers, prefix))
