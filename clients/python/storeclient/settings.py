"""Connection settings of a client."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from storeclient.exchange import Credential

DEFAULT_PORT: Final = 8001

Reads = Literal["leader", "any"]
"""Target of read-only requests."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the connection to one node."""

    host: str
    port: int
    credential: Credential = field(default_factory=Credential)
    tls: ssl.SSLContext | None = None
    connect_timeout: float = 10.0
    """Time-out of connecting in seconds, all attempts together."""

    @property
    def where(self) -> str:
        """Address, in a form that can be passed again."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def make_settings(
    address: str | Sequence[str],
    user: str | None,
    password: str | None,
    token: str | None,
    tls: ssl.SSLContext | bool,
    connect_timeout: float,
) -> tuple[Settings, ...]:
    """Return the settings of each node, from a client's arguments. :raises ValueError: they
    contradict each other"""
    given = address.split(",") if isinstance(address, str) else list(address)
    addresses = dict.fromkeys(split_address(one.strip()) for one in given)
    if not addresses:
        raise ValueError("a client needs at least one address")
    if token is not None and len(addresses) > 1:
        raise ValueError(
            "a token is valid at one node: with several addresses, give user and password"
        )
    if tls is True:
        context: ssl.SSLContext | None = ssl.create_default_context()
    else:
        context = tls or None
    if not connect_timeout > 0:  # also refuses NaN
        raise ValueError(f"connect_timeout must be above zero, not {connect_timeout!r}")
    credential = Credential(user, password, token)
    return tuple(
        Settings(host, port, credential, context, connect_timeout) for host, port in addresses
    )


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`, `host`, `:port` or `[::1]:port` into host and port.

    :raises ValueError: none of these
    """
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{address!r} is not an address")
        port = rest[1:]
    else:
        host, _, port = address.partition(":")
        if ":" in port:
            raise ValueError(f"{address!r} is not an address: write [{address}] or [host]:port")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{address!r} is not an address: {port!r} is not a port")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"{address!r} is not an address: {host!r} is not a host") from error
    return host or "127.0.0.1", int(port) if port else DEFAULT_PORT
