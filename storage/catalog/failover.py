"""Failover policy: how the nodes agree on a leader, and which nodes may take over.

It is a single row, replicated to followers like all committed data. Backups contain it too, so it
names the store it applies to: a restored store is another one, and is not bound by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from protocol import binary
from protocol.failover import Policy, clauses, of_clauses
from storage.formats import keys
from storage.txn.transaction import Transaction

# The tag is the whole key: a store has one policy.
_KEY: Final = keys.tagged(keys.FAILOVER)[0]


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy as stored."""

    policy: Policy
    store: str
    """Id of the store in which it was declared."""
    since: datetime
    """Log time of the declaration."""


def find(tx: Transaction) -> StoredPolicy | None:
    """Return the stored policy, if there is one."""
    value = tx.get(_KEY)
    return None if value is None else _read(value)


def define(tx: Transaction, store: str, policy: Policy) -> None:
    """Store a policy, replacing any other. The caller has checked its clauses."""
    tx.put(_KEY, _packed(StoredPolicy(policy, store, tx.now)))


def drop(tx: Transaction) -> bool:
    """Delete the policy. Return True if there was one."""
    if tx.get(_KEY) is None:
        return False
    tx.delete(_KEY)
    return True


def _packed(kept: StoredPolicy) -> bytes:
    return binary.pack({**clauses(kept.policy), "store": kept.store, "since": kept.since})


def _read(value: bytes) -> StoredPolicy:
    fields: dict[str, Any] = binary.unpack_object(value)
    return StoredPolicy(of_clauses(fields), fields["store"], fields["since"])
