"""Counters of the surfaces: plain integers, since they change on every request."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, Protocol

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


REQUESTS: Final = ("HELLO", "AUTH", "RUN", "KV", "TOPIC", "WATCH", "VAULT", "PING")
"""Request types of the wire protocol that get a response."""
REFUSALS: Final = (
    "AnswerTooLarge",
    "Busy",
    "Conflict",
    "Failed",
    "RequestTimeout",
    "SignInRefused",
)
"""Frequent error codes of the wire, counted from zero so that the first one shows as a change."""


class Counters:
    """Counters of one surface since its start."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[int]] = {}
        self.seconds_sum: dict[str, float] = {}
        self.connections = 0
        self.refused_connections = 0

    def ran(self, what: str, seconds: float, count: int = 1) -> None:
        """Count `count` requests that took `seconds` each."""
        buckets = self.seconds.get(what)
        if buckets is None:
            buckets = self.seconds[what] = [0] * (len(BUCKETS_S) + 1)
            self.seconds_sum[what] = 0.0
        buckets[bisect_left(BUCKETS_S, seconds)] += count
        self.seconds_sum[what] += seconds * count


class HttpCounters(Counters):
    """Counters of the HTTP surface."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[tuple[str, str, int], int] = {}

    def answer(self, method: str, path: str, status: int) -> None:
        """Count a response by method, path and status."""
        key = (method, path, status)
        self.requests[key] = self.requests.get(key, 0) + 1


class WireCounters(Counters):
    """Counters of the wire surface."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = dict.fromkeys(REQUESTS, 0)
        """Responses by request type."""
        self.refusals = dict.fromkeys(REFUSALS, 0)
        """Refusals by error code."""
        for kind in REQUESTS:
            if kind != "WATCH":
                self.ran(kind, 0.0, 0)
        self.received = 0
        """Bytes received."""
        self.sent = 0
        """Bytes sent."""

    def answer(self, kind: str, count: int) -> None:
        """Count responses to requests of a type."""
        self.requests[kind] += count

    def refuse(self, code: str) -> None:
        """Count a refusal."""
        self.refusals[code] = self.refusals.get(code, 0) + 1


class CountedWire(Protocol):
    """The wire surface, as far as /metrics shows it."""

    @property
    def counters(self) -> WireCounters:
        """Return the surface's counters."""

    @property
    def held(self) -> int:
        """Number of open connections."""

    @property
    def running(self) -> int:
        """Number of running scripts."""
