"""One number for the whole state: equal exactly when all keys and values that the log tells of are.

What indexes hold is left out: it follows from the rest, and how is the business of each version.

Two stores that folded the same log have the same one, whatever engine, machine or day: a live
node, the same node after replay, one restored from a backup, a follower. Over all keys in order:
length of the key, length of the value (4 bytes each), key, value.
"""

from __future__ import annotations

from collections.abc import Generator
from hashlib import blake2b
from struct import Struct
from typing import Final

from storage import keys
from storage.engine import Reader

DIGEST_BYTES: Final = 32
_LENGTHS: Final = Struct(">II")


def hash_in_slices(state: Reader) -> Generator[None, None, str]:
    """Hash a state, handing control back after every few hundred pairs; returns the digest in
    hexadecimal. Give it a view when others write in between."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    pack = _LENGTHS.pack
    for logged in keys.LOGGED:
        for pairs in state.scan(*logged):
            parts = [
                part for key, value in pairs for part in (pack(len(key), len(value)), key, value)
            ]
            digest.update(b"".join(parts))
            yield
    return digest.hexdigest()


def state_hash(state: Reader) -> str:
    """Hash a state in one go."""
    slices = hash_in_slices(state)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return str(done.value)
