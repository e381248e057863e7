"""Authentication of a request's caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from actors.runtime import call_now
from protocol.errors import SignInRefused
from protocol.requests import AuthenticatePassword, AuthenticateToken, Caller
from surfaces.http.credentials import Password, Token, credential
from surfaces.http.exchange import Exchange

Found = TypeVar("Found")


async def caller(exchange: Exchange) -> Caller:
    """Return the caller of a request.

    :raises SignInRefused: there is no credential
    :raises Refusal: the sessions actor refuses it
    """
    found = caller_now(exchange)
    return found if isinstance(found, Caller) else await found


async def caller_with(exchange: Exchange, given: Token | Password | None) -> Caller:
    """Return the caller with a given credential.

    :raises Refusal: as `caller`
    """
    found = _asked(exchange, given)
    return found if isinstance(found, Caller) else await found


def caller_now(exchange: Exchange) -> Caller | Coroutine[Any, Any, Caller]:
    """Return the caller at once if it is cached, else a coroutine for it."""
    assert exchange.head is not None
    return _asked(exchange, credential(exchange.head))


def _asked(
    exchange: Exchange, given: Token | Password | None
) -> Caller | Coroutine[Any, Any, Caller]:
    sessions = exchange.connection.surface.node.sessions
    connection = exchange.connection
    address = connection.address
    if given is None:
        raise SignInRefused("no credential: send Authorization: Bearer or Basic")
    if isinstance(given, Token):
        found = call_now(sessions, AuthenticateToken(given.token, "http", address))
    else:
        asked = AuthenticatePassword(
            given.user, given.password, "http", address, lambda: connection.closed
        )
        found = call_now(sessions, asked)
    return _known(exchange, found) if isinstance(found, Caller) else _awaited(exchange, found)


async def _awaited(exchange: Exchange, found: asyncio.Future[Caller]) -> Caller:
    return _known(exchange, await answered(exchange, found))


async def answered(exchange: Exchange, found: Awaitable[Found]) -> Found:
    """Wait for the sessions actor, which may be slow. Meanwhile the request does not count as
    running."""
    exchange.set_authenticating(True)
    try:
        return await found
    finally:
        exchange.set_authenticating(False)


def _known(exchange: Exchange, found: Caller) -> Caller:
    exchange.known = True
    exchange.connection.knows(found.user)
    exchange.runs_for(found.user)
    return found
