"""Which Host names are this node: any address, localhost, the declared endpoints.

A page of another site can make a browser ask a name of its own that resolves to this machine. Its
Host gives it away.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from protocol.requests import NodeStatus

REMEMBERED: Final = 1024


class Hosts:
    """:param listening: the host that the surface was told to listen on; it is one of the names"""

    def __init__(self, listening: str) -> None:
        self._always = {"localhost", listening.lower()}
        self._endpoints: tuple[str, ...] = ()
        self._names: set[str] = set(self._always)
        self._addresses: set[str] = set()

    def known(self, host: str, status: Callable[[], NodeStatus]) -> bool:
        """Whether a request for `host` (lower case, without port) is meant for this node."""
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


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_of(endpoint: str) -> str:
    """The host of `host:port`, `[v6]:port` or `scheme://host:port/…`."""
    _, _, rest = endpoint.rpartition("://")
    authority = rest.partition("/")[0].lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]
