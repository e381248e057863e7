"""ON CHANGE of a table: destination and filter of its change notifications, and their stored form.

`storage/records/change_notes.py` notes the changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OnChange:
    """Destination and filter of a table's change notifications."""

    topic: str
    """Name of the topic, in the database of the table."""
    fields: tuple[str, ...] = ()
    """Fields to watch: only changes of these are published. Empty: every change is, with the whole
    record."""


def pack_on_change(on_change: OnChange | None) -> list[str] | None:
    """Encode for the catalog."""
    return None if on_change is None else [on_change.topic, *on_change.fields]


def unpack_on_change(value: Any) -> OnChange | None:
    """Decode the result of `pack_on_change`."""
    return None if value is None else OnChange(value[0], tuple(value[1:]))
