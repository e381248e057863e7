"""Interface of a history: its operations and its checker (as in Jepsen); and the clients'
requests."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from tests.cluster.asking import PLACE, ClusterClient, NodeRefused, ResultUnknown, ScriptResults
from tests.cluster.plan import NodeAt

READ_TIMEOUT: Final = "1s"
"""Timeout of a read, short enough that a lagging node answers before its client gives up."""


@dataclass
class AnswerCounts:
    """Counts of answers to clients, by outcome."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    reads: int = 0
    last: float = field(default_factory=time.monotonic)
    """Monotonic time of the last acknowledgement, seconds."""


class ClientRequests:
    """Requests of all clients of a cluster.

    It remembers the newest sequence that any client has seen: the lower bound of causal reads.
    """

    def __init__(self, asker: ClusterClient) -> None:
        self.asker = asker
        self.told = AnswerCounts()
        self._newest = 0
        self._lock = threading.Lock()

    @property
    def nodes(self) -> Sequence[NodeAt]:
        return self.asker.plan.nodes

    @property
    def newest(self) -> int:
        """Newest sequence of any answer so far."""
        with self._lock:
            return self._newest

    def wait_for_each(self, seconds: float) -> None:
        """Set the timeout of each later answer, seconds."""
        self.asker = replace(self.asker, seconds=seconds)

    def write(self, node: NodeAt, text: str, **params: object) -> ScriptResults:
        """Run a script that writes, and count its outcome. Raises as `ClusterClient.ask`."""
        try:
            found = self.asker.ask(node, text, params=params, **PLACE)
        except ResultUnknown:
            with self._lock:
                self.told.unknown += 1
            raise
        except NodeRefused:
            with self._lock:
                self.told.refused += 1
            raise
        self._saw(found)
        with self._lock:
            self.told.acknowledged += 1
            self.told.last = time.monotonic()
        return found

    def read(self, node: NodeAt, text: str, **fields: Any) -> ScriptResults | None:
        """Run a script that reads; None: it failed.

        :param fields: additional fields of the request, such as `after`
        """
        try:
            found = self.asker.ask(node, text, timeout=READ_TIMEOUT, **PLACE, **fields)
        except (NodeRefused, ResultUnknown):
            return None
        self._saw(found)
        with self._lock:
            self.told.reads += 1
        return found

    def _saw(self, found: ScriptResults) -> None:
        with self._lock:
            self._newest = max(self._newest, found.sequence)


class OperationHistory(ABC):
    """Operations of one kind, and their outcomes. Several clients act concurrently."""

    NAME: ClassVar[str]
    DEFINITIONS: ClassVar[str]
    """Statements that define the initial state of the database."""

    @abstractmethod
    def act(self, asking: ClientRequests, node: NodeAt, chance: random.Random, who: str) -> None:
        """Run one operation and record its outcome.

        :param node: presumed leader
        :param who: name of the client, which runs one operation at a time
        :raises Refused: a change was refused: another node may lead
        :raises Unknown: the outcome of a change is unknown
        """

    @abstractmethod
    def look(self, asking: ClientRequests, node: NodeAt) -> None:
        """Record the final reads of a node, which holds everything by then.

        :raises Refused: the read was refused
        :raises Unknown: the read was not answered
        """

    @abstractmethod
    def wrong(self) -> list[str]:
        """Return the anomalies in the history; empty: it is valid."""

    @property
    @abstractmethod
    def figures(self) -> str:
        """Counts of operations, as text."""

    def finish(self, asking: ClientRequests, leader: NodeAt) -> None:  # noqa: B027 - most have nothing
        """Complete the history on the leader, after all clients have stopped and all faults are
        healed."""
