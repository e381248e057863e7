"""Fresh markers: the entries of FULLTEXT indexes that commits write.

A commit that creates or deletes a record, or changes its text, puts one empty key for it. The
marker sends a query to the record itself, whatever the segments of the index hold of it; see
`storage/search/`. So a write analyses nothing, reads nothing, and shares no key with another
record. Only a fold of the index removes markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from protocol.paths import Path
from protocol.text import strings_of
from storage.indexes.field_values import Linked, value_at

FRESH: Final = b"\4"
"""Side of the markers among the entries of an index; segments have those above it."""
_EMPTY: Final = b""


class TextIndex(Protocol):
    """A FULLTEXT index, as far as its markers depend on it."""

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


class TextMarkers:
    """Markers of one FULLTEXT index, in the place of `entries.IndexEntries`."""

    def __init__(self, index: TextIndex, heads: tuple[str, ...]) -> None:
        self.index = index
        self._parts = [(heads.index(str(path[0])), path[1:]) for path in index.paths]
        self._prefix = index.entries + FRESH

    def is_same(self, old: list[Any], new: list[Any]) -> bool:
        """True if two versions of a record have the same text."""
        return self.texts(old) == self.texts(new)

    def texts(self, row: list[Any]) -> list[list[str]]:
        """Return the strings of each field. :param row: values from `IndexedFields`"""
        return [strings_of(_value(row[head], rest)) for head, rest in self._parts]

    def moved(self, old: list[Any] | None, new: list[Any] | None, id: bytes) -> dict[bytes, bytes]:
        """Return the marker of a record between two versions, if its text differs.

        :param old: values from `IndexedFields`, like `new`; None: absent
        """
        before = [] if old is None else self.texts(old)
        after = [] if new is None else self.texts(new)
        if before == after or not (any(before) or any(after)):
            return {}
        return {self._prefix + id: _EMPTY}

    def of(self, row: list[Any], id: bytes) -> dict[bytes, bytes]:
        """Return the marker of a new record, if it has text."""
        return self.moved(None, row, id)

    def of_many(self, columns: list[list[Any]], ids: list[bytes]) -> tuple[dict[bytes, bytes], int]:
        """Return the markers of many new records, and their number."""
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
    # A linked record may change in a commit that does not touch this one: it has no text here.
    except Linked:
        return None
