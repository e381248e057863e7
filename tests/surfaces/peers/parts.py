"""What the tests of links share: certificates, a node as far as its surface sees it, bare peers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from actors.cluster.membership import Pinned
from protocol.links import (
    VERSION,
    Accept,
    Hello,
    Link,
    LinkClosed,
    Message,
    Peer,
    Redeem,
    Redeemed,
    Renew,
    Renewed,
    decode,
    encode,
)
from storage.files.peer_file import Identity
from surfaces.peers import tls
from surfaces.peers.connection import PeerTimeouts
from surfaces.peers.surface import PeerSettings, PeerSurface

STORE = "11111111-2222-4333-8444-555555555555"
SOON = PeerTimeouts(greeting=0.2, message=0.2, taking=0.2)


def identity(
    name: str, begins: datetime | None = None, expires: datetime | None = None
) -> Identity:
    """A certificate with its key. :param begins: an hour ago :param expires: in a month"""
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    expires = expires or now + timedelta(days=30)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins or min(now, expires) - timedelta(hours=1))
        .not_valid_after(expires)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Identity(
        made.public_bytes(pem).decode(),
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


class FakeTrust:
    def __init__(self) -> None:
        self.pinned: dict[str, Pinned] = {}
        self.revoked: set[str] = set()
        self.awaits = False
        self.on_change: list[Callable[[], None]] = []

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    def of(self, fingerprint: str) -> Pinned | None:
        return None if fingerprint in self.revoked else self.pinned.get(fingerprint)

    def row_of(self, node: str) -> str | None:
        return next((one.row for one in self.pinned.values() if one.node == node), None)

    def is_revoked(self, fingerprint: str) -> bool:
        return fingerprint in self.revoked

    def admits_unknown(self) -> bool:
        return self.awaits

    def changed(self) -> None:
        for changed in self.on_change:
            changed()


@dataclass
class FakePeering:
    name: str
    shown: Identity
    store: str = STORE
    trust: FakeTrust = field(default_factory=FakeTrust)
    accept: Accept = field(init=False)
    links: Any = None
    on_show: list[Callable[[], None]] = field(default_factory=list)
    on_look: list[Callable[[], None]] = field(default_factory=list)
    accepted: asyncio.Queue[Link] = field(default_factory=asyncio.Queue)
    seen: list[Peer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accept = self._keep
        self.done = asyncio.Event()

    async def _keep(self, link: Link) -> None:
        self.accepted.put_nowait(link)
        await self.done.wait()

    @property
    def hello(self) -> Hello:
        return Hello(VERSION, self.store, self.name)

    def knows(self, other: FakePeering | Identity, node: str | None = None) -> None:
        shown = other.shown if isinstance(other, FakePeering) else other
        self.trust.pinned[shown.fingerprint] = Pinned(f"row of {shown.fingerprint[:4]}", node, None)

    def note_certificate(self, peer: Peer, expires: datetime) -> None:
        self.seen.append(peer)

    async def redeem(self, asked: Redeem, *_: object) -> Redeemed:
        return Redeemed(self.store, "n2", self.name)

    async def renew(self, peer: Peer, asked: Renew) -> Renewed:
        return Renewed(asked.certificate)


@asynccontextmanager
async def listening(
    peering: FakePeering, patience: PeerTimeouts | None = None
) -> AsyncIterator[PeerSurface]:
    settings = PeerSettings("127.0.0.1", 0, patience=patience or PeerTimeouts())
    surface = PeerSurface(cast(Any, peering), settings)
    await surface.start()
    try:
        yield surface
    finally:
        await surface.close()


def at(surface: PeerSurface) -> str:
    return f"127.0.0.1:{surface.address[1]}"


_writers: list[asyncio.StreamWriter] = []


async def opened(surface: PeerSurface) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that says nothing by itself; `abandon` ends it."""
    reader, writer = await asyncio.open_connection(*surface.address)
    _writers.append(writer)
    return reader, writer


async def abandon() -> None:
    for writer in _writers:
        writer.transport.abort()
    _writers.clear()
    for _ in range(3):
        await asyncio.sleep(0)


class Bare:
    """A peer that does what a test says, over a channel of its own."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: tls.Channel
    ) -> None:
        self.reader, self.writer, self.channel = reader, writer, channel
        self.heard = bytearray()

    @classmethod
    async def connect(
        cls, surface: PeerSurface, shown: Identity | None, context: SSL.Context | None = None
    ) -> Bare:
        """Connect, and shake hands as far as this side has a part in it.

        :param shown: None: no certificate
        """
        reader, writer = await opened(surface)
        if context is None:
            context = SSL.Context(SSL.TLS_METHOD)
            context.set_verify(SSL.VERIFY_PEER, tls._verify)
            if shown is not None:
                context = tls.context(shown.chain, shown.private_key)
        channel = tls.Channel(context, False, lambda *_: None, lambda: datetime.now(UTC))
        bare = cls(reader, writer, channel)
        try:
            channel.start_handshake()
            while not channel.established:
                await bare.flush()
                data = await reader.read(65_536)
                if not data:
                    raise LinkClosed("the node ended the connection in the handshake")
                bare.heard += channel.receive(data)
            await bare.flush()
        except BaseException:
            await bare.close()
            raise
        return bare

    async def flush(self) -> None:
        if sealed := self.channel.take():
            self.writer.write(sealed)
            await self.writer.drain()

    async def say(self, data: bytes | Message) -> None:
        self.channel.send(data if isinstance(data, bytes) else encode(data))
        await self.flush()

    async def hear(self) -> Message | None:
        while True:
            if len(self.heard) >= 4:
                whole = 4 + int.from_bytes(self.heard[:4], "big")
                if len(self.heard) >= whole:
                    body = bytes(self.heard[4:whole])
                    del self.heard[:whole]
                    return decode(body)
            try:
                data = await self.reader.read(65_536)
                if not data:
                    return None
                self.heard += self.channel.receive(data)
            except (ConnectionError, tls.TlsFailed):
                return None
            if self.channel.ended and not self.heard:
                return None

    async def close(self) -> None:
        self.writer.transport.abort()
