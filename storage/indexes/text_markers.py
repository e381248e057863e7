"""Fresh markers of FULLTEXT indexes: of records whose text changes."""

from __future__ import annotations

from typing import Any

from protocol.text import strings_of
from storage.indexes.fresh_markers import FreshMarkers


class TextMarkers(FreshMarkers):
    """Markers of one FULLTEXT index."""

    def content(self, row: list[Any]) -> list[list[str]]:
        """Return the strings of each field. :param row: values from `IndexedFields`"""
        return [strings_of(value) for value in self.values(row)]

    def has_content(self, content: list[list[str]]) -> bool:
        """True if some field has text."""
        return any(content)

    def check(self, content: list[list[str]]) -> None:
        """Accept any content: what is no text has no terms."""
