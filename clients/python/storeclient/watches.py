"""Watches: the change feed of a table. Each commit comes once, whole and in order, across
outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Protocol, Self

from storeclient.changes import (
    Action,
    Body,
    Change,
    Commit,
    Position,
    is_whole,
    read_commit,
    read_epoch,
    read_seq,
)
from storeclient.errors import (
    Diverged,
    LogPruned,
    NotAllowed,
    ProtocolBroken,
    Refused,
    SessionEnded,
    StoreError,
    TooSlow,
    Unknown,
)
from storeclient.feeds import Feed
from storeclient.outages import Pause, is_behind, is_outage

COPY_ANEW: Final = "read the table again, and watch it from the `seq` of that answer"
_THEN: Final[dict[type[Refused], str]] = {
    LogPruned: COPY_ANEW,
    Diverged: COPY_ANEW,
    Unknown: f"another table has its name now: {COPY_ANEW}",
    NotAllowed: "once READ is granted again, continue from `position`",
    SessionEnded: "with a client of another token, continue from `position`",
}
"""Advice added to the errors that end a watch."""


class WatchClient(Protocol):
    """Part of the client that watches need."""

    async def _watch(self, body: dict[str, Any]) -> Feed: ...


class AsyncWatch:
    """Change feed of a table. Made by `AsyncDatabase.watch`; nothing is sent before its first
    iteration.

    Iterating yields the changes of the table one by one, without end; `commits` yields the same by
    commit. The watch resumes by itself after a broken connection, when a node is back or no longer
    busy, and after it fell behind. No change is skipped, none comes twice.

    Permanent errors are raised, with advice. `errors.LogPruned` and `errors.Diverged`: the log no
    longer has the commits after `position`, or has another history. `errors.Unknown`: the table was
    dropped. `errors.NotAllowed`; `errors.SessionEnded` of a client with a token; invalid arguments.
    Also if no node can be reached at the first attempt.
    """

    def __init__(
        self,
        client: WatchClient,
        body: dict[str, Any],
        start: int | Position | None,
    ) -> None:
        """:param body: body of the WATCH request, without the position"""
        self._client = client
        self._body = body
        self._position = Position(start) if isinstance(start, int) else start
        self.patient = False
        """True if a node that is away is waited for: once the feed has begun for the first time."""
        self._stopping: asyncio.Future[None] | None = None
        self._stopped = False
        self._following: _Following | None = None
        """The current iteration; there is one at a time."""
        self.on_move: Callable[[Position], None] | None = None
        """Called when `position` advances without a commit: up to there nothing changed."""

    def __repr__(self) -> str:
        at = "not begun" if self._position is None else f"at {self._position.seq}"
        return f"<{type(self).__name__} of {self._body['table']}, {at}>"

    @property
    def position(self) -> Position | None:
        """Cursor of the reader: a watch started from it misses nothing. None: not begun, and no
        start given.

        It advances past a commit only when the reader asks for the next one. So a reader that is
        killed while it processes a commit gets that commit again (at-least-once).
        """
        return self._position

    def __aiter__(self) -> AsyncIterator[Change]:
        return self._changes()

    async def _changes(self) -> AsyncGenerator[Change, None]:
        async with aclosing(self.commits()) as commits:
            async for commit in commits:
                for change in commit.changes:
                    yield change

    async def commits(self) -> AsyncGenerator[Commit, None]:
        """Yield the commits that change the table, each whole, without end."""
        if self._following is not None:
            self._following.leave()  # an abandoned iteration that is not collected yet
        following = self._following = _Following(self)
        try:
            while (commit := await following.next()) is not None:
                yield commit
                self._position = following.at
        finally:
            following.leave()

    def _moved(self, position: Position | None) -> None:
        self._position = position
        if self.on_move is not None and position is not None:
            self.on_move(position)

    async def stop(self) -> None:
        """End the iteration after the commit in progress. Stopping twice is fine."""
        self._stopped = True
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)
        if self._following is not None:
            self._following.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


class _Following:
    """An iteration of a watch, with its feed, which is reopened whenever it ends.

    :ivar at: position of the last received message
    """

    def __init__(self, watch: AsyncWatch) -> None:
        self._watch = watch
        self.at = watch._position
        self._feed: Feed | None = None
        self._opened: Body = {}
        """The feed's opening message."""
        self._parts: list[Body] = []
        self._pause = Pause()
        self._over = False
        self._heard = True
        """True if the feed sent anything since it was opened. A feed that ends at once is reopened
        only after a pause."""

    async def next(self) -> Commit | None:
        """Return the next commit, or None if the watch was stopped."""
        watch = self._watch
        if watch._stopping is None:
            watch._stopping = asyncio.get_running_loop().create_future()
        while not (self._over or watch._stopped):
            try:
                if self._feed is None:
                    await self._unless_stopped(self._open())
                    continue
                body = await self._feed.next()
            except StoreError as error:
                await self._lost(error)
                continue
            if body is None:
                self._left()
            elif (commit := self._take(body)) is not None:
                return commit
        return None

    def leave(self) -> None:
        """End the iteration and its feed."""
        self._over = True
        if self._feed is not None:
            self._feed.close()

    async def _open(self) -> None:
        watch, at = self._watch, self.at
        body = dict(watch._body)
        if at is not None:
            given = {"from": at.seq, "store": at.store, "epoch": at.epoch}
            body |= {name: one for name, one in given.items() if one is not None}
        if not self._heard:
            await self._pause.rest(watch._stopping)
        self._heard = False
        feed = await watch._client._watch(body)
        opened = await feed.next()
        self._feed = feed
        try:
            if (
                opened is None
                or opened.get("type") != "open"
                or type(opened.get("start")) is not int
            ):
                raise ProtocolBroken("the node sent an invalid start of a feed")
            read_seq(opened)
            read_epoch(opened)
        except ProtocolBroken:
            feed.close()
            raise
        self._opened = opened
        watch.patient = True
        self.at = self._position(opened["start"], read_epoch(opened, "start_epoch"))
        watch._moved(self.at)

    async def _lost(self, error: StoreError) -> None:
        """Handle the end of the feed, or a failure to open it. :raises StoreError: a permanent
        error"""
        begun = self._feed is not None
        self._left()
        passes = isinstance(error, Refused) and (error.retry or is_behind(error))
        known = self._watch.patient or passes
        if begun and isinstance(error, TooSlow | SessionEnded):
            return  # reopened; a failing sign-in is raised then
        if not (known and is_outage(error)):
            raise _told_what_to_do(error, self._watch.patient)
        if not begun:
            await self._pause.rest(self._watch._stopping)
            self._heard = True

    def _left(self) -> None:
        self._feed = None
        self._parts.clear()  # of an incomplete commit, which is sent again

    def _take(self, body: Body) -> Commit | None:
        at = self._position(read_seq(body), read_epoch(body))
        self._heard = True
        self._pause.over()
        if body.get("type") != "commit":
            # "caught_up" or "beat": the reader asked for more, so it has processed all before.
            self.at = at
            self._watch._moved(at)
            return None
        self._parts.append(body)
        if not is_whole(body):
            return None
        commit = read_commit(self._parts, at)
        self._parts = []
        self.at = at
        return commit

    def _position(self, seq: int, epoch: int | None) -> Position:
        """Return the position of a message of the feed.

        :param epoch: None: the node is of a version that does not send it
        """
        before, opened = self.at, self._opened
        if epoch is None and before is not None and before.seq == seq:
            epoch = before.epoch
        if epoch is None and (
            seq == opened["seq"]
            or (before is not None and before.epoch == opened["epoch"] and seq <= opened["seq"])
        ):
            # Only up to the newest commit at the opening: the epoch of later ones is unknown,
            # since another leader may have written them.
            epoch = opened["epoch"]
        return Position(seq, opened["store"], epoch)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, but cancel it when the watch is stopped."""
        stopping = self._watch._stopping
        assert stopping is not None
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()


def _told_what_to_do(error: StoreError, known: bool) -> StoreError:
    """Return the error with advice in its message. :param known: True if the watch had begun"""
    then = next((text for kind, text in _THEN.items() if isinstance(error, kind)), None)
    late = isinstance(error, LogPruned | Diverged)
    if then is not None and (known or late or "created" in getattr(error, "detail", ())):
        said = str(error.args[0]).removesuffix(": copy anew").removesuffix(": sign in again")
        error.args = (f"{said}: {then}",)
    return error


def asked(
    ns: str,
    db: str,
    table: str,
    actions: Collection[Action] | None,
    before: bool,
    where: str | None,
) -> dict[str, Any]:
    """Return the body of a WATCH request, without the position."""
    body: dict[str, Any] = {"ns": ns, "db": db, "table": table}
    if actions is not None:
        body["actions"] = list(actions)
    if before:
        body["before"] = True
    if where is not None:
        body["where"] = where
    return body
