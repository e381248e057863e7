"""Structure of the entries that frames carry for the statement log, the audit trail, and a
vault's trail.

msgspec decodes these classes by their annotations. A compiled module does not keep annotations as
written, so this module is excluded from compilation.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

STATEMENTS: Final = 1
AUDIT: Final = 2
"""Flags of the logs that keep an entry; `Entry.kept` is their sum."""


# Arrays: names of fields would be in each frame. So a new field may only be added at the end.
class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Entry of the statement log or the audit trail, beside the commit's attribution."""

    kept: int
    """Destination: a sum of `STATEMENTS` and `AUDIT`."""
    request: str
    """Request id."""
    address: str
    """Network address of the caller."""
    namespace: str | None
    database: str | None
    """Names of the namespace and database in which the statement ran."""
    places: tuple[tuple[int, ...], ...]
    """Namespaces and databases touched, by their ids; (): the store itself."""
    action: str | None = None
    """Description of an operation that has no statement."""
    refused: str | None = None
    """Name of the error that refused it; None: it succeeded."""
    needs: str | None = None
    """Missing right, if it was refused for one."""
    more: int = 0
    """Number of similar requests since the previous entry that have no entry of their own."""


# An unknown item is refused: to skip it could lose a part of a commit.
class Body(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Body of a frame, as `effects.py` defines it."""

    by: str
    how: str
    statement: str | None
    reason: str | None
    effects: list[tuple[Any, ...]]
    entry: Entry | None = None


class VaultEntry(msgspec.Struct, frozen=True, array_like=True):
    """Action on a vault, granted or refused."""

    at_us: int
    """Log time, microseconds since 1970."""
    user: str
    role: str
    surface: str
    address: str
    action: str
    """Kind of action: unseal, seal, passphrase, rekey, rotate, rotated, define, drop, write,
    reveal, erase or list."""
    vault: str
    """Path of the vault; empty: the store's own passphrase."""
    outcome: str
    """`granted`, or the code of the refusal."""
    id: str | None = None
    """Id of the record; for a list, the requested prefix."""
    version: int | None = None
    """Version of the record; for a rotation, of the key."""
    reason: str | None = None
    request: str = ""
    more: int = 0
    """Number of similar actions since the previous entry that have no entry."""
    digest: bytes | None = None
    """SHA-256 of the sealed value, for a write."""
    key_version: int = 0
    """Version of the key of its HMAC, in the store's trail the generation of its root key; 0: no
    HMAC."""
