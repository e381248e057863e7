"""Fingerprints of certificates: SHA-256 of a peer's certificate in DER."""

from __future__ import annotations

import re
from typing import Final

from protocol.errors import BadRequest

FINGERPRINT: Final = re.compile(r"[0-9a-fA-F]{64}|[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){31}")


def check_fingerprint(text: str) -> str:
    """Return a fingerprint in normal form: 64 hexadecimal digits in lower case.

    :param text: the digits in any case, or with a colon behind every second one
    :raises BadRequest: not a fingerprint
    """
    if FINGERPRINT.fullmatch(text) is None:
        raise BadRequest(
            f"{text[:100]!r} is not the fingerprint of a certificate: expected its SHA-256,"
            " 64 hexadecimal digits"
        )
    return text.replace(":", "").lower()
