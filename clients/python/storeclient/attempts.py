"""What becomes of a request that failed: whether it is asked again, and of whom.

Again is asked only what did not happen, or does no harm twice: what was never sent, what a node has
refused as one that takes no changes, what its caller calls repeatable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from storeclient.connection import GRACE_SECONDS, Connection
from storeclient.errors import (
    AnswerTooLarge,
    Cancelled,
    Draining,
    NotWritable,
    OutcomeUnknown,
    Refused,
    SessionEnded,
    StatementTimeout,
    StoreError,
    Unreachable,
)
from storeclient.exchange import NotSent
from storeclient.frames import Kind
from storeclient.nodes import Node, Nodes
from storeclient.outages import Pause
from storeclient.rows import Place

BREAKS_MOST: Final = 8
"""Connections that may end under one request before it is asked no more: more than nodes that are
restarted one after the other end, and fewer than a request that ends each node would like."""


class Attempts:
    """Those of one request.

    :param repeatable: doing it twice does no harm
    :param spread: whether it is asked of any node, as long as none fails
    :param stop: ends the request: it is not asked again then
    :param at: the node to ask for as long as its connection stands, whichever takes changes
    :param place: its place among requests that are to be done in order: it keeps that, or is not
        asked again
    """

    def __init__(
        self,
        nodes: Nodes,
        repeatable: bool,
        spread: bool = False,
        stop: asyncio.Future[None] | None = None,
        at: Node | None = None,
        place: Place | None = None,
    ) -> None:
        self.spread = spread
        self._place = place
        self._at = at
        self._nodes = nodes
        self._repeatable = repeatable
        self._stop = stop
        self._pause = Pause()
        self._signed_in_again = False
        self._turned_away_at: float | None = None
        self._breaks = 0
        """Connections that ended when it had been asked there."""
        self._refused: set[Node] = set()
        """Nodes that take no changes, as they have said since the last rest."""
        self._in_cluster = False
        """Whether one of them has spoken of a leader: there is one, or there will be."""
        self._searching_until: float | None = None

    async def node(self) -> Node:
        """Whom to ask next. Raises as `Nodes.home`."""
        if self._at is not None and self._at.is_usable:
            return self._at
        return await (self._nodes.near() if self.spread else self._nodes.home())

    async def not_sent(self, node: Node, connection: Connection) -> None:
        """A connection had ended before anything was sent there. :raises Unreachable: they all do

        One that ends in this moment says nothing. A peer that ends each of them as soon as it has
        welcomed it is none to go on connecting to for ever.
        """
        now = asyncio.get_running_loop().time()
        if self._turned_away_at is None:
            self._turned_away_at = now
        elif now - self._turned_away_at < self._nodes.connect_timeout:
            await self._pause.rest()
        else:
            raise turned_away(self._nodes, connection, node.where) from connection.cause
        if not await self._keeps_its_place():
            raise turned_away(self._nodes, connection, node.where) from connection.cause

    async def go_on_after(self, error: StoreError, node: Node, connection: Connection) -> bool:
        """Return True if the request is to be asked again, of `node`, after a wait where one helps.

        A request of which a part is committed is never asked again, whatever ended it.
        """
        if isinstance(error, Refused) and error.committed is not None:
            return False
        return await self._is_worth_it(error, node, connection) and await self._keeps_its_place()

    async def _keeps_its_place(self) -> bool:
        return self._place is None or await self._place.again()

    async def _is_worth_it(self, error: StoreError, node: Node, connection: Connection) -> bool:
        if isinstance(error, OutcomeUnknown):
            return await self._go_on_after_unknown(error, node, connection)
        if not isinstance(error, Refused):
            return False
        if isinstance(error, SessionEnded) and await self._sign_in_again(node, connection):
            return True
        # Said about a request that crossed the node's BYE: it was never begun.
        if isinstance(error, Draining) and connection.leaving:
            return await self._asks_behind_a_break()
        if self.spread and not self._nodes.is_home(node):
            return self._ask_home_instead(error, node)
        if not isinstance(error, Draining | NotWritable):
            return False
        return await self._look_elsewhere(error, node)

    async def _go_on_after_unknown(
        self, error: OutcomeUnknown, node: Node, connection: Connection
    ) -> bool:
        if not self._repeatable:
            return False
        if isinstance(error, Refused):  # a leader that is none any more can't say what became of it
            return await self._look_elsewhere(error, node)
        return not connection.usable and await self._asks_behind_a_break()

    async def _asks_behind_a_break(self) -> bool:
        """Whether to ask on the next connection, where one has ended under the request. At once
        after the first; with every other it is the likelier that the request has to do with it."""
        self._breaks += 1
        if self._breaks > BREAKS_MOST:
            return False
        if self._breaks > 1:
            await self._pause.rest(self._stop)
        return True

    def _ask_home_instead(self, error: Refused, node: Node) -> bool:
        """Something went wrong with a read where it was asked: it is home's to answer. Not so what
        took too long, or too much room, and would there."""
        late = "after" in error.detail
        if late or error.retry:
            node.rest()
        if isinstance(error, Cancelled | AnswerTooLarge):
            return False
        if isinstance(error, StatementTimeout) and not late:
            return False
        self.spread = False
        return True

    async def _sign_in_again(self, node: Node, connection: Connection) -> bool:
        """Open another session: with a password, never with a token."""
        credential = node.settings.credential
        if credential.password is None or self._signed_in_again:
            return False
        self._signed_in_again = True
        try:
            await connection.ask(Kind.AUTH, dict(credential.fields()), GRACE_SECONDS)
        except (NotSent, OutcomeUnknown):
            return True  # the connection has gone: the next one signs in by itself
        return True

    async def _look_elsewhere(self, error: Refused, node: Node) -> bool:
        """A node takes no changes: look for the one that does, for as long as a connection may
        take where there is a cluster. It may have none for a moment."""
        stopped = self._stop is not None and self._stop.done()
        if stopped or not self._nodes.are_several:
            return False
        now = asyncio.get_running_loop().time()
        if self._searching_until is None:
            self._searching_until = now + self._nodes.connect_timeout
        self._in_cluster = self._in_cluster or "leader" in error.detail
        self._nodes.refused_by(node, error.detail.get("leader"))
        if node not in self._refused:
            self._refused.add(node)
            return True
        if not self._in_cluster or now >= self._searching_until:
            return False
        self._refused.clear()
        await self._pause.rest(self._stop)
        return True


def turned_away(nodes: Nodes, connection: Connection, where: str) -> Unreachable:
    """Nothing can be sent on the connections that there are."""
    why = connection.cause or "it says goodbye"
    return Unreachable(
        f"{where} has ended each connection for {nodes.connect_timeout:g} s before anything was"
        f" sent: {why}"
    )


def belongs_to_home(fields: Mapping[str, Any]) -> bool:
    """Whether a script has to be run by the node that takes changes, whatever it does; what is
    current is said sooner there than elsewhere."""
    names = ("moment", "reason", "record", "current")
    return any(fields.get(name) is not None for name in names)
