"""Peers that mean no good, or are broken: what they get, and what stands in the log."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakSet

import msgspec
import pytest
from OpenSSL import SSL

from protocol import limits
from protocol.links import (
    PREFIX_BYTES,
    VERSION,
    Attach,
    Hello,
    LinkClosed,
    Message,
    Part,
    Redeem,
    Redeemed,
    Refused,
    encode,
)
from storage.files.peer_file import Identity
from surfaces.peers import surface as surfaces
from surfaces.peers import tls
from surfaces.peers.connection import PeerConnection, PeerTimeouts
from surfaces.peers.messages import MessageReader
from surfaces.peers.surface import PeerSurface
from tests.logbook import Logbook
from tests.surfaces.peers.parts import (
    SOON,
    STORE,
    Bare,
    FakePeering,
    FakeTrust,
    abandon,
    identity,
    listening,
    opened,
)

HELLO = Hello(VERSION, STORE, "node-a")
ATTACH = Attach([], 0, 0, 0)
PATIENT = PeerTimeouts()


class Node:
    def __init__(self, peering: FakePeering, surface: PeerSurface, book: Logbook) -> None:
        self.peering, self.surface, self.book = peering, surface, book

    async def ended(self, bare: Bare, why: str) -> None:
        """Nothing more is said, and the log has the reason."""
        assert await bare.hear() is None
        await bare.close()
        await self.logged(why)

    async def logged(self, why: str) -> None:
        while not any(why in str(event.get("why")) for event in self.book.events):
            await asyncio.sleep(0.005)

    async def gone(self) -> None:
        while self.surface.load().connections:
            await asyncio.sleep(0.005)


Scenario = Callable[[Node], Awaitable[None]]


def play(scenario: Scenario, book: Logbook, patience: PeerTimeouts = PATIENT) -> None:
    async def main() -> None:
        peering = FakePeering("node-b", identity("b"))
        async with asyncio.timeout(30), listening(peering, patience) as surface:
            try:
                await scenario(Node(peering, surface, book))
            finally:
                await abandon()
            await Node(peering, surface, book).gone()

    asyncio.run(main())


@pytest.fixture
def book(logbook: Logbook) -> Logbook:
    logbook.allow("another node")
    return logbook


async def untrusted(node: Node, shown: Identity, why: str) -> None:
    """Somebody who shows that gets nothing."""
    try:
        bare = await Bare.connect(node.surface, shown)
        await bare.say(HELLO)
    except (LinkClosed, tls.TlsFailed, ConnectionError):
        await node.logged(why)
        return
    await node.ended(bare, why)
    assert not bare.heard and node.peering.accepted.empty()


# --- certificates ---------------------------------------------------------------------------------


async def a_wrong_fingerprint(node: Node) -> None:
    node.peering.knows(identity("a"))
    await untrusted(node, identity("a"), "is not trusted")


async def one_that_has_expired(node: Node) -> None:
    shown = identity("a", expires=datetime.now(UTC) - timedelta(seconds=1))
    node.peering.knows(shown)
    await untrusted(node, shown, "has expired")


async def one_that_is_not_valid_yet(node: Node) -> None:
    shown = identity("a", begins=datetime.now(UTC) + timedelta(hours=1))
    node.peering.knows(shown)
    await untrusted(node, shown, "not valid yet")


async def one_that_was_revoked(node: Node) -> None:
    shown = identity("a")
    node.peering.knows(shown)
    node.peering.trust.revoked.add(shown.fingerprint)
    node.peering.trust.awaits = True
    await untrusted(node, shown, "was revoked")


async def no_certificate(node: Node) -> None:
    try:
        bare = await Bare.connect(node.surface, None)
    except (LinkClosed, tls.TlsFailed, ConnectionError):
        await node.logged("did not return a certificate")
        return
    await node.ended(bare, "did not return a certificate")


async def somebody_elses_certificate(node: Node) -> None:
    """Known, but without its key."""
    shown = identity("a")
    node.peering.knows(shown)
    context = SSL.Context(SSL.TLS_METHOD)
    context.use_certificate(shown.parsed)
    with pytest.raises(SSL.Error):
        context.use_privatekey(identity("x").private_key)  # type: ignore[arg-type]
    await untrusted(node, identity("a"), "is not trusted")


async def revoked_while_linked(node: Node) -> None:
    shown = identity("a")
    node.peering.knows(shown)
    bare = await Bare.connect(node.surface, shown)
    await bare.say(HELLO)
    assert isinstance(await bare.hear(), Hello)
    await bare.say(ATTACH)
    link = await node.peering.accepted.get()
    link.send(Part(0, bytes(limits.MIB)))
    node.peering.trust.revoked.add(shown.fingerprint)
    node.peering.trust.changed()
    assert await link.receive() == ATTACH
    with pytest.raises(LinkClosed):
        await link.receive()
    link.send(Part(1, b"secret"))
    while (heard := await bare.hear()) is not None:
        assert heard != Part(1, b"secret")
    await node.logged("no longer trusted")
    await bare.close()


async def dropped_before_its_greeting(node: Node) -> None:
    shown = identity("a")
    node.peering.knows(shown)
    node.peering.trust.awaits = True
    bare = await Bare.connect(node.surface, shown)
    node.peering.trust.pinned.clear()
    await bare.say(HELLO)
    await node.ended(bare, "is not trusted")


CERTIFICATES: list[Scenario] = [
    a_wrong_fingerprint, one_that_has_expired, one_that_is_not_valid_yet, one_that_was_revoked,
    no_certificate, somebody_elses_certificate, revoked_while_linked, dropped_before_its_greeting,
]  # fmt: skip


@pytest.mark.parametrize("scenario", CERTIFICATES)
def test_who_is_not_trusted_hears_nothing(scenario: Scenario, book: Logbook) -> None:
    play(scenario, book)


async def an_old_tls(node: Node) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(*node.surface.address, ssl=old)
    await node.logged("unsupported protocol")


async def no_tls(node: Node) -> None:
    reader, writer = await opened(node.surface)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert STORE.encode() not in await reader.read()
    await node.logged("TLS")
    writer.transport.abort()


@pytest.mark.parametrize("scenario", [an_old_tls, no_tls])
def test_nothing_but_tls_13_is_spoken(scenario: Scenario, book: Logbook) -> None:
    play(scenario, book)


def test_no_session_is_resumed(book: Logbook) -> None:
    async def scenario(node: Node) -> None:
        shown = identity("a")
        node.peering.knows(shown)
        context = tls.context(shown.chain, shown.private_key)
        context.set_session_cache_mode(SSL.SESS_CACHE_CLIENT)
        bare = await Bare.connect(node.surface, shown, context)
        await bare.say(HELLO)
        assert isinstance(await bare.hear(), Hello)
        session = bare.channel._connection.get_session()
        await bare.close()
        assert session is not None
        again = tls.Channel(context, False, lambda *_: None, lambda: datetime.now(UTC))
        again._connection.set_session(session)
        node.peering.trust.revoked.add(shown.fingerprint)
        reader, writer = await opened(node.surface)
        again.start_handshake()
        with pytest.raises((LinkClosed, tls.TlsFailed)):
            while True:
                writer.write(again.take())
                data = await reader.read(65_536)
                if not data:
                    raise LinkClosed("ended")
                again.receive(data)
        writer.transport.abort()
        await node.logged("was revoked")

    play(scenario, book)


# --- who is known, and says something else --------------------------------------------------------


async def known(node: Node) -> Bare:
    """A peer that is trusted, its handshake done."""
    shown = identity("a")
    node.peering.knows(shown, "node-a")
    return await Bare.connect(node.surface, shown)


async def attached(node: Node) -> Bare:
    """One with a link."""
    bare = await known(node)
    await bare.say(HELLO)
    assert isinstance(await bare.hear(), Hello)
    await bare.say(ATTACH)
    await node.peering.accepted.get()
    return bare


def said(*fields: object) -> bytes:
    """The bytes of a message that no node makes."""
    body = msgspec.msgpack.encode(fields)
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


LONG = (2**32 - 1).to_bytes(4, "big")
BROKEN = {
    "four gibibytes": (LONG + b"x", "4294967295 bytes is over the limit"),
    "one byte too long": (
        (limits.LINK_MESSAGE_BYTES + 1).to_bytes(4, "big"),
        f"over the limit of {limits.LINK_MESSAGE_BYTES}",
    ),
    "no message": (b"\0\0\0\x04\xc1\xc1\xc1\xc1", "are not a message"),
    "an unknown one": (b"\0\0\0\x05\x91\xa3abc", "are not a message"),
    "nothing": (b"\0\0\0\0", "are not a message"),
    "a wrong type": (b"\0\0\0\x0b\x94\xa6Frames\xa11\xa12\x90", "are not a message"),
    "without end": (b"\0\0\x40\0" + b"\x91" * 0x4000, "are not a message"),
    "a renewal until a moment without a zone": (
        said("Renew", "ab" * 32, "2027-01-01T00:00:00"),
        "are not a message",
    ),
    "a way since one": (said("Way", ["http://x:1"], "2027-01-01T00:00:00"), "are not a message"),
    "a moment that UTC does not have": (
        said("Renew", "ab" * 32, "0001-01-01T00:00:00+14:00"),
        "are not a message",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("when", [known, attached])
def test_a_broken_message_ends_the_connection(
    what: str, when: Callable[[Node], Awaitable[Bare]], book: Logbook
) -> None:
    async def scenario(node: Node) -> None:
        bare = await when(node)
        data, why = BROKEN[what]
        await bare.say(data)
        await node.ended(bare, why)

    play(scenario, book)


@pytest.mark.parametrize("part", [b"", b"\0", b"\0\0\x10\0abc"])
def test_one_that_does_not_come_whole_ends_it(part: bytes, book: Logbook) -> None:
    async def scenario(node: Node) -> None:
        bare = await known(node)
        await bare.say(HELLO)
        assert isinstance(await bare.hear(), Hello)
        if part:
            await bare.say(part)
        await node.ended(bare, "in time")

    play(scenario, book, PeerTimeouts(greeting=1, message=0.1))


def test_one_that_says_nothing_at_all_is_cut(book: Logbook) -> None:
    async def scenario(node: Node) -> None:
        reader, writer = await opened(node.surface)
        assert await reader.read() == b""
        await node.logged("did not sign in in time")
        writer.transport.abort()

    play(scenario, book, SOON)


async def another_version(node: Node) -> None:
    bare = await known(node)
    await bare.say(Hello(VERSION + 1, STORE, "node-a"))
    heard = await bare.hear()
    assert isinstance(heard, Refused) and heard.code == "VersionNotSupported"
    assert await bare.hear() is None
    await bare.close()


async def another_node(node: Node) -> None:
    bare = await known(node)
    await bare.say(Hello(VERSION, STORE, "node-c"))
    heard = await bare.hear()
    assert isinstance(heard, Refused) and heard.code == "SignInRefused"
    assert await bare.hear() is None and node.peering.accepted.empty()
    await node.logged("the certificate belongs to another node")
    await bare.close()


async def a_node_of_another_row(node: Node) -> None:
    """Its own row does not say yet which node it is."""
    shown = identity("a")
    node.peering.knows(shown)
    node.peering.knows(identity("c"), "node-c")
    bare = await Bare.connect(node.surface, shown)
    await bare.say(Hello(VERSION, STORE, "node-c"))
    heard = await bare.hear()
    assert isinstance(heard, Refused) and heard.code == "SignInRefused"
    assert await bare.hear() is None and node.peering.accepted.empty()
    await bare.close()


async def this_very_node(node: Node) -> None:
    shown = identity("a")
    node.peering.knows(shown)
    bare = await Bare.connect(node.surface, shown)
    await bare.say(Hello(VERSION, STORE, "node-b"))
    heard = await bare.hear()
    assert isinstance(heard, Refused) and "copy of its directory" in heard.message
    await bare.close()


async def no_greeting(node: Node) -> None:
    bare = await known(node)
    await bare.say(ATTACH)
    await node.ended(bare, "sent Attach before its greeting")


@pytest.mark.parametrize(
    "scenario", [another_version, another_node, a_node_of_another_row, this_very_node, no_greeting]
)
def test_who_does_not_greet_rightly_is_not_linked(scenario: Scenario, book: Logbook) -> None:
    play(scenario, book)


async def a_slow_reader(node: Node) -> None:
    bare = await known(node)
    await bare.say(HELLO)
    assert isinstance(await bare.hear(), Hello)
    await bare.say(ATTACH)
    link = await node.peering.accepted.get()
    for n in range(40):
        link.send(Part(n, bytes(limits.MIB)))
    assert await link.receive() == ATTACH
    with pytest.raises(LinkClosed, match="reads nothing"):
        await link.receive()
    await bare.close()


def test_who_takes_nothing_is_cut(book: Logbook) -> None:
    play(a_slow_reader, book, PeerTimeouts(taking=0.2))


def test_what_nobody_receives_is_not_read(book: Logbook) -> None:
    async def scenario(node: Node) -> None:
        bare = await attached(node)
        (connection,) = node.surface._connections
        part = Part(0, bytes(limits.MIB))

        async def flood() -> None:
            while True:
                await bare.say(part)

        flooding = asyncio.create_task(flood())
        while not connection._unread:
            await asyncio.sleep(0.005)
        for _ in range(50):
            await asyncio.sleep(0)
        held = connection._received_bytes
        assert held <= limits.LINK_BUFFER_BYTES + 3 * limits.MIB
        flooding.cancel()
        await bare.close()
        connection.cut("enough")

    play(scenario, book)


# --- who is not known -----------------------------------------------------------------------------


async def stranger(node: Node) -> Bare:
    """Somebody whom nobody knows, while there is a token to be brought."""
    node.peering.trust.awaits = True
    return await Bare.connect(node.surface, identity("x"))


async def a_stranger_that_greets(node: Node) -> None:
    bare = await stranger(node)
    await bare.say(HELLO)
    await node.ended(bare, "is not trusted")


async def a_stranger_that_attaches(node: Node) -> None:
    bare = await stranger(node)
    await bare.say(ATTACH)
    await node.ended(bare, "sent Attach before")


async def a_stranger_with_a_long_message(node: Node) -> None:
    bare = await stranger(node)
    await bare.say((limits.LINK_UNKNOWN_BYTES + 1).to_bytes(4, "big"))
    await node.ended(bare, f"over the limit of {limits.LINK_UNKNOWN_BYTES}")


async def a_stranger_with_a_token(node: Node) -> None:
    bare = await stranger(node)
    await bare.say(Redeem(VERSION, "n2.secret", "node-x"))
    assert await bare.hear() == Redeemed(STORE, "n2", "node-b")
    assert await bare.hear() is None
    await bare.close()


async def says_more(node: Node, more: bytes) -> None:
    """A stranger that has brought a token, and says more while it waits for its answer."""
    answered, asked = asyncio.Event(), asyncio.Event()

    async def redeem(_: Redeem, *_of: object) -> Redeemed:
        asked.set()
        await answered.wait()
        return Redeemed(STORE, "n2", "node-b")

    node.peering.redeem = redeem  # type: ignore[method-assign, assignment]
    bare = await stranger(node)
    (connection,) = node.surface._connections
    await bare.say(Redeem(VERSION, "n2.secret", "node-x"))
    await asked.wait()
    await bare.say(more)
    await node.ended(bare, "more than one message")
    assert not connection._received and not connection._reader.begun
    answered.set()


async def a_stranger_that_says_two_things(node: Node) -> None:
    await says_more(node, encode(ATTACH))


async def a_stranger_that_says_many(node: Node) -> None:
    await says_more(node, encode(Attach([(0, 0, b"")] * 3_000, 0, 0, 0)) * 20)


async def a_stranger_with_nothing_that_is_a_message(node: Node) -> None:
    """It is not looked at: what is no message would be told as that."""
    await says_more(node, BROKEN["no message"][0])


async def a_stranger_that_begins_another(node: Node) -> None:
    await says_more(node, b"\0")


async def a_stranger_that_says_it_all_at_once(node: Node) -> None:
    bare = await stranger(node)
    await bare.say(encode(Redeem(VERSION, "n2.secret", "node-x")) + encode(ATTACH))
    await node.ended(bare, "more than one message")


async def one_that_is_declared_before_it_greets(node: Node) -> None:
    """It is a stranger no more: its link has no other bounds than another."""
    shown = identity("x")
    node.peering.trust.awaits = True
    bare = await Bare.connect(node.surface, shown)
    (connection,) = node.surface._connections
    while not connection._trust_checked:
        await asyncio.sleep(0.005)
    node.peering.knows(shown)
    await bare.say(HELLO)
    assert isinstance(await bare.hear(), Hello)
    await bare.say(ATTACH)
    link = await node.peering.accepted.get()
    assert await link.receive() == ATTACH
    await bare.say(Part(0, bytes(limits.MIB)))
    assert await link.receive() == Part(0, bytes(limits.MIB))
    await bare.close()


async def a_stranger_where_no_token_is_out(node: Node) -> None:
    await untrusted(node, identity("x"), "is not trusted")


STRANGERS: list[Scenario] = [
    a_stranger_that_greets, a_stranger_that_attaches, a_stranger_with_a_long_message,
    a_stranger_with_a_token, a_stranger_that_says_two_things, a_stranger_that_says_many,
    a_stranger_with_nothing_that_is_a_message, a_stranger_that_begins_another,
    a_stranger_that_says_it_all_at_once, one_that_is_declared_before_it_greets,
    a_stranger_where_no_token_is_out,
]  # fmt: skip


@pytest.mark.parametrize("scenario", STRANGERS)
def test_a_stranger_brings_a_token_or_nothing(scenario: Scenario, book: Logbook) -> None:
    play(scenario, book)


async def a_silent_crowd(node: Node) -> None:
    """Those that say nothing keep nobody out."""
    crowd = [await opened(node.surface) for _ in range(24)]
    while node.surface.load().connections > 8:
        await asyncio.sleep(0.005)
    bare = await attached(node)
    assert node.surface.load().connections <= 9
    await node.logged("too many connections without sign-in")
    await bare.close()
    for _, writer in crowd:
        writer.transport.abort()


def test_a_silent_crowd_keeps_nobody_out(book: Logbook) -> None:
    play(a_silent_crowd, book)


def test_a_crowd_that_comes_all_at_once_is_no_larger(book: Logbook) -> None:
    async def scenario(node: Node) -> None:
        at = node.surface.address
        # The system takes them, and the node finds them all in one turn of its loop.
        crowd = [socket.create_connection(at) for _ in range(60)]
        while node.surface.load().connections < 8:
            await asyncio.sleep(0)
        while node.surface.load().connections > 8:
            await asyncio.sleep(0.005)
        for one in crowd:
            one.close()

    book.allow("too many connections without sign-in")
    play(scenario, book, PeerTimeouts(greeting=1_000))


def test_who_is_gone_leaves_nothing(book: Logbook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor waits for the collector, which looks at so few objects seldom: what OpenSSL holds of each
    is not among what that counts."""
    held: WeakSet[SSL.Connection] = WeakSet()

    class Counted(SSL.Connection):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            held.add(self)

    async def scenario(node: Node) -> None:
        for _ in range(10):
            _, writer = await opened(node.surface)
            writer.transport.abort()
        while node.surface.load().connections or not_collected() > 0:
            await asyncio.sleep(0.005)

    def not_collected() -> int:
        return len(held)

    book.allow("")
    monkeypatch.setattr(SSL, "Connection", Counted)
    gc.disable()
    try:
        play(scenario, book)
    finally:
        gc.enable()


