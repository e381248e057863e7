"""Clients that send requests in a loop, each operation on a random history, to the presumed
leader."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from tests.cluster.asking import PLACE, ClusterClient, NodeRefused, ResultUnknown
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.histories.locks import Locks
from tests.cluster.plan import ClusterPlan, NodeAt

COUNT: Final = 6
PAUSE_SECONDS: Final = 0.05
"""Pause between two attempts after a refusal, seconds."""
PATIENCE_SECONDS: Final = 60
"""Timeout of an answer while no fault is active, seconds."""
PROBE_SECONDS: Final = 0.5
"""Timeout of an answer to the probe, seconds."""


class Wrong(Exception):
    """An invariant is violated; the message says which."""


class Clients:
    """Client threads, and one that probes: see `Probe`.

    :param histories: kinds of operations; each client picks one at random each time
    """

    def __init__(
        self,
        plan: ClusterPlan,
        histories: Sequence[OperationHistory],
        seed: int,
        count: int = COUNT,
    ) -> None:
        self.asking = ClientRequests(ClusterClient(plan))
        self.probe = Probe(plan)
        self._histories = histories
        self._over = threading.Event()
        self._failed: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._ask, seed, number), daemon=True)
            for number in range(count)
        ]

    def define(self, leader: NodeAt) -> None:
        """Define the database of the histories. Remains of an earlier run are dropped."""
        ns, db = PLACE["ns"], PLACE["db"]
        texts = [
            f"DEFINE NAMESPACE IF NOT EXISTS {ns}; DROP NAMESPACE {ns}",
            f"DEFINE NAMESPACE {ns}; DEFINE DATABASE {ns}.{db}",
            f"USE {ns}.{db}; DEFINE TABLE probe",
            *(one.DEFINITIONS for one in self._histories),
        ]
        ClusterClient(self.asking.asker.plan, PATIENCE_SECONDS).script(leader, "; ".join(texts))

    def clocks_differ(self) -> None:
        """Note that the clocks of nodes have differed: leases of locks may have ended early."""
        for one in self._histories:
            if isinstance(one, Locks):
                one.clocks_agree = False

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()
        self.probe.begin()

    def end(self) -> None:
        """Stop the clients.

        :raises Exception: a client failed, other than by an answer of a node
        """
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.probe.end()
        for error in self._failed:
            raise error

    def judge(self, leader: NodeAt) -> list[str]:
        """Read the final state of every node and check the histories. Return the anomalies.

        Called after the clients have stopped and all faults are healed.
        """
        self.asking.wait_for_each(PATIENCE_SECONDS)
        for one in self._histories:
            one.finish(self.asking, leader)
        for node in self.asking.nodes:
            for one in self._histories:
                one.look(self.asking, node)
        return [wrong for one in self._histories for wrong in one.wrong()]

    @property
    def figures(self) -> str:
        told = self.asking.told
        return "\n".join(
            [
                f"{told.acknowledged} changes acknowledged, {told.unknown} with an unknown end,"
                f" {told.refused} refused; {told.reads} reads",
                *(one.figures for one in self._histories),
            ]
        )

    def _guarded(self, target: Callable[[int, int], None], seed: int, number: int) -> None:
        try:
            target(seed, number)
        except Exception as error:
            self._failed.append(error)

    def _ask(self, seed: int, number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        node = chance.choice(self.asking.nodes)
        while not self._over.is_set():
            history = chance.choice(self._histories)
            try:
                history.act(self.asking, node, chance, f"c{number}")
            except NodeRefused:
                node = chance.choice(self.asking.nodes)
                time.sleep(PAUSE_SECONDS)
            except ResultUnknown:
                node = chance.choice(self.asking.nodes)


class Probe:
    """Availability probe: writes a record in a loop, and gives each node in turn half a second.

    So it never waits for a paused node, and its gaps are the times in which no node accepted a
    write.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        self._asker = ClusterClient(plan, PROBE_SECONDS)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._times: list[float] = []
        self._thread = threading.Thread(target=self._write, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    @property
    def last(self) -> float:
        """Monotonic time of the last acknowledged write, seconds."""
        with self._lock:
            return self._times[-1] if self._times else 0.0

    def longest(self, since: float) -> float:
        """Return the longest time without a write between `since` and the last write, seconds."""
        with self._lock:
            times = [since, *(one for one in self._times if one > since)]
        return max((two - one for one, two in pairwise(times)), default=0.0)

    def _write(self) -> None:
        turn = number = 0
        nodes = self._asker.plan.nodes
        while not self._over.is_set():
            number += 1
            text = f"UPSERT probe:1 SET n = {number} RETURN NONE"
            try:
                self._asker.script(nodes[turn % len(nodes)], text, **PLACE)
            except (NodeRefused, ResultUnknown):
                turn += 1
                time.sleep(0.01)
            else:
                with self._lock:
                    self._times.append(time.monotonic())
                time.sleep(PAUSE_SECONDS)
