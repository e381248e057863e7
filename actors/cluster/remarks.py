"""What is known to be wrong with where nodes agree, for operators: looked for every so often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from protocol.agreement import Agreement, NotAnswered

log = structlog.get_logger("cluster")

LOOK_SECONDS: Final = 3_600.0
"""Somebody may have put another release in the place of one."""
AGAIN_SECONDS: Final = 60.0


async def look_for_faults(
    agreement: Callable[[], Agreement | None], tell: Callable[[tuple[str, ...]], None]
) -> None:
    """Until this is cancelled. What is new goes into the log.

    :param agreement: the door that is asked through at the moment; None: there is none
    :param tell: told all that is known
    """
    said: frozenset[str] = frozenset()
    while True:
        seconds, door = LOOK_SECONDS, agreement()
        try:
            found = () if door is None else await door.faults()
        except NotAnswered:
            seconds = AGAIN_SECONDS
        else:
            for fault in found:
                if fault not in said:
                    log.warning("etcd has a known fault", fault=fault)
            said = frozenset(found)
            tell(found)
        await asyncio.sleep(seconds)
