"""Memory quota of request bodies: charged by their decoded size, which may be many times the
received one."""

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
    """Return the decoded body of a request, and its caller. If other work ran meanwhile, the
    credential is checked again. The raw body is released. The decoded one is charged to its user
    until the request is answered, which may take long; a small one is not charged.

    The decoded size is known only afterwards. So the long bodies of a user are decoded one after
    the other: the uncharged memory is never more than that of one body.

    :param read: decodes a body, given a tick if that is long
    :param long: bytes from which on a body is decoded and measured in slices
    :param held: selects the part that is charged
    :raises Refusal: as `read` does
    :raises Busy: the user's memory quota is exceeded
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
    """Charge the whole decoded body (a `held` function): all of it may be many times the received
    size."""
    return found


def _taken(exchange: Exchange) -> bytes:
    """Take the body out of the exchange, so that only the decoder holds it."""
    body, exchange.body = exchange.body, b""
    return body
