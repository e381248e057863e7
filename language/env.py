"""Evaluation environment: all that an expression can access outside its row."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from protocol.environment import Rng
from protocol.paths import Path
from protocol.values import PACE, RecordId, Value

if TYPE_CHECKING:
    from language import tree
    from language.search.analysis import Analyzer
    from language.search.terms import Query
    from language.sizing import WorkingMemory


class Env(Protocol):
    """Environment of compiled code. Nothing else outside the row is reachable from it."""

    @property
    def variables(self) -> dict[str, Any]:
        """Variables by name without the `$`: request parameters and LETs.

        Also `parent` inside a subquery, `value` where a statement binds one, and the parameters of
        a running closure.
        """

    @property
    def memory(self) -> WorkingMemory:
        """Memory accounting of the request, shared by all work that runs for it."""

    @property
    def now(self) -> datetime:
        """The transaction's time, constant for the whole transaction."""

    @property
    def rng(self) -> Rng:
        """The transaction's random number generator."""

    def select(self, select: tree.Select, parent: Value) -> Value:
        """Run a subquery and return its result.

        :param parent: the enclosing row, or `NONE` if there is none or the subquery does not read
            it
        """

    def record(self, record: RecordId) -> dict[str, Any] | None:
        """Return the fields of a record including `id`, or None if it does not exist."""

    def call(self, name: str, arguments: list[Any]) -> Any:
        """Call a user-defined function and return its result. `name` has no `fn::` prefix."""

    def analyzer(self, name: str) -> Analyzer:
        """Return an analyzer of the database. :raises Unknown: there is none of that name"""

    def text_match(self, paths: tuple[Path, ...], values: list[Any], query: Any) -> bool:
        """True if the values of some fields match a query, by the analyzer of the FULLTEXT index
        over these fields. :raises BadRequest: there is none"""

    def text_score(self, record: Any, path: Path | None) -> float:
        """Return the score of a row by the `@@` of its WHERE. :param path: of one field; None: all
        :raises BadRequest: the row is no record, or a query depends on the row"""

    def text_queries(self, path: Path) -> list[tuple[Analyzer, Query]]:
        """Return the queries of the `@@` of WHERE that are over a field."""

    def distance(self, record: Any) -> float:
        """Return the distance of a row by the NEAREST of its WHERE. :raises BadRequest: it has not
        been found by that"""

    def tick(self, cost: int = PACE) -> None:
        """Charge for CPU work.

        Called once for each batch, periodically in any long loop, and beside any pass over a large
        value. May yield the time slice. Raises if the statement timed out or was cancelled.

        :param cost: in array items, about 0.2 µs each. A node of an expression costs 1, as do 16
            characters that the interpreter's own loops process.
        """
