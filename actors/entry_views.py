"""What somebody is shown of an entry of the statement log or the audit trail, once
`actors/rights.py` has said who that is and what it owns."""

from __future__ import annotations

from datetime import datetime

from protocol.rights import is_inside
from storage.statements import Kept

Ids = tuple[int, ...]
"""Of a place: (), (namespace,) or (namespace, database)."""


def since(kept: Kept, moment: datetime) -> bool:
    """Whether an entry is of what happened then or later, as far as clocks say."""
    return kept.at >= moment and (kept.happened is None or kept.happened >= moment)


def shown_inside(place: Ids, space: str | None, kept: Kept) -> Kept | None:
    """What the owner of a place is shown of an entry: nothing if it touched anything outside.

    :param space: the place by its name; None: the store
    """
    depth, entry = len(place), kept.entry
    if not all(touched[:depth] == place for touched in entry.places):
        return None
    if space is None or entry.namespace is None:
        return kept
    # What names its place in full may be said from anywhere: that is nothing of this owner's.
    if entry.database is None:
        inside = entry.namespace == space
    else:
        inside = is_inside(f"{entry.namespace}.{entry.database}", space)
    return kept if inside else kept.without_place()
