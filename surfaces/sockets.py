"""What surfaces do to sockets and transports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any


def bind_each(found: Iterable[tuple[Any, ...]], port: int, sockets: list[socket.socket]) -> int:
    """Bind all addresses that a name stands for to one port; answers that: 0 asks for a free one.

    :param found: as `getaddrinfo` answers
    :param sockets: gets those that are made, the one among them that can't be bound
    :raises OSError: an address is taken, not ours, or not allowed
    """
    for family, kind, protocol, _, address in dict.fromkeys(found):
        bound = socket.socket(family, kind, protocol)
        sockets.append(bound)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address[0], port, *address[2:]))
        port = bound.getsockname()[1]
    return port


def half_close(transport: asyncio.Transport) -> bool:
    """End our side once all that was written has been sent: the peer reads that, then the end. One
    that is gone already is cut. False: this transport has no halves, as with TLS.
    """
    if not transport.can_write_eof():
        return False
    try:
        transport.write_eof()
    except OSError:
        # The peer has reset the connection. asyncio hears of it here first, and lets it through.
        transport.abort()
    return True


def read_at_most(transport: asyncio.Transport, size: int) -> None:
    """Have one read bring at most so many bytes, where the transport has a say in it: TLS reads a
    record at a time (`limits.TLS_READ_BYTES`).
    """
    if hasattr(transport, "max_size"):  # asyncio's selector transport; it is no part of its promise
        transport.max_size = size


def unsent(transport: asyncio.Transport) -> int:
    """Bytes written that the system has not taken. Of TLS asyncio tells what waits to be encrypted,
    and nothing of what is, which may be all of one long write: that waits in the transport below,
    which is no part of its promise.
    """
    waiting = transport.get_write_buffer_size()
    protocol = getattr(transport, "_ssl_protocol", None)
    below = None if protocol is None else protocol._transport
    return waiting if below is None else waiting + int(below.get_write_buffer_size())
