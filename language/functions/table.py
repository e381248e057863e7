"""Registry of built-in functions: name, parameters, result type and implementation.

The modules beside this one fill it with `@function(…)`; `docs/functions.md` is generated from it.
Argument types are checked before the implementation is called. No argument is converted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

from language.closures import Closure
from language.env import Env
from language.pieces import cost_of
from language.sizing import made
from protocol import limits
from protocol.errors import TooLarge, TypeRefused
from protocol.values import FEW, PACE, RecordId, type_name

KINDS: Final[dict[str, frozenset[type] | None]] = {
    "any": None,
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "number": frozenset({int, float, Decimal}),
    "string": frozenset({str}),
    "bytes": frozenset({bytes}),
    "text": frozenset({str, bytes}),
    "datetime": frozenset({datetime}),
    "duration": frozenset({timedelta}),
    "uuid": frozenset({UUID}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
    "record": frozenset({RecordId}),
    "closure": frozenset({Closure}),
}
"""Argument types by the word used in the registry; `text` is a string or bytes."""
_SIZED: Final = frozenset({"any", "string", "bytes", "text", "array", "object"})
"""Types whose size determines the cost of a call. Long arguments are charged by size."""
_PLAIN: Final = frozenset({"string", "bytes", "text"})
_LONG: Final = frozenset({str, bytes, list, dict})


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function."""

    name: str
    kind: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A registered function."""

    name: str
    parameters: tuple[Parameter, ...]
    result: str
    doc: str
    run: Callable[..., Any]
    """Implementation with type checks; takes the `Env` and the arguments."""
    fixed: bool
    """True if the function is deterministic: equal arguments always give the same result."""
    closures: tuple[int, ...]
    """For each parameter, the number of parameters of the closure passed there; 0 if it is not a
    closure."""

    @property
    def least(self) -> int:
        """Minimum number of arguments."""
        return sum(not parameter.optional for parameter in self.parameters)

    @property
    def signature(self) -> str:
        """Signature for the docs, as in `string::slice(text: string, start: int, [end: int]) ->
        string`."""
        shown = (
            f"[{p.name}: {p.kind}]" if p.optional else f"{p.name}: {p.kind}"
            for p in self.parameters
        )
        return f"{self.name}({', '.join(shown)}) -> {self.result}"


TABLE: Final[dict[str, Function]] = {}

Work = TypeVar("Work", bound=Callable[..., Any])


def function(
    name: str, *kinds: str, result: str, env: bool = False, fixed: bool = True, takes: int = 0
) -> Callable[[Work], Work]:
    """Register a function; its docstring's first line is its user documentation.

    :param kinds: a word of `KINDS` for each parameter, in order; one with a default is optional
    :param env: True if the implementation takes the `Env` before its arguments
    :param takes: number of parameters of its closure
    """

    def enter(work: Work) -> Work:
        names = list(inspect.signature(work).parameters.values())[int(env) :]
        assert len(names) == len(kinds), f"{name}: a kind for every argument"
        parameters = tuple(
            Parameter(one.name, kind, one.default is not one.empty)
            for one, kind in zip(names, kinds, strict=True)
        )
        doc = (work.__doc__ or "").strip().split("\n")[0]
        assert doc and name not in TABLE, f"{name}: one line of doc, and one row"
        TABLE[name] = Function(
            name,
            parameters,
            result,
            doc,
            _checked(name, parameters, work, env, result in _SIZED or result == "any"),
            fixed,
            tuple(takes if kind == "closure" else 0 for kind in kinds),
        )
        return work

    return enter


def _checked(
    name: str, parameters: tuple[Parameter, ...], work: Callable[..., Any], env: bool, makes: bool
) -> Callable[..., Any]:
    kinds = tuple(KINDS[parameter.kind] for parameter in parameters)
    # Functions of short texts alone give short results.
    grows = makes and not all(parameter.kind in _PLAIN for parameter in parameters)
    sized = any(parameter.kind in _SIZED for parameter in parameters)

    def run(surroundings: Env, *arguments: Any) -> Any:
        for argument, allowed in zip(arguments, kinds, strict=False):
            if allowed is not None and type(argument) not in allowed:
                raise _refused(name, parameters, arguments)
        if sized:
            cost = 0
            for argument in arguments:
                kind = type(argument)
                if kind in _LONG and len(argument) > FEW:
                    size = len(argument)
                    cost += size if kind is list or kind is dict else cost_of(size)
            if cost:
                surroundings.tick(cost)
                found = work(surroundings, *arguments) if env else work(*arguments)
                return _charge_result(found, surroundings)
        found = work(surroundings, *arguments) if env else work(*arguments)
        return _charge_result(found, surroundings) if grows else found

    return run


def _charge_result(found: Any, surroundings: Env) -> Any:
    kind = type(found)
    if kind in _LONG and len(found) > PACE:
        size = len(found)
        plain = kind is str or kind is bytes
        surroundings.tick(min(PACE, cost_of(size) if plain else size))  # exists already
        made(size if plain else 8 * size)
    return found


def _refused(
    name: str, parameters: tuple[Parameter, ...], arguments: tuple[Any, ...]
) -> TypeRefused:
    for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=False), 1):
        allowed = KINDS[parameter.kind]
        if allowed is not None and type(argument) not in allowed:
            grouped = parameter.kind == "array" and "::" not in name
            hint = "; over the rows of a table it needs GROUP BY or GROUP ALL"
            return TypeRefused(
                f"argument {number} of {name} is {parameter.kind}, not {type_name(argument)}"
                f"{hint if grouped else ''}",
                function=name,
                argument=number,
                found=type_name(argument),
            )
    raise AssertionError("called only with an argument that does not fit")


def check_string(size: int) -> None:
    """Check the length of a new string. :raises TooLarge: over `limits.STRING_BYTES`"""
    if size > limits.STRING_BYTES:
        raise TooLarge(
            f"a string has at most {limits.STRING_BYTES} bytes", limit=limits.STRING_BYTES
        )


def check_array(size: int) -> None:
    """Check the length of a new array. :raises TooLarge: over `limits.RANGE_ITEMS`"""
    if size > limits.RANGE_ITEMS:
        raise TooLarge(
            f"an array built here has at most {limits.RANGE_ITEMS} items", limit=limits.RANGE_ITEMS
        )
