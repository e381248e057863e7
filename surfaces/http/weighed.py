"""Bodies that count as what they were read into, which may be many times what came."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from protocol.weights import weigh
from surfaces.turns import LongWork

Found = TypeVar("Found")


async def read_weighed(
    read: Callable[..., Found], is_long: bool, work: LongWork, held: Callable[[Found], Any]
) -> tuple[Found, int]:
    """What a body was read into, and what that takes in memory.

    :param read: reads it, given a tick where it is long
    :param is_long: it is read and weighed in turns with others' work
    :param held: the part that is weighed
    """
    if not is_long:
        found = read()
        return found, weigh(held(found))
    found = await work.run(read)
    del read  # it holds the body
    return found, await work.run(partial(weigh, held(found)))
