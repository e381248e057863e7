"""Rows of vaults: their keys in the state, and the formats of their values.

| row | value |
|---|---|
| all vaults (02) | a map: domain, root (the store's root key, wrapped), generation |
| a vault (1D) | a map: id, own, versions, comment |
| its keys (29) | a map: current, wraps by version, root (its own, wrapped), began |
| a record (32) | [last version, [existing versions]] |
| a value (33) | key version (4) time (8) entry (8) nonce (12) sealed value |

`entry` is the number of the trail's entry that records the write, with the digest of the sealed
value. `began` is the number of values that the vault's keys had sealed when the current key was
made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple

from protocol import binary
from storage.formats import keys
from storage.formats.keys import Range
from storage.vaults.cipher import Argon2Parameters, RootWrap

_TWO: Final = Struct(">II")
_THREE: Final = Struct(">III")
_ONE: Final = Struct(">I")
_LONG: Final = Struct(">Q")
_HEAD: Final = Struct(">IQQ")
_END: Final = b"\x00"
"""Terminator of an id, which can't contain this byte."""

Numbers = tuple[int, int, int]
"""Ids of namespace, database and vault."""


def _tag(tag: int) -> bytes:
    return keys.tagged(tag)[0]


STORE_KEY: Final = _tag(keys.VAULT_STORE)


def declared(namespace: int, database: int, name: str) -> bytes:
    """Return the key of a vault's declaration."""
    return _tag(keys.VAULT) + _TWO.pack(namespace, database) + name.encode()


def all_declared(namespace: int, database: int) -> Range:
    """Return the key range of a database's vault declarations, by name."""
    return keys.within(_tag(keys.VAULT) + _TWO.pack(namespace, database))


def of_vault(tag: int, numbers: Numbers) -> bytes:
    """Return the key prefix of a vault's rows with a tag, or its only such key.

    :param tag: one of OF_VAULTS
    """
    return _tag(tag) + _THREE.pack(*numbers)


def in_vault(numbers: Numbers) -> list[Range]:
    """Return the key ranges of a vault's contents, without its declaration."""
    return [keys.within(of_vault(tag, numbers)) for tag in keys.OF_VAULTS]


def record(numbers: Numbers, id: bytes) -> bytes:
    """Return the key of a record's list of versions."""
    return of_vault(keys.VAULT_RECORD, numbers) + id


def erased(numbers: Numbers, id: bytes) -> bytes:
    """Return the key of an erased record's last version."""
    return of_vault(keys.VAULT_ERASED, numbers) + id


def record_id(key: bytes) -> bytes:
    """Return the id in the key of a record."""
    return key[keys.RECORD_PREFIX_BYTES :]


def value(numbers: Numbers, id: bytes, version: int) -> bytes:
    """Return the key of a value."""
    # Without the end mark, a version could read as the rest of a longer id.
    return of_vault(keys.VAULT_VALUE, numbers) + id + _END + _LONG.pack(version)


def use(numbers: Numbers, key_version: int, id: bytes, version: int) -> bytes:
    """Return the key of the row that records which key has sealed a value."""
    # By key version first: a rotation finds the values left by one short scan.
    tail = _ONE.pack(key_version) + id + _END + _LONG.pack(version)
    return of_vault(keys.VAULT_USE, numbers) + tail


def uses(numbers: Numbers, key_version: int) -> Range:
    """Return the key range of all values that a key has sealed."""
    return keys.within(of_vault(keys.VAULT_USE, numbers) + _ONE.pack(key_version))


def used(key: bytes) -> tuple[bytes, int]:
    """Return the id and the version in the key of a use."""
    # From both ends: the id between has no fixed length.
    at = keys.RECORD_PREFIX_BYTES + _ONE.size
    (version,) = _LONG.unpack_from(key, len(key) - _LONG.size)
    return key[at : -_LONG.size - len(_END)], version


