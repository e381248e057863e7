"""Control flow statements: LET, RETURN, IF, FOR, THROW, and BEGIN, COMMIT, CANCEL."""

from __future__ import annotations

from typing import Any, Final

from actors.scripts.execution import Execution, Returned
from actors.scripts.handlers import HANDLERS, handles
from language import tree
from language.operators import check_bounds, truth
from protocol import limits
from protocol.errors import Thrown, TooLarge, TypeRefused
from protocol.text import brief
from protocol.values import NONE, Value, type_name

MESSAGE_CHARACTERS: Final = 4096
"""Longest message of THROW: a refusal is shown, logged and sent whole."""


@handles(tree.Begin, "none", writes=False, needs=())
@handles(tree.Commit, "none", writes=False, needs=())
@handles(tree.Cancel, "none", writes=False, needs=())
def edge(run: Execution, statement: object) -> Value:
    """Do nothing: the execution opens and ends transactions; these words only mark where."""
    return NONE


@handles(tree.Let, "none", writes=False, needs=())
def let(run: Execution, statement: tree.Let) -> Value:
    """Bind a variable for the rest of the script."""
    run.bind(statement.name, _value(run, statement.value))
    return NONE


@handles(tree.ReturnStatement, "value", writes=False, needs=())
def return_(run: Execution, statement: tree.ReturnStatement) -> Value:
    """End the script with a value."""
    raise Returned(_value(run, statement.value))


@handles(tree.Evaluate, "value", writes=False, needs=())
def evaluate(run: Execution, statement: tree.Evaluate) -> Value:
    """Return the value of an expression statement."""
    value: Value = run.evaluate(statement.value)
    return value


@handles(tree.If, "value", writes=False, needs=())
def if_(run: Execution, statement: tree.If) -> Value:
    """Run the first branch whose condition is true, else ELSE; return its value, or NONE."""
    for condition, block in statement.branches:
        if truth(run.evaluate(condition)):
            return run.block(block)
    return run.block(statement.otherwise) if statement.otherwise else NONE


@handles(tree.For, "none", writes=False, needs=())
def for_(run: Execution, statement: tree.For) -> Value:
    """Run the body once for each item; the whole loop is one transaction."""
    items = _items(run, statement.items)
    loop, variable = id(statement), statement.variable
    # The array counts as the script's memory until the loop ends.
    if type(items) is list:
        run.keep(loop, items)
    for item in items:
        run.tick()
        run.iterations += 1
        # Summed over all loops of the script: nested ones share the bound.
        if run.iterations > limits.LOOP_ITERATIONS:
            raise TooLarge(
                f"a script loops at most {limits.LOOP_ITERATIONS} times",
                limit=limits.LOOP_ITERATIONS,
            )
        run.bind_item(variable, item)
        run.block(statement.body)
    run.let_go(loop)
    if items:
        run.bind(variable, run.variables[variable])  # the last item stays bound: count its memory
    return NONE


def _items(run: Execution, node: tree.Expression) -> list[Any] | range:
    """Return the items of a loop; a range is not made a list."""
    if isinstance(node, tree.Range):
        low, high = run.evaluate(node.low), run.evaluate(node.high)
        check_bounds(low, high)
        # A range takes no memory: only its iterations are bounded.
        return range(low, high + node.inclusive)
    items = run.evaluate(node)
    if not isinstance(items, list):
        raise TypeRefused(f"FOR needs an array, not {type_name(items)}", found=type_name(items))
    return items


@handles(tree.Throw, "none", writes=False, needs=())
def throw(run: Execution, statement: tree.Throw) -> Value:
    """Refuse with the script's own message."""
    value = run.evaluate(statement.value)
    if isinstance(value, str):
        message = value
        if len(message) > MESSAGE_CHARACTERS:
            message = value = f"{message[:MESSAGE_CHARACTERS]}… ({len(message)} characters)"
    else:
        message = brief(value, MESSAGE_CHARACTERS)
        # The value is cut as well: it goes into the answer beside the message.
        if message.endswith("…"):
            value = message
    raise Thrown(message, value=value)


def _value(run: Execution, node: Any) -> Any:
    return run.nested(node) if type(node) in HANDLERS else run.evaluate(node)
