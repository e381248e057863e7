"""Notification of a service manager: the `NOTIFY_SOCKET` protocol of systemd."""

from __future__ import annotations

import socket
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(environment: Mapping[str, str], state: str) -> bool:
    """Send `state` to the socket that `NOTIFY_SOCKET` names. Return False if there is none or it
    has no listener: a manager that went away must not stop the node."""
    path = environment.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            out.sendto(state.encode(), address)
    except OSError:
        return False
    return True
