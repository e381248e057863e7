"""Peering: requests that other nodes make before they follow, and the certificate shown to them.

Redeeming a join token and renewing a certificate are ordinary commits. So only the leader can do
them; any other node refuses with `NotWritable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from actors.cluster.trust import Trust
from actors.commits import Committer, NamedAuthor
from actors.runtime import Runtime
from actors.sign_in_throttle import SignInThrottle
from actors.statements import Statements
from protocol.environment import Rng
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
from storage.catalog import join_tokens, replicas
from storage.catalog.join_tokens import TokenLocation
from storage.catalog.replicas import Replica
from storage.files.peer_file import Identities, Identity, given
from storage.formats.entries import AUDIT, Entry
from storage.txn.transaction import Transaction

__all__ = ["Identity", "Leader", "Peering", "given"]

log = structlog.get_logger("peers")

PEERS: Final = NamedAuthor("", "peer")
"""Author of commits on behalf of another node, which is no user."""
_TRIED: Final = "join token"
"""Name under which the throttle counts tries: all tokens count as one, whatever row they name."""

Leader = Callable[[], Leads | None]
"""Returns the leader's address; None: no leader is known, or this node leads."""


async def refuse_link(link: Link) -> None:
    """Refuse a link, where this node takes none."""
    await link.receive()
    refusal = NotImplementedHere("this node accepts no followers")
    link.send(Refused(refusal.code, refusal.message))


