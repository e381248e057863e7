"""Node facts: settings, listening surfaces and the last state hash, for INFO FOR NODE, INFO FOR
STATE and /metrics. On the loop only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from protocol import limits
from protocol.requests import NodeStatus, Surface
from protocol.values import Value
from protocol.version import BUILD


@dataclass(frozen=True, slots=True)
class Load:
    """Current load of a surface, and its limits."""

    connections: int = 0
    connections_most: int = limits.CONNECTIONS
    running: int = 0
    """Running requests; on the wire, running scripts."""
    running_most: int = limits.RUNNING


@dataclass(frozen=True, slots=True)
class Listening:
    """A surface that is listening."""

    surface: Surface
    address: str
    """`host:port`, with the bound port."""
    tls: bool = False
    certificate_expires: datetime | None = None
    """Expiry of the certificate that it presents."""
    load: Callable[[], Load] = field(default=Load, compare=False)


class NodeInfo:
    """Facts of the running node.

    :param status: returns the node's current status
    :param log_check: returns the progress and findings of the check of older segments
    """

    def __init__(
        self, status: Callable[[], NodeStatus], log_check: Callable[[], dict[str, Value]]
    ) -> None:
        self._status = status
        self._log_check = log_check
        self.settings: dict[str, Value] = {}
        """Settings in force, by the names of their flags."""
        self.listening: tuple[Listening, ...] = ()
        self._hashed: tuple[int, str] | None = None

    def info(self) -> dict[str, Value]:
        """Return the object that INFO FOR NODE shows."""
        status = self._status()
        return {
            "version": status.version,
            "build": BUILD,
            "uptime": timedelta(seconds=status.uptime_seconds),
            "sequence": status.sequence,
            "log_begins": status.log_begins,
            "log_ends": None if status.log_ends is None else asdict(status.log_ends),
            "log_bytes": status.log_bytes,
            "log_check": self._log_check(),
            "state_damage": status.state_damage,
            "settings": dict(self.settings),
            "surfaces": [
                {
                    "surface": one.surface,
                    "address": one.address,
                    "tls": one.tls,
                    "certificate_expires": one.certificate_expires,
                    **asdict(one.load()),
                }
                for one in self.listening
            ],
        }

    def state_hash(self, sequence: int) -> str | None:
        """Return the state hash at a sequence, if it is the last one computed; else None."""
        hashed = self._hashed
        return hashed[1] if hashed is not None and hashed[0] == sequence else None

    def keep_state_hash(self, sequence: int, digest: str) -> None:
        """Remember a state hash.

        :param sequence: must be durable: after a full disk rolls commits back, their sequences are
            assigned again to other commits
        """
        self._hashed = sequence, digest
