"""What each kind of history can do, and what they ask through."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from bench.cluster.asking import PLACE, Answered, Asker, Refused, Unknown
from bench.cluster.plan import NodeAt

READ_TIMEOUT: Final = "1s"
"""A node that is behind lets go of a read in time for its client to hear of it."""


@dataclass
class Told:
    """How often clients heard what."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    reads: int = 0
    last: float = field(default_factory=time.monotonic)
    """When something was acknowledged last."""


class Asking:
    """What all clients of a cluster ask through: it remembers the newest sequence that anyone has
    seen, which is what a read may not be older than."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.told = Told()
        self._newest = 0
        self._lock = threading.Lock()

    @property
    def nodes(self) -> Sequence[NodeAt]:
        """All nodes."""
        return self.asker.plan.nodes

    @property
    def newest(self) -> int:
        """The newest sequence that an answer had so far."""
        with self._lock:
            return self._newest

    def wait_for_each(self, seconds: float) -> None:
        """Wait so long for each answer from now on."""
        self.asker = replace(self.asker, seconds=seconds)

    def write(self, node: NodeAt, text: str, **params: object) -> Answered:
        """Have a node change something. :raises Refused: :raises Unknown:"""
        try:
            found = self.asker.ask(node, text, params=params, **PLACE)
        except Unknown:
            with self._lock:
                self.told.unknown += 1
            raise
        except Refused:
            with self._lock:
                self.told.refused += 1
            raise
        self._saw(found)
        with self._lock:
            self.told.acknowledged += 1
            self.told.last = time.monotonic()
        return found

    def read(self, node: NodeAt, text: str, **fields: Any) -> Answered | None:
        """Have a node show something; None: it did not.

        :param fields: more of the request than what is asked, as `after`
        """
        try:
            found = self.asker.ask(node, text, timeout=READ_TIMEOUT, **PLACE, **fields)
        except (Refused, Unknown):
            return None
        self._saw(found)
        with self._lock:
            self.told.reads += 1
        return found

    def _saw(self, found: Answered) -> None:
        with self._lock:
            self._newest = max(self._newest, found.sequence)


class History(ABC):
    """One kind of what clients do, and all that came of it. Several clients act at once."""

    NAME: ClassVar[str]
    DEFINITIONS: ClassVar[str]
    """What the database holds before anybody acts."""

    @abstractmethod
    def act(self, asking: Asking, node: NodeAt, chance: random.Random, who: str) -> None:
        """Do one thing, and remember what came of it.

        :param node: who is thought to lead
        :param who: the client; it does one thing at a time
        :raises Refused: a change was refused: somebody else may lead
        :raises Unknown: nobody knows what became of a change
        """

    @abstractmethod
    def look(self, asking: Asking, node: NodeAt) -> None:
        """The last that is done: look at what a node shows, which has all by now.

        :raises Refused: it shows nothing
        :raises Unknown: likewise
        """

    @abstractmethod
    def wrong(self) -> list[str]:
        """What of all that can't be true; nothing: it can."""

    @property
    @abstractmethod
    def figures(self) -> str:
        """How much was tried."""

    def finish(self, asking: Asking, leader: NodeAt) -> None:  # noqa: B027 - most have nothing
        """Do what has to be done on who leads, when nobody acts any more and all is whole."""
