"""Format of an entry in a vault's trail.

Decoding uses its annotations, as in `entries.py`, so this is a module of its own that is not
compiled.
"""

from __future__ import annotations

import msgspec


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
