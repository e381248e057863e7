"""Planner: chooses the access path of a statement, such as an index range scan or a table scan.

`Question` describes the predicates (WHERE) and sort order (ORDER BY) of a statement, computed once
for its AST. `candidates` are the indexes of a table that can serve it, computed once for a question
and a table. Only index ranges depend on parameter values, and are computed for each run:
`Candidate.spans`.

An access path yields a superset of the records that satisfy WHERE, and WHERE is evaluated again for
each of them. A path can therefore be slow, but never wrong. Three rules ensure that:

- An index holds every record in the total order over all values, NONE included. `=` selects one
  contiguous range of it. `<` and the like also select one range, which ends where the class of the
  compared value ends: it is bounded on both sides. Nothing lies before or past NONE or NULL in
  their classes.
- `string::starts` and a pattern anchored at the start select strings with a common prefix, which
  are one contiguous range.
- `CONTAINS` is true for an array with such an element, but also for strings and objects. The ranges
  of all strings and all objects are therefore read beside that of the element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Protocol

from language import tree
from language.field_paths import path_of
from language.fieldtypes import cut
from language.fixed import is_fixed
from language.names import children
from language.parsing.operators import operands_of
from language.patterns import beginning
from language.printing import print_expression
from protocol import order
from protocol.paths import Path, path_text
from protocol.values import NONE, Tick

ID: Final[Path] = ("id",)
COMPARISONS: Final = frozenset({"=", "<", "<=", ">", ">="})
_TURNED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SPANS: Final = 1_000
"""Maximum number of ranges of an index that one access path reads. Beyond it, a table scan is
faster."""
_ITEMS: Final = 4 * _SPANS
"""Maximum number of IN items examined to find out if more than `_SPANS` of them differ."""


_BRANCHES: Final = 64
"""Maximum number of OR branches served by an index union."""


class Indexed(Protocol):
    """An index as the planner sees it."""

    @property
    def name(self) -> str:
        """Name of the index."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Indexed fields, in order."""

    @property
    def unique(self) -> bool:
        """True if the index is unique."""

    @property
    def most(self) -> int:
        """Maximum encoded length of a value in the index. See `order.shortened`."""

    @property
    def usable(self) -> bool:
        """True if the index is complete: it covers every record of the table."""


@dataclass(frozen=True, slots=True)
class Term:
    """A conjunct of WHERE (operand of its AND) that is a predicate on a single field."""

    path: Path
    operator: str
    """Operator with the field on the left (for CONTAINS: as the container).

    It is one of `COMPARISONS`, IN, RANGE (IN low..high), PREFIX (`string::starts`), MATCH (`~`) or
    CONTAINS. OR stands for an `Either`, which has no path.
    """
    value: tree.Expression
    node: tree.Expression
    """The predicate as written."""


@dataclass(frozen=True, slots=True)
class Either:
    """A conjunct of WHERE that is a disjunction (OR) whose every branch has a predicate for an
    index.

    The union of the records that the branches' indexes yield contains every record that satisfies
    the disjunction.
    """

    branches: tuple[Question, ...]
    term: Term


@dataclass(frozen=True, slots=True)
class Question:
    """Predicates and sort order of a statement for one table."""

    conditions: tuple[tree.Expression, ...] = ()
    """Conjuncts of WHERE."""
    terms: tuple[Term, ...] = ()
    eithers: tuple[Either, ...] = ()
    texts: tuple[tree.Binary, ...] = ()
    """Conjuncts with `@@`."""
    order: tuple[tuple[Path, bool], ...] = ()
    """ORDER BY as pairs of path and descending flag; empty if it is not made of paths."""

    @property
    def plain(self) -> bool:
        """True if only a table scan can serve the statement."""
        return not (self.terms or self.order or self.eithers or self.texts)

    @property
    def point(self) -> Term | None:
        """The predicate, if WHERE is nothing but one equality on one field; else None."""
        if len(self.conditions) == len(self.terms) == 1 and self.terms[0].operator == "=":
            return self.terms[0]
        return None


