"""Session of a shell: runs scripts on one node in order, cancels them, reports lost links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from storeclient import Answer, AsyncClient, Refused, Welcome
from surfaces.shell import statements
from surfaces.shell.connecting import CONNECT_SECONDS

NOTICE_SECONDS: Final = 0.5
"""Seconds of a connection attempt before it is reported."""


class ShellSession:
    """Session of a shell with its node. One script at a time.

    :param client: makes a client that tries these addresses first; with any of them it follows the
        leader (the writable node)
    :param print_notice: prints a line about the connection
    """

    def __init__(
        self,
        client: Callable[[Sequence[str]], AsyncClient],
        print_notice: Callable[[str], None],
        timeout: timedelta | None = None,
    ) -> None:
        self._make_client = client
        self._client = client(())
        self._print_notice = print_notice
        self._timeout = timeout
        self._welcome: Welcome | None = None
        self._stop: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Answer] | None = None

    @property
    def place(self) -> tuple[str | None, str | None]:
        """Namespace and database in which scripts start."""
        return self._client.ns, self._client.db

    def use(self, namespace: str | None, database: str | None) -> None:
        """Set the namespace and database in which scripts start, like a `USE` of these two."""
        self._client.use(namespace or self._client.ns, database)

    async def connect(self) -> Welcome:
        """Connect, also again after a lost connection, and report it.

        :raises Unreachable: no connection could be made in time
        :raises Refused: the credential was refused
        """
        connecting = asyncio.ensure_future(self._client.connect())
        try:
            done, _ = await asyncio.wait({connecting}, timeout=NOTICE_SECONDS)
            if not done:
                self._print_notice(
                    f"no connection yet; retrying for {CONNECT_SECONDS:g} s, Ctrl-C stops"
                )
            welcome = await connecting
        finally:
            connecting.cancel()
        before, self._welcome = self._welcome, welcome
        if before is not None and before is not welcome:
            other = "" if before.node == welcome.node else ", a different node than before"
            self._print_notice(
                f"the connection was lost; connected again to node {welcome.node}{other}"
            )
        return welcome

    async def follow_leader(self) -> Welcome:
        """Connect to the leader (the writable node) that the node of the command line names, and
        follow it when it changes. If none is named or reached, stay with that node.

        :raises StoreError: as `connect`
        :raises Ended: as `connecting.client_of`
        """
        await self._replace_client(())  # the node's former answer may be outdated
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
        """Run a script. A `USE` in it applies from then on.

        :raises StoreError: as `AsyncClient.run`
        :raises CancelledError: it was abandoned by a second `interrupt`; it may have run
        """
        self._task = asyncio.create_task(self._run(script, params))
        try:
            return await self._task
        finally:
            self._task = self._stop = None

    async def query_quietly(self, statement: str) -> Any:
        """Return the value of a background statement: it prints nothing, and Ctrl-C does not cancel
        it.

        :raises StoreError: as `AsyncClient.query`
        """
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
        """Handle Ctrl-C: ask the node to cancel the running script. Its answer is awaited, since it
        shows whether the script had ended before; a second Ctrl-C stops waiting.

        Return False if nothing runs.
        """
        if self._task is None:
            return False
        if self._stop is None or self._stop.done():
            self._task.cancel()
        else:
            self._stop.set_result(None)
        return True

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()
