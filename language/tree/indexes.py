"""AST of index statements and EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from language.tree.places import Exists
from protocol.paths import Path

if TYPE_CHECKING:
    from language.tree.expressions import Expression
    from language.tree.records import Delete, Select, Update


@dataclass(frozen=True, slots=True)
class FullText:
    """`FULLTEXT ANALYZER …` of an index. `boosts`: factors of fields, by their printed paths."""

    analyzer: str
    saturation: float = 1.2
    length: float = 0.75
    boosts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """`VECTOR DIMENSION …` of an index."""

    dimension: int
    distance: Literal["COSINE", "EUCLIDEAN", "DOT"] = "COSINE"
    type: Literal["F32", "I8"] = "F32"
    recall: float = 0.95


@dataclass(frozen=True, slots=True)
class DefineIndex:
    """`DEFINE INDEX` over at least one path."""

    name: str
    table: str
    fields: tuple[Path, ...]
    unique: bool = False
    exists: Exists = Exists.REFUSE
    comment: str | None = None
    wait: bool = False
    timeout: timedelta | None = None
    text: FullText | None = None
    vector: VectorIndex | None = None
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
    over: MeasureOver | None = None
    wait: bool = False
    timeout: timedelta | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CheckIndex:
    """`CHECK INDEX`: compare an index with all records of its table."""

    name: str
    table: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class MeasureOver:
    """Clauses of MEASURE. `vectors`: queries in the place of stored vectors. `where`: condition of
    queries that are measured, too."""

    queries: int = 200
    vectors: Expression | None = None
    k: int = 10
    probes: int | None = None
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class MeasureIndex:
    """`MEASURE INDEX`: measure the recall of a VECTOR index."""

    name: str
    table: str
    over: MeasureOver = MeasureOver()
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Explain:
    """`EXPLAIN`: the access path of a statement.

    `analyze`: also read the records and report the cost. Nothing is written in either case.
    """

    statement: Select | Update | Delete
    analyze: bool = False
    at: int = field(default=0, compare=False)
