"""Analyzers of FULLTEXT indexes, compiled from the definition that an index keeps.

Equal definitions share one analyzer, since all of it depends on its definition alone.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from language.search.analysis import Analyzer
from language.search.definitions import Definition, TokenFilter
from protocol import binary

KNOWN: Final = 64
"""Compiled analyzers that are kept."""


def pack_definition(definition: Definition) -> bytes:
    """Return a definition as an index keeps it."""
    filters = [[one.name, list(one.arguments)] for one in definition.filters]
    return binary.pack({"tokenizers": list(definition.tokenizers), "filters": filters})


@lru_cache(KNOWN)
def analyzer_of(packed: bytes) -> Analyzer:
    """Return the analyzer of a packed definition."""
    row: Any = binary.unpack(packed)
    filters = tuple(TokenFilter(name, tuple(given)) for name, given in row["filters"])
    return Analyzer(Definition(tuple(row["tokenizers"]), filters))


FORMAT: Final = b"2"
"""Form of the segments: those of another form are read by nobody."""


@lru_cache(KNOWN)
def digest_of(packed: bytes) -> bytes:
    """Return the digest of all that the segments of an analyzer depend on."""
    found = blake2b(packed, digest_size=16)
    found.update(FORMAT)
    found.update(unicodedata.unidata_version.encode())
    if b"snowball" in packed:
        import Stemmer  # a megabyte, only for stores that stem

        found.update(Stemmer.version().encode())
    return found.digest()