def question(
    where: tree.Expression | None,
    orders: Sequence[tree.Expression] = (),
    descending: Sequence[bool] = (),
) -> Question:
    """Extract predicates and sort order from WHERE and ORDER BY."""
    conditions = () if where is None else tuple(operands_of(where, "AND"))
    terms = tuple(term for term in map(_term, conditions) if term is not None)
    paths = [path_of(expression) for expression in orders]
    order = tuple(
        (path, down) for path, down in zip(paths, descending, strict=True) if path is not None
    )
    eithers = tuple(either for either in map(_either, conditions) if either is not None)
    texts = tuple(
        one for one in conditions if isinstance(one, tree.Binary) and one.operator == "@@"
    )
    whole = order if len(order) == len(paths) else ()
    return Question(conditions, terms, eithers, texts, whole)


def _either(node: tree.Expression) -> Either | None:
    operands = operands_of(node, "OR")
    if not 2 <= len(operands) <= _BRANCHES:
        return None
    branches = tuple(map(question, operands))
    if not all(branch.terms for branch in branches):
        return None
    return Either(branches, Term((), "OR", node, node))


def _term(node: tree.Expression) -> Term | None:
    if isinstance(node, tree.Call) and node.name == "string::starts":
        return _beginning(node, "PREFIX", *node.arguments)
    if not isinstance(node, tree.Binary):
        return None
    left, right, operator = node.left, node.right, node.operator
    if operator in COMPARISONS:
        return _compared(node)
    if operator == "~":
        return _beginning(node, "MATCH", left, right)
    if operator == "IN":
        path = path_of(left)
        if path is not None and is_fixed(right):
            return Term(path, "RANGE" if isinstance(right, tree.Range) else "IN", right, node)
        left, right, operator = right, left, "CONTAINS"
    if operator == "CONTAINS":
        path = path_of(left)
        if path is not None and is_fixed(right):
            return Term(path, "CONTAINS", right, node)
    return None


def _beginning(
    node: tree.Expression, operator: str, text: tree.Expression, start: tree.Expression
) -> Term | None:
    path = path_of(text)
    return None if path is None or not is_fixed(start) else Term(path, operator, start, node)


def _compared(node: tree.Binary) -> Term | None:
    path = path_of(node.left)
    if path is not None and is_fixed(node.right):
        return Term(path, node.operator, node.right, node)
    path = path_of(node.right)
    if path is not None and is_fixed(node.left):
        return Term(path, _TURNED[node.operator], node.left, node)
    return None


