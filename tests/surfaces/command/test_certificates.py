"""Certificates that fit, and those that don't."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from surfaces.command import certificates
from surfaces.command.certificates import CertificateRefused
from tests.certificates import self_signed


def test_expiry_is_read(tmp_path: Path) -> None:
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    chain, key = self_signed(tmp_path, "node", expires)
    assert certificates.load(str(chain), str(key)).expires == expires


def test_each_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    chain, key = self_signed(tmp_path, "node")
    _, other = self_signed(tmp_path, "other")
    sealed = tmp_path / "sealed.key"
    sealed.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    missing = tmp_path / "missing"
    for chain_given, key_given, message in [
        (missing, key, f"--cert: {missing}: No such file or directory"),
        (key, key, f"--cert: {key}: not a certificate in PEM"),
        (chain, missing, f"--cert-key: {missing}: No such file or directory"),
        (chain, chain, f"--cert-key: {chain}: not an unsealed private key in PEM"),
        (chain, sealed, f"--cert-key: {sealed}: not an unsealed private key in PEM"),
        (chain, other, f"--cert-key: {other}: the key does not belong to the certificate"),
    ]:
        with pytest.raises(CertificateRefused) as caught:
            certificates.load(str(chain_given), str(key_given))
        assert str(caught.value) == message
