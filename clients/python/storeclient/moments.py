"""Moments: pinned snapshots of the store, kept by the node for several requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self

from storeclient.answers import Answer
from storeclient.changes import Position
from storeclient.errors import StoreError
from storeclient.pages import PAGE, Pages, each

KEEP: Final = 60.0
"""Seconds that a moment is kept after a request that reads in it."""
NEW: Final = "new"


class MomentClient(Protocol):
    """Part of the client that moments need."""

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
    """A pinned snapshot, taken on entering `async with`. Made by `AsyncDatabase.moment`.

    It belongs to the user, not to the connection, and survives a broken one. It ends when the node
    restarts, a user or grant changes, the disk was full, or no request has read it for its keep
    time. Then reads are refused with `errors.Unknown`.
    """

    def __init__(self, client: MomentClient, ns: str, db: str, keep: float | timedelta) -> None:
        self._client = client
        self._ns, self._db = ns, db
        self._keep = keep
        self._name: str | None = None
        self.seq = 0
        """Sequence of the snapshot; 0 before its entry."""
        self.position = Position(0)
        """Position of the snapshot, to start a watch from."""

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
        with suppress(StoreError):  # if the node is unreachable, it expires
            await self._client.run("", ns=self._ns, db=self._db, moment=name, keep=0)

    async def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> Answer:
        """Run a read-only script; see `AsyncClient.run`.

        :raises errors.Unknown: the moment has ended
        :raises errors.BadRequest: a statement writes
        :raises ValueError: it was not entered, or left
        """
        if self._name is None:
            raise ValueError("read a moment only inside its `with`")
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
        """Run a script and return the value of the last statement. Otherwise like `run`."""
        return (await self.run(script, params, timeout=timeout)).value

    def rows(
        self, select: str, params: Mapping[str, Any] | None = None, *, page: int = PAGE
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of a SELECT in this snapshot; see `AsyncDatabase.rows`."""
        return each(Pages(select, params, page), self.query)
