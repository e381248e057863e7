"""Credential of an HTTP request."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field

from protocol.errors import SignInRefused
from surfaces.http.head import RequestHead


@dataclass(slots=True)
class Token:
    """`Authorization: Bearer …`"""

    token: str = field(repr=False)


@dataclass(slots=True)
class Password:
    """`Authorization: Basic …`"""

    user: str
    password: str = field(repr=False)


def credential(head: RequestHead) -> Token | Password | None:
    """Return the credential of a request, or None.

    :raises SignInRefused: it is neither Bearer nor Basic, or malformed
    """
    header = head.fields.get(b"authorization")
    if header is None:
        return None
    scheme, _, rest = header.partition(b" ")
    rest = rest.strip()
    scheme = scheme.lower()
    if scheme == b"bearer" and rest:
        return Token(rest.decode("latin-1"))
    if scheme == b"basic":
        return _basic(rest)
    raise SignInRefused("unsupported credential: send Authorization: Bearer or Basic")


def _basic(encoded: bytes) -> Password:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise SignInRefused("the Basic credential must be UTF-8 in base64") from None
    user, colon, password = text.partition(":")
    if not colon:
        raise SignInRefused("the Basic credential must be user:password")
    return Password(user, password)
