"""Cryptography of vaults: key derivation, key wrapping and value encryption, as pure functions.

    passphrase --argon2id--> wrapping key --> root key --> keys of vaults, by version --> values

Each arrow behind the first is AES-256-GCM under a random nonce, which precedes the ciphertext.
The associated data name its kind and place, so that it fails to decrypt in another place:

| ciphertext | associated data |
|---|---|
| a root key | `storenode vault`, 1, domain (16), vault (4), memory (4), passes (4), lanes (4), |
| | salt |
| a vault's key | `storenode vault`, 2, domain (16), vault (4), key version (4) |
| a value | `storenode vault`, 3, domain (16), ns (4), db (4), vault (4), key version (4), |
| | version (8), id |

Wrapped keys are rows of the state (`storage/vaults/rows.py`). Plain ones are only in memory, in
`actors/vaults/keyring.py`, from UNSEAL to SEAL.

Numbers are big-endian. The *domain* is 16 random bytes of the store; the vault of the store's own
root key is 0. A trail's HMAC-SHA256 is under 32 bytes of HKDF-SHA256 of a key, with the domain as
its salt, and `storenode vault trail` and the vault as its info.

Plain keys are `bytearray`, so that their holder can wipe them. Python keeps copies of data that
passed through `str` and `bytes`, and a cipher keeps a copy of its key, until they are freed. The
documentation says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocol.errors import WrongKey

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SALT_BYTES: Final = 16
DOMAIN_BYTES: Final = 16

_LABEL: Final = b"storenode vault"
_ROOT: Final = Struct(">15sB16sIIII")
_KEY: Final = Struct(">15sB16sII")
_VALUE: Final = Struct(">15sB16sIIIIQ")
_IS_ROOT: Final = 1
_IS_KEY: Final = 2
_IS_VALUE: Final = 3

Cipher = AESGCM
"""Cipher of a key. It keeps a copy of the key for as long as it lives."""
Random = Callable[[int], bytes]
"""Function that returns the given number of random bytes."""


@dataclass(frozen=True, slots=True)
class Argon2Parameters:
    """Parameters of argon2id, which derives a key from a passphrase."""

    # RFC 9106 §4, the second recommended option.
    memory_kib: int = 64 * 1024
    passes: int = 3
    lanes: int = 4

    def is_bearable(self) -> bool:
        """True if a node accepts these parameters when it finds them in its state."""
        # The lower bounds keep a tampered row from weakening the key, the upper ones from using up
        # memory and threads. Both apply before the row can be authenticated.
        return (
            19 * 1024 <= self.memory_kib <= 256 * 1024
            and 1 <= self.passes <= 16
            and 1 <= self.lanes <= 8
        )


@dataclass(frozen=True, slots=True)
class RootWrap:
    """Root key wrapped under a passphrase."""

    salt: bytes
    stretch: Argon2Parameters
    sealed: bytes


@dataclass(frozen=True, slots=True)
class ValueAddress:
    """Place of a value, which its encryption is bound to."""

    domain: bytes
    vault: tuple[int, int, int]
    """Ids of namespace, database and vault."""
    id: bytes
    version: int
    """Version of the record."""


def new_key(random: Random) -> bytearray:
    """Generate a root key, or a vault's key."""
    return bytearray(random(KEY_BYTES))


def wipe(key: bytearray) -> None:
    """Overwrite a plain key."""
    # In place: a new object would leave the old bytes in memory.
    key[:] = bytes(len(key))


def stretched(passphrase: str, salt: bytes, stretch: Argon2Parameters) -> bytearray:
    """Derive the wrapping key of a passphrase. Slow on purpose.

    :raises WrongKey: the parameters are out of bounds, so no node has stored them
    """
    if not stretch.is_bearable():
        raise WrongKey(
            "the parameters of the passphrase are out of bounds: they were tampered with"
        )
    # A passphrase may hold lone surrogates, which strict UTF-8 refuses.
    secret = passphrase.encode("utf-8", "surrogatepass")
    argon2id = Argon2id(
        salt=salt,
        length=KEY_BYTES,
        iterations=stretch.passes,
        lanes=stretch.lanes,
        memory_cost=stretch.memory_kib,
    )
    if not hasattr(argon2id, "derive_into"):  # older versions of cryptography: one more copy
        return bytearray(argon2id.derive(secret))
    found = bytearray(KEY_BYTES)
    argon2id.derive_into(secret, found)
    return found


