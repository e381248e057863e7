"""Rows of the statement log and the audit trail, as a frame implies them.

Derived at the commit of the frame and at each replay alike. `storage/audit/trail.py` reads them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from storage.formats import keys
from storage.formats.effects import Attribution
from storage.formats.entries import AUDIT, STATEMENTS

TAGS: Final = {STATEMENTS: keys.STATEMENT, AUDIT: keys.AUDIT}
"""Tags of the keys, by the flag of the log."""

_encoder: Final = msgspec.msgpack.Encoder()


def rows(sequence: int, time_us: int, who: Attribution) -> dict[bytes, bytes]:
    """Return the rows of the statement log and the audit trail that a frame implies."""
    entry = who.entry
    if entry is None:
        return {}
    # A tuple, not a `_Row` of `storage/audit/trail.py`: this runs for every change of the store.
    row = _encoder.encode((time_us, who.by, who.how, who.statement, who.reason, entry))
    if entry.kept == STATEMENTS:
        return {keys.kept(keys.STATEMENT, sequence): row}
    return {keys.kept(tag, sequence): row for kept, tag in TAGS.items() if entry.kept & kept}
