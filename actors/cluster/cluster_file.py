"""The actor behind the file CLUSTER (`storage/cluster_file.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from actors.runtime import Runtime, ThreadActor, handles
from protocol.errors import DiskFull
from protocol.requests import Request
from storage.cluster_file import Cluster, save
from storage.directory import StoreDirectory
from storage.joining import Source, note_anew
from storage.reserve import NO_ROOM


@dataclass(frozen=True, slots=True)
class SaveCluster(Request[None]):
    """Make this what the next start finds; answered when it is durable."""

    cluster: Cluster


@dataclass(frozen=True, slots=True)
class CopyAnew(Request[None]):
    """Have the next start copy the store anew; answered when that is durable. Only who is out of
    the set says so: from then on what the directory holds is no store any more."""

    node: str
    """The id of this node."""
    sources: Sequence[Source]
    """Whom it may be copied from; one at least."""


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

    @handles(CopyAnew)
    def copy_anew(self, message: CopyAnew) -> None:
        """:raises DiskFull: no room; the store is one still
        :raises OSError: as the disk says"""
        try:
            note_anew(self._directory, UUID(message.node), message.sources)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise DiskFull("no room on the disk to note that the store is copied anew") from error
