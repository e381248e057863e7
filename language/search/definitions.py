"""Definitions of analyzers: the tokenizers and filters that exist, and their arguments.

A definition is data: words and literal values, as DEFINE ANALYZER has them. It is checked here
once, when it is declared, and compiled by `analysis.Analyzer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from language.search.stop_words import STOP_WORDS
from protocol import limits
from protocol.errors import BadRequest, TooLarge, TypeRefused, Unknown
from protocol.values import type_name

TOKENIZERS: Final = ("blank", "camel", "class", "punct")
FILTERS: Final = (
    "ascii", "cjk", "edge", "lowercase", "ngram", "snowball", "stop", "synonyms",
)  # fmt: skip
ALIASES: Final = {"edgengram": "edge"}
"""Other names of filters, as other products have them."""
_PLAIN: Final = frozenset({"ascii", "cjk", "lowercase"})


class TokenFilter(NamedTuple):
    """A filter of an analyzer, with its literal arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """Tokenizers and filters of an analyzer."""

    tokenizers: tuple[str, ...]
    filters: tuple[TokenFilter, ...] = ()


@cache
def languages() -> tuple[str, ...]:
    """Return the languages of the stemmer."""
    import Stemmer  # a megabyte, only for stores that stem

    return tuple(sorted(Stemmer.algorithms()))


def check_definition(definition: Definition) -> None:
    """Check the words and arguments of an analyzer.

    :raises Unknown: a tokenizer, filter or language does not exist
    :raises BadRequest: a filter has the wrong number of arguments, or ones out of their range
    :raises TypeRefused: an argument has another type
    :raises TooLarge: too many stop words or synonyms
    """
    for word in definition.tokenizers:
        _known("tokenizer", word, TOKENIZERS)
    for one in definition.filters:
        _known("filter", one.name, FILTERS)
        _CHECKS[one.name](one)


def _known(kind: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise Unknown(
            f"no {kind} is called {word}: there are {', '.join(known)}",
            name=word,
            known=list(known),
        )


def _check_plain(one: TokenFilter) -> None:
    if one.arguments:
        raise BadRequest(f"filter {one.name} takes no arguments")


def _only(one: TokenFilter, what: str) -> Any:
    if len(one.arguments) != 1:
        raise BadRequest(f"filter {one.name} takes {what}")
    return one.arguments[0]


def _check_snowball(one: TokenFilter) -> None:
    language = _only(one, "a language: snowball(english)")
    if type(language) is not str:
        raise _wrong(one, "a language", language)
    _known("language", language, languages())


def _check_stop(one: TokenFilter) -> None:
    words = _only(one, "a language or an array of words: stop(english), stop(['a', 'the'])")
    if type(words) is str:
        _known("list of stop words", words, tuple(sorted(STOP_WORDS)))
        return
    if type(words) is not list or any(type(word) is not str for word in words):
        raise _wrong(one, "a language or an array of strings", words)
    _check_count("stop words", len(words))


def _check_sizes(one: TokenFilter) -> None:
    if len(one.arguments) != 2:
        raise BadRequest(f"filter {one.name} takes two sizes: {one.name}(2, 10)")
    for size in one.arguments:
        if type(size) is not int:
            raise _wrong(one, "two ints", size)
    low, high = one.arguments
    if not 1 <= low <= high <= limits.GRAM_CHARACTERS:
        raise BadRequest(
            f"the sizes of {one.name} are 1 to {limits.GRAM_CHARACTERS}, the smaller first, not"
            f" {low} and {high}"
        )


def _check_synonyms(one: TokenFilter) -> None:
    given = _only(one, "an object or an array: synonyms({ tv: ['television'] })")
    groups = list(given.values()) if type(given) is dict else given
    if type(groups) is not list or any(
        type(group) is not list or any(type(word) is not str for word in group) for group in groups
    ):
        raise _wrong(one, "an object of arrays of strings, or an array of them", given)
    _check_count("synonyms", sum(map(len, groups)) + (len(given) if type(given) is dict else 0))


def _check_count(what: str, count: int) -> None:
    if count > limits.SYNONYMS:
        raise TooLarge(
            f"an analyzer has at most {limits.SYNONYMS} {what}, not {count}", limit=limits.SYNONYMS
        )


def _wrong(one: TokenFilter, wanted: str, found: Any) -> TypeRefused:
    return TypeRefused(
        f"filter {one.name} takes {wanted}, not {type_name(found)}", found=type_name(found)
    )


_CHECKS: Final = {
    **dict.fromkeys(_PLAIN, _check_plain),
    "snowball": _check_snowball,
    "stop": _check_stop,
    "edge": _check_sizes,
    "ngram": _check_sizes,
    "synonyms": _check_synonyms,
}
assert frozenset(_CHECKS) == frozenset(FILTERS)
