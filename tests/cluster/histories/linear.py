"""Linearizability checker for histories of operations on cache keys.

The search of Wing and Gong (1993), with memoization. An operation may come next if no unplaced
operation ended before it began. Keys are independent, so each is checked by itself. An operation
with an unknown outcome may have happened at any time after it began, or never.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

ABSENT: Final = "absent"
"""The key does not exist."""

State = tuple[Any, str | None, int]
"""Value or ABSENT, holder if it is a lock, and highest fencing token so far."""
BEGIN: Final[State] = (ABSENT, None, 0)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a client. `answer` is None, and `ended` infinite, if no answer came."""

    key: str
    name: str
    arguments: tuple[Any, ...]
    answer: Any
    began: float
    ended: float = inf


def after(state: State, operation: Operation) -> State | None:
    """Return the state after an operation; None: its answer does not fit the state before."""
    value, holder, fence = state
    name, arguments, answer = operation.name, operation.arguments, operation.answer
    known = operation.ended != inf
    if name == "get":
        return None if known and answer != value else state
    if name == "set":
        return arguments[0], None, fence
    if name == "delete":
        return None if known and answer != (value != ABSENT) else (ABSENT, None, fence)
    if name == "swap":
        fits = value == arguments[0]
        if known and answer != fits:
            return None
        return (arguments[1], None, fence) if fits else state
    if name == "incr":
        number = (0 if value == ABSENT else value) + 1
        return None if known and answer != number else (number, None, fence)
    if name == "lock":
        free = value == ABSENT
        if not free and not (holder is not None and holder == arguments[0]):
            return None if known and answer else state
        if known and (not answer or answer < fence or (free and answer == fence)):
            return None
        return arguments[0], arguments[0], answer or fence
    assert name == "unlock", name
    held = holder is not None and holder == arguments[0]
    if known and answer != held:
        return None
    return (ABSENT, None, fence) if held else state


def impossible(history: Iterable[Operation]) -> list[str]:
    """Return the keys whose part of a history is not linearizable."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    return sorted(key for key, part in by_key.items() if not possible(part))


def possible(part: list[Operation]) -> bool:
    """True if the operations on one key are linearizable."""
    part = sorted(part, key=lambda operation: operation.began)
    owed = sum(operation.ended != inf for operation in part)
    stack: list[tuple[int, int, int, State]] = [(0, 0, owed, BEGIN)]
    seen: set[tuple[int, State]] = set()
    while stack:
        placed, first, left, state = stack.pop()
        if not left:
            return True
        while first < len(part) and placed >> first & 1:
            first += 1
        earliest_end = inf
        for number in range(first, len(part)):
            if part[number].began > earliest_end:
                break
            if not placed >> number & 1 and part[number].ended < earliest_end:
                earliest_end = part[number].ended
        for number in range(first, len(part)):
            operation = part[number]
            if operation.began > earliest_end:
                break
            if placed >> number & 1:
                continue
            then = after(state, operation)
            if then is None:
                continue
            now = placed | 1 << number
            if (now, then) not in seen:
                seen.add((now, then))
                stack.append((now, first, left - (operation.ended != inf), then))
    return False
