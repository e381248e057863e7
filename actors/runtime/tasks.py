"""Cancelling of background tasks."""

from __future__ import annotations

import asyncio
from typing import Any


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for their ends. Their exceptions are not raised here: asyncio logs
    them, unless they are retrieved elsewhere."""
    for task in tasks:
        task.cancel()
    # A cancelled task runs on to the end of its `finally` blocks.
    await asyncio.wait(tasks)