# --- values of rows -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreRow:
    """Store-wide row on which all vaults depend."""

    domain: bytes
    root: RootWrap | None = field(default=None, repr=False)
    """Root key of the store, wrapped; None: the store has no passphrase yet."""
    generation: int = 0
    """Generation of the root key: number of times that one was made, from 1."""

    def pack(self) -> bytes:
        """Encode the row."""
        return binary.pack(
            {"domain": self.domain, "root": _packed(self.root), "generation": self.generation}
        )


def read_store(row: bytes) -> StoreRow:
    """Decode a row."""
    kept: Any = binary.unpack(row)
    return StoreRow(kept["domain"], _wrap(kept["root"]), kept["generation"])


@dataclass(frozen=True, slots=True)
class KeysRow:
    """Keys of a vault, wrapped."""

    current: int = 0
    """Version of the key that seals; 0: no key has been made yet."""
    wraps: dict[int, bytes] = field(default_factory=dict, repr=False)
    """Wrapped keys by version. With more than one, values of the older ones are being re-encrypted.
    """
    root: RootWrap | None = field(default=None, repr=False)
    """Root key of a vault with a passphrase of its own, wrapped."""
    began: int = 0

    def pack(self) -> bytes:
        """Encode the row."""
        # A list of pairs: the decoder takes maps with string keys only.
        wraps = [[version, sealed] for version, sealed in self.wraps.items()]
        return binary.pack(
            {
                "current": self.current,
                "wraps": wraps,
                "root": _packed(self.root),
                "began": self.began,
            }
        )

    @property
    def older(self) -> tuple[int, ...]:
        """Key versions whose values are being re-encrypted."""
        # Insertion order: the oldest key comes first, and is retired first.
        return tuple(version for version in self.wraps if version != self.current)


def read_keys(row: bytes | None) -> KeysRow:
    """Decode a row; without one, no key has been made yet."""
    if row is None:
        return KeysRow()
    kept: Any = binary.unpack(row)
    wraps: dict[int, bytes] = dict(kept["wraps"])
    return KeysRow(kept["current"], wraps, _wrap(kept["root"]), kept["began"])


def _packed(wrap: RootWrap | None) -> Any:
    if wrap is None:
        return None
    stretch = wrap.stretch
    return [wrap.salt, stretch.memory_kib, stretch.passes, stretch.lanes, wrap.sealed]


def _wrap(kept: Any) -> RootWrap | None:
    if kept is None:
        return None
    salt, memory_kib, passes, lanes, sealed = kept
    return RootWrap(salt, Argon2Parameters(memory_kib, passes, lanes), sealed)


class RecordRow(NamedTuple):
    """Versions of a record."""

    last: int
    kept: tuple[int, ...]
    """Existing versions, the oldest first."""

    def pack(self) -> bytes:
        """Encode the row."""
        return binary.pack([self.last, list(self.kept)])


def read_record(row: bytes) -> RecordRow:
    """Decode a row."""
    kept: Any = binary.unpack(row)
    return RecordRow(kept[0], tuple(kept[1]))


class ValueRow(NamedTuple):
    """Sealed value: a version of a record."""

    key_version: int
    at_us: int
    """Time of its write, microseconds since 1970."""
    entry: int
    """Number of the trail's entry of that write."""
    sealed: bytes

    def pack(self) -> bytes:
        """Encode the row."""
        return _HEAD.pack(self.key_version, self.at_us, self.entry) + self.sealed


def read_value(row: bytes) -> ValueRow:
    """Decode a row."""
    key_version, at_us, entry = _HEAD.unpack_from(row)
    return ValueRow(key_version, at_us, entry, row[_HEAD.size :])


def pack_version(version: int) -> bytes:
    """Encode the last version of an erased record."""
    return _LONG.pack(version)


def read_version(row: bytes | None) -> int:
    """Decode the last version of an erased record; 0 without a row."""
    if row is None:
        return 0
    (version,) = _LONG.unpack(row)
    assert isinstance(version, int)
    return version
