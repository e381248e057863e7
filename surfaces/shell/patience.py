"""Requests that may be sent again do so through an outage, for a while."""

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
from surfaces.shell.outcomes import NOT_CONNECTED, Ended

PATIENCE_SECONDS: Final = 60.0
"""How long an outage may last before a transfer ends. It can be gone on with later."""
PAUSE_SECONDS: Final = 0.5
"""Between attempts where the node refuses for a reason that passes."""


class Patient:
    """Runs scripts that do no harm when they run twice.

    :param tell: takes a line for people
    """

    def __init__(self, client: AsyncClient, tell: Callable[[str], None]) -> None:
        self._client = client
        self.tell = tell
        """Takes a line for people."""

    async def store(self) -> str | None:
        """The id of the store; None where the user may not know it."""
        try:
            return str((await self.run("INFO FOR STORE")).value["store"])
        except NotAllowed:
            return None

    async def let_go(self, moment: str | None) -> None:
        """Nothing more is read in a moment. Where the node can't be told it ends by itself: all
        that was read in it is here."""
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
        """The answer of a script, whatever number of attempts it takes.

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
                raise Ended(
                    f"{problem}; run the same command again to go on", NOT_CONNECTED
                ) from problem
            if not told:
                self.tell(f"{problem}; trying again")
                told = True
            await asyncio.sleep(PAUSE_SECONDS)
