"""A lock for which clients contend, and a record that its fencing tokens guard.

The holder of the lock writes with its fencing token, and the record refuses tokens lower than one
that it has seen. So its writes, in their order, never go back to an earlier holder, whatever
happens to clocks, nodes and clients. While all clocks run alike, no two clients believe at once
that they hold the lock. A holder believes in its lease from the answer on. It stops when it
releases the lock, or after the requested duration, counted from the request.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tests.cluster.asking import PLACE
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.plan import NodeAt

LEASE_SECONDS: Final = 1.0
LOCK: Final = f"LOCK 'one' IN lock HOLDER $who EXPIRE {round(LEASE_SECONDS * 1000)}ms"
GUARDED: Final = (
    "UPDATE guarded:1 SET fence = $fence, who = $who, writes += 1 WHERE fence <= $fence"
)
WRITES_MOST: Final = 4


class BelievedLease(NamedTuple):
    """A lease, for as long as its holder believed in it."""

    began: float
    ended: float
    fence: int
    who: str


class Guarded(NamedTuple):
    """A write that the guarded record accepted."""

    number: int
    """Number of the write, as counted by the record."""
    fence: int
    who: str


class Locks(OperationHistory):
    """History of a lock.

    :param clocks_agree: False if clocks of nodes may differ: leases then end early after an
        election, and only the fencing tokens are checked
    """

    NAME = "locks"
    DEFINITIONS = (
        "DEFINE SPACE lock; DEFINE TABLE guarded;"
        " UPSERT guarded:1 SET fence = 0, writes = 0, who = ''"
    )

    def __init__(self, clocks_agree: bool = True) -> None:
        self.leases: list[BelievedLease] = []
        self.guarded: list[Guarded] = []
        self.refused = 0
        """Guarded writes that were refused for a stale fencing token."""
        self.ends: dict[str, Guarded] = {}
        """By node, the last write in its final state."""
        self.clocks_agree = clocks_agree
        self._lives = itertools.count(1)
        self._lock = threading.Lock()

    def act(self, asking: ClientRequests, node: NodeAt, chance: random.Random, who: str) -> None:
        # Nobody goes by a name twice: an answer that never came may have been a lease of its own.
        who = f"{who}.{next(self._lives)}"
        began = time.monotonic()
        held = asking.write(node, LOCK, who=who).values[-1]
        if not held["held"]:
            time.sleep(chance.random() * LEASE_SECONDS / 10)
            return
        got, fence = time.monotonic(), held["fence"]
        try:
            for _ in range(chance.randrange(1, WRITES_MOST)):
                self._write(asking, node, fence, who)
        finally:
            ended = min(time.monotonic(), began + LEASE_SECONDS)
            with self._lock:
                self.leases.append(BelievedLease(got, ended, fence, who))
        if chance.random() < 0.8:  # or it has died, and the lease runs out
            asking.write(node, "UNLOCK 'one' IN lock HOLDER $who", who=who)

    def _write(self, asking: ClientRequests, node: NodeAt, fence: int, who: str) -> None:
        taken = asking.write(node, GUARDED, fence=fence, who=who).values[-1]
        with self._lock:
            if taken:
                self.guarded.append(Guarded(taken[0]["writes"], fence, who))
            else:
                self.refused += 1

    def look(self, asking: ClientRequests, node: NodeAt) -> None:
        text = "SELECT writes, fence, who FROM guarded:1"
        (row,) = asking.asker.value(node, text, **PLACE)
        self.ends[node.name] = Guarded(row["writes"], row["fence"], row["who"])

    def wrong(self) -> list[str]:
        found = []
        if self.clocks_agree:
            found += [f"held by two: {one} and {two}" for one, two in two_holders(self.leases)]
        found += [f"fences go back: {one}, {two}" for one, two in out_of_order(self.guarded)]
        last = max(self.guarded, default=None)
        for name, end in self.ends.items():
            if last is not None and end[:2] < last[:2]:
                found.append(f"{name} has lost guarded writes: it ends with {end}, behind {last}")
        return found

    @property
    def figures(self) -> str:
        return (
            f"{len(self.leases)} leases of a lock, {len(self.guarded)} guarded writes,"
            f" {self.refused} refused for their fence"
        )


def two_holders(leases: Iterable[BelievedLease]) -> list[tuple[Any, Any]]:
    """Return pairs of leases that overlap, or whose fencing tokens are not in the order of time."""
    believed = sorted(one for one in leases if one.ended > one.began)
    return [
        (one, two)
        for one, two in pairwise(believed)
        if one.ended > two.began or one.fence >= two.fence
    ]


def out_of_order(writes: Iterable[Guarded]) -> list[tuple[Any, Any]]:
    """Return pairs of writes of which the later has a lower fencing token, the same number, or the
    token of another client."""
    return [
        (one, two)
        for one, two in pairwise(sorted(writes))
        if two.fence < one.fence
        or two.number == one.number
        or (two.fence == one.fence and two.who != one.who)
    ]
