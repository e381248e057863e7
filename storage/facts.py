"""Small files of facts: one JSON object on a line, its checksum on the next.

    {"created": "2026-11-20T10:00:00+00:00", "format": 2, "store": "6f1c…"}
    5d1f0c9be2a7746d

They are replaced whole: written below `tmp/`, synced, renamed, and the directory synced. A crash
leaves the old facts or the new ones, so a file that does not match its checksum is damage and
never the trace of a crash.

In a sealed store the line is another, and the facts are in it. They open only under the name of
their file and, but for STORE and what stands beside it before there is one, in their own store:

    {"format": 2, "key": "5177a968…", "sealed": "kM0g…"}
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from protocol.doors import Fs, Rng
from protocol.errors import WrongKey
from storage.faults import StoreDamaged, StoreNotSealed, StoreTooNew, StoreTooOld
from storage.sealing import Key, close_up, open_up

FORMAT: Final = 2
"""Version of the directory's layout and of every file in it but RocksDB's. Format 1 had frames of
another size (frames.py): a store of it is refused, and was never anybody's but a beta's."""
_FACTS_BYTES_MAX: Final = 1 << 20


def _checksum(line: bytes) -> bytes:
    return blake2b(line, digest_size=8).hexdigest().encode()


TEMPORARY: Final = ".new"
"""Ends the name of a file below `tmp/` that is on its way to its own."""


def replace_file(fs: Fs, tmp: str, target: str, data: bytes) -> None:
    """Put `data` at `target` so that a crash leaves either the old file or the new one.

    :param tmp: directory for the temporary name, on the same file system as `target`
    :raises OSError: the old file is still there, unless the very last step, the sync of the
        directory, is what failed
    """
    folder, _, name = target.rpartition("/")
    temporary = f"{tmp}/{name}{TEMPORARY}"
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.append(data)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, target)
    fs.sync_directory(folder)


class Seal(NamedTuple):
    """What facts are sealed with."""

    key: Key
    rng: Rng
    store: bytes = b""
    """Id of the store that they are of; empty: of any, as far as the seal says."""


def write_facts(
    fs: Fs, tmp: str, path: str, facts: Mapping[str, object], seal: Seal | None = None
) -> None:
    """Replace the facts at `path`; the format version is added. :param seal: None: in clear"""
    line = json.dumps({**facts, "format": FORMAT}, sort_keys=True).encode()
    if seal is not None:
        sealed = close_up(seal.key, seal.rng, line, seal.store + _name(path))
        closed = base64.b64encode(sealed).decode()
        told = {"format": FORMAT, "key": seal.key.id.hex(), "sealed": closed}
        line = json.dumps(told, sort_keys=True).encode()
    replace_file(fs, tmp, path, line + b"\n" + _checksum(line) + b"\n")


def read_facts(fs: Fs, path: str, key: Key | None = None, store: bytes = b"") -> dict[str, object]:
    """The facts at `path`.

    :param key: what they are sealed with; None: they are in clear
    :param store: as that of their seal
    :raises WrongKey: they are sealed, and not with this key
    :raises StoreNotSealed: they are in clear, and a key was given
    :raises StoreTooNew: written by a newer version
    :raises StoreTooOld: by an earlier one
    :raises StoreDamaged: they do not match their checksum
    :raises FileNotFoundError: no such file
    """
    file = fs.open_read(path)
    try:
        data = file.read(0, _FACTS_BYTES_MAX)
    finally:
        file.close()
    line, _, rest = data.partition(b"\n")
    # Every format keeps to the two lines, so damage is not taken for the future.
    if rest != _checksum(line) + b"\n":
        raise StoreDamaged(f"{path} is damaged: it does not match its checksum")
    facts = _parsed(path, line)
    if not isinstance(facts.get("format"), int):
        raise StoreDamaged(f"{path} is damaged: it names no format")
    if facts["format"] > FORMAT:
        raise StoreTooNew(f"{path} has format {facts['format']}; this version reads {FORMAT}")
    if facts["format"] < FORMAT:
        raise StoreTooOld(
            f"{path} has format {facts['format']}, of an earlier version; this one reads {FORMAT}"
            " and changed nothing"
        )
    if "sealed" in facts:
        return _opened(path, facts, key, store)
    if key is not None:
        raise StoreNotSealed(
            f"{path} is not sealed, and a key was given: a store is sealed from its first start or"
            " never. Start without the key; to seal what it holds, back it up and restore that into"
            " an empty directory with the key"
        )
    return facts


def _opened(
    path: str, facts: dict[str, object], key: Key | None, store: bytes
) -> dict[str, object]:
    """The facts that are sealed in others."""
    if key is None or key.id.hex() != facts.get("key"):
        given = "no key was given: --key-file" if key is None else f"this is key {key.id.hex()}"
        raise WrongKey(f"{path} is sealed with key {facts.get('key')}, and {given}")
    try:
        found = open_up(key, base64.b64decode(str(facts["sealed"])), store + _name(path))
    except binascii.Error:
        found = None
    if found is None:
        raise StoreDamaged(f"{path} is damaged: it does not open, though the key is right")
    return _parsed(path, found)


def _parsed(path: str, line: bytes) -> dict[str, Any]:
    """The object of a line. :raises StoreDamaged: it holds none"""
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError):  # no UTF-8 among them
        facts = None
    if not isinstance(facts, dict):
        raise StoreDamaged(f"{path} is damaged: it holds no facts")
    return facts


def _name(path: str) -> bytes:
    return path.rpartition("/")[2].encode()
