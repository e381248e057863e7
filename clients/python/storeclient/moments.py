"""One moment of the store, kept by the node for several requests to read in.

Two twins with the same methods, `AsyncMoment` and `Moment`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self

from storeclient.answers import Answer
from storeclient.blocking import Submit, _Twin
from storeclient.changes import Position
from storeclient.errors import StoreError
from storeclient.pages import PAGE, Pages, each

KEEP: Final = 60.0
"""Seconds that a moment is kept behind a request that reads in it."""
NEW: Final = "new"


class Runs(Protocol):
    """What runs scripts: a client, as its handles see it."""

    async def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        ns: str | None = None,
        db: str | None = None,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        moment: str | None = None,
        keep: float | timedelta | None = None,
        after: int | None = None,
        current: bool = False,
    ) -> Answer: ...


class AsyncMoment:
    """A moment, from `async with` on. Made by `AsyncDatabase.moment`.

    It is the user's, not the connection's, and goes on where that breaks. Once the node has started
    anew, a user or grant has changed, its disk was full, or nobody has read for as long as it is
    kept, reading is refused with `errors.Unknown`.
    """

    def __init__(self, client: Runs, ns: str, db: str, keep: float | timedelta) -> None:
        self._client = client
        self._ns, self._db = ns, db
        self._keep = keep
        self._name: str | None = None
        self.seq = 0
        """The sequence that is read; 0 before it was entered."""
        self.position = Position(0)
        """The same, with its history: where to follow from."""

    def __repr__(self) -> str:
        return f"<AsyncMoment {self._name or 'not entered'} at {self.seq} of {self._client!r}>"

    async def __aenter__(self) -> Self:
        answer = await self._client.run(
            "", ns=self._ns, db=self._db, moment=NEW, keep=self._keep, repeatable=True
        )
        self._name, self.seq, self.position = answer.moment, answer.seq, answer.position
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        name, self._name = self._name, None
        with suppress(StoreError):  # it ends by itself where the node can't be told
            await self._client.run("", ns=self._ns, db=self._db, moment=name, keep=0)

    async def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> Answer:
        """As `AsyncClient.run`, of a script that only reads.

        :raises errors.Unknown: the moment has ended
        :raises errors.BadRequest: a statement writes
        :raises ValueError: it was not entered, or left
        """
        if self._name is None:
            raise ValueError("a moment is read within its `with`")
        return await self._client.run(
            script, params, ns=self._ns, db=self._db, timeout=timeout, repeatable=True,
            moment=self._name, keep=self._keep,
        )  # fmt: skip

    async def query(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> Any:
        """The value of the last statement. Otherwise as `run`."""
        return (await self.run(script, params, timeout=timeout)).value

    def rows(
        self, select: str, params: Mapping[str, Any] | None = None, *, page: int = PAGE
    ) -> AsyncIterator[dict[str, Any]]:
        """The rows of a SELECT, however many, as `AsyncDatabase.rows`; all of this moment."""
        return each(Pages(select, params, page), self.query)


class Moment(_Twin):
    """A moment, blocking. Made by `Database.moment`; otherwise as `AsyncMoment`."""

    def __init__(self, twin: AsyncMoment, submit: Submit) -> None:
        super().__init__(submit)
        self._twin = twin

    @property
    def seq(self) -> int:
        """As `AsyncMoment.seq`."""
        return self._twin.seq

    @property
    def position(self) -> Position:
        """As `AsyncMoment.position`."""
        return self._twin.position

    def __enter__(self) -> Self:
        self._wait(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait(self._twin.__aexit__(kind, error, trace))

    def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> Answer:
        """As `AsyncMoment.run`."""
        return self._wait(self._twin.run(script, params, timeout=timeout))

    def query(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> Any:
        """As `AsyncMoment.query`."""
        return self._wait(self._twin.query(script, params, timeout=timeout))

    def rows(
        self, select: str, params: Mapping[str, Any] | None = None, *, page: int = PAGE
    ) -> Iterator[dict[str, Any]]:
        """As `AsyncMoment.rows`."""
        return self._each(self._twin.rows(select, params, page=page))
