"""The weight of bodies: they count as what they decode to, which may be many times what came."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from protocol import limits
from protocol.requests import Caller
from protocol.values import Tick
from protocol.weights import weigh
from surfaces.http.callers import caller
from surfaces.http.exchange import Exchange

Found = TypeVar("Found")


async def read_counted(
    exchange: Exchange,
    who: Caller,
    read: Callable[[bytes, Tick | None], Found],
    long: int,
    held: Callable[[Found], Any],
) -> tuple[Found, Caller]:
    """What the body of a request was read into, and who brought it: where others had their turns
    meanwhile, a credential that is good no more does nothing. The body is let go; what it became
    counts for its user until the request is answered, which may be long. Of a small one nothing
    counts.

    How much that is shows only once it is there. So the long bodies of a user are read one after
    the other: what does not count yet is never more than what one of them becomes.

    :param read: reads a body, given a tick where that is long
    :param long: bytes from which on it is read and weighed in turns with others' work
    :param held: the part that is weighed
    :raises Refusal: as `read` does
    :raises Busy: there is no room for it among what the user holds
    """
    if len(exchange.body) <= limits.UNCOUNTED_BYTES:
        return read(_taken(exchange), None), who
    exchange.own(who.user)
    if len(exchange.body) <= long:
        found = read(_taken(exchange), None)
        exchange.weigh(weigh(held(found)))
        return found, who
    work = exchange.connection.surface.long_work
    async with work.reading_of(who.user):
        found = await work.run(who.user, partial(read, _taken(exchange)))
        exchange.weigh(await work.run(who.user, partial(weigh, held(found))))
    return found, await caller(exchange)


def whole(found: Found) -> Found:
    """As `held`: all of it may be many times what came."""
    return found


def _taken(exchange: Exchange) -> bytes:
    """The body, which nobody holds from now on but who reads it."""
    body, exchange.body = exchange.body, b""
    return body
