"""`record::…` functions: the parts of a record id."""

from __future__ import annotations

from typing import Any

from language.functions.table import function
from protocol.values import RecordId


@function("record::id", "record", result="any")
def id_(record: RecordId) -> Any:
    """The id within its table: a string, int, uuid or array."""
    return record.id


@function("record::table", "record", result="string")
def table(record: RecordId) -> str:
    """Name of the table."""
    return record.table
