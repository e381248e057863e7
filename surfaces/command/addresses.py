"""Addresses as they are written on the command line: `host:port`, `:port`, `[::1]:port`."""

from __future__ import annotations

import errno
import os
import re
import socket
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
PORT_MAX = 65535
_WRITTEN = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]/@]*)):(?P<port>[0-9]{1,5})"
)
_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*\.?")


class AddressRefused(ValueError):
    """The text is no address, or the address can't be listened on; the message says why."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a surface listens. Port 0 asks the system for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def parse(text: str) -> Address:
    """The address that `text` writes. No host means loopback: reaching further is asked for.

    :raises AddressRefused: when it is none; a port is always needed
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise AddressRefused(f"{text!r} is no address: host:port, :port or [::1]:port")
    port = int(match["port"])
    if port > PORT_MAX:
        raise AddressRefused(f"{text!r} is no address: ports end at {PORT_MAX}")
    if match["six"] is not None:
        try:
            socket.inet_pton(socket.AF_INET6, match["six"].partition("%")[0])
        except OSError as error:
            raise AddressRefused(f"{text!r} is no address: no IPv6 address in brackets") from error
        return Address(match["six"], port)
    host = match["host"] or LOOPBACK
    if not _HOST.fullmatch(host):
        raise AddressRefused(f"{text!r} is no address: {host!r} is no host name")
    return Address(host, port)


class Reservation:
    """An address bound, not yet listened on.

    It is taken before the store is opened, so that a taken port is found out while nothing has
    been changed on disk, and given up once the surface listens: two sockets may be bound to one
    address as long as only one of them listens.
    """

    def __init__(self, address: Address) -> None:
        """:raises AddressRefused: when the address is taken, or not this machine's"""
        try:
            family, kind, number, _, where = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except socket.gaierror as error:
            raise AddressRefused(f"{address}: {error.strerror}") from error
        except UnicodeError as error:  # a name with a part that is too long, or empty
            raise AddressRefused(f"{address}: no machine has such a name") from error
        self._socket = socket.socket(family, kind, number)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(where)
        except OSError as error:
            self._socket.close()
            raise AddressRefused(f"{address}: {reason(error)}") from error
        self.address = Address(address.host, self._socket.getsockname()[1])

    def release(self) -> None:
        """Give the address up; harmless when done twice."""
        self._socket.close()


def reason(error: OSError) -> str:
    """Why an address can't be listened on, in a few words."""
    if error.errno == errno.EADDRINUSE:
        return "the port is taken"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the address is not this machine's"
    if error.errno == errno.EACCES:
        return "the port needs privileges"
    return os.strerror(error.errno) if error.errno else str(error)
