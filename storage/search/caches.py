"""Caches of decoded parts of FULLTEXT and VECTOR indexes, and the memory of all of them."""

from __future__ import annotations

from typing import Any, Final

from protocol.bounded_cache import LARGE_PART, BoundedCache

_CACHES: Final[list[BoundedCache[Any]]] = []


def search_cache(most_bytes: int, large_part: int = LARGE_PART) -> BoundedCache[Any]:
    """Return a new cache, of a module, whose memory counts as that of searches."""
    made = BoundedCache[Any](most_bytes, large_part=large_part)
    _CACHES.append(made)
    return made


def search_memory() -> int:
    """Return the bytes that are held in the memory of this process."""
    return sum(one.bytes for one in _CACHES)
