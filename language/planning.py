"""Charges for what is done with the tree of a statement before it runs: a text of some KiB may hold
a hundred thousand nodes, and is walked through a dozen times until it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

Charge = Callable[[int], None]

CHARGES: Final[ContextVar[Charge | None]] = ContextVar("charges", default=None)
"""`language.env.Env.tick` of the script at hand: each greenlet has its own. None: nobody waits."""


def charge(cost: int) -> None:
    """Charge for work on some nodes. May give control away and raise, as `Env.tick` does."""
    tick = CHARGES.get()
    if tick is not None:
        tick(cost)
