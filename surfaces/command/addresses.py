"""Addresses of the command line: `host:port`, `:port`, `[::1]:port`."""

from __future__ import annotations

import errno
import os
import re
import socket
from dataclasses import dataclass

from protocol import addresses
from surfaces.sockets import bind_each

LOOPBACK = "127.0.0.1"
PORT_MAX = 65535
_WRITTEN = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]/@]*)):(?P<port>[0-9]{1,5})"
)
_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*\.?")


class AddressRefused(ValueError):
    """The text is not an address, or the address can't be listened on; the message says why."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address on which a surface listens. Port 0 asks the system for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return addresses.is_loopback(self.host)


def parse(text: str) -> Address:
    """Parse an address. No host means loopback: a wider one has to be given explicitly.

    :raises AddressRefused: it is not an address; a port is always needed
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise AddressRefused(f"{text!r} is not an address: expected host:port, :port or [::1]:port")
    port = int(match["port"])
    if port > PORT_MAX:
        raise AddressRefused(f"{text!r} is not an address: the port must be at most {PORT_MAX}")
    if match["six"] is not None:
        try:
            socket.inet_pton(socket.AF_INET6, match["six"].partition("%")[0])
        except OSError as error:
            raise AddressRefused(
                f"{text!r} is not an address: expected an IPv6 address in the brackets"
            ) from error
        return Address(match["six"], port)
    host = match["host"] or LOOPBACK
    if not _HOST.fullmatch(host):
        raise AddressRefused(f"{text!r} is not an address: {host!r} is not a host name")
    return Address(host, port)


class Reservation:
    """Address bound but not listened on yet, for every address of its name, like `Listener`.

    It is bound before the store is opened, so that a taken port is found before anything on disk is
    changed. It is released once the surface listens: two sockets may be bound to one address as
    long as only one of them listens.
    """

    def __init__(self, address: Address) -> None:
        """Bind the address.

        :raises AddressRefused: the address is taken, or not local
        """
        try:
            found = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except socket.gaierror as error:
            raise AddressRefused(f"{address}: {error.strerror}") from error
        except UnicodeError as error:  # a host name label is too long, or empty
            raise AddressRefused(f"{address}: invalid host name") from error
        self._sockets: list[socket.socket] = []
        try:
            port = bind_each(found, address.port, self._sockets)
        except OSError as error:
            self.release()
            raise AddressRefused(f"{address}: {reason(error)}") from error
        self.address = Address(address.host, port)

    def overlaps(self, other: Reservation) -> bool:
        """Return True if the two can't both be listened on; binding alone does not show that. Call
        it before either is released."""
        return any(_overlap(mine, its) for mine in self._sockets for its in other._sockets)

    def release(self) -> None:
        """Release the address. Idempotent."""
        for bound in self._sockets:
            bound.close()


_ALL = frozenset({"0.0.0.0", "::"})
"""Wildcard hosts: each stands for every address of its family."""


def _overlap(one: socket.socket, other: socket.socket) -> bool:
    if one.family != other.family:
        return False
    (host, port, *more), (its_host, its_port, *its_more) = one.getsockname(), other.getsockname()
    if port != its_port:
        return False
    return (host, more) == (its_host, its_more) or not _ALL.isdisjoint((host, its_host))


def reason(error: OSError) -> str:
    """Return a short reason why an address can't be listened on."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the address does not belong to this machine"
    if error.errno == errno.EACCES:
        return "permission denied: the port needs privileges"
    return os.strerror(error.errno) if error.errno else str(error)
