"""Timers: background work of the leader, such as expiry. Followers receive its commits."""

from __future__ import annotations

from actors.indexes.service import IndexBuilderHandle
from actors.restores import UnfinishedRestores
from actors.spaces import SpaceService
from actors.topics.service import TopicService
from actors.vaults.service import VaultService


class Timers:
    """Background work of the leader. On the loop only.

    :param unfinished: None: this node does not drop incomplete restores
    """

    def __init__(
        self,
        spaces: SpaceService,
        topics: TopicService,
        indexes: IndexBuilderHandle,
        vaults: VaultService,
        unfinished: UnfinishedRestores | None,
    ) -> None:
        self._spaces = spaces
        self._topics = topics
        self._indexes = indexes
        self._vaults = vaults
        self._unfinished = unfinished

    async def leads(self, leads: bool) -> None:
        """Start the background work when this node becomes the leader.

        :param leads: False: it leads no more. The work then stops by itself
            (`Committer.on_lead_lost`)
        """
        if not leads:
            return
        await self._spaces.start_leading()
        self._indexes.wake()
        self._vaults.wake()
        if self._unfinished is not None:
            await self._unfinished.load()
        await self._topics.start_leading()
