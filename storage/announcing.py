"""What tables tell of their changes: noted as records are written, told by whoever runs the
statement (`actors/scripts/announcing.py`), into a topic and in the same commit.

`records.py` and `changes.py` note every record that they make, change or remove in a table that
tells of it, and nothing else writes records: no statement can forget to. Dropping the table tells
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from storage.catalog import Table
    from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class OnChange:
    """Where a table tells of its changes."""

    topic: str
    """Its name, in the database of the table."""
    fields: tuple[str, ...] = ()
    """Told is a change of one of these, and of them alone; none: of any, with the whole record."""


class Noted(NamedTuple):
    """A record as it was and as it is now, packed; None: it was not there, or is not any more."""

    table: Table
    key: bytes
    before: bytes | None
    after: bytes | None


def note(
    tx: Transaction, table: Table, key: bytes, before: bytes | None, after: bytes | None
) -> None:
    """Note what became of a record, if its table tells of that, and it is not what it was.

    :raises TooLarge: the transaction has noted more than it may change
    """
    if table.on_change is not None and before != after:
        tx.note(Noted(table, key, before, after))


def kept(on_change: OnChange | None) -> list[str] | None:
    """As the catalog keeps it."""
    return None if on_change is None else [on_change.topic, *on_change.fields]


def read_kept(value: Any) -> OnChange | None:
    """What `kept` has made."""
    return None if value is None else OnChange(value[0], tuple(value[1:]))
