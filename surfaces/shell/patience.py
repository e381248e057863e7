"""Retries of idempotent requests during an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from storeclient import (
    Answer,
    AsyncClient,
    OutcomeUnknown,
    Refused,
    StoreError,
    Unreachable,
)
from storeclient.errors import NotAllowed
from surfaces.shell.outcomes import NOT_CONNECTED, CommandEnded

PATIENCE_SECONDS: Final = 60.0
"""Seconds of outage after which a transfer ends. It can be resumed later."""
PAUSE_SECONDS: Final = 0.5
"""Seconds between attempts after a temporary refusal."""


class RetryingClient:
    """Runs idempotent scripts, with retries.

    :param print_notice: prints a line for people
    """

    def __init__(self, client: AsyncClient, print_notice: Callable[[str], None]) -> None:
        self._client = client
        self.print_notice = print_notice
        """Prints a line for people."""

    async def store(self) -> str | None:
        """Return the id of the store; None if the user lacks the privilege."""
        try:
            return str((await self.run("INFO FOR STORE")).value["store"])
        except NotAllowed:
            return None

    async def let_go(self, moment: str | None) -> None:
        """Release a snapshot whose reads are complete. If the node can't be reached, it expires by
        itself."""
        if moment is not None:
            with suppress(StoreError):
                await self._client.run("", moment=moment, keep=0)

    async def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        moment: str | None = None,
        keep: float | None = None,
    ) -> Answer:
        """Run a script with retries, and return its answer.

        :param moment: as for `AsyncClient.run`, and so is `keep`
        :raises Refused: the node refused, and would again
        :raises Ended: the outage lasted too long
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        told = False
        while True:
            try:
                return await self._client.run(script, params, moment=moment, keep=keep)
            except (OutcomeUnknown, Unreachable) as error:
                problem: Exception = error
            except Refused as error:
                if not error.retry:
                    raise
                problem = error
            if loop.time() >= deadline:
                raise CommandEnded(
                    f"{problem}; run the same command again to continue", NOT_CONNECTED
                ) from problem
            if not told:
                self.print_notice(f"{problem}; retrying")
                told = True
            await asyncio.sleep(PAUSE_SECONDS)
