"""Facts: metadata in a backup file. Its store, version, time and place, and the END chunk.

Facts are the first chunk of a container, so they are unreadable without the key of a sealed file.
The end is the last chunk.

Decoding enforces the bounds and patterns of this module: users and programs are shown these values,
and a data directory is built from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct

from protocol.text import NAME
from storage.formats.backup_forms import BackupFileForm
from storage.formats.positions import Count, LogPosition, TimeUs

Name = Annotated[str, Meta(pattern=f"^{NAME.pattern}")]
Version = Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+_-]{1,64}\Z")]
StoreId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
Date = Annotated[str, Meta(pattern=r"^[0-9T:.Z+-]{10,40}\Z")]


class BackupScope(Struct, frozen=True):
    """A part of a store: one namespace or one database."""

    namespace: Name
    database: Name | None = None
    """None: all databases of the namespace."""

    def __str__(self) -> str:
        return self.namespace if self.database is None else f"{self.namespace}.{self.database}"


class SnapshotFacts(Struct, frozen=True):
    """Metadata of a snapshot."""

    version: Version
    """Version of the node that wrote the file."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """Creation time of that store, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the snapshot was taken, microseconds since 1970."""
    at: LogPosition
    """Last commit in the snapshot."""
    place: BackupScope | None = None
    """None: the whole store."""
    form: Literal["snapshot"] = "snapshot"


class LogFacts(Struct, frozen=True):
    """Metadata of a log backup."""

    version: Version
    """Version of the node that wrote the file."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """Creation time of that store, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the backup was taken, microseconds since 1970."""
    before: LogPosition
    """Position of the frame before the first one in this file."""
    last: Count
    """Sequence of the last frame; `before.sequence` when there is none."""
    form: Literal["log"] = "log"

    @property
    def first(self) -> int:
        """Sequence of the first frame."""
        return self.before.sequence + 1


class ScriptFacts(Struct, frozen=True):
    """Metadata of a sealed script. Its text repeats it for human readers."""

    version: Version
    """Version of the node that wrote the file."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """Creation time of that store, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the script was written, microseconds since 1970."""
    sequence: Count
    """Sequence of the last commit in the script."""
    form: Literal["script"] = "script"


class StateFacts(Struct, frozen=True):
    """Metadata of a sealed state image. The image is no backup; the rest is in its pairs."""

    version: Version
    """Version of the node that wrote the file."""
    applied: Count
    """Sequence that the state has applied."""
    form: Literal["state"] = "state"


class EndChunk(Struct, frozen=True):
    """Content of the END chunk, which marks the file as complete."""

    items: int
    """Pairs of a snapshot, frames of a log, bytes of a script."""
    records: int
    """Records of tables in a snapshot; of a log, frames; of a script, none."""
    sequence: int
    """Sequence of the last commit in the file."""
    size: int
    """Bytes of the file before this chunk."""
    sha256: bytes
    """SHA-256 of those bytes."""
    stream: bytes
    """blake2b digest (32 bytes) of the stream. For a snapshot it is the state hash
    (`state_hash.py`)."""


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """Summary of a completely written backup."""

    form: BackupFileForm
    records: int
    """Records or frames, see `EndChunk.records`."""
    sequence: int
    """Sequence of the last commit in the file."""
    size: int
    """Bytes of the whole file."""
    sha256: bytes
    """SHA-256 of the whole file."""
    version: str
    """Version of the node that wrote the file."""
