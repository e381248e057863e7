"""Transactions: statements with parameters of their own, collected and sent as one script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol, Self

from storeclient.answers import Answer, within
from storeclient.pages import has_transaction_words, renamed

SHOWN: Final = 40


class _Runs(Protocol):
    """Part of a database handle that a transaction needs."""

    async def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        current: bool = False,
    ) -> Answer: ...


class AsyncTransaction:
    """Statements that commit together, in one script. Made by `AsyncDatabase.transaction()`.

    buying = db.transaction()
    for item in cart:
        buying.add("CREATE sold CONTENT $item", {"item": item})
    answer = await buying.run()
    """

    def __init__(self, db: _Runs) -> None:
        self._db = db
        self._text = ""
        self._params: dict[str, Any] = {}

    def add(self, statements: str, params: Mapping[str, Any] | None = None) -> Self:
        """Add one or more statements. Equal names of parameters in different calls do not collide.

        :raises ValueError: the statements have a BEGIN or COMMIT
        """
        if has_transaction_words(statements):
            raise ValueError(f"a transaction has its own BEGIN and COMMIT: {statements[:SHOWN]!r}")
        names: dict[str, str] = {}
        for name, value in (params or {}).items():
            own, number = name, 0
            while own in self._params:
                number += 1
                own = f"{name}__{number}"
            names[name], self._params[own] = own, value
        # The end is on a line of its own: the statements may end in a comment.
        self._text += f"{renamed(statements, names)}\n;\n"
        return self

    async def run(
        self,
        *,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        current: bool = False,
    ) -> Answer:
        """Commit all statements or none. The answer has the results of the added statements.

        The parameters are those of `AsyncClient.run`.
        """
        answer = await self._db.run(
            f"BEGIN;\n{self._text}COMMIT",
            self._params,
            timeout=timeout,
            reason=reason,
            repeatable=repeatable,
            current=current,
        )
        return replace(answer, results=within(answer.results, 1))