# --- candidates -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """A range of index keys.

    It starts at the entries with prefix `low` (or after them) and ends before those with prefix
    `high` (or after them).
    """

    low: bytes
    low_past: bool
    high: bytes
    high_past: bool


def _beginning_with(prefix: bytes) -> Span:
    return Span(prefix, False, prefix, True)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An access path by one index."""

    index: Indexed
    equal: tuple[Term, ...]
    """Predicates on the leading fields: `=`, IN or CONTAINS (at most once)."""
    ranged: tuple[Term, ...] = ()
    """Range predicates on the field after these."""
    ordered: bool = False
    """True if the index yields the records in the requested order, forwards or backwards."""
    backwards: bool = False
    ties_up: bool = True
    """True if records with equal sort keys follow by ascending id, also in a backward scan."""

    @property
    def used(self) -> tuple[Term, ...]:
        """Predicates that the access path uses."""
        return self.equal + self.ranged

    @property
    def contains(self) -> int | None:
        """Position of CONTAINS in `equal`; None if it is absent."""
        for number, term in enumerate(self.equal):
            if term.operator == "CONTAINS":
                return number
        return None

    @property
    def is_point(self) -> bool:
        """True if the access path yields at most one record (a point lookup)."""
        return (
            self.index.unique
            and len(self.equal) == len(self.index.paths)
            and all(term.operator == "=" for term in self.equal)
        )

    def spans(self, values: Callable[[Term], Any]) -> Spans | None:
        """Compute the index ranges for the values of a run; None if the index does not help with
        them.

        :param values: returns the value of a term; a pair for RANGE
        """
        contains = self.contains
        choices: list[list[bytes]] = []
        for number, term in enumerate(self.equal):
            value = values(term)
            items = value if term.operator == "IN" else [value]
            if (
                type(items) is not list
                or len(items) > _ITEMS
                or not all(map(order.fits_index, items))
            ):
                return None
            if contains is not None and number != contains and list in map(type, items):
                return None  # element entries hold elements of other arrays, not whole arrays
            encoded = {order.shortened(order.encode(item), self.index.most) for item in items}
            choices.append(sorted(encoded))
        count = 1
        for choice in choices:
            count *= len(choice)
        if count > _SPANS:
            return None
        prefixes = [b"".join(parts) for parts in product(*choices)]
        if contains is not None:
            return self._around(contains, choices, prefixes, values(self.equal[contains]))
        if not self.ranged:
            return Spans(False, tuple(map(_beginning_with, prefixes)))
        if not all(order.fits_index(values(term)) for term in self.ranged):
            return None
        bounds = self._bounds(values)
        if bounds is None:
            return None
        low, high = bounds
        return Spans(False, tuple(_between(prefix, low, high) for prefix in prefixes))

    def _around(
        self, contains: int, choices: list[list[bytes]], prefixes: list[bytes], value: Any
    ) -> Spans:
        beside: list[Span] = []
        if type(value) is str:
            for parts in product(*choices[:contains]):
                prefix = b"".join(parts)
                beside.append(_beginning_with(prefix + order.STRINGS))
                beside.append(_beginning_with(prefix + order.OBJECTS))
        return Spans(True, tuple(map(_beginning_with, prefixes)), tuple(beside))

    def _bounds(self, values: Callable[[Term], Any]) -> tuple[_Bound | None, _Bound | None] | None:
        """Return the tightest lower and upper bound; None if a predicate does not help."""
        lows: list[_Bound] = []
        highs: list[_Bound] = []
        kept = order.kept_bytes(self.index.most)
        for term in self.ranged:
            found = _stretch(term.operator, values(term), kept)
            if found is None:
                return None
            low, high = found
            lows.append(low)
            highs.append(high)
        return max(lows, key=_place, default=None), min(highs, key=_place, default=None)


def _stretch(operator: str, value: Any, kept: int) -> tuple[_Bound, _Bound] | None:
    """Return the bounds of the values that satisfy one predicate, or None if it does not help.

    :param kept: bytes of a long value that the index stores. Values with the same long prefix are
        not ordered in the index, so all of them are included.
    """
    if operator == "RANGE":
        return (order.encode(value[0]), False), (order.encode(value[1]), True)
    if operator in ("PREFIX", "MATCH"):
        if type(value) is not str:
            return None
        start = value if operator == "PREFIX" else beginning(value)
        common = order.beginning(start)[:kept]
        return ((common, False), (common, True)) if start else None
    if value is NONE or value is None:
        return (b"", False), (b"", False)
    encoded = order.encode(value)
    first, past = order.class_bounds(encoded)
    cut = len(encoded) > kept
    if operator in (">", ">="):
        return (encoded[:kept], operator == ">" and not cut), (past, False)
    return (first, False), (encoded[:kept], operator == "<=" or cut)


_Bound = tuple[bytes, bool]
"""A key prefix, and True if the bound lies after its entries instead of before."""


def _place(bound: _Bound) -> bytes:
    # No encoding continues with FF where another one ends.
    return bound[0] + b"\xff" if bound[1] else bound[0]


def _between(prefix: bytes, low: _Bound | None, high: _Bound | None) -> Span:
    low = (b"", False) if low is None else low
    high = (b"", True) if high is None else high
    return Span(prefix + low[0], low[1], prefix + high[0], high[1])


@dataclass(frozen=True, slots=True)
class Spans:
    """Ranges of an index to scan."""

    elements: bool
    """True if the ranges `here` are over array elements instead of whole values."""
    here: tuple[Span, ...]
    beside: tuple[Span, ...] = ()
    """Additional ranges over whole values."""


def candidates(question: Question, indexes: Iterable[Indexed]) -> tuple[Candidate, ...]:
    """Return the access paths that a table's indexes offer, best first."""
    found = [one for index in indexes if index.usable for one in _candidates(question, index)]
    return tuple(sorted(found, key=_promise))


Branches = tuple[tuple[Candidate, ...], ...]
"""Access paths for each branch of an `Either`, best first."""


