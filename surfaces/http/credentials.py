"""Who asks: the credential of a request, and the caller it stands for."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actors.runtime import ask_now
from protocol.errors import SignInRefused
from protocol.requests import AuthenticatePassword, AuthenticateToken, Caller

if TYPE_CHECKING:
    from surfaces.http.exchange import Exchange
    from surfaces.http.head import Head


@dataclass(frozen=True, slots=True)
class Token:
    """`Authorization: Bearer …`"""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Password:
    """`Authorization: Basic …`"""

    user: str
    password: str = field(repr=False)


def credential(head: Head) -> Token | Password | None:
    """What the request brought; None when nothing.

    :raises SignInRefused: it is neither Bearer nor Basic, or not of their form
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
    raise SignInRefused("the credential is neither Bearer nor Basic")


def _basic(encoded: bytes) -> Password:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise SignInRefused("the Basic credential is not base64 of UTF-8") from None
    user, colon, password = text.partition(":")
    if not colon:
        raise SignInRefused("the Basic credential is user:password")
    return Password(user, password)


async def caller(exchange: Exchange) -> Caller:
    """The caller of a request. :raises Refusal: as the sessions actor refuses; `SignInRefused`
    when there is no credential"""
    assert exchange.head is not None
    given = credential(exchange.head)
    sessions = exchange.connection.surface.node.sessions
    address = exchange.connection.address
    if given is None:
        raise SignInRefused("this needs a credential: Authorization: Bearer or Basic")
    if isinstance(given, Token):
        found = await ask_now(sessions, AuthenticateToken(given.token, "http", address))
    else:
        asked = AuthenticatePassword(given.user, given.password, "http", address)
        found = await ask_now(sessions, asked)
    exchange.known = True
    exchange.connection.knows(found.user)
    return found
