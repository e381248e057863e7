"""Progress of forwarded entries: each entry that another node forwards is stored once (idempotent).

A node that can't commit its statement log entries itself numbers them, from 1 in each life. A life
is one run of its process; entries not yet forwarded are lost when it ends. The node that commits a
forwarded entry records its number in the same commit. So the number is known wherever the entry is,
also to the next leader.
"""

from __future__ import annotations

from typing import Final

from storage.catalog import replicas
from storage.formats import keys
from storage.txn.transaction import Transaction

LIFE_BYTES: Final = 16
"""Length of the id of a life."""
_NUMBER_BYTES: Final = 8


def note(tx: Transaction, node: str, life: bytes, number: int) -> bool:
    """Record that this transaction's commit stores an entry. Return False if it was stored before.

    :param number: each life's numbers must come in order; repetition is allowed
    """
    assert len(life) == LIFE_BYTES, "what names a life has one length"
    key = _key(node)
    stands = tx.get(key)
    # Rows grow with the first entry of a node only, so then the rows of removed nodes go.
    if stands is None:
        _forget_others(tx)
    # Another life numbers from 1 again, so its numbers are not comparable.
    elif stands[:LIFE_BYTES] == life and number <= int.from_bytes(stands[LIFE_BYTES:], "big"):
        return False
    # In the commit of the entry itself, so a retry after a crash or a new leader stores no copy.
    tx.put(key, life + number.to_bytes(_NUMBER_BYTES, "big"))
    return True


def _forget_others(tx: Transaction) -> None:
    """Delete the progress of nodes that are no longer declared in the cluster."""
    named = {_key(row.node) for row in replicas.every(tx) if row.node is not None}
    found = [key for pairs in tx.scan(*keys.tagged(keys.CARRIED)) for key, _ in pairs]
    for key in found:
        if key not in named:
            tx.delete(key)


def _key(node: str) -> bytes:
    return keys.tagged(keys.CARRIED)[0] + node.encode()
