"""Compiler from expressions to Python closures over a row and an environment.

Each AST node becomes one closure over the closures of its parts, once. Building closures costs a
few microseconds; compiling generated Python code costs some hundred. Statements on single records
therefore use closures. For batches of rows `language.generate` generates code for the commonest
nodes and calls these closures for the rest. Each operator therefore has one implementation, in
`language.operators` or `language.numbers`.

A field that is NONE stays in an object until it is stored or merged: MERGE uses it to remove
fields.

Values are never changed in place. A constant is the same object each time, and a statement copies a
value before changing it (`language.writes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from language import numbers, operators, tree
from language.budget import PartsBudget
from language.charges import Charged, Evaluated, charged, stretch
from language.closures import Closure
from language.env import Env
from language.error_places import placed
from language.functions import TABLE
from language.names import DISTANCE, NODE, ONCE, SCORE, defined_name, parent_fields, weight
from language.planning import charge
from language.rows import Bare, Row, Shape, item_value
from language.search.fields import ON_MATCHES, TextOf, Unlinked, field_of, matched_paths
from protocol.errors import BadRequest, Refusal, Unknown
from protocol.paths import EACH
from protocol.values import FEW, NONE, RecordId, check_record_id, paced

Compiled = Callable[[Row, Env], Any]
Condition = Callable[[Row, Env], bool]


class _Missing:
    pass


MISSING: Final = _Missing()
"""Marker returned by `constant` for an expression that is not constant."""


def compile_expression(node: tree.Expression, shape: Shape | None = None) -> Compiled:
    """Compile an expression to a function of a row of the given shape. A wide one ticks as it runs.

    :param shape: None if there is no row: the function is then called with any row
    :raises Unknown: a bare name where there is no row
    """
    return _compiled(charged(node), shape)


def compile_condition(node: tree.Expression, shape: Shape | None = None) -> Condition:
    """Compile a condition. Its value must be a bool, NONE or null; the last two count as false."""
    return _condition(charged(node), shape)


def _compiled(node: Evaluated, shape: Shape | None) -> Compiled:
    found = constant(node)
    if found is not MISSING:
        return lambda row, env: found
    return _COMPILERS[type(node)](node, shape)  # type: ignore[no-any-return]


def _condition(node: Evaluated, shape: Shape | None) -> Condition:
    work = _compiled(node, shape)
    if is_condition(node):
        return work
    return lambda row, env: operators.truth(work(row, env))


_ON_LARGE: Final = {"CONTAINS": operators.contains, "~": operators.matches}
"""Operators that may take long on one value, and therefore tick."""
_CONDITIONS: Final = frozenset(
    {"OR", "AND", "=", "!=", "<", "<=", ">", ">=", "IN", "NOT IN", "CONTAINS", "~", "@@"}
)


def is_condition(node: Evaluated) -> bool:
    """True if an expression can only evaluate to a bool."""
    if isinstance(node, tree.Binary):
        return node.operator in _CONDITIONS
    if isinstance(node, tree.Unary):
        return node.operator == "NOT"
    if isinstance(node, Charged):
        return is_condition(node.of)
    return isinstance(node, tree.Constant) and isinstance(node.value, bool)


def constant(node: Evaluated) -> Any:
    """Return the value of an expression built from constants alone, or `MISSING`."""
    if isinstance(node, tree.Constant):
        return node.value
    if isinstance(node, tree.Array):
        items: list[Any] = []
        for item in node.items:
            found = constant(item)
            if found is MISSING:
                return MISSING
            items.append(found)
        return items
    if isinstance(node, tree.Object):
        fields: dict[str, Any] = {}
        for name, value in node.fields:
            found = constant(value)
            if found is MISSING:
                return MISSING
            fields[name] = found
        return fields
    if isinstance(node, tree.RecordLiteral):
        found = constant(node.id)
        return MISSING if found is MISSING else _record(node.table, found)
    return MISSING


def _record(table: str, id: Any) -> RecordId:
    check_record_id(id)
    return RecordId(table, id)


def _placed(work: Compiled, at: int) -> Compiled:
    """Return the same function with the position in the text added to its errors."""

    def compute(row: Row, env: Env) -> Any:
        try:
            return work(row, env)
        except Refusal as refusal:
            raise placed(refusal, at) from refusal.__cause__

    return compute


# --- leaves ---------------------------------------------------------------------------------------


def _name(node: tree.Name, shape: Shape | None) -> Compiled:
    if shape is None:
        raise Unknown(
            f"{node.name} is not a field: there is no row here; a variable is written ${node.name}",
            name=node.name,
        )
    name = node.name
    if shape.whole:
        return lambda row, env: row.get(name, NONE)
    get = attrgetter(shape.slots[name])
    return lambda row, env: get(row)


def _parameter(node: tree.Parameter, shape: Shape | None) -> Compiled:
    name, parameter, at = node.name, operators.parameter, node.at
    if name == "this" and shape is not None:
        return lambda row, env: item_value(row)

    def compute(row: Row, env: Env) -> Any:
        try:
            return parameter(env, name)
        except Refusal as refusal:
            raise placed(refusal, at) from refusal.__cause__

    return compute


# --- parts ----------------------------------------------------------------------------------------


def _array(node: tree.Array, shape: Shape | None) -> Compiled:
    if _grows(node):
        return _built(_builder(node, shape))
    items = [_compiled(item, shape) for item in node.items]
    return lambda row, env: [item(row, env) for item in items]


def _object(node: tree.Object, shape: Shape | None) -> Compiled:
    if _grows(node):
        return _built(_builder(node, shape))
    fields = [(name, _compiled(value, shape)) for name, value in node.fields]

    return lambda row, env: {name: value(row, env) for name, value in fields}


Build = Callable[[Row, Env, PartsBudget], Any]
"""`(row, env, memory accounting of the parts so far) -> value`"""


def _built(build: Build) -> Compiled:
    def compute(row: Row, env: Env) -> Any:
        parts = PartsBudget(env.memory)
        return parts.made(build(row, env, parts))

    return compute


def _grows(node: tree.Array | tree.Object) -> bool:
    """True if a literal computes more than one part that may be large.

    Such parts are weighed one by one: a text of some KiB could otherwise build gigabytes before the
    first check. The value of a name exists already and is not counted.
    """
    return sum(1 for _ in islice(_growing(node), 2)) == 2


def _growing(node: tree.Array | tree.Object) -> Iterator[tree.Expression]:
    for part in map(_uncharged, _parts_of(node)):
        if isinstance(part, tree.Array | tree.Object):
            yield from _growing(part)
        elif isinstance(part, tree.Binary):
            if part.operator in ("+", "??"):
                yield part
        elif not isinstance(part, _FOUND):
            yield part


_FOUND: Final = (tree.Constant, tree.Name, tree.Parameter, tree.RecordLiteral, tree.Unary)
"""Expressions whose values are small, or exist already."""


def _uncharged(node: Evaluated) -> tree.Expression:
    return node.of if isinstance(node, Charged) else node


def is_made(node: tree.Expression) -> bool:
    """True if evaluating an expression builds a new value that may be large."""
    return not isinstance(node, _FOUND) and constant(node) is MISSING


def _parts_of(node: tree.Array | tree.Object) -> Iterable[tree.Expression]:
    if isinstance(node, tree.Array):
        return node.items
    return (part for _, part in node.fields)


def _builder(node: tree.Expression, shape: Shape | None) -> Build:
    if isinstance(node, tree.Array):
        items = [_builder(item, shape) for item in node.items]
        return lambda row, env, parts: [item(row, env, parts) for item in items]
    if isinstance(node, tree.Object):
        fields = [(name, _builder(value, shape)) for name, value in node.fields]
        return lambda row, env, parts: {name: part(row, env, parts) for name, part in fields}
    compute = _compiled(node, shape)
    if isinstance(_uncharged(node), _FOUND):
        return lambda row, env, parts: compute(row, env)
    return lambda row, env, parts: parts.add(compute(row, env), env.tick)


def _charged(node: Charged, shape: Shape | None) -> Compiled:
    work, cost = _compiled(node.of, shape), node.cost
    charge(cost * NODE)

    def compute(row: Row, env: Env) -> Any:
        env.tick(cost)
        return work(row, env)

    return compute


def _record_literal(node: tree.RecordLiteral, shape: Shape | None) -> Compiled:
    table, id = node.table, _compiled(node.id, shape)
    return lambda row, env: _record(table, id(row, env))


def _attribute(node: tree.Attribute, shape: Shape | None) -> Compiled:
    of, name, field = _compiled(node.of, shape), node.name, operators.field
    return lambda row, env: field(of(row, env), name, env)


def _index(node: tree.Index, shape: Shape | None) -> Compiled:
    if tree.collects(node.of):
        return _walk(node, shape)
    of, index = _compiled(node.of, shape), _compiled(node.index, shape)
    item = operators.item
    return lambda row, env: item(of(row, env), index(row, env), env)


def _each(node: tree.Each, shape: Shape | None) -> Compiled:
    if tree.collects(node.of):
        return _walk(node, shape)
    of, each = _compiled(node.of, shape), operators.each
    return lambda row, env: each(of(row, env), env)


def _collected(node: tree.Collected, shape: Shape | None) -> Compiled:
    return _compiled(node.of, shape)


def _walk(node: tree.Expression, shape: Shape | None) -> Compiled:
    """Compile a path: after a step that goes into an array, the last step applies to every item."""
    steps: list[Compiled] = []
    while isinstance(node, tree.Attribute | tree.Index | tree.Each):
        steps.append(_step(node, shape))
        node = node.of
    steps.reverse()
    of, walk = _compiled(node, shape), operators.walk
    return lambda row, env: walk(of(row, env), [step(row, env) for step in steps], env)


def _step(node: tree.Attribute | tree.Index | tree.Each, shape: Shape | None) -> Compiled:
    if isinstance(node, tree.Index):
        return _compiled(node.index, shape)
    step = node.name if isinstance(node, tree.Attribute) else EACH
    return lambda row, env: step


def _range(node: tree.Range, shape: Shape | None) -> Compiled:
    low, high = _compiled(node.low, shape), _compiled(node.high, shape)
    make, inclusive = operators.make_range, node.inclusive
    return _placed(lambda row, env: make(low(row, env), high(row, env), inclusive, env), node.at)


def _call(node: tree.Call, shape: Shape | None) -> Compiled:
    if node.name in ON_MATCHES:
        return _of_matches(node, shape)
    if node.name == DISTANCE:
        return _distance(node, shape)
    arguments = [_compiled(argument, shape) for argument in node.arguments]
    defined = defined_name(node.name)
    if defined is not None:
        return _placed(
            lambda row, env: env.call(defined, [argument(row, env) for argument in arguments]),
            node.at,
        )
    run = TABLE[node.name].run
    if len(arguments) == 1:
        only = arguments[0]
        return _placed(lambda row, env: run(env, only(row, env)), node.at)
    return _placed(
        lambda row, env: run(env, *[argument(row, env) for argument in arguments]), node.at
    )


def _closure(node: tree.Closure, shape: Shape | None) -> Compiled:
    names, body = node.parameters, compile_expression(node.body, shape)
    pace = min(stretch(node.body), FEW)
    return lambda row, env: Closure(names, body, row, env, pace)


def _subquery(node: tree.Subquery, shape: Shape | None) -> Compiled:
    if shape is None and node.select.back is not None:
        raise placed(BadRequest(_NO_RECORD), node.select.at)
    select, parent = node.select, parent_of(node.select, shape)
    return lambda row, env: env.select(select, parent(row))


_NO_RECORD: Final = (
    "`<-` needs a current record, and there is none here: use it in a column, in"
    " WHERE or in SET; for one record write (SELECT VALUE <-t.field FROM ONLY u:1)"
)


def parent_of(select: tree.Select, shape: Shape | None) -> Callable[[Row], Any]:
    """Return the function that builds a subquery's `$parent` from the enclosing row, limited to the
    fields that the subquery reads."""
    looked = parent_fields(select)
    if shape is None or looked == frozenset():
        return lambda row: NONE
    if shape.whole:
        return item_value
    assert looked is not None, "a subquery that looks at all of its parent has a whole shape"
    slots = [(name, attrgetter(shape.slots[name])) for name in looked]
    return lambda row: {name: get(row) for name, get in slots if get(row) is not NONE}


def _choice(node: tree.Choice, shape: Shape | None) -> Compiled:
    otherwise: Compiled = lambda row, env: NONE  # noqa: E731
    if node.otherwise is not None:
        otherwise = _compiled(node.otherwise, shape)
    values = [_compiled(value, shape) for _, value in node.branches]
    if node.subject is None:
        tests = [_condition(condition, shape) for condition, _ in node.branches]
        ways = tuple(zip(tests, values, strict=True))

        def chosen(row: Row, env: Env) -> Any:
            for holds, value in ways:
                if holds(row, env):
                    return value(row, env)
            return otherwise(row, env)

        return chosen
    subject, equal = _compiled(node.subject, shape), operators.equal
    others = [_compiled(condition, shape) for condition, _ in node.branches]
    cases = tuple(zip(others, values, strict=True))

    def met(row: Row, env: Env) -> Any:
        found = subject(row, env)
        for other, value in cases:
            if equal(found, other(row, env), env):
                return value(row, env)
        return otherwise(row, env)

    return met


# --- operators ------------------------------------------------------------------------------------

ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "-": numbers.subtract,
    "*": numbers.multiply,
    "/": numbers.divide,
    "%": numbers.remainder,
}
RELATIONS: Final[dict[str, Callable[[Any, Any, Env], bool]]] = {
    "=": operators.equal,
    "!=": lambda left, right, env: not operators.equal(left, right, env),
    **operators.BRACKETED,
}


def _unary(node: tree.Unary, shape: Shape | None) -> Compiled:
    if node.operator == "NOT":
        holds = _condition(node.operand, shape)
        return lambda row, env: not holds(row, env)
    operand = _compiled(node.operand, shape)
    work = numbers.negate if node.operator == "-" else numbers.affirm
    return _placed(lambda row, env: work(operand(row, env)), node.at)


def _binary(node: tree.Binary, shape: Shape | None) -> Compiled:
    operator = node.operator
    if operator in ("AND", "OR"):
        return _logic(node, shape)
    if operator in ("IN", "NOT IN"):
        return _in(node, shape)
    if operator == "@@":
        return _text_match(node, shape)
    left, right = _compiled(node.left, shape), _compiled(node.right, shape)
    if operator == "??":
        return lambda row, env: (
            found
            if (found := left(row, env)) is not NONE and found is not None
            else right(row, env)
        )
    large = _ON_LARGE.get(operator)
    if large is not None:
        return _placed(lambda row, env: large(left(row, env), right(row, env), env), node.at)
    relation = RELATIONS.get(operator)
    if relation is not None:
        return lambda row, env: relation(left(row, env), right(row, env), env)
    at = node.at
    if operator == "+":
        plus = numbers.add

        def compute_sum(row: Row, env: Env) -> Any:
            try:
                return plus(left(row, env), right(row, env), env)
            except Refusal as refusal:
                raise placed(refusal, at) from refusal.__cause__

        return compute_sum
    work = ARITHMETIC[operator]

    def compute(row: Row, env: Env) -> Any:
        # Inlined `_placed`: most expressions consist of these nodes.
        try:
            return work(left(row, env), right(row, env))
        except Refusal as refusal:
            raise placed(refusal, at) from refusal.__cause__

    return compute


def _text_match(node: tree.Binary, shape: Shape | None) -> Compiled:
    """Compile `fields @@ query`. Fields are read of the record itself, not beyond a link: no index
    follows one."""
    try:
        paths = matched_paths(node.left)
    except BadRequest as refusal:
        raise placed(refusal, node.at) from None
    heads = [(_compiled(tree.Name(str(path[0])), shape), path[1:]) for path in paths]
    query, walk = _compiled(node.right, shape), operators.walk

    def compute(row: Row, env: Env) -> bool:
        alone: Any = Unlinked(env)
        values = [walk(head(row, env), rest, alone) for head, rest in heads]
        return env.text_match(paths, values, query(row, env))

    return _placed(compute, node.at)


def _of_matches(node: tree.Call, shape: Shape | None) -> Compiled:
    """Compile a function of a row that `@@` has found."""
    if shape is None:
        refusal = BadRequest(f"{node.name} is about the rows of a SELECT with `@@` in WHERE")
        raise placed(refusal, node.at)
    try:
        path = field_of(node)
    except BadRequest as refusal:
        raise placed(refusal, node.at) from None
    if node.name == SCORE:
        get = _compiled(tree.Name("id"), shape)
        return _placed(lambda row, env: env.text_score(get(row, env), path), node.at)
    assert path is not None, "the registry has wanted it"
    head, rest, walk = _compiled(tree.Name(str(path[0])), shape), path[1:], operators.walk
    run = TABLE[node.name].run
    others = [_compiled(argument, shape) for argument in node.arguments[1:]]

    def compute(row: Row, env: Env) -> Any:
        alone: Any = Unlinked(env)
        given = [one(row, env) for one in others]
        return run(env, TextOf(path, walk(head(row, env), rest, alone)), *given)

    return _placed(compute, node.at)


def _nearest(node: tree.Nearest, shape: Shape | None) -> Compiled:
    raise placed(BadRequest(ONCE), node.at)


def _distance(node: tree.Call, shape: Shape | None) -> Compiled:
    """Compile `vector::distance()`, the distance of a row that NEAREST has found."""
    if shape is None:
        refusal = BadRequest(f"{node.name} is about the rows that NEAREST has found")
        raise placed(refusal, node.at)
    get = _compiled(tree.Name("id"), shape)
    return _placed(lambda row, env: env.distance(get(row, env)), node.at)


def _logic(node: tree.Binary, shape: Shape | None) -> Compiled:
    left, right = _condition(node.left, shape), _condition(node.right, shape)
    if node.operator == "AND":
        return lambda row, env: left(row, env) and right(row, env)
    return lambda row, env: left(row, env) or right(row, env)


def _in(node: tree.Binary, shape: Shape | None) -> Compiled:
    value, wanted = _compiled(node.left, shape), node.operator == "IN"
    if isinstance(node.right, tree.Range):
        low = _compiled(node.right.low, shape)
        high = _compiled(node.right.high, shape)
        inclusive, test = node.right.inclusive, operators.in_range
        return _placed(
            lambda row, env: (
                test(value(row, env), low(row, env), high(row, env), inclusive) is wanted
            ),
            node.at,
        )
    container, contains = _compiled(node.right, shape), operators.contains
    return _placed(
        lambda row, env: contains(container(row, env), value(row, env), env) is wanted, node.at
    )


_COMPILERS: Final[dict[type, Any]] = {
    tree.Name: _name,
    tree.Parameter: _parameter,
    tree.Array: _array,
    tree.Object: _object,
    tree.RecordLiteral: _record_literal,
    tree.Attribute: _attribute,
    tree.Index: _index,
    tree.Each: _each,
    tree.Collected: _collected,
    tree.Unary: _unary,
    tree.Binary: _binary,
    tree.Nearest: _nearest,
    tree.Range: _range,
    tree.Call: _call,
    tree.Closure: _closure,
    tree.Subquery: _subquery,
    tree.Choice: _choice,
    Charged: _charged,
}


def evaluate(node: tree.Expression, env: Env) -> Any:
    """Evaluate an expression once, without a row."""
    return compile_expression(node)(None, env)


def compile_rowless(node: tree.Expression) -> Callable[[Env], Any]:
    """Compile an expression that has no row.

    One that carries data, such as a hundred thousand rows, is not compiled as a whole. It is
    evaluated part by part, with ticks: the same text is unlikely to come again.
    """
    if weight(node, HEAVY) > HEAVY:
        return partial(_evaluate_whole, node)
    function = compile_expression(node)
    return lambda env: function(None, env)


def _evaluate_whole(node: tree.Expression, env: Env) -> Any:
    parts = PartsBudget(env.memory)
    return parts.made(_evaluate_in_steps(node, env, parts))


HEAVY: Final = 2000
"""Number of nodes beyond which an expression counts as data and is evaluated part by part."""
_PARTED: Final = (tree.Array, tree.Object)


def _evaluate_in_steps(node: tree.Expression, env: Env, parts: PartsBudget) -> Any:
    if isinstance(node, tree.Array):
        return [_evaluate_in_steps(item, env, parts) for item in paced(node.items, env.tick)]
    if isinstance(node, tree.Object) and (
        len(node.fields) > FEW or any(isinstance(part, _PARTED) for _, part in node.fields)
    ):
        fields = paced(node.fields, env.tick)
        return {name: _evaluate_in_steps(part, env, parts) for name, part in fields}
    found = evaluate(node, env)
    return found if isinstance(node, (*_FOUND, tree.Object)) else parts.add(found, env.tick)


def count_of(node: tree.Expression | None, env: Env, what: str) -> int | None:
    """Return the value of LIMIT or START; None if absent. :raises BadRequest: not an int from 0"""
    if node is None:
        return None
    value = evaluate(node, env)
    if type(value) is not int or value < 0:
        raise BadRequest(f"{what} takes an int of 0 or more")
    return value


__all__ = [
    "ARITHMETIC", "MISSING", "RELATIONS", "Bare", "Compiled", "Condition", "compile_condition",
    "compile_expression", "compile_rowless", "constant", "count_of", "evaluate", "is_condition",
    "is_made", "parent_of",
]  # fmt: skip
