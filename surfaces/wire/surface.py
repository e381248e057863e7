"""Wire surface: start, and the stages of its shutdown."""

from __future__ import annotations

import asyncio
import ssl
import sys
from dataclasses import dataclass

from actors.node_info import Load
from protocol import limits
from protocol.errors import BadRequest, Full, Refusal
from protocol.frames import MessageKind, encode
from surfaces.counters import WireCounters
from surfaces.listener import Listener
from surfaces.wire.connection import WireConnection
from surfaces.wire.gate import Gate
from surfaces.wire.refusals import Refusals
from surfaces.wire.shared import Wire


@dataclass(frozen=True, slots=True)
class WireSettings:
    """Address on which the surface listens. Port 0 asks the system for a free one."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    descriptors: int = sys.maxsize
    """Every connection's descriptor is below this number: `surfaces/listener.py`."""


class WireSurface:
    """Wire protocol on one address.

    Shutdown in stages: `stop_accepting`, `drain`, `close`; each may be called without the one
    before.
    """

    def __init__(self, gate: Gate, settings: WireSettings) -> None:
        self._settings = settings
        self._wire = Wire(gate)
        refusal = Full(f"too many wire connections: the limit is {limits.CONNECTIONS}")
        self._refusals = Refusals(_last_word(refusal))
        self.was_probed = False
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Listen.

        :raises OSError: the address is taken, not local, or not allowed
        """
        self._listener = Listener(
            self._admit,
            self._lost,
            tls=self._settings.tls,
            tls_seconds=limits.TLS_SECONDS,
            refusal=self._refusals.word,
            refused=self._refused,
            in_clear=_last_word(
                BadRequest(
                    "this port speaks TLS: connect with it; in the shell with --tls, or with --ca"
                    " and the file of the certificate authority"
                )
            ),
            descriptors=self._settings.descriptors,
            limited_log=self._wire.limited_log,
        )
        await self._listener.open(self._settings.host, self._settings.port)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All addresses listened on: a name may have several."""
        assert self._listener is not None, "not started"
        return self._listener.addresses

    @property
    def held(self) -> int:
        """Number of open connections."""
        return self._wire.held

    def load(self) -> Load:
        """Return the number of connections and scripts, and their ceilings."""
        most = min(limits.CONNECTIONS, self._settings.descriptors)
        return Load(self.held, most, self.running, limits.RUNNING)

    @property
    def counters(self) -> WireCounters:
        """Counters since the start."""
        return self._wire.counters

    @property
    def running(self) -> int:
        """Number of running scripts."""
        return self._wire.admission.running

    @property
    def full(self) -> bool:
        """True if another connection would be refused."""
        return self.held >= limits.CONNECTIONS

    def present(self, tls: ssl.SSLContext) -> None:
        """Use another certificate for new connections; established ones keep theirs. Only for a
        surface that was started with TLS."""
        assert self._listener is not None, "not started"
        self._listener.present(tls)

    def stop_accepting(self) -> None:
        """Accept no new connections; established ones go on."""
        if self._listener is not None:
            self._listener.close()

    async def drain(self) -> None:
        """Accept no new requests, send BYE to every peer, and wait until running ones are answered
        and read. The caller sets the time limit."""
        self.stop_accepting()
        self._wire.admission.draining = True
        for connection in list(self._wire.connections):
            connection.send_bye()
        await self._wire.all_gone()

    async def close(self) -> None:
        """End every connection now."""
        self._wire.admission.draining = True
        if self._listener is not None:
            await self._listener.end()
        self._refusals.end()
        self._wire.end()
        await self._wire.all_gone()
        self._wire.limited_log.close()
        self._wire.refusals.close()

    # --- inside ---------------------------------------------------------------------------------

    def _admit(self) -> asyncio.Protocol | None:
        """Make the protocol of a connection just accepted, which counts from now on."""
        self.counters.connections += 1
        if not self.full:
            return WireConnection(self._wire)
        self._wire.limited_log.warning("wire surface is full", connections=limits.CONNECTIONS)
        self._refused()
        return self._refusals.one()

    def _refused(self) -> None:
        self.counters.refused_connections += 1

    def _lost(self, protocol: asyncio.Protocol) -> None:
        if isinstance(protocol, WireConnection):
            self._wire.left(protocol)


def _last_word(refusal: Refusal) -> bytes:
    """Return the message for a connection that is refused before anything is read."""
    return encode(MessageKind.REFUSED, 0, {"error": refusal.answer()})
