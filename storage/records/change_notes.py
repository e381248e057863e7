"""Change notifications: a table may publish its changes to a topic (change data capture).

Changes are noted as records are written. The executor of the statement
(`actors/scripts/announcing.py`) publishes them to the topic in the same commit. `records.py`
notes every record that it creates, changes or deletes in such a table. Nothing else
writes records, so no statement can miss one. Dropping a table publishes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from storage.catalog.tables import Table
    from storage.txn.transaction import Transaction


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
    # Only bytes are compared here: equal fields in another order are found at the publication.
    if table.on_change is not None and before != after:
        tx.note(Noted(table, key, before, after), len(before or b"") + len(after or b""))


def take_noted(tx: Transaction) -> list[Noted]:
    """Return and clear the changes noted since the last call, in the order of the writes."""
    return tx.take_noted()