def test_there_are_no_more_than_may_be(book: Logbook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PEER_CONNECTIONS", 2)
    book.allow("too many connections of other nodes")

    async def scenario(node: Node) -> None:
        two = [await known(node) for _ in range(2)]
        with pytest.raises((LinkClosed, ConnectionError)):
            await known(node)
        for bare in two:
            await bare.close()

    play(scenario, book)


# --- what the dialling side is told ---------------------------------------------------------------


class Liar:
    """A listener that is known and says what a test wants in place of a greeting."""

    def __init__(self, shown: Identity, says: bytes | None) -> None:
        self.shown, self.says = shown, says
        self.heard = b""
        self.done = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = tls.context(self.shown.chain, self.shown.private_key)
        channel = tls.Channel(own, True, lambda *_: None, lambda: datetime.now(UTC))
        try:
            while data := await reader.read(65_536):
                self.heard += channel.receive(data)
                if channel.established and self.heard and self.says is not None:
                    channel.send(self.says)
                    self.says = None
                writer.write(channel.take())
        except (tls.TlsFailed, ConnectionError):
            pass
        writer.transport.abort()
        self.done.set()


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (LONG, "4294967295 bytes"),
        (b"\0\0\0\x01\xc1", "not a message"),
        (b"\0\0", "in time"),
        (None, "in time"),
        (b"\0\0\0\x0c\x95\xa6Attach\x90\0\0\0", "sent no greeting"),
    ],
)
def test_what_a_known_node_says_wrongly_ends_it(
    says: bytes | None, why: str, book: Logbook
) -> None:
    async def scenario(node: Node) -> None:
        liar = Liar(identity("liar"), says)
        server = await asyncio.start_server(liar.serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(LinkClosed, match=why):
            await node.surface.connect(address, [liar.shown.fingerprint])
        await liar.done.wait()
        server.close()
        await server.wait_closed()

    play(scenario, book, SOON if why == "in time" else PATIENT)


def test_nothing_is_said_to_who_shows_another_certificate(book: Logbook) -> None:
    async def scenario(node: Node) -> None:
        liar = Liar(identity("liar"), None)
        server = await asyncio.start_server(liar.serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(LinkClosed, match="not the expected one"):
            await node.surface.connect(address, [identity("other").fingerprint])
        await liar.done.wait()
        liar.done.clear()
        node.peering.trust.revoked.add(liar.shown.fingerprint)
        with pytest.raises(LinkClosed, match="revoked"):
            await node.surface.connect(address, [liar.shown.fingerprint])
        await liar.done.wait()
        assert liar.heard == b""
        server.close()
        await server.wait_closed()

    play(scenario, book)


# --- planted --------------------------------------------------------------------------------------


def _believes(channel: Any, shown: Any, *_: Any) -> bool:
    print_of = shown.digest("sha256").decode().replace(":", "").lower()
    channel.shown = tls.PeerCertificate(print_of, datetime.max.replace(tzinfo=UTC))
    return True


def _asks_for_none(self: Any, own: Any, serves: bool, judge: Any, now: Any) -> None:
    _INIT(self, own, serves, judge, now)
    self._connection.set_verify(SSL.VERIFY_NONE, lambda *_: True)


_INIT = tls.Channel.__init__


def _all_versions(chain: Any, key: Any) -> SSL.Context:
    made = _CONTEXT(chain, key)
    made.set_min_proto_version(SSL.TLS1_VERSION)
    made.set_max_proto_version(0)
    return made


_CONTEXT = tls.context


def _next_without_bounds(self: Any) -> tuple[Message, int] | None:
    self.bytes_max = 2**32
    return _NEXT(self)


_NEXT = MessageReader.next


def _first_pin(trust: FakeTrust, _fingerprint: str) -> Any:
    return next(iter(trust.pinned.values()), None)


PLANTED: dict[str, tuple[Any, str, Any, Scenario]] = {
    "one that has expired is believed": (tls.Channel, "_verify", _believes, one_that_has_expired),
    "a revoked one is": (FakeTrust, "is_revoked", lambda *_: False, one_that_was_revoked),
    "who is let in is not judged": (FakeTrust, "of", _first_pin, a_wrong_fingerprint),
    "any node is believed": (FakeTrust, "row_of", lambda *_: None, a_node_of_another_row),
    "none is asked for": (tls.Channel, "__init__", _asks_for_none, no_certificate),
    "any TLS is spoken": (surfaces, "context", _all_versions, an_old_tls),
    "who is linked stays": (PeerSurface, "judge", lambda *_: None, revoked_while_linked),
    "strangers may say much": (
        MessageReader, "next", _next_without_bounds, a_stranger_with_a_long_message
    ),
    "strangers may say many things": (
        PeerSurface, "_is_known", lambda *_: True, a_stranger_that_says_two_things
    ),
    "nobody is cut": (PeerConnection, "_look_at_taking", lambda *_: None, a_slow_reader),
    "a crowd stays": (limits, "PEER_UNKNOWN_OF_ADDRESS", 1_000, a_silent_crowd),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted(fault: str, logbook: Logbook, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted, scenario = PLANTED[fault]
    monkeypatch.setattr(owner, name, planted)
    logbook.allow("")

    async def soon(node: Node) -> None:
        async with asyncio.timeout(0.5):
            await scenario(node)

    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        play(soon, logbook, PeerTimeouts(taking=0.2))
