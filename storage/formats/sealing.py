"""Encryption at rest: key files, and authenticated encryption of files and log frames.

`Sealer` encrypts the chunks of a file that is written in one go, like a backup. `FrameSealer`
encrypts frames of the log. `close_up` encrypts small files.

A key file holds 32 random bytes, raw or in base64. They never encrypt data directly: each file has
a key of its own, HKDF-SHA256 of those bytes, the 32 random bytes of its header, and its purpose. So
two files never share a key, however many are made.

A chunk is sealed with AES-256-GCM as in the STREAM construction: the nonce is the number of the
chunk (11 bytes) and a flag for the last one (1 byte). A chunk that is moved, left out, repeated,
taken from another file, or made the end of a longer file fails to decrypt. The associated data are
the file's header and the chunk's head.

Frames of a log are written over days, one by one, so their nonce is a counter: the number of seals
made under the key of their segment. It is stored in the frame. The writer counts in memory only and
never resumes an earlier count. A full disk, a crash or a copy of the directory may have used counts
that are unknown now. So a segment that was opened again, or cut back, is not written to any more
(`log.py`), and the next one has another key.

A header contains the id of the key, which distinguishes a wrong key from damage. The id is 16 bytes
of HKDF output, and reveals nothing of the key.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocol.environment import Fs, Rng
from protocol.errors import BadRequest

KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 16
NO_KEY: Final = bytes(KEY_ID_BYTES)
"""Key id of an unsealed file."""
SALT_BYTES: Final = 32
TAG_BYTES: Final = 16
_COUNT_BYTES: Final = 11
_FRAME_COUNT_BYTES: Final = 8
_ZEROS: Final = bytes(4)
FRAME_SEAL_BYTES: Final = _FRAME_COUNT_BYTES + TAG_BYTES
"""Bytes that a seal adds to a frame."""
_FILE_BYTES_MAX: Final = 256
"""Largest number of bytes read of a key file, which is far shorter."""
_LINE: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Key:
    """Encryption key of a store or backup."""

    secret: bytes = field(repr=False)
    id: bytes
    """Id in the headers of the files sealed with it."""


def name_of(key: Key | None) -> str:
    """Return the id by which nodes name a key to each other; empty without a key."""
    return "" if key is None else key.id.hex()


def key_of(secret: bytes) -> Key:
    """Make a key from its 32 bytes."""
    assert len(secret) == KEY_BYTES, "a key of another length"
    # Without a salt: the id is the same in all files that the key seals.
    return Key(secret, _derived(secret, b"", b"storenode key id", KEY_ID_BYTES))


def read_key(fs: Fs, path: str) -> Key:
    """Read a key file.

    :raises BadRequest: the file holds no key
    :raises OSError: reading fails
    """
    file = fs.open_read(path)
    try:
        data = file.read(0, _FILE_BYTES_MAX)
    finally:
        file.close()
    # Raw first: the base64 of 32 bytes has 44 characters, so the two are never confused.
    if len(data) == KEY_BYTES:
        return key_of(data)
    try:
        secret = base64.b64decode(data.strip(), validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise BadRequest(f"{path} holds no key: a key is {KEY_BYTES} bytes, or their base64")
    return key_of(secret)


def make_key(fs: Fs, path: str, rng: Rng) -> Key:
    """Generate a key in a new file. Durable on return.

    :raises FileExistsError: the path exists; it is not replaced
    :raises OSError: the disk fails
    """
    key = key_of(rng.bytes(KEY_BYTES))
    file = fs.open(path, exclusive=True)
    try:
        file.append(base64.b64encode(key.secret) + _LINE)
        file.sync()
    except OSError:
        # A partial key file would hold no key, and would keep a retry from creating one.
        fs.unlink(path)
        raise
    finally:
        file.close()
    # The name must last too: without its key file a sealed store can never be opened.
    folder, slash, _ = path.rpartition("/")
    fs.sync_directory(folder or slash or ".")
    return key


class Sealer:
    """Encryption and decryption of one file's chunks.

    :param salt: random bytes of the file's header
    :param purpose: kind of the file, so that its chunks fail to decrypt in a file of another kind
    """

    def __init__(self, key: Key, salt: bytes, purpose: bytes) -> None:
        assert len(salt) == SALT_BYTES, "a salt of another length"
        self._cipher = AESGCM(_derived(key.secret, salt, b"storenode " + purpose, KEY_BYTES))

    def seal(self, number: int, last: bool, data: bytes, beside: bytes) -> bytes:
        """Encrypt a chunk, bound to its place. The result is longer by `TAG_BYTES`.

        :param number: number of the chunk, unique in the file
        :param last: True for the last chunk of the file
        :param beside: associated data: not encrypted, but must be the same for decryption
        """
        return self._cipher.encrypt(_nonce(number, last), data, beside)

    def open(self, number: int, last: bool, data: bytes, beside: bytes) -> bytes | None:
        """Decrypt a chunk; None if authentication fails."""
        try:
            return self._cipher.decrypt(_nonce(number, last), data, beside)
        except InvalidTag:
            return None


class FrameSealer:
    """Encryption and decryption of one log segment's frames.

    Encrypted data are the count (8 bytes), as many bytes as the plain data, and the tag.

    :param salt: random bytes of the segment's header
    :param beside: associated data that identify the segment
    :param count: count of the next seal; None: decrypt only
    """

    def __init__(self, key: Key, salt: bytes, beside: bytes, count: int | None = None) -> None:
        assert len(salt) == SALT_BYTES, "a salt of another length"
        self._cipher = AESGCM(_derived(key.secret, salt, b"storenode segment", KEY_BYTES))
        self._beside = beside
        self._count = count

    def seal(self, data: bytes, beside: bytes) -> bytes:
        """Encrypt data. The result is longer by `FRAME_SEAL_BYTES`.

        :param beside: associated data: not encrypted, but must be the same for decryption
        """
        assert self._count is not None, "what was opened to be read takes no seals"
        count = self._count.to_bytes(_FRAME_COUNT_BYTES, "big")
        self._count += 1  # before the data leave this function: a count is never used twice
        return count + self._cipher.encrypt(_ZEROS + count, data, self._beside + beside)

    def open(self, data: bytes, beside: bytes) -> tuple[int, bytes] | None:
        """Decrypt data. Return its count and content; None if authentication fails."""
        count = data[:_FRAME_COUNT_BYTES]
        try:
            found = self._cipher.decrypt(
                _ZEROS + count, data[_FRAME_COUNT_BYTES:], self._beside + beside
            )
        except (InvalidTag, ValueError):  # ValueError: it is shorter than any seal
            return None
        return int.from_bytes(count, "big"), found


def close_up(key: Key, rng: Rng, data: bytes, name: bytes) -> bytes:
    """Encrypt a small value that is written at once, under a key of its own.

    :param name: purpose of the value; decryption requires the same name
    """
    # A new salt makes a new key, so the fixed nonce is used only once under it.
    salt = rng.bytes(SALT_BYTES)
    return salt + Sealer(key, salt, b"file " + name).seal(0, True, data, b"")


def open_up(key: Key, sealed: bytes, name: bytes) -> bytes | None:
    """Decrypt a value of `close_up`; None if authentication fails."""
    if len(sealed) < SALT_BYTES + TAG_BYTES:
        return None
    salt = sealed[:SALT_BYTES]
    return Sealer(key, salt, b"file " + name).open(0, True, sealed[SALT_BYTES:], b"")


def _nonce(number: int, last: bool) -> bytes:
    # 96 bits, which GCM takes as its nonce without hashing them (NIST SP 800-38D §7.1).
    return number.to_bytes(_COUNT_BYTES, "big") + bytes((last,))


def _derived(secret: bytes, salt: bytes, purpose: bytes, count: int) -> bytes:
    # The purpose separates keys: data sealed for one use never opens for another (RFC 5869).
    return HKDF(SHA256(), length=count, salt=salt, info=purpose).derive(secret)
