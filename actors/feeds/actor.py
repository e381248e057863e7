"""Opens feeds: authorization, and the check that the position is of this store's history."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from actors.commits.committer import Committer
from actors.execution.registry import Registry
from actors.feeds.feed import Feed
from actors.feeds.hub import Feeds
from actors.feeds.pending import arrived
from actors.feeds.request import ACTIONS, NOTHING, AuthorizeFeed, FeedCursor, FeedOpened, OpenFeed
from actors.feeds.views import ViewParameters
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import LoopActor, Runtime, handles
from actors.scripts import text_search
from actors.scripts.comparing import check_against
from actors.scripts.schema import declared_schema
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
from protocol.values import unpaced
from storage.catalog import tables
from storage.catalog.tables import Table
from storage.txn.tickets import CommitTicket


class _AuthorizedTable(NamedTuple):
    """Catalog entry of a feed's table, with the caller's privileges."""

    table: Table
    attributed: bool
    """True if the caller may see the author and the reason of a change."""
    created: int
    """Sequence of the commit that declared the table."""
    ticket: CommitTicket
    """The newest commit that this rests on; it must be released before any output."""


class FeedsActor(LoopActor):
    """Opens feeds. :param store_id: id of the store, as callers see it"""

    def __init__(
        self,
        runtime: Runtime,
        feeds: Feeds,
        committer: Committer,
        rights: Rights,
        sessions: Sessions,
        roles: Roles,
        registry: Registry,
        store_id: str,
    ) -> None:
        super().__init__(runtime)
        self._feeds = feeds
        self._committer = committer
        self._rights = rights
        self._sessions = sessions
        self._roles = roles
        self._registry = registry
        self._store_id = store_id

    @handles(OpenFeed)
    async def open(self, asked: OpenFeed) -> Feed:
        """Return a feed that has begun; its sink has been notified (`Sink.opened`).

        :raises BadRequest, UnexpectedToken, TooLarge, TypeRefused: the request is malformed
        :raises Unknown, NotAllowed: of the table; `detail.created`: the position is older than it
        :raises Diverged: the position is of another history
        :raises LogPruned: the log begins after it
        :raises StatementTimeout: the node does not show the commit to begin after, or the start
            position, in time; `detail.seq` is the newest that it shows
        :raises Busy: too many feeds are open, or wait to be; or the node does not know enough of
            its cluster's store at the moment
        :raises Draining: the node has no role
        """
        feeds, committer = self._feeds, self._committer
        self._check(asked)
        await self._arrive(asked)
        found, condition, start = await self._judged(asked)
        # Other requests ran meanwhile: the privileges may rest on a commit that can be rolled back.
        while not committer.is_released((now := self._authorize(asked)).ticket):
            await committer.released_in_time(now.ticket)
        # No await from here to `add`: the position and the privileges stay valid.
        if now.table.id != found.table.id:
            raise Busy(f"table {now.table.path} is being redefined: ask again")
        self._sessions.check_authenticated(asked.caller)
        feeds.check_room(asked.caller.user, asked.where)
        newest = committer.commit_index
        epoch = committer.ledger.epoch_at(newest)
        table = now.table
        wanted = ViewParameters(
            table.prefix, asked.sink.form, asked.actions, asked.before, asked.where, now.attributed
        )
        start = FeedCursor(newest, epoch) if start is None else start
        began_us = self.runtime.clock.monotonic_us()
        # A reader with a position older than the table may hold a copy of an earlier table of that
        # name, and is refused. A reader from the table's first commit on knows nothing yet.
        known = NOTHING if start.sequence < now.created else start
        view = feeds.view(wanted, table, condition)
        feed = Feed(feeds.parts, asked, view, newest, start, known, began_us)
        opened = FeedOpened(
            seq=newest,
            start=known.sequence,
            start_epoch=known.epoch,
            begins=feeds.commits.reads.begins,
            table=asked.table,
            created=now.created,
            store=self._store_id,
            epoch=epoch,
        )
        asked.sink.opened(opened)
        feeds.add(feed)
        return feed

    @handles(AuthorizeFeed)
    async def authorize_feed(self, message: AuthorizeFeed) -> None:
        """Refuse a request that `open` would refuse, as far as that is known without waiting.

        :raises Refusal: as `open`
        """
        asked = message.asked
        self._check(asked)
        if self._awaited(asked) <= self._committer.commit_index:
            await self._judged(asked)

    def _check(self, asked: OpenFeed) -> None:
        self._roles.check_answering(asked.caller)
        if not asked.actions or not asked.actions <= set(ACTIONS):
            raise BadRequest(f"actions are some of {', '.join(ACTIONS)}")

    async def _judged(
        self, asked: OpenFeed
    ) -> tuple[_AuthorizedTable, Filter | None, FeedCursor | None]:
        found = self._authorize(asked)
        condition = None if asked.where is None else self._filter(asked.where, found.table)
        await self._committer.released_in_time(found.ticket)
        return found, condition, await self._start(asked, found.created)

    def _filter(self, text: str, table: Table) -> Filter:
        """Return the condition of a feed, held against the types of the table's fields.

        :raises UnexpectedToken, Unknown, BadRequest, TooLarge: as `Filter`
        :raises TypeRefused: no record of the table could ever meet it, or every one would
        """
        with self._committer.begin_read_only() as tx:
            schema = declared_schema(tx, table, unpaced)
        condition = Filter(text, schema.types, partial(text_search.analyzer_for, table))
        check_against(schema, condition.comparisons, table, condition.evaluate, unpaced)
        return condition

    def _authorize(self, asked: OpenFeed) -> _AuthorizedTable:
        """Authorize the caller on the table as it is now."""
        with self._committer.begin_read_only() as tx:
            caller, place = asked.caller, (asked.namespace, asked.database)
            table = self._rights.table(tx, caller, place, asked.table, READ)
            attributed = self._rights.holds(tx, caller, INFO, table)
            return _AuthorizedTable(table, attributed, tables.declared_at(tx, table), tx.ticket)

    async def _arrive(self, asked: OpenFeed) -> None:
        """Wait until the node shows the commit to begin after, and the start position.
        Authorization follows: the declarations it depends on may have yet to arrive."""
        after, start = self._awaited(asked), asked.start or 0
        if after <= self._committer.commit_index:
            return
        self._sessions.check_authenticated(asked.caller)
        try:
            await arrived(asked, after, self._committer, self._registry)
        except StatementTimeout:
            if after == start and not self._may_come(asked, start):
                return  # another history has come instead: see `_start`
            raise
        self._roles.check_answering(asked.caller)

    def _awaited(self, asked: OpenFeed) -> int:
        """Return the sequence that the node has to show before the feed is authorized."""
        after, start = asked.after or 0, asked.start or 0
        return start if start > after and self._may_come(asked, start) else after

    def _may_come(self, asked: OpenFeed, start: int) -> bool:
        """True if a position that is not there yet can be one of this history: another node has
        shown it, and this one lags behind."""
        committer = self._committer
        if asked.store is not None and asked.store != self._store_id:
            return False
        if not committer.follows and start > committer.committed:
            return False
        epoch = committer.ledger.epoch_at(committer.commit_index)
        return asked.epoch is None or asked.epoch >= epoch

    async def _start(self, asked: OpenFeed, created: int) -> FeedCursor | None:
        """Return the commit after which the feed begins; None: the newest."""
        start, reads, newest = asked.start, self._feeds.commits.reads, self._committer.commit_index
        if asked.store is not None and asked.store != self._store_id:
            raise Diverged(
                f"the position is of store {asked.store}, but this is {self._store_id}: copy the"
                " table again",
                store=self._store_id,
            )
        if start is None:
            return None
        if start > newest:
            raise Diverged(
                f"sequence {start} does not exist yet: the newest is {newest}", seq=newest
            )
        if start == 0:
            return await self._place(max(reads.begins, created) - 1)
        if start < created:
            path = f"{asked.namespace}.{asked.database}.{asked.table}"
            raise Unknown(
                f"table {path} was created later, at {created}: copy it again",
                kind="table",
                name=path,
                created=created,
            )
        place = await self._place(start)
        if asked.epoch not in (None, place.epoch) and not self._leads_on(asked, place):
            raise Diverged(
                f"sequence {start} was written in epoch {place.epoch}, not in {asked.epoch}: copy"
                " the table again",
                epoch=place.epoch,
            )
        return place

    async def _place(self, sequence: int) -> FeedCursor:
        """Return a released commit with its epoch. :raises LogPruned: its successors are gone"""
        reads = self._feeds.commits.reads
        epoch = await reads.epoch_at(sequence)
        if epoch is None:
            raise LogPruned(
                f"the commits after {sequence} are no longer in the log, which begins at"
                f" {reads.begins}",
                first=reads.begins,
            )
        return FeedCursor(sequence, epoch)

    def _leads_on(self, asked: OpenFeed, place: FeedCursor) -> bool:
        """True if a position names a later epoch of this history than that of its commit: the epoch
        of the newest commit when the position was reported.

        An epoch has one leader, which takes nothing back: all holders of its frames agree on all
        frames before them (Raft log matching, §5.3). An earlier epoch is refused, although the
        leader of a later one may have reported it. Where an operator had a node start over with its
        own copy, that commit may be another.
        """
        if asked.epoch is None or asked.store is None or asked.epoch < place.epoch:
            return False
        return any(epoch_end.epoch == asked.epoch for epoch_end in self._committer.history())

    def on_stop(self) -> None:
        """End all feeds; their readers reconnect."""
        self._feeds.end_all(Failed("the node's feeds have stopped"))
