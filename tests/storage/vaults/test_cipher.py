"""The chain of keys against a second way: argon2-cffi, and GCM by hand over AES of one block."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any

import pytest
from argon2.low_level import Type, hash_secret_raw
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from protocol.errors import WrongKey
from storage.vaults import cipher as vault_seals
from storage.vaults.cipher import Argon2Parameters, RootWrap, ValueAddress

DOMAIN = bytes(range(16))
SALT = bytes(range(16, 32))
STRETCH = Argon2Parameters(19 * 1024, 2, 1)
PASSPHRASE = "correct horse ✓"
NONCE = bytes(range(100, 112))
ROOT = bytearray(range(32))
KEY = bytearray(range(32, 64))
SPOT = ValueAddress(DOMAIN, (7, 8, 9), b"stripe/live", 3)


def fixed(count: int) -> bytes:
    """Randomness that is none."""
    return NONCE[:count]


def by_hand(key: bytes, nonce: bytes, plain: bytes, aad: bytes) -> bytes:
    """AES-256-GCM from the words of NIST SP 800-38D, over AES of one block."""

    def block(data: bytes) -> bytes:
        encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        return encryptor.update(data) + encryptor.finalize()

    subkey = int.from_bytes(block(bytes(16)))

    def times(x: int, y: int) -> int:
        product, factor = 0, y
        for bit in range(127, -1, -1):
            if x >> bit & 1:
                product ^= factor
            factor = factor >> 1 ^ (0xE1 << 120 if factor & 1 else 0)
        return product

    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 16)

    stream = b"".join(
        block(nonce + number.to_bytes(4)) for number in range(2, 3 + (len(plain) + 15) // 16)
    )
    sealed = bytes(a ^ b for a, b in zip(plain, stream, strict=False))
    lengths = (8 * len(aad)).to_bytes(8) + (8 * len(sealed)).to_bytes(8)
    text, state = padded(aad) + padded(sealed) + lengths, 0
    for at in range(0, len(text), 16):
        state = times(state ^ int.from_bytes(text[at : at + 16]), subkey)
    tag = state ^ int.from_bytes(block(nonce + (1).to_bytes(4)))
    return nonce + sealed + tag.to_bytes(16)


def test_wrapping_key() -> None:
    secret = PASSPHRASE.encode()
    raw = hash_secret_raw(secret, SALT, 2, 19 * 1024, 1, 32, Type.ID)
    found = vault_seals.stretched(PASSPHRASE, SALT, STRETCH)
    assert bytes(found) == raw
    assert raw.hex() == ("47cf2de7d4f3298501ee4ae2579ef40bb7e4dffde89e14773f5ccfac6a288bb1")
    vault_seals.wipe(found)
    assert bytes(found) == bytes(32)


@pytest.mark.parametrize(
    "stretch",
    [
        Argon2Parameters(19 * 1024 - 1, 2, 1), Argon2Parameters(256 * 1024 + 1, 2, 1),
        Argon2Parameters(19 * 1024, 17, 1), Argon2Parameters(19 * 1024, 0, 1),
        Argon2Parameters(19 * 1024, 1, 9), Argon2Parameters(19 * 1024, 1, 0),
    ],
)  # fmt: skip
def test_unbearable_parameters(stretch: Argon2Parameters) -> None:
    with pytest.raises(WrongKey, match="bounds"):
        vault_seals.stretched(PASSPHRASE, SALT, stretch)


def test_root_wrap() -> None:
    wrapping = vault_seals.stretched(PASSPHRASE, SALT, STRETCH)
    wrap = vault_seals.wrap_root(wrapping, ROOT, DOMAIN, 9, SALT, STRETCH, fixed)
    numbers = b"".join(number.to_bytes(4) for number in (9, 19 * 1024, 2, 1))
    aad = b"storenode vault\x01" + DOMAIN + numbers + SALT
    assert wrap.sealed == by_hand(bytes(wrapping), NONCE, bytes(ROOT), aad)
    assert wrap.sealed.hex() == (
        "6465666768696a6b6c6d6e6fb02e79b23edba1f6374b7dcd81f07b3334a4"
        "4e9009af696d21ce5ca074ffad05abe7cbbcf488ac678e5886a1ea3b8e00"
    )
    assert vault_seals.unwrap_root(wrapping, wrap, DOMAIN, 9) == ROOT
    other = vault_seals.stretched(PASSPHRASE + "!", SALT, STRETCH)
    for key, found, domain, vault in (
        (other, wrap, DOMAIN, 9),
        (wrapping, wrap, bytes(16), 9),
        (wrapping, wrap, DOMAIN, 0),
        (wrapping, RootWrap(bytes(16), STRETCH, wrap.sealed), DOMAIN, 9),
        (wrapping, RootWrap(SALT, Argon2Parameters(19 * 1024, 3, 1), wrap.sealed), DOMAIN, 9),
        (wrapping, RootWrap(SALT, STRETCH, wrap.sealed[:-1]), DOMAIN, 9),
    ):
        with pytest.raises(WrongKey):
            vault_seals.unwrap_root(key, found, domain, vault)


def test_key_wrap() -> None:
    sealed = vault_seals.wrap_key(ROOT, KEY, DOMAIN, 9, 2, fixed)
    aad = b"storenode vault\x02" + DOMAIN + (9).to_bytes(4) + (2).to_bytes(4)
    assert sealed == by_hand(bytes(ROOT), NONCE, bytes(KEY), aad)
    assert vault_seals.unwrap_key(ROOT, sealed, DOMAIN, 9, 2) == KEY
    for root, domain, vault, version in (
        (KEY, DOMAIN, 9, 2), (ROOT, SALT, 9, 2), (ROOT, DOMAIN, 8, 2), (ROOT, DOMAIN, 9, 1),
    ):  # fmt: skip
        with pytest.raises(WrongKey):
            vault_seals.unwrap_key(root, sealed, domain, vault, version)


def test_value() -> None:
    cipher = AESGCM(KEY)
    sealed = vault_seals.seal(cipher, SPOT, 2, b"sk_live_51", fixed)
    numbers = b"".join(number.to_bytes(4) for number in (7, 8, 9, 2))
    aad = b"storenode vault\x03" + DOMAIN + numbers + (3).to_bytes(8) + b"stripe/live"
    assert sealed == by_hand(bytes(KEY), NONCE, b"sk_live_51", aad)
    assert vault_seals.open_sealed(cipher, SPOT, 2, sealed) == b"sk_live_51"


def test_nothing_opens_elsewhere() -> None:
    cipher = AESGCM(KEY)
    sealed = vault_seals.seal(cipher, SPOT, 2, b"sk_live_51", fixed)
    elsewhere = [
        ValueAddress(SALT, (7, 8, 9), b"stripe/live", 3),
        ValueAddress(DOMAIN, (1, 8, 9), b"stripe/live", 3),
        ValueAddress(DOMAIN, (7, 1, 9), b"stripe/live", 3),
        ValueAddress(DOMAIN, (7, 8, 1), b"stripe/live", 3),
        ValueAddress(DOMAIN, (7, 8, 9), b"stripe/test", 3),
        ValueAddress(DOMAIN, (7, 8, 9), b"stripe/live", 4),
    ]  # fmt: skip
    for spot in elsewhere:
        with pytest.raises(WrongKey):
            vault_seals.open_sealed(cipher, spot, 2, sealed)
    with pytest.raises(WrongKey):
        vault_seals.open_sealed(cipher, SPOT, 1, sealed)
    with pytest.raises(WrongKey):
        vault_seals.open_sealed(AESGCM(ROOT), SPOT, 2, sealed)


def test_every_flipped_bit_and_every_cut() -> None:
    cipher = AESGCM(KEY)
    sealed = vault_seals.seal(cipher, SPOT, 2, b"sk_live_51", fixed)
    for bit in range(8 * len(sealed)):
        garbled = bytearray(sealed)
        garbled[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WrongKey):
            vault_seals.open_sealed(cipher, SPOT, 2, bytes(garbled))
    for end in range(len(sealed)):
        with pytest.raises(WrongKey):
            vault_seals.open_sealed(cipher, SPOT, 2, sealed[:end])


def test_an_older_library_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldArgon2id:
        def __init__(self, **parameters: Any) -> None:
            self._made = Argon2id(**parameters)

        def derive(self, secret: bytes) -> bytes:
            return self._made.derive(secret)

    class OldCipher:
        def __init__(self, key: bytearray) -> None:
            self._made = AESGCM(key)

        def decrypt(self, nonce: bytes, sealed: bytes, aad: bytes) -> bytes:
            return self._made.decrypt(nonce, sealed, aad)

    wrapping = vault_seals.stretched(PASSPHRASE, SALT, STRETCH)
    sealed = vault_seals.wrap_key(ROOT, KEY, DOMAIN, 9, 2, fixed)
    monkeypatch.setattr(vault_seals, "Argon2id", OldArgon2id)
    monkeypatch.setattr(vault_seals, "AESGCM", OldCipher)
    assert vault_seals.stretched(PASSPHRASE, SALT, STRETCH) == wrapping
    assert vault_seals.unwrap_key(ROOT, sealed, DOMAIN, 9, 2) == KEY
    with pytest.raises(WrongKey):
        vault_seals.unwrap_key(KEY, sealed, DOMAIN, 9, 2)


def test_trail_key() -> None:
    # HKDF by hand: RFC 5869 with one block.
    extracted = hmac.digest(DOMAIN, bytes(KEY), sha256)
    info = b"storenode vault trail" + (9).to_bytes(4)
    assert vault_seals.trail_key(bytes(KEY), DOMAIN, 9) == hmac.digest(
        extracted, info + b"\x01", sha256
    )  # fmt: skip
