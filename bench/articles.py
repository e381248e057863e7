"""Articles of the GNU dictionary of English, from Debian's package `dict-gcide`.

Without the package, articles are generated: words of a Zipf distribution, from a fixed seed.
"""

from __future__ import annotations

import gzip
import string
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import Final

DICTIONARY: Final = Path("/usr/share/dictd")
SOURCE: Final = "dict-gcide"
GENERATED: Final = "generated articles: the package dict-gcide is not installed"
_DIGITS: Final = {
    digit: number
    for number, digit in enumerate(
        string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    )
}
_VOCABULARY: Final = 60_000


def source() -> str:
    """Return the origin of the articles."""
    return SOURCE if (DICTIONARY / "gcide.index").exists() else GENERATED


def articles(most: int) -> list[tuple[str, str]]:
    """Return some articles: the word, and the text."""
    found = _dictionary() if source() == SOURCE else _generated()
    return list(islice(found, most))


def _dictionary() -> Iterator[tuple[str, str]]:
    whole = gzip.decompress((DICTIONARY / "gcide.dict.dz").read_bytes())
    met: set[tuple[str, str]] = set()
    for line in (DICTIONARY / "gcide.index").read_text().splitlines():
        word, start, size = line.split("\t")[:3]
        # Several words lead to one article; the first lines describe the dictionary.
        if not word.startswith("00-database") and (start, size) not in met:
            met.add((start, size))
            at = _number(start)
            yield word, whole[at : at + _number(size)].decode("utf-8", "replace")


def _number(digits: str) -> int:
    found = 0
    for digit in digits:
        found = found * 64 + _DIGITS[digit]
    return found


def _generated() -> Iterator[tuple[str, str]]:
    rng = Random(1913)
    known = ["copper", "tin", "zinc", "see", "one", "of", "the", "zymology"]
    words = [
        *known,
        *("".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 10)))
          for _ in range(_VOCABULARY)),
    ]  # fmt: skip
    # The named words are of the frequencies that they have in the dictionary, about.
    rng.shuffle(words)
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    while True:
        size = rng.randint(10, 130)
        yield rng.choice(words), " ".join(rng.choices(words, cum_weights=weights, k=size))
