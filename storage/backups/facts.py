"""What a backup file says of itself: whose it is, of when, of what place; and where it ends.

Facts are the first chunk of a container, so that of a sealed file nobody reads them without its
key; the end is the last chunk.

What is read is held to what a store writes, bounds and forms as they stand here: people and
programs are shown it, and a directory is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct

from protocol.text import NAME
from storage.backups.forms import Form
from storage.histories import Count, Standing, TimeUs

Name = Annotated[str, Meta(pattern=f"^{NAME.pattern}")]
Version = Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+_-]{1,64}\Z")]
StoreId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
Date = Annotated[str, Meta(pattern=r"^[0-9T:.Z+-]{10,40}\Z")]


class Place(Struct, frozen=True):
    """A part of a store."""

    namespace: Name
    database: Name | None = None
    """None: all databases of the namespace."""

    def __str__(self) -> str:
        return self.namespace if self.database is None else f"{self.namespace}.{self.database}"


class SnapshotFacts(Struct, frozen=True):
    """What a snapshot says of itself."""

    version: Version
    """Of the node that wrote it."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """When that store was made, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the snapshot was taken, microseconds since 1970."""
    at: Standing
    """The last commit that is in it."""
    place: Place | None = None
    """None: the whole store."""
    form: Literal["snapshot"] = "snapshot"


class LogFacts(Struct, frozen=True):
    """What a log backup says of itself."""

    version: Version
    """Of the node that wrote it."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """When that store was made, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the backup was taken, microseconds since 1970."""
    before: Standing
    """The frame before the first one here."""
    last: Count
    """Sequence of the last frame; `before.sequence` when there is none."""
    form: Literal["log"] = "log"

    @property
    def first(self) -> int:
        """Sequence of the first frame."""
        return self.before.sequence + 1


class ScriptFacts(Struct, frozen=True):
    """What a sealed script says of itself, beside its text, which says the same for people."""

    version: Version
    """Of the node that wrote it."""
    store: StoreId
    """Id of the store, a UUID."""
    created: Date
    """When that store was made, as ISO 8601."""
    taken_us: TimeUs
    """Wall clock when the script was written, microseconds since 1970."""
    sequence: Count
    """The last commit that is in it."""
    form: Literal["script"] = "script"


class StateFacts(Struct, frozen=True):
    """What the image of a sealed state says of itself. It is no backup: its pairs say the rest."""

    version: Version
    """Of the node that wrote it."""
    applied: Count
    """The sequence that the state stands at."""
    form: Literal["state"] = "state"


class End(Struct, frozen=True):
    """The last chunk: with it the file is whole."""

    items: int
    """Pairs of a snapshot, frames of a log, bytes of a script."""
    records: int
    """Records of tables in a snapshot; of a log, frames; of a script, none."""
    sequence: int
    """The last commit in the file."""
    size: int
    """Bytes of the file before this chunk."""
    sha256: bytes
    """Of those bytes."""
    stream: bytes
    """blake2b, 32 bytes, of the stream: of a snapshot the hash of its state (`state_hash.py`)."""


@dataclass(frozen=True, slots=True)
class Written:
    """A backup that has been written to its end."""

    form: Form
    records: int
    """As `End.records`."""
    sequence: int
    """As `End.sequence`."""
    size: int
    """Bytes of the whole file."""
    sha256: bytes
    """Of all of them."""
    version: str
    """Of the node that wrote it."""
