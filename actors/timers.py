"""What a node does by itself, without being asked: it is for who leads the store alone. Others hear
of it as of all that is committed."""

from __future__ import annotations

from actors.indexes import Indexes
from actors.restores import Unfinished
from actors.spaces import Spaces
from actors.topics import Topics
from actors.vaults import Vaults


class Timers:
    """On the loop only.

    :param unfinished: None: what a script has left is not this node's to drop
    """

    def __init__(
        self,
        spaces: Spaces,
        topics: Topics,
        indexes: Indexes,
        vaults: Vaults,
        unfinished: Unfinished | None,
    ) -> None:
        self._spaces = spaces
        self._topics = topics
        self._indexes = indexes
        self._vaults = vaults
        self._unfinished = unfinished

    async def leads(self, leads: bool) -> None:
        """This node leads the store from now on, or does no more, which ends its timers by itself
        (`Committer.on_following`)."""
        if not leads:
            return
        await self._spaces.begin()
        self._indexes.wake()
        self._vaults.wake()
        if self._unfinished is not None:
            await self._unfinished.begin()
        await self._topics.begin()
