"""Addresses of nodes in statements: `host`, `host:port` or `[::1]:port`."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from protocol.errors import BadRequest

_ADDRESS: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})?)(?::([0-9]{1,5}))?"
)
_SHOWN: Final = 300
"""Characters of an invalid address quoted in the error message."""


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine. A name is not because it begins like an address of it:
    `127.evil.example` is anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(address: str) -> str:
    """Return the address if it is valid. :raises BadRequest: it is not"""
    if _parts(address) is None:
        raise BadRequest(
            f"{address[:_SHOWN]!r} is not the address of a node: expected host or host:port"
        )
    return address


def check_peer(address: str) -> str:
    """Return an address with a port in normal form, so that equal addresses compare equal: lower
    case, no trailing dot of the name, no leading zeros.

    :raises BadRequest: not a `host:port`
    """
    parts = _parts(address)
    if parts is None or parts[1] is None:
        raise BadRequest(f"{address[:_SHOWN]!r} is not an address for peers: expected host:port")
    return f"{parts[0].removesuffix('.')}:{parts[1]}"


def _parts(address: str) -> tuple[str, int | None] | None:
    """Return host and port, or None if it is not an address."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return None
    host, port = found[1].lower(), None if found[2] is None else int(found[2])
    if port is not None and not 0 < port < 65_536:
        return None
    if host.startswith("["):
        try:
            host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        except ValueError:
            return None
    return host, port
