"""Script loading: runs a backup script on an offline store, up to the first refusal.

Each statement is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from pykka import ActorRef

from actors.backups.script_files import placed
from actors.runtime import ask
from language.splitting import Piece
from protocol import limits
from protocol.errors import Refusal
from protocol.requests import Caller, RunScript

BATCH_CHARACTERS: Final = 256 * limits.KIB
BATCH_STATEMENTS: Final = 256
"""Limits of the text that is run in one request: the commits of its statements share fsyncs (group
commit)."""


class LoadResult(NamedTuple):
    """Result of a run."""

    statements: int
    sequence: int
    """Sequence of the last commit."""
    refusal: Refusal | None
    """Refusal that ended the run; None: all statements ran."""


async def load(scripts: ActorRef[Any], pieces: Iterable[Piece], caller: Caller) -> LoadResult:
    """Run the statements of a script as a caller. Statements before a refusal stay committed."""
    done = sequence = 0
    place: tuple[str | None, str | None] = (None, None)
    for batch in _batches(pieces):
        text = "".join(piece.text for piece in batch)
        request = RunScript(caller, text, "command", namespace=place[0], database=place[1])
        answer = await ask(scripts, request)
        sequence = max(sequence, answer.sequence)
        place = answer.namespace, answer.database
        if answer.refusal is not None:
            at = done + int(str(answer.refusal.detail.get("statement", 1)))
            return LoadResult(at - 1, sequence, placed(answer.refusal, batch[0], at))
        done += len(batch)
    return LoadResult(done, sequence, None)


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        if (batch and size + len(piece.text) > BATCH_CHARACTERS) or len(batch) == BATCH_STATEMENTS:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += len(piece.text)
    if batch:
        yield batch
