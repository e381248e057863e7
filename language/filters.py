"""Filters: a condition on one record, evaluated again each time the record changes.

A filter reads only that record, and is deterministic: the same record always gives the same result.
Otherwise a record that entered a feed could not be removed from it correctly. Feeds have one, and
measurements of a VECTOR index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn

from language import tree
from language.comparisons import Comparison, comparisons
from language.compile import compile_condition, compile_expression
from language.confined import Types, check_reads_nothing, unknown_variable
from language.functions import TABLE
from language.functions.search import text_matches
from language.names import children, shape_of, weight
from language.parser import parse_expression
from language.rows import NO_FIELDS, Pairs
from language.search.analysis import Analyzer
from language.search.fields import matched
from language.sizing import WorkingMemory
from protocol import limits
from protocol.environment import Rng
from protocol.errors import BadRequest, TooLarge
from protocol.paths import Path
from protocol.values import PACE, RecordId, Tick, Value, unpaced

WHAT: Final = "the filter of a feed"

AnalyzerOf = Callable[[tuple[Path, ...]], Analyzer]
"""Returns the analyzer of the FULLTEXT index over some fields; raises BadRequest without one."""

RecordIds = Callable[[bytes], RecordId]
"""Maps a key to its record id."""


CONSTANT_TICKS: Final = 64
"""Ticks, of `PACE` items each, that all constants of a filter may take when it is opened: some
milliseconds, in which the loop is not yielded."""


class Filter:
    """A compiled filter.

    :param types: declared types of the table's fields
    :param variables: values of its variables beside `$this`
    :param what: name of the filter in error messages
    :ivar text: source text of the filter
    :ivar comparisons: its comparisons, checked against the declared types of fields
    """

    __slots__ = (
        "_analyzer_of", "_constants", "_shape", "_variables", "_what", "_work", "comparisons",
        "text",
    )  # fmt: skip

    def __init__(
        self,
        text: str,
        types: Types,
        analyzer_of: AnalyzerOf | None = None,
        variables: Mapping[str, Any] | None = None,
        what: str = WHAT,
    ) -> None:
        """Parse, check and compile a filter.

        :raises UnexpectedToken, Unknown, BadRequest: not an expression, or one that reads more than
            the record
        :raises TooLarge: over `limits.FILTER_BYTES`
        """
        if len(text.encode("utf-8", "surrogatepass")) > limits.FILTER_BYTES:
            raise TooLarge(
                f"a filter has at most {limits.FILTER_BYTES} bytes", limit=limits.FILTER_BYTES
            )
        condition = parse_expression(text)
        self._variables, self._what = variables or {}, what
        _check(condition, types, frozenset(self._variables), what)
        analyzer_of = analyzer_of or partial(_no_index, what)
        for paths in matched(condition):
            analyzer_of(paths)
        self.text = text
        self.comparisons: tuple[Comparison, ...] = comparisons(condition)
        self._analyzer_of = analyzer_of
        self._constants = self._alone(unpaced, CONSTANT_TICKS)
        self._shape = shape_of(condition)
        self._work = compile_condition(condition, self._shape)

    def passes(self, key: bytes, fields: bytes, record_id: RecordIds, tick: Tick) -> bool:
        """True if a record passes the filter.

        :param key: key of the record
        :param fields: packed fields of the record
        :raises Refusal: the condition cannot be computed for this record
        """
        (row,) = self._shape.from_pairs(Pairs([(key, fields)], record_id))
        return self._work(row, self._alone(tick))

    def _alone(self, tick: Tick, ticks: int | None = None) -> _Alone:
        # A copy: the parameters of closures are bound beside them.
        return _Alone(self._analyzer_of, tick, ticks, dict(self._variables), self._what)

    def evaluate(self, expression: tree.Expression) -> Value:
        """Evaluate an expression of the filter that reads no field.

        :raises Refusal: it cannot be computed
        :raises TooLarge: all of them together take more than `CONSTANT_TICKS`
        """
        compute = compile_expression(expression, NO_FIELDS)
        value: Value = compute(NO_FIELDS.make(()), self._constants)
        return value


def _no_index(what: str, paths: tuple[Path, ...]) -> NoReturn:
    raise BadRequest(f"{what} has no FULLTEXT index over these fields")


def _check(condition: tree.Expression, types: Types, variables: frozenset[str], what: str) -> None:
    if weight(condition, limits.FILTER_NODES) > limits.FILTER_NODES:
        raise TooLarge(
            f"a filter has at most {limits.FILTER_NODES} names, values and operators",
            limit=limits.FILTER_NODES,
        )
    other = unknown_variable(condition, variables | {"this"})
    if other is not None:
        raise BadRequest(f"unknown variable ${other.name} in {what}: it has $this")
    check_reads_nothing(what, "the record", condition, _place, types)
    changing = _changing(condition)
    if changing is not None:
        raise BadRequest(
            f"{what} calls {changing}, which may return another result at the next call"
        )


def _place(node: tree.Expression) -> Path | None:
    if isinstance(node, tree.Name):
        return (node.name,)
    return () if isinstance(node, tree.Parameter) and node.name == "this" else None


def _changing(node: Any) -> str | None:
    """Return the first called function whose result does not depend on its arguments alone, or
    None.

    User-defined functions count: their definition may change.
    """
    if isinstance(node, tree.Call) and not (node.name in TABLE and TABLE[node.name].fixed):
        return node.name
    found = (_changing(child) for child in children(node) if child is not None)
    return next(filter(None, found), None)


class _Alone:
    """`language.env.Env` of a filter: nothing outside the record is reachable."""

    __slots__ = ("_analyzer_of", "_left", "_tick", "_what", "memory", "variables")

    def __init__(
        self,
        analyzer_of: AnalyzerOf,
        tick: Tick,
        ticks: int | None,
        variables: dict[str, Any],
        what: str,
    ) -> None:
        self._analyzer_of = analyzer_of
        self._tick = tick
        self._left = (limits.FILTER_TICKS if ticks is None else ticks) * PACE
        self.memory = WorkingMemory()
        self.variables = variables
        """Its own, and the parameters of closures."""
        self._what = what

    def text_match(self, paths: tuple[Path, ...], values: list[Any], query: Any) -> bool:
        """Return the value of `@@` for the fields of the record."""
        return text_matches(self, self._analyzer_of(paths), values, query)

    def text_score(self, record: Any, path: Path | None) -> NoReturn:
        """Unreachable: a filter with a score is rejected when it is compiled."""
        raise AssertionError("a filter asked for a score")

    def text_queries(self, path: Path) -> NoReturn:
        """Unreachable: a filter with a highlight is rejected when it is compiled."""
        raise AssertionError("a filter asked for a highlight")

    def distance(self, record: Any) -> NoReturn:
        """Unreachable: a filter with a distance is rejected when it is compiled."""
        raise AssertionError("a filter asked for a distance")

    def tick(self, cost: int = PACE) -> None:
        """Charge for work and yield. :raises TooLarge: the filter takes too many steps on one
        record"""
        looked = self._left // PACE
        self._left -= cost
        if self._left < 0:
            raise TooLarge(
                f"{self._what} takes too many steps on one record", limit=limits.FILTER_TICKS
            )
        if self._left // PACE < looked:
            self._tick()

    @property
    def now(self) -> datetime:
        """Unreachable: a filter that reads the time is rejected when it is compiled."""
        raise AssertionError("a filter asked for the time")

    @property
    def rng(self) -> Rng:
        """Unreachable: a filter that uses randomness is rejected when it is compiled."""
        raise AssertionError("a filter asked for chance")

    def select(self, select: tree.Select, parent: Value) -> NoReturn:
        """Unreachable: a filter with a SELECT is rejected when it is compiled."""
        raise AssertionError("a filter has a SELECT")

    def record(self, record: RecordId) -> NoReturn:
        """Reject following a link found only in the record's value. :raises BadRequest: always"""
        raise BadRequest(f"{self._what} may read only the record, not a record that it links to")

    def call(self, name: str, arguments: list[Any]) -> NoReturn:
        """Unreachable: a filter that calls a user-defined function is rejected before it runs."""
        raise AssertionError("a filter calls a function of the database")

    def analyzer(self, name: str) -> NoReturn:
        """Unreachable: a filter that analyses text is rejected before it runs."""
        raise AssertionError("a filter uses an analyzer of the database")
