"""The form of what frames carry for the statement log and the audit trail.

These are read back by their annotations, which a compiled module does not keep as they are written:
so they stand in a module of their own, which is not compiled.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What the statement log or the audit trail keeps of a commit beside its attribution."""

    kept: int
    """Where: a sum of `statements.STATEMENTS` and `statements.AUDIT`."""
    request: str
    """The id of the request."""
    address: str
    """Where the caller came from."""
    namespace: str | None
    database: str | None
    """The place that the statement stood in, by its names."""
    places: tuple[tuple[int, ...], ...]
    """All that it touched, by the ids of namespace and database; (): the store itself."""
    action: str | None = None
    """What was done, where no statement says it."""
    refused: str | None = None
    """The name of the error that it was refused with; None: it was done."""
    needs: str | None = None
    """What was missing, of a right that was refused."""
    more: int = 0
    """How many others like it have come since the one before, none of which has an entry."""


class Body(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The body of a frame, as `effects.py` says it."""

    by: str
    how: str
    statement: str | None
    reason: str | None
    effects: list[tuple[Any, ...]]
    entry: Entry | None = None
