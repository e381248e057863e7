"""Code generation: Python functions for expressions over batches of rows.

Code is generated only where it pays off: fields, constants, comparisons, logic, arithmetic, calls.
Other nodes are called as closures of `language.compile`.

The source is built from templates and numbered names (`k3 v2 …`). Constants, names and texts of the
user reach the code as objects in its namespace, never as source.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from language import numbers, operators, tree
from language.compile import MISSING, compile_expression, constant, is_condition
from language.env import Env
from language.functions import TABLE
from language.names import DISTANCE, defined_name, parent_fields
from language.rows import Shape, item_value
from language.search.fields import ON_MATCHES
from protocol.values import FEW, LONG, NONE, RecordId, is_large

Memo = dict[Any, Any]
"""Results cached during one run of a statement: answers of uncorrelated subqueries, hash sets for
IN."""

_SYMBOLS: Final = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder",
}  # fmt: skip
_GENERATED: Final = 256
"""Maximum number of nodes to generate code for: Python compiles one in about 15 µs, without
yielding. The remaining nodes of a wide expression stay closures."""
_NESTED: Final = 16
"""Maximum number of CASE branches generated as nested conditionals: Python's nesting limit."""
_UNBOUND: Final = object()
"""Value of an unbound parameter, which generated code fetches once for all rows. Only evaluating
the parameter for a row raises an error."""
_HASHES_ALIKE: Final = (str, bytes, datetime, timedelta, UUID, RecordId)
"""Types whose Python `==` with a value of any other type is false, as in the language."""


def once(memo: Memo, select: tree.Select, env: Env) -> Any:
    """Return the answer of an uncorrelated subquery, run at most once per statement."""
    key = id(select)
    if key not in memo:
        memo[key] = env.select(select, NONE)
    return memo[key]


def members_once(memo: Memo, key: Any, values: Any, env: Env) -> Callable[[Any], bool]:
    """Return the membership test for IN over values that are constant during the statement."""
    if key not in memo:
        memo[key] = operators.members(values, env)
    return memo[key]  # type: ignore[no-any-return]


def subquery_members(memo: Memo, select: tree.Select, env: Env) -> Callable[[Any], bool]:
    """Return the membership test for IN over a subquery, which runs at first use."""
    key = (id(select), "in")
    if key not in memo:
        memo[key] = operators.members(once(memo, select, env), env)
    return memo[key]  # type: ignore[no-any-return]


_RUNTIME: Final[dict[str, Any]] = {
    "NONE": NONE, "PLAIN": operators.PLAIN, "UNBOUND": _UNBOUND,
    "equal": operators.equal,
    **{work.__name__: work for work in operators.BRACKETED.values()},
    "truth": operators.truth, "field": operators.field, "item": operators.item,
    "contains": operators.contains, "matches": operators.matches, "in_range": operators.in_range,
    "parameter": operators.parameter, "negate": numbers.negate, "affirm": numbers.affirm,
    "add": numbers.add, "subtract": numbers.subtract, "multiply": numbers.multiply,
    "divide": numbers.divide, "remainder": numbers.remainder, "hashable": operators.hashable,
    "order_key": operators.order_key, "item_value": item_value, "once": once,
    "members_once": members_once, "subquery_members": subquery_members,
}  # fmt: skip


