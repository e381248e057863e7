"""Pending feeds: requested to begin after a commit that the node does not show yet."""

from __future__ import annotations

import asyncio

from actors.commits.committer import Committer
from actors.execution.blocking import FutureWait
from actors.execution.registry import ENDED, Registry
from actors.execution.request import RequestOrigin, described
from actors.feeds.request import OpenFeed
from protocol import limits
from protocol.errors import Refusal, SessionEnded, StatementTimeout
from protocol.requests import Caller
from protocol.values import Value


async def arrived(asked: OpenFeed, upto: int, committer: Committer, registry: Registry) -> None:
    """Wait until the node shows a sequence. Meanwhile the feed is listed in INFO FOR RUNNING, ends
    with its session, and can be killed.

    :raises StatementTimeout: the sequence is not shown in time
    :raises Busy: the limit of waiting requests is reached
    :raises Refusal: it was ended meanwhile
    """
    if upto <= committer.commit_index:
        return
    one = _PendingStart(asked, committer.monotonic_us())
    registry.begin_waiting(one)
    wait = one.wait
    committer.block_until_shown(wait, upto)
    committer.deadlines.set(wait, one.ends_us)
    try:
        await wait.future
    except TimeoutError:
        shown = committer.commit_index
        raise StatementTimeout(
            f"the node shows {shown}, but not {upto} yet: the feed was not started",
            after=upto,
            seq=shown,
        ) from None
    finally:
        committer.deadlines.clear(wait)
        wait.cancel()
        registry.end_waiting(one)


class _PendingStart:
    """A feed that waits for its start."""

    def __init__(self, asked: OpenFeed, began_us: int) -> None:
        self._asked = asked
        self.caller: Caller = asked.caller
        self.began_us = began_us
        self.ends_us = began_us + limits.AFTER_SECONDS * 1_000_000
        self.wait = FutureWait(asyncio.get_running_loop().create_future())

    @property
    def id(self) -> str:
        """Id of the request, for KILL."""
        return self._asked.request

    def end(self, why: Refusal) -> bool:
        """End the wait with a refusal. Return False if it is over already."""
        if self.wait.future.done():
            return False
        self.wait.resume(why)
        return True

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        """End: the feed would be for a caller who is gone."""
        self.end(SessionEnded(ENDED))

    def describe(self, now_us: int) -> dict[str, Value]:
        """Return the row of INFO FOR RUNNING."""
        asked, caller = self._asked, self.caller
        return described(
            RequestOrigin.of(self.id, caller),
            caller.user,
            (asked.namespace, asked.database),
            asked.text,
            since_us=now_us - self.began_us,
            left_us=self.ends_us - now_us,
        )
