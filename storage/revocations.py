"""Certificates that were revoked, by their fingerprints: none of them is trusted ever again.

They outlive the rows that named them, so that no row is declared with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from protocol import binary, limits
from protocol.errors import TooLarge
from protocol.fingerprints import check_fingerprint
from storage import keys
from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Revocation:
    """One that was revoked."""

    certificate: str
    """Its fingerprint."""
    at: datetime
    """Log time."""
    reason: str | None


def find(tx: Transaction, certificate: str) -> Revocation | None:
    """When and why a certificate was revoked, if it was.

    :raises BadRequest: it is no fingerprint
    """
    key = _key(check_fingerprint(certificate))
    value = tx.get(key)
    return None if value is None else _read(key, value)


def every(tx: Transaction) -> Iterator[list[Revocation]]:
    """All of them, some at a time."""
    for pairs in tx.scan(*keys.tagged(keys.REVOKED)):
        yield [_read(key, value) for key, value in pairs]


def revoke(tx: Transaction, certificate: str, reason: str | None) -> bool:
    """Revoke a certificate, whether or not a row names it. One that was revoked stays as it was.

    :returns: whether it was trusted until now, as far as anybody knew it
    :raises BadRequest: it is no fingerprint
    :raises TooLarge: as many as may be are revoked already
    """
    key = _key(check_fingerprint(certificate))
    if tx.get(key) is not None:
        return False
    if sum(map(len, tx.scan(*keys.tagged(keys.REVOKED)))) >= limits.REVOKED_CERTIFICATES:
        raise TooLarge(
            f"{limits.REVOKED_CERTIFICATES} certificates are revoked, which is as many as may be:"
            " DROP REPLICA shuts out the one that a row names",
            limit=limits.REVOKED_CERTIFICATES,
        )
    tx.put(key, binary.pack({"at": tx.now, "reason": reason}))
    return True


def _key(fingerprint: str) -> bytes:
    return keys.tagged(keys.REVOKED)[0] + bytes.fromhex(fingerprint)


def _read(key: bytes, value: bytes) -> Revocation:
    fields = binary.unpack_object(value)
    return Revocation(key[keys.TAG_AT + 1 :].hex(), fields["at"], fields["reason"])
