"""Retries: decides if a failed request is sent again, and to which node.

Only a request that did not run, or that is idempotent, is retried. That is one that was never sent,
one that a follower refused as not writable, or one that its caller declared repeatable.
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
from storeclient.nodes import KnownNode, Nodes
from storeclient.outages import Pause
from storeclient.rows import PendingRow

BREAKS_MOST: Final = 8
"""Broken connections per request, after which it is not retried. A rolling restart of the nodes
causes fewer; a request that crashes nodes is stopped by it."""


class Attempts:
    """The attempts of one request.

    :param repeatable: the request is idempotent
    :param spread: the request may go to any node, until one fails
    :param stop: ends the request: it is not retried after that
    :param at: node to use while its connection is usable, even if another is the leader
    :param place: position among requests that must run in order: the request keeps it, or is not
        retried
    """

    def __init__(
        self,
        nodes: Nodes,
        repeatable: bool,
        spread: bool = False,
        stop: asyncio.Future[None] | None = None,
        at: KnownNode | None = None,
        place: PendingRow | None = None,
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
        """Connections that broke after the request was sent on them."""
        self._refused: set[KnownNode] = set()
        """Nodes that have refused as not writable since the last pause."""
        self._in_cluster = False
        """True if one of them named a leader: the nodes are a cluster, which has a leader or will
        elect one."""
        self._searching_until: float | None = None

    async def node(self) -> KnownNode:
        """Return the node for the next attempt. Raises like `Nodes.home`."""
        if self._at is not None and self._at.is_usable:
            return self._at
        return await (self._nodes.near() if self.spread else self._nodes.home())

    async def not_sent(self, node: KnownNode, connection: Connection) -> None:
        """Handle a connection that ended before anything was sent. :raises Unreachable: all of them
        do

        A single such end means nothing. But a peer that closes every connection right after its
        welcome must not be retried for ever.
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

    async def go_on_after(self, error: StoreError, node: KnownNode, connection: Connection) -> bool:
        """Return True if the request is to be retried, after a pause if one helps.

        A request of which a part is committed is never retried, whatever ended it.
        """
        if isinstance(error, Refused) and error.committed is not None:
            return False
        return await self._is_worth_it(error, node, connection) and await self._keeps_its_place()

    async def _keeps_its_place(self) -> bool:
        return self._place is None or await self._place.again()

    async def _is_worth_it(
        self, error: StoreError, node: KnownNode, connection: Connection
    ) -> bool:
        if isinstance(error, OutcomeUnknown):
            return await self._go_on_after_unknown(error, node, connection)
        if not isinstance(error, Refused):
            return False
        if isinstance(error, SessionEnded) and await self._sign_in_again(node, connection):
            return True
        # The request crossed the node's BYE, and was never begun.
        if isinstance(error, Draining) and connection.leaving:
            return await self._asks_behind_a_break()
        if self.spread and not self._nodes.is_home(node):
            return self._ask_home_instead(error, node)
        if not isinstance(error, Draining | NotWritable):
            return False
        return await self._look_elsewhere(error, node)

    async def _go_on_after_unknown(
        self, error: OutcomeUnknown, node: KnownNode, connection: Connection
    ) -> bool:
        if not self._repeatable:
            return False
        if isinstance(error, Refused):  # a deposed leader, which can't know
            return await self._look_elsewhere(error, node)
        return not connection.usable and await self._asks_behind_a_break()

    async def _asks_behind_a_break(self) -> bool:
        """Return True to retry on the next connection after one broke. The first time at once; each
        further break makes it likelier that the request causes them, so it pauses."""
        self._breaks += 1
        if self._breaks > BREAKS_MOST:
            return False
        if self._breaks > 1:
            await self._pause.rest(self._stop)
        return True

    def _ask_home_instead(self, error: Refused, node: KnownNode) -> bool:
        """Retry a failed spread read at the home node. Not one that timed out or was too large,
        which would fail there too."""
        late = "after" in error.detail
        if late or error.retry:
            node.rest()
        if isinstance(error, Cancelled | AnswerTooLarge):
            return False
        if isinstance(error, StatementTimeout) and not late:
            return False
        self.spread = False
        return True

    async def _sign_in_again(self, node: KnownNode, connection: Connection) -> bool:
        """Open a new session with the password; a token cannot be renewed."""
        credential = node.settings.credential
        if credential.password is None or self._signed_in_again:
            return False
        self._signed_in_again = True
        try:
            await connection.ask(Kind.AUTH, dict(credential.fields()), GRACE_SECONDS)
        except (NotSent, OutcomeUnknown):
            return True  # the connection broke: the next one signs in anyway
        return True

    async def _look_elsewhere(self, error: Refused, node: KnownNode) -> bool:
        """Find the leader after a node refused as not writable. Retries for up to the connect
        time-out if there is a cluster, which may have no leader for a moment."""
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
    """Return the error for connections that all end before a request can be sent."""
    why = connection.cause or "the node is stopping"
    return Unreachable(
        f"{where} ended every connection before a request was sent, for"
        f" {nodes.connect_timeout:g} s: {why}"
    )


def belongs_to_home(fields: Mapping[str, Any]) -> bool:
    """True if a script has to run on the home node whatever it does. Linearizable reads are among
    these, since the leader answers them fastest."""
    names = ("moment", "reason", "record", "current")
    return any(fields.get(name) is not None for name in names)
