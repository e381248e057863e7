"""Folds of FULLTEXT and VECTOR indexes: fresh records become segments, in slices of the loop.

They are a part of the index builder, `actor.py`. Every node folds for itself, whether it leads or
follows: segments are derived from records and in no log. One index is folded at a time. While no
record is fresh, a look at each index a second costs one seek.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from actors.commits.committer import Committer
from actors.indexes.metrics import SearchWork
from language.search.analysis import Analyzer
from language.search.compiled import analyzer_of, digest_of
from protocol import limits
from storage.indexes.entries import Index
from storage.search.contents import Content, TextContent, VectorContent
from storage.search.folding import WAITS, Fold
from storage.search.segments import Get

LOOK_SECONDS: Final = 1.0
"""Delay until the next look for fresh records, seconds."""
WAIT_SECONDS: Final = 0.02
"""Delay while the engine takes no writes, seconds."""


class _Analysis:
    """Analyzer of an index: `contents.TextAnalysis`."""

    def __init__(self, analyzer: Analyzer, digest: bytes) -> None:
        self.digest = digest
        self.postings_in_steps = analyzer.postings_in_steps


def analysis_of(index: Index) -> _Analysis:
    """Return the analyzer of an index."""
    assert index.text is not None
    definition = index.text.definition
    return _Analysis(analyzer_of(definition), digest_of(definition))


def content_of(index: Index, get: Get) -> Content:
    """Return the content of an index of segments. :param get: of the state"""
    if index.vector is not None:
        return VectorContent(index, get)
    return TextContent(index, analysis_of(index))


class SegmentFolds:
    """Work of the builder on indexes made of segments.

    :param now_us: monotonic clock
    """

    def __init__(
        self, committer: Committer, now_us: Callable[[], int], counted: SearchWork
    ) -> None:
        ledger = committer.ledger
        self._state, self._now_us = ledger.state, now_us
        self._fold = Fold(
            ledger.state.engine,
            ledger.state.marked,
            content_of,
            lambda: ledger.may_apply and not ledger.applies_part and not committer.disk_full,
        )
        self._work: Iterator[object] | None = None
        self._counted = counted
        self._took_us = 0
        """Time that the work has taken."""
        self.indexes: list[bytes] = []
        """Keys of the declarations of these indexes."""
        self._queue: deque[bytes] = deque()
        """Indexes of this round that may have fresh records."""
        self._searched = False
        """True if the next work is the first after a search of the declarations."""
        self._catalog: int | None = None
        """Version of the catalog in which the declarations were searched; None: not yet."""

    def slice(self) -> float | None:
        """Work for one slice. Return the delay until the next; None: there is no such index.

        :raises EngineFailed: the engine can't be read or written
        """
        at_us = self._now_us()
        until_us = at_us + limits.INDEX_SLICE_US
        while at_us < until_us:
            if self._work is None:
                self._work = self._next()
                if self._work is None:
                    return LOOK_SECONDS if self.indexes or self._catalog is None else None
            # Cleared first: work that fails is not gone on with.
            work, self._work = self._work, None
            done = object()
            step = next(work, done)
            before_us, at_us = at_us, self._now_us()
            self._took_us += at_us - before_us
            if step is done:
                self._count()
                continue
            self._work = work
            if step is WAITS:
                return WAIT_SECONDS
        return 0.0

    def _count(self) -> None:
        kind = self._fold.kind
        if kind is not None:
            self._counted.add(kind, self._took_us)
        self._took_us, self._fold.kind = 0, None

    @property
    def any(self) -> bool:
        """True if there is such an index, as far as is known."""
        return bool(self.indexes)

    def close(self) -> None:
        """End the work: its view of the engine is released."""
        if self._work is not None:
            self._work.close()  # type: ignore[attr-defined]
            self._work = None

    def _next(self) -> Iterator[object] | None:
        """Return the next work; None: none until the next look."""
        if self._searched:
            self._searched = False
        elif self._catalog != self._state.catalog_version:
            self._searched = True
            # Declarations that are pending are not in the engine yet: the next look searches again.
            known = self._state.engine.applied >= self._state.catalog_version
            self._catalog = self._state.catalog_version if known else None
            return self._search()
        while self._queue:
            key = self._queue.popleft()
            work = self._fold.work(key)
            if work is not None:
                # A fold takes a bounded number of records: there may be more.
                self._queue.append(key)
                return work
        self._queue.extend(self.indexes)
        return None

    def _search(self) -> Iterator[object]:
        found: list[bytes] = []
        for keys in self._fold.declared():
            found += keys
            yield None
        self.indexes = found
        self._queue.clear()
        self._queue.extend(found)
