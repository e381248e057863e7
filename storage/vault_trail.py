"""The trail of a vault: who has unsealed, revealed, written, erased, or was refused it.

A trail belongs to the number of a vault and outlives it; the trail of number 0 is that of the
store's own passphrase, and says which vaults were declared and dropped. Entries are effects of
commits: that of a change is in the commit of the change.

Each entry holds the hash of the one before and, where its maker held a key, an HMAC of its own
hash. Entry n hashes to

    SHA-256(`storenode vault trail` · vault (4) · n (8) · hash of entry n-1 (32) · its body)

where the hash before the first one is 32 zero bytes. The newest number and hash stand in a row of
their own. Of those beyond `limits.VAULT_ENTRIES_KEPT` the oldest go.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from protocol import limits
from storage import keys
from storage.transactions import Transaction
from storage.vault_entries import VaultEntry

GRANTED: Final = "granted"
"""The outcome of what was done; of the rest it is the code of the refusal."""
STORE_TRAIL: Final = 0
HASH_BYTES: Final = 32
_LABEL: Final = b"storenode vault trail"
_ONE: Final = Struct(">I")
_LONG: Final = Struct(">Q")
_ABOUT: Final = frozenset({"write", "erase"})
"""Actions whose newest entry of a record is remembered."""


class Head(NamedTuple):
    """The newest entry of a trail."""

    number: int
    """From 1; 0: there is none."""
    hash: bytes


class Kept(NamedTuple):
    """An entry as it is read back."""

    number: int
    entry: VaultEntry
    hash: bytes
    before: bytes
    """The hash of the entry before, as this one has it."""
    mac: bytes
    """Of its hash; empty: its maker held no key."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(VaultEntry)
_row: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes])


def _prefix(tag: int, vault: int) -> bytes:
    return keys.tagged(tag)[0] + _ONE.pack(vault)


def _at(vault: int, number: int) -> bytes:
    return _prefix(keys.VAULT_ENTRY, vault) + _LONG.pack(number)


def head(tx: Transaction, vault: int) -> Head:
    """The newest entry of a trail. :param vault: its number; 0: the store's own"""
    row = tx.get(_prefix(keys.VAULT_HEAD, vault))
    if row is None:
        return Head(0, bytes(HASH_BYTES))
    (number,) = _LONG.unpack_from(row)
    return Head(number, row[_LONG.size :])


def append(tx: Transaction, vault: int, entry: VaultEntry, key: bytes | None) -> int:
    """Put an entry behind the others. Answers its number.

    :param key: what its HMAC is made with; None: nobody here holds one
    :raises TooLarge: of the transaction
    """
    before = head(tx, vault)
    number, body = before.number + 1, _encoder.encode(entry)
    hash = hashed(vault, number, before.hash, body)
    mac = b"" if key is None else hmac.digest(key, hash, "sha256")
    tx.put(_at(vault, number), _encoder.encode((body, before.hash, mac)))
    tx.put(_prefix(keys.VAULT_HEAD, vault), _LONG.pack(number) + hash)
    if entry.id is not None and is_about(entry):
        tx.put(_last(vault, entry.id), _LONG.pack(number))
    if number > limits.VAULT_ENTRIES_KEPT:
        tx.delete(_at(vault, number - limits.VAULT_ENTRIES_KEPT))
    return number


def hashed(vault: int, number: int, before: bytes, body: bytes) -> bytes:
    """The hash of an entry."""
    return sha256(_LABEL + _ONE.pack(vault) + _LONG.pack(number) + before + body).digest()


def is_about(entry: VaultEntry) -> bool:
    """Whether an entry says that its record was written or erased."""
    return entry.action in _ABOUT and entry.outcome == GRANTED


def find(tx: Transaction, vault: int, number: int) -> Kept | None:
    """An entry by its number; None: it was so long ago that it is gone, or never was."""
    row = raw(tx, vault, number)
    return None if row is None else read(vault, number, row)


def raw(tx: Transaction, vault: int, number: int) -> bytes | None:
    """The bytes of an entry; None: as `find`. The same bytes `read` as the same entry."""
    return tx.get(_at(vault, number))


def read(vault: int, number: int, row: bytes) -> Kept:
    """An entry of its bytes."""
    body, before, mac = _row.decode(row)
    return Kept(number, _decoder.decode(body), hashed(vault, number, before, body), before, mac)


def last_about(tx: Transaction, vault: int, id: str) -> int:
    """The number of the newest entry that says a record was written or erased; 0: none does."""
    row = tx.get(_last(vault, id))
    if row is None:
        return 0
    (number,) = _LONG.unpack(row)
    assert isinstance(number, int)
    return number


def newest(tx: Transaction, vault: int, before: int | None = None) -> Iterator[Kept]:
    """Entries with the newest first. :param before: only those before that one"""
    start, end = keys.within(_prefix(keys.VAULT_ENTRY, vault))
    if before is not None:
        end = min(end, _at(vault, min(before, 2**63)))
    for pairs in tx.scan(start, end, reverse=True):
        for key, value in pairs:
            yield read(vault, _number(key), value)


def is_authentic(kept: Kept, key: bytes) -> bool:
    """Whether an entry's HMAC is of this key."""
    return hmac.compare_digest(kept.mac, hmac.digest(key, kept.hash, "sha256"))


def _last(vault: int, id: str) -> bytes:
    return _prefix(keys.VAULT_LAST, vault) + id.encode("utf-8", "surrogatepass")


def _number(key: bytes) -> int:
    (number,) = _LONG.unpack_from(key, len(key) - _LONG.size)
    assert isinstance(number, int)
    return number
