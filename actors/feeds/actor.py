"""Lets feeds in: who asks, what of, and whether the position that it brings is of this history."""

from __future__ import annotations

from typing import NamedTuple

from actors.commits import Committer
from actors.feeds.feed import Feed
from actors.feeds.hub import Feeds
from actors.feeds.pending import arrived
from actors.feeds.request import ACTIONS, NOTHING, JudgeFeed, Opened, OpenFeed, Place
from actors.feeds.views import Wanted
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import LoopActor, Runtime, handles
from actors.scripts.running import Running
from actors.sessions import Sessions
from language.filters import Filter
from protocol.errors import (
    BadRequest,
    Busy,
    Diverged,
    Failed,
    LogPruned,
    StatementTimeout,
    Unknown,
)
from protocol.rights import INFO, READ
from storage import catalog
from storage.catalog import Table
from storage.tickets import CommitTicket


class _Found(NamedTuple):
    """What a feed is asked of."""

    table: Table
    attributed: bool
    """Whether who asks may know who changes it and why."""
    created: int
    """The commit that declared it."""
    ticket: CommitTicket
    """The commit that must be released before anything is told that rests on this."""


class FeedsActor(LoopActor):
    """:param store_id: as callers see it"""

    def __init__(
        self,
        runtime: Runtime,
        feeds: Feeds,
        committer: Committer,
        rights: Rights,
        sessions: Sessions,
        roles: Roles,
        running: Running,
        store_id: str,
    ) -> None:
        super().__init__(runtime)
        self._feeds = feeds
        self._committer = committer
        self._rights = rights
        self._sessions = sessions
        self._roles = roles
        self._running = running
        self._store_id = store_id

    @handles(OpenFeed)
    async def open(self, asked: OpenFeed) -> Feed:
        """A feed that begins to tell; its sink has been told how.

        :raises BadRequest, UnexpectedToken, TooLarge: of what is asked
        :raises Unknown, NotAllowed: of the table; `detail.created`: the position is older than it
        :raises Diverged: the position is of another history
        :raises LogPruned: the log begins after it
        :raises StatementTimeout: the node does not show what it is to come after, or the position
            that it begins at, in time; `detail.seq` is what it shows
        :raises Busy: too many feeds are open, or wait to be; or the node does not know enough of
            its cluster's store at the moment
        :raises Draining: the node has no role
        """
        feeds, committer = self._feeds, self._committer
        self._check(asked)
        await self._arrive(asked)
        found, condition, start = await self._judged(asked)
        # Others ran meanwhile: a right may have come that is not released yet.
        while not committer.is_released((now := self._look(asked)).ticket):
            await committer.released_in_time(now.ticket)
        # From here to its beginning nothing is awaited.
        if now.table.id != found.table.id:
            raise Busy(f"table {now.table.path} is being declared anew: ask again")
        self._sessions.check_authenticated(asked.caller)
        feeds.check_room(asked.caller.user, asked.where)
        newest = committer.released_upto
        epoch = committer.ledger.epoch_at(newest)
        table = now.table
        wanted = Wanted(
            table.prefix, asked.sink.form, asked.actions, asked.before, asked.where, now.attributed
        )
        start = Place(newest, epoch) if start is None else start
        began_us = self.runtime.clock.monotonic_us()
        # Who knows a commit of before the table may have a copy of one that had its name before: it
        # is refused. Who is told of this one from its first commit on knows nothing yet.
        known = NOTHING if start.sequence < now.created else start
        view = feeds.view(wanted, table, condition)
        feed = Feed(feeds, asked, view, newest, start, known, began_us)
        opened = Opened(
            seq=newest,
            start=known.sequence,
            start_epoch=known.epoch,
            begins=feeds.reads.begins,
            table=asked.table,
            created=now.created,
            store=self._store_id,
            epoch=epoch,
        )
        asked.sink.opened(opened)
        feeds.begin(feed)
        return feed

    @handles(JudgeFeed)
    async def judge(self, message: JudgeFeed) -> None:
        """Refuse what `open` would refuse, as far as that is known without waiting for a commit.

        :raises Refusal: as `open`
        """
        asked = message.asked
        self._check(asked)
        if self._awaited(asked) <= self._committer.released_upto:
            await self._judged(asked)

    def _check(self, asked: OpenFeed) -> None:
        self._roles.check_answering(asked.caller)
        if not asked.actions or not asked.actions <= set(ACTIONS):
            raise BadRequest(f"actions are some of {', '.join(ACTIONS)}")

    async def _judged(self, asked: OpenFeed) -> tuple[_Found, Filter | None, Place | None]:
        found = self._look(asked)
        condition = None if asked.where is None else Filter(asked.where)
        await self._committer.released_in_time(found.ticket)
        return found, condition, await self._start(asked, found.created)

    def _look(self, asked: OpenFeed) -> _Found:
        """Judge who asks, of the table as it is now."""
        with self._committer.begin_reading() as tx:
            caller, place = asked.caller, (asked.namespace, asked.database)
            table = self._rights.table(tx, caller, place, asked.table, READ)
            attributed = self._rights.holds(tx, caller, INFO, table)
            return _Found(table, attributed, catalog.declared_at(tx, table), tx.ticket)

    async def _arrive(self, asked: OpenFeed) -> None:
        """Wait until the node shows what the feed is to come after, and where it begins. Who may
        do what is judged behind that: what is declared may have yet to come."""
        after, start = self._awaited(asked), asked.start or 0
        if after <= self._committer.released_upto:
            return
        self._sessions.check_authenticated(asked.caller)
        try:
            await arrived(asked, after, self._committer, self._running)
        except StatementTimeout:
            if after == start and not self._may_come(asked, start):
                return  # another history has come instead: see `_start`
            raise
        self._roles.check_answering(asked.caller)

    def _awaited(self, asked: OpenFeed) -> int:
        """Return the sequence that the node has to show before the feed is judged."""
        after, start = asked.after or 0, asked.start or 0
        return start if start > after and self._may_come(asked, start) else after

    def _may_come(self, asked: OpenFeed, start: int) -> bool:
        """Whether a position that is not there yet can be one of this history: another node has
        shown it, and this one is behind."""
        committer = self._committer
        if asked.store is not None and asked.store != self._store_id:
            return False
        if not committer.follows and start > committer.committed:
            return False
        epoch = committer.ledger.epoch_at(committer.released_upto)
        return asked.epoch is None or asked.epoch >= epoch

    async def _start(self, asked: OpenFeed, created: int) -> Place | None:
        """The commit after which the feed begins; None: the newest."""
        start, reads, newest = asked.start, self._feeds.reads, self._committer.released_upto
        if asked.store is not None and asked.store != self._store_id:
            raise Diverged(
                f"the position is of store {asked.store}, this is {self._store_id}: copy anew",
                store=self._store_id,
            )
        if start is None:
            return None
        if start > newest:
            raise Diverged(f"sequence {start} is not there yet: the newest is {newest}", seq=newest)
        if start == 0:
            return await self._place(max(reads.begins, created) - 1)
        if start < created:
            path = f"{asked.namespace}.{asked.database}.{asked.table}"
            raise Unknown(
                f"table {path} was declared later, at {created}: copy anew",
                kind="table",
                name=path,
                created=created,
            )
        place = await self._place(start)
        if asked.epoch not in (None, place.epoch) and not self._leads_on(asked, place):
            raise Diverged(
                f"sequence {start} was written in epoch {place.epoch}, not in {asked.epoch}:"
                " copy anew",
                epoch=place.epoch,
            )
        return place

    async def _place(self, sequence: int) -> Place:
        """A commit that was released, with its epoch. :raises LogPruned: what follows it is gone"""
        reads = self._feeds.reads
        epoch = await reads.epoch_at(sequence)
        if epoch is None:
            raise LogPruned(
                f"what follows {sequence} is no longer in the log: it begins at {reads.begins}",
                first=reads.begins,
            )
        return Place(sequence, epoch)

    def _leads_on(self, asked: OpenFeed, place: Place) -> bool:
        """Whether a position names a later epoch of this history than its commit is of: the one
        that the newest commit had when it was told of. An epoch has one leader, which takes nothing
        back: who holds frames of it has the same before them as all others who do.

        Not of an earlier epoch, though the leader of a later one may have told of it: where an
        operator had a node begin anew with what it had, that commit may be another one's."""
        if asked.epoch is None or asked.store is None or asked.epoch < place.epoch:
            return False
        return any(reign.epoch == asked.epoch for reign in self._committer.history())

    def on_stop(self) -> None:
        """Its readers come back when there is another."""
        self._feeds.end_all(Failed("the node's feeds have stopped"))
