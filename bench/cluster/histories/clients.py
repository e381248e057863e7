"""Clients that ask without end, each for one kind of history at a time, wherever somebody leads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from bench.cluster.asking import PLACE, Asker, Refused, Unknown
from bench.cluster.histories.history import Asking, History
from bench.cluster.plan import NodeAt, Plan

COUNT: Final = 6
PAUSE_SECONDS: Final = 0.05
"""Between two tries of one that was refused."""
PATIENCE_SECONDS: Final = 60
"""How long is waited for an answer when nothing is broken."""
PROBE_SECONDS: Final = 0.5
"""How long the probe waits for an answer."""


class Wrong(Exception):
    """A promise does not hold; the text says which."""


class Clients:
    """So many threads, and one that probes: see `Probe`.

    :param histories: the kinds that are asked for; each client takes one of them by chance
    """

    def __init__(
        self, plan: Plan, histories: Sequence[History], seed: int, count: int = COUNT
    ) -> None:
        self.asking = Asking(Asker(plan))
        self.probe = Probe(plan)
        self._histories = histories
        self._over = threading.Event()
        self._failed: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._ask, seed, number), daemon=True)
            for number in range(count)
        ]

    def define(self, leader: NodeAt) -> None:
        """Make what the histories are of. What an earlier run has left goes."""
        ns, db = PLACE["ns"], PLACE["db"]
        texts = [
            f"DEFINE NAMESPACE IF NOT EXISTS {ns}; DROP NAMESPACE {ns}",
            f"DEFINE NAMESPACE {ns}; DEFINE DATABASE {ns}.{db}",
            f"USE {ns}.{db}; DEFINE TABLE probe",
            *(one.DEFINITIONS for one in self._histories),
        ]
        Asker(self.asking.asker.plan, PATIENCE_SECONDS).script(leader, "; ".join(texts))

    def begin(self) -> None:
        """Ask from now on."""
        for thread in self._threads:
            thread.start()
        self.probe.begin()

    def end(self) -> None:
        """Ask no more. :raises Exception: what a client failed with, that is no answer"""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.probe.end()
        for error in self._failed:
            raise error

    def judge(self, leader: NodeAt) -> list[str]:
        """When all is whole and nobody asks any more: see what every node shows, and say what of
        all that can't be true."""
        self.asking.wait_for_each(PATIENCE_SECONDS)
        for one in self._histories:
            one.finish(self.asking, leader)
        for node in self.asking.nodes:
            for one in self._histories:
                one.look(self.asking, node)
        return [wrong for one in self._histories for wrong in one.wrong()]

    @property
    def figures(self) -> str:
        """How much was tried."""
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
            except Refused:
                node = chance.choice(self.asking.nodes)
                time.sleep(PAUSE_SECONDS)
            except Unknown:
                node = chance.choice(self.asking.nodes)


class Probe:
    """One that writes a record again and again, and asks each node in turn for a moment: so it
    never waits for one that stands still, and its gaps are those in which nobody took a write."""

    def __init__(self, plan: Plan) -> None:
        self._asker = Asker(plan, PROBE_SECONDS)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._times: list[float] = []
        self._thread = threading.Thread(target=self._write, daemon=True)

    def begin(self) -> None:
        """Write from now on."""
        self._thread.start()

    def end(self) -> None:
        """Write no more."""
        self._over.set()
        self._thread.join()

    @property
    def last(self) -> float:
        """When a write was acknowledged last."""
        with self._lock:
            return self._times[-1] if self._times else 0.0

    def longest(self, since: float) -> float:
        """The longest time without a write from some moment to the last one, in seconds."""
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
            except (Refused, Unknown):
                turn += 1
                time.sleep(0.01)
            else:
                with self._lock:
                    self._times.append(time.monotonic())
                time.sleep(PAUSE_SECONDS)
