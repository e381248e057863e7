"""A script that was written as a backup, read statement by statement, however long it is.

That all of it is there is known only at its end: whoever must not begin with a cut one reads it
twice, and `whole` is the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from language.splitting import Piece, Splitter
from protocol import limits
from protocol.doors import File
from protocol.errors import BackupCorrupt, Refusal
from storage.backups.forms import Form, form_of
from storage.backups.scripts import Opening

CHUNK_BYTES: Final = 256 * limits.KIB
"""Read in one go."""

Read = Callable[[int, int], bytes]
"""Up to so many bytes of a file from an offset on; fewer at its end."""


def is_script(file: File) -> bool:
    """Whether a file is a script that was written as a backup, by how it begins."""
    return form_of(file) is Form.SCRIPT


def pieces(read: Read) -> Iterator[Piece]:
    """The statements of a script, in their order.

    :raises BackupCut, BackupCorrupt: from any step. One that ends without it was whole
    :raises TooLarge: a statement is too long
    """
    opening, splitter, found = Opening(), Splitter(), 0
    for text in opening.texts(chunks(read)):
        for piece in splitter.feed(text):
            found += 1
            yield piece
    rest = splitter.rest()
    if rest is not None:
        found += 1
        yield rest
    if found != opening.statements:
        raise BackupCorrupt(
            f"the script holds {found} statements, and its last line says {opening.statements}"
        )


def whole(read: Read) -> Iterator[None]:
    """Read a script to its end, in steps. Raises as `pieces`."""
    for _ in pieces(read):
        yield


def placed(refusal: Refusal, piece: Piece, number: int) -> Refusal:
    """A refusal of a statement that was run or read by itself, with its place in its script.

    :param number: of the statement, from 1
    """
    line = refusal.detail.get("line", 1)
    assert isinstance(line, int)
    refusal.detail.update(statement=number, line=piece.line + line - 1)
    refusal.detail.setdefault("column", 1)
    return refusal


def chunks(read: Read) -> Iterator[bytes]:
    """The bytes of a file."""
    offset = 0
    while chunk := read(offset, CHUNK_BYTES):
        offset += len(chunk)
        yield chunk
