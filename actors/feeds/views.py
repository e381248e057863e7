"""Views: the output of a feed for a commit, filtered and encoded in the form of its surface.

Feeds with equal parameters share a view, so that their output is made once.

A filter is evaluated on the before image and on the new record. A record that begins to pass comes
as `create`, one that no longer passes as `delete`. So a reader's copy of the filtered table stays
correct.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from actors.feeds.before_images import PRUNED, BeforeImages, Fetch, Pruned
from actors.feeds.request import (
    Action,
    CommitHead,
    CommitPart,
    FeedChange,
    FeedCursor,
    FeedEncoding,
    Missing,
)
from language.filters import Filter
from protocol import limits
from protocol.errors import Refusal
from protocol.text import format_record
from protocol.values import Tick
from storage.catalog.tables import Table
from storage.records import commit_changes, records
from storage.records.commit_changes import FeedCommit

CHANGE_BYTES: Final = 64
"""Encoded size of a change beside its record and its id, about (bytes)."""
TOLD_BYTES: Final = 16 * limits.KIB
TOLD_KEPT: Final = 16
"""Output for a commit is cached in its view up to TOLD_BYTES, for TOLD_KEPT commits, for the next
of its feeds."""
IDS: Final = 3
"""Most copies of a record's id in a change: by itself, in the record, and in the before image."""


class Long(Enum):
    """Marks output that does not fit into one message."""

    LONG = "long"


LONG: Final = Long.LONG

Parts = list[tuple[int, int]]
"""Parts of a long commit: index of the first change of the part, and of the first after it. Keeping
the changes themselves would hold the before images of all parts at once."""


@dataclass(frozen=True, slots=True)
class ViewParameters:
    """Parameters of a feed's output. Feeds with equal parameters share a view."""

    prefix: bytes
    """Prefix of the table's records."""
    form: FeedEncoding
    actions: frozenset[str]
    before: bool
    where: str | None
    attributed: bool
    """True if the reader may see the author and the reason of a change."""


