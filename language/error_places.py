"""Where an error of an expression rose, as its refusal says it: the place in the text, and the
record at hand."""

from __future__ import annotations

from protocol.errors import Cancelled, NotAllowed, Refusal, StatementTimeout, Unknown
from protocol.text import format_record
from protocol.values import RecordId


def is_of_values(refusal: Refusal) -> bool:
    """Whether it says something of the values at hand, and not of the run as a whole."""
    return not refusal.retry and not isinstance(refusal, Cancelled | StatementTimeout)


def placed(refusal: Refusal, offset: int) -> Refusal:
    """The refusal of an expression that stands at an offset of its text. The innermost counts."""
    if refusal.offset is None and is_of_values(refusal):
        refusal.offset = offset
    return refusal


def of_record(refusal: Refusal, record: RecordId | None) -> Refusal:
    """A refusal that came up with one record of several: it names the record, once.

    :param record: None: a row that is of no record
    """
    if record is None:
        return refusal
    if isinstance(refusal, Unknown | NotAllowed):
        return refusal  # what is said of a name tells nothing more, however one came to it
    if is_of_values(refusal) and "record" not in refusal.detail:
        refusal.detail["record"] = record
        told(refusal, format_record(record))
    return refusal


def of_row(refusal: Refusal, number: int) -> Refusal:
    """The same of a row that is to be inserted, by its number from 1."""
    if is_of_values(refusal) and "row" not in refusal.detail:
        refusal.detail["row"] = number
        told(refusal, f"row {number}")
    return refusal


def told(refusal: Refusal, what: str) -> None:
    """Add something to a message."""
    refusal.message += f" ({what})"
    refusal.args = (refusal.message,)
