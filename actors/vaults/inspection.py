"""Inspection: verifies a sealed value against the trail before it is decrypted.

Verified entries are cached by their bytes. An entry is still read from the state each time, and
only identical bytes match the cache. So any change of the state, by another commit, a restore or a
manipulated disk, changes the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from actors.vaults.keyring import Keyring, Proven, changed
from actors.vaults.trail import Trail, TrailKey
from protocol import limits
from protocol.binary import unpack
from protocol.errors import Unknown, WrongKey
from protocol.values import Value
from storage.txn.transaction import Transaction
from storage.vaults import trail as vault_trail
from storage.vaults import vaults
from storage.vaults.cipher import open_sealed
from storage.vaults.rows import KeysRow, RecordRow, StoreRow, ValueRow
from storage.vaults.vaults import Vault


@dataclass(frozen=True, slots=True)
class SealedRecord:
    """Sealed value that is about to be revealed."""

    vault: Vault
    id: bytes
    version: int
    row: ValueRow
    key: TrailKey
    """Key that authenticates the entry of the reveal."""


class Inspector:
    """Finds, verifies and decrypts sealed values. On the loop only."""

    def __init__(self, keyring: Keyring, trail: Trail) -> None:
        self._keyring = keyring
        self._trail = trail

    def find(
        self, tx: Transaction, vault: Vault, keys: KeysRow, id: bytes, version: int | None
    ) -> SealedRecord:
        """Find a value that may be revealed, and verify it against the trail.

        :param keys: keys of the vault, as read by the transaction
        :raises Sealed:
        :raises Unknown: there is no such record, or no such version of it
        :raises WrongKey: the stored value is not the one written last
        """
        self._keyring.check_open(vault)
        record = vaults.find_record(tx, vault, id)
        if record is None and self._was_written(tx, vault, id):
            raise _put_back(vault)
        wanted = version if version is not None or record is None else record.last
        if record is None or wanted is None or wanted not in record.kept:
            what = "record of that id" if record is None else "such version of that record"
            raise Unknown(f"there is no {what} in vault {vault.path}", kind="record")
        row = self._newest(tx, vault, id, record)
        if wanted != record.last:
            older = vaults.find_value(tx, vault, id, wanted)
            if older is None:
                raise _put_back(vault)
            row = older
        self._check_entry(tx, vault, keys, id, wanted, row)
        key = self._keyring.key(vault, keys, row.key_version)
        return SealedRecord(vault, id, wanted, row, (row.key_version, key.trail))

    def open(self, found: SealedRecord, store: StoreRow | None, keys: KeysRow) -> Value:
        """Decrypt a value. The entry of its reveal must be durable.

        :param store: current store row. Like `keys`, those of the vault, it may have been replaced
            while the entry became durable
        :raises Sealed, WrongKey:
        :raises Conflict: the key of the value was deleted since it was found
        """
        vault, version = found.vault, found.row.key_version
        if version not in keys.wraps:
            raise changed(vault)
        key = self._keyring.key(vault, keys, version)
        if store is None:
            raise _put_back(vault)
        spot = vaults.spot(store, vault, found.id, found.version)
        return unpack(open_sealed(key.cipher, spot, version, found.row.sealed))

    # --- verification against the trail -----------------------------------------------------------

    @staticmethod
    def _was_written(tx: Transaction, vault: Vault, id: bytes) -> bool:
        """True if the newest entry of a record is a write."""
        kept = vault_trail.find(tx, vault.id, vault_trail.last_about(tx, vault.id, _text(id)))
        return kept is not None and kept.entry.action == "write"

    @staticmethod
    def _newest(tx: Transaction, vault: Vault, id: bytes, record: RecordRow) -> ValueRow:
        """Return the newest version of a record. The newest entry of the record must be of that
        version."""
        newest = vaults.find_value(tx, vault, id, record.last)
        if newest is None or newest.entry != vault_trail.last_about(tx, vault.id, _text(id)):
            raise _put_back(vault)
        return newest

    def _check_entry(
        self, tx: Transaction, vault: Vault, keys: KeysRow, id: bytes, version: int, row: ValueRow
    ) -> None:
        """Verify a value against the entry of its write. :raises WrongKey: they differ"""
        raw = vault_trail.raw(tx, vault.id, row.entry)
        if raw is None:
            newest = vault_trail.head(tx, vault.id).number
            if 0 < row.entry <= newest - limits.VAULT_ENTRIES_KEPT:
                return  # its entry is beyond the retention of the trail
            raise _put_back(vault)
        wrap = keys.wraps.get(row.key_version, b"")
        proven = self._keyring.proven(vault, row.entry)
        is_known = proven is not None and proven.raw == raw and proven.wrap == wrap
        if proven is None or not is_known:
            proven = Proven(raw, vault_trail.read(vault.id, row.entry, raw), wrap)
        entry = proven.kept.entry
        # A write needs an unsealed key, so an entry without an HMAC is not of a write.
        is_of_it = proven.kept.mac and (entry.action, entry.id, entry.version) == (
            "write", _text(id), version,
        )  # fmt: skip
        same_key = row.key_version == entry.key_version
        if (
            not is_of_it
            or row.at_us != entry.at_us
            or row.key_version < entry.key_version
            or (same_key and entry.digest != sha256(row.sealed).digest())
        ):
            raise _put_back(vault)
        if not is_known:
            is_authentic = self._trail.is_authentic(tx, vault, proven.kept)
            if is_authentic is False:
                raise _put_back(vault)
            if is_authentic:
                self._keyring.remember(vault, row.entry, proven)


def _text(id: bytes) -> str:
    """Return the id of a record in the form of entries."""
    return id.decode("utf-8", "surrogatepass")


_WORDS: Final = "the stored row is not the newest one: an older row was put back"


def _put_back(vault: Vault) -> WrongKey:
    return WrongKey(f"a record of vault {vault.path} cannot be decrypted: {_WORDS}")
