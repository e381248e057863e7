"""Bytes of a script backup: text of the language between a first and a last line of its own.

    -- storenode script 1
    …                                 facts, as comments, and statements
    -- end <statements> <sha256>

The last line counts the statements and holds the SHA-256 of all bytes before it. A script with the
first line but without the last is *cut*; one whose last line does not match is *corrupt*. Text
without either is an ordinary script and no backup: nothing proves that it is complete.
Lines end with `\\n` alone.

A script in clear is these bytes alone. Those of a sealed one are the stream of a container, whose
metadata is sealed with it. The first bytes of the file tell the two apart.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final, Protocol

from protocol.environment import File, Rng
from protocol.errors import BackupCorrupt, BackupCut
from storage.formats.container import (
    MAGIC,
    MAGIC_BYTES,
    SCRIPT_BEGINS,
    BackupFileForm,
    ContainerReader,
    ContainerWriter,
    ScriptFacts,
    Sink,
    WrittenBackup,
    key_for,
)
from storage.formats.sealing import Key

FORMAT: Final = 1
BEGINS: Final = f"{SCRIPT_BEGINS.decode()} {FORMAT}\n"
"""First line of a script backup."""
_FORMAT: Final = re.compile(rb" ([0-9]{1,9})\n")
_END: Final = re.compile(rb"(?<=\n)-- end ([0-9]{1,18}) ([0-9a-f]{64})\n?\Z")
# At most 92 bytes with the newline before it: two words, 18 and 64 digits, separators.
_END_BYTES: Final = 128
"""Upper bound for the bytes of the last line."""


class ScriptEncoder:
    """Encoder of a script backup: turns text into bytes and adds the last line."""

    def __init__(self) -> None:
        self._digest = sha256()
        self.size = 0
        """Bytes encoded so far."""

    def add(self, text: str) -> bytes:
        """Encode the next part of the text."""
        data = text.encode()
        self._digest.update(data)
        self.size += len(data)
        return data

    def end(self, statements: int) -> bytes:
        """Encode the last line."""
        line = f"-- end {statements} {self._digest.hexdigest()}\n".encode()
        self.size += len(line)
        return line


class Opening:
    """Decoder of a script backup. Verifies at the end that the text is complete.

    :ivar statements: number of statements by the last line; None: not read, or there is no last
        line
    """

    def __init__(self) -> None:
        self.statements: int | None = None
        self._has_head = False
        self._digest = sha256()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._kept = b""
        self._begun = False

    def texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """Yield the text without its last line, in parts cut anywhere.

        :raises BackupCorrupt: another form of backup, no UTF-8, or not as written
        :raises BackupCut: the file begins as a backup and ends early. Both may be known only after
            all parts have been read
        """
        for chunk in chunks:
            yield self._add(chunk)
        yield self._last()

    def _add(self, chunk: bytes) -> str:
        self._kept += chunk
        # Enough bytes for the first line, so that the head is judged once.
        if not self._begun and len(self._kept) >= _END_BYTES:
            self._read_head()
        # The tail may be the last line, which is neither text nor part of the digest.
        known = len(self._kept) - _END_BYTES
        if known <= 0:
            return ""
        part, self._kept = self._kept[:known], self._kept[known:]
        return self._decoded(part, final=False)

    def _read_head(self) -> None:
        self._begun = True
        data = self._kept
        # Only `_last` comes here with so few bytes: the file ends inside its first line.
        if SCRIPT_BEGINS.startswith(data):
            raise BackupCut("the script is truncated: its first line is incomplete")
        for form, magic in MAGIC.items():
            if data.startswith(magic):
                raise BackupCorrupt(f"this is a {form}, not a script", offset=0)
        # Without the first line the text is an ordinary script, and needs no last line.
        self._has_head = data.startswith(SCRIPT_BEGINS)
        if not self._has_head:
            return
        found = _FORMAT.match(data, len(SCRIPT_BEGINS))
        if found is None:
            raise BackupCorrupt("the first line of the script does not name its format", offset=0)
        if int(found[1]) != FORMAT:
            raise BackupCorrupt(
                f"the script has format {int(found[1])}; this version reads {FORMAT}", offset=0
            )

    def _last(self) -> str:
        if not self._begun:
            self._read_head()
        found = _END.search(self._kept)
        if found is None:
            if self._has_head:
                raise BackupCut(
                    "the script is truncated: its last line is missing. To run an edited script,"
                    " remove its first line"
                )
            return self._decoded(self._kept, final=True)
        rest = self._decoded(self._kept[: found.start()], final=True)
        if self._digest.hexdigest().encode() != found[2]:
            raise BackupCorrupt(
                "the script was changed: its digest does not match. To run an edited script,"
                " remove its first and last line"
            )
        self.statements = int(found[1])
        return rest

    def _decoded(self, part: bytes, *, final: bool) -> str:
        # Bytes as read, before decoding: a change in encoding shows as damage.
        self._digest.update(part)
        try:
            return self._decoder.decode(part, final)
        except UnicodeDecodeError as error:
            raise BackupCorrupt("the script is not valid UTF-8") from error


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


# In both forms the caller adds first and last line to the text, by `ScriptEncoder`.
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
        # Chunks decrypt in order only, so a restart decrypts from the beginning.
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
    # The END of a script counts bytes of text as its items.
    if (end.items, end.sequence) != (size, facts.sequence):
        raise BackupCorrupt(
            "the end record does not match the data before it", offset=reader.offset
        )
