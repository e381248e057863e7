"""Scripts that were being restored when the node ended: what they have made is dropped."""

from __future__ import annotations

import structlog

from actors.commits import NODE, Committer
from protocol.errors import NotWritable
from storage import restores

log = structlog.get_logger("node")


async def drop_unfinished(committer: Committer) -> None:
    """Drop the places that are marked. A node that takes no changes leaves them."""
    with committer.begin() as tx:
        marks = restores.marks(tx)
        if not marks:
            return
        names = [".".join(mark.names) for mark in marks]
        try:
            restores.undo(tx, marks)
            promise = committer.commit(tx, NODE, reason="a script was not restored to its end")
        except NotWritable:
            log.warning(
                "places of a script that was not restored to its end are left", places=names
            )
            return
    await committer.released(promise)
    log.info("places of a script that was not restored to its end were dropped", places=names)
