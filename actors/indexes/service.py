"""The index builder as others see it: messages to it, and recent query vectors."""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Final

from pykka import ActorRef

from actors.indexes.metrics import SearchWork
from actors.runtime import tell


@dataclass(frozen=True, slots=True)
class FoldRecords:
    """Message of the builder to itself: records of FULLTEXT or VECTOR indexes may be fresh."""


@dataclass(frozen=True, slots=True)
class SearchIndexes:
    """Message after an index was declared, and at the start of a lead: any index may have to be
    built."""


class LiveQueries:
    """The last query vectors of each VECTOR index: what its recall is measured with. They are in
    memory alone, and never shown."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, deque[array[float]]] = OrderedDict()
        self._numbers = 0
        """Numbers of all vectors."""

    def add(self, index: bytes, vector: list[Any]) -> None:
        """Keep a query vector. :param index: prefix of its entries"""
        found = self._known.setdefault(index, deque())
        found.append(array("d", map(float, vector)))
        self._numbers += len(vector)
        if len(found) > QUERIES:
            self._numbers -= len(found.popleft())
        self._known.move_to_end(index)
        while self._numbers > QUERY_NUMBERS:
            _, gone = self._known.popitem(last=False)
            self._numbers -= sum(map(len, gone))

    def of(self, index: bytes) -> list[array[float]]:
        """Return those of an index."""
        return list(self._known.get(index, ()))


QUERIES: Final = 256
"""Query vectors that are kept of an index."""
QUERY_NUMBERS: Final = 2_000_000
"""Numbers of all query vectors that are kept, of 8 bytes each."""


class IndexBuilderHandle:
    """Handle of the builder for other code on the loop; it stays valid if the actor is replaced."""

    builder: ActorRef[Any] | None = None

    def __init__(self) -> None:
        self.work = SearchWork()
        """Work of the builder, for /metrics."""
        self.queries = LiveQueries()
        """Recent query vectors of VECTOR indexes."""
        self.ending: set[asyncio.Task[None]] = set()
        """Trainings and measurements that end, of builders that were stopped."""

    async def ended(self) -> None:
        """Wait until no training and no measurement is left; the builder was stopped."""
        if self.ending:
            await asyncio.wait(self.ending)

    def wake(self) -> None:
        """Notify the builder of a declared index that is not built yet."""
        if self.builder is not None:
            tell(self.builder, SearchIndexes())

    def fold(self) -> None:
        """Notify the builder of a FULLTEXT or VECTOR index that was declared or changed."""
        if self.builder is not None:
            tell(self.builder, FoldRecords())
