"""Handle of a database: calls need no ns and db."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from storeclient.answers import Answer
from storeclient.cache import AsyncCache
from storeclient.changes import Action, Position
from storeclient.loads import BATCH_ROWS, Load, OnRows, batches_of
from storeclient.mirrors import AsyncMirror, OnCopy
from storeclient.moments import KEEP, AsyncMoment, MomentClient
from storeclient.names import check_names, quote_name
from storeclient.pages import PAGE, Pages, each
from storeclient.topics import AsyncTopic
from storeclient.transactions import AsyncTransaction
from storeclient.vaults import AsyncVault
from storeclient.watches import AsyncWatch, WatchClient, asked


class _DatabaseClient(MomentClient, WatchClient, Protocol):
    """Part of the client that a database needs."""

    def cache(self, ns: str, db: str, space: str) -> AsyncCache: ...

    def topic(self, ns: str, db: str, name: str) -> AsyncTopic: ...

    def vault(self, ns: str, db: str, name: str) -> AsyncVault: ...


class AsyncDatabase:
    """Handle of a database. Made by `AsyncClient.database(ns, db)`; nothing is sent before its
    first call.

        db = client.database("shop", "main")
        lamps = await db.query("SELECT * FROM item WHERE name = $n", {"n": "lamp"})
        async for item in db.rows("SELECT * FROM item"):
            ...
    """

    def __init__(self, client: _DatabaseClient, ns: str, db: str) -> None:
        check_names(ns, db)
        self._client = client
        self.ns = ns
        self.db = db

    def __repr__(self) -> str:
        return f"<AsyncDatabase {self.ns}.{self.db} of {self._client!r}>"

    async def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        after: int | None = None,
        current: bool = False,
    ) -> Answer:
        """Run a script and return all its results; see `AsyncClient.run`."""
        return await self._client.run(
            script,
            params,
            ns=self.ns,
            db=self.db,
            timeout=timeout,
            reason=reason,
            repeatable=repeatable,
            after=after,
            current=current,
        )

    async def query(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        after: int | None = None,
        current: bool = False,
    ) -> Any:
        """Run a script and return the value of its last statement; see `AsyncClient.query`."""
        answer = await self.run(
            script,
            params,
            timeout=timeout,
            reason=reason,
            repeatable=repeatable,
            after=after,
            current=current,
        )
        return answer.value

    def transaction(self) -> AsyncTransaction:
        """Return a transaction, to which statements are added before it is run.

        buying = db.transaction()
        buying.add("CREATE sold CONTENT $item", {"item": item})
        buying.add("UPDATE $id SET stock -= 1", {"id": item.id})
        await buying.run()
        """
        return AsyncTransaction(self)

    async def load(
        self,
        table: str,
        rows: Any,
        *,
        columns: Sequence[str] | None = None,
        batch: int = BATCH_ROWS,
        ignore: bool = False,
        progress: OnRows | None = None,
        reason: str | None = None,
    ) -> int:
        """Insert many rows, each batch in a commit of its own. Return the number of created
        records.

            await db.load("sale", read_sales(), progress=print)

        :param rows: an iterable of dicts, dataclass instances, named tuples, or tuples with
            `columns`; or a DataFrame of pandas or polars, whose missing values become NONE
        :param columns: names of the items of plain tuples
        :param batch: rows of a commit; fewer if their texts are long
        :param ignore: skip rows whose record exists. Rows with ids may then be loaded again, and
            the client does so itself after a broken connection
        :param progress: called with the number of rows written so far, after each batch
        :raises LoadFailed: it ended early: which rows are written, and the cause
        :raises ValueError: an invalid name
        """
        check_names(table)

        async def send(script: str, params: Mapping[str, Any], repeatable: bool) -> Answer:
            return await self.run(script, params, reason=reason, repeatable=repeatable)

        return await Load(send, table, ignore, progress).run(batches_of(rows, columns, batch))

    def moment(self, *, keep: float | timedelta = KEEP) -> AsyncMoment:
        """Return a pinned snapshot of the store: all reads in it show the state at its entry,
        whatever is committed meanwhile.

            async with db.moment() as then:
                count = await then.query("SELECT VALUE count() FROM ONLY item GROUP ALL")
                rows = [row async for row in then.rows("SELECT * FROM item")]

        :param keep: time that the node keeps it for the next request, seconds, or a timedelta; ten
            minutes at most. It ends at the latest an hour after its entry
        """
        return AsyncMoment(self._client, self.ns, self.db, keep)

    async def rows(
        self,
        select: str,
        params: Mapping[str, Any] | None = None,
        *,
        page: int = PAGE,
        consistent: bool = False,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of a SELECT from one table, however many, in the order of their ids.

        They are read page by page; the cursor is the last id of the previous page. Each page shows
        the state when it is read, so a concurrent write may be visible in a later page and not in
        an earlier one.

        :param select: `SELECT fields FROM table [WHERE condition]`; `id` is among the fields, and
            there is no VALUE, SPLIT, GROUP, ORDER, LIMIT, START, FETCH or TIMEOUT
        :param page: rows per request
        :param consistent: read all pages in one snapshot (`moment`), which the node keeps for a
            minute after each. A slower reader gets `errors.Unknown` for the next page
        :raises ValueError: the text is not such a SELECT, or its rows have no `id`
        """
        pages = Pages(select, params, page)
        if consistent:
            async with self.moment() as then:
                async for row in each(pages, then.query):
                    yield row
        else:
            async for row in each(pages, partial(self.query, repeatable=True)):
                yield row

    def watch(
        self,
        table: str,
        start: int | Position | None = None,
        *,
        actions: Collection[Action] | None = None,
        before: bool = False,
        where: str | None = None,
    ) -> AsyncWatch:
        """Follow the change feed of a table, without end.

            async for change in db.watch("item", answer.position):
                print(change.action, change.id, change.value)

        :param start: last known commit: the `position` of an answer or of another watch. A bare
            `seq` is not checked against the node's history. 0: all that the log holds. None: only
            new commits
        :param actions: "create", "update", "delete"; None: all
        :param before: each change includes the previous version of the record
        :param where: a condition on the record alone, such as `price > 10`. A record that begins to
            meet it comes as "create", one that no longer does as "delete"
        :raises ValueError: an invalid name
        """
        quote_name(table)
        body = asked(self.ns, self.db, table, actions, before, where)
        return AsyncWatch(self._client, body, start)

    def mirror(
        self,
        table: str,
        *,
        where: str | None = None,
        page: int = PAGE,
        on_copy: OnCopy | None = None,
    ) -> AsyncMirror:
        """Return a local copy of a table, kept up to date.

            async with db.mirror("item", where="price > 10") as items:
                print(len(items), items[RecordId("item", 1)])

        :param where: a condition on the record alone: only records that meet it
        :param page: rows per request, while it is copied
        :param on_copy: called on the client's event loop after each full copy, with its cause
        :raises ValueError: an invalid name, or the condition ends the SELECT
        """
        return AsyncMirror(self, table, where, page, on_copy)

    def cache(self, space: str) -> AsyncCache:
        """Return a handle of a cache space; see `AsyncClient.cache`."""
        return self._client.cache(self.ns, self.db, space)

    def topic(self, name: str) -> AsyncTopic:
        """Return a handle of a topic; see `AsyncClient.topic`."""
        return self._client.topic(self.ns, self.db, name)

    def vault(self, name: str) -> AsyncVault:
        """Return a handle of a vault; see `AsyncClient.vault`."""
        return self._client.vault(self.ns, self.db, name)
