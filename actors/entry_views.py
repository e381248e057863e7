"""Entry views: the part of a statement log or audit trail entry that a caller is shown.

`actors/rights.py` decides who the caller is and which namespace or database it owns.
"""

from __future__ import annotations

from datetime import datetime

from protocol.rights import is_inside
from storage.audit.trail import LoggedEntry

Ids = tuple[int, ...]
"""Ids of a namespace or database, or of the store: (namespace,), (namespace, database), ()."""


def since(kept: LoggedEntry, moment: datetime) -> bool:
    """True if an entry's event happened at or after a moment, as far as clocks agree."""
    return kept.at >= moment and (kept.happened is None or kept.happened >= moment)


def shown_inside(place: Ids, space: str | None, kept: LoggedEntry) -> LoggedEntry | None:
    """Return the part of an entry that the owner of a namespace or database is shown; None if it
    touched anything outside.

    :param place: ids of what it owns
    :param space: path of the same; None: the store
    """
    depth, entry = len(place), kept.entry
    if not all(touched[:depth] == place for touched in entry.places):
        return None
    if space is None or entry.namespace is None:
        return kept
    # A statement with fully qualified names may be run from any database. That one may not be this
    # owner's, so it is hidden.
    if entry.database is None:
        inside = entry.namespace == space
    else:
        inside = is_inside(f"{entry.namespace}.{entry.database}", space)
    return kept if inside else kept.without_place()
