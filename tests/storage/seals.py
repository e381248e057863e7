"""Counts what is sealed: no two seals may share a key and a nonce."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class NonceUsedTwice(AssertionError):
    """Two seals under one key have the same nonce: who has both reads both, and can make others."""


class Seals:
    """What has been sealed inside `counted`."""

    def __init__(self) -> None:
        self.count = 0
        self.keys: set[bytes] = set()
        self._used: set[bytes] = set()

    def note(self, key: bytes, nonce: bytes) -> None:
        """One more. :raises NonceUsedTwice:"""
        if key + nonce in self._used:
            raise NonceUsedTwice(f"nonce {nonce.hex()}, the {self.count}th seal")
        self._used.add(key + nonce)
        self.keys.add(key)
        self.count += 1


@contextmanager
def counted() -> Iterator[Seals]:
    """Every seal inside the block is counted, whatever process is simulated."""
    seals = Seals()

    class Counted:
        def __init__(self, key: bytes) -> None:
            self._key, self._cipher = key, AESGCM(key)
            self.decrypt = self._cipher.decrypt

        def encrypt(self, nonce: bytes, data: bytes, beside: bytes) -> bytes:
            seals.note(self._key, nonce)
            return self._cipher.encrypt(nonce, data, beside)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("storage.formats.sealing.AESGCM", Counted)
        yield seals
