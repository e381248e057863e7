"""Content of records as segments take it: terms of texts, or vectors.

Vectors import numpy, which is loaded with the first of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from storage.indexes.entries import Index, IndexedFields
from storage.indexes.fresh_markers import FreshMarkers
from storage.indexes.text_markers import TextMarkers
from storage.indexes.vector_markers import VectorMarkers
from storage.search.segments import Get, SegmentBuilder, TextBuilder
from storage.search.trainings import NO_LISTS

FOLD_SIZE: Final = 2_000_000
"""Occurrences of terms, or numbers of vectors, after which a fold takes no further record."""
MERGED_WORDS: Final = 4_000_000
"""Most words of a segment that others are merged into, about."""
MERGED_NUMBERS: Final = 16_000_000
"""Most numbers of vectors of such a segment, about."""

Field = tuple[Mapping[str, Sequence[int]], int]
"""Terms of a field with their places, and its number of words."""


class Content(Protocol):
    """Content of one index.

    :ivar digest: of all that its segments depend on; those with another one are made again
    :ivar merged: most size of a segment that others are merged into
    """

    digest: bytes
    merged: int

    def builder(self) -> SegmentBuilder:
        """Return the builder of a segment."""

    def add(self, builder: Any, id: bytes, packed: bytes) -> Iterator[None]:
        """Add a record to a builder, in steps, if it has content. :param packed: its fields"""


class TextAnalysis(Protocol):
    """Analyzer of an index, as folds use it."""

    digest: bytes

    def postings_in_steps(self, value: Any) -> Generator[None, None, Field]:
        """Return the terms of a value. A generator, which pauses after some hundreds of words."""


class TextContent:
    """Content of a FULLTEXT index."""

    merged = MERGED_WORDS

    def __init__(self, index: Index, analysis: TextAnalysis) -> None:
        self.digest = analysis.digest
        self._analysis, self._fields = analysis, len(index.paths)
        self._rows = IndexedFields((index,))
        self._markers: FreshMarkers = TextMarkers(index, self._rows.heads)

    def builder(self) -> TextBuilder:
        """Return the builder of a segment."""
        return TextBuilder(self._fields)

    def add(self, builder: TextBuilder, id: bytes, packed: bytes) -> Iterator[None]:
        """Add a record to a builder, if it has text."""
        texts = self._markers.content(self._rows.of_packed(packed))
        if not any(texts):
            return
        fields = []
        for text in texts:
            fields.append((yield from self._analysis.postings_in_steps(text)))
        yield from builder.add(id, fields)


class VectorContent:
    """Content of a VECTOR index, by the lists that it has now."""

    merged = MERGED_NUMBERS

    def __init__(self, index: Index, get: Get) -> None:
        # They import numpy, which nodes without such an index don't load.
        from storage.search import centroids
        from storage.search.vectors import VectorBuilder, form_digest

        assert index.vector is not None
        self._options = index.vector
        known = centroids.load(get, index)
        self._assign = known[-1].assign if known else None
        lists = known[-1].training.digest if known else NO_LISTS
        self.digest = form_digest(index.vector) + lists
        self._builder = VectorBuilder
        self._read = VectorReader(index)

    def builder(self) -> SegmentBuilder:
        """Return the builder of a segment."""
        return self._builder(self._options, self._assign)

    def add(self, builder: Any, id: bytes, packed: bytes) -> Iterator[None]:
        """Add a record to a builder, if it has a vector."""
        value = self._read(packed)
        if value is not None:
            builder.add(id, value)
        return iter(())


class VectorReader:
    """Reads the vectors of records."""

    def __init__(self, index: Index) -> None:
        assert index.vector is not None
        self._rows = IndexedFields((index,))
        self._markers = VectorMarkers(index, index.vector, self._rows.heads)

    def __call__(self, packed: bytes) -> list[Any] | None:
        """Return the vector of a record; None: it has none.

        :param packed: its fields
        :raises TypeRefused: it does not fit, and an index that is being built has not met it yet
        """
        value = self._markers.content(self._rows.of_packed(packed))
        if not self._markers.has_content(value):
            return None
        self._markers.check(value)
        return value  # type: ignore[no-any-return]
