"""A text that is one value: what a cache route takes as its body."""

from __future__ import annotations

from typing import Any

from language import tree
from language.parser import parse_expression
from protocol.errors import BadRequest
from protocol.values import RecordId, Value, check_record_id


def parse_value(text: str) -> Value:
    """The value that a text writes: a literal, or an array or object of literals.

    :raises UnexpectedToken: it is no expression
    :raises BadRequest: it is one that would have to be computed
    :raises Refusal: a literal is out of bounds
    """
    found: Value = _value(parse_expression(text))
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