class Code:
    """Generator of one function. Its methods return source over the names `r env memo`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.prelude: list[str] = []
        self.namespace: dict[str, Any] = dict(_RUNTIME)
        self._parameters: dict[str, tuple[str, str]] = {}
        self._counted = 0
        self._left = _GENERATED

    def name(self, letter: str) -> str:
        """Return an unused name."""
        self._counted += 1
        return f"{letter}{self._counted}"

    def keep(self, value: Any) -> str:
        """Store an object in the function's namespace and return its name."""
        name = self.name("k")
        self.namespace[name] = value
        return name

    def build(self, arguments: str, body: list[str]) -> Callable[..., Any]:
        """Compile the function. `body` is indented by one level where needed."""
        lines = [f"def generated({arguments}):", *(f"    {line}" for line in self.prelude + body)]
        exec(compile("\n".join(lines), "<statement>", "exec"), self.namespace)
        return self.namespace["generated"]  # type: ignore[no-any-return]

    # --- expressions ------------------------------------------------------------------------------

    def expression(self, node: tree.Expression) -> str:
        """Return source that computes a value."""
        found = constant(node)
        if found is not MISSING:
            return self.keep(found)
        writer = _WRITERS.get(type(node))
        self._left -= 1
        return self._closure(node) if writer is None or self._left < 0 else writer(self, node)

    def condition(self, node: tree.Expression) -> str:
        """Return source that computes a bool."""
        source = self.expression(node)
        return source if is_condition(node) else f"truth({source})"

    def _closure(self, node: tree.Expression) -> str:
        return f"{self.keep(compile_expression(node, self.shape))}(r, env)"

    def _name(self, node: tree.Name) -> str:
        if self.shape.whole:
            return f"r.get({self.keep(node.name)}, NONE)"
        return f"r.{self.shape.slots[node.name]}"

    def _parameter(self, node: tree.Parameter) -> str:
        if node.name == "this":
            return "item_value(r)"
        variable, name = self._fetched(node)
        return f"({variable} if {variable} is not UNBOUND else parameter(env, {name}))"

    def _fetched(self, node: tree.Parameter) -> tuple[str, str]:
        """Return the local variable that holds a parameter or UNBOUND, and the key of its name."""
        if node.name not in self._parameters:
            variable, name = self.name("p"), self.keep(node.name)
            self._parameters[node.name] = variable, name
            self.prelude.append(f"{variable} = env.variables.get({name}, UNBOUND)")
        return self._parameters[node.name]

    def _attribute(self, node: tree.Attribute) -> str:
        return f"field({self.expression(node.of)}, {self.keep(node.name)}, env)"

    def _index(self, node: tree.Index) -> str:
        if tree.collects(node.of):
            return self._closure(node)
        return f"item({self.expression(node.of)}, {self.expression(node.index)}, env)"

    def _call(self, node: tree.Call) -> str:
        if node.name in ON_MATCHES or node.name == DISTANCE:
            return self._closure(node)
        if defined_name(node.name) is not None or any(TABLE[node.name].closures):
            return self._closure(node)  # variables change within it
        arguments = "".join(f", {self.expression(argument)}" for argument in node.arguments)
        return f"{self.keep(TABLE[node.name].run)}(env{arguments})"

    def _subquery(self, node: tree.Subquery) -> str:
        if parent_fields(node.select) == frozenset():
            return f"once(memo, {self.keep(node.select)}, env)"
        return self._closure(node)

    def _choice(self, node: tree.Choice) -> str:
        if node.subject is not None or len(node.branches) > _NESTED:
            return self._closure(node)
        source = "NONE" if node.otherwise is None else self.expression(node.otherwise)
        for condition, value in reversed(node.branches):
            source = f"({self.expression(value)} if {self.condition(condition)} else {source})"
        return source

    def _unary(self, node: tree.Unary) -> str:
        if node.operator == "NOT":
            return f"(not {self.condition(node.operand)})"
        work = "negate" if node.operator == "-" else "affirm"
        return f"{work}({self.expression(node.operand)})"

    def _binary(self, node: tree.Binary) -> str:
        operator = node.operator
        if operator == "@@":
            return self._closure(node)
        if operator in ("AND", "OR"):
            left, right = self.condition(node.left), self.condition(node.right)
            return f"({left} {operator.lower()} {right})"
        if operator in ("IN", "NOT IN"):
            test = self._in(node.left, node.right)
            return test if operator == "IN" else f"(not {test})"
        if operator in _SYMBOLS:
            return self._relation(operator, node.left, node.right)
        left, right = self.expression(node.left), self.expression(node.right)
        if operator == "??":
            value = self.name("v")
            return (
                f"({value} if ({value} := {left}) is not NONE and {value} is not None else {right})"
            )
        if operator == "CONTAINS":
            return f"contains({left}, {right}, env)"
        if operator == "~":
            return f"matches({left}, {right}, env)"
        more = ", env" if operator == "+" else ""
        return f"{_ARITHMETIC[operator]}({left}, {right}{more})"

    def _in(self, left: tree.Expression, right: tree.Expression) -> str:
        value = self.expression(left)
        if isinstance(right, tree.Range):
            low, high = self.expression(right.low), self.expression(right.high)
            return f"in_range({value}, {low}, {high}, {right.inclusive})"
        found = constant(right)
        if isinstance(found, list):
            test, key = self.name("m"), self.keep(object())
            self.prelude.append(f"{test} = members_once(memo, {key}, {self.keep(found)}, env)")
            return f"{test}({value})"
        if isinstance(right, tree.Parameter) and right.name != "this":
            test, key = self.name("m"), self.keep(object())
            variable, name = self._fetched(right)
            self.prelude.append(
                f"{test} = {variable} is not UNBOUND and members_once(memo, {key}, {variable}, env)"
            )
            return f"({test} or parameter(env, {name}))({value})"
        if isinstance(right, tree.Subquery) and parent_fields(right.select) == frozenset():
            return f"subquery_members(memo, {self.keep(right.select)}, env)({value})"
        return f"contains({self.expression(right)}, {value}, env)"

    def _relation(self, operator: str, left: tree.Expression, right: tree.Expression) -> str:
        if constant(left) is not MISSING and constant(right) is MISSING:
            return self._relation(_TURNED.get(operator, operator), right, left)
        source, found = self.expression(left), constant(right)
        if operator in ("=", "!="):
            test = self._equal(source, found, right)
            return test if operator == "=" else f"(not {test})"
        symbol, held = _SYMBOLS[operator], operators.BRACKETED[operator].__name__
        value = self.name("v")
        if type(found) is str and len(found) <= LONG:
            return f"(type({value} := {source}) is str and {value} {symbol} {self.keep(found)})"
        if type(found) is int or type(found) is float:
            other = self.keep(found)
            kind = f"type({value} := {source}) is int or type({value}) is float"
            return f"({value} {symbol} {other} if {kind} else {held}({value}, {other}, env))"
        other = self.name("v")
        return (
            f"({value} {symbol} {other} if type({value} := {source}) is"
            f" type({other} := {self.expression(right)}) and type({value}) in PLAIN"
            f" else {held}({value}, {other}, env))"
        )

    def _equal(self, source: str, found: Any, right: tree.Expression) -> str:
        if found is None or found is True or found is False or found is NONE:
            return f"({source} is {self.keep(found)})"
        if isinstance(found, _HASHES_ALIKE) and not is_large(found, FEW, LONG):
            return f"({source} == {self.keep(found)})"
        if isinstance(found, int | float | Decimal):
            if found not in (0, 1):
                return f"({source} == {self.keep(found)})"
            # In Python true is 1; here it is no number.
            value = self.name("v")
            return f"(({value} := {source}) == {self.keep(found)} and type({value}) is not bool)"
        return f"equal({source}, {self.expression(right)}, env)"


