"""Conversion between values of the client and of the node.

The two packages have separate types for record ids and NONE, so that neither depends on the other.
"""

from __future__ import annotations

from typing import Any

import storeclient
from protocol.values import NONE, RecordId


def from_client(value: Any) -> Any:
    """Convert a received value for `protocol.text` and `protocol.jsonvalues`."""
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
    """Convert a value read by `protocol.text` or `protocol.jsonvalues` for sending."""
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
