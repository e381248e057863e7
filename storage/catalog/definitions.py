"""Encoding of definitions that the catalog stores as text: fields and functions."""

from __future__ import annotations

from collections.abc import Mapping

from protocol import binary, limits
from protocol.errors import TooLarge
from protocol.values import Value


def pack_definition(kept: Mapping[str, Value]) -> bytes:
    """Encode the value of a definition. :raises TooLarge: over `limits.DEFINITION_BYTES`"""
    packed = binary.pack(dict(kept))
    if len(packed) > limits.DEFINITION_BYTES:
        raise TooLarge(
            f"a definition takes at most {limits.DEFINITION_BYTES} bytes",
            limit=limits.DEFINITION_BYTES,
            size=len(packed),
        )
    return packed
