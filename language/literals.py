"""Parser for a text that is a single value: the body of a cache route."""

from __future__ import annotations

import re
from typing import Any, Final

from language import tree
from language.parser import parse_expression
from protocol.errors import BadRequest, TooLarge, Unknown
from protocol.values import RecordId, Value, check_record_id

TEXT_CHARACTERS: Final = 65_536
"""Maximum length, in characters, of an array or object as text, which is parsed without yielding.
Larger values are sent as JSON or msgpack."""

_PLAIN: Final = re.compile(r"'[^'\\]*+'|\"[^\"\\]*+\"|(0|[1-9][0-9]{0,17})")
"""Fast path for the most common values: plain strings and ints, read without the parser."""


def parse_value(text: str, around: int = 0) -> Value:
    """Parse a text to its value: a literal, or an array or object of literals.

    :param around: nesting levels that are not part of the value, such as an object around values
    :raises UnexpectedToken: not an expression
    :raises BadRequest: an expression that would have to be computed
    :raises TooLarge: an array or object of more than TEXT_CHARACTERS
    :raises Refusal: a literal is out of bounds
    """
    plain = _PLAIN.fullmatch(text)
    if plain is not None:
        return text[1:-1] if plain[1] is None else int(text)
    if len(text) > TEXT_CHARACTERS and text.lstrip()[:1] in ("[", "{", "("):
        raise TooLarge(
            f"an array or object as text has at most {TEXT_CHARACTERS} characters: send JSON",
            limit=TEXT_CHARACTERS,
        )
    try:
        tree_of = parse_expression(text, around)
    except Unknown as unknown:  # a function: whatever its name, there is none to call here
        raise BadRequest(unknown.message) from None
    found: Value = _value(tree_of)
    return found


def _value(node: tree.Expression) -> Any:
    if isinstance(node, tree.Constant):
        return node.value
    if isinstance(node, tree.Array):
        return [_value(item) for item in node.items]
    if isinstance(node, tree.Object):
        return {name: _value(item) for name, item in node.fields}
    if isinstance(node, tree.RecordLiteral):
        identity = _value(node.id)
        check_record_id(identity)
        return RecordId(node.table, identity)
    raise BadRequest("the body must be one literal value: expressions are not evaluated in it")
