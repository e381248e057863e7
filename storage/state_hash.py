"""State hash: one digest of all logged keys and values, to compare replicas.

Two stores that replayed the same log have the same hash, on any engine, machine or day. That holds
for a live node, the same node after replay, one restored from a backup, and a follower. The hash
covers all keys in order: length of the key, length of the value (4 bytes each), key, value.

Index entries are left out: they are derived from the rest, and each version may derive them
differently.
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
    """Hash a state, yielding after every few hundred pairs. Return the digest in hexadecimal.

    Pass a view if others write in between.
    """
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
    """Hash a state without yielding."""
    slices = hash_in_slices(state)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return str(done.value)
