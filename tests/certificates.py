"""Certificates for tests of TLS."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
"""Of a server, and of a client that trusts it."""


def self_signed(
    folder: Path,
    name: str,
    expires: datetime | None = None,
    *,
    begins: datetime | None = None,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    is_named: bool = True,
) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and 127.0.0.1: paths of chain and key, both PEM.

    :param expires: 90 days from now when not given, further away than anybody warns of
    :param begins: yesterday, or a day before it expires
    :param is_named: whether its subject has a common name
    """
    now = datetime.now(UTC)
    expires = expires or now + timedelta(days=90)
    begins = begins or min(now, expires) - timedelta(days=1)
    key = key or ec.generate_private_key(ec.SECP256R1())
    named = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    subject = x509.Name(named if is_named else [])
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(expires)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    chain_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.touch(0o600)
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain_path, key_path


def contexts_of(folder: Path, name: str = "localhost") -> Contexts:
    """Make a certificate, and contexts that use it."""
    chain, key = self_signed(folder, name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, key)
    return server, ssl.create_default_context(cafile=str(chain))
