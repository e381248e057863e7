"""The actor behind the file CLUSTER (`storage/cluster_file.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from actors.runtime import Runtime, ThreadActor, handles
from protocol.errors import DiskFull
from protocol.requests import Request
from storage.cluster_file import Cluster, save
from storage.directory import StoreDirectory
from storage.reserve import NO_ROOM


@dataclass(frozen=True, slots=True)
class SaveCluster(Request[None]):
    """Make this what the next start finds; answered when it is durable."""

    cluster: Cluster


class ClusterFileActor(ThreadActor):
    """Waits for the disk while the file is replaced."""

    def __init__(self, runtime: Runtime, directory: StoreDirectory) -> None:
        super().__init__(runtime)
        self._directory = directory

    @handles(SaveCluster)
    def save(self, message: SaveCluster) -> None:
        """:raises DiskFull: no room; what the file said stands
        :raises OSError: as the disk says"""
        try:
            save(self._directory, message.cluster)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise DiskFull("no room on the disk for what the node knows of its cluster") from error
