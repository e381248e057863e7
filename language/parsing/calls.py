"""Checks of function calls: known names and matching arguments."""

from __future__ import annotations

from collections.abc import Sequence

from language import tree
from language.functions import TABLE
from language.names import DEFINED
from language.parsing import foreign_idioms
from protocol.errors import BadRequest, Refusal, Unknown


def wrong_call(name: str, arguments: Sequence[tree.Expression]) -> tuple[type[Refusal], str] | None:
    """Return the error for an invalid call, or None if it is valid as far as the text shows.

    User-defined functions, `fn::name`, are not known to the parser and are resolved at run time.
    """
    taken = [len(a.parameters) if isinstance(a, tree.Closure) else 0 for a in arguments]
    if name.startswith(DEFINED):
        if "::" in name[len(DEFINED) :]:
            return Unknown, f"there is no function {name}: fn:: takes a single name"
        if any(taken):
            return BadRequest, f"{name} takes values: only functions of arrays take a closure"
        return None
    known = TABLE.get(name)
    if known is None:
        return Unknown, _no_function(name)
    fits = known.least <= len(arguments) <= len(known.parameters)
    if not fits or taken != list(known.closures[: len(taken)]):
        return BadRequest, f"wrong arguments for {name}: expected {known.signature}"
    return None


def _no_function(name: str) -> str:
    told = f"there is no function {name}"
    if "::" not in name:
        told += f"; a function of the database is called as {DEFINED}{name}"
    meant = foreign_idioms.function_meant(name, TABLE)
    return told + (f"; did you mean {meant}?" if meant else "")
