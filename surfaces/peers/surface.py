"""Peer surface: listens for other nodes, and dials them (`protocol.links.Links`).

The number of connections is limited. So is that of connections without a known certificate: in all,
for each source address, and in time for each step. Unknown peers are heard only while an unused
join token exists.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from OpenSSL import SSL

from actors.cluster.membership import Peering
from actors.node_info import Load
from actors.rate_limited_log import RateLimitedLog
from actors.sign_in_throttle import network
from protocol import limits
from protocol.links import Link, Redeem, Redeemed
from surfaces.listener import Listener
from surfaces.peers.connection import PeerConnection, PeerTimeouts
from surfaces.peers.dialling import Dialler
from surfaces.peers.greeting import welcome
from surfaces.peers.tls import Channel, PeerCertificate, context


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Address on which the node listens for other nodes. Port 0 asks the system for a free one."""

    host: str
    port: int
    descriptors: int = sys.maxsize
    """Every connection's descriptor is below this number: `surfaces/listener.py`."""
    patience: PeerTimeouts = field(default_factory=PeerTimeouts)


class PeerSurface:
    """Links with other nodes, incoming and outgoing. On the loop only."""

    def __init__(self, peering: Peering, settings: PeerSettings) -> None:
        self._peering = peering
        self._settings = settings
        self._limited_log = RateLimitedLog("surfaces.peers")
        self._trust = peering.trust
        self._own: SSL.Context | None = None
        self._dialler = Dialler(
            self._shown, lambda: peering.hello, peering.trust, self._limited_log, settings.patience
        )
        self._connections: dict[PeerConnection, None] = {}
        """Incoming connections, the oldest first."""
        self._tasks: dict[PeerConnection, asyncio.Task[None]] = {}
        self.was_probed = False
        self._listener: Listener | None = None
        self._stopping = False

    # --- start and end ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen.

        :raises OSError: the address is taken, not local, or not allowed
        """
        self.show()
        self._listener = Listener(
            self._admit,
            self._lost,
            tls=None,  # the connections do it
            tls_seconds=limits.TLS_SECONDS,
            refusal=b"",
            refused=lambda: None,
            in_clear=b"",
            descriptors=self._settings.descriptors,
            limited_log=self._limited_log,
        )
        await self._listener.open(self._settings.host, self._settings.port)
        self._peering.trust.on_change.append(self.judge)
        self._peering.on_look.append(self.judge)
        self._peering.on_show.append(self.show)
        self._peering.links = self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All addresses listened on: a name may have several."""
        assert self._listener is not None, "not started"
        return self._listener.addresses

    def load(self) -> Load:
        """Return the number of connections and their ceiling."""
        return Load(len(self._connections), limits.PEER_CONNECTIONS, 0, 0)

    def show(self) -> None:
        """Use the node's current certificate for new connections; established ones keep theirs."""
        identity = self._peering.shown
        self._own = context(identity.chain, identity.private_key)

    def stop_accepting(self) -> None:
        """Accept no new connections; established ones go on."""
        if self._listener is not None:
            self._listener.close()

    async def drain(self) -> None:
        """Stop accepting. No request has to be awaited: a follower sees where its link ended."""
        self.stop_accepting()

    async def close(self) -> None:
        """End every connection now."""
        self._stopping = True
        self._peering.links = None
        if self._listener is not None:
            await self._listener.end()
        self._dialler.close()
        for connection in list(self._connections):
            connection.cut("the node is stopping")
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._limited_log.close()

    # --- links ------------------------------------------------------------------------------------

    async def connect(self, address: str, pins: Collection[str]) -> Link:
        """Connect to a node that shows one of these certificates."""
        return await self._dialler.connect(address, pins)

    async def redeem(self, address: str, pin: str, asked: Redeem) -> Redeemed:
        """Exchange a join token at another node."""
        return await self._dialler.redeem(address, pin, asked)

    def judge(self) -> None:
        """Re-check trust after a change or after time has passed; end links of peers no longer
        trusted, at once."""
        for connection in list(self._connections):
            shown = connection.shown
            if shown is None:
                continue
            if shown.expires <= self._now():
                connection.fail(f"the certificate {shown.fingerprint} has expired")
            elif connection.known is not None and self._trust.of(shown.fingerprint) is None:
                connection.fail(f"the certificate {shown.fingerprint} is no longer trusted")
            elif self._trust.is_revoked(shown.fingerprint):
                connection.fail(f"the certificate {shown.fingerprint} was revoked")
        self._dialler.judge()

    # --- inside -----------------------------------------------------------------------------------

    def _shown(self) -> SSL.Context:
        assert self._own is not None, "not started"
        return self._own

    def _admit(self) -> asyncio.Protocol | None:
        """Make the protocol of a connection just accepted, which counts from now on."""
        if self._stopping or len(self._connections) >= limits.PEER_CONNECTIONS:
            self._limited_log.warning("too many connections of other nodes")
            return None
        channel = Channel(self._shown(), True, self._judge, self._now)
        connection = PeerConnection(
            channel, self._settings.patience, self._made, self._is_known, self._failed, self._left
        )
        self._connections[connection] = None
        return connection

    def _made(self, connection: PeerConnection) -> None:
        """Start serving an accepted connection. Connections without a known certificate have a
        ceiling. Above it the oldest of them ends, so that a silent crowd keeps no other peer out.
        """
        unknown = [
            one
            for one in self._connections
            # A connection cut in this iteration of the loop is still listed, but no longer counts.
            if not one.ends and (one.shown is None or not self._is_known(one.shown))
        ]
        at = network(connection.address)
        near = [one for one in unknown if network(one.address) == at]
        for crowd, most in (
            (near, limits.PEER_UNKNOWN_OF_ADDRESS),
            (unknown, limits.PEER_UNKNOWN),
        ):
            if len(crowd) > most:
                crowd[0].fail("too many connections without sign-in")
                break
        work = welcome(connection, self._peering, self._settings.patience)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[connection] = task
        task.add_done_callback(lambda _: self._done(connection))

    def _is_known(self, shown: PeerCertificate) -> bool:
        return self._trust.of(shown.fingerprint) is not None

    def _done(self, connection: PeerConnection) -> None:
        task = self._tasks.pop(connection)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._limited_log.error("a connection of another node failed", exc_info=error)
            connection.cut("internal error")

    def _judge(self, fingerprint: str, _expires: datetime) -> str | None:
        if self._trust.is_revoked(fingerprint):
            return f"the certificate {fingerprint} was revoked"
        if self._trust.of(fingerprint) is None and not self._trust.admits_unknown():
            return f"the certificate {fingerprint} is not trusted"
        return None

    def _now(self) -> datetime:
        return self._trust.now

    def _failed(self, connection: PeerConnection, why: str) -> None:
        self._limited_log.warning(
            "a connection of another node was ended", address=connection.address, why=why
        )

    def _left(self, connection: PeerConnection) -> None:
        self._connections.pop(connection, None)

    def _lost(self, protocol: asyncio.Protocol) -> None:
        if isinstance(protocol, PeerConnection):
            self._left(protocol)
