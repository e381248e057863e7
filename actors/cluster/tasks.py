"""Ending what runs beside."""

from __future__ import annotations

import asyncio
from typing import Any


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Nothing of theirs is on its way once this has returned. A fault that one of them ended of is
    not heard here: asyncio logs it, unless somebody has looked at it."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
