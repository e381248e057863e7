"""The form of an entry of a vault's trail.

It is read back by its annotations, as `entries.py`: in a module of its own, which is not compiled.
"""

from __future__ import annotations

import msgspec


class VaultEntry(msgspec.Struct, frozen=True, array_like=True):
    """Who has done, or was refused, what."""

    at_us: int
    """Log time, microseconds since 1970."""
    user: str
    role: str
    surface: str
    address: str
    action: str
    """unseal, seal, passphrase, rekey, rotate, rotated, define, drop, write, reveal, erase, list"""
    vault: str
    """Its path; empty: the store's own passphrase."""
    outcome: str
    """`granted`, or the code of the refusal."""
    id: str | None = None
    """Of the record; of a list what it was asked to begin with."""
    version: int | None = None
    """Of the record; of a rotation that of the key."""
    reason: str | None = None
    request: str = ""
    more: int = 0
    """How many like it came since the one before and have no entry."""
    digest: bytes | None = None
    """Of a write: SHA-256 of what was sealed."""
    key_version: int = 0
    """Of the key that its HMAC is made with, in the store's trail the generation of its root key;
    0: there is none."""
