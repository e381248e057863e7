"""Roles of a node, as an operator assigns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.errors import Unknown

SERVING: Final = "serving"
WRITABLE: Final = "writable"
COORDINATING: Final = "coordinating"
ROLE_WORDS: Final = (SERVING, WRITABLE, COORDINATING)


def check_node_roles(words: Sequence[str]) -> tuple[str, ...]:
    """Return the role words, each once and in their fixed order. :raises Unknown: not a role"""
    for word in words:
        if word not in ROLE_WORDS:
            known = ", ".join(ROLE_WORDS)
            raise Unknown(f"unknown node role {word!r}: expected one of {known}", role=word)
    return tuple(word for word in ROLE_WORDS if word in words)
