"""Registers: records of one value each, which are written, compared and set, and read.

Reads on any node use CURRENT, or `after` the newest sequence that any client has seen. Reads with
neither go to the leader. Such a read counts only if a later statement of the same script shows that
the lease has not expired: no other plain read is guaranteed to be linearizable.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from math import inf
from typing import Any, Final

from tests.cluster.asking import PLACE, ResultUnknown, leads
from tests.cluster.histories.history import ClientRequests, OperationHistory
from tests.cluster.histories.linear import ABSENT, Operation, impossible
from tests.cluster.plan import NodeAt

KEYS: Final = 3
"""Number of keys in use at once."""
EACH: Final = 80
"""Operations on a key, after which another replaces it: it bounds the linearizability check."""
READ: Final = "SELECT VALUE v FROM register:[$key]"


class KeysInUse:
    def __init__(self, count: int = KEYS, each: int = EACH) -> None:
        self._count = count
        self._each = each
        self._given = itertools.count()

    def draw(self, chance: random.Random) -> str:
        """Return a random key in use."""
        return f"{next(self._given) // (self._each * self._count)}.{chance.randrange(self._count)}"


class Registers(OperationHistory):
    NAME = "registers"
    DEFINITIONS = "DEFINE TABLE register"

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self._keys = KeysInUse()
        self._values = itertools.count(1)
        self._seen: dict[str, Any] = {}
        """By key, a value that a client has seen: a useful operand of compare-and-set."""
        self._lock = threading.Lock()

    def act(self, asking: ClientRequests, node: NodeAt, chance: random.Random, who: str) -> None:
        key, kind = self._keys.draw(chance), chance.random()
        if kind < 0.25:
            self._change(asking, node, key, "set", (next(self._values),))
        elif kind < 0.5:
            with self._lock:
                seen = self._seen.get(key, ABSENT)
            if seen == ABSENT:
                seen = 0  # which is nowhere
            self._change(asking, node, key, "swap", (seen, next(self._values)))
        elif kind < 0.6:
            self._read_by_lease(asking, node, key)
        elif kind < 0.8:
            self._read_current(asking, chance.choice(asking.nodes), key)
        else:
            self._read(asking, chance.choice(asking.nodes), key)

    def _change(
        self, asking: ClientRequests, node: NodeAt, key: str, name: str, values: Any
    ) -> None:
        began = time.monotonic()
        try:
            if name == "set":
                text = "UPSERT register:[$key] SET k = $key, v = $v RETURN NONE"
                asking.write(node, text, key=key, v=values[0])
                answer = True
            else:
                text = "UPDATE register:[$key] SET v = $v WHERE v = $old"
                found = asking.write(node, text, key=key, old=values[0], v=values[1])
                answer = bool(found.values[-1])
        except ResultUnknown:
            self._add(Operation(key, name, values, None, began))
            raise
        self._add(Operation(key, name, values, answer, began, time.monotonic()))
        if answer:
            with self._lock:
                self._seen[key] = values[-1]

    def _read_by_lease(self, asking: ClientRequests, node: NodeAt, key: str) -> None:
        began = time.monotonic()
        found = asking.read(node, f"{READ}; INFO FOR NODE", params={"key": key})
        if found is not None and leads(found.values[-1]):
            self._saw(key, found.values[0], began)

    def _read(self, asking: ClientRequests, node: NodeAt, key: str) -> None:
        began = time.monotonic()  # before `newest` is read: no operation ends in between
        found = asking.read(node, READ, params={"key": key}, after=asking.newest)
        if found is not None:
            self._saw(key, found.values[-1], began)

    def _read_current(self, asking: ClientRequests, node: NodeAt, key: str) -> None:
        began = time.monotonic()
        found = asking.read(node, f"{READ} CURRENT", params={"key": key})
        if found is not None:
            self._saw(key, found.values[-1], began)

    def _saw(self, key: str, rows: list[Any], began: float) -> None:
        value = rows[0] if rows else ABSENT
        self._add(Operation(key, "get", (), value, began, time.monotonic()))
        with self._lock:
            self._seen[key] = value

    def _add(self, operation: Operation) -> None:
        with self._lock:
            self.history.append(operation)

    def look(self, asking: ClientRequests, node: NodeAt) -> None:
        began = time.monotonic()
        text = "SELECT k, v FROM register"
        found = asking.asker.ask(node, text, after=asking.newest, **PLACE).values[-1]
        values = {row["k"]: row["v"] for row in found}
        for key in {operation.key for operation in self.history}:
            self._saw(key, [values[key]] if key in values else [], began)

    def wrong(self) -> list[str]:
        return not_one_after_the_other("register", self.history)

    @property
    def figures(self) -> str:
        return counted(self.history, "registers")


def not_one_after_the_other(kind: str, history: list[Operation]) -> list[str]:
    """Describe the keys whose operations are not linearizable."""
    found = []
    for key in impossible(history):
        part = sorted((one for one in history if one.key == key), key=lambda one: one.began)
        told = "; ".join(
            f"{one.name}{one.arguments} = {one.answer} [{one.began:.3f}, {one.ended:.3f}]"
            for one in part
        )
        found.append(f"{kind} {key} can't have been so: {told}")
    return found


def counted(history: list[Operation], what: str) -> str:
    """Return the counts of operations, as text."""
    unknown = sum(one.ended == inf for one in history)
    keys = len({one.key for one in history})
    return f"{len(history)} operations on {keys} {what}, {unknown} with an unknown end"
