"""The client's values as the node's own, which know how to be written, and back.

The two packages have types of their own for a record's address and for NONE, so that neither needs
the other; here both are at hand.
"""

from __future__ import annotations

from typing import Any

import storeclient
from protocol.values import NONE, RecordId


def from_client(value: Any) -> Any:
    """A value that the client received, as `protocol.text` and `protocol.jsonvalues` take it."""
    kind = type(value)
    if kind is dict:
        return {name: from_client(item) for name, item in value.items()}
    if kind is list:
        return [from_client(item) for item in value]
    if kind is storeclient.RecordId:
        return RecordId(value.table, from_client(value.id))
    if kind is storeclient.NoneValue:
        return NONE
    return value


def to_client(value: Any) -> Any:
    """A value that `protocol.text` or `protocol.jsonvalues` has read, as the client sends it."""
    kind = type(value)
    if kind is dict:
        return {name: to_client(item) for name, item in value.items()}
    if kind is list:
        return [to_client(item) for item in value]
    if kind is RecordId:
        return storeclient.RecordId(value.table, to_client(value.id))
    if value is NONE:
        return storeclient.NONE
    return value
