"""Key files, and chunks of a backup that only the holder of the key can read or make.

A key file holds 32 random bytes, raw or in base64. Nothing is sealed with them: each file has a key
of its own, HKDF-SHA256 of the file's key, the 32 random bytes of that file's header, and what it is
for. So two files never share a key, however many are made.

A chunk is sealed with AES-256-GCM as in the STREAM construction: the nonce is the number of the
chunk (11 bytes) and whether it is the last one (1 byte). A chunk that is put elsewhere, left out,
repeated, taken from another file, or made the end of a file that went on does not open. Header and
head of the chunk are the associated data.

A header shows the id of the key that its file was sealed with, so that another key is told from
damage. The id is 16 bytes of HKDF as well, and tells nothing of the key.
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

from protocol.doors import Fs, Rng
from protocol.errors import BadRequest

KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 16
NO_KEY: Final = bytes(KEY_ID_BYTES)
"""The key id of what is not sealed."""
SALT_BYTES: Final = 32
TAG_BYTES: Final = 16
_COUNT_BYTES: Final = 11
_FILE_BYTES_MAX: Final = 256
"""A key file is far shorter; nothing longer is read."""
_LINE: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Key:
    """What a file is sealed with."""

    secret: bytes = field(repr=False)
    id: bytes
    """Shown in the headers of what it sealed."""


def key_of(secret: bytes) -> Key:
    """A key from its 32 bytes."""
    assert len(secret) == KEY_BYTES, "a key of another length"
    return Key(secret, _derived(secret, b"", b"storenode key id", KEY_ID_BYTES))


def read_key(fs: Fs, path: str) -> Key:
    """The key in a file.

    :raises BadRequest: what it holds is no key
    :raises OSError: as the disk says
    """
    file = fs.open_read(path)
    try:
        data = file.read(0, _FILE_BYTES_MAX)
    finally:
        file.close()
    if len(data) == KEY_BYTES:
        return key_of(data)
    try:
        secret = base64.b64decode(data.strip(), validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise BadRequest(f"{path} holds no key: that is {KEY_BYTES} bytes, or their base64")
    return key_of(secret)


def make_key(fs: Fs, path: str, rng: Rng) -> Key:
    """A new key in a new file, durable on return.

    :raises FileExistsError: something is at that name; it is not replaced
    :raises OSError: as the disk says
    """
    key = key_of(rng.bytes(KEY_BYTES))
    file = fs.open(path, exclusive=True)
    try:
        file.append(base64.b64encode(key.secret) + _LINE)
        file.sync()
    except OSError:
        fs.unlink(path)
        raise
    finally:
        file.close()
    folder, slash, _ = path.rpartition("/")
    fs.sync_directory(folder or slash or ".")
    return key


class Sealer:
    """Seals the chunks of one file, or opens them.

    :param salt: the random bytes of the file's header
    :param purpose: what the file is, so that no chunk is of use in a file of another kind
    """

    def __init__(self, key: Key, salt: bytes, purpose: bytes) -> None:
        assert len(salt) == SALT_BYTES, "a salt of another length"
        self._cipher = AESGCM(_derived(key.secret, salt, b"storenode " + purpose, KEY_BYTES))

    def seal(self, number: int, last: bool, data: bytes, beside: bytes) -> bytes:
        """A chunk that only the key opens, and only in its place; longer by `TAG_BYTES`.

        :param number: of the chunk in its file; no two chunks of a file have the same
        :param last: whether the file ends with it
        :param beside: what is not sealed and must be the same when it is opened
        """
        return self._cipher.encrypt(_nonce(number, last), data, beside)

    def open(self, number: int, last: bool, data: bytes, beside: bytes) -> bytes | None:
        """What was sealed; None: this is not what was sealed there."""
        try:
            return self._cipher.decrypt(_nonce(number, last), data, beside)
        except InvalidTag:
            return None


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(_COUNT_BYTES, "big") + bytes((last,))


def _derived(secret: bytes, salt: bytes, purpose: bytes, count: int) -> bytes:
    return HKDF(SHA256(), length=count, salt=salt, info=purpose).derive(secret)
