"""Charges for planning: CPU work on the AST of a statement before it runs.

A text of some KiB may hold a hundred thousand nodes, and its AST is traversed a dozen times before
it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

Charge = Callable[[int], None]

CHARGES: Final[ContextVar[Charge | None]] = ContextVar("charges", default=None)
"""`language.env.Env.tick` of the current script (each greenlet has its own). None: work is not
charged."""


def charge(cost: int) -> None:
    """Charge for work on AST nodes. May yield and raise, as `Env.tick` does."""
    tick = CHARGES.get()
    if tick is not None:
        tick(cost)
