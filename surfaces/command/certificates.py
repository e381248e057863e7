"""TLS certificate of both surfaces: read from its files, and validated as a whole.

The result of `load` is ready for use; until it returns, nothing has changed. So a start is refused
before anything is opened, and a failed renewal leaves the current certificate in use.
"""

from __future__ import annotations

import errno
import os
import ssl
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

CIPHERS_TLS12: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""AEAD suites with forward secrecy only. All suites of TLS 1.3 are such."""

BEGIN: Final = b"-----BEGIN CERTIFICATE-----"

_MISMATCH: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's reasons for a key of another certificate; the last: also of another type."""
_WEAK: Final = ("TOO_SMALL", "TOO_WEAK")


class CertificateRefused(Exception):
    """The files hold no certificate and key that can be used at present; the message names the file
    and the reason."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate ready for use."""

    context: ssl.SSLContext
    expires: datetime
    """Expiry of the chain's first certificate, the node's own."""
    fingerprint: str
    """SHA-256 of that certificate, in hexadecimal."""


def load(chain: str, key: str, now: datetime) -> Certificate:
    """Read a certificate chain and its private key, both PEM, into a context of its own.

    :param now: with a time zone; the first certificate must be valid at that time. The later ones
        are checked by the clients, which may know another path to a trusted authority.
    :raises CertificateRefused: a file can't be read, or holds something else; they don't match; the
        certificate is not valid yet, or has expired
    """
    check_file("--cert", chain)
    check_file("--cert-key", key)
    check_private("--cert-key", key)
    text = _read(chain)
    own = _own(chain, text)
    context = _context()
    try:
        # An empty passphrase: a sealed key is refused instead of asking at the terminal.
        context.load_cert_chain(chain, key, password=lambda: b"")
    except ssl.SSLError as error:
        raise CertificateRefused(_reason(chain, key, error)) from error
    except OSError as error:
        raise CertificateRefused(f"--cert-key: {key}: {error.strerror}") from error
    if _read(chain) != text:
        raise CertificateRefused(f"--cert: {chain}: the file changed during the read; try again")
    _check_valid(chain, own, now)
    return Certificate(context, own.not_valid_after_utc, own.fingerprint(hashes.SHA256()).hex())


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS_TLS12)
    context.options |= ssl.OP_NO_RENEGOTIATION  # its cost is a denial of service
    return context


def check_file(flag: str, path: str) -> None:
    """Check that a path is a regular file. Reading a pipe without a writer, or an endless device,
    would block for ever.

    :raises CertificateRefused: it can't be read to its end
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise CertificateRefused(f"{flag}: {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise CertificateRefused(f"{flag}: {path}: {os.strerror(errno.EISDIR)}")
    if not stat.S_ISREG(mode):
        raise CertificateRefused(f"{flag}: {path}: not a regular file")


def check_private(flag: str, path: str) -> None:
    """Check that a file with a secret is accessible to its owner and group only. A file without
    readable status is left to its reader.

    :raises CertificateRefused: other users may read or write it
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise CertificateRefused(
            f"{flag}: {path}: other users may read or write it, its mode is"
            f" {stat.S_IMODE(mode):04o}: run chmod 600"
        )


def _read(chain: str) -> bytes:
    try:
        return Path(chain).read_bytes()
    except OSError as error:
        raise CertificateRefused(f"--cert: {chain}: {error.strerror}") from error


def _own(chain: str, text: bytes) -> x509.Certificate:
    try:
        found = x509.load_pem_x509_certificates(text)
    except ValueError as error:
        raise CertificateRefused(f"--cert: {chain}: not a certificate in PEM") from error
    if len(found) < text.count(BEGIN):
        raise CertificateRefused(f"--cert: {chain}: its last certificate is cut short")
    return found[0]


def _check_valid(chain: str, own: x509.Certificate, now: datetime) -> None:
    begins, expires = own.not_valid_before_utc, own.not_valid_after_utc
    if now >= expires:
        what = f"expired on {_shown(expires)}"
    elif now < begins:
        what = f"is not valid before {_shown(begins)}"
    else:
        return
    raise CertificateRefused(
        f"--cert: {chain}: the certificate {what}; the clock says {_shown(now)}"
    )


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _reason(chain: str, key: str, error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if reason in _MISMATCH:
        return f"--cert-key: {key}: the key does not belong to the certificate"
    if reason.endswith(_WEAK):
        return f"--cert: {chain}: too weak to be trusted: {reason.lower().replace('_', ' ')}"
    return f"--cert-key: {key}: not an unsealed private key in PEM"
