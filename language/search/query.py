"""Query values: strings, arrays of strings, and the objects of `search::any`, `all` and the like.

In a string all words must match. It knows `"a phrase"`, `-word`, `a OR b`, `begin*`, `word~` and
`word~2`, and is never malformed: signs that mean nothing are text. OR joins its two neighbours
only. An item of an array is a literal word or phrase, without signs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from language.search import terms as trees
from language.search.analysis import Analyzer
from language.search.terms import Query
from protocol import limits
from protocol.errors import BadRequest, TooLarge, TypeRefused
from protocol.values import type_name

_PART: Final = re.compile(r'(-?)(?:"([^"]*)"?|([^\s"]+))')
_FUZZY: Final = re.compile(r"(.+)~([0-2]?)", re.DOTALL)
EDITS: Final = 2
"""Most edits of a fuzzy word."""
SHORT: Final = 4
"""Characters from which a word is fuzzy: shorter ones have too many neighbours."""
_PARTS: Final = 4 * limits.QUERY_WORDS
"""Parts of a query, of which some may have no word."""
_KINDS: Final = "search::any, all, not, phrase, prefix, fuzzy or boost"


def parse_query(value: Any, analyzer: Analyzer) -> Query | None:
    """Return the tree of a query value; None: it matches nothing.

    :raises TypeRefused: not a query value
    :raises BadRequest: a part is out of its range, or a negation stands where it excludes nothing
    :raises TooLarge: over `limits.QUERY_WORDS` or `limits.QUERY_CHARACTERS`
    """
    return _QueryParser(analyzer).query(value)


class _QueryParser:
    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._words = 0
        self._parts = 0
        self._characters = 0

    def query(self, value: Any) -> Query | None:
        """Return the tree of a value, which may be a part of another."""
        kind = type(value)
        if kind is str:
            return self._string(value)
        if kind is list:
            return self._literals(value)
        if kind is dict and len(value) == 1:
            ((name, given),) = value.items()
            if name in _OBJECTS:
                return _OBJECTS[name](self, given)
        raise TypeRefused(
            f"a query is a string, an array of strings or the value of {_KINDS}, not"
            f" {type_name(value)}",
            found=type_name(value),
        )

    def _counted(self, found: Query | None) -> Query | None:
        # Stop words and empty parts count too: a text of a million of them is a long query.
        self._count(1 if found is None else trees.words_in(found))
        return found

    def _count(self, words: int) -> None:
        self._words += words
        if self._words > limits.QUERY_WORDS:
            raise TooLarge(
                f"a query has at most {limits.QUERY_WORDS} words", limit=limits.QUERY_WORDS
            )

    def _text(self, what: str, given: Any) -> str:
        """Check a text of a query."""
        if type(given) is not str:
            raise TypeRefused(f"{what} is a string, not {type_name(given)}", found=type_name(given))
        self._characters += len(given)
        if self._characters > limits.QUERY_CHARACTERS:
            raise TooLarge(
                f"a query has at most {limits.QUERY_CHARACTERS} characters",
                limit=limits.QUERY_CHARACTERS,
            )
        return given

    def _array(self, name: str, given: Any) -> list[Any]:
        """Check the parts of a query."""
        if type(given) is not list:
            raise TypeRefused(f"search::{name} holds an array of queries, not {type_name(given)}")
        self._parts += len(given)
        if self._parts > _PARTS:
            raise TooLarge(f"a query has at most {_PARTS} parts", limit=_PARTS)
        return given

    def _normal(self, text: str, *, stems: bool) -> list[str]:
        words = self._analyzer.normal(text, stems=stems)
        self._count(max(len(words) - 1, 0))  # equal ones are one part of the tree
        return words

    # --- strings ----------------------------------------------------------------------------------

    def _string(self, text: str) -> Query | None:
        text = self._text("a query", text)
        groups: list[list[Query | None]] = []
        without: list[Query | None] = []
        joins = may_join = False
        for part in _PART.finditer(text):
            sign, quoted, word = part.groups("")
            if word == "OR" and not sign:
                joins = may_join
                continue
            found = self._counted(self._marked(word) if word else self._analyzer.phrase(quoted, 0))
            if sign:
                without.append(found)
            elif joins:
                groups[-1].append(found)
            else:
                groups.append([found])
            may_join, joins = not sign, False
        return trees.all_of(map(trees.any_of, groups), without)

    def _marked(self, word: str) -> Query | None:
        if len(word) > 1 and word.endswith("*"):
            return self.beginning(word[:-1])
        marked = _FUZZY.fullmatch(word) if "~" in word else None
        if marked is not None:
            return self.like(marked[1], int(marked[2] or 1))
        return self._analyzer.query_text(word)

    def beginning(self, text: str) -> Query | None:
        """Return the tree of a prefix; of several words only the last one is."""
        words = self._normal(text, stems=False)
        if not words:
            return None
        before = [self._analyzer.query_text(word) for word in words[:-1]]
        return trees.all_of([*before, trees.Prefix(words[-1])])

    def like(self, text: str, edits: int) -> Query | None:
        """Return the tree of words with at most so many edits."""
        if edits == 0:
            return self._analyzer.query_text(text)
        return trees.all_of(
            trees.Fuzzy(word, edits)
            if len(word) >= SHORT and word.isalnum()
            else self._analyzer.query_text(word)
            for word in self._normal(text, stems=True)
        )

    # --- arrays and objects -----------------------------------------------------------------------

    def _literals(self, items: list[Any]) -> Query | None:
        return trees.all_of([self._counted(self._literal(item)) for item in items])

    def _literal(self, item: Any) -> Query | None:
        return self._analyzer.query_text(self._text("an item of a query", item))

    def any(self, given: Any) -> Query | None:
        """`search::any`"""
        parts = self._array("any", given)
        if any(_negated(part) for part in parts):
            raise BadRequest("search::not excludes from search::all, and not within search::any")
        return trees.any_of([self.query(part) for part in parts])

    def all(self, given: Any) -> Query | None:
        """`search::all`"""
        parts = self._array("all", given)
        gone = [self.query(part["not"]) for part in parts if _negated(part)]
        return trees.all_of([self.query(part) for part in parts if not _negated(part)], gone)

    def nothing(self, given: Any) -> None:
        """`search::not`: there is nothing that it excludes from."""
        self.query(given)  # refuse here what is refused elsewhere

    def phrase(self, given: Any) -> Query | None:
        """`search::phrase`"""
        text, slop = given if type(given) is list and len(given) == 2 else (given, 0)
        if type(slop) is not int or not 0 <= slop <= limits.QUERY_WORDS:
            raise BadRequest(f"the slop of a phrase is an int of 0 to {limits.QUERY_WORDS}")
        return self._counted(self._analyzer.phrase(self._text("a phrase", text), slop))

    def prefix(self, given: Any) -> Query | None:
        """`search::prefix`"""
        return self._counted(self.beginning(self._text("a prefix", given)))

    def fuzzy(self, given: Any) -> Query | None:
        """`search::fuzzy`"""
        text, edits = given if type(given) is list and len(given) == 2 else (given, 1)
        if type(edits) is not int or not 0 <= edits <= EDITS:
            raise BadRequest(f"a fuzzy word has 0 to {EDITS} edits")
        return self._counted(self.like(self._text("a fuzzy word", text), edits))

    def boost(self, given: Any) -> Query | None:
        """`search::boost`"""
        of, by = given if type(given) is list and len(given) == 2 else (None, None)
        if not isinstance(by, int | float | Decimal) or by is True or not 0 < by <= limits.BOOST:
            raise BadRequest(f"a boost is a number above 0, at most {limits.BOOST}")
        if _negated(of):
            raise BadRequest("search::not has no score to boost")
        found = self.query(of)
        return None if found is None else trees.Boost(found, float(by))


def _negated(part: Any) -> bool:
    return type(part) is dict and part.keys() == {"not"}


_OBJECTS: Final[dict[str, Callable[[_QueryParser, Any], Query | None]]] = {
    "any": _QueryParser.any,
    "all": _QueryParser.all,
    "not": _QueryParser.nothing,
    "phrase": _QueryParser.phrase,
    "prefix": _QueryParser.prefix,
    "fuzzy": _QueryParser.fuzzy,
    "boost": _QueryParser.boost,
}
"""Objects with one key, by that key."""
