"""One database of a client: ns and db are said once.

Two twins with the same methods, `AsyncDatabase` and `Database`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from storeclient.answers import Answer
from storeclient.blocking import Submit, Topic, _Twin
from storeclient.cache import AsyncCache, Cache
from storeclient.changes import Action, Position
from storeclient.mirrors import AsyncMirror, Mirror, OnCopy
from storeclient.moments import KEEP, AsyncMoment, Moment, Runs
from storeclient.names import check_names, quote_name
from storeclient.pages import PAGE, Pages, each
from storeclient.topics import AsyncTopic
from storeclient.vaults import AsyncVault, Vault
from storeclient.watches import AsyncWatch, Watch, Watches, asked


class _Client(Runs, Watches, Protocol):
    """What a database needs of its client."""

    def cache(self, ns: str, db: str, space: str) -> AsyncCache: ...

    def topic(self, ns: str, db: str, name: str) -> AsyncTopic: ...

    def vault(self, ns: str, db: str, name: str) -> AsyncVault: ...


class AsyncDatabase:
    """One database. Made by `AsyncClient.database(ns, db)`; nothing is asked before its first call.

    db = client.database("shop", "main")
    lamps = await db.query("SELECT * FROM item WHERE name = $n", {"n": "lamp"})
    async for item in db.rows("SELECT * FROM item"):
        ...
    """

    def __init__(self, client: _Client, ns: str, db: str) -> None:
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
        """As `AsyncClient.run`."""
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
        """As `AsyncClient.query`."""
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

    def moment(self, *, keep: float | timedelta = KEEP) -> AsyncMoment:
        """One moment of the store, to read in as often as needed: everything read there is as it
        was when it was entered, whatever is committed meanwhile.

        async with db.moment() as then:
            count = await then.query("SELECT VALUE count() FROM ONLY item GROUP ALL")
            rows = [row async for row in then.rows("SELECT * FROM item")]

        :param keep: how long the node keeps it for the next request, seconds, or a timedelta; ten
            minutes at most. An hour after it was entered it ends in any case
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
        """The rows of a SELECT from one table, however many, in the order of their ids.

        They are asked for page by page, each of which begins behind the id that the one before
        ended with. Pages are read one after the other: each shows what is committed when it is
        read, so what is written meanwhile may be seen by a later page and not by an earlier one.

        :param select: `SELECT fields FROM table [WHERE condition]`; `id` is among the fields, and
            there is no VALUE, SPLIT, GROUP, ORDER, LIMIT, START, FETCH or TIMEOUT
        :param page: rows in one request
        :param consistent: all pages are of one `moment`, which the node keeps for a minute behind
            each of them. Whoever takes longer over a page is refused the next with
            `errors.Unknown`
        :raises ValueError: the text is no such SELECT, or its rows have no `id`
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
        """Follow a table: its changes, for ever, as they are committed.

            async for change in db.watch("item", answer.position):
                print(change.action, change.id, change.value)

        :param start: the last commit that is known: the `position` of an answer or of another
            watch; a bare `seq` is one of whatever history the node has. 0: all that the log holds.
            None: what comes from now on
        :param actions: "create", "update", "delete"; None: all
        :param before: each change has the record as it was
        :param where: a condition on the record alone, such as `price > 10`: what begins to meet it
            comes as "create", what no longer does as "delete"
        :raises ValueError: of the name
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
        """A copy of a table, kept in step.

            async with db.mirror("item", where="price > 10") as items:
                print(len(items), items[RecordId("item", 1)])

        :param where: a condition on the record alone: only what meets it
        :param page: rows in one request, while it is copied
        :param on_copy: told on the client's event loop of each time that it was copied, and why
        :raises ValueError: of the name, or the condition ends the SELECT
        """
        return AsyncMirror(self, table, where, page, on_copy)

    def cache(self, space: str) -> AsyncCache:
        """As `AsyncClient.cache`."""
        return self._client.cache(self.ns, self.db, space)

    def topic(self, name: str) -> AsyncTopic:
        """As `AsyncClient.topic`."""
        return self._client.topic(self.ns, self.db, name)

    def vault(self, name: str) -> AsyncVault:
        """As `AsyncClient.vault`."""
        return self._client.vault(self.ns, self.db, name)


class Database(_Twin):
    """One database, blocking. Made by `Client.database(ns, db)`; otherwise as `AsyncDatabase`."""

    def __init__(self, twin: AsyncDatabase, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin
        self.ns = twin.ns
        self.db = twin.db

    def run(
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
        """As `AsyncDatabase.run`."""
        return self._wait(
            self._twin.run(
                script,
                params,
                timeout=timeout,
                reason=reason,
                repeatable=repeatable,
                after=after,
                current=current,
            )
        )

    def query(
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
        """As `AsyncDatabase.query`."""
        return self.run(
            script,
            params,
            timeout=timeout,
            reason=reason,
            repeatable=repeatable,
            after=after,
            current=current,
        ).value

    def moment(self, *, keep: float | timedelta = KEEP) -> Moment:
        """As `AsyncDatabase.moment`."""
        return Moment(self._twin.moment(keep=keep), self._submit)

    def rows(
        self,
        select: str,
        params: Mapping[str, Any] | None = None,
        *,
        page: int = PAGE,
        consistent: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """As `AsyncDatabase.rows`."""
        return self._each(self._twin.rows(select, params, page=page, consistent=consistent))

    def watch(
        self,
        table: str,
        start: int | Position | None = None,
        *,
        actions: Collection[Action] | None = None,
        before: bool = False,
        where: str | None = None,
    ) -> Watch:
        """As `AsyncDatabase.watch`, for `for`."""
        twin = self._twin.watch(table, start, actions=actions, before=before, where=where)
        return Watch(twin, self._submit)

    def mirror(
        self,
        table: str,
        *,
        where: str | None = None,
        page: int = PAGE,
        on_copy: OnCopy | None = None,
    ) -> Mirror:
        """As `AsyncDatabase.mirror`, for `with`. `on_copy` is called in the client's thread."""
        twin = self._twin.mirror(table, where=where, page=page, on_copy=on_copy)
        return Mirror(twin, self._submit)

    def cache(self, space: str) -> Cache:
        """As `AsyncDatabase.cache`."""
        return Cache(self._twin.cache(space), self._wait)

    def topic(self, name: str) -> Topic:
        """As `AsyncDatabase.topic`."""
        return Topic(self._twin.topic(name), self._submit)

    def vault(self, name: str) -> Vault:
        """As `AsyncDatabase.vault`."""
        return Vault(self._twin.vault(name), self._submit)
