"""Fresh markers: the entries of FULLTEXT and VECTOR indexes that commits write.

A commit that creates or deletes a record, or changes its indexed content, puts one empty key for
it. The marker sends a query to the record itself, whatever the segments of the index hold of it;
see `storage/search/`. So a write makes no segment, reads nothing, and shares no key with another
record. Only a fold of the index removes markers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Protocol

from protocol.paths import Path
from storage.indexes.field_values import Linked, value_at

FRESH: Final = b"\4"
"""Side of the markers among the entries of an index; segments have those above it."""
_EMPTY: Final = b""


class SegmentedIndex(Protocol):
    """An index made of segments, as far as its markers depend on it."""

    @property
    def name(self) -> str:
        """Name of the index."""

    @property
    def table(self) -> str:
        """Name of its table."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Indexed fields."""

    @property
    def entries(self) -> bytes:
        """Key prefix of its entries."""

    @property
    def build(self) -> bytes:
        """Key of its build progress."""

    @property
    def state(self) -> str:
        """State of its build."""

    @property
    def unique(self) -> bool:
        """False."""


class FreshMarkers(ABC):
    """Markers of one index, in the place of `entries.IndexEntries`."""

    def __init__(self, index: SegmentedIndex, heads: tuple[str, ...]) -> None:
        self.index = index
        self._parts = [(heads.index(str(path[0])), path[1:]) for path in index.paths]
        self._prefix = index.entries + FRESH

    @abstractmethod
    def content(self, row: list[Any]) -> Any:
        """Return the indexed content of a record. :param row: values from `IndexedFields`"""

    @abstractmethod
    def has_content(self, content: Any) -> bool:
        """True if a record with this content belongs to the index."""

    @abstractmethod
    def check(self, content: Any) -> None:
        """Check the content of a record that is written. :raises TypeRefused: it does not fit"""

    def values(self, row: list[Any]) -> Iterator[Any]:
        """Yield the values of the indexed fields. :param row: values from `IndexedFields`"""
        for head, rest in self._parts:
            yield _value(row[head], rest)

    def is_same(self, old: list[Any], new: list[Any]) -> bool:
        """True if two versions of a record have the same content."""
        return bool(self.content(old) == self.content(new))

    def moved(
        self,
        old: list[Any] | None,
        new: list[Any] | None,
        id: bytes,
        *,
        written: bool = False,
    ) -> dict[bytes, bytes]:
        """Return the marker of a record between two versions, if its content differs.

        :param old: values from `IndexedFields`, like `new`; None: absent
        :param written: True: the new version is being written, and is checked
        :raises TypeRefused: the new content does not fit the index
        """
        before = None if old is None else self.content(old)
        after = None if new is None else self.content(new)
        had = before is not None and self.has_content(before)
        has = after is not None and self.has_content(after)
        if not (had or has) or (had and has and before == after):
            return {}
        if has and written:
            self.check(after)
        return {self._prefix + id: _EMPTY}

    def of(self, row: list[Any], id: bytes) -> dict[bytes, bytes]:
        """Return the marker of a new record, if it has content. :raises TypeRefused: as `moved`"""
        return self.moved(None, row, id, written=True)

    def of_many(self, columns: list[list[Any]], ids: list[bytes]) -> tuple[dict[bytes, bytes], int]:
        """Return the markers of many new records, and their number. :raises TypeRefused:"""
        found: dict[bytes, bytes] = {}
        for number, id in enumerate(ids):
            found.update(self.of([column[number] for column in columns], id))
        return found, len(found)

    def in_steps(
        self, columns: list[list[Any]], ids: list[bytes]
    ) -> Iterator[tuple[dict[bytes, bytes], int]]:
        """Yield the result of `of_many`."""
        yield self.of_many(columns, ids)

    def of_alike(
        self, columns: list[list[Any]], ids: list[bytes]
    ) -> tuple[dict[bytes, bytes], int]:
        """Return the result of `of_many`: any record is simple."""
        return self.of_many(columns, ids)


def _value(value: Any, rest: tuple[Any, ...]) -> Any:
    try:
        return value_at(value, rest) if rest else value
    # A linked record may change in a commit that does not touch this one: it has no content here.
    except Linked:
        return None
