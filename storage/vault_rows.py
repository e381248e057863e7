"""The rows of vaults: their keys in the state, and the forms of what stands there.

| row | value |
|---|---|
| all vaults (02) | a map: domain, root (the store's root key, wrapped), generation |
| a vault (1D) | a map: id, own, versions, comment |
| its keys (29) | a map: current, wraps by version, root (its own, wrapped), began |
| a record (32) | [last version, [versions that are there]] |
| a value (33) | key version (4) time (8) entry (8) nonce (12) what is sealed |

`entry` is the number of the trail's entry that says the value was written; it holds the digest of
what was sealed. `began` is how many values the vault's keys had sealed when the current one came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple

from protocol import binary
from storage import keys
from storage.keys import Range
from storage.vault_seals import RootWrap, Stretch

_TWO: Final = Struct(">II")
_THREE: Final = Struct(">III")
_ONE: Final = Struct(">I")
_LONG: Final = Struct(">Q")
_HEAD: Final = Struct(">IQQ")
_END: Final = b"\x00"
"""Behind an id, which holds no such byte."""

Numbers = tuple[int, int, int]
"""Ids of namespace, database and vault."""


def _tag(tag: int) -> bytes:
    return keys.tagged(tag)[0]


STORE_KEY: Final = _tag(keys.VAULT_STORE)


def declared(namespace: int, database: int, name: str) -> bytes:
    """Where a vault is declared."""
    return _tag(keys.VAULT) + _TWO.pack(namespace, database) + name.encode()


def all_declared(namespace: int, database: int) -> Range:
    """The declarations of a database's vaults, by name."""
    return keys.within(_tag(keys.VAULT) + _TWO.pack(namespace, database))


def of_vault(tag: int, numbers: Numbers) -> bytes:
    """What keys of a vault begin with, or its one key of that tag. :param tag: of OF_VAULTS"""
    return _tag(tag) + _THREE.pack(*numbers)


def in_vault(numbers: Numbers) -> list[Range]:
    """Everything that goes when a vault is dropped, its own declaration apart."""
    return [keys.within(of_vault(tag, numbers)) for tag in keys.OF_VAULTS]


def record(numbers: Numbers, id: bytes) -> bytes:
    """Where it stands which versions of a record there are."""
    return of_vault(keys.VAULT_RECORD, numbers) + id


def erased(numbers: Numbers, id: bytes) -> bytes:
    """Where it stands which version an erased record had last."""
    return of_vault(keys.VAULT_ERASED, numbers) + id


def record_id(key: bytes) -> bytes:
    """The id in the key of a record."""
    return key[keys.RECORD_PREFIX_BYTES :]


def value(numbers: Numbers, id: bytes, version: int) -> bytes:
    """Where a value stands."""
    return of_vault(keys.VAULT_VALUE, numbers) + id + _END + _LONG.pack(version)


def use(numbers: Numbers, key_version: int, id: bytes, version: int) -> bytes:
    """Where it stands that a key has sealed a value."""
    tail = _ONE.pack(key_version) + id + _END + _LONG.pack(version)
    return of_vault(keys.VAULT_USE, numbers) + tail


def uses(numbers: Numbers, key_version: int) -> Range:
    """All that a key has sealed."""
    return keys.within(of_vault(keys.VAULT_USE, numbers) + _ONE.pack(key_version))


def used(key: bytes) -> tuple[bytes, int]:
    """The id and the version in the key of a use."""
    at = keys.RECORD_PREFIX_BYTES + _ONE.size
    (version,) = _LONG.unpack_from(key, len(key) - _LONG.size)
    return key[at : -_LONG.size - len(_END)], version


# --- values of rows -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreRow:
    """What all vaults hang on."""

    domain: bytes
    root: RootWrap | None = field(default=None, repr=False)
    """The store's root key; None: nobody has given the store a passphrase."""
    generation: int = 0
    """Of that root key, from 1 on: how often it was made."""

    def pack(self) -> bytes:
        """The row."""
        return binary.pack(
            {"domain": self.domain, "root": _packed(self.root), "generation": self.generation}
        )


def read_store(row: bytes) -> StoreRow:
    """Of a row."""
    kept: Any = binary.unpack(row)
    return StoreRow(kept["domain"], _wrap(kept["root"]), kept["generation"])


@dataclass(frozen=True, slots=True)
class KeysRow:
    """The keys of a vault, wrapped."""

    current: int = 0
    """The version that seals; 0: none has been needed so far."""
    wraps: dict[int, bytes] = field(default_factory=dict, repr=False)
    """By version. More than one: values of the older ones are being sealed again."""
    root: RootWrap | None = field(default=None, repr=False)
    """Of a vault with a passphrase of its own."""
    began: int = 0

    def pack(self) -> bytes:
        """The row."""
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
        """Versions whose values are being sealed again."""
        return tuple(version for version in self.wraps if version != self.current)


def read_keys(row: bytes | None) -> KeysRow:
    """Of a row; of none: no key has been needed so far."""
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
    return RootWrap(salt, Stretch(memory_kib, passes, lanes), sealed)


class RecordRow(NamedTuple):
    """Which versions of a record there are."""

    last: int
    kept: tuple[int, ...]
    """The oldest first."""

    def pack(self) -> bytes:
        """The row."""
        return binary.pack([self.last, list(self.kept)])


def read_record(row: bytes) -> RecordRow:
    """Of a row."""
    kept: Any = binary.unpack(row)
    return RecordRow(kept[0], tuple(kept[1]))


class ValueRow(NamedTuple):
    """One version of a record."""

    key_version: int
    at_us: int
    """When it was written, microseconds since 1970."""
    entry: int
    """The number of the trail's entry that says so."""
    sealed: bytes

    def pack(self) -> bytes:
        """The row."""
        return _HEAD.pack(self.key_version, self.at_us, self.entry) + self.sealed


def read_value(row: bytes) -> ValueRow:
    """Of a row."""
    key_version, at_us, entry = _HEAD.unpack_from(row)
    return ValueRow(key_version, at_us, entry, row[_HEAD.size :])


def pack_version(version: int) -> bytes:
    """The last version of an erased record."""
    return _LONG.pack(version)


def read_version(row: bytes | None) -> int:
    """Of such a row; of none 0."""
    if row is None:
        return 0
    (version,) = _LONG.unpack(row)
    assert isinstance(version, int)
    return version
