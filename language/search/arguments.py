"""Arguments of filters: values, and their texts in statements, in which a word needs no quotes."""

from __future__ import annotations

import re
from typing import Any, Final

from language import tree
from protocol.text import format_value

_WORD: Final = re.compile("[a-z_][a-z0-9_]*")


class NotLiteral(Exception):
    """An argument would have to be computed."""


def literal_of(node: tree.Expression) -> Any:
    """Return the value of an argument. :raises NotLiteral: it is no literal"""
    if isinstance(node, tree.Array):
        return list(map(literal_of, node.items))
    if isinstance(node, tree.Object):
        return {name: literal_of(one) for name, one in node.fields}
    if not isinstance(node, tree.Constant):
        raise NotLiteral
    return node.value


def argument_text(value: Any) -> str:
    """Return the text of an argument."""
    return value if is_word(value) else format_value(value)


def is_word(value: Any) -> bool:
    """True if a value is written as a word."""
    return type(value) is str and _WORD.fullmatch(value) is not None
