"""Certificates of the cases about TLS: right, of another name, and of an unknown signer."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.now(UTC)


def _certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, signer: tuple[str, ec.EllipticCurvePrivateKey],
    hosts: list[x509.GeneralName] | None,
) -> x509.Certificate:  # fmt: skip
    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(signer[0]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - timedelta(days=1))
        .not_valid_after(_NOW + timedelta(days=30))
        .add_extension(x509.BasicConstraints(hosts is None, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer[1].public_key()), False
        )
    )
    if hosts is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    else:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(signer[1], hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def names(folder: Path) -> dict[str, str]:
    """Return the names of a case: files with authorities that may be trusted."""
    return {"ca": str(folder / "ca.pem"), "other_ca": str(folder / "other_ca.pem")}


def context(folder: Path, kind: str) -> ssl.SSLContext:
    """Return what a peer does TLS with.

    :param kind: `right`, `wrong_name`, or `1.2`, the only version; `none`: the files alone are made
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    hosts: list[x509.GeneralName] = [x509.IPAddress(ip_address("127.0.0.1"))]
    if kind == "wrong_name":
        hosts = [x509.DNSName("elsewhere.test"), x509.IPAddress(ip_address("127.0.0.2"))]
    for file, key in (("ca", keys[0]), ("other_ca", keys[1])):
        (folder / f"{file}.pem").write_bytes(_pem(_certificate(file, key, (file, key), None)))
    leaf = _certificate("node", keys[2], ("ca", keys[0]), hosts)
    private = keys[2].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "node.pem").write_bytes(_pem(leaf) + private)
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(folder / "node.pem")
    if kind == "1.2":
        found.maximum_version = ssl.TLSVersion.TLSv1_2
    return found