# --- wraps ----------------------------------------------------------------------------------------


def wrap_root(
    wrapping: bytearray,
    root: bytearray,
    domain: bytes,
    vault: int,
    salt: bytes,
    stretch: Argon2Parameters,
    random: Random,
) -> RootWrap:
    """Wrap a root key under a wrapping key.

    :param vault: its vault; 0: the store
    """
    sealed = _sealed(wrapping, root, _of_root(domain, vault, salt, stretch), random)
    return RootWrap(salt, stretch, sealed)


def unwrap_root(wrapping: bytearray, wrap: RootWrap, domain: bytes, vault: int) -> bytearray:
    """Unwrap a root key.

    :raises WrongKey: the passphrase is another, or the wrap was tampered with
    """
    return _opened(wrapping, wrap.sealed, _of_root(domain, vault, wrap.salt, wrap.stretch))


def wrap_key(
    root: bytearray, key: bytearray, domain: bytes, vault: int, version: int, random: Random
) -> bytes:
    """Wrap a vault's key under its root key."""
    return _sealed(root, key, _of_key(domain, vault, version), random)


def unwrap_key(
    root: bytearray, sealed: bytes, domain: bytes, vault: int, version: int
) -> bytearray:
    """Unwrap a vault's key.

    :raises WrongKey: it belongs to another root, vault or version
    """
    return _opened(root, sealed, _of_key(domain, vault, version))


def _of_root(domain: bytes, vault: int, salt: bytes, stretch: Argon2Parameters) -> bytes:
    numbers = (stretch.memory_kib, stretch.passes, stretch.lanes)
    # Parameters and salt are authenticated too: an altered wrap fails to open.
    return _ROOT.pack(_LABEL, _IS_ROOT, domain, vault, *numbers) + salt


def _of_key(domain: bytes, vault: int, version: int) -> bytes:
    return _KEY.pack(_LABEL, _IS_KEY, domain, vault, version)


def _sealed(key: bytearray, plain: bytearray, aad: bytes, random: Random) -> bytes:
    nonce = random(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, aad)


def _opened(key: bytearray, sealed: bytes, aad: bytes) -> bytearray:
    # `decrypt_into` below needs a buffer of exactly this size.
    if len(sealed) != NONCE_BYTES + KEY_BYTES + TAG_BYTES:
        raise _wrong()
    cipher, nonce, rest = AESGCM(key), sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        if not hasattr(cipher, "decrypt_into"):  # as above
            return bytearray(cipher.decrypt(nonce, rest, aad))
        found = bytearray(KEY_BYTES)
        cipher.decrypt_into(nonce, rest, aad, found)
    except InvalidTag:
        raise _wrong() from None
    return found


# --- values ---------------------------------------------------------------------------------------


def seal(
    cipher: Cipher, spot: ValueAddress, key_version: int, plain: bytes, random: Random
) -> bytes:
    """Encrypt a value under a vault's key."""
    # Random 96 bits are safe for 2^32 seals of one key (NIST SP 800-38D §8.3).
    nonce = random(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, plain, _of_value(spot, key_version))


def open_sealed(cipher: Cipher, spot: ValueAddress, key_version: int, sealed: bytes) -> bytes:
    """Decrypt a value.

    :raises WrongKey: it was sealed with another key or for another place, or was tampered with
    """
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise _wrong()
    try:
        return cipher.decrypt(
            sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _of_value(spot, key_version)
        )
    except InvalidTag:
        raise _wrong() from None


def _of_value(spot: ValueAddress, key_version: int) -> bytes:
    numbers = (*spot.vault, key_version, spot.version)
    return _VALUE.pack(_LABEL, _IS_VALUE, spot.domain, *numbers) + spot.id


def trail_key(key: bytes | bytearray, domain: bytes, vault: int) -> bytes:
    """Derive the HMAC key of a trail."""
    # A derived key, so that no key serves both AES-GCM and HMAC.
    info = _LABEL + b" trail" + vault.to_bytes(4, "big")
    return HKDF(SHA256(), KEY_BYTES, domain, info).derive(bytes(key))


def _wrong() -> WrongKey:
    return WrongKey(
        "a sealed value cannot be decrypted: it belongs to another key or another place"
    )
