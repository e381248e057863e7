"""`crypto::…`: digests for checking and addressing data, not for keeping passwords."""

from __future__ import annotations

import hashlib

from language.functions.table import function


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


@function("crypto::sha256", "text", result="string")
def sha256(data: str | bytes) -> str:
    """SHA-256 of a string's UTF-8 or of bytes, in hexadecimal."""
    return hashlib.sha256(_bytes(data)).hexdigest()


@function("crypto::md5", "text", result="string")
def md5(data: str | bytes) -> str:
    """MD5, for what others made with it, in hexadecimal."""
    return hashlib.md5(_bytes(data), usedforsecurity=False).hexdigest()
