"""Which function runs which statement. Each module of statements adds its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from protocol.requests import ResultKind
from protocol.values import Value

if TYPE_CHECKING:
    from actors.scripts.execution import Execution

Run = TypeVar("Run", bound=Callable[..., Value])


@dataclass(frozen=True, slots=True)
class Handler:
    """How one kind of statement is run and what its answer is called."""

    run: Callable[[Execution, Any], Value]
    kind: ResultKind
    writes: bool = False
    """Whether it changes the store, so that a node which takes no changes refuses it."""


HANDLERS: Final[dict[type, Handler]] = {}


def handles(statement: type, kind: ResultKind, *, writes: bool = False) -> Callable[[Run], Run]:
    """Let the decorated function run one kind of statement.

    :param writes: whether the statement changes the store
    """

    def register(run: Run) -> Run:
        assert statement not in HANDLERS, f"{statement.__name__} has two handlers"
        HANDLERS[statement] = Handler(run, kind, writes)
        return run

    return register
