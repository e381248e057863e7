"""Result of CHECK INDEX, for indexes of every kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class IndexCheck:
    """Result of a comparison.

    :ivar records: records of the table
    :ivar entries: entries of the index
    :ivar missing: entries that records should have, and the index has not, or otherwise
    :ivar surplus: entries that belong to no record
    :ivar first: encoded id of the first record that differs
    """

    records: int = 0
    entries: int = 0
    missing: int = 0
    surplus: int = 0
    first: bytes | None = None

    def lacks(self, id: bytes, number: int = 1) -> None:
        """Count missing entries of a record."""
        self.missing += number
        if self.first is None:
            self.first = id

    def exceeds(self, id: bytes) -> None:
        """Count a surplus entry of a record."""
        self.surplus += 1
        if self.first is None:
            self.first = id
