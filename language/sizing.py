"""Accounting of large values while they are built.

A statement may compute hundreds of rows at once. It notices that they are too large before all of
them exist. Code that builds a string or array, or decodes a record, reports its size here if it is
large. Small values are never counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from protocol import limits
from protocol.values import LONG

PART_BYTES: Final = 16 * limits.MIB
"""Bytes of large values that may be built before the retained ones are weighed."""


class WorkingMemory:
    """Bytes currently held by the work of one request, beside variables and results.

    A statement's memory is released when it ends: its caller returns to the amount held before.
    """

    __slots__ = ("held", "largest", "tree")

    def __init__(self) -> None:
        self.held = 0
        """Bytes of rows being sorted, grouped or returned, and of parts of values."""
        self.largest = 0
        """Bytes of the largest value built by the current statement. It may exist until it is
        weighed at its destination."""
        self.tree = 0
        """Bytes of the AST of the request's text, if no other request uses it."""

    def return_to(self, held: int) -> None:
        """Reset `held` to an earlier amount. The difference is handed on as one value."""
        self.largest = max(self.largest, self.held - held)
        self.held = held


MEMORY: Final[ContextVar[WorkingMemory | None]] = ContextVar("memory", default=None)
"""Memory accounting of the current request; None outside a request."""


class Heavy(Exception):  # no error: the work is done again, a row at a time
    """More was built than allowed. Never leaves the statement."""


class _BuildAllowance:
    """Bytes of large values that may still be built."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


_MAKING: ContextVar[_BuildAllowance | None] = ContextVar("making", default=None)
"""Counter of the current statement (each greenlet has its own). None: values are not counted."""


def made(size: int) -> None:
    """Report that a value of about `size` bytes is built. :raises Heavy: over the limit"""
    if size > LONG:
        memory = MEMORY.get()
        if memory is not None and size > memory.largest:
            memory.largest = size
        making = _MAKING.get()
        if making is not None:
            making.left -= size
            if making.left < 0:
                raise Heavy


def counted(work: Callable[..., Any], *arguments: Any, most: int = PART_BYTES) -> tuple[Any, int]:
    """Run `work`. Return its result, and about how many bytes of large values it built.

    Inside another count only the outer limit applies, and the outer counter continues.

    :raises Heavy: more than `most`
    """
    outer = _MAKING.get()
    if outer is not None:
        before = outer.left
        return work(*arguments), before - outer.left
    making = _BuildAllowance(most)
    token = _MAKING.set(making)
    try:
        return work(*arguments), most - making.left
    finally:
        _MAKING.reset(token)


def is_counted() -> bool:
    """True if large values are currently counted."""
    return _MAKING.get() is not None
