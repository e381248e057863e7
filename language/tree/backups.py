"""AST of the backup statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from language.tree.node import SecurableRef

BackupForm = Literal["STATE", "LOG", "SCRIPT"]


@dataclass(frozen=True, slots=True)
class RestoreScript:
    """`RESTORE SCRIPT FROM 'name'`. `check`: dry run that reports the objects it would create."""

    name: str
    check: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Backup:
    """`BACKUP …`. `first` is for LOG only, `places` for the other forms; STATE takes at most one
    place."""

    form: BackupForm = "STATE"
    first: int | None = None
    """First sequence of a log backup; None: the whole log."""
    places: tuple[SecurableRef, ...] = ()
    """Namespaces and databases; empty: the whole store."""
    to: str | None = None
    """Name of a file in the backup folder; None: the backup is returned as the result."""
    at: int = field(default=0, compare=False)
