"""Host names of this node: any IP address, localhost, the declared endpoints.

A page of another site can make a browser send requests to a name of its own that resolves to this
machine (DNS rebinding). Its Host header reveals that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Final

from protocol.requests import NodeStatus

REMEMBERED: Final = 1024


class Hosts:
    """:param listening: host that the surface listens on; it is one of the names"""

    def __init__(self, listening: str) -> None:
        self._always = {"localhost", listening.lower()}
        self._endpoints: tuple[str, ...] = ()
        self._names: set[str] = set(self._always)
        self._addresses: set[str] = set()

    def known(self, host: str, status: Callable[[], NodeStatus]) -> bool:
        """Return True if a request for `host` (lower case, without port) is meant for this node."""
        if host in self._addresses or host in self._always:
            return True
        if _is_address(host):
            if len(self._addresses) < REMEMBERED:
                self._addresses.add(host)
            return True
        if host.endswith(".localhost"):
            return True
        endpoints = status().endpoints
        if endpoints is not self._endpoints:
            self._endpoints = endpoints
            self._names = {_host_of(endpoint) for endpoint in endpoints}
        return host in self._names


_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/@\s,]+)")
_PORTS: Final = {"http": "80", "https": "443"}


def is_foreign(origin: str, host: str, endpoints: Sequence[str]) -> bool:
    """Return True if a page of another site sent the request. The node's own page has the Host as
    its origin, or a declared endpoint where a proxy rewrites the Host.

    :param origin: the Origin of a request, `null` for a page without one
    :param host: its Host
    """
    found = _ORIGIN.fullmatch(origin.lower())
    if found is None:
        return True
    usual = _PORTS[found["scheme"]]
    own = {_with_port(name.rpartition("://")[2].partition("/")[0], usual) for name in endpoints}
    return _with_port(found["authority"], usual) not in own | {_with_port(host, usual)}


def _with_port(authority: str, usual: str) -> str:
    authority = authority.lower()
    host, colon, port = authority.rpartition(":")
    if not colon or "]" in port:
        return f"{authority}:{usual}"
    return f"{host}:{port or usual}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_of(endpoint: str) -> str:
    """Return the host of `host:port`, `[v6]:port` or `scheme://host:port/…`."""
    _, _, rest = endpoint.rpartition("://")
    authority = rest.partition("/")[0].lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]
