"""Statements on backups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from language.tree.node import NounRef

BackupForm = Literal["STATE", "LOG", "SCRIPT"]


@dataclass(frozen=True, slots=True)
class RestoreScript:
    """`RESTORE SCRIPT FROM 'name'`. `check`: only say what it would create."""

    name: str
    check: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Backup:
    """`BACKUP …`. Only a log has `first`, only the others `places`, and a state at most one."""

    form: BackupForm = "STATE"
    first: int | None = None
    """The sequence that a log begins at; None: all of it."""
    places: tuple[NounRef, ...] = ()
    """Namespaces and databases; empty: the whole store."""
    to: str | None = None
    """The name of a file in the backup folder; None: the backup is the answer."""
    at: int = field(default=0, compare=False)
