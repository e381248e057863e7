"""The bytes of a script: text of the language, from a comment that says what it is to one that
proves that all of it is there.

    -- storenode script 1
    …                                 facts, as comments, and statements
    -- end <statements> <sha256>

The last line counts the statements and holds the SHA-256 of every byte before it. A script with the
first line and without the last is *cut*; with a last line that says otherwise it is *corrupt*. Text
without either is no backup, but a script that somebody wrote: nothing proves that it is all there.
Lines end with `\\n` alone.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from protocol.errors import BackupCorrupt, BackupCut
from storage.backups.forms import MAGIC, SCRIPT_BEGINS

FORMAT: Final = 1
BEGINS: Final = f"{SCRIPT_BEGINS.decode()} {FORMAT}\n"
"""The first line."""
_FORMAT: Final = re.compile(rb" ([0-9]{1,9})\n")
_END: Final = re.compile(rb"(?<=\n)-- end ([0-9]{1,18}) ([0-9a-f]{64})\n?\Z")
_END_BYTES: Final = 128
"""More than any last line has."""


class Sealing:
    """Makes the bytes of a script of its text, the last line among them."""

    def __init__(self) -> None:
        self._digest = sha256()
        self.size = 0
        """Bytes made so far."""

    def add(self, text: str) -> bytes:
        """The bytes of the next part of the text."""
        data = text.encode()
        self._digest.update(data)
        self.size += len(data)
        return data

    def end(self, statements: int) -> bytes:
        """The last line."""
        line = f"-- end {statements} {self._digest.hexdigest()}\n".encode()
        self.size += len(line)
        return line


class Opening:
    """The text of a script as it is read, and at its end whether that was all of it.

    :ivar statements: how many there are, by the last line; None: it was not read, or is not there
    """

    def __init__(self) -> None:
        self.statements: int | None = None
        self._has_head = False
        self._digest = sha256()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._kept = b""
        self._begun = False

    def texts(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """The text without its last line, in parts cut anywhere.

        :raises BackupCorrupt: it is a backup of another form, no UTF-8, or not what was written
        :raises BackupCut: it begins as a backup and ends early. Both are known only when all was
            read
        """
        for chunk in chunks:
            yield self._add(chunk)
        yield self._last()

    def _add(self, chunk: bytes) -> str:
        self._kept += chunk
        if not self._begun and len(self._kept) >= _END_BYTES:
            self._begin()
        known = len(self._kept) - _END_BYTES
        if known <= 0:
            return ""
        part, self._kept = self._kept[:known], self._kept[known:]
        return self._decoded(part, final=False)

    def _begin(self) -> None:
        self._begun = True
        data = self._kept
        if SCRIPT_BEGINS.startswith(data):
            raise BackupCut("the script ends early: it has no whole first line")
        for form, magic in MAGIC.items():
            if data.startswith(magic):
                raise BackupCorrupt(f"it is a {form}, and no script", offset=0)
        self._has_head = data.startswith(SCRIPT_BEGINS)
        if not self._has_head:
            return
        found = _FORMAT.match(data, len(SCRIPT_BEGINS))
        if found is None:
            raise BackupCorrupt("its first line does not say which form it has", offset=0)
        if int(found[1]) != FORMAT:
            raise BackupCorrupt(
                f"the script has form {int(found[1])}; this version reads {FORMAT}", offset=0
            )

    def _last(self) -> str:
        if not self._begun:
            self._begin()
        found = _END.search(self._kept)
        if found is None:
            if self._has_head:
                raise BackupCut(
                    "the script ends early: it has no last line that says where it ends. One that"
                    " was edited runs without its first line"
                )
            return self._decoded(self._kept, final=True)
        rest = self._decoded(self._kept[: found.start()], final=True)
        if self._digest.hexdigest().encode() != found[2]:
            raise BackupCorrupt(
                "the script is not what was written: its digest does not match. One that was edited"
                " runs without its first and last line"
            )
        self.statements = int(found[1])
        return rest

    def _decoded(self, part: bytes, *, final: bool) -> str:
        self._digest.update(part)
        try:
            return self._decoder.decode(part, final)
        except UnicodeDecodeError as error:
            raise BackupCorrupt("the script is no UTF-8") from error
