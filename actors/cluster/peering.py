"""What other nodes ask of this one before they follow it, and what this one shows to them.

A join token that is brought and a certificate that is renewed are commits like others, through the
one door: so the leader alone can make them, and everybody else refuses with `NotWritable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from actors.cluster.trust import Trust
from actors.commits import By, Committer
from actors.runtime import Runtime
from actors.sign_in_throttle import SignInThrottle
from actors.statements import Statements
from protocol.doors import Rng
from protocol.errors import (
    NotImplementedHere,
    NotWritable,
    Refusal,
    SignInRefused,
    Unknown,
    WrongKey,
)
from protocol.links import (
    VERSION,
    Accept,
    Hello,
    Leads,
    Link,
    LinkClosed,
    Links,
    Peer,
    Redeem,
    Redeemed,
    Refused,
    Renew,
    Renewed,
)
from storage import join_tokens, replicas
from storage.entries import Entry
from storage.join_tokens import Where
from storage.peer_identity import Identities, Identity, given
from storage.replicas import Replica
from storage.statements import AUDIT
from storage.transactions import Transaction

__all__ = ["Identity", "Leader", "Peering", "given"]

log = structlog.get_logger("peers")

PEERS: Final = By("", "peer")
"""Another node, which is no user."""
_TRIED: Final = "join token"
"""Under which name guesses are counted: they are one kind, whatever row they name."""

Leader = Callable[[], Leads | None]
"""Who leads; None: nobody, or this node."""


async def accept_nobody(link: Link) -> None:
    """What becomes of links where nothing takes them."""
    await link.receive()
    refusal = NotImplementedHere("this node takes no followers")
    link.send(Refused(refusal.code, refusal.message))


class Peering:
    """On the loop only.

    :param node: the id of this node
    :param store: the id of the store
    :param key: what it is sealed with, as `sealing.name_of`
    :param is_linked: True if the node was told to link with others
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        statements: Statements,
        node: str,
        store: str,
        key: str,
        rng: Rng,
        is_linked: bool,
    ) -> None:
        self.node = node
        self.trust = Trust(runtime, committer, store)
        self.accept: Accept = accept_nobody
        """What becomes of links that others make."""
        self.leader: Leader = lambda: None
        self._links: Links | None = None
        self._is_linked = is_linked
        self._has_links = asyncio.Event()
        self.listens_at: str | None = None
        """Where it does, as far as it was told."""
        self.identities: Identities | None = None
        """What is shown, and what will be next; None: it links with nobody."""
        self.is_given = False
        """Whether that was given, and is not this node's to renew."""
        self.on_show: list[Callable[[], None]] = []
        """Called when another certificate is shown from now on."""
        self.renew_soon: Callable[[], None] = lambda: None
        """Have it looked whether another is to be shown."""
        self.on_look: list[Callable[[], None]] = []
        """Called now and then: those who hold links look at dates."""
        self._committer = committer
        self._statements = statements
        self._store = store
        self._key = key
        self._throttle = SignInThrottle(
            runtime.clock, rng, lambda seconds, act: runtime.loop.call_later(seconds, act)
        )

    @property
    def links(self) -> Links | None:
        """The door to other nodes; None: there is none at the moment, as while the node starts and
        stops, or ever."""
        return self._links

    @links.setter
    def links(self, links: Links | None) -> None:
        self._links = links
        if links is None:
            self._has_links.clear()
        else:
            self._has_links.set()

    async def opened_links(self) -> Links:
        """The door to other nodes, once there is one.

        :raises LinkClosed: the node was not told to link with others
        """
        while self._links is None:
            if not self._is_linked:
                raise LinkClosed("this node was started without --peer: it links with no other")
            await self._has_links.wait()
        return self._links

    @property
    def shown(self) -> Identity:
        """What this node shows to others. Only where it links with them."""
        assert self.identities is not None, "it links with others"
        return self.identities.shown

    def show(self, identities: Identities) -> None:
        """Show another certificate from now on."""
        self.identities = identities
        for show in self.on_show:
            show()

    def will_show(self, given: Identity) -> None:
        """Another certificate was given: it is shown as soon as this node's row has it."""
        assert self.is_given, "this node makes its own"
        if given.fingerprint != self.shown.fingerprint:
            self.identities = Identities(self.shown, given)
            self.renew_soon()

    def look(self) -> None:
        """Time has passed."""
        for look in self.on_look:
            look()

    @property
    def hello(self) -> Hello:
        """What this node says of itself, to those alone that it knows."""
        return Hello(VERSION, self._store, self.node)

    def where(self, rows: list[Replica]) -> Where | None:
        """Where a token of this node has to be brought; None: it listens for nobody.

        :param rows: of the cluster
        """
        if self.identities is None or self.listens_at is None:
            return None
        own = next((row.peer for row in rows if row.node == self.node), self.listens_at)
        return Where([own], self.shown.fingerprint)

    # --- what is asked over links -----------------------------------------------------------------

    async def redeem(
        self, asked: Redeem, certificate: str, expires: datetime, address: str
    ) -> Redeemed:
        """Let the node that brought a token be the one that its row waits for.

        :param certificate: the fingerprint of what it has shown, whose key it has
        :param address: where it comes from
        :raises SignInRefused: the token opens nothing
        :raises TooManyTries: too many were tried from there
        :raises AlreadyExists, BadRequest: as `join_tokens.redeem`
        :raises WrongKey: the token would open something, but not to who has that key
        :raises UnknownOutcome: it is not known whether it was used: who asks again is told
        :raises Refusal: this node commits nothing
        """
        known = await self._redeemed_before(asked.node, certificate)
        if known is not None:
            return Redeemed(self._store, known, self.node)
        attempt = await self._throttle.begin(_TRIED, address)
        try:
            row = await self._redeemed(asked, certificate, expires, address)
            attempt.succeeded()
        except NotWritable as refusal:
            # It has brought a token that opens something: it may hear where.
            leads = self.leader()
            raise NotWritable(refusal.message, **({} if leads is None else leads.detail)) from None
        except SignInRefused as refusal:
            self._statements.came("redeem join token", "", "peer", address, refusal.code)
            await attempt.failed()
            raise
        finally:
            attempt.end()
        log.info("a node has joined", row=row, node=asked.node, address=address)
        return Redeemed(self._store, row, self.node)

    async def _redeemed_before(self, node: str, certificate: str) -> str | None:
        """The row of a node that comes again with what it has shown, once that is released: its
        answer was lost. Who has the key of what a row names is who used the token. None: there is
        none."""
        with self._committer.begin() as tx:
            row = replicas.find(tx, self.trust.row_of(node) or "")
            if row is None or certificate not in replicas.trusted(tx, row):
                return None
            await self._committer.released_in_time(self._committer.commit(tx, PEERS))
        return row.name

    async def _redeemed(
        self, asked: Redeem, certificate: str, expires: datetime, address: str
    ) -> str:
        with self._committer.begin() as tx:
            row = join_tokens.redeem(tx, self._store, asked.token, asked.node, certificate, expires)
            if asked.key is not None and asked.key != self._key:
                # A node that could make nothing of its copy does not use the token up.
                raise WrongKey("the store has another key than that node", key=self._key)
            await self._committed(tx, "redeem join token", address)
        return row.name

    async def renew(self, peer: Peer, asked: Renew) -> Renewed:
        """Trust the next certificate of a row's node, which has asked for it over a link.

        :raises Unknown: the row is gone
        :raises SignInRefused: it names that node no more by what the node has shown
        :raises AlreadyExists, BadRequest: as `replicas.renew`
        :raises Refusal: this node commits nothing
        """
        with self._committer.begin() as tx:
            found = replicas.find(tx, peer.row or "")
            if found is None:
                raise Unknown(f"there is no replica {peer.row}", kind="replica")
            # A link ends when what says so is released. Until then it is there, and not trusted.
            if peer.fingerprint not in replicas.trusted(tx, found):
                raise SignInRefused("the certificate of this link is trusted no more")
            replicas.renew(tx, found, asked.certificate, asked.expires)
            await self._committed(tx, "renew peer certificate", "")
        return Renewed(asked.certificate)

    async def _committed(self, tx: Transaction, action: str, address: str) -> None:
        entry = Entry(AUDIT, "", address, None, None, ((),), action) if tx.size else None
        ticket = self._committer.commit(tx, PEERS, reason=action, entry=entry)
        await self._committer.released_in_time(ticket)

    def saw(self, peer: Peer, expires: datetime) -> None:
        """A node has shown a certificate of its row. What that tells is kept, if it is news and
        this node commits: nobody waits for it, least of all the release of this, which may wait for
        the very node that has come."""
        try:
            with self._committer.begin() as tx:
                found = replicas.find(tx, peer.row or "")
                if found is None or peer.fingerprint not in replicas.trusted(tx, found):
                    return
                replicas.shown(tx, found, peer.node, peer.fingerprint, expires)
                if tx.size:
                    self._committer.commit(tx, PEERS, reason="a node has shown its certificate")
        except Refusal as refusal:
            log.debug("what a node has shown is not kept", row=peer.row, why=refusal.message)

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """The node stops."""
        self.trust.close()
        self._throttle.drain()
