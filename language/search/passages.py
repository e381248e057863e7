"""Matches marked in a text: offsets, highlights and snippets.

Only the words that make a match are marked: of a phrase those of its occurrences. Negated parts of
a query mark nothing. Offsets count characters. A text may have half a million words, so all walks
are ticked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Final

from language.search.analysis import Analyzer, Word
from language.search.matching import expanded, phrase_places
from language.search.terms import Phrase, Query, Term, leaves
from protocol.values import Tick, paced

Span = tuple[int, int]
"""First character, and the one after the last."""
Hits = dict[int, set[int]]
"""Numbers of the words that match, each with those of the leaves that it matches."""
Queries = Sequence[tuple[Analyzer, Query]]
CUT: Final = "…"
_AT_ONCE: Final = 512
_ESCAPED_AT_ONCE: Final = 16_384


@dataclass(frozen=True, slots=True)
class Marks:
    """Text around each match."""

    before: str = "<b>"
    after: str = "</b>"
    escaped: bool = True
    """True: the text is escaped as HTML, the marks are not."""


class MarkedText:
    """A text with the matches of some queries.

    The words are those of the first analyzer; all queries of a field have the same.
    """

    def __init__(self, queries: Queries, text: str, tick: Tick) -> None:
        self.text, self._tick = text, tick
        self._words = _words(queries[0][0], text, tick) if queries else []
        self._hits = _hits(queries, self._words, tick)

    def offsets(self) -> list[Span]:
        """Return the places of the matches, in order and without overlap."""
        return self._joined(0, len(self._words))

    def highlight(self, spans: Sequence[Span], marks: Marks) -> str:
        """Return the text with its matches marked. :param spans: its `offsets`"""
        return self._marked((0, len(self.text)), spans, marks)

    @property
    def worth(self) -> int:
        """Number of different leaves that match."""
        return len(set().union(*self._hits.values()))

    def snippet(self, most: int, marks: Marks) -> str:
        """Return the passage of at most so many words with most different matches, marked."""
        words = self._words
        if not words:
            return self._marked((0, min(len(self.text), most * 8)), [], marks)
        first, last = self._passage(most)
        start = words[first].start if first else 0
        end = words[last - 1].end if last < len(words) else len(self.text)
        found = self._marked((start, end), self._joined(first, last), marks)
        return f"{CUT if first else ''}{found}{CUT if last < len(words) else ''}"

    def _joined(self, first: int, last: int) -> list[Span]:
        found: list[Span] = []
        for number in paced(sorted(self._hits), self._tick):
            if not first <= number < last:
                continue
            word = self._words[number]
            # Pairs of Han or kana overlap: several of them are one place.
            if found and word.start < found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], word.end))
            else:
                found.append((word.start, word.end))
        return found

    def _passage(self, most: int) -> tuple[int, int]:
        """Return the first word of the best passage, and the one after its last."""
        hits, count = self._hits, len(self._words)
        numbers = sorted(hits)
        best, chosen = (0, 0), (0, 0)
        held: defaultdict[int, int] = defaultdict(int)
        ahead = 0
        for behind, number in enumerate(paced(numbers, self._tick)):
            while ahead < len(numbers) and numbers[ahead] < number + most:
                for leaf in hits[numbers[ahead]]:
                    held[leaf] += 1
                ahead += 1
            worth = (len(held), ahead - behind)
            if worth > best:
                best, chosen = worth, (number, numbers[ahead - 1] + 1)
            for leaf in hits[number]:
                held[leaf] -= 1
                if not held[leaf]:
                    del held[leaf]
        first, last = chosen
        # As many words before the matches as behind them.
        first = max(0, min(first - (most - (last - first)) // 2, count - most))
        return first, min(count, first + most)

    def _marked(self, span: Span, spans: Sequence[Span], marks: Marks) -> str:
        return "".join(self._pieces(span, spans, marks))

    def _pieces(self, span: Span, spans: Sequence[Span], marks: Marks) -> Iterator[str]:
        at, end = span
        for start, past in paced(spans, self._tick):
            yield from self._shown(at, start, marks)
            yield marks.before
            yield from self._shown(start, past, marks)
            yield marks.after
            at = past
        yield from self._shown(at, end, marks)

    def _shown(self, start: int, end: int, marks: Marks) -> Iterator[str]:
        for at in range(start, end, _ESCAPED_AT_ONCE):
            part = self.text[at : min(at + _ESCAPED_AT_ONCE, end)]
            yield escape(part) if marks.escaped else part
            if at != start:
                self._tick()


def _words(analyzer: Analyzer, text: str, tick: Tick) -> list[Word]:
    found: list[Word] = []
    cut = analyzer.words(text, tick)
    while part := list(islice(cut, _AT_ONCE)):
        found += part
        tick()
    return found


def _hits(queries: Queries, words: Sequence[Word], tick: Tick) -> Hits:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for number, word in enumerate(paced(words, tick)):
        for term in word.terms:
            places[term].append(number)
    found: defaultdict[int, set[int]] = defaultdict(set)
    every = dict.fromkeys(leaf for _, query in queries for leaf, _ in leaves(query))
    for leaf_number, leaf in enumerate(every):
        if isinstance(leaf, Phrase):
            for each in phrase_places(leaf, places, tick):
                for number in each:
                    found[number].add(leaf_number)
            continue
        for term in [leaf.term] if isinstance(leaf, Term) else expanded(leaf, places, tick):
            for number in paced(places.get(term, ()), tick):
                found[number].add(leaf_number)
    return found
