"""`record::…`: the parts of a record's address."""

from __future__ import annotations

from typing import Any

from language.functions.table import function
from protocol.values import RecordId


@function("record::id", "record", result="any")
def id_(record: RecordId) -> Any:
    """The id: a string, int, uuid or array."""
    return record.id


@function("record::table", "record", result="string")
def table(record: RecordId) -> str:
    """The name of the table."""
    return record.table
