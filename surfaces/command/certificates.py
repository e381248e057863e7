"""The certificate that both surfaces present."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509


class CertificateRefused(Exception):
    """The files hold no certificate and key that fit together; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate ready to be presented."""

    context: ssl.SSLContext
    expires: datetime
    """When the first certificate of the chain, the node's own, runs out."""


def load(chain: str, key: str) -> Certificate:
    """Read a certificate chain and its private key, both PEM.

    :raises CertificateRefused: a file can't be read, holds something else, or they don't fit
    """
    expires = _expires(chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty passphrase: a sealed key is refused instead of asking at the terminal.
        context.load_cert_chain(chain, key, password=lambda: b"")
    except ssl.SSLError as error:
        raise CertificateRefused(f"--cert-key: {key}: {_reason(error)}") from error
    except OSError as error:
        raise CertificateRefused(f"--cert-key: {key}: {error.strerror}") from error
    return Certificate(context, expires)


def _expires(chain: str) -> datetime:
    try:
        return x509.load_pem_x509_certificate(Path(chain).read_bytes()).not_valid_after_utc
    except OSError as error:
        raise CertificateRefused(f"--cert: {chain}: {error.strerror}") from error
    except ValueError as error:
        raise CertificateRefused(f"--cert: {chain}: not a certificate in PEM") from error


def _reason(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return "not an unsealed private key in PEM"
