"""Calls of functions of a database, resolved at the time of the call.

A plan knows a function by its name alone; its definition is read in the current transaction. So a
redefined function takes effect at once, in open sessions and in the same BEGIN … COMMIT. A
definition is compiled once.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from actors.scripts.confined import IN_FUNCTION, Confined
from language import tree
from language.defined import Defined
from language.env import Env
from language.error_places import add_remark, is_of_values
from language.parser import parse_expression, parse_type
from protocol import limits
from protocol.errors import Refusal, TooLarge
from storage.catalog.functions import Function, declared_of_function
from storage.txn.transaction import Transaction

_FRAMES: Final = 400
"""Depth of Python's stack above which no function is called. The rest of its thousand frames is
enough for the tallest body, whatever blocks and functions surround it."""


def call(env: Env, function: Defined, arguments: list[Any], depth: int) -> Any:
    """Return the result of a function.

    :param depth: number of calls around it
    :raises BadRequest, TypeRefused: arguments or result don't match the definition
    :raises TooLarge: too many nested calls
    """
    _check_depth(depth, function)
    variables = function.bind(arguments, env.tick)
    try:
        return function.run(Confined(env, IN_FUNCTION, variables))
    except Refusal as refusal:
        if is_of_values(refusal):
            refusal.offset = None  # it pointed into the definition, not into the script
            # Of nested functions, the innermost is named: it comes first here.
            if "in_function" not in refusal.detail:
                refusal.detail["in_function"] = function.called
                add_remark(refusal, f"in {function.called}")
        raise


def _check_depth(depth: int, function: Defined) -> None:
    # The stack is bounded too: RecursionError could strike anywhere, and is no refusal.
    if depth < limits.CALLS and not _is_deep():
        return
    raise TooLarge(
        f"{function.called} was not called: at most {limits.CALLS} functions can be nested, and"
        " fewer in deeply nested statements",
        limit=limits.CALLS,
        function=function.called,
    )


def _is_deep() -> bool:
    try:
        # Raises on a shallower stack, without counting its frames.
        sys._getframe(_FRAMES)
    except ValueError:
        return False
    return True


def compiled(tx: Transaction, function: Function) -> Defined:
    """Return a function compiled; cached for as long as its definition does not change."""
    at = ("compiled", function.database.id, function.name)
    found: Defined | None = tx.known(at)
    if found is None:
        found = Defined(
            function.name,
            tuple(tree.FunctionParameter(name, parse_type(of)) for name, of in function.parameters),
            None if function.returns is None else parse_type(function.returns),
            parse_expression(function.body),
        )
        # Rests on the declaration: a changed one drops the cached form.
        tx.remember(at, found, *declared_of_function(function))
    return found
