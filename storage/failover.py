"""The failover policy: how the nodes of the store agree, and who takes over from whom.

It is one record. Followers have it as they have all that is committed; so does every backup, which
is why it names the store that it is for: what is restored from one is another, and is bound by no
policy of the store that it came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from protocol import binary
from protocol.errors import Refusal
from protocol.failover import Policy
from storage import keys
from storage.transactions import Transaction

_KEY: Final = keys.tagged(keys.FAILOVER)[0]
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Kept:
    """A policy as it stands in the store."""

    policy: Policy
    store: str
    """The id of the store that it was declared in."""
    since: datetime
    """Log time."""


def find(tx: Transaction) -> Kept | None:
    """The policy, if there is one."""
    value = tx.get(_KEY)
    return None if value is None else _read(value)


def define(tx: Transaction, store: str, policy: Policy) -> None:
    """Keep a policy, in place of one that was there. Its clauses have been looked at before."""
    tx.put(_KEY, _packed(Kept(policy, store, tx.now)))


def drop(tx: Transaction) -> bool:
    """Keep none. Whether there was one."""
    if tx.get(_KEY) is None:
        return False
    tx.delete(_KEY)
    return True


def packed(policy: Policy) -> bytes:
    """A policy by itself."""
    return binary.pack(_clauses(policy))


def unpacked(value: bytes) -> Policy:
    """What `packed` made. :raises ValueError: it did not make this"""
    try:
        return _policy(binary.unpack_object(value))
    except (KeyError, TypeError, Refusal) as error:
        raise ValueError(f"no policy: {error}") from error


def _clauses(policy: Policy) -> dict[str, Any]:
    return {
        "via": list(policy.via),
        "lease": policy.lease // _MICROSECOND,
        "acks": policy.acks,
        "behind": policy.behind // _MICROSECOND,
        "promote": policy.promote,
    }


def _policy(fields: dict[str, Any]) -> Policy:
    return Policy(
        tuple(fields["via"]),
        fields["lease"] * _MICROSECOND,
        fields["acks"],
        fields["behind"] * _MICROSECOND,
        fields["promote"],
    )


def _packed(kept: Kept) -> bytes:
    return binary.pack({**_clauses(kept.policy), "store": kept.store, "since": kept.since})


def _read(value: bytes) -> Kept:
    fields: dict[str, Any] = binary.unpack_object(value)
    return Kept(_policy(fields), fields["store"], fields["since"])
