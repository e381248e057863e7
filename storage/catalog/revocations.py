"""Revoked certificates, by fingerprint; a revocation is permanent.

They outlive the replicas that named them, so that no later row can be declared with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from protocol import binary, limits
from protocol.errors import TooLarge
from protocol.fingerprints import check_fingerprint
from storage.formats import keys
from storage.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Revocation:
    """Revoked certificate."""

    certificate: str
    """Fingerprint of the certificate."""
    at: datetime
    """Log time of the revocation."""
    reason: str | None


def find(tx: Transaction, certificate: str) -> Revocation | None:
    """Return the revocation of a certificate, or None.

    :raises BadRequest: it is no fingerprint
    """
    key = _key(check_fingerprint(certificate))
    value = tx.get(key)
    return None if value is None else _read(key, value)


def every(tx: Transaction) -> Iterator[list[Revocation]]:
    """Yield all revocations, in batches."""
    for pairs in tx.scan(*keys.tagged(keys.REVOKED)):
        yield [_read(key, value) for key, value in pairs]


def revoke(tx: Transaction, certificate: str, reason: str | None) -> bool:
    """Revoke a certificate, in use or not. An earlier revocation stays as it was.

    :returns: True if it was not revoked before
    :raises BadRequest: it is no fingerprint
    :raises TooLarge: the maximum number of certificates is revoked already
    """
    key = _key(check_fingerprint(certificate))
    if tx.get(key) is not None:
        return False
    if sum(map(len, tx.scan(*keys.tagged(keys.REVOKED)))) >= limits.REVOKED_CERTIFICATES:
        raise TooLarge(
            f"too many revoked certificates: the limit is {limits.REVOKED_CERTIFICATES}. To shut"
            " out the certificate of a row, use DROP REPLICA",
            limit=limits.REVOKED_CERTIFICATES,
        )
    tx.put(key, binary.pack({"at": tx.now, "reason": reason}))
    return True


def _key(fingerprint: str) -> bytes:
    return keys.tagged(keys.REVOKED)[0] + bytes.fromhex(fingerprint)


def _read(key: bytes, value: bytes) -> Revocation:
    fields = binary.unpack_object(value)
    return Revocation(key[keys.TAG_AT + 1 :].hex(), fields["at"], fields["reason"])
