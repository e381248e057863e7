"""Known nodes of a store, with a connection to each one in use.

One of them is *home*, the default target of requests: the leader, as far as it is known, else any
node that answers. A client with a single address always uses that node, whichever is the leader, so
that an operator can assign roles there.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from storeclient.connection import Connection
from storeclient.errors import (
    Closed,
    OutcomeUnknown,
    ProtocolBroken,
    Refused,
    StoreError,
    Unreachable,
)
from storeclient.events import ConnectionChange, ConnectionEvent, OnConnection
from storeclient.exchange import MINOR_OF_AFTER, MINOR_OF_SEQUENCES
from storeclient.settings import Settings, split_address

BACKOFF_FIRST_SECONDS: Final = 0.02
BACKOFF_MOST_SECONDS: Final = 0.5
"""Longest pause between two rounds of connection attempts. A new leader is found at most that much
later, plus the duration of a round. Nodes that answer keep their connection, so a round only
retries the others."""
AWAY_SECONDS: Final = 5.0
"""Time without reads from a node that was unreachable or lagging, if another can be read from."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons, by version, for an answer that is not TLS."""
KNOWN: Final = 64
"""Largest number of known nodes; a leader named beyond that is not followed."""


class KnownNode:
    """A node: its address and its connection, made on demand and again after a failure.

    :param on_connection: called when the connection is established or lost
    """

    def __init__(self, settings: Settings, on_connection: OnConnection | None) -> None:
        self.settings = settings
        self.connection: Connection | None = None
        self.takes_changes: bool | None = None
        """True if it is writable, as far as is known; None: unknown."""
        self.is_foreign = False
        """True if it belongs to another store."""
        self.rests_until = 0.0
        """Time on the loop's clock before which nothing is read from it."""
        self._on_connection = on_connection
        self._was_connected = False
        self._is_closed = False
        self._opening: asyncio.Task[Connection] | None = None
        self._parting: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Node {self.where}>"

    @property
    def where(self) -> str:
        """Address of the node."""
        return self.settings.where

    @property
    def is_usable(self) -> bool:
        """True if its connection is open."""
        return self.connection is not None and self.connection.usable

    @property
    def knows_after(self) -> bool:
        """True if it can delay a script until it shows a sequence (`after`)."""
        return self._minor >= MINOR_OF_AFTER

    @property
    def knows_sequences(self) -> bool:
        """True if it can delay feeds and operations on keys until it shows a sequence, and answers
        operations on keys and messages with their commit."""
        return self._minor >= MINOR_OF_SEQUENCES

    @property
    def _minor(self) -> int:
        connection = self.connection
        assert connection is not None and connection.welcome is not None
        return connection.welcome.minor

    def rest(self) -> None:
        """Read nothing from it for `AWAY_SECONDS`."""
        self.rests_until = asyncio.get_running_loop().time() + AWAY_SECONDS

    async def open(self, seconds: float) -> Connection:
        """Return the connection; if there is none, make one attempt to connect.

        :raises OSError: it failed, or took too long
        :raises StoreError: the node refused it, or the peer is not a node
        """
        if self.connection is not None and self.connection.usable:
            return self.connection
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(seconds))
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        # wait(), not await: cancelling one waiting task must not cancel the shared attempt.
        await asyncio.wait((opening,), timeout=seconds)
        if not opening.done():
            raise TimeoutError
        if opening.cancelled():
            raise Closed("the client has been closed")
        return opening.result()

    async def _open(self, seconds: float) -> Connection:
        async with asyncio.timeout(seconds):
            connection = await Connection.open(self.settings, self._lost)
        before, self.connection = self.connection, connection
        if before is not None and before.leaving:
            parting = asyncio.create_task(before.gone())
            self._parting.add(parting)
            parting.add_done_callback(self._parting.discard)
        welcome = connection.welcome
        assert welcome is not None
        self.takes_changes = welcome.writable
        change: ConnectionChange = "reconnected" if self._was_connected else "connected"
        self._was_connected = True
        self._notify_listener(ConnectionEvent(change, self.where, welcome.version))
        return connection

    def _opened(self, opening: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is not None:
            self.rest()

    def _lost(self, error: BaseException | None) -> None:
        if not self._is_closed:
            self._notify_listener(ConnectionEvent("lost", self.where, error=error))

    def _notify_listener(self, event: ConnectionEvent) -> None:
        """Call the listener from the loop, so that its exceptions affect nothing here and are
        reported by the loop."""
        if self._on_connection is not None:
            asyncio.get_running_loop().call_soon(self._on_connection, event)

    async def close(self) -> None:
        """Wait for pending requests, and end the connection."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self.connection is not None:
            await self.connection.close()
        await asyncio.gather(*self._parting)


class Nodes:
    """All known nodes.

    :param given: nodes from the client's arguments, at least one
    """

    def __init__(self, given: Sequence[Settings], on_connection: OnConnection | None) -> None:
        self._given = tuple(given)
        self._on_connection = on_connection
        self._nodes = [KnownNode(settings, on_connection) for settings in given]
        self.connect_timeout = given[0].connect_timeout
        """Time-out of connecting in seconds, all attempts together."""
        self._home: KnownNode | None = None
        self.finding: asyncio.Task[KnownNode] | None = None
        """Search for a home node, while there is none."""
        self._named: list[KnownNode] = []
        """Nodes that another node named as the leader: tried first."""
        self._dialling: set[asyncio.Task[None]] = set()
        self._turn = 0
        self.is_closed = False

    @property
    def where(self) -> str:
        """Addresses from the client's arguments, in a form that can be passed again."""
        return ",".join(settings.where for settings in self._given)

    @property
    def are_several(self) -> bool:
        """True if there is more than one."""
        return len(self._nodes) > 1

    @property
    def connection(self) -> Connection | None:
        """Connection of the home node."""
        return None if self._home is None else self._home.connection

    def is_home(self, node: KnownNode) -> bool:
        """True if it is the home node."""
        return node is self._home

    def closed(self) -> Closed:
        """Return the error for calls after `close`."""
        return Closed("the client has been closed")

    async def home(self) -> KnownNode:
        """Return the home node, connected.

        :raises Unreachable: none could be connected to in time
        :raises Refused: they refused the credential or the version
        :raises Closed: the client was closed
        """
        if self.is_closed:
            raise self.closed()
        home = self._home
        if home is not None and home.is_usable:
            return home
        if self.finding is None:
            self.finding = asyncio.create_task(self._find())
            self.finding.add_done_callback(self._found)
        finding = self.finding
        # wait(), as above. When `close` cancels the search, waiting tasks must get `Closed`, not a
        # CancelledError.
        await asyncio.wait((finding,))
        if finding.cancelled():
            raise self.closed()
        return finding.result()

    def _found(self, finding: asyncio.Task[KnownNode]) -> None:
        self.finding = None
        if not finding.cancelled():
            finding.exception()  # mark it as retrieved: no task may be waiting any more

    async def near(self) -> KnownNode:
        """Return a connected node to read from, round-robin over those that can wait for a
        sequence. Others are connected in the background. Raises like `home`."""
        home = await self.home()
        now = asyncio.get_running_loop().time()
        for node in self._nodes:
            if not (node.is_usable or node.is_foreign) and node.rests_until <= now:
                self._dial(node)
        ready = [one for one in self._nodes if one is home or self._reads_at(one, now)]
        self._turn += 1
        return ready[self._turn % len(ready)]

    def _reads_at(self, node: KnownNode, now: float) -> bool:
        if node.is_foreign or node.rests_until > now:
            return False
        return node.is_usable and node.knows_after

    def _dial(self, node: KnownNode) -> None:
        node.rest()  # otherwise each read would start another attempt
        dialling = asyncio.create_task(self._connect(node))
        self._dialling.add(dialling)
        dialling.add_done_callback(self._dialling.discard)

    async def _connect(self, node: KnownNode) -> None:
        """Connect a node in the background."""
        try:
            await node.open(self.connect_timeout)
        except (OSError, StoreError):
            return  # retried after AWAY_SECONDS
        node.rests_until = 0.0

    # --- where home is ----------------------------------------------------------------------------

    async def _find(self) -> KnownNode:
        """Try the nodes in order, named ones first, until one is found."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.connect_timeout
        pause = BACKOFF_FIRST_SECONDS
        while True:
            found, errors = await self._ask_round(deadline)
            if found is not None:
                self._home = found
                return found
            last = self._what_ends(errors)
            if loop.time() + pause >= deadline:
                raise Unreachable(
                    f"no connection to {self.where.replace(',', ', ')} in"
                    f" {self.connect_timeout:g} s: {why(last)}"
                ) from last
            # Jitter, so that the clients of a restarted node do not reconnect all at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, BACKOFF_MOST_SECONDS)

    async def _ask_round(self, deadline: float) -> tuple[KnownNode | None, list[Exception]]:
        """Return the leader, else a node that answers, and the errors of the others."""
        loop = asyncio.get_running_loop()
        waiting, asked = deque(self._in_order()), set[KnownNode]()
        second: KnownNode | None = None
        errors = list[Exception]()
        while waiting:
            node = waiting.popleft()
            if node in asked:
                continue
            asked.add(node)
            left = max(deadline - loop.time(), 0.0)
            try:
                connection = await node.open(left / (1 + len(waiting)))
            except Closed:
                raise
            except (OSError, StoreError) as error:
                errors.append(error)
                continue
            if node.takes_changes is not False:
                self._named.clear()
                return node, errors
            assert connection.welcome is not None
            waiting.extendleft(reversed(self._nodes_at(connection.welcome.leader)))
            second = second or node
        return second, errors

    def _in_order(self) -> list[KnownNode]:
        """Return the nodes in the order to try: named ones, those not known to be read-only, the
        others. Among the last, the one tried longest ago first."""
        rest = sorted(self._nodes, key=lambda node: node.takes_changes is False)
        return list(dict.fromkeys([*self._named, *rest]))

    def _what_ends(self, errors: list[Exception]) -> Exception:
        """Return the last error of a round. :raises StoreError: another round would not help"""
        error = errors[-1]
        if any(map(_may_go_away, errors)):
            return error
        if isinstance(error, ssl.SSLCertVerificationError):
            raise Unreachable(
                f"the certificate of {self.where} is not trusted: {error.verify_message}"
            ) from error
        if isinstance(error, ssl.SSLError):
            raise Unreachable(
                f"{self.where} does not speak TLS: connect without it, or to another port"
            ) from error
        if isinstance(error, ProtocolBroken):
            raise Unreachable(f"no connection to {self.where}: {error}") from error
        raise error

    def _nodes_at(self, endpoints: Any) -> list[KnownNode]:
        """Return the nodes at addresses that a node has named, adding unknown ones. Invalid
        addresses are skipped: the node tried next will report the problem."""
        found = list[KnownNode]()
        if not (self.are_several and isinstance(endpoints, list | tuple)):
            return found
        for endpoint in endpoints:
            try:
                host, port = split_address(str(endpoint))
            except ValueError:
                continue
            for node in self._nodes:
                if (node.settings.host, node.settings.port) == (host, port):
                    found.append(node)
                    break
            else:
                if len(self._nodes) < KNOWN:
                    settings = replace(self._given[0], host=host, port=port)
                    self._nodes.append(KnownNode(settings, self._on_connection))
                    found.append(self._nodes[-1])
        return found

    def refused_by(self, node: KnownNode, leader: Any) -> None:
        """Record that a node refused a write as not writable, and search for another home.

        :param leader: endpoints that it named, if any
        """
        node.takes_changes = False
        self._nodes.remove(node)
        self._nodes.append(node)  # tried last from here on
        self._named = [one for one in self._nodes_at(leader) if one is not node]
        for named in self._named:
            named.takes_changes = None
        if self._home is node:
            self._home = None

    async def own(self) -> Connection:
        """Return a separate connection to the home node, without events to the listener. Raises
        like `home`.

        It is not kept: the caller has to end it.
        """
        settings = self._given[0]
        if self.are_several:
            settings = (await self.home()).settings
        alone = Nodes((replace(settings, connect_timeout=self.connect_timeout),), None)
        try:
            connection = (await alone.home()).connection
        except BaseException:  # above all cancelled: else the connection would leak
            await alone.close()
            raise
        assert connection is not None
        return connection

    async def close(self) -> None:
        """Wait for pending requests, then end all connections. Closing twice is fine."""
        self.is_closed = True
        ending = [*self._dialling] if self.finding is None else [self.finding, *self._dialling]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.gather(*(node.close() for node in self._nodes))


def _may_go_away(error: Exception) -> bool:
    if isinstance(error, Refused):
        return error.retry
    if isinstance(error, ssl.SSLCertVerificationError):
        return False
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return False
    return isinstance(error, OSError | OutcomeUnknown)


def why(error: Exception) -> str:
    """Return a short text of the reason why there is no connection."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror | ssl.SSLError):
        # asyncio replaces the system's text by its own, which repeats the address.
        return os.strerror(error.errno) if error.errno else str(error) or "no answer in time"
    return str(getattr(error, "strerror", None) or error)
