"""The sizes of large values, counted as they are made: a statement may compute hundreds of rows in
one go, and notices all the same, before they are all there, that they are too large for that.

Whoever makes a string or an array, or decodes a record, says so here once it is large. What is
small is never counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from protocol import limits
from protocol.values import LONG

PART_BYTES: Final = 16 * limits.MIB
"""What may be made of large values before what is kept of them is weighed."""


class WorkingMemory:
    """Bytes that what runs for one request holds at the moment, beside variables and results.

    What a statement holds ends with it: who runs one returns to what was held before.
    """

    __slots__ = ("held", "largest", "tree")

    def __init__(self) -> None:
        self.held = 0
        """Rows that are sorted, grouped or answered, and parts of values."""
        self.largest = 0
        """The largest value that the statement at hand has made: it may be there until it has been
        weighed where it is kept."""
        self.tree = 0
        """The tree of the request's text, where no other request uses it."""

    def return_to(self, held: int) -> None:
        """Hold as much as before; what came of the rest is handed on, as one value."""
        self.largest = max(self.largest, self.held - held)
        self.held = held


MEMORY: Final[ContextVar[WorkingMemory | None]] = ContextVar("memory", default=None)
"""Of the request at hand. None: it is nobody's."""


class Heavy(Exception):  # no error: the work is done again, a row at a time
    """More was made than was allowed for. Never leaves the statement."""


class _Making:
    """How much may be made yet, in bytes."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


_MAKING: ContextVar[_Making | None] = ContextVar("making", default=None)
"""Of the statement at hand: each greenlet has its own. None: nobody counts."""


def made(size: int) -> None:
    """A value of about so many bytes is made. :raises Heavy: too many of them for one go"""
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
    """What `work` answers, and about how many bytes of large values it has made for that.

    Inside another's count it is the outer one that counts on, and that goes by what it finds.

    :raises Heavy: more than `most`
    """
    outer = _MAKING.get()
    if outer is not None:
        before = outer.left
        return work(*arguments), before - outer.left
    making = _Making(most)
    token = _MAKING.set(making)
    try:
        return work(*arguments), most - making.left
    finally:
        _MAKING.reset(token)


def is_counted() -> bool:
    """Whether somebody counts what is made now."""
    return _MAKING.get() is not None
