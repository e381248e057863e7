"""Records, each with a unique number. Invariant: every node shows all acknowledged records, and
none that was never written."""

from __future__ import annotations

import itertools
import random

from tests.cluster.asking import PLACE, NodeRefused
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.plan import NodeAt


class Records(OperationHistory):
    NAME = "records"
    DEFINITIONS = "DEFINE TABLE seen"

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.tried: set[int] = set()
        """Numbers that may exist: all writes that were not refused."""
        self.shown: dict[str, set[int]] = {}
        """Final content, by node."""
        self._numbers = itertools.count(1)

    def act(self, asking: ClientRequests, node: NodeAt, chance: random.Random, who: str) -> None:
        number = next(self._numbers)
        self.tried.add(number)
        try:
            asking.write(node, "CREATE seen:[$n] SET n = $n RETURN NONE", n=number)
        except NodeRefused:
            self.tried.discard(number)
            raise
        self.acknowledged.add(number)

    def look(self, asking: ClientRequests, node: NodeAt) -> None:
        self.shown[node.name] = set(asking.asker.value(node, "SELECT VALUE n FROM seen", **PLACE))

    def wrong(self) -> list[str]:
        found = []
        for name, shown in self.shown.items():
            if lost := sorted(self.acknowledged - shown):
                found.append(f"{name} has lost {len(lost)} records: {lost[:5]} …")
            if invented := sorted(shown - self.tried):
                found.append(f"{name} has records that were never written: {invented[:5]} …")
        return found

    @property
    def figures(self) -> str:
        return f"{len(self.acknowledged)} records acknowledged"
