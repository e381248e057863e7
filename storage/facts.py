"""Small files of facts: one JSON object on a line, its checksum on the next.

    {"created": "2026-11-20T10:00:00+00:00", "format": 2, "store": "6f1c…"}
    5d1f0c9be2a7746d

They are replaced whole: written below `tmp/`, synced, renamed, and the directory synced. A crash
leaves the old facts or the new ones, so a file that does not match its checksum is damage and
never the trace of a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from protocol.doors import Fs
from storage.faults import StoreDamaged, StoreTooNew, StoreTooOld

FORMAT: Final = 2
"""Version of the directory's layout and of every file in it but RocksDB's. Format 1 had frames of
another size (frames.py): a store of it is refused, and was never anybody's but a beta's."""
_FACTS_BYTES_MAX: Final = 1 << 20


def _checksum(line: bytes) -> bytes:
    return blake2b(line, digest_size=8).hexdigest().encode()


def replace_file(fs: Fs, tmp: str, target: str, data: bytes) -> None:
    """Put `data` at `target` so that a crash leaves either the old file or the new one.

    :param tmp: directory for the temporary name, on the same file system as `target`
    :raises OSError: the old file is still there, unless the very last step, the sync of the
        directory, is what failed
    """
    folder, _, name = target.rpartition("/")
    temporary = f"{tmp}/{name}.new"
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.append(data)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, target)
    fs.sync_directory(folder)


def write_facts(fs: Fs, tmp: str, path: str, facts: Mapping[str, object]) -> None:
    """Replace the facts at `path`; the format version is added."""
    line = json.dumps({**facts, "format": FORMAT}, sort_keys=True).encode()
    replace_file(fs, tmp, path, line + b"\n" + _checksum(line) + b"\n")


def read_facts(fs: Fs, path: str) -> dict[str, object]:
    """The facts at `path`.

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
    facts = json.loads(line)
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
        raise StoreDamaged(f"{path} names no format")
    if facts["format"] > FORMAT:
        raise StoreTooNew(f"{path} has format {facts['format']}; this version reads {FORMAT}")
    if facts["format"] < FORMAT:
        raise StoreTooOld(
            f"{path} has format {facts['format']}, of an earlier version; this one reads {FORMAT}"
            " and changed nothing"
        )
    return facts
