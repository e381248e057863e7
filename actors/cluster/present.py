"""What a node has to show for a read that is to be of the present.

| it is | what it does |
|---|---|
| alone, founding | nothing: nobody else releases anything |
| leading | asks all of the set whether it still does (`rounds.py`) |
| following | asks who leads, which does that and says what it has released |
| following, its link just lost | waits until it is attached again, and asks then |
| waiting | refuses: nobody can say |

A link ends where a policy comes into force, where another takes the lead, where a packet is lost:
the next one is there in a moment, and who asked would have nothing to do but to ask again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from actors.cluster.follow_task import FollowTask
from actors.cluster.leadership import Leadership
from actors.cluster.member import Life, Member
from actors.commits import Committer
from protocol.doors import Clock
from protocol.errors import Busy

SILENT_SECONDS: Final = 3.0
"""Who follows and has not heard of who leads for so long refuses: another node may know more."""
LOOK_SECONDS: Final = 0.02
"""How often it is looked whether it is attached again, as long as anybody waits for that."""


class PresentReads:
    """On the loop only."""

    def __init__(self, clock: Clock, member: Member, committer: Committer) -> None:
        self._clock = clock
        self._member = member
        self._committer = committer
        self._attaching: asyncio.Task[None] | None = None
        """Looks whether it is attached again, for all who wait for that."""

    def ask(self) -> int | asyncio.Future[int]:
        """A sequence, now or in a while: who shows that shows all that was released anywhere when
        this was called.

        :raises Busy: nobody leads, or is attached to, that this node knows of; also what the future
            is refused with where that comes out later
        """
        member = self._member
        if member.life is Life.LEADING and member.leadership is not None:
            return asyncio.ensure_future(_of_leader(member.leadership, self._committer))
        if self._followed is not None:
            return asyncio.ensure_future(self._of_followed())
        if member.life is Life.WAITING:
            raise Busy(f"nobody can say what is current: {member.why}")
        return self._committer.released_upto

    async def _of_followed(self) -> int:
        while (follow_task := self._followed) is not None:
            try:
                return await follow_task.ask_present()
            except Busy:
                if not self._is_soon_attached:
                    raise
            await self._attached_again()
        found = self.ask()  # it leads by now, or knows of nobody
        return found if isinstance(found, int) else await found

    @property
    def _followed(self) -> FollowTask | None:
        return self._member.follow_task if self._member.life is Life.FOLLOWING else None

    @property
    def _is_soon_attached(self) -> bool:
        follow_task = self._member.follow_task
        if follow_task is None or self._member.is_stranded:
            return False
        return follow_task.silent_us(self._clock.monotonic_us()) < SILENT_SECONDS * 1_000_000

    async def _attached_again(self) -> None:
        """Returns once it is, or once that is not to be waited for."""
        if self._attaching is None or self._attaching.done():
            self._attaching = asyncio.create_task(self._look())
        await asyncio.shield(self._attaching)

    async def _look(self) -> None:
        follow_task = self._member.follow_task
        while self._is_soon_attached and follow_task is not None and not follow_task.is_attached:
            await asyncio.sleep(LOOK_SECONDS)
            follow_task = self._member.follow_task


async def _of_leader(leadership: Leadership, committer: Committer) -> int:
    await leadership.rounds.begin()
    own = leadership.own
    if own is None:
        raise Busy("this node has just taken the lead: it does not know yet what was released")
    # Rule 7: what was released before it led it knows once its own first frame is.
    return max(own, committer.released_upto)
