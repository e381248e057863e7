"""What a surface counts. On every request, so it is plain integers in a dict."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counters:
    """What one surface counted since it started."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.seconds: dict[str, list[int]] = {}
        self.seconds_sum: dict[str, float] = {}
        self.connections = 0
        self.refused_connections = 0

    def answer(self, method: str, path: str, status: int) -> None:
        """One more answer, by what it is counted under."""
        key = (method, path, status)
        self.requests[key] = self.requests.get(key, 0) + 1

    def ran(self, path: str, seconds: float) -> None:
        """How long one running request took."""
        buckets = self.seconds.get(path)
        if buckets is None:
            buckets = self.seconds[path] = [0] * (len(BUCKETS_S) + 1)
            self.seconds_sum[path] = 0.0
        buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds_sum[path] += seconds
