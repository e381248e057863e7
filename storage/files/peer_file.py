"""The file PEER: the TLS certificate that the node presents to other nodes, and its private key.

Like NODE it belongs to the directory: no backup contains it, and no follower receives it. In a
sealed store it is sealed. The certificates are self-signed: a peer trusts one by its fingerprint
only.

| field | contents |
|---|---|
| `key`, `certificate` | the present certificate, PEM |
| `next_key`, `next_certificate` | its successor, once the first is about to expire |
| `late_key`, `late_certificate` | a replacement made at a start, if both had expired |

A certificate that has expired by this node's clock is kept until peers have seen its replacement.
A clock that is ahead for a while must not destroy a certificate that peers know.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import NameOID

from protocol import limits
from protocol.environment import Rng
from protocol.errors import BadRequest
from storage.faults import StoreDamaged
from storage.files.directory import StoreDirectory

LASTS: Final = timedelta(days=limits.PEER_CERTIFICATE_DAYS)
BEGINS: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Start of validity of every certificate: independent of the clock that made it, for nodes whose
clock is behind."""
SERIAL_BYTES: Final = 16


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, both PEM."""

    certificate: str
    key: str = field(repr=False)

    @cached_property
    def parsed(self) -> x509.Certificate:
        """The certificate; of a chain its first.

        :raises ValueError: there is none
        """
        return x509.load_pem_x509_certificate(self.certificate.encode())

    @property
    def chain(self) -> list[x509.Certificate]:
        """All certificates of the chain."""
        return x509.load_pem_x509_certificates(self.certificate.encode())

    @property
    def private_key(self) -> PrivateKeyTypes:
        """The private key.

        :raises ValueError, TypeError: there is none, or it is encrypted
        """
        return serialization.load_pem_private_key(self.key.encode(), None)

    @property
    def fits(self) -> bool:
        """True if the key belongs to the certificate.

        :raises ValueError, TypeError: either is unreadable
        """
        return self.private_key.public_key() == self.parsed.public_key()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, 64 hexadecimal digits."""
        return self.parsed.fingerprint(hashes.SHA256()).hex()

    @property
    def expires(self) -> datetime:
        """End of validity."""
        return self.parsed.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Identities:
    """Present and next certificate of a node."""

    shown: Identity
    next: Identity | None = None
    late: Identity | None = None
    """Only in the file: a replacement made because the others had expired by this node's clock."""

    def by(self, now: datetime) -> Identities | None:
        """Return the certificates to present at a time; None if all have expired."""
        if self.shown.expires > now:
            return Identities(self.shown, self.next)
        # In this order: peers may know the next certificate from its row, but not the late one.
        rest = (one for one in (self.next, self.late) if one is not None and one.expires > now)
        return next((Identities(one) for one in rest), None)


def make(node: str, now: datetime, rng: Rng) -> Identity:
    """Generate a key and a self-signed certificate.

    :param node: id of the node, in the certificate for human readers only
    """
    # OpenSSL draws the key, so runs of one simulated seed have different certificates.
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        # X.509 allows no serial number 0 (RFC 5280 §4.1.2.2).
        .serial_number(int.from_bytes(rng.bytes(SERIAL_BYTES), "big") or 1)
        .not_valid_before(BEGINS)
        .not_valid_after(now + LASTS)
        # Not a CA: trust in this certificate extends to no other one.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return Identity(made.public_bytes(pem).decode(), key.private_bytes(pem, pkcs8, plain).decode())


def current_identities(directory: StoreDirectory, node: str, now: datetime, rng: Rng) -> Identities:
    """Return the certificates that the node presents at a time.

    Without any, or if all have expired, one is made and saved, durable on return. No peer accepts
    an expired certificate, and an operator can declare the new one.

    :param node: id of the node
    :raises StoreDamaged, StoreTooNew: as `load`
    :raises OSError: the disk fails
    """
    kept = load(directory)
    if kept is None:
        made = Identities(make(node, now, rng))
        save(directory, made)
        return made
    if (found := kept.by(now)) is not None:
        return found
    late = make(node, now, rng)
    # Beside the expired ones, not in their place: the clock may only be ahead for a while.
    save(directory, replace(kept, late=late))
    return Identities(late)


def given(certificate: bytes, key: bytes, now: datetime) -> Identity:
    """Check a certificate and key that the operator provides, both PEM.

    :raises BadRequest: they are unreadable, don't belong together, or are not valid now
    """
    try:
        found = Identity(certificate.decode(), key.decode())
        # The whole chain is parsed: a bad file fails here and not in a handshake.
        fits, own, _ = found.fits, found.parsed, found.chain
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadRequest(
            "the files do not hold a certificate and its unencrypted private key in PEM"
        ) from error
    if not fits:
        raise BadRequest("the key does not belong to the certificate")
    if now >= own.not_valid_after_utc:
        raise BadRequest(f"the certificate expired on {own.not_valid_after_utc:%Y-%m-%d}")
    if now < own.not_valid_before_utc:
        raise BadRequest(f"the certificate is not valid before {own.not_valid_before_utc:%Y-%m-%d}")
    return found


def load(directory: StoreDirectory) -> Identities | None:
    """Load the certificates of a directory; None if it has none yet.

    :raises StoreDamaged: the file is not as written
    :raises StoreTooNew: a later version wrote it
    """
    path = directory.peer_file
    if not directory.fs.exists(path):
        return None
    stored = directory.read(path)
    try:
        found = {
            which: Identity(str(stored[f"{which}certificate"]), str(stored[f"{which}key"]))
            for which in ("", "next_", "late_")
            if f"{which}key" in stored
        }
        # The checksum of the file holds, but such a pair would fail every handshake.
        if not all(one.fits for one in found.values()):
            raise ValueError("another's key")
        return Identities(found[""], found.get("next_"), found.get("late_"))
    except (KeyError, ValueError, TypeError):
        raise StoreDamaged(
            f"{path} is damaged: it does not hold a certificate with its key"
        ) from None


def save(directory: StoreDirectory, identities: Identities) -> None:
    """Save the certificates. Durable on return.

    :raises OSError: the disk fails
    """
    stored = _named("", identities.shown)
    if identities.next is not None:
        stored |= _named("next_", identities.next)
    if identities.late is not None:
        stored |= _named("late_", identities.late)
    directory.write(directory.peer_file, stored)


def _named(which: str, one: Identity) -> dict[str, object]:
    return {f"{which}certificate": one.certificate, f"{which}key": one.key}
