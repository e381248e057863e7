"""Which way a statement takes to its records.

`Question` is what a WHERE and an ORDER BY ask, found once for a tree. `candidates` are the indexes
of a table that can help with it, found once for a question and a table. Only what depends on the
values of parameters is done for each run: `Candidate.spans`.

A way leads to at least all records that WHERE lets through, and WHERE is applied to each of them
again: so a way can be wasteful, never wrong. Three rules keep that so:

- An index holds every record in the one order over all values, NONE included. What `=` lets through
  is one stretch of it; what `<` and the like let through is one too, which ends where the class of
  the value compared with ends: it is bounded on both sides. Nothing lies before or past NONE or
  NULL in their classes.
- What `string::starts` and a pattern that is bound to the beginning let through lies among the
  strings with that beginning, which are one stretch.
- `CONTAINS` is true of an array with such an element, and of strings and objects too: of these the
  stretches that hold all strings and all objects are read beside the element's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Protocol

from language import tree
from language.fieldtypes import cut
from language.grouping import AGGREGATES
from language.names import DEFINED, children, parent_fields
from language.parsing.operators import operands_of
from language.patterns import beginning
from language.printing import print_expression
from protocol import order
from protocol.paths import EACH, Path, Step, path_text
from protocol.values import NONE, Tick

ID: Final[Path] = ("id",)
COMPARISONS: Final = frozenset({"=", "<", "<=", ">", ">="})
_TURNED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SPANS: Final = 1_000
"""Stretches of an index that one way goes through; more are read faster with the whole table."""
_ITEMS: Final = 4 * _SPANS
"""Items of an IN that are looked at to see whether so many of them are different."""


_BRANCHES: Final = 64
"""Conditions joined by OR that are looked up one after the other."""


class Indexed(Protocol):
    """What the planner asks of an index."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The fields it is over."""

    @property
    def unique(self) -> bool:
        """Whether no two records have the same values."""

    @property
    def most(self) -> int:
        """See `order.shortened`."""

    @property
    def usable(self) -> bool:
        """Whether it holds what it should of every record."""


@dataclass(frozen=True, slots=True)
class Term:
    """One of the conditions that WHERE joins with AND, when it is one on a single field."""

    path: Path
    operator: str
    """One of `COMPARISONS`, IN, RANGE (IN low..high), PREFIX (`string::starts`), MATCH (`~`) or
    CONTAINS, with the field on the left (of CONTAINS: as the container); OR stands for an
    `Either`, which has no path."""
    value: tree.Expression
    node: tree.Expression
    """The condition as it is written."""


@dataclass(frozen=True, slots=True)
class Either:
    """One of the conditions that WHERE joins with AND, when it joins others with OR, each of them
    one that an index may help with: what these lead to are together all that it lets through."""

    branches: tuple[Question, ...]
    term: Term


@dataclass(frozen=True, slots=True)
class Question:
    """What a statement asks of one table."""

    conditions: tuple[tree.Expression, ...] = ()
    """What WHERE joins with AND."""
    terms: tuple[Term, ...] = ()
    eithers: tuple[Either, ...] = ()
    order: tuple[tuple[Path, bool], ...] = ()
    """ORDER BY as paths and whether each is descending; empty when it is not made of paths."""

    @property
    def plain(self) -> bool:
        """Whether nothing but a scan can answer it."""
        return not (self.terms or self.order or self.eithers)

    @property
    def point(self) -> Term | None:
        """The one condition, when all that is asked is that one field equals something."""
        if len(self.conditions) == len(self.terms) == 1 and self.terms[0].operator == "=":
            return self.terms[0]
        return None


def question(
    where: tree.Expression | None,
    orders: Sequence[tree.Expression] = (),
    descending: Sequence[bool] = (),
) -> Question:
    """What a WHERE and an ORDER BY ask."""
    conditions = () if where is None else tuple(operands_of(where, "AND"))
    terms = tuple(term for term in map(_term, conditions) if term is not None)
    paths = [path_of(expression) for expression in orders]
    order = tuple(
        (path, down) for path, down in zip(paths, descending, strict=True) if path is not None
    )
    eithers = tuple(either for either in map(_either, conditions) if either is not None)
    return Question(conditions, terms, eithers, order if len(order) == len(paths) else ())


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


def path_of(node: tree.Expression, *, with_this: bool = False) -> Path | None:
    """The path that an expression is, if it is one; also as `$this.…`, if that is asked for."""
    steps: list[Step] = []
    while not isinstance(node, tree.Name):
        if with_this and node == tree.Parameter("this") and steps and type(steps[-1]) is str:
            return tuple(reversed(steps))
        if isinstance(node, tree.Attribute):
            steps.append(node.name)
        elif isinstance(node, tree.Each):
            steps.append(EACH)
        elif isinstance(node, tree.Index) and isinstance(node.index, tree.Constant):
            step = node.index.value
            if type(step) is not str and type(step) is not int:
                return None
            steps.append(step)
        else:
            return None
        node = node.of
    return node.name, *reversed(steps)


