"""Script files: reads a backup script statement by statement, of any length.

Only its last line shows that a script is complete. A reader that must not start on a truncated
script reads it twice, with `whole` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from actors.environment import Environment
from language.splitting import Piece, Splitter
from protocol import limits
from protocol.environment import File
from protocol.errors import BackupCorrupt, Refusal
from protocol.version import VERSION
from storage.backups.scripts import Opening, writing
from storage.backups.scripts import ScriptText as ScriptText
from storage.backups.scripts import Writing as Writing
from storage.formats.container import BackupFileForm, ScriptFacts, Sink, form_of
from storage.formats.sealing import Key

if TYPE_CHECKING:
    from actors.backups.scripts import About

CHUNK_BYTES: Final = 256 * limits.KIB
"""Bytes per read."""

Read = Callable[[int, int], bytes]
"""Reads up to `count` bytes of a file from an offset; fewer at its end."""


def is_script(file: File) -> bool:
    """True if a file begins like a backup script, sealed or not."""
    return form_of(file) is BackupFileForm.SCRIPT


def begin_script(
    environment: Environment, about: About, created: str, key: Key | None, sink: Sink
) -> Writing:
    """Begin the file of a script.

    :param created: creation time of the store, as ISO 8601
    :param key: key that seals it; None: it is written in clear
    :param sink: receives the bytes of the file
    """
    now_us = environment.clock.wall_us()
    facts = ScriptFacts(VERSION, about.store, created, now_us, about.sequence)
    return writing(facts, sink, environment.rng, key)


def pieces(read: Read) -> Iterator[Piece]:
    """Iterate over the statements of a script, in order.

    :raises BackupCut, BackupCorrupt: from any step; a script that ends without either was complete
    :raises TooLarge: a statement is too long
    """
    opening, splitter, found = Opening(), Splitter(), 0
    for text in opening.texts(chunks(read)):
        for piece in splitter.feed(text):
            found += 1
            yield piece
    rest = splitter.remainder()
    if rest is not None:
        found += 1
        yield rest
    if opening.statements not in (None, found):
        raise BackupCorrupt(
            f"the script holds {found} statements, but its last line counts {opening.statements}"
        )


def whole(read: Read) -> Iterator[None]:
    """Read a script to its end, in steps. Raises like `pieces`."""
    for _ in pieces(read):
        yield


def placed(refusal: Refusal, piece: Piece, number: int) -> Refusal:
    """Set the place of a refusal to that in the whole script: its statement was parsed by itself.

    :param number: number of the statement, from 1
    """
    line = refusal.detail.get("line", 1)
    assert isinstance(line, int)
    refusal.message = refusal.without_place  # that place is relative to the piece
    refusal.detail.update(statement=number, line=piece.line + line - 1)
    refusal.detail.setdefault("column", 1)
    return refusal


def chunks(read: Read) -> Iterator[bytes]:
    """Iterate over the bytes of a file, CHUNK_BYTES at a time."""
    offset = 0
    while chunk := read(offset, CHUNK_BYTES):
        offset += len(chunk)
        yield chunk
