"""Counters: keys of the cache that are incremented, and read on any node with `after`."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from tests.cluster.asking import PLACE, ResultUnknown
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.histories.linear import ABSENT, Operation
from tests.cluster.histories.registers import KeysInUse, counted, not_one_after_the_other
from tests.cluster.plan import NodeAt


class Counters(OperationHistory):
    NAME = "counters"
    DEFINITIONS = "DEFINE SPACE counter"

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self._keys = KeysInUse()
        self._lock = threading.Lock()

    def act(self, asking: ClientRequests, node: NodeAt, chance: random.Random, who: str) -> None:
        key = self._keys.draw(chance)
        if chance.random() < 0.4:
            self._read(asking, chance.choice(asking.nodes), key)
            return
        began = time.monotonic()
        try:
            found = asking.write(node, "INCR $key IN counter", key=key)
        except ResultUnknown:
            self._add(Operation(key, "incr", (), None, began))
            raise
        number = found.values[-1]["value"]
        self._add(Operation(key, "incr", (), number, began, time.monotonic()))

    def _read(self, asking: ClientRequests, node: NodeAt, key: str) -> None:
        began = time.monotonic()  # before `newest` is read: no operation ends in between
        params = {"key": key}
        found = asking.read(node, "GET $key FROM counter", params=params, after=asking.newest)
        if found is not None:
            self._saw(key, found.values[-1], began)

    def _saw(self, key: str, got: dict[str, Any], began: float) -> None:
        value = got.get("value", ABSENT)  # {"$none": true} has none: there is no such key
        self._add(Operation(key, "get", (), value, began, time.monotonic()))

    def _add(self, operation: Operation) -> None:
        with self._lock:
            self.history.append(operation)

    def look(self, asking: ClientRequests, node: NodeAt) -> None:
        keys = sorted({operation.key for operation in self.history})
        began = time.monotonic()
        text = "; ".join(f"GET '{key}' FROM counter" for key in keys) or "RETURN NONE"
        found = asking.asker.ask(node, text, after=asking.newest, **PLACE)
        for key, got in zip(keys, found.values, strict=False):
            self._saw(key, got, began)

    def wrong(self) -> list[str]:
        return not_one_after_the_other("counter", self.history)

    @property
    def figures(self) -> str:
        return counted(self.history, "counters")