class FeedView:
    """Encodes commits for all feeds with equal parameters.

    :param table: the table whose changes are delivered
    :param condition: None: no filter
    """

    def __init__(self, wanted: ViewParameters, table: Table, condition: Filter | None) -> None:
        self.wanted = wanted
        self.table = table
        self.condition = condition
        self._record_id = records.record_id(table)
        self._encoded: dict[int, bytes | Long | None] = {}
        """Output for the last commits, shared by feeds that each read the log."""
        self._parts: tuple[int, Parts] = (0, [])
        """Parts of the long commit delivered last …"""
        self._written: tuple[tuple[int, int], bytes] = ((0, 0), b"")
        """… and its part encoded last: feeds in the same commit each ask for it."""

    @property
    def looks_back(self) -> bool:
        """True if it needs before images."""
        return self.wanted.before or self.condition is not None

    def encode(
        self, commit: FeedCommit, images: BeforeImages, fetch: Fetch, tick: Tick
    ) -> bytes | Long | None:
        """Return a commit encoded as one message, `LONG` if it does not fit, None if it has no
        output.

        :raises Refusal: the filter can't be evaluated for one of its records
        """
        if commit.size > limits.FEED_PART_BYTES or commit.sequence == self._parts[0]:
            return LONG
        told = self._encoded
        if commit.sequence in told:
            return told[commit.sequence]
        data = self._make(commit, images, fetch, tick)
        if self.looks_back and (not isinstance(data, bytes) or len(data) <= TOLD_BYTES):
            told[commit.sequence] = data
            if len(told) > TOLD_KEPT:
                del told[next(iter(told))]
        return data

    def _make(
        self, commit: FeedCommit, images: BeforeImages, fetch: Fetch, tick: Tick
    ) -> bytes | Long | None:
        written, size = list[bytes](), 0
        for raw in commit.changes.get(self.wanted.prefix, ()):
            change = self._change(raw, commit, images, fetch, tick)
            if change is not None:
                size += _weight(raw, change)
                if size > limits.FEED_PART_BYTES:
                    return LONG
                written.append(self.wanted.form.change(change))
        return self.wanted.form.commit(self._head(commit), written, None) if written else None

    def parts(self, commit: FeedCommit, images: BeforeImages, fetch: Fetch, tick: Tick) -> Parts:
        """Return the parts of a long commit, to be encoded one by one. Empty: it has no output.

        :raises Refusal: the filter can't be evaluated
        """
        if self._parts[0] != commit.sequence:
            parts, size = Parts(), limits.FEED_PART_BYTES
            for at, raw in enumerate(commit.changes.get(self.wanted.prefix, ())):
                change = self._change(raw, commit, images, fetch, tick)
                if change is None:
                    continue
                weight = _weight(raw, change)
                if size + weight > limits.FEED_PART_BYTES:
                    parts.append((at, at + 1))
                    size = weight
                else:
                    parts[-1] = parts[-1][0], at + 1
                    size += weight
            self._parts = commit.sequence, parts
        return self._parts[1]

    def written(
        self,
        commit: FeedCommit,
        parts: Parts,
        number: int,
        images: BeforeImages,
        fetch: Fetch,
        tick: Tick,
    ) -> bytes:
        """Return an encoded part, numbered from 1. :raises Refusal: as `parts`"""
        at = commit.sequence, number
        if self._written[0] != at:
            changes, (start, end) = list[bytes](), parts[number - 1]
            for raw in commit.changes[self.wanted.prefix][start:end]:
                change = self._change(raw, commit, images, fetch, tick)
                if change is not None:
                    changes.append(self.wanted.form.change(change))
            part = CommitPart(number, len(parts)) if len(parts) > 1 else None
            self._written = at, self.wanted.form.commit(self._head(commit), changes, part)
        return self._written[1]

    def forget(self) -> None:
        """Drop cached parts: no feed asks for them any more."""
        self._parts = 0, []
        self._written = (0, 0), b""

    def _head(self, commit: FeedCommit) -> CommitHead:
        place = FeedCursor(commit.sequence, commit.epoch)
        if self.wanted.attributed:
            return CommitHead(place, commit.time, commit.by, commit.reason)
        return CommitHead(place, commit.time, None, None)

    def _change(
        self,
        raw: commit_changes.RecordChange,
        commit: FeedCommit,
        images: BeforeImages,
        fetch: Fetch,
        tick: Tick,
    ) -> FeedChange | None:
        """Return a change to deliver; None: it is left out."""
        tick()
        before = None
        if self.looks_back:
            before = images.before(raw, fetch, tick)
            images.note(raw, commit.sequence)
        told = self._judged(raw, before, tick)
        return told if told is not None and told.action in self.wanted.actions else None

    def _judged(
        self, change: commit_changes.RecordChange, before: bytes | Pruned | None, tick: Tick
    ) -> FeedChange | None:
        """Return a record's change as a reader of the filtered table sees it; None: no change."""
        fields, existed = change.fields, bool(change.previous)
        if self.condition is not None:
            # An unknown before image counts as passed. A reader without the record gets one change
            # too many; otherwise a reader with it would keep a record that has gone.
            existed = before is PRUNED or (
                before is not None and self._passes(change, before, tick)
            )
            fields = fields if fields is not None and self._passes(change, fields, tick) else None
        if fields is None and not existed:
            return None
        action: Action = "delete" if fields is None else "update" if existed else "create"
        shown, missing = self._before(before, fields) if existed else (None, None)
        id, looks = self._record_id(change.key), self.wanted.before
        return FeedChange(action, id, fields, shown, missing, looks)

    def _passes(self, change: commit_changes.RecordChange, fields: bytes, tick: Tick) -> bool:
        assert self.condition is not None
        try:
            return self.condition.passes(change.key, fields, self._record_id, tick)
        except Refusal as refusal:
            record = format_record(self._record_id(change.key))
            raise refusal.also(record=record) from refusal.__cause__

    def _before(
        self, before: bytes | Pruned | None, fields: bytes | None
    ) -> tuple[bytes | None, Missing | None]:
        if not self.wanted.before:
            return None, None
        if before is PRUNED:
            return None, "pruned"
        assert before is not None, "a record that is changed was there before"
        if len(before) + len(fields or b"") > limits.FEED_CHANGE_BYTES:
            return None, "omitted"
        return before, None


def _weight(raw: commit_changes.RecordChange, change: FeedChange) -> int:
    """Encoded size of a change, about (bytes)."""
    shown = len(change.fields or b"") + len(change.before or b"")
    return CHANGE_BYTES + IDS * len(raw.key) + shown
