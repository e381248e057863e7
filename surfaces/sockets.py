"""Socket and transport helpers of the surfaces."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any


def bind_each(found: Iterable[tuple[Any, ...]], port: int, sockets: list[socket.socket]) -> int:
    """Bind all addresses of a name to one port, and return the port. Port 0 requests a free one.

    :param found: as `getaddrinfo` returns it
    :param sockets: collects the sockets made, including the one that can't be bound
    :raises OSError: an address is taken, not local, or not allowed
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
    """Half-close: shut down our sending side once all written bytes are sent. A connection that the
    peer has reset is aborted. False: this transport has no half close, as with TLS."""
    if not transport.can_write_eof():
        return False
    try:
        transport.write_eof()
    except OSError:
        # The peer has reset the connection. asyncio raises this error instead of handling it.
        transport.abort()
    return True


def read_at_most(transport: asyncio.Transport, size: int) -> None:
    """Limit one read to `size` bytes where the transport supports it. TLS reads one record at a
    time (`limits.TLS_READ_BYTES`)."""
    if hasattr(transport, "max_size"):  # asyncio's selector transport; not a public attribute
        transport.max_size = size


def unsent(transport: asyncio.Transport) -> int:
    """Return the bytes written that the system has not taken.

    A TLS transport of asyncio reports only bytes that wait for encryption. Encrypted bytes,
    possibly all of one long write, wait in the transport below it, which is not a public attribute.
    """
    waiting = transport.get_write_buffer_size()
    protocol = getattr(transport, "_ssl_protocol", None)
    below = None if protocol is None else protocol._transport
    return waiting if below is None else waiting + int(below.get_write_buffer_size())
