"""Namespaces, databases, tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Exists(Enum):
    """What a DEFINE does when the name is taken."""

    REFUSE = ""
    SKIP = "IF NOT EXISTS"
    OVERWRITE = "OVERWRITE"


@dataclass(frozen=True, slots=True)
class Use:
    """At least one is set."""

    namespace: str | None
    database: str | None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineNamespace:
    name: str
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DefineDatabase:
    """`namespace` None: the one in use."""

    namespace: str | None
    name: str
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class OnChange:
    """`ON CHANGE [OF f, …] PUBLISH INTO topic`; `topic` None: `ON CHANGE NONE`."""

    topic: str | None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefineTable:
    name: str
    exists: Exists = Exists.REFUSE
    schemafull: bool = False
    comment: str | None = None
    on_change: OnChange | None = None
    at: int = field(default=0, compare=False)

    @property
    def topic(self) -> str | None:
        """Where it is to tell of its changes."""
        return None if self.on_change is None else self.on_change.topic


@dataclass(frozen=True, slots=True)
class DropNamespace:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropDatabase:
    namespace: str | None
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropTable:
    name: str
    reason: str | None = None
    at: int = field(default=0, compare=False)
