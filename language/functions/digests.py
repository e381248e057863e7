"""`crypto::…` functions: digests to verify and address data, not to store passwords."""

from __future__ import annotations

import hashlib

from language.env import Env
from language.functions.table import function
from language.pieces import pieces


def _digest(env: Env, digest: hashlib._Hash, data: str | bytes) -> str:
    for part in pieces(data, env.tick):
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


@function("crypto::sha256", "text", result="string", env=True)
def sha256(env: Env, data: str | bytes) -> str:
    """SHA-256 of a string's UTF-8 encoding or of bytes, in hexadecimal."""
    return _digest(env, hashlib.sha256(), data)


@function("crypto::md5", "text", result="string", env=True)
def md5(env: Env, data: str | bytes) -> str:
    """MD5 in hexadecimal, for compatibility with data of other systems."""
    return _digest(env, hashlib.md5(usedforsecurity=False), data)
