"""Indexes and plans."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from language.tree.places import Exists
from protocol.paths import Path

if TYPE_CHECKING:
    from language.tree.records import Delete, Select, Update


@dataclass(frozen=True, slots=True)
class DefineIndex:
    """At least one path."""

    name: str
    table: str
    fields: tuple[Path, ...]
    unique: bool = False
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    wait: bool = False
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropIndex:
    name: str
    table: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    name: str
    table: str
    wait: bool = False
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Explain:
    """How a statement finds its records. `analyze`: find them, and say what that took; nothing is
    written either way."""

    statement: Select | Update | Delete
    analyze: bool = False
    at: int = field(default=0, compare=False)
