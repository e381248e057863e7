"""AST of statements on namespaces, databases and tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Exists(Enum):
    """Behaviour of DEFINE if the name exists already."""

    REFUSE = ""
    SKIP = "IF NOT EXISTS"
    OVERWRITE = "OVERWRITE"


@dataclass(frozen=True, slots=True)
class Use:
    """`USE`. At least one of the two is set."""

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
    """`DEFINE DATABASE`. `namespace` None: the current namespace."""

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
        """Topic that receives the table's changes; None if not set."""
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
