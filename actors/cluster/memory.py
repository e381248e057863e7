"""What this node has to remember of its cluster: the file CLUSTER, and what stands in it now.

Rule 5: a promise is on the disk before a follower tells its history and before a leader writes its
first frame. So it counts here from when the file is replaced, and not a moment sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from protocol.agreement import Agreed, InSync, Lead
from storage.cluster_file import Cluster

Save = Callable[[Cluster], Awaitable[None]]
"""Replaces the file; durable when it is done. :raises DiskFull, OSError:"""


class Memory:
    """On the loop only.

    :param cluster: what the file says; None: there is none, for the node is in no cluster
    """

    def __init__(self, save: Save, cluster: Cluster | None) -> None:
        self._save = save
        self._stands = cluster
        self._revision = 0 if cluster is None else cluster.revision
        self._heard: tuple[Lead | None, InSync | None] = None, None
        """What was agreed when it was last written down."""
        self._saving = asyncio.Lock()

    @property
    def stands(self) -> Cluster | None:
        """What is on the disk; None: the node is in no cluster."""
        return self._stands

    @property
    def now(self) -> Cluster:
        """The same with what was heard since, that nothing was made of."""
        stands = self._stands or Cluster()
        return stands._replace(revision=max(stands.revision, self._revision))

    @property
    def promised(self) -> int:
        """The highest epoch that was promised: nobody of an older one is listened to."""
        return self.now.promised

    async def promise(self, epoch: int) -> None:
        """Listen to nobody of an older epoch; on the disk when this returns.

        :raises DiskFull, OSError: it is not promised then
        """
        async with self._saving:
            if epoch > self.promised:
                await self._keep(self.now._replace(promised=epoch))

    def sees(self, agreed: Agreed) -> None:
        """Hold what is agreed later against this, as long as this node runs."""
        self._revision = max(self._revision, agreed.revision)

    async def hears(self, agreed: Agreed) -> None:
        """Remember what is agreed. The revision grows with everything that anybody writes into the
        same etcd; it is written down when something of this store has changed.

        :raises DiskFull, OSError:
        """
        async with self._saving:
            self.sees(agreed)
            heard = agreed.lead, agreed.insync
            if heard != self._heard or self.now.agreement != agreed.cluster:
                await self._keep(self.now._replace(agreement=agreed.cluster))
                self._heard = heard

    async def begin(self, cluster: Cluster) -> None:
        """From now on the node is in a cluster. :raises DiskFull, OSError:"""
        async with self._saving:
            await self._keep(cluster)

    async def founded(self, agreed: Agreed) -> None:
        """The set that this node was to found is there. :raises DiskFull, OSError:"""
        async with self._saving:
            self.sees(agreed)
            founding = self.now.founding
            if founding is not None:
                founding = founding._replace(members=frozenset())
            await self._keep(self.now._replace(agreement=agreed.cluster, founding=founding))

    async def shows(self, upto: int) -> None:
        """The node shows so much: a policy that stands there need not be remembered beside it.

        :raises DiskFull, OSError:
        """
        founding = self.now.founding
        if founding is not None and not founding.members and founding.sequence <= upto:
            async with self._saving:
                await self._keep(self.now._replace(founding=None))

    async def doubts(self) -> None:
        """The agreement was set back. :raises DiskFull, OSError:"""
        async with self._saving:
            if not self.now.doubts:
                await self._keep(self.now._replace(doubts=True))

    async def goes_by(self, agreed: Agreed) -> None:
        """An operator has named who leads: what was heard before is gone by.

        :raises DiskFull, OSError:
        """
        async with self._saving:
            stands = (self._stands or Cluster())._replace(
                agreement=agreed.cluster, revision=agreed.revision, founding=None, doubts=False
            )
            await self._keep(stands)
            # Not before: on a full disk the order would be one of before all that was heard.
            self._revision = agreed.revision

    async def _keep(self, cluster: Cluster) -> None:
        """Write it down. Who is cancelled meanwhile is so once it is written: what this node goes
        by is what the file says."""
        saving = asyncio.ensure_future(self._save_and_go_by(cluster))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            await asyncio.wait([saving])
            saving.exception()  # on a full disk nothing was promised, and nobody asks any more
            raise

    async def _save_and_go_by(self, cluster: Cluster) -> None:
        await self._save(cluster)
        self._stands = cluster
