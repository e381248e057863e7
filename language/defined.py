"""User-defined functions of a database: checked and compiled once.

The body is one expression over its parameters and other functions. It runs with the privileges of
its caller and cannot read the store: see `language.confined`.
"""

from __future__ import annotations

from typing import Any

from language import tree
from language.budget import bounded
from language.compile import compile_expression
from language.confined import Types, check_reads_nothing, unknown_variable
from language.env import Env
from language.fieldtypes import MISFIT, compile_type, found_in, innermost, is_option, shown
from language.names import DEFINED
from language.printing import print_type
from protocol.errors import BadRequest, TypeRefused
from protocol.paths import Path
from protocol.values import NONE, Tick


def check_function(node: tree.DefineFunction) -> None:
    """Check a function's definition.

    :raises BadRequest: its body names an unknown variable, contains a SELECT, or follows a record
        link that is visible in the text
    :raises Unknown: it names a field, although there is no row
    """
    called = DEFINED + node.name
    names = frozenset(one.name for one in node.parameters)
    other = unknown_variable(node.body, names)
    if other is not None:
        known = ", ".join(f"${one.name}" for one in node.parameters) or "no parameters"
        refusal = BadRequest(f"unknown variable ${other.name} in {called}: it has {known}")
        refusal.offset = other.at
        raise refusal
    types: Types = {(one.name,): one.type for one in node.parameters}
    check_reads_nothing(called, "its parameters", node.body, _place, types)
    compile_expression(node.body)


def _place(node: tree.Expression) -> Path | None:
    return (node.name,) if isinstance(node, tree.Parameter) else None


class Defined:
    """A compiled user-defined function.

    :param name: the name it was defined under
    """

    def __init__(
        self,
        name: str,
        parameters: tuple[tree.FunctionParameter, ...],
        returns: tree.FieldType | None,
        body: tree.Expression,
    ) -> None:
        self.called = DEFINED + name
        """Qualified name used in calls: `fn::name`."""
        self._parameters = [(one, compile_type(one.type)) for one in parameters]
        self._returns = returns
        self._fit = None if returns is None else compile_type(returns)
        self._body = compile_expression(body)
        needed = [n for n, one in enumerate(parameters, 1) if not is_option(one.type)]
        self._least = needed[-1] if needed else 0

    @property
    def signature(self) -> str:
        """Signature as it was defined: `fn::name($a: int) -> int`."""
        names = ", ".join(f"${one.name}: {print_type(one.type)}" for one, _ in self._parameters)
        returns = "" if self._returns is None else f" -> {print_type(self._returns)}"
        return f"{self.called}({names}){returns}"

    def bind(self, arguments: list[Any], tick: Tick) -> dict[str, Any]:
        """Bind arguments to parameters. Return the variables of the body.

        :raises BadRequest: too few or too many arguments
        :raises TypeRefused: an argument does not have its parameter's type
        :raises TooLarge: an argument is larger than a value may be
        """
        if not self._least <= len(arguments) <= len(self._parameters):
            raise BadRequest(
                f"wrong arguments for {self.called}: expected {self.signature}",
                function=self.called,
            )
        given = arguments + [NONE] * (len(self._parameters) - len(arguments))
        variables: dict[str, Any] = {}
        for (parameter, fit), value in zip(self._parameters, given, strict=True):
            found = fit(value, tick)
            if found is MISFIT:
                at = f"${parameter.name}"
                told = f"{at} of {self.called} takes"
                raise self._refusal(parameter.type, value, at, told, tick, parameter=parameter.name)
            # It may be used twice, and by a function that calls itself again and again.
            variables[parameter.name] = bounded(found, tick)
        return variables

    def run(self, env: Env) -> Any:
        """Evaluate the body. The parameters are bound among the variables of `env`.

        :raises TypeRefused: the result does not have the declared type
        :raises TooLarge: the result is larger than a value may be
        """
        value = self._body(None, env)
        if self._fit is not None and self._returns is not None:
            found = self._fit(value, env.tick)
            if found is MISFIT:
                told = f"{self.called} returns"
                raise self._refusal(self._returns, value, "", told, env.tick)
            value = found
        return bounded(value, env.tick)

    def _refusal(
        self, node: tree.FieldType, value: Any, at: str, told: str, tick: Tick, **detail: str
    ) -> TypeRefused:
        node, value, place = innermost(node, value, at, tick)
        wanted, found = print_type(node), found_in(node, value)
        where = f" ({place})" if place != at else ""
        return TypeRefused(
            f"{told} {wanted}, not {shown(value) if type(value) is not list else found}{where}",
            function=self.called,
            **detail,
            wanted=wanted,
            found=found,
        )
