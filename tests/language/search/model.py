"""Plain search beside the real one: each rule by looking at every word of a text, one by one.

Texts have words of small letters and single blanks, so that only the rules of queries are modelled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

WORDS = ("tin", "tins", "copper", "coper", "copepr", "zinc", "lead", "the", "iron", "irons", "ore")
Match = Callable[[Sequence[str]], bool]


def edits(one: str, other: str) -> int:
    """Edits between two words: insert, delete, replace, swap two neighbours."""
    table = [[row or column for column in range(len(other) + 1)] for row in range(len(one) + 1)]
    for row in range(1, len(one) + 1):
        for column in range(1, len(other) + 1):
            best = min(
                table[row - 1][column] + 1,
                table[row][column - 1] + 1,
                table[row - 1][column - 1] + (one[row - 1] != other[column - 1]),
            )
            swapped = one[row - 2 : row] == other[column - 2 : column][::-1]
            if row > 1 and column > 1 and swapped:
                best = min(best, table[row - 2][column - 2] + 1)
            table[row][column] = best
    return table[-1][-1]


def some_text(chance: random.Random) -> list[str]:
    return [chance.choice(WORDS) for _ in range(chance.randrange(12))]


def some_query(chance: random.Random, stopped: frozenset[str]) -> tuple[Any, Match]:
    """A query value, and what it has to find in the words of a text."""
    form = chance.randrange(4)
    if form == 0:
        return _string(chance, stopped)
    if form == 1:
        phrases = [_phrase(chance, stopped) for _ in range(chance.randrange(1, 3))]
        return [text for text, _ in phrases], _all([match for _, match in phrases], [])
    return _object(chance, stopped, 2)


def _object(chance: random.Random, stopped: frozenset[str], depth: int) -> tuple[Any, Match]:
    form = chance.randrange(6) if depth else 2 + chance.randrange(4)
    if form == 0:
        parts = [_object(chance, stopped, depth - 1) for _ in range(chance.randrange(1, 4))]
        return {"any": [value for value, _ in parts]}, _any([match for _, match in parts])
    if form == 1:
        parts = [_object(chance, stopped, depth - 1) for _ in range(chance.randrange(1, 3))]
        gone = [_object(chance, stopped, depth - 1) for _ in range(chance.randrange(2))]
        values = [value for value, _ in parts] + [{"not": value} for value, _ in gone]
        return {"all": values}, _all([one for _, one in parts], [one for _, one in gone])
    if form == 2:
        slop = chance.randrange(4)
        text, match = _phrase(chance, stopped, slop)
        return {"phrase": [text, slop]}, match
    if form == 3:
        start = chance.choice(WORDS)[: chance.randrange(1, 4)]
        return {"prefix": start}, lambda words: any(word.startswith(start) for word in kept(words))
    if form == 4:
        word, most = chance.choice(WORDS), chance.randrange(3)
        return {"fuzzy": [word, most]}, _fuzzy(word, most, stopped)
    return _string(chance, stopped)


def kept(words: Sequence[str]) -> list[str]:
    """Words of a text without those that the analyzer drops; the model is run with its own."""
    return [word for word in words if word != STOP]


STOP = "the"


def _string(chance: random.Random, stopped: frozenset[str]) -> tuple[str, Match]:
    groups: list[list[Match]] = []
    gone: list[Match] = []
    parts: list[str] = []
    may_join = False
    for _ in range(chance.randrange(1, 5)):
        if may_join and chance.random() < 0.3:
            parts.append("OR")
            text, match = _word(chance, stopped)
            groups[-1].append(match)
        elif chance.random() < 0.2:
            text, match = _word(chance, stopped)
            gone.append(match)
            text, may_join = f"-{text}", False
        else:
            text, match = _word(chance, stopped)
            groups.append([match])
            may_join = True
        parts.append(text)
    return " ".join(parts), _all([_any(group) for group in groups], gone)


def _word(chance: random.Random, stopped: frozenset[str]) -> tuple[str, Match]:
    form = chance.randrange(5)
    if form == 0:
        text, match = _phrase(chance, stopped)
        return f'"{text}"', match
    if form == 1:
        start = chance.choice(WORDS)[: chance.randrange(1, 5)]
        return f"{start}*", lambda words: any(word.startswith(start) for word in kept(words))
    if form == 2:
        word, most = chance.choice(WORDS), chance.randrange(1, 3)
        return f"{word}~{most if most > 1 else ''}", _fuzzy(word, most, stopped)
    word = chance.choice(WORDS)
    return word, NOTHING if word in stopped else lambda words: word in words


def _fuzzy(word: str, most: int, stopped: frozenset[str]) -> Match:
    # Short words, and those without an edit, are plain words.
    if len(word) < 4 or not most:
        return NOTHING if word in stopped else lambda words: word in words
    return lambda words: any(
        other[0] == word[0] and edits(word, other) <= most for other in kept(words)
    )


def _phrase(chance: random.Random, stopped: frozenset[str], slop: int = 0) -> tuple[str, Match]:
    wanted = [chance.choice(WORDS) for _ in range(chance.randrange(1, 4))]
    places = [at for at, word in enumerate(wanted) if word not in stopped]

    def match(words: Sequence[str]) -> bool:
        if not places:
            return False

        def fits(number: int, at: int, left: int) -> bool:
            if number == len(places):
                return True
            wide = places[number] - places[number - 1]
            return any(
                at + wide + more < len(words)
                and words[at + wide + more] == wanted[places[number]]
                and fits(number + 1, at + wide + more, left - more)
                for more in range(left + 1)
            )

        return any(
            words[start] == wanted[places[0]] and fits(1, start, slop)
            for start in range(len(words))
        )

    return " ".join(wanted), match if places else NOTHING


def NOTHING(words: Sequence[str]) -> bool:
    """A part of which no word is left: it asks for nothing."""
    raise AssertionError("left out by `_all` and `_any`")


def _any(parts: list[Match]) -> Match:
    asked = [part for part in parts if part is not NOTHING]
    return (lambda words: any(part(words) for part in asked)) if asked else NOTHING


def _all(parts: list[Match], gone: list[Match]) -> Match:
    asked = [part for part in parts if part is not NOTHING]
    without = [part for part in gone if part is not NOTHING]
    if not asked:
        return NOTHING
    return lambda words: (
        all(part(words) for part in asked) and not any(part(words) for part in without)
    )
