"""Thread that writes the file CLUSTER (`storage/files/cluster_file.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from actors.runtime import Runtime, ThreadActor, handles
from protocol.errors import DiskFull
from protocol.requests import Request
from storage.files.cluster_file import ClusterState, save
from storage.files.directory import StoreDirectory
from storage.files.disk_reserve import NO_ROOM
from storage.files.joining_file import CopySource, request_copy


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
