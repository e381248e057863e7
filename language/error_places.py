"""Error locations: add the position in the text and the current record to an expression's error."""

from __future__ import annotations

from protocol.errors import Cancelled, NotAllowed, Refusal, StatementTimeout, Unknown
from protocol.text import format_record
from protocol.values import RecordId


def is_of_values(refusal: Refusal) -> bool:
    """True if an error is about the values evaluated, and not about the run as a whole."""
    return not refusal.retry and not isinstance(refusal, Cancelled | StatementTimeout)


def placed(refusal: Refusal, offset: int) -> Refusal:
    """Add the offset of the failing expression to an error. The innermost expression wins."""
    if refusal.offset is None and is_of_values(refusal):
        refusal.offset = offset
    return refusal


def of_record(refusal: Refusal, record: RecordId | None) -> Refusal:
    """Add the record that caused an error, once, to its message and detail.

    :param record: None if the row comes from no record
    """
    if record is None:
        return refusal
    if isinstance(refusal, Unknown | NotAllowed):
        return refusal  # the record would disclose how the name was reached
    if is_of_values(refusal) and "record" not in refusal.detail:
        refusal.detail["record"] = record
        add_remark(refusal, format_record(record))
    return refusal


def of_row(refusal: Refusal, number: int) -> Refusal:
    """Add the number, from 1, of an inserted row that caused an error."""
    if is_of_values(refusal) and "row" not in refusal.detail:
        refusal.detail["row"] = number
        add_remark(refusal, f"row {number}")
    return refusal


def add_remark(refusal: Refusal, what: str) -> None:
    """Append a remark in parentheses to an error's message."""
    refusal.message += f" ({what})"
    refusal.args = (refusal.message,)
