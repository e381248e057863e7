"""Analyzers: a text becomes terms with positions, a word of a query becomes a tree of terms.

A text is cut into words by the tokenizers, and each word passes through the filters in their
order. A text and a query take different ways through some of them: `edge` and `ngram` make the
parts of a word of the text and leave that of the query whole, `synonyms` are found for the query
alone, so that they change without a rebuild. Runs of Han, kana and Hangul, which have no spaces,
become overlapping pairs; the last character stands alone as well, so that one character is found.

Positions count words, also those that `stop` drops. The terms of one word share its position.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from language.search import terms as trees
from language.search.characters import CJK_OR_OTHER, CJK_RUN, camel_parts, word_pattern
from language.search.definitions import Definition, TokenFilter
from language.search.stop_words import STOP_WORDS
from language.search.terms import Query
from protocol import limits
from protocol.text import strings_of
from protocol.values import Tick, unpaced

GAP: Final = 100
"""Positions between two strings of an array: no phrase reaches from one into the next."""
_WORDS_AT_ONCE: Final = 512
"""Words that are analysed without a tick."""
_MADE_AT_ONCE: Final = {"edge": 32, "ngram": 1}
"""The same with a filter that makes many terms of a word: up to 20, and up to 5 000."""
_KNOWN: Final = 8_192
"""Words whose terms an analyzer keeps: stems of frequent words are not computed again."""
_FEW_TERMS: Final = 20
"""Most terms of a word that is kept."""
_HASHED: Final = 16
"""Characters of the hash at the end of a term that was cut."""


class Token(NamedTuple):
    """A term in a text."""

    term: str
    position: int
    start: int
    """First character in the text."""
    end: int
    """Character after the last one."""


class Word(NamedTuple):
    """A word of a text with its terms, of which there may be none."""

    terms: tuple[str, ...]
    position: int
    start: int
    end: int


Postings = dict[str, list[int]]
"""Terms of a text, each with its positions."""
Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Work in slices, with a result."""


def in_steps(work: Steps[Result], tick: Tick) -> Result:
    """Return the result of some work. :param tick: called between its slices"""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        tick()


def fold(term: str) -> str:
    """Return a term without differences of case and of compatible characters (NFKC)."""
    if term.isascii():
        return term.lower()
    normal = unicodedata.normalize("NFKC", term).casefold()
    return unicodedata.normalize("NFKC", normal)


def without_accents(term: str) -> str:
    """Return a term without the marks of its letters."""
    if term.isascii():
        return term
    parts = unicodedata.normalize("NFKD", term)
    kept = "".join([one for one in parts if unicodedata.category(one) != "Mn"])
    return unicodedata.normalize("NFC", kept)


