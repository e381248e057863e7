"""Where a client connects and how."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from storeclient.exchange import Credential

DEFAULT_PORT: Final = 8001


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a connection needs."""

    host: str
    port: int
    credential: Credential = field(default_factory=Credential)
    tls: ssl.SSLContext | None = None
    connect_timeout: float = 10.0
    """Seconds in which a connection must stand, all attempts together."""

    @property
    def where(self) -> str:
        """The address, as it may be given again."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def make_settings(
    address: str,
    user: str | None,
    password: str | None,
    token: str | None,
    tls: ssl.SSLContext | bool,
    connect_timeout: float,
) -> Settings:
    """Settings from a client's arguments. :raises ValueError: they contradict each other"""
    host, port = split_address(address)
    if tls is True:
        context: ssl.SSLContext | None = ssl.create_default_context()
    else:
        context = tls or None
    if not connect_timeout > 0:  # as NaN is not
        raise ValueError(f"connect_timeout is longer than nothing, not {connect_timeout!r}")
    return Settings(host, port, Credential(user, password, token), context, connect_timeout)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, `host`, `:port` or `[::1]:port`.

    :raises ValueError: it is none of these
    """
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{address!r} is no address")
        port = rest[1:]
    else:
        host, _, port = address.partition(":")
        if ":" in port:
            raise ValueError(f"{address!r} is no address: write [{address}] or [host]:port")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{address!r} is no address: {port!r} is no port")
    return host or "127.0.0.1", int(port) if port else DEFAULT_PORT
