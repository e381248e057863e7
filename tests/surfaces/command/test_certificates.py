"""Certificates that fit and are valid, and those that don't or aren't."""

from __future__ import annotations

import os
import re
import ssl
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from surfaces.command import certificates
from surfaces.command.certificates import CertificateRefused
from tests.certificates import self_signed

NOW = datetime.now(UTC).replace(microsecond=0)


def refused(chain: Path, key: Path, now: datetime = NOW) -> str:
    with pytest.raises(CertificateRefused) as caught:
        certificates.load(str(chain), str(key), now)
    return str(caught.value)


def test_expiry_and_fingerprint_are_read(tmp_path: Path) -> None:
    expires = NOW + timedelta(days=3)
    chain, key = self_signed(tmp_path, "node", expires)
    found = certificates.load(str(chain), str(key), NOW)
    assert found.expires == expires
    pem = ssl.PEM_cert_to_DER_cert(chain.read_text())
    assert bytes.fromhex(found.fingerprint) == sha256(pem).digest()


def test_each_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    chain, key = self_signed(tmp_path, "node")
    _, other = self_signed(tmp_path, "other")
    _, other_kind = self_signed(tmp_path, "other-kind", key=rsa.generate_private_key(65537, 2048))
    sealed = tmp_path / "sealed.key"
    sealed.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    really_sealed = tmp_path / "really-sealed.key"
    really_sealed.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a passphrase"),
        )
    )
    for one in (sealed, really_sealed, chain):
        one.chmod(0o600)
    open_to_all = tmp_path / "open.key"
    open_to_all.write_bytes(key.read_bytes())
    open_to_all.chmod(0o666)
    cut = tmp_path / "cut.pem"
    cut.write_text(chain.read_text() + chain.read_text()[:200])
    garbled = tmp_path / "garbled.pem"
    garbled.write_text(
        chain.read_text() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    empty = tmp_path / "empty"
    empty.touch(0o600)
    missing = tmp_path / "missing"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for chain_given, key_given, message in [
        (missing, key, f"--cert: {missing}: No such file or directory"),
        (tmp_path, key, f"--cert: {tmp_path}: Is a directory"),
        (pipe, key, f"--cert: {pipe}: not a regular file"),
        (chain, pipe, f"--cert-key: {pipe}: not a regular file"),
        (chain, Path("/dev/zero"), "--cert-key: /dev/zero: not a regular file"),
        (key, key, f"--cert: {key}: not a certificate in PEM"),
        (empty, key, f"--cert: {empty}: not a certificate in PEM"),
        (garbled, key, f"--cert: {garbled}: not a certificate in PEM"),
        (cut, key, f"--cert: {cut}: its last certificate is cut short"),
        (chain, missing, f"--cert-key: {missing}: No such file or directory"),
        (
            chain,
            open_to_all,
            f"--cert-key: {open_to_all}: other users may read or write it, its mode is 0666:"
            " run chmod 600",
        ),
        (chain, empty, f"--cert-key: {empty}: not an unsealed private key in PEM"),
        (chain, chain, f"--cert-key: {chain}: not an unsealed private key in PEM"),
        (chain, sealed, f"--cert-key: {sealed}: not an unsealed private key in PEM"),
        (chain, really_sealed, f"--cert-key: {really_sealed}: not an unsealed private key in PEM"),
        (chain, other, f"--cert-key: {other}: the key does not belong to the certificate"),
        (
            chain,
            other_kind,
            f"--cert-key: {other_kind}: the key does not belong to the certificate",
        ),
    ]:
        assert refused(chain_given, key_given) == message
    assert refused(chain, tmp_path).startswith(f"--cert-key: {tmp_path}: ")


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_one_too_weak_is_the_certificates_fault(tmp_path: Path, key: str) -> None:
    weak = (
        rsa.generate_private_key(65537, 1024)
        if key == "rsa"
        else ec.generate_private_key(ec.SECP192R1())
    )
    chain, key_path = self_signed(tmp_path, "weak", key=weak)
    assert refused(chain, key_path) == f"--cert: {chain}: too weak to be trusted: ee key too small"


def test_one_that_is_not_valid_now_names_the_day_and_the_clock(tmp_path: Path) -> None:
    begins, expires = NOW - timedelta(days=1), NOW + timedelta(days=1)
    chain, key = self_signed(tmp_path, "node", expires, begins=begins)
    names = (str(chain), str(key))
    second = timedelta(seconds=1)
    for moment in (begins, expires - second):
        assert certificates.load(*names, moment).expires == expires
    assert refused(chain, key, expires) == (
        f"--cert: {chain}: the certificate expired on {expires:%Y-%m-%d %H:%M:%S} UTC;"
        f" the clock says {expires:%Y-%m-%d %H:%M:%S} UTC"
    )
    early = refused(chain, key, begins - second)
    assert f"the certificate is not valid before {begins:%Y-%m-%d %H:%M:%S} UTC" in early
    assert re.search(r"the clock says \d{4}-\d\d-\d\d ", early)


def test_one_that_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = self_signed(tmp_path, "node")
    other, _ = self_signed(tmp_path, "other", NOW + timedelta(days=9))
    read = Path.read_bytes
    texts = [read(chain), read(other)]
    monkeypatch.setattr(Path, "read_bytes", lambda path: texts.pop(0))
    assert refused(chain, key) == f"--cert: {chain}: the file changed during the read; try again"


def test_only_aead_is_offered_from_tls_12_on(tmp_path: Path) -> None:
    chain, key = self_signed(tmp_path, "node")
    context = certificates.load(str(chain), str(key), NOW).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.maximum_version == ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert ssl.OP_NO_RENEGOTIATION in context.options and ssl.OP_NO_COMPRESSION in context.options
    offered = context.get_ciphers()
    assert not [cipher["name"] for cipher in offered if not cipher["aead"]]
    assert {cipher["protocol"] for cipher in offered} == {"TLSv1.2", "TLSv1.3"}
    assert all(cipher["kea"] in ("kx-ecdhe", "kx-any") for cipher in offered)
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # the check sees what is offered otherwise
    assert [cipher["name"] for cipher in plain.get_ciphers() if not cipher["aead"]]
