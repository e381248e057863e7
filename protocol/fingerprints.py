"""Fingerprints of certificates: the SHA-256 of what a peer presents, in DER."""

from __future__ import annotations

import re
from typing import Final

from protocol.errors import BadRequest

FINGERPRINT: Final = re.compile(r"[0-9a-fA-F]{64}|[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){31}")


def check_fingerprint(text: str) -> str:
    """A fingerprint in its one form: 64 hexadecimal digits in lower case.

    :param text: that, in any case, or with a colon behind every second digit
    :raises BadRequest: it is none
    """
    if FINGERPRINT.fullmatch(text) is None:
        raise BadRequest(
            f"{text[:100]!r} is no fingerprint of a certificate: wanted its SHA-256, 64"
            " hexadecimal digits"
        )
    return text.replace(":", "").lower()
