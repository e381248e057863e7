"""Greeting of two nodes: first messages, and the decision to accept a peer.

| side | sends | receives |
|---|---|---|
| dialler, once it has seen the other's certificate | `Hello` | `Hello`, or `Refused` and the end |
| dialler with a certificate not known yet | `Redeem` | `Redeemed` or `Refused`, and the end |

Until its certificate is known, a peer learns nothing about the store, not even its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from actors.cluster.membership import Peering, Pinned
from protocol.errors import CATALOGUE, Diverged, Failed, Refusal, SignInRefused, VersionNotSupported
from protocol.links import VERSION, Detail, Hello, LinkClosed, Peer, Redeem, Refused, Renew
from surfaces.peers.connection import PeerConnection, PeerTimeouts
from surfaces.peers.tls import PeerCertificate

T = TypeVar("T")

_BEARABLE: Final = (str, int, bool, type(None))


def check(
    theirs: Hello,
    ours: Hello,
    shown: PeerCertificate,
    pinned: Pinned | None,
    named: str | None = None,
) -> Peer:
    """Return the peer that has greeted.

    :param pinned: the row with that certificate, if one is known here
    :param named: the row with that node id, whatever its certificate
    :raises VersionNotSupported: it speaks another version
    :raises Diverged: it has another store
    :raises SignInRefused: its node id does not match the row
    """
    if theirs.version != VERSION:
        raise VersionNotSupported(
            f"unsupported version of links, {theirs.version}: this node speaks {VERSION}",
            version=VERSION,
        )
    if theirs.store and ours.store and theirs.store != ours.store:
        raise Diverged("the node belongs to another store")
    if pinned is not None and pinned.node is not None and pinned.node != theirs.node:
        raise SignInRefused("the certificate belongs to another node")
    # A row without a node id must not be claimed by a node that another row names.
    if pinned is not None and named not in (None, pinned.row):
        raise SignInRefused("the node is declared with another certificate")
    if theirs.node == ours.node:
        raise SignInRefused("the node is this one, or a copy of its directory")
    row = None if pinned is None else pinned.row
    return Peer(theirs.node, theirs.store, shown.fingerprint, row)


def refused(refusal: Refusal) -> Refused:
    """Encode a refusal as a message."""
    detail = {name: value for name, value in refusal.detail.items() if _is_bearable(value)}
    return Refused(refusal.code, refusal.message[:4_000], detail)  # type: ignore[arg-type]


def _is_bearable(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return isinstance(value, _BEARABLE)


def refusal(told: Refused) -> Refusal:
    """Decode a message into a refusal. An unknown code, of a later version, becomes `Failed`."""
    detail: dict[str, Detail] = dict(told.detail)
    return CATALOGUE.get(told.code, Failed)(told.message, **detail)


async def welcome(connection: PeerConnection, peering: Peering, patience: PeerTimeouts) -> None:
    """Serve a connection that another node has made, up to its end."""
    try:
        shown = await _within(patience.greeting, connection, connection.established())
        first = await _within(patience.greeting, connection, connection.receive())
        if isinstance(first, Redeem):
            await _redeem(connection, peering, shown, first)
        elif not isinstance(first, Hello):
            connection.fail(f"the peer sent {type(first).__name__} before its greeting")
        elif _greet(connection, peering, shown, first):
            await _serve(connection, peering, patience)
    except LinkClosed:
        return  # the connection has logged the reason, if there was one
    finally:
        connection.close()


async def _within(seconds: float, connection: PeerConnection, awaited: Coroutine[Any, Any, T]) -> T:
    """Await with a time limit.

    :raises LinkClosed: it took too long
    """
    try:
        async with asyncio.timeout(seconds):
            return await awaited
    except TimeoutError:
        connection.fail("the peer did not sign in in time")
        raise LinkClosed("the greeting took too long") from None


async def _redeem(
    connection: PeerConnection, peering: Peering, shown: PeerCertificate, asked: Redeem
) -> None:
    try:
        if asked.version != VERSION:
            raise VersionNotSupported(f"this node speaks version {VERSION} of links")
        connection.send(
            await peering.redeem(asked, shown.fingerprint, shown.expires, connection.address)
        )
    except Refusal as why:
        connection.send(refused(why))


def _greet(
    connection: PeerConnection, peering: Peering, shown: PeerCertificate, theirs: Hello
) -> bool:
    """Greet the peer back. Return False if it may not have a link."""
    # Checked again: a row may have been removed since the handshake.
    pinned = peering.trust.of(shown.fingerprint)
    if pinned is None:
        connection.fail(f"the certificate {shown.fingerprint} is not trusted")
        return False
    ours = peering.hello
    try:
        peer = check(theirs, ours, shown, pinned, peering.trust.row_of(theirs.node))
    except Refusal as why:
        connection.send(refused(why))
        connection.turn_away(f"{why.code}: {why.message}")
        return False
    connection.know(peer)
    connection.send(ours)
    peering.note_certificate(peer, shown.expires)
    return True


async def _serve(connection: PeerConnection, peering: Peering, patience: PeerTimeouts) -> None:
    """Serve the requests of a linked peer."""
    wanted = await _within(patience.greeting, connection, connection.receive())
    if isinstance(wanted, Renew):
        try:
            connection.send(await peering.renew(connection.peer, wanted))
        except Refusal as why:
            connection.send(refused(why))
        return
    connection.give_back(wanted)
    await peering.accept(connection)
