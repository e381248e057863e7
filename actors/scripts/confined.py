"""The surroundings of what runs for whoever comes by: DEFAULT, VALUE, ASSERT, functions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from language import tree
from language.sizing import WorkingMemory
from protocol.doors import Rng
from protocol.errors import TypeRefused
from protocol.text import format_record
from protocol.values import PACE, RecordId, Value

if TYPE_CHECKING:
    from actors.scripts.execution import Execution

FOR_WRITER: Final = "for whoever writes a record"
IN_FUNCTION: Final = "inside a function"


class Confined:
    """What such an expression sees: the transaction's time and randomness, its own variables, and
    neither parameters nor LETs of the script, so that it answers alike whoever asks. Nothing of the
    store: see `language.confined`.

    :param where: the end of a refusal, where it was met
    """

    __slots__ = ("_run", "_where", "variables")

    def __init__(self, run: Execution, where: str, variables: dict[str, Any]) -> None:
        self._run = run
        self._where = where
        self.variables = variables

    def of_value(self, value: Any) -> Confined:
        """The same, with `$value`."""
        return Confined(self._run, self._where, {"value": value})

    @property
    def memory(self) -> WorkingMemory:
        """Memory held by the run."""
        return self._run.memory

    @property
    def now(self) -> datetime:
        """The transaction's time."""
        return self._run.now

    @property
    def rng(self) -> Rng:
        """The transaction's randomness."""
        return self._run.rng

    def select(self, select: tree.Select, parent: Value) -> Value:
        """:raises TypeRefused: always. What was defined with a SELECT in an earlier version must be
        defined anew"""
        raise TypeRefused(f"a SELECT is not run {self._where}: define it anew")

    def record(self, record: RecordId) -> dict[str, Any] | None:
        """:raises TypeRefused: always"""
        link = format_record(record)
        raise TypeRefused(f"the record link {link} is not followed {self._where}")

    def call(self, name: str, arguments: list[Any]) -> Any:
        """What a function of the database answers."""
        return self._run.call(name, arguments)

    def tick(self, cost: int = PACE) -> None:
        """Give the loop its turn when the slice is used up."""
        self._run.tick(cost)
