"""Durable cluster memory of this node: the file CLUSTER and its present content.

Cluster rule 5 (`actors/cluster/__init__.py`): a promised epoch is on the disk before a follower
sends its history, and before a leader writes its first frame. So a change counts here once the file
is replaced, not before. A thread writes it (`storage/files/cluster_file.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from actors.runtime import Runtime, ThreadActor, handles
from protocol.agreement import AgreedState, InSyncReplicas, LeaderEntry
from protocol.errors import DiskFull
from protocol.requests import Request
from storage.files.cluster_file import ClusterState, save
from storage.files.directory import StoreDirectory
from storage.files.disk_reserve import NO_ROOM
from storage.files.joining_file import CopySource, request_copy

# --- the thread that writes it --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SaveCluster(Request[None]):
    """Write the cluster state for the next start; answered when it is durable."""

    cluster: ClusterState


@dataclass(frozen=True, slots=True)
class CopyAnew(Request[None]):
    """Have the next start fetch a snapshot copy; answered when that is durable.

    Sent only by a node outside the ISR: from then on its directory counts as no store.
    """

    node: str
    """Id of this node."""
    sources: Sequence[CopySource]
    """Nodes to copy from, at least one."""


class ClusterFileActor(ThreadActor):
    """Replaces the file and waits for the disk."""

    def __init__(self, runtime: Runtime, directory: StoreDirectory) -> None:
        super().__init__(runtime)
        self._directory = directory

    @handles(SaveCluster)
    def save(self, message: SaveCluster) -> None:
        """Replace the file.

        :raises DiskFull: no room; the file is unchanged
        :raises OSError: the disk failed
        """
        try:
            save(self._directory, message.cluster)
        except OSError as error:
            # A full disk may pass, and leaves the old file: the node goes on with it.
            if error.errno not in NO_ROOM:
                raise
            raise DiskFull("no room on the disk for the cluster file of the node") from error

    @handles(CopyAnew)
    def copy_anew(self, message: CopyAnew) -> None:
        """Mark the directory for a new copy.

        :raises DiskFull: no room; the directory still holds a store
        :raises OSError: the disk failed
        """
        try:
            request_copy(self._directory, UUID(message.node), message.sources)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise DiskFull("no room on the disk to mark the store for a new copy") from error


# --- the state ------------------------------------------------------------------------------------


Save = Callable[[ClusterState], Awaitable[None]]
"""Replaces the file; it is durable on return. :raises DiskFull, OSError:"""


class DurableState:
    """On the loop only.

    :param cluster: content of the file; None: there is none, as the node is in no cluster
    """

    def __init__(self, save: Save, cluster: ClusterState | None) -> None:
        self._save = save
        self._stands = cluster
        self._revision = 0 if cluster is None else cluster.revision
        self._heard: tuple[LeaderEntry | None, InSyncReplicas | None] = None, None
        """Lead and ISR as last written."""
        self._saving = asyncio.Lock()

    @property
    def stored(self) -> ClusterState | None:
        """State on the disk; None: the node is in no cluster."""
        return self._stands

    @property
    def now(self) -> ClusterState:
        """State on the disk, with the newest revision seen, which may not be written yet."""
        stands = self._stands or ClusterState()
        return stands._replace(revision=max(stands.revision, self._revision))

    @property
    def promised(self) -> int:
        """Highest promised epoch: older leaders are ignored."""
        return self.now.promised

    async def promise(self, epoch: int) -> None:
        """Promise to ignore leaders of older epochs; durable on return.

        :raises DiskFull, OSError: nothing was promised
        """
        async with self._saving:
            # Inside the lock: a concurrent save may have promised a later epoch.
            if epoch > self.promised:
                await self._keep(self.now._replace(promised=epoch))

    def note_revision(self, agreed: AgreedState) -> None:
        """Note a revision in memory, to detect a later set-back of etcd."""
        self._revision = max(self._revision, agreed.revision)

    async def remember_agreed(self, agreed: AgreedState) -> None:
        """Remember the state in etcd. It is written only if lead, ISR or cluster id has changed:
        other clients of the same etcd advance the revision too.

        :raises DiskFull, OSError:
        """
        async with self._saving:
            self.note_revision(agreed)
            heard = agreed.lead, agreed.insync
            if heard != self._heard or self.now.agreement != agreed.cluster:
                await self._keep(self.now._replace(agreement=agreed.cluster))
                # After the save: if the disk is full, the next answer is written instead.
                self._heard = heard

    async def join(self, cluster: ClusterState) -> None:
        """Join a cluster. :raises DiskFull, OSError:"""
        async with self._saving:
            await self._keep(cluster)

    async def founded(self, agreed: AgreedState) -> None:
        """Note that the ISR of this founder is in etcd. :raises DiskFull, OSError:"""
        async with self._saving:
            self.note_revision(agreed)
            founding = self.now.founding
            if founding is not None:
                founding = founding._replace(members=frozenset())
            await self._keep(self.now._replace(agreement=agreed.cluster, founding=founding))

    async def shows(self, upto: int) -> None:
        """Forget the founding policy once this node shows the commit that holds it.

        :raises DiskFull, OSError:
        """
        founding = self.now.founding
        if founding is not None and not founding.members and founding.sequence <= upto:
            async with self._saving:
                await self._keep(self.now._replace(founding=None))

    async def doubts(self) -> None:
        """Note that etcd was set back. :raises DiskFull, OSError:"""
        async with self._saving:
            if not self.now.doubts:
                await self._keep(self.now._replace(doubts=True))

    async def adopt(self, agreed: AgreedState) -> None:
        """Accept the state in etcd as the reference, after an operator has named a leader.

        :raises DiskFull, OSError:
        """
        async with self._saving:
            stands = (self._stands or ClusterState())._replace(
                agreement=agreed.cluster, revision=agreed.revision, founding=None, doubts=False
            )
            await self._keep(stands)
            # Not before the save: if the disk is full, the order must still count as newer than
            # everything seen.
            self._revision = agreed.revision

    async def _keep(self, cluster: ClusterState) -> None:
        """Write the file. A cancellation is delayed until it is written, so that the memory equals
        the file."""
        saving = asyncio.ensure_future(self._save_and_adopt(cluster))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            await asyncio.wait([saving])
            saving.exception()  # retrieved: a full disk fails the save, and the caller is gone
            raise

    async def _save_and_adopt(self, cluster: ClusterState) -> None:
        await self._save(cluster)
        # Memory follows the disk: no decision rests on a promise that a crash would undo.
        self._stands = cluster
