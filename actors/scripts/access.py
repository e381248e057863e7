"""Access to the records of one table: the path that was chosen, to read it and for EXPLAIN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from actors.scripts.column_scan import ColumnScan
from actors.scripts.text_search import TextAccess
from language import tree
from language.planner import Term
from language.rows import Batch
from protocol.values import Value
from storage.catalog.tables import Table

Access = Literal[
    "record", "range", "index", "indexes", "union", "fulltext", "nearest", "scan", "columns"
]


@dataclass(slots=True)
class NearestAccess:
    """Way of one NEAREST, for EXPLAIN.

    :ivar way: `lists`, `candidates` of another index, or `all`
    """

    way: str
    probes: int = 0
    widened: int = 0
    looked_at: int = 0
    fresh: int = 0
    by: dict[str, Value] = field(default_factory=dict)
    recall: Callable[[], Value] | None = None
    """Returns the measured recall for so many lists."""

    def described(self) -> dict[str, Value]:
        """Describe it for EXPLAIN."""
        told: dict[str, Value] = {"way": self.way}
        if self.way == "lists":
            told |= {"probes": self.probes, "widened": self.widened}
        told |= {"looked_at": self.looked_at, "fresh": self.fresh, **self.by}
        return told if self.recall is None else {**told, "recall": self.recall()}


@dataclass(slots=True)
class AccessPath:
    """Chosen way to the records of one table."""

    table: Table
    access: Access
    batches: Iterator[Batch]
    ordered: bool = False
    """True if records come in the order of ORDER BY."""
    reverse: bool = False
    indexes: tuple[str, ...] = ()
    used: tuple[Term, ...] = ()
    """Conditions that the access path fulfils."""
    answered: tuple[tree.Expression, ...] = ()
    """Conditions of `used` that hold for each record: they leave WHERE, if this is the only
    source."""
    entries: int | None = None
    """Records that the indexes lead to, where that is known beforehand."""
    texts: tuple[TextAccess, ...] = ()
    """FULLTEXT indexes that lead to the records."""
    nearest: NearestAccess | None = None
    """VECTOR index that leads to the records."""
    why: dict[str, str] = field(default_factory=dict)
    """Reasons why candidate indexes are not used, by their names."""
    columns: ColumnScan | None = None
    """Scan by columns, which finds the rows, or groups them."""
    rows: Iterator[Batch] | None = None
    """The same scan by row, for what columns cannot tell."""
    by_row: str | None = None
    """Reason why a scan of all records reads them by row."""
