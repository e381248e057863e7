"""Change notifications: a table may publish its changes to a topic (change data capture).

Changes are noted as records are written. The executor of the statement
(`actors/scripts/announcing.py`) publishes them to the topic in the same commit. `records.py` and
`changes.py` note every record that they create, change or delete in such a table. Nothing else
writes records, so no statement can miss one. Dropping a table publishes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from storage.catalog import Table
    from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class OnChange:
    """Destination and filter of a table's change notifications."""

    topic: str
    """Name of the topic, in the database of the table."""
    fields: tuple[str, ...] = ()
    """Fields to watch: only changes of these are published. Empty: every change is, with the whole
    record."""


class Noted(NamedTuple):
    """A record before and after a change, packed; None: it is absent."""

    table: Table
    key: bytes
    before: bytes | None
    after: bytes | None


def note(
    tx: Transaction, table: Table, key: bytes, before: bytes | None, after: bytes | None
) -> None:
    """Note a change of a record if its table publishes changes and the record differs.

    :raises TooLarge: the notes of the transaction exceed its size limit
    """
    if table.on_change is not None and before != after:
        tx.note(Noted(table, key, before, after), len(before or b"") + len(after or b""))


def take_noted(tx: Transaction) -> list[Noted]:
    """Return and clear the changes noted since the last call, in the order of the writes."""
    return tx.take_noted()


def kept(on_change: OnChange | None) -> list[str] | None:
    """Encode for the catalog."""
    return None if on_change is None else [on_change.topic, *on_change.fields]


def read_kept(value: Any) -> OnChange | None:
    """Decode the result of `kept`."""
    return None if value is None else OnChange(value[0], tuple(value[1:]))
