"""Strategies for syntax trees as the parser makes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, get_args

from hypothesis import strategies as st

from language import tree
from language.functions import TABLE
from language.parsing.links import linking
from language.parsing.operators import chain, takes_no_rows
from protocol import limits
from protocol.paths import EACH
from protocol.values import NONE

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = st.sampled_from(
    ["a", "name", "value", "order", "SELECT", "from", "none", "not", "in", "limit", "start", "if",
     "b_1", "count", "group", "case", "when", "end", "time",
     "else", "before", "u", "d", "b", "true", "dec", "_x"]
)  # fmt: skip
ODD = st.sampled_from(["*", "**", "[*]", "`", "a.b"])
LABELS = st.one_of(
    WORDS, ODD, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
)
FIELDS = LABELS | st.just("")
NAMES = st.one_of(WORDS, st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,5}", fullmatch=True))
CALLABLE = NAMES.filter(lambda name: "-" not in name)
INTS = st.integers(limits.INT_MIN, limits.INT_MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.builds(
    lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=34).map(tuple),
    st.integers(-40, 40),
)
DURATIONS = st.timedeltas(timedelta(days=-10_000_000), timedelta(days=10_000_000))
DATETIMES = st.datetimes(datetime(1, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(fold=0)
)
SCALARS = st.one_of(
    st.sampled_from([NONE, None, True, False, math.pi, 0, 1, -1]),
    INTS, FLOATS, DECIMALS, TEXT, st.binary(max_size=8), DATETIMES, DURATIONS, st.uuids(),
)  # fmt: skip
PACKED: st.SearchStrategy[Any] = st.sampled_from(
    [[], {}, [1, "a", [NONE]], {"a": None, "b c": [True, 1.5]}]
)
"""Arrays and objects that are one constant."""
CONSTANTS = SCALARS.map(tree.Constant) | PACKED.map(tree.Constant)
IDENTITIES = st.one_of(
    INTS.map(tree.Constant),
    LABELS.map(tree.Constant),
    st.uuids().map(tree.Constant),
    NAMES.filter(str.isidentifier).map(tree.Parameter),
)
LEAVES = st.one_of(
    CONSTANTS,
    FIELDS.map(tree.Name),
    NAMES.filter(str.isidentifier).map(tree.Parameter),
    st.builds(tree.RecordLiteral, NAMES, IDENTITIES),
)
BINARY = [
    "=", "!=", "<", "<=", ">", ">=", "IN", "NOT IN", "CONTAINS", "~", "??", "+", "-", "*", "/", "%",
]  # fmt: skip


def unary(operator: Any, operand: tree.Expression) -> tree.Expression:
    """A sign before a number is part of the number."""
    return tree.Unary(operator, operand)


def with_its_operands(node: tree.Binary) -> tree.Binary:
    """An array of rows is refused where one value is wanted: IN takes it."""
    if takes_no_rows(node.operator, node.left, node.right):
        return tree.Binary("IN", node.left, node.right)
    return node


def choices(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    branches = st.lists(st.tuples(inner, inner), min_size=1, max_size=3).map(tuple)
    return st.builds(tree.Choice, st.none() | inner, branches, st.none() | inner)


def calls(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def of(name: str) -> st.SearchStrategy[Any]:
        known = TABLE[name]
        taken = [closures(takes) if takes else inner for takes in known.closures]
        return (
            st.integers(known.least, len(taken))
            .flatmap(lambda count: st.tuples(*taken[:count]))
            .map(lambda found: tree.Call(name, found))
        )

    defined = st.builds(
        tree.Call, CALLABLE.map("fn::{}".format), st.lists(inner, max_size=2).map(tuple)
    )
    return st.one_of(st.sampled_from(sorted(TABLE)).flatmap(of), defined)


def closures(count: int) -> st.SearchStrategy[Any]:
    """Closures of so many parameters. They hold no SELECT."""
    names = ("x", "y")[:count]
    values = st.sampled_from([*map(tree.Parameter, names), tree.Constant(1), tree.Name("n")])
    pairs = st.builds(tree.Binary, st.sampled_from(["+", "=", "AND", "??"]), values, values)
    return st.builds(tree.Closure, st.just(names), values | pairs)


def collected(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Paths in parentheses."""
    return st.builds(tree.Collected, st.builds(tree.Attribute, inner, LABELS))


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        some.map(tree.Array),
        st.lists(st.tuples(TEXT, inner), max_size=3).map(tuple).map(tree.Object),
        st.builds(tree.RecordLiteral, NAMES, some.map(tree.Array)),
        st.builds(tree.Attribute, inner, FIELDS),
        st.builds(tree.Index, inner, inner),
        st.builds(tree.Each, inner),
        st.builds(tree.Index, collected(inner), inner),
        st.builds(tree.Each, collected(inner)),
        st.builds(unary, st.sampled_from(["-", "+", "NOT"]), inner),
        st.builds(tree.Binary, st.sampled_from(BINARY), inner, inner).map(with_its_operands),
        st.builds(
            lambda operator, parts: flat(operator, parts),
            st.sampled_from(["AND", "OR"]),
            st.lists(inner, min_size=2, max_size=5),
        ),
        st.builds(tree.Range, inner, inner, st.booleans()),
        st.builds(tree.Nearest, inner, inner, inner, st.none() | inner),
        choices(inner),
        calls(inner),
        selects(inner).map(tree.Subquery),
        LINKS_BACK,
    )