class Peering:
    """On the loop only.

    :param node: id of this node
    :param store: id of the store
    :param key: name of the store's key, as `sealing.name_of`
    :param is_linked: True if the node was configured to link with others
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
        self.accept: Accept = refuse_link
        """Handles links that other nodes open."""
        self.leader: Leader = lambda: None
        self._links: Links | None = None
        self._is_linked = is_linked
        self._has_links = asyncio.Event()
        self.listens_at: str | None = None
        """Address at which this node listens for others, if known."""
        self.identities: Identities | None = None
        """Certificate shown, and the next one; None: it links with no other node."""
        self.is_given = False
        """True if an operator supplied it: this node does not renew it."""
        self.on_show: list[Callable[[], None]] = []
        """Called when another certificate is shown."""
        self.renew_soon: Callable[[], None] = lambda: None
        """Triggers a check for a certificate to show."""
        self.on_look: list[Callable[[], None]] = []
        """Called periodically: holders of links check expiry dates."""
        self._committer = committer
        self._statements = statements
        self._store = store
        self._key = key
        self._throttle = SignInThrottle(
            runtime.clock, rng, lambda seconds, act: runtime.loop.call_later(seconds, act)
        )

    @property
    def links(self) -> Links | None:
        """Makes links to other nodes; None: not available, as during start and stop, or ever."""
        return self._links

    @links.setter
    def links(self, links: Links | None) -> None:
        self._links = links
        if links is None:
            self._has_links.clear()
        else:
            self._has_links.set()

    async def opened_links(self) -> Links:
        """Wait for `links` and return it.

        :raises LinkClosed: the node was not configured to link with others
        """
        while self._links is None:
            if not self._is_linked:
                raise LinkClosed("this node was started without --peer and cannot link with others")
            await self._has_links.wait()
        return self._links

    @property
    def shown(self) -> Identity:
        """Certificate shown to others; only on a node that links with them."""
        assert self.identities is not None, "it links with others"
        return self.identities.shown

    def show(self, identities: Identities) -> None:
        """Show another certificate from now on."""
        self.identities = identities
        for show in self.on_show:
            show()

    def accept_certificate(self, given: Identity) -> None:
        """Accept a supplied certificate: it is shown once this node's row has it."""
        assert self.is_given, "this node makes its own"
        if given.fingerprint != self.shown.fingerprint:
            self.identities = Identities(self.shown, given)
            self.renew_soon()

    def check_expiry(self) -> None:
        """Have the holders of links check expiry dates."""
        for look in self.on_look:
            look()

    @property
    def hello(self) -> Hello:
        """Greeting with the identity of this node, for known nodes only."""
        return Hello(VERSION, self._store, self.node)

    def where(self, rows: list[Replica]) -> TokenLocation | None:
        """Return the address for redeeming a token of this node; None: it does not listen.

        :param rows: replica rows of the cluster
        """
        if self.identities is None or self.listens_at is None:
            return None
        # The row has the address that other nodes reach; a listening address may be local.
        own = next((row.peer for row in rows if row.node == self.node), self.listens_at)
        return TokenLocation([own], self.shown.fingerprint)

    # --- what is asked over links -----------------------------------------------------------------

    async def redeem(
        self, asked: Redeem, certificate: str, expires: datetime, address: str
    ) -> Redeemed:
        """Redeem a join token: bind its row to the node that brought it.

        :param certificate: fingerprint of the certificate that the node has shown; it has the key
        :param address: network address of the node
        :raises SignInRefused: the token is invalid
        :raises TooManyTries: too many tries from that address
        :raises AlreadyExists, BadRequest: as `join_tokens.redeem`
        :raises WrongKey: the token is valid, but the node has another store key
        :raises UnknownOutcome: the commit may have happened; a repeated request gets the answer
        :raises Refusal: this node can't commit
        """
        # Before the throttle: a node that shows the row's certificate is guessing nothing.
        known = await self._redeemed_before(asked.node, certificate)
        if known is not None:
            return Redeemed(self._store, known, self.node)
        attempt = await self._throttle.enter(_TRIED, address)
        try:
            row = await self._redeemed(asked, certificate, expires, address)
            attempt.succeeded()
        except NotWritable as refusal:
            # Its token is valid, so it may learn the leader's address.
            leads = self.leader()
            raise NotWritable(refusal.message, **({} if leads is None else leads.detail)) from None
        except SignInRefused as refusal:
            # Before the delay: a node that hangs up during it is in the audit trail too.
            self._statements.record_access("redeem join token", "", "peer", address, refusal.code)
            await attempt.failed()
            raise
        finally:
            attempt.end()
        log.info("a node has joined", row=row, node=asked.node, address=address)
        return Redeemed(self._store, row, self.node)

    async def _redeemed_before(self, node: str, certificate: str) -> str | None:
        """Return the row of a node that has redeemed its token already, once that is released; its
        first answer was lost. None: there is none.

        The node proves itself by the key of the certificate in the row.
        """
        with self._committer.begin_transaction() as tx:
            row = replicas.find(tx, self.trust.row_of(node) or "")
            if row is None or certificate not in replicas.trusted(tx, row):
                return None
            # An empty commit stands for the commits read here: the answer waits for their release.
            await self._committer.released_in_time(self._committer.commit(tx, PEERS))
        return row.name

    async def _redeemed(
        self, asked: Redeem, certificate: str, expires: datetime, address: str
    ) -> str:
        with self._committer.begin_transaction() as tx:
            row = join_tokens.redeem(tx, self._store, asked.token, asked.node, certificate, expires)
            if asked.key is not None and asked.key != self._key:
                # The token stays valid: with this key the node could not use its copy.
                raise WrongKey("the key of the store is not the key of that node", key=self._key)
            await self._committed(tx, "redeem join token", address)
        return row.name

    async def renew(self, peer: Peer, asked: Renew) -> Renewed:
        """Trust the next certificate of a node, requested over its link.

        :raises Unknown: the row is gone
        :raises SignInRefused: the row no longer trusts the certificate of this link
        :raises AlreadyExists, BadRequest: as `replicas.renew`
        :raises Refusal: this node can't commit
        """
        with self._committer.begin_transaction() as tx:
            found = replicas.find(tx, peer.row or "")
            if found is None:
                raise Unknown(f"there is no replica {peer.row}", kind="replica")
            # The link of a revoked certificate lasts until the revocation is released: don't rely
            # on it.
            if peer.fingerprint not in replicas.trusted(tx, found):
                raise SignInRefused("the certificate of this link is no longer trusted")
            replicas.renew(tx, found, asked.certificate, asked.expires)
            await self._committed(tx, "renew peer certificate", "")
        return Renewed(asked.certificate)

    async def _committed(self, tx: Transaction, action: str, address: str) -> None:
        # A repeated request changes nothing, and adds no entry to the audit trail.
        entry = Entry(AUDIT, "", address, None, None, ((),), action) if tx.size else None
        ticket = self._committer.commit(tx, PEERS, reason=action, entry=entry)
        await self._committer.released_in_time(ticket)

    def note_certificate(self, peer: Peer, expires: datetime) -> None:
        """Record the certificate that a node has shown, if it is new and this node can commit.

        The release is not waited for: it may depend on the very node that has connected.
        """
        try:
            with self._committer.begin_transaction() as tx:
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
        """Stop: no more changes of trust, no more tries."""
        self.trust.close()
        self._throttle.drain()
