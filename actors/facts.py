"""What the node was started with, where it listens, and how its state hashes: for INFO FOR NODE,
INFO FOR STATE and /metrics. On the loop only."""

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
    """What a surface holds at the moment, and its ceilings."""

    connections: int = 0
    connections_most: int = limits.CONNECTIONS
    running: int = 0
    """Requests, or scripts of the wire, that run."""
    running_most: int = limits.RUNNING


@dataclass(frozen=True, slots=True)
class Listening:
    """One surface that answers."""

    surface: Surface
    address: str
    """`host:port`, with the port that was taken."""
    tls: bool = False
    certificate_expires: datetime | None = None
    """Of the certificate that it presents."""
    load: Callable[[], Load] = field(default=Load, compare=False)


class Facts:
    """:param status: what the node says of itself at the moment
    :param log_check: what is said of the check of older segments
    """

    def __init__(
        self, status: Callable[[], NodeStatus], log_check: Callable[[], dict[str, Value]]
    ) -> None:
        self._status = status
        self._log_check = log_check
        self.settings: dict[str, Value] = {}
        """In force, by the names of their flags."""
        self.listening: tuple[Listening, ...] = ()
        self._hashed: tuple[int, str] | None = None

    def info(self) -> dict[str, Value]:
        """What INFO FOR NODE shows of it."""
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
        """The state's hash at that sequence, if it is the last that was computed."""
        hashed = self._hashed
        return hashed[1] if hashed is not None and hashed[0] == sequence else None

    def keep_state_hash(self, sequence: int, digest: str) -> None:
        """Remember a hash. :param sequence: durable; another is given again, to another commit,
        when a full disk takes it back"""
        self._hashed = sequence, digest
