"""Pending feeds: asked for where the node does not show yet what they are to begin after."""

from __future__ import annotations

import asyncio

from actors.commits import Committer, Origin, described
from actors.feeds.request import OpenFeed
from actors.scripts.running import Running
from protocol import limits
from protocol.errors import Refusal, StatementTimeout
from protocol.requests import Caller
from protocol.values import Value


async def arrived(asked: OpenFeed, upto: int, committer: Committer, running: Running) -> None:
    """Done once the node shows a sequence. Meanwhile it is seen, ends with its session, and can be
    killed.

    :raises StatementTimeout: it does not in time
    :raises Busy: as many wait as may
    :raises Refusal: somebody has ended it
    """
    if upto <= committer.released_upto:
        return
    one = _Arriving(asked, committer.monotonic_us())
    running.rest(one)
    arrival = committer.arrivals.expect(upto, one.wake)
    timer = committer.at(one.ends_us, one.out_of_time)
    try:
        await one.shown
    except TimeoutError:
        shown = committer.released_upto
        raise StatementTimeout(
            f"the node shows {shown}, and not {upto} yet: nothing is followed",
            after=upto,
            seq=shown,
        ) from None
    finally:
        timer.cancel()
        committer.arrivals.leave(arrival)
        running.go_on(one)


class _Arriving:
    """One of them."""

    def __init__(self, asked: OpenFeed, began_us: int) -> None:
        self._asked = asked
        self.caller: Caller = asked.caller
        self.began_us = began_us
        self.ends_us = began_us + limits.AFTER_SECONDS * 1_000_000
        self.shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def request(self) -> str:
        """Names it, as KILL does."""
        return self._asked.request

    def wake(self) -> None:
        """The node shows it."""
        if not self.shown.done():
            self.shown.set_result(None)

    def out_of_time(self) -> None:
        """It does not."""
        if not self.shown.done():
            self.shown.set_exception(TimeoutError())

    def end(self, why: Refusal) -> bool:
        """Wait no more. False: it does not anyway."""
        if self.shown.done():
            return False
        self.shown.set_exception(why)
        return True

    def info(self, now_us: int) -> dict[str, Value]:
        """What INFO FOR RUNNING says of it."""
        asked, caller = self._asked, self.caller
        return described(
            Origin.of(self.request, caller),
            caller.user,
            (asked.namespace, asked.database),
            asked.text,
            since_us=now_us - self.began_us,
            left_us=self.ends_us - now_us,
        )
