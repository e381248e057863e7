"""A text that is one value: what a cache route takes as its body."""

from __future__ import annotations

import re
from typing import Any, Final

from language import tree
from language.parser import parse_expression
from protocol.errors import BadRequest, TooLarge, Unknown
from protocol.values import RecordId, Value, check_record_id

TEXT_CHARACTERS: Final = 65_536
"""A text of more than one literal: it is read in one go. A larger one comes as JSON or msgpack."""

_PLAIN: Final = re.compile(r"'[^'\\]*+'|\"[^\"\\]*+\"|(0|[1-9][0-9]{0,17})")
"""What most values are, and the parser is not needed for."""


def parse_value(text: str, around: int = 0) -> Value:
    """The value that a text writes: a literal, or an array or object of literals.

    :param around: levels that are none of the value's own, as of an object around values
    :raises UnexpectedToken: it is no expression
    :raises BadRequest: it is one that would have to be computed
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
    raise BadRequest("the body is one value, written out: nothing in it is computed")
