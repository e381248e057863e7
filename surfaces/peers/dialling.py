"""Dialling side of links.

The dialler expects a certificate with a given fingerprint. If the row of the peer is removed, the
link ends, as on the listening side. A link that stands on the fingerprint in a join token ends only
by a revocation, until local rows name that fingerprint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Protocol

from OpenSSL import SSL

from actors.cluster.membership import Pinned
from actors.rate_limited_log import RateLimitedLog
from protocol.addresses import check_peer
from protocol.errors import BadRequest, Refusal, SignInRefused
from protocol.links import (
    Hello,
    Link,
    LinkClosed,
    Message,
    NotKnown,
    Redeem,
    Redeemed,
    Refused,
)
from surfaces.peers.connection import PeerConnection, PeerTimeouts
from surfaces.peers.greeting import check, refusal
from surfaces.peers.tls import Channel


class Trusts(Protocol):
    """Source of trust: `actors.cluster.membership.Trust`, or an empty one."""

    @property
    def now(self) -> datetime:
        """Wall clock for the validity of certificates."""

    def of(self, fingerprint: str) -> Pinned | None:
        """Return the peer with that certificate, or None if it is unknown."""

    def is_revoked(self, fingerprint: str) -> bool:
        """True if that certificate was revoked, whatever row still names it."""


class Dialler:
    """Makes links: the dialling half of `protocol.links.Links`.

    :param own: returns this node's TLS context; called for each connection
    :param hello: returns this node's greeting; called for each connection
    """

    def __init__(
        self,
        own: Callable[[], SSL.Context],
        hello: Callable[[], Hello],
        trust: Trusts,
        limited_log: RateLimitedLog,
        patience: PeerTimeouts | None = None,
    ) -> None:
        self._own = own
        self._hello = hello
        self._trust = trust
        self._limited_log = limited_log
        self._patience = patience or PeerTimeouts()
        self._connections: dict[PeerConnection, bool] = {}
        """Open connections, with True if a row has named their certificate."""
        self._closed = False

    async def connect(self, address: str, pins: Collection[str]) -> Link:
        """Connect to a node that shows one of these certificates, and greet."""
        ours = self._hello()
        connection, answer = await self._ask(address, pins, ours)
        if isinstance(answer, Refused):
            connection.close()
            raise LinkClosed(f"{address} refused the link: {answer.code}: {answer.message}")
        shown = connection.shown
        if not isinstance(answer, Hello) or shown is None:
            connection.fail(f"the peer sent {type(answer).__name__} instead of a greeting")
            raise LinkClosed(f"{address} sent no greeting")
        pinned = self._trust.of(shown.fingerprint)
        try:
            peer = check(answer, ours, shown, pinned)
        except Refusal as why:
            connection.fail(why.message)
            raise LinkClosed(f"{address}: {why.message}") from why
        self._connections[connection] = pinned is not None
        connection.know(peer)
        return connection

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        """Exchange a join token at another node."""
        try:
            connection, answer = await self._ask(address, [pin], asked, patient=True)
        except NotKnown as error:
            # The other side accepts unknown peers only while an unused join token exists.
            raise SignInRefused(
                "invalid join token: it may have been used, or have expired"
            ) from error
        connection.close()
        if isinstance(answer, Redeemed):
            return answer
        if isinstance(answer, Refused):
            raise refusal(answer)
        raise LinkClosed(f"{address} answered {type(answer).__name__} to a join token")

    def judge(self) -> None:
        """Re-check trust after a change, and end the links of peers no longer trusted."""
        for connection, named in list(self._connections.items()):
            shown = connection.shown
            if shown is None:
                continue
            is_named = self._trust.of(shown.fingerprint) is not None
            if shown.expires <= self._trust.now:
                connection.fail(f"the certificate {shown.fingerprint} has expired")
            elif self._trust.is_revoked(shown.fingerprint) or (named and not is_named):
                connection.fail(f"the certificate {shown.fingerprint} is no longer trusted")
            else:
                self._connections[connection] = is_named

    @property
    def held(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def close(self) -> None:
        """Abort all connections, and make no more."""
        self._closed = True
        for connection in list(self._connections):
            connection.cut("the node is stopping")

    async def _ask(
        self, address: str, pins: Collection[str], first: Message, *, patient: bool = False
    ) -> tuple[PeerConnection, Message]:
        """Open a connection, send a first message and wait for the response.

        :param patient: allow the other side more time
        :raises LinkClosed: no response
        """
        if self._closed:
            raise LinkClosed("the node is stopping")
        host, port = _parts(address)
        own = self._own()
        connection: PeerConnection | None = None
        what: type[LinkClosed] = LinkClosed

        def make() -> PeerConnection:
            nonlocal connection
            channel = Channel(own, False, partial(self._judge, frozenset(pins)), self._now)
            connection = PeerConnection(
                channel,
                self._patience,
                lambda _: None,
                lambda _: True,  # the handshake has verified the pin
                self._failed,
                self._left,
            )
            self._connections[connection] = False
            return connection

        try:
            async with asyncio.timeout(self._patience.greeting):
                await asyncio.get_running_loop().create_connection(make, host, port)
                assert connection is not None
                await connection.established()
                connection.send(first)
            async with asyncio.timeout(self._patience.greeting * (4 if patient else 1)):
                return connection, await connection.receive()
        except TimeoutError:
            why = f"{address} did not answer in time"
        except OSError as error:
            why = f"{address}: {error.strerror or error}"
        except LinkClosed as error:
            why, what = f"{address}: {error}", type(error)
        except BaseException:
            if connection is not None:
                connection.cut("no longer needed")
                self._left(connection)
            raise
        if connection is not None:
            connection.cut(why)
            self._left(connection)
        raise what(why)

    def _now(self) -> datetime:
        return self._trust.now

    def _judge(self, pins: frozenset[str], fingerprint: str, _expires: datetime) -> str | None:
        if self._trust.is_revoked(fingerprint):
            return f"the certificate {fingerprint} was revoked"
        if fingerprint not in pins:
            return f"the certificate {fingerprint} is not the expected one"
        return None

    def _failed(self, connection: PeerConnection, why: str) -> None:
        self._limited_log.warning(
            "a link to another node failed", address=connection.address, why=why
        )

    def _left(self, connection: PeerConnection) -> None:
        self._connections.pop(connection, None)


def _parts(address: str) -> tuple[str, int]:
    """Split an address into host and port.

    :raises LinkClosed: it is not an address
    """
    try:
        host, _, port = check_peer(address).rpartition(":")
    except BadRequest as error:
        raise LinkClosed(error.message) from error
    return host.strip("[]"), int(port)
