"""Trail of a vault: tamper-evident log of unseals, reveals, writes, erasures and refusals.

A trail belongs to the id of a vault and outlives the vault. Trail 0 belongs to the store's own
passphrase, and records declared and dropped vaults. Entries are effects of commits; the entry of a
change is in the same commit.

Each entry includes the hash of the previous one (hash chain) and, if the writer held a key, an HMAC
of its own hash. The hash of entry n is

    SHA-256(`storenode vault trail` · vault (4) · n (8) · hash of entry n-1 (32) · its body)

where the hash before the first one is 32 zero bytes. The newest number and hash are in a row of
their own. The oldest entries beyond `limits.VAULT_ENTRIES_KEPT` are deleted.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from protocol import limits
from storage.formats import keys
from storage.formats.entries import VaultEntry
from storage.txn.transaction import Transaction

GRANTED: Final = "granted"
"""Outcome of a permitted action; otherwise the outcome is the code of the refusal."""
STORE_TRAIL: Final = 0
HASH_BYTES: Final = 32
_LABEL: Final = b"storenode vault trail"
_ONE: Final = Struct(">I")
_LONG: Final = Struct(">Q")
_ABOUT: Final = frozenset({"write", "erase"})
"""Actions whose newest entry is indexed by record."""


class TrailHead(NamedTuple):
    """Newest entry of a trail."""

    number: int
    """Number of the entry, from 1; 0: there is none."""
    hash: bytes


class TrailEntry(NamedTuple):
    """Decoded entry."""

    number: int
    entry: VaultEntry
    hash: bytes
    before: bytes
    """Hash of the previous entry, as this one records it."""
    mac: bytes
    """HMAC of its hash; empty: the writer held no key."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(VaultEntry)
_row: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes])


def _prefix(tag: int, vault: int) -> bytes:
    return keys.tagged(tag)[0] + _ONE.pack(vault)


def _at(vault: int, number: int) -> bytes:
    return _prefix(keys.VAULT_ENTRY, vault) + _LONG.pack(number)


def head(tx: Transaction, vault: int) -> TrailHead:
    """Return the newest entry of a trail.

    :param vault: id of the vault; 0: the store's own trail
    """
    row = tx.get(_prefix(keys.VAULT_HEAD, vault))
    if row is None:
        return TrailHead(0, bytes(HASH_BYTES))
    (number,) = _LONG.unpack_from(row)
    return TrailHead(number, row[_LONG.size :])


def append(tx: Transaction, vault: int, entry: VaultEntry, key: bytes | None) -> int:
    """Append an entry. Return its number.

    :param key: key of its HMAC; None: the node holds none
    :raises TooLarge: the transaction exceeds its limit
    """
    # The head enters the read set: concurrent appends conflict, so the chain never forks.
    before = head(tx, vault)
    number, body = before.number + 1, _encoder.encode(entry)
    hash = hashed(vault, number, before.hash, body)
    mac = b"" if key is None else hmac.digest(key, hash, "sha256")
    # The hash before is stored too, so an entry verifies after its predecessor was deleted.
    tx.put(_at(vault, number), _encoder.encode((body, before.hash, mac)))
    tx.put(_prefix(keys.VAULT_HEAD, vault), _LONG.pack(number) + hash)
    if entry.id is not None and is_about(entry):
        tx.put(_last(vault, entry.id), _LONG.pack(number))
    # One entry in, one out: the bound holds, and no commit has a bulk deletion.
    if number > limits.VAULT_ENTRIES_KEPT:
        tx.delete(_at(vault, number - limits.VAULT_ENTRIES_KEPT))
    return number


def hashed(vault: int, number: int, before: bytes, body: bytes) -> bytes:
    """Return the hash of an entry."""
    # Vault and number are in the hash, so an entry can't move to another place or trail.
    return sha256(_LABEL + _ONE.pack(vault) + _LONG.pack(number) + before + body).digest()


def is_about(entry: VaultEntry) -> bool:
    """True if the entry records a permitted write or erasure of its record."""
    return entry.action in _ABOUT and entry.outcome == GRANTED


def find(tx: Transaction, vault: int, number: int) -> TrailEntry | None:
    """Return an entry by its number; None if it has been deleted, or never existed."""
    row = raw(tx, vault, number)
    return None if row is None else read(vault, number, row)


def raw(tx: Transaction, vault: int, number: int) -> bytes | None:
    """Return the bytes of an entry, or None as `find`. Equal bytes decode to equal entries."""
    return tx.get(_at(vault, number))


def read(vault: int, number: int, row: bytes) -> TrailEntry:
    """Decode an entry."""
    body, before, mac = _row.decode(row)
    return TrailEntry(
        number, _decoder.decode(body), hashed(vault, number, before, body), before, mac
    )


def last_about(tx: Transaction, vault: int, id: str) -> int:
    """Return the number of the newest entry about a write or erasure of a record; 0: none."""
    row = tx.get(_last(vault, id))
    if row is None:
        return 0
    (number,) = _LONG.unpack(row)
    assert isinstance(number, int)
    return number


def newest(tx: Transaction, vault: int, before: int | None = None) -> Iterator[TrailEntry]:
    """Yield entries, newest first.

    :param before: only entries before this number
    """
    start, end = keys.within(_prefix(keys.VAULT_ENTRY, vault))
    if before is not None:
        # The bound keeps any number of a request within the 64 bits of the key.
        end = min(end, _at(vault, min(before, 2**63)))
    for pairs in tx.scan(start, end, reverse=True):
        for key, value in pairs:
            yield read(vault, _number(key), value)


def is_authentic(kept: TrailEntry, key: bytes) -> bool:
    """True if an entry's HMAC was made with this key."""
    # In constant time. An empty MAC of a writer without a key never matches.
    return hmac.compare_digest(kept.mac, hmac.digest(key, kept.hash, "sha256"))


def _last(vault: int, id: str) -> bytes:
    return _prefix(keys.VAULT_LAST, vault) + id.encode("utf-8", "surrogatepass")


def _number(key: bytes) -> int:
    (number,) = _LONG.unpack_from(key, len(key) - _LONG.size)
    assert isinstance(number, int)
    return number
