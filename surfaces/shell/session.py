"""Scripts on one node, one after the other: where they start, how one is cancelled, and what is
said of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from storeclient import Answer, AsyncClient, Refused, Welcome
from surfaces.shell import statements
from surfaces.shell.connecting import CONNECT_SECONDS

NOTICE_SECONDS: Final = 0.5
"""How long a connection may take before anything is said about it."""


class Session:
    """What a shell has with its node. One script at a time.

    :param client: makes a client, which asks nodes at these addresses first, and with any of them
        the one that takes changes
    :param tell: takes a line for the person, about the connection
    """

    def __init__(
        self,
        client: Callable[[Sequence[str]], AsyncClient],
        tell: Callable[[str], None],
        timeout: timedelta | None = None,
    ) -> None:
        self._make_client = client
        self._client = client(())
        self._tell = tell
        self._timeout = timeout
        self._welcome: Welcome | None = None
        self._stop: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Answer] | None = None

    @property
    def place(self) -> tuple[str | None, str | None]:
        """The namespace and the database that scripts start in."""
        return self._client.ns, self._client.db

    def use(self, namespace: str | None, database: str | None) -> None:
        """Where scripts start from now on, as a `USE` of these two has it."""
        self._client.use(namespace or self._client.ns, database)

    async def connect(self) -> Welcome:
        """Be connected, again where that was lost, and say so.

        :raises Unreachable: no connection could be made in time
        :raises Refused: the credential was refused
        """
        connecting = asyncio.ensure_future(self._client.connect())
        try:
            done, _ = await asyncio.wait({connecting}, timeout=NOTICE_SECONDS)
            if not done:
                self._tell(f"no connection yet; trying for {CONNECT_SECONDS:g} s, Ctrl-C gives up")
            welcome = await connecting
        finally:
            connecting.cancel()
        before, self._welcome = self._welcome, welcome
        if before is not None and before is not welcome:
            other = "" if before.node == welcome.node else ", which is another node than before"
            self._tell(f"the connection was lost; connected again to node {welcome.node}{other}")
        return welcome

    async def follow_leader(self) -> Welcome:
        """Go to the node that takes changes, as the node of the command line names it, and stay
        with whoever does. Where none is named, or reached, stay with that node.

        :raises StoreError: as `connect`
        :raises Ended: as `connecting.client_of`
        """
        await self._replace_client(())  # what a node has said of itself may be old
        welcome = await self.connect()
        if welcome.writable is False and welcome.leader:
            await self._replace_client(welcome.leader)
            welcome = await self.connect()
        return welcome

    async def _replace_client(self, leader: Sequence[str]) -> None:
        place, before = self.place, self._client
        self._client = self._make_client(leader)
        self._client.use(*place)
        self._welcome = None
        await before.close()

    async def run(self, script: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Run a script. A `USE` in it holds from then on.

        :raises StoreError: as `AsyncClient.run`
        :raises CancelledError: it was given up by a second `interrupt`; it may have run
        """
        self._task = asyncio.create_task(self._run(script, params))
        try:
            return await self._task
        finally:
            self._task = self._stop = None

    async def look(self, statement: str) -> Any:
        """The value of a statement that nobody waits for: nothing is said of it, and Ctrl-C does
        not reach it. :raises StoreError: as `AsyncClient.query`"""
        return await self._client.query(statement)

    async def _run(self, script: str, params: Mapping[str, Any] | None) -> Answer:
        await self.connect()
        self._stop = asyncio.get_running_loop().create_future()
        try:
            answer = await self._client.run(script, params, timeout=self._timeout, stop=self._stop)
        except Refused as error:
            self._follow(script, len(error.results))
            raise
        self._follow(script, len(answer.results))
        return answer

    def _follow(self, script: str, ran: int) -> None:
        for namespace, database in statements.places(script, ran):
            self.use(namespace, database)

    def interrupt(self) -> bool:
        """Ctrl-C: ask the node to end the running script. Its answer is waited for, since it says
        whether the script came to its end first; a second Ctrl-C waits no longer.

        Answers False when nothing runs.
        """
        if self._task is None:
            return False
        if self._stop is None or self._stop.done():
            self._task.cancel()
        else:
            self._stop.set_result(None)
        return True

    async def close(self) -> None:
        """End the connection."""
        await self._client.close()
