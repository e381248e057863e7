"""What a backup file says of itself: whose it is, of when, of what place; and where it ends.

Facts are the first chunk of a container, so that of a sealed file nobody reads them without its
key; the end is the last chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from storage.backups.forms import Form
from storage.histories import Standing


class Place(msgspec.Struct, frozen=True):
    """A part of a store."""

    namespace: str
    database: str | None = None
    """None: all databases of the namespace."""

    def __str__(self) -> str:
        return self.namespace if self.database is None else f"{self.namespace}.{self.database}"


class SnapshotFacts(msgspec.Struct, frozen=True):
    """What a snapshot says of itself."""

    version: str
    """Of the node that wrote it."""
    store: str
    """Id of the store, a UUID."""
    created: str
    """When that store was made, as ISO 8601."""
    taken_us: int
    """Wall clock when the snapshot was taken, microseconds since 1970."""
    at: Standing
    """The last commit that is in it."""
    place: Place | None = None
    """None: the whole store."""
    form: str = Form.SNAPSHOT.value


class LogFacts(msgspec.Struct, frozen=True):
    """What a log backup says of itself."""

    version: str
    """Of the node that wrote it."""
    store: str
    """Id of the store, a UUID."""
    created: str
    """When that store was made, as ISO 8601."""
    taken_us: int
    """Wall clock when the backup was taken, microseconds since 1970."""
    before: Standing
    """The frame before the first one here."""
    last: int
    """Sequence of the last frame; `before.sequence` when there is none."""
    form: str = Form.LOG.value

    @property
    def first(self) -> int:
        """Sequence of the first frame."""
        return self.before.sequence + 1


class ScriptFacts(msgspec.Struct, frozen=True):
    """What a sealed script says of itself, beside its text, which says the same for people."""

    version: str
    """Of the node that wrote it."""
    store: str
    """Id of the store, a UUID."""
    created: str
    """When that store was made, as ISO 8601."""
    taken_us: int
    """Wall clock when the script was written, microseconds since 1970."""
    sequence: int
    """The last commit that is in it."""
    form: str = Form.SCRIPT.value


class StateFacts(msgspec.Struct, frozen=True):
    """What the image of a sealed state says of itself. It is no backup: its pairs say the rest."""

    version: str
    """Of the node that wrote it."""
    applied: int
    """The sequence that the state stands at."""
    form: str = Form.STATE.value


class End(msgspec.Struct, frozen=True):
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