LINKS_BACK = st.builds(
    lambda table, path: tree.Subquery(linking(table, tuple(path))),
    NAMES,
    st.lists(LABELS, min_size=1, max_size=2),
)


def flat(operator: str, parts: list[Any]) -> tree.Expression:
    from language.parsing.operators import operands_of

    return chain(operator, [one for part in parts for one in operands_of(part, operator)])


STEPS = st.one_of(FIELDS, st.integers(-9, 9), st.just(EACH))
PATHS = st.builds(lambda head, rest: (head, *rest), LABELS, st.lists(STEPS, max_size=3))


def targets(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        NAMES.map(tree.TableTarget),
        st.builds(
            lambda table, low, high, inclusive: tree.RecordRange(
                table, low, high, inclusive and high is not None
            ),
            NAMES,
            st.none() | IDENTITIES,
            st.none() | IDENTITIES,
            st.booleans(),
        ),
        inner.map(tree.ExpressionTarget),
    )


def columns(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.builds(tree.Column, inner, st.none() | LABELS), min_size=1, max_size=3).map(
        tuple
    )


TIMEOUTS = st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=9))


def selects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    maybe = st.none() | inner
    paths = st.lists(PATHS, max_size=2).map(tuple)
    rest: dict[str, Any] = {
        "omit": paths, "sources": st.lists(targets(inner), min_size=1, max_size=2).map(tuple),
        "where": maybe, "split": st.none() | PATHS,
        "group": st.none() | st.lists(inner, max_size=2).map(tuple), "having": maybe,
        "order": st.lists(st.builds(tree.Order, inner, st.booleans()), max_size=2).map(tuple),
        "limit": maybe, "start": maybe, "fetch": paths, "timeout": TIMEOUTS, "only": st.booleans(),
        "distinct": st.booleans(), "current": st.booleans(),
    }  # fmt: skip
    one = st.builds(tree.Column, inner, st.none() | LABELS).map(lambda column: (column,))
    return st.one_of(
        st.builds(tree.Select, value=st.just(True), everything=st.just(False), columns=one, **rest),
        st.builds(
            tree.Select,
            value=st.just(False),
            everything=st.just(False),
            columns=columns(inner),
            **rest,
        ),
        st.builds(
            tree.Select,
            value=st.just(False),
            everything=st.just(True),
            columns=st.just(()) | columns(inner),
            **rest,
        ),
    )


EXPRESSIONS = st.recursive(LEAVES, larger, max_leaves=12)
LITERALS = st.one_of(
    st.sampled_from([None, True, False]), INTS, FLOATS, DECIMALS, TEXT, st.binary(max_size=8),
    DATETIMES, DURATIONS, st.uuids(),
).map(tree.LiteralType)  # fmt: skip
ANY = tree.PlainType("any")


def _unions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(inner, min_size=2, max_size=3).map(
        lambda found: tuple(
            member
            for one in found
            for member in (one.members if isinstance(one, tree.UnionType) else (one,))
        )
    )
    return st.one_of(
        inner.map(tree.OptionType),
        st.builds(tree.ArrayType, inner, st.none() | st.integers(0, 9)),
        members.map(tree.UnionType),
    )


FIELD_TYPES = st.recursive(
    st.one_of(
        st.sampled_from([tree.PlainType(kind) for kind in get_args(tree.Kind)]),
        st.builds(tree.RecordType, st.lists(NAMES, max_size=2).map(tuple)),
        LITERALS,
    ),
    _unions,
    max_leaves=5,
)
FIELD_PATHS = PATHS.filter(lambda path: not any(isinstance(step, int) for step in path))
