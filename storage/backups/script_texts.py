"""Text of a script backup: a plain file, or the stream of a sealed container.

The first bytes of the file tell the two apart. Metadata of a sealed script is sealed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final, Protocol

from protocol.environment import File, Rng
from protocol.errors import BackupCorrupt
from storage.formats.container import (
    MAGIC,
    MAGIC_BYTES,
    BackupFileForm,
    ContainerReader,
    ContainerWriter,
    ScriptFacts,
    Sink,
    WrittenBackup,
    key_for,
)
from storage.formats.sealing import Key

_SEALED: Final = MAGIC[BackupFileForm.SCRIPT]


class Writing(Protocol):
    """Writer of a script backup."""

    def add(self, part: bytes, /) -> None:
        """Append the next part of the text."""

    def end(self) -> WrittenBackup:
        """Finish the file after the last part."""


def writing(facts: ScriptFacts, sink: Sink, rng: Rng, key: Key | None) -> Writing:
    """Begin a script backup.

    :param sink: takes the bytes of the file
    :param key: key that seals the file; None: in clear
    """
    return _AsText(facts, sink) if key is None else _InContainer(facts, sink, rng, key)


class _AsText:
    def __init__(self, facts: ScriptFacts, sink: Sink) -> None:
        self._facts = facts
        self._sink = sink
        self._digest = sha256()
        self._size = 0

    def add(self, part: bytes, /) -> None:
        self._sink(part)
        self._digest.update(part)
        self._size += len(part)

    def end(self) -> WrittenBackup:
        facts, digest = self._facts, self._digest.digest()
        return WrittenBackup(
            BackupFileForm.SCRIPT, 0, facts.sequence, self._size, digest, facts.version
        )


class _InContainer:
    def __init__(self, facts: ScriptFacts, sink: Sink, rng: Rng, key: Key) -> None:
        self._facts = facts
        self._writer = ContainerWriter(facts, sink, rng, key)
        self._size = 0

    def add(self, part: bytes, /) -> None:
        self._writer.add(part)
        self._size += len(part)

    def end(self) -> WrittenBackup:
        facts, writer = self._facts, self._writer
        digest = writer.end(self._size, 0, facts.sequence)
        return WrittenBackup(
            BackupFileForm.SCRIPT, 0, facts.sequence, writer.size, digest, facts.version
        )


class ScriptText:
    """Forward-only reader of a script's text; it can restart at the beginning.

    :param file: closed with this reader
    :param keys: candidate keys for a sealed file
    :raises WrongKey: the file is sealed with none of them
    :raises BackupCut, BackupCorrupt, StoreTooNew: the file is sealed, and its header or facts are
        not whole
    """

    def __init__(self, file: File, keys: Sequence[Key]) -> None:
        self._file = file
        self._keys = keys
        self.sealed = file.read(0, MAGIC_BYTES) == _SEALED
        self.facts: ScriptFacts | None = None
        """Metadata of a sealed script; None for one in clear."""
        self._held = b""
        self._at = 0
        self._chunks: Iterator[bytes] = iter(())
        if self.sealed:
            self._open_stream()

    def _open_stream(self) -> None:
        reader = ContainerReader(self._file, key_for(self._file, self._keys))
        self.facts = reader.facts(ScriptFacts)
        self._chunks = _proved(reader, self.facts)
        self._held, self._at = b"", 0

    def read(self, offset: int, count: int) -> bytes:
        """Read up to `count` bytes of the text; fewer at its end.

        :param offset: end of the previous read, or 0 to restart
        :raises BackupCut, BackupCorrupt: the next chunk is not as sealed
        :raises OSError: reading fails
        """
        if not self.sealed:
            return self._file.read(offset, count)
        if offset == 0:
            self._open_stream()
        assert offset == self._at, "a sealed script is read forwards"
        while len(self._held) < count:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._held += chunk
        found, self._held = self._held[:count], self._held[count:]
        self._at += len(found)
        return found

    def size(self) -> int:
        """Return the bytes of the file: those of the text, or a few more if sealed."""
        return self._file.size()

    def close(self) -> None:
        self._file.close()


def _proved(reader: ContainerReader, facts: ScriptFacts) -> Iterator[bytes]:
    size = 0
    for chunk in reader.chunks():
        size += len(chunk)
        yield chunk
    end = reader.end
    assert end is not None, "a stream ends with the file's end"
    if (end.items, end.sequence) != (size, facts.sequence):
        raise BackupCorrupt(
            "the end record does not match the data before it", offset=reader.offset
        )
