"""Matches marked in a text: offsets, highlights and snippets.

Only the words that make a match are marked: of a phrase those of its occurrences. Negated parts of
a query mark nothing. Offsets count characters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from language.search.analysis import Analyzer, Word
from language.search.matching import expand, phrase_places
from language.search.terms import Phrase, Query, Term, leaves
from protocol.values import Tick, unpaced

Span = tuple[int, int]
"""First character, and the one after the last."""
CUT: Final = "…"


@dataclass(frozen=True, slots=True)
class Marks:
    """Text around each match."""

    before: str = "<b>"
    after: str = "</b>"
    escaped: bool = True
    """True: the text is escaped as HTML, the marks are not."""


def offsets(query: Query, analyzer: Analyzer, text: str, tick: Tick = unpaced) -> list[Span]:
    """Return the places of the matches in a text, in order and without overlap."""
    words = list(analyzer.words(text, tick))
    return _joined(words, sorted(_hits(query, words)))


def highlight(
    query: Query, analyzer: Analyzer, text: str, marks: Marks, tick: Tick = unpaced
) -> str:
    """Return a text with its matches marked."""
    return "".join(_marked(text, (0, len(text)), offsets(query, analyzer, text, tick), marks))


def snippet(
    query: Query, analyzer: Analyzer, text: str, most: int, marks: Marks, tick: Tick = unpaced
) -> str:
    """Return the passage of at most so many words with most distinct matches, marked."""
    words = list(analyzer.words(text, tick))
    hits = _hits(query, words)
    first, last = _passage(hits, len(words), most)
    if not words:
        return "".join(_marked(text[: most * 8], (0, len(text)), [], marks))
    start = words[first].start if first else 0
    end = words[last - 1].end if last < len(words) else len(text)
    spans = _joined(words, [one for one in sorted(hits) if first <= one < last])
    found = "".join(_marked(text, (start, end), spans, marks))
    return f"{CUT if first else ''}{found}{CUT if last < len(words) else ''}"


def _hits(query: Query, words: Sequence[Word]) -> dict[int, set[int]]:
    """Return the numbers of the words that match, each with those of the leaves it matches."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for number, word in enumerate(words):
        for term in word.terms:
            places[term].append(number)
    found: defaultdict[int, set[int]] = defaultdict(set)
    for leaf_number, leaf in enumerate(leaves(query)):
        if isinstance(leaf, Phrase):
            numbers = (one for each in phrase_places(leaf, places) for one in each)
        else:
            terms = [leaf.term] if isinstance(leaf, Term) else expand(leaf, list(places))
            numbers = (one for term in terms for one in places.get(term, ()))
        for number in numbers:
            found[number].add(leaf_number)
    return found


def _joined(words: Sequence[Word], numbers: Sequence[int]) -> list[Span]:
    found: list[Span] = []
    for number in numbers:
        word = words[number]
        # Pairs of Han or kana overlap: several of them are one place.
        if found and word.start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], word.end))
        else:
            found.append((word.start, word.end))
    return found


def _passage(hits: dict[int, set[int]], count: int, most: int) -> tuple[int, int]:
    """Return the first word of the best passage, and the one after its last."""
    numbers = sorted(hits)
    best, chosen = (0, 0), (0, 0)
    held: defaultdict[int, int] = defaultdict(int)
    ahead = 0
    for behind, number in enumerate(numbers):
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


def _marked(text: str, span: Span, spans: Sequence[Span], marks: Marks) -> Iterator[str]:
    shown = escape if marks.escaped else str
    at, end = span
    for start, past in spans:
        yield shown(text[at:start])
        yield marks.before + shown(text[start:past]) + marks.after
        at = past
    yield shown(text[at:end])