_WRITERS: Final[dict[type, Any]] = {
    tree.Name: Code._name,
    tree.Parameter: Code._parameter,
    tree.Attribute: Code._attribute,
    tree.Index: Code._index,
    tree.Call: Code._call,
    tree.Subquery: Code._subquery,
    tree.Choice: Code._choice,
    tree.Unary: Code._unary,
    tree.Binary: Code._binary,
}


# --- whole functions ------------------------------------------------------------------------------


def generate_filter(node: tree.Expression, shape: Shape) -> Callable[..., list[int]]:
    """Generate `(rows, env, memo) -> numbers of the rows that satisfy a condition`."""
    code = Code(shape)
    test = code.condition(node)
    return code.build("rows, env, memo", [f"return [n for n, r in enumerate(rows) if {test}]"])


def generate_values(nodes: tuple[tree.Expression, ...], shape: Shape) -> Callable[..., list[Any]]:
    """Generate `(rows, env, memo) -> [value, …]`. For several expressions each value is a tuple."""
    code = Code(shape)
    parts = [code.expression(node) for node in nodes]
    made = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return code.build("rows, env, memo", [f"return [{made} for r in rows]"])


def generate_objects(
    columns: list[tuple[str, tree.Expression]], shape: Shape
) -> Callable[..., list[dict[str, Any]]]:
    """Generate `(rows, env, memo) -> [object, …]` with a field for each column that is not NONE."""
    code = Code(shape)
    body = ["out = []", "add_row = out.append", "for r in rows:", "    d = {}"]
    for name, node in columns:
        body.append(f"    v = {code.expression(node)}")
        body.append(f"    if v is not NONE: d[{code.keep(name)}] = v")
    body += ["    add_row(d)", "return out"]
    return code.build("rows, env, memo", body)


def order_source(code: Code, node: tree.Expression) -> str:
    """Return source of a value's sort key."""
    value = code.name("v")
    return (
        f"((3, {value})"
        f" if type({value} := {code.expression(node)}) is int or type({value}) is float"
        f" else (4, {value}) if type({value}) is str else order_key({value}, env.tick))"
    )


def generate_entries(nodes: list[tree.Expression], shape: Shape) -> Callable[..., list[Any]]:
    """Generate `(rows, items, env, memo) -> [(key, …, item), …]`, the entries to sort."""
    code = Code(shape)
    keys = "".join(f"{order_source(code, node)}, " for node in nodes)
    body = [f"return [({keys}i) for r, i in zip(rows, items)]"]
    return code.build("rows, items, env, memo", body)
