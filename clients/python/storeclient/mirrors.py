"""Mirrors: local copies of a table, or of the records that meet a condition, kept up to date.

A mirror is read whole from one snapshot (moment) of the store, and follows the change feed from
there, without a gap. If the feed cannot continue, the table is read again automatically. Until that
is complete the old copy is shown.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from storeclient.changes import Commit, Position
from storeclient.errors import Closed, Diverged, LogPruned, StoreError, Unknown
from storeclient.names import quote_name
from storeclient.outages import Pause, is_outage
from storeclient.pages import Pages
from storeclient.values import RecordId

if TYPE_CHECKING:
    from storeclient.database import AsyncDatabase

_COPIED_ANEW: Final = (LogPruned, Diverged, Unknown)
"""Errors after which the feed cannot continue: the log is pruned, the history has diverged, or the
table was replaced."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Event: a mirror was read whole."""

    seq: int
    """Commit that the mirror shows."""
    rows: int
    why: StoreError | None
    """Error that made it necessary; None: the first time."""


OnCopy = Callable[[Copied], None]
Rows = Mapping[RecordId, dict[str, Any]]


class AsyncMirror(Rows):
    """Records of a table by id, as a read-only mapping. Made by `AsyncDatabase.mirror`, filled on
    entering `async with`.

    It changes only between two turns of the event loop, by a whole commit. While the node is away
    it shows the last known state; `seq` says how new that is. After a permanent error
    (`NotAllowed`, the table was dropped, the client was closed) reading it raises that error.
    """

    def __init__(
        self,
        db: AsyncDatabase,
        table: str,
        where: str | None,
        page: int,
        on_copy: OnCopy | None,
    ) -> None:
        self._db = db
        self._table = table
        self._where = where
        self._page = page
        self._on_copy = on_copy
        condition = "" if where is None else f" WHERE {where}"
        self._select = f"SELECT * FROM {quote_name(table)}{condition}"
        Pages(self._select, None, page)  # raises here for invalid arguments
        self._rows: dict[RecordId, dict[str, Any]] = {}
        self._position: Position | None = None
        self._failure: Exception | None = None
        self._work: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.lock = threading.Lock()
        """Held while the mirror changes, for readers in other threads."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._table}: {len(self._rows)} at {self.seq}>"

    # --- what it shows ----------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """Commit that the mirror shows; 0: none yet. Advances with commits elsewhere too, every 15
        seconds."""
        return 0 if self._position is None else self._position.seq

    def __getitem__(self, id: RecordId) -> dict[str, Any]:
        return self._shown()[id]

    def __iter__(self) -> Iterator[RecordId]:
        return iter(self._shown())

    def __len__(self) -> int:
        return len(self._shown())

    def snapshot(self) -> dict[RecordId, dict[str, Any]]:
        """Return a copy of the mirror's current state. :raises StoreError: the mirror has ended"""
        return dict(self._shown())

    def _shown(self) -> dict[RecordId, dict[str, Any]]:
        if self._failure is not None:
            raise self._failure
        return self._rows

    async def changed(self, since: int | None = None) -> None:
        """Wait for the next change; with `since`, until the mirror shows another sequence.

        Take `since` from `seq` before reading rows: a change in between is not missed.

        :raises StoreError: the mirror has ended
        """
        self._shown()
        if since is None:
            await self._changed.wait()
        while self.seq == since:
            await self._changed.wait()
            self._shown()
        self._shown()

    async def reached(self, seq: int) -> None:
        """Wait until the mirror shows a commit, such as the `seq` of an own answer (causal token).
        A commit without effect on the mirror is noticed within 15 seconds.

        :raises StoreError: the mirror has ended
        """
        while self.seq < seq:
            await self.changed()
        self._shown()

    # --- how it is kept in step -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._work is not None:
            raise RuntimeError("a mirror can be entered only once")
        await self._copy(None)
        self._work = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._work is not None
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        if self._failure is None:
            self._failure = Closed("the mirror is closed")
        self._emit_event()

    async def _keep(self) -> None:
        try:
            while True:
                try:
                    await self._follow()
                except _COPIED_ANEW as error:
                    await self._copy(error)
        except Exception as error:
            self._failure = error
            self._emit_event()

    async def _follow(self) -> None:
        async with self._db.watch(self._table, self._position, where=self._where) as watch:
            watch.on_move = self._move
            watch.patient = True  # the table was just read: wait for an outage to end
            async for commit in watch.commits():
                self._apply(commit)

    async def _copy(self, why: StoreError | None) -> None:
        """Read the table whole. If it was read before, wait for a node that is away."""
        pause = Pause()
        while True:
            try:
                position, rows = await self._read()
                break
            except Unknown as error:
                if "moment" not in error.detail:
                    raise
                # The snapshot has ended: the node restarted, or a grant changed.
            except StoreError as error:
                if why is None or not is_outage(error):
                    raise
            await pause.rest()
        with self.lock:
            self._rows, self._position = rows, position
        self._emit_event()
        if self._on_copy is not None:
            told = Copied(position.seq, len(rows), why)
            asyncio.get_running_loop().call_soon(self._on_copy, told)

    async def _read(self) -> tuple[Position, dict[RecordId, dict[str, Any]]]:
        rows: dict[RecordId, dict[str, Any]] = {}
        async with self._db.moment() as then:
            async for row in then.rows(self._select, page=self._page):
                rows[row["id"]] = row
            return then.position, rows

    def _move(self, position: Position) -> None:
        """Advance the position: no commit up to there changed the table."""
        self._position = position
        self._emit_event()

    def _apply(self, commit: Commit) -> None:
        with self.lock:
            for change in commit.changes:
                if change.value is None:
                    self._rows.pop(change.id, None)
                else:
                    self._rows[change.id] = change.value
            self._position = commit.position
        self._emit_event()

    def _emit_event(self) -> None:
        self._changed.set()
        self._changed.clear()