def united(question: Question, indexes: Iterable[Indexed]) -> tuple[tuple[Either, Branches], ...]:
    """Return the disjunctions of which every branch has an access path (index union)."""
    known = tuple(indexes)
    found = []
    for either in question.eithers:
        branches = tuple(candidates(branch, known) for branch in either.branches)
        if all(branches):
            found.append((either, branches))
    return tuple(found)


Asked = dict[Path, tree.Expression | None]
"""Paths that a question names, each with the first predicate on it; None for a path only in ORDER
BY."""


def asked(question: Question, tick: Tick) -> Asked:
    """Return the paths that a question names. See `Asked`.

    :param tick: called for each condition
    """
    found: Asked = dict.fromkeys((path for path, _ in question.order), None)
    for node in question.conditions:
        tick()
        for path in _paths(node):
            if found.get(path) is None:
                found[path] = node
    return found


def _paths(node: Any) -> Iterator[Path]:
    path = path_of(node)
    if path is not None:
        yield path
    for child in children(node):
        yield from _paths(child)


def obstacle(asked: Asked, index: Indexed) -> str:
    """Explain why an index over requested fields is not a candidate."""
    first = path_text(index.paths[0])
    met = asked.get(index.paths[0])
    if isinstance(met, tree.Binary) and met.operator == "OR":
        return f"a condition joined by OR has no index: {cut(print_expression(met))}"
    if met is not None:
        return f"{cut(print_expression(met))} bounds no range of the index"
    for number, path in enumerate(index.paths[1:], 2):
        if asked.get(path) is not None:
            return (
                f"{path_text(path)} is field {number} of the index, and no condition is on {first}"
            )
    return "ORDER BY has other fields than the index, or several directions"


def _promise(candidate: Candidate) -> tuple[bool, int, int, bool]:
    exact = sum(term.operator != "IN" for term in candidate.equal)
    return (
        not candidate.is_point,
        -2 * len(candidate.equal) - bool(candidate.ranged),
        -exact,
        not candidate.ordered,
    )


def _candidates(question: Question, index: Indexed) -> Iterable[Candidate]:
    equal: list[Term] = []
    for path in index.paths:
        term = _equal_on(question, path, may_contain=all(t.operator != "CONTAINS" for t in equal))
        if term is None:
            break
        equal.append(term)
    ranged: tuple[Term, ...] = ()
    contains = any(term.operator == "CONTAINS" for term in equal)
    if len(equal) < len(index.paths) and not contains:
        ranged = tuple(
            term
            for term in question.terms
            if term.path == index.paths[len(equal)] and term.operator in _RANGES
        )
    if not contains and question.order:
        ordered = _ordered(question, index, equal, ranged)
        if ordered is not None:
            yield ordered
            return
    if equal or ranged:
        yield Candidate(index, tuple(equal), ranged)


_RANGES: Final = frozenset({"<", "<=", ">", ">=", "RANGE", "PREFIX", "MATCH"})


def _equal_on(question: Question, path: Path, may_contain: bool) -> Term | None:
    for operator in ("=", "IN", "CONTAINS") if may_contain else ("=", "IN"):
        for term in question.terms:
            if term.path == path and term.operator == operator:
                return term
    return None


def _ordered(
    question: Question, index: Indexed, equal: list[Term], ranged: tuple[Term, ...]
) -> Candidate | None:
    """Return the candidate that yields records in the requested order, or None.

    The fields after the equal ones must be exactly those of ORDER BY, all in one direction. Records
    equal in all of them are stored in the order of their ids, as a stable sort leaves them.
    """
    if any(term.operator != "=" for term in equal):
        return None
    settled = {term.path for term in equal}
    wanted = [(path, down) for path, down in question.order if path not in settled]
    by_id: bool | None = None
    if wanted and wanted[-1][0] == ID:
        by_id = wanted.pop()[1]
    if not wanted or tuple(path for path, _ in wanted) != index.paths[len(equal) :]:
        return None
    directions = {down for _, down in wanted}
    if len(directions) > 1:
        return None
    backwards = directions == {True}
    if by_id and not backwards:
        return None
    return Candidate(
        index, tuple(equal), ranged, ordered=True, backwards=backwards, ties_up=not by_id
    )
