"""Cleanup of incomplete script restores: drops the namespaces and databases that an interrupted
RESTORE SCRIPT created.

The restore of a backup into a directory is `storage/backups/restore.py`, RESTORE SCRIPT itself
`actors/scripts/restoring.py`.

It runs as soon as the node takes writes, and at a start for restores that the process end cut off.
The restore may have run on another node: a snapshot taken meanwhile contains the marks too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from actors.commits.committer import NODE, Committer
from actors.runtime import REST_SECONDS, Runtime
from actors.vaults.trail import VaultAct
from protocol.errors import (
    Busy,
    Conflict,
    DiskFull,
    NotEnoughReplicas,
    Refusal,
)
from protocol.values import unpaced
from storage.catalog import restores
from storage.catalog.places import Database, Namespace
from storage.catalog.restores import RestoreMark
from storage.engine.engine import EngineUnreadable
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from storage.vaults.vaults import Vault

if TYPE_CHECKING:
    from actors.sessions import Sessions
    from actors.spaces import SpaceService
    from actors.topics.service import TopicService
    from actors.vaults.service import VaultService

log = structlog.get_logger("node")

AGAIN_US: Final = 1_000_000
"""Retry delay, in µs, after causes that usually pass soon: too few in-sync replicas, another
transaction's priority lock, a full disk."""
REST_US: Final = int(REST_SECONDS * 1_000_000)
"""Retry delay, in µs, after unreadable data."""
_REASON: Final = "a script was not restored to its end"


class UnfinishedRestores:
    """Namespaces and databases of incomplete restores, and their removal."""

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        sessions: Sessions,
        service: VaultService,
        spaces: SpaceService,
        topics: TopicService,
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._sessions = sessions
        self._service = service
        self._spaces = spaces
        self._topics = topics
        self._left: list[RestoreMark] = []
        self._logged = False
        """True if the log line about the remaining marks was written."""
        self._timer: asyncio.TimerHandle | None = None
        """Timer of the next retry."""

    async def load(self) -> None:
        """Load the marks at a start, when no restore runs, and drop what is marked."""
        with self._committer.begin_transaction() as tx:
            self._left = restores.marks(tx)
        await self.drop()

    def give_up(self, marks: Iterable[RestoreMark]) -> CommitTicket | None:
        """Drop what an abandoned restore made, now or once the node takes the commit.

        :returns: ticket of the commit; None if it has to be retried later
        """
        self._left += marks
        return self._drop()

    def filled(self, marks: Iterable[RestoreMark], ticket: CommitTicket) -> None:
        """Watch the commit that completes a restore; a roll back of it drops what it made."""
        self._committer.when_released(ticket, partial(self._ended, tuple(marks), ()))

    async def drop(self) -> None:
        """Drop all that is marked. On a node that takes no writes it stays until the node does."""
        ticket = self._drop()
        if ticket is not None:
            await self._committer.released(ticket)

    def _drop(self) -> CommitTicket | None:
        if not self._left:
            return None
        marks, committer = tuple(self._left), self._committer
        gone: list[Vault] = []
        with committer.begin_transaction() as tx:
            try:
                dropped, users = restores.undo(tx, marks, partial(self._goes, tx, gone))
                ticket = committer.commit(tx, NODE, reason=_REASON)
            except Refusal as refusal:
                self._refused(refusal)
                return None
            except EngineUnreadable as error:
                self._runtime.report_error(type(self).__name__, error)
                self._later(REST_US)
                return None
        self._left, self._logged = [], False
        for vault in gone:
            self._service.dropped(vault)
        for place in dropped:
            self._spaces.dropped(place)
        for user in users:
            self._sessions.end_all(user)
        self._topics.declarations_changed()
        committer.when_released(ticket, partial(self._ended, marks, tuple(map(_path, dropped))))
        return ticket

    def _goes(self, tx: Transaction, gone: list[Vault], database: Database) -> None:
        """Prepare the drop of a database, including everything declared in it meanwhile.

        Audit trails record the drop of its vaults as for DROP DATABASE.
        """
        for vault in vaults.each(tx, database, unpaced):
            self._service.trail.add_to_both(tx, VaultAct("drop", None, vault, reason=_REASON))
            gone.append(vault)

    def _refused(self, refusal: Refusal) -> None:
        passes = isinstance(refusal, NotEnoughReplicas | Conflict | Busy)
        if not (passes or self._logged):
            self._logged = True
            log.warning(
                "could not drop the places of an unfinished restore",
                places=[".".join(mark.names) for mark in self._left],
                why=str(refusal),
            )
        if passes or isinstance(refusal, DiskFull):
            self._later()

    def _ended(
        self, marks: tuple[RestoreMark, ...], dropped: tuple[str, ...], lost: BaseException | None
    ) -> None:
        """Handle the end of a commit that removed marks. :param lost: reason of its roll back, or
        None"""
        if lost is not None:
            self._left += marks
            self._later()
        elif dropped:
            log.info("the places of an unfinished restore were dropped", places=dropped)

    def _later(self, wait_us: int | None = None) -> None:
        if self._timer is None:
            at_us = self._committer.monotonic_us() + (AGAIN_US if wait_us is None else wait_us)
            self._timer = self._committer.at(at_us, self._again)

    def _again(self) -> None:
        self._timer = None
        if (
            self._committer.not_writable() is None
        ):  # otherwise the leader does it, or this node after DEFINE NODE
            self._drop()


def _path(place: Namespace | Database) -> str:
    return place.name if isinstance(place, Namespace) else f"{place.namespace.name}.{place.name}"