def bounded(term: str) -> str:
    """Return a term as it is kept: a long one is cut, with a hash of the whole."""
    if len(term) * 4 <= limits.TERM_BYTES:
        return term
    encoded = term.encode("utf-8", "surrogatepass")
    if len(encoded) <= limits.TERM_BYTES:
        return term
    start = encoded[: limits.TERM_BYTES - _HASHED].decode("utf-8", "ignore")
    return start + blake2b(encoded, digest_size=_HASHED // 2).hexdigest()


@cache
def stemmer(language: str) -> Callable[[str], str]:
    """Return the stemmer of a language of libstemmer."""
    import Stemmer  # a megabyte, only for stores that stem

    found: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord
    return found


class Analyzer:
    """A compiled analyzer. :param definition: checked by `definitions.check_definition`"""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        base = next((one for one in ("class", "punct") if one in definition.tokenizers), "blank")
        self._pattern = word_pattern(base)
        self._camel = "camel" in definition.tokenizers
        self._filters = definition.filters
        names = {one.name for one in definition.filters}
        # Always with `class`: these scripts have no spaces, so a sentence would be one word.
        self._pairs = base == "class" or "cjk" in names
        self._folds = "lowercase" in names
        self._at_once = min(_MADE_AT_ONCE.get(name, _WORDS_AT_ONCE) for name in {"", *names})
        self._known: dict[str, tuple[str, ...]] = {}
        self.queries: dict[Any, Query | None] = {}
        """Trees of recent query values, by a hashable key; kept by the callers."""
        self._synonyms = {
            number: self._table(one, number)
            for number, one in enumerate(self._filters)
            if one.name == "synonyms"
        }

    # --- texts ------------------------------------------------------------------------------------

    def words(self, text: str, tick: Tick = unpaced, position: int = 0) -> Iterator[Word]:
        """Yield the words of a text. :param position: of the first one"""
        text = text[: limits.SEARCH_TEXT_CHARACTERS]
        for number, (word, start, end, pair) in enumerate(self._cut(text)):
            if number % self._at_once == 0:
                tick()
            yield Word((word,) if pair else self.terms(word), position + number, start, end)

    def tokens(self, text: str, tick: Tick = unpaced) -> Iterator[Token]:
        """Yield the terms of a text."""
        for word in self.words(text, tick):
            for term in word.terms:
                yield Token(term, word.position, word.start, word.end)

    def postings(self, value: Any, tick: Tick = unpaced) -> tuple[Postings, int]:
        """Return the terms of a value with their positions, and its number of words with terms.

        Of more than `limits.SEARCH_TERMS` different terms the later ones are left out.

        :param value: of a field, of any type
        """
        return in_steps(self.postings_in_steps(value), tick)

    def postings_in_steps(self, value: Any) -> Steps[tuple[Postings, int]]:
        """Do the same as a generator, which pauses after some hundreds of words."""
        found: Postings = {}
        count = position = 0
        left = limits.SEARCH_TEXT_CHARACTERS
        for text in strings_of(value):
            for part in self._term_lists(text[:left]):
                for terms in part:
                    for term in terms:
                        at = found.get(term)
                        if at is None:
                            if len(found) < limits.SEARCH_TERMS:
                                found[term] = [position]
                        elif at[-1] != position:  # one part of a word may occur in it twice
                            at.append(position)
                    if terms:
                        count += 1
                    position += 1
                yield
            left -= len(text)
            if left <= 0:
                break
            position += GAP
        return found, count

    def _term_lists(self, text: str) -> Iterator[list[tuple[str, ...]]]:
        known, terms = self._known, self.terms
        if self._camel or (self._pairs and not text.isascii() and CJK_RUN.search(text)):
            cut = self._cut(text)
            while part := list(islice(cut, self._at_once)):
                yield [(word,) if pair else terms(word) for word, _, _, pair in part]
            return
        matches = self._pattern.finditer(text)
        while words := [match[0] for match in islice(matches, self._at_once)]:
            yield [known[word] if word in known else terms(word) for word in words]

    def _cut(self, text: str) -> Iterator[tuple[str, int, int, bool]]:
        """Yield the words of a text with their places; True: a pair, which no filter changes."""
        pairs = self._pairs and not text.isascii() and CJK_RUN.search(text) is not None
        for match in self._pattern.finditer(text):
            word, at = match[0], match.start()
            if pairs and CJK_RUN.search(word) is not None:
                for part in CJK_OR_OTHER.finditer(word):
                    if part[1] is None:
                        yield from self._parts(part[0], at + part.start())
                    else:
                        yield from self._pairs_of(part[1], at + part.start())
            else:
                yield from self._parts(word, at)

    def _parts(self, word: str, at: int) -> Iterator[tuple[str, int, int, bool]]:
        if not self._camel:
            yield word, at, at + len(word), False
            return
        for start, end in camel_parts(word):
            yield word[start:end], at + start, at + end, False

    def _pairs_of(self, run: str, at: int) -> Iterator[tuple[str, int, int, bool]]:
        folded = fold(run) if self._folds else run
        # Half-width kana join when they are folded: then a pair has the place of the whole run.
        same = len(folded) == len(run)
        for number in range(len(folded)):
            pair = folded[number : number + 2]
            start = at + number if same else at
            yield pair, start, start + (len(pair) if same else len(run)), True

    def terms(self, word: str) -> tuple[str, ...]:
        """Return the terms of a word of a text."""
        found = self._known.get(word)
        if found is None:
            found = self._made(word)
            if len(self._known) >= _KNOWN:
                self._known.clear()
            if len(word) <= limits.TERM_BYTES and len(found) <= _FEW_TERMS:
                self._known[word] = found
        return found

    def _made(self, word: str) -> tuple[str, ...]:
        # So long a word is nobody's: it is found as it is written, and costs no filter its time.
        if len(word) > limits.WORD_CHARACTERS:
            return (bounded(word),)
        terms = [word]
        for one in self._filters:
            if one.name == "stop":
                stopped = _stopped(one)
                terms = [term for term in terms if term not in stopped]
            elif one.name in ("edge", "ngram"):
                terms = [part for term in terms for part in _grams(term, one)]
            elif one.name in _MAPS:
                change = _MAPS[one.name](one)
                terms = [change(term) for term in terms]
        return tuple(dict.fromkeys([bounded(term) for term in terms if term]))

    # --- queries ----------------------------------------------------------------------------------

    def query_text(self, text: str) -> Query | None:
        """Return the tree of a literal word or phrase; None if no term is left of it."""
        return self.phrase(text, 0, expand=True)

    def phrase(self, text: str, slop: int, *, expand: bool = False) -> Query | None:
        """Return the tree of words that follow each other.

        :param slop: most other words between them
        :param expand: True: a single word has its synonyms
        """
        words = list(islice(self._cut(text), limits.QUERY_WORDS + 1))
        if len(words) == 1:
            word, _, _, pair = words[0]
            if pair:
                return trees.Prefix(word)  # one character: the first of a pair, or a last one
            return self._word(word, expand=expand)
        parts: list[tuple[int, str]] = []
        for number, (word, _, end, pair) in enumerate(words):
            # The last character alone ends a run of the text, which may be longer there.
            if pair and len(word) == 1 and number and words[number - 1][2:] == (end, True):
                continue
            for term in (word,) if pair else self._literal(word):
                parts.append((number, term))
        return trees.phrase(parts, slop)

    def _literal(self, word: str) -> Sequence[str]:
        """Return the terms of a word without its synonyms."""
        found = self._word(word, expand=False)
        if found is None:
            return ()
        if isinstance(found, trees.Phrase):
            return [term for _, term in found.parts]
        assert isinstance(found, trees.Term)
        return (found.term,)

    def _word(self, word: str, *, expand: bool) -> Query | None:
        if len(word) > limits.WORD_CHARACTERS:
            return trees.Term(bounded(word))
        return self._filtered([word], 0, expand)

    def _filtered(self, terms: list[str], first: int, expand: bool) -> Query | None:
        """Return the tree of terms that stand for one word, after the filters from `first` on."""
        for number in range(first, len(self._filters)):
            one = self._filters[number]
            if one.name == "stop":
                stopped = _stopped(one)
                terms = [term for term in terms if term not in stopped]
            elif one.name == "synonyms":
                others = self._synonyms[number].get(terms[0], ()) if terms else ()
                if expand and others and len(terms) == 1:
                    ways = [self._filtered(terms, number + 1, expand)]
                    ways += [self._several(words, number + 1) for words in others]
                    return trees.any_of(ways)
            elif one.name == "edge":
                terms = [term[: one.arguments[1]] for term in terms]
            elif one.name == "ngram":
                terms = [part for term in terms for part in _longest_grams(term, one)]
            elif one.name in _MAPS:
                change = _MAPS[one.name](one)
                terms = [change(term) for term in terms]
        kept = dict.fromkeys([bounded(term) for term in terms if term])
        # Parts of one word have its position.
        return trees.phrase([(0, term) for term in kept], 0)

    def _several(self, words: tuple[str, ...], first: int) -> Query | None:
        parts: list[tuple[int, str]] = []
        for number, word in enumerate(words):
            found = self._filtered([word], first, expand=False)
            if isinstance(found, trees.Phrase):
                parts += [(number, term) for _, term in found.parts]
            elif isinstance(found, trees.Term):
                parts.append((number, found.term))
        return trees.phrase(parts, 0)

    def _table(self, one: TokenFilter, number: int) -> dict[str, list[tuple[str, ...]]]:
        """Return the synonyms of each word, in the form that words have before that filter."""
        given = one.arguments[0]
        found: dict[str, list[tuple[str, ...]]] = {}
        groups: Iterable[tuple[list[str], list[str]]]
        if type(given) is dict:
            groups = (([key], others) for key, others in given.items())
        else:
            groups = ((group, group) for group in given)
        for keys, others in groups:
            forms = [tuple(self._before(text, number)) for text in others]
            for key in (self._before(text, number) for text in keys):
                # Words of a query are met one by one, so only a single word has synonyms.
                if len(key) == 1:
                    mine = found.setdefault(key[0], [])
                    mine += [form for form in forms if form and form != tuple(key)]
        return found

    def _before(self, text: str, number: int) -> list[str]:
        words = [word for word, _, _, _ in islice(self._cut(text), limits.QUERY_WORDS)]
        for one in self._filters[:number]:
            if one.name in _MAPS:
                words = list(map(_MAPS[one.name](one), words))
        return words

    def normal(self, text: str, *, stems: bool) -> list[str]:
        """Return the words of a text in the form of terms, for prefixes and fuzzy words: nothing is
        dropped or cut into parts.

        :param stems: False: only differences of case and accents are removed
        """
        words = []
        for word, _, _, pair in islice(self._cut(text), limits.QUERY_WORDS + 1):
            for one in () if pair or len(word) > limits.WORD_CHARACTERS else self._filters:
                if one.name in _MAPS and (stems or one.name != "snowball"):
                    word = _MAPS[one.name](one)(word)
            words.append(word)
        return [word for word in words if word]


_MAPS: Final[dict[str, Callable[[TokenFilter], Callable[[str], str]]]] = {
    "lowercase": lambda one: fold,
    "ascii": lambda one: without_accents,
    "snowball": lambda one: stemmer(one.arguments[0]),
}
"""Filters that make one term of one."""


def _stopped(one: TokenFilter) -> frozenset[str] | list[str]:
    (words,) = one.arguments
    return STOP_WORDS[words] if type(words) is str else words


def _grams(term: str, one: TokenFilter) -> Iterator[str]:
    """Yield the parts of a word of a text; a word shorter than the smallest is its own part."""
    low, high = one.arguments
    size = len(term)
    if size < low:
        yield term
        return
    for start in range(1 if one.name == "edge" else size - low + 1):
        for end in range(start + low, min(start + high, size) + 1):
            yield term[start:end]


def _longest_grams(term: str, one: TokenFilter) -> list[str]:
    """Return the parts of a word of a query: it matches where all of them are in one word."""
    high = one.arguments[1]
    return [term[start : start + high] for start in range(max(len(term) - high, 0) + 1)]
