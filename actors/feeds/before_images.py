"""Before images: records as they were before a change, for feeds that show them or filter by them.

A frame names the previous commit that changed a record. That commit's frame has the record's
content: in memory, if the record has changed lately, else read from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from protocol import limits
from protocol.bounded_cache import BoundedCache
from protocol.values import Tick
from storage.formats.frames import Frame
from storage.formats.keys import RECORD_PREFIX_BYTES
from storage.records.commit_changes import RecordChange, read


class Pruned(Enum):
    """Marks a before image that the log no longer has."""

    PRUNED = "pruned"


PRUNED: Final = Pruned.PRUNED

Fetch = Callable[[int], Frame | None]
"""Returns the frame of a commit, and blocks until it is there; None: the log no longer has it."""

_OVERHEAD: Final = 200
"""Memory per image beside its content, about (bytes)."""


class BeforeImages:
    """Cache of the newest before images, up to `limits.FEED_IMAGES_BYTES`."""

    def __init__(self) -> None:
        self._kept: BoundedCache[bytes] = BoundedCache(limits.FEED_IMAGES_BYTES, large_part=1)
        """By key and commit: feeds that read the log stand at other commits than feeds that have
        caught up."""
        self._frame: tuple[int, dict[bytes, bytes]] = (0, {})
        """The commit read last, and its versions of the records of one table. The before images of
        a commit with many changes mostly come from one earlier commit."""

    def note(self, change: RecordChange, sequence: int) -> None:
        """Cache the version of a record that a commit has made."""
        fields = change.fields
        if fields is not None:
            self._kept.keep((change.key, sequence), fields, _weight(change.key, fields))

    def before(self, change: RecordChange, fetch: Fetch, tick: Tick) -> bytes | Pruned | None:
        """Return a record as it was before a change; None: it did not exist."""
        if not change.previous:
            return None
        kept = self._kept.get((change.key, change.previous))
        if kept is not None:
            return kept
        prefix = change.key[:RECORD_PREFIX_BYTES]
        sequence, made = self._frame
        if sequence != change.previous or change.key not in made:
            frame = fetch(change.previous)
            if frame is None:
                return PRUNED
            found = read(frame, {prefix}, tick).changes.get(prefix, [])
            made = {one.key: one.fields for one in found if one.fields is not None}
            self._frame = change.previous, made
        return made.get(change.key)


def _weight(key: bytes, fields: bytes) -> int:
    return len(key) + len(fields) + _OVERHEAD
