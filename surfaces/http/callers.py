"""Who sends a request."""

from __future__ import annotations

from actors.runtime import ask_now
from protocol.errors import SignInRefused
from protocol.requests import AuthenticatePassword, AuthenticateToken, Caller
from surfaces.http.credentials import Password, Token, credential
from surfaces.http.exchange import Exchange


async def caller(exchange: Exchange) -> Caller:
    """The caller of a request. :raises Refusal: as the sessions actor refuses; `SignInRefused`
    when there is no credential"""
    assert exchange.head is not None
    return await caller_with(exchange, credential(exchange.head))


async def caller_with(exchange: Exchange, given: Token | Password | None) -> Caller:
    """The caller who presents a credential with a request. :raises Refusal: as `caller`"""
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
