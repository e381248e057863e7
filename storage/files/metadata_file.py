"""Metadata files: one JSON object on a line, its checksum on the next.

    {"created": "2026-11-20T10:00:00+00:00", "format": 2, "store": "6f1c…"}
    5d1f0c9be2a7746d

Each is replaced atomically: written below `tmp/`, synced, renamed, and the directory synced. A
crash leaves the old or the new content. A file that does not match its checksum is therefore
damaged and never the result of a crash.

In a sealed store the line has another form and holds the content encrypted. It decrypts only under
the name of its file and in its own store. STORE, and files that exist before it, are not bound to a
store:

    {"format": 2, "key": "5177a968…", "sealed": "kM0g…"}
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from protocol.environment import Fs, Rng
from protocol.errors import WrongKey
from storage.faults import StoreDamaged, StoreNotSealed, StoreTooNew, StoreTooOld
from storage.formats.sealing import Key, close_up, open_up

FORMAT: Final = 2
"""Version of the directory layout and of every file in it except RocksDB's. Format 1, of beta
versions only, had frames of another size (frames.py); such a store is refused."""
_FACTS_BYTES_MAX: Final = 1 << 20


def _checksum(line: bytes) -> bytes:
    return blake2b(line, digest_size=8).hexdigest().encode()


TEMPORARY: Final = ".new"
"""Suffix of a file below `tmp/` that will be renamed into place."""


def replace_file(fs: Fs, tmp: str, target: str, data: bytes) -> None:
    """Write `data` to `target` atomically: a crash leaves either the old file or the new one.

    :param tmp: directory for the temporary name, on the same file system as `target`
    :raises OSError: the old file is still there, unless the last step failed, the directory sync
    """
    folder, _, name = target.rpartition("/")
    temporary = f"{tmp}/{name}{TEMPORARY}"
    file = fs.open(temporary, create=True)
    try:
        # A crash may have left the temporary file of an earlier attempt, perhaps a longer one.
        file.truncate(0)
        file.append(data)
        # Before the rename: otherwise a crash could leave the final name with missing content.
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, target)
    fs.sync_directory(folder)


class FileEncryption(NamedTuple):
    """Encryption of a metadata file."""

    key: Key
    rng: Rng
    store: bytes = b""
    """Id of the store it is bound to; empty: not bound."""


def write_facts(
    fs: Fs, tmp: str, path: str, facts: Mapping[str, object], seal: FileEncryption | None = None
) -> None:
    """Replace the metadata at `path`; adds the format version. :param seal: None: in clear"""
    line = json.dumps({**facts, "format": FORMAT}, sort_keys=True).encode()
    if seal is not None:
        # Bound to store and file name, so that no sealed file passes for another.
        sealed = close_up(seal.key, seal.rng, line, seal.store + _name(path))
        closed = base64.b64encode(sealed).decode()
        told = {"format": FORMAT, "key": seal.key.id.hex(), "sealed": closed}
        line = json.dumps(told, sort_keys=True).encode()
    # The checksum covers the line as sealed, so damage shows without the key.
    replace_file(fs, tmp, path, line + b"\n" + _checksum(line) + b"\n")


def read_facts(fs: Fs, path: str, key: Key | None = None, store: bytes = b"") -> dict[str, object]:
    """Read the metadata at `path`.

    :param key: encryption key; None: the file is in clear
    :param store: id of the store it is bound to; empty: not bound
    :raises WrongKey: it is sealed with another key
    :raises StoreNotSealed: it is in clear, and a key was given
    :raises StoreTooNew: a later version wrote it
    :raises StoreTooOld: an earlier version wrote it
    :raises StoreDamaged: it does not match its checksum
    :raises FileNotFoundError: no such file
    """
    file = fs.open_read(path)
    try:
        data = file.read(0, _FACTS_BYTES_MAX)
    finally:
        file.close()
    line, _, rest = data.partition(b"\n")
    # All formats have these two lines, so damage is not mistaken for a newer format.
    if rest != _checksum(line) + b"\n":
        raise StoreDamaged(f"{path} is damaged: it does not match its checksum")
    facts = _parsed(path, line)
    if not isinstance(facts.get("format"), int):
        raise StoreDamaged(f"{path} is damaged: it has no format version")
    if facts["format"] > FORMAT:
        raise StoreTooNew(f"{path} has format {facts['format']}; this version reads {FORMAT}")
    if facts["format"] < FORMAT:
        raise StoreTooOld(
            f"{path} has format {facts['format']}, of an earlier version; this version reads"
            f" {FORMAT}. Nothing was changed"
        )
    if "sealed" in facts:
        return _opened(path, facts, key, store)
    if key is not None:
        raise StoreNotSealed(
            f"{path} is not sealed, and a key was given: a store is sealed from its first start"
            " or never. Start without the key; to seal its data, back it up and restore the"
            " backup into an empty directory with the key"
        )
    return facts


def _opened(
    path: str, facts: dict[str, object], key: Key | None, store: bytes
) -> dict[str, object]:
    """Decrypt the sealed content of a metadata file."""
    if key is None or key.id.hex() != facts.get("key"):
        given = (
            "and no key was given: use --key-file"
            if key is None
            else f"not with the given key {key.id.hex()}"
        )
        raise WrongKey(f"{path} is sealed with key {facts.get('key')}, {given}")
    try:
        found = open_up(key, base64.b64decode(str(facts["sealed"])), store + _name(path))
    except binascii.Error:
        found = None
    if found is None:
        raise StoreDamaged(f"{path} is damaged: it cannot be decrypted with its key")
    return _parsed(path, found)


def _parsed(path: str, line: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object. :raises StoreDamaged: it is none"""
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError):  # invalid UTF-8 is a ValueError
        facts = None
    if not isinstance(facts, dict):
        raise StoreDamaged(f"{path} is damaged: it holds no metadata")
    return facts


def _name(path: str) -> bytes:
    return path.rpartition("/")[2].encode()