def is_fixed(node: Any) -> bool:
    """Whether an expression has the same value for every row."""
    if isinstance(node, tree.Name):
        return False
    if isinstance(node, tree.Parameter):
        return node.name != "this"
    if isinstance(node, tree.Subquery):
        return parent_fields(node.select) == frozenset() and not _draws(node)
    if isinstance(node, tree.Call) and (_draws(node) or node.name in AGGREGATES):
        return False
    return (
        all(map(is_fixed, children(node)))
        if hasattr(node, "__dataclass_fields__")
        else (all(map(is_fixed, node)) if isinstance(node, tuple) else True)
    )


def _draws(node: Any) -> bool:
    """Whether chance has a part in an expression, or may have: what a database's function does is
    not known before it is called."""
    if isinstance(node, tree.Call) and node.name.startswith(("rand::", DEFINED)):
        return True
    return any(map(_draws, children(node)))


# --- candidates -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one side of an index: from the entries that begin with `low` (or past them) to
    before those that begin with `high` (or past them)."""

    low: bytes
    low_past: bool
    high: bytes
    high_past: bool


def _beginning_with(prefix: bytes) -> Span:
    return Span(prefix, False, prefix, True)


@dataclass(frozen=True, slots=True)
class Candidate:
    """How one index can help with a question."""

    index: Indexed
    equal: tuple[Term, ...]
    """For each of the first fields: `=`, IN or CONTAINS (once at most)."""
    ranged: tuple[Term, ...] = ()
    """On the field after these."""
    ordered: bool = False
    """Whether the entries lie in the order that is asked for, forwards or backwards."""
    backwards: bool = False
    ties_up: bool = True
    """Whether records equal in what is ordered by go by ascending ids all the same."""

    @property
    def used(self) -> tuple[Term, ...]:
        """The conditions that it takes up."""
        return self.equal + self.ranged

    @property
    def contains(self) -> int | None:
        """Which of `equal` is CONTAINS."""
        for number, term in enumerate(self.equal):
            if term.operator == "CONTAINS":
                return number
        return None

    @property
    def is_point(self) -> bool:
        """Whether it leads to one record at most."""
        return (
            self.index.unique
            and len(self.equal) == len(self.index.paths)
            and all(term.operator == "=" for term in self.equal)
        )

    def spans(self, values: Callable[[Term], Any]) -> Spans | None:
        """Where to look, now that values are known; None when it is of no help with these.

        :param values: the value of a term; of RANGE a pair
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
                return None  # beside an element stand the elements of other arrays, not these
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
        """The tightest of the bounds from below and from above; None when one is of no help."""
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
    """Between which bounds the values lie that one condition lets through.

    :param kept: bytes that the index keeps of a long value. Among values with the same long
        beginning there is no order: all of them are taken.
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
"""The beginning of entries, and whether the bound lies past them instead of before."""


def _place(bound: _Bound) -> bytes:
    # No encoding goes on with FF where another one ends.
    return bound[0] + b"\xff" if bound[1] else bound[0]


def _between(prefix: bytes, low: _Bound | None, high: _Bound | None) -> Span:
    low = (b"", False) if low is None else low
    high = (b"", True) if high is None else high
    return Span(prefix + low[0], low[1], prefix + high[0], high[1])


@dataclass(frozen=True, slots=True)
class Spans:
    """Where to look in an index."""

    elements: bool
    """Whether `here` are among the elements of arrays and not among whole values."""
    here: tuple[Span, ...]
    beside: tuple[Span, ...] = ()
    """Among whole values."""


def candidates(question: Question, indexes: Iterable[Indexed]) -> tuple[Candidate, ...]:
    """How the indexes of a table can help, the most promising first."""
    found = [one for index in indexes if index.usable for one in _candidates(question, index)]
    return tuple(sorted(found, key=_promise))


Branches = tuple[tuple[Candidate, ...], ...]
"""For each branch of an `Either` how indexes can help with it, the most promising first."""


def united(question: Question, indexes: Iterable[Indexed]) -> tuple[tuple[Either, Branches], ...]:
    """The eithers of a question whose every branch some index can help with."""
    known = tuple(indexes)
    found = []
    for either in question.eithers:
        branches = tuple(candidates(branch, known) for branch in either.branches)
        if all(branches):
            found.append((either, branches))
    return tuple(found)


Asked = dict[Path, tree.Expression | None]
"""The paths that a question names, each with the first condition that it stands in; None of one
that only ORDER BY names."""


def asked(question: Question, tick: Tick) -> Asked:
    """See `Asked`.

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
    """Why an index over what is asked for, and that is none of the candidates, can't help."""
    first = path_text(index.paths[0])
    met = asked.get(index.paths[0])
    if isinstance(met, tree.Binary) and met.operator == "OR":
        return f"one of the conditions joined by OR has no index: {cut(print_expression(met))}"
    if met is not None:
        return f"no part of it is what {cut(print_expression(met))} lets through"
    for number, path in enumerate(index.paths[1:], 2):
        if asked.get(path) is not None:
            return f"{path_text(path)} is field {number} of it, and nothing is asked of {first}"
    return "ORDER BY goes by other fields than all of its own, or in several directions"


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
    """The candidate whose entries lie in the order asked for, if they can.

    That is so when the fields after those that are equal are exactly what is ordered by, all in one
    direction: records that are equal in all of them lie by their ids, as a sort leaves them.
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
