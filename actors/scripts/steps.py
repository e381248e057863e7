"""Step: a statement of a plan, with all that is known before it runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from actors.scripts.handlers import StatementFunction, claims_of, handler_of
from language import tree
from language.fixed import is_steady
from protocol.values import MICROSECOND


class Step:
    """A statement of a plan, nested or not: all that is known before it runs."""

    __slots__ = (
        "_steady", "about_node", "audited", "claims", "kind", "statement", "timeout_us", "work",
        "writes",
    )  # fmt: skip

    def __init__(self, statement: Any) -> None:
        handler = handler_of(statement)
        # EXPLAIN has the clauses of its statement, TIMEOUT too, and ANALYZE takes as long as that.
        timed = statement.statement if type(statement) is tree.Explain else statement
        timeout: timedelta | None = getattr(timed, "timeout", None)
        self.statement = statement
        # FROM ONLY returns one value: as "rows" a client would show it as a table.
        self.kind = "value" if getattr(statement, "only", False) else handler.kind
        self.about_node = is_about_node(statement)
        """True if a node that answers no client runs it too. Such a node has no roles, and can be
        given one; or it does not know the commit index, and an owner can help."""
        self.writes = handler.writes
        self.audited = handler.audited
        self.claims = claims_of(statement).targets
        """Privileges that it requires on things it names."""
        self.timeout_us = None if timeout is None else timeout // MICROSECOND
        """The statement's own TIMEOUT (µs)."""
        self._steady: bool | None = None
        self.work: StatementFunction | None = None
        """Function that runs it; compiled at its first run, after authorization."""

    def compiled(self) -> StatementFunction:
        """Compile it. :raises Refusal: its clauses contradict each other"""
        self.work = work = handler_of(self.statement).make(self.statement)
        return work

    def is_steady(self) -> bool:
        """True if a SELECT has the same result wherever in a statement it stands (uncorrelated)."""
        if self._steady is None:
            self._steady = is_steady(self.statement)
        return self._steady


def is_about_node(statement: tree.Statement) -> bool:
    """True if a node that answers no client runs a statement too."""
    if isinstance(statement, tree.Info):
        return statement.subject in ("NODE", "CLUSTER", "STATE", "RUNNING")
    return isinstance(statement, tree.DefineNode | tree.LeadStore | tree.DefineFailover)
