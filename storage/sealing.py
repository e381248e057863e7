"""Key files, and what only the holder of a key can read or make: chunks of a file that is written
in one go, as backups are (`Sealer`), frames of the log (`FrameSealer`), small files (`close_up`).

A key file holds 32 random bytes, raw or in base64. Nothing is sealed with them: each file has a key
of its own, HKDF-SHA256 of the file's key, the 32 random bytes of that file's header, and what it is
for. So two files never share a key, however many are made.

A chunk is sealed with AES-256-GCM as in the STREAM construction: the nonce is the number of the
chunk (11 bytes) and whether it is the last one (1 byte). A chunk that is put elsewhere, left out,
repeated, taken from another file, or made the end of a file that went on does not open. Header and
head of the chunk are the associated data.

Frames of a log are written over days, each for itself, so their nonce is a count: how many seals
have been made under the key of their segment. It stands in the frame. Who seals counts in memory
alone and never takes up what was counted before: what a full disk refused, what a crash lost and
what a copy of the directory may go on with has had its counts, and nobody knows which. So a segment
that was opened again, or cut back, takes nothing more (`log.py`), and the next one has another key.

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
_FRAME_COUNT_BYTES: Final = 8
_ZEROS: Final = bytes(4)
FRAME_SEAL_BYTES: Final = _FRAME_COUNT_BYTES + TAG_BYTES
"""What a seal of the log adds."""
_FILE_BYTES_MAX: Final = 256
"""A key file is far shorter; nothing longer is read."""
_LINE: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Key:
    """What a file is sealed with."""

    secret: bytes = field(repr=False)
    id: bytes
    """Shown in the headers of what it sealed."""


def name_of(key: Key | None) -> str:
    """A key as nodes name it to each other, by its id; empty: there is none."""
    return "" if key is None else key.id.hex()


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


class FrameSealer:
    """Seals what is written into one segment of the log, or opens it. What is sealed comes back as
    its count (8 bytes), the same of other bytes, and the tag.

    :param salt: the random bytes of the segment's header
    :param beside: what names the segment
    :param count: of the next seal; None: it only opens
    """

    def __init__(self, key: Key, salt: bytes, beside: bytes, count: int | None = None) -> None:
        assert len(salt) == SALT_BYTES, "a salt of another length"
        self._cipher = AESGCM(_derived(key.secret, salt, b"storenode segment", KEY_BYTES))
        self._beside = beside
        self._count = count

    def seal(self, data: bytes, beside: bytes) -> bytes:
        """What only the key opens, longer by `FRAME_SEAL_BYTES`.

        :param beside: what is not sealed and must be the same when it is opened
        """
        assert self._count is not None, "what was opened to be read takes no seals"
        count = self._count.to_bytes(_FRAME_COUNT_BYTES, "big")
        self._count += 1  # before the seal is anywhere, whatever becomes of it
        return count + self._cipher.encrypt(_ZEROS + count, data, self._beside + beside)

    def open(self, data: bytes, beside: bytes) -> tuple[int, bytes] | None:
        """The count of a seal, and what was sealed; None: this is not what was."""
        count = data[:_FRAME_COUNT_BYTES]
        try:
            found = self._cipher.decrypt(
                _ZEROS + count, data[_FRAME_COUNT_BYTES:], self._beside + beside
            )
        except (InvalidTag, ValueError):  # ValueError: it is shorter than any seal
            return None
        return int.from_bytes(count, "big"), found


def close_up(key: Key, rng: Rng, data: bytes, name: bytes) -> bytes:
    """Seal something small that is written at once, under a key of its own.

    :param name: what it is; nothing else opens as it
    """
    salt = rng.bytes(SALT_BYTES)
    return salt + Sealer(key, salt, b"file " + name).seal(0, True, data, b"")


def open_up(key: Key, sealed: bytes, name: bytes) -> bytes | None:
    """What was closed up; None: this is not it."""
    if len(sealed) < SALT_BYTES + TAG_BYTES:
        return None
    salt = sealed[:SALT_BYTES]
    return Sealer(key, salt, b"file " + name).open(0, True, sealed[SALT_BYTES:], b"")


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(_COUNT_BYTES, "big") + bytes((last,))


def _derived(secret: bytes, salt: bytes, purpose: bytes, count: int) -> bytes:
    return HKDF(SHA256(), length=count, salt=salt, info=purpose).derive(secret)
