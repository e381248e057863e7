"""Restricted environment of shared expressions: DEFAULT, VALUE, ASSERT, functions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NoReturn

from language import tree
from language.env import Env
from language.search.analysis import Analyzer
from language.sizing import WorkingMemory
from protocol.environment import Rng
from protocol.errors import BadRequest, TypeRefused
from protocol.paths import Path
from protocol.text import format_record
from protocol.values import PACE, RecordId, Value

FOR_WRITER: Final = "for the writer of a record"
IN_FUNCTION: Final = "inside a function"


class Confined:
    """Environment of such an expression: the transaction's time and randomness, and its own
    variables. Parameters and LETs of the script are hidden, so that it gives every caller the same
    result. Nothing of the store is readable: see `language.confined`.

    :param where: end of a refusal's message: the place of the expression
    """

    __slots__ = ("_env", "_where", "variables")

    def __init__(self, env: Env, where: str, variables: dict[str, Any]) -> None:
        self._env = env
        self._where = where
        self.variables = variables

    def of_value(self, value: Any) -> Confined:
        """Return the same environment, with `$value`."""
        # A copy: the variables around this expression stay as they are.
        return Confined(self._env, self._where, {"value": value})

    @property
    def memory(self) -> WorkingMemory:
        """Memory held by the request."""
        return self._env.memory

    @property
    def now(self) -> datetime:
        """The transaction's time."""
        return self._env.now

    @property
    def rng(self) -> Rng:
        """The transaction's randomness."""
        return self._env.rng

    def select(self, select: tree.Select, parent: Value) -> Value:
        """:raises TypeRefused: always. A definition with a SELECT, from an earlier version, has to
        be replaced
        """
        raise TypeRefused(f"a SELECT is not run {self._where}: redefine it without the SELECT")

    def record(self, record: RecordId) -> dict[str, Any] | None:
        """Refuse to follow a record link. :raises TypeRefused: always"""
        link = format_record(record)
        raise TypeRefused(f"the record link {link} is not followed {self._where}")

    def call(self, name: str, arguments: list[Any]) -> Any:
        """Return the result of a function of the database."""
        # The function gets a confined environment of its own.
        return self._env.call(name, arguments)

    def analyzer(self, name: str) -> Analyzer:
        """Return an analyzer of the database."""
        return self._env.analyzer(name)

    def text_match(self, paths: tuple[Path, ...], values: list[Any], query: Any) -> bool:
        """:raises BadRequest: always. There is no table here, and so no index"""
        raise BadRequest(f"`@@` has no table {self._where}: search::matches takes any text")

    def text_score(self, record: Any, path: Path | None) -> NoReturn:
        """:raises BadRequest: always. No row has been found by `@@`"""
        raise BadRequest(f"search::score has no SELECT with `@@` {self._where}")

    def text_queries(self, path: Path) -> NoReturn:
        """:raises BadRequest: always. No row has been found by `@@`"""
        raise BadRequest(f"a highlight has no SELECT with `@@` {self._where}")

    def distance(self, record: Any) -> NoReturn:
        """:raises BadRequest: always. No row has been found by NEAREST"""
        raise BadRequest(f"vector::distance has no SELECT with NEAREST {self._where}")

    def tick(self, cost: int = PACE) -> None:
        """Yield to the loop when the slice is used up."""
        self._env.tick(cost)
