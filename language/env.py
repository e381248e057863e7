"""What an expression may ask of its surroundings while it runs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from protocol.doors import Rng
from protocol.values import PACE, RecordId, Value

if TYPE_CHECKING:
    from language import tree
    from language.sizing import WorkingMemory


class Env(Protocol):
    """Everything outside the row that compiled code reads: nothing else is reachable from it."""

    @property
    def variables(self) -> dict[str, Any]:
        """Parameters of the request and LETs, by name without the `$`; `parent` inside a
        subquery, `value` where a statement sets one, a closure's own while it runs."""

    @property
    def memory(self) -> WorkingMemory:
        """What all that runs for the same request holds."""

    @property
    def now(self) -> datetime:
        """The transaction's time: the same for all of it."""

    @property
    def rng(self) -> Rng:
        """The transaction's randomness."""

    def select(self, select: tree.Select, parent: Value) -> Value:
        """What a subquery answers. `parent` is the row around it, `NONE` where there is none or
        where the subquery does not look at it."""

    def record(self, record: RecordId) -> dict[str, Any] | None:
        """The fields of a record, `id` among them; None when there is none."""

    def call(self, name: str, arguments: list[Any]) -> Any:
        """What a function of the database answers. `name` is the one it was defined under."""

    def tick(self, cost: int = PACE) -> None:
        """Charge for work: called once for each batch, now and then in any long loop, and beside
        whatever goes through a large value. May give control away, and raises when the statement
        ran out of time or was cancelled.

        :param cost: in items of an array, a fifth of a microsecond or so each: a node of an
            expression costs 1, and 16 characters that the interpreter's own loops go through do
        """
