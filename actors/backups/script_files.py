"""A script that was written as a backup, read statement by statement, however long it is.

That all of it is there is known only at its end: whoever must not begin with a cut one reads it
twice, and `whole` is the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from actors.backups.scripts import About
from actors.doors import Doors
from language.splitting import Piece, Splitter
from protocol import limits
from protocol.doors import File
from protocol.errors import BackupCorrupt, Refusal
from protocol.version import VERSION
from storage.backups.container import Sink
from storage.backups.facts import ScriptFacts
from storage.backups.forms import Form, form_of
from storage.backups.script_texts import ScriptText as ScriptText
from storage.backups.script_texts import Writing as Writing
from storage.backups.script_texts import writing
from storage.backups.scripts import Opening
from storage.sealing import Key

CHUNK_BYTES: Final = 256 * limits.KIB
"""Read in one go."""

Read = Callable[[int, int], bytes]
"""Up to so many bytes of a file from an offset on; fewer at its end."""


def is_script(file: File) -> bool:
    """Whether a file is a script that was written as a backup, sealed or not, by how it begins."""
    return form_of(file) is Form.SCRIPT


def begin_script(doors: Doors, about: About, created: str, key: Key | None, sink: Sink) -> Writing:
    """Begin the file of a script.

    :param created: when the store was made, as ISO 8601
    :param key: what it is sealed with; None: it is not
    :param sink: takes the bytes of the file
    """
    now_us = doors.clock.wall_us()
    facts = ScriptFacts(VERSION, about.store, created, now_us, about.sequence)
    return writing(facts, sink, doors.rng, key)


def pieces(read: Read) -> Iterator[Piece]:
    """The statements of a script, in their order.

    :raises BackupCut, BackupCorrupt: from any step. A backup that ends without it was whole
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
    if opening.statements not in (None, found):
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
    refusal.message = refusal.without_place  # there it is counted from where the piece begins
    refusal.detail.update(statement=number, line=piece.line + line - 1)
    refusal.detail.setdefault("column", 1)
    return refusal


def chunks(read: Read) -> Iterator[bytes]:
    """The bytes of a file."""
    offset = 0
    while chunk := read(offset, CHUNK_BYTES):
        offset += len(chunk)
        yield chunk
