"""Scripts that were being restored when the node ended: what they have made is dropped, as soon as
the node takes changes.

They may have been restored on another node: a snapshot that is taken meanwhile has the marks too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from actors.commits import NODE, Committer
from protocol.errors import (
    Busy,
    Conflict,
    DiskFull,
    Draining,
    NotEnoughReplicas,
    NotWritable,
    Refusal,
)
from storage import restores
from storage.restores import Mark

if TYPE_CHECKING:
    from actors.spaces import Spaces
    from actors.topics import Topics

log = structlog.get_logger("node")

AGAIN_US: Final = 1_000_000
"""When it is tried again where too few others would have it, as they mostly will in a moment, or
where somebody's barrier stands in its way, which has an end."""


class Unfinished:
    """Places that nobody fills any more."""

    def __init__(self, committer: Committer, spaces: Spaces, topics: Topics) -> None:
        self._committer = committer
        self._spaces = spaces
        self._topics = topics
        self._left: list[Mark] = []
        self._told = False
        """Whether it was said that they are left."""
        self._trying: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """At a start nobody fills what is marked."""
        with self._committer.begin() as tx:
            self._left = restores.marks(tx)
        await self.drop()

    def leave(self, marks: Iterable[Mark]) -> None:
        """These are filled no more, and could not be dropped, which was said."""
        self._left += marks
        self._told = True

    async def drop(self) -> None:
        """Drop them. A node that takes no changes leaves them, and so does a disk without room."""
        if not self._left:
            return
        marks, committer = self._left, self._committer
        names = [".".join(mark.names) for mark in marks]
        with committer.begin() as tx:
            try:
                dropped = restores.undo(tx, marks)
                promise = committer.commit(tx, NODE, reason="a script was not restored to its end")
            except (NotEnoughReplicas, Conflict, Busy):  # a barrier stands, say
                committer.at(committer.monotonic_us() + AGAIN_US, self._again)
                return
            except (NotWritable, DiskFull, Draining) as refusal:
                if not self._told:
                    self._told = True
                    log.warning(
                        "places of a script that was not restored to its end are left",
                        places=names,
                        why=str(refusal),
                    )
                return
            self._left, self._told = [], False
        for place in dropped:
            self._spaces.dropped(place)
        self._topics.declarations_changed()
        await committer.released(promise)
        log.info("places of a script that was not restored to its end were dropped", places=names)

    def _again(self) -> None:
        if self._committer.not_writable() is None:
            self._trying = asyncio.ensure_future(self._try())

    async def _try(self) -> None:
        with suppress(Refusal):  # another leads meanwhile, and drops them
            await self.drop()
