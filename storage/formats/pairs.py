"""Stream of pairs: contents of a snapshot and of a sealed state's image, covered by the state hash.

Each pair is the length of its key (4 bytes), the length of its value (4), key and value.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from storage.formats.keys import Pair

LENGTHS: Final = Struct(">II")
"""Header of each pair: bytes of key and of value."""


def packed(pairs: list[Pair]) -> bytes:
    """Encode pairs for the stream."""
    pack = LENGTHS.pack
    parts: list[bytes] = []
    for key, value in pairs:
        parts += (pack(len(key), len(value)), key, value)
    return b"".join(parts)


def decode_pairs(data: bytes) -> tuple[list[Pair], int, int]:
    """Decode the whole pairs of a part of the stream.

    Return the pairs, the offset behind them, and the bytes that the next pair needs from there, as
    far as known.
    """
    pairs: list[Pair] = []
    at, size, unpack = 0, len(data), LENGTHS.unpack_from
    while at + LENGTHS.size <= size:
        key_bytes, value_bytes = unpack(data, at)
        begins = at + LENGTHS.size
        middle = begins + key_bytes
        end = middle + value_bytes
        if end > size:
            return pairs, at, end - at
        pairs.append((data[begins:middle], data[middle:end]))
        at = end
    return pairs, at, LENGTHS.size
