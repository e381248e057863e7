"""Tables of cases that one test goes through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*values: object) -> Iterator[None]:
    """Name the case in the failure of a block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {', '.join(map(repr, values))}"[:500])
        raise
