"""Membership: which certificates of other nodes are trusted, and how nodes join.

A certificate is trusted if a row of the cluster names it and it is not revoked.
The trusted set is rebuilt from the rows after each change of declarations, and holders of links are
notified: links trusted by a dropped row end at once. A new row gives trust once its commit is
released.

A joining node, whose rows are missing or older than its token, trusts the certificate in the token
by its fingerprint, unless it knows of a revocation.

`Peering` answers the requests that other nodes make before they follow. Redeeming a join token and
renewing a certificate are ordinary commits. So only the leader can do them; any other node refuses
with `NotWritable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from actors.commits.committer import Committer, NamedAuthor
from actors.commits.tail import FellBehind, TailFollower
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
from protocol.values import instant
from storage.catalog import join_tokens, replicas
from storage.catalog.join_tokens import TokenLocation
from storage.catalog.replicas import Replica
from storage.engine.engine import EngineUnreadable
from storage.files.peer_file import Identities, Identity, given
from storage.formats.entries import AUDIT, Entry
from storage.txn.transaction import Transaction

# --- trust ----------------------------------------------------------------------------------------


AGAIN_SECONDS: Final = 5.0
"""Delay before link holders are notified again, after the declarations could not be read (s)."""


class Pinned(NamedTuple):
    """Owner of a trusted certificate."""

    row: str
    """Name of the row."""
    node: str | None
    """Id of its node; None: no node has shown the certificate yet."""
    expires: datetime | None
    """Expiry date, if known here."""


class Trust:
    """On the loop only.

    :param store: id of the store
    """

    def __init__(self, runtime: Runtime, committer: Committer, store: str) -> None:
        self._runtime = runtime
        self._committer = committer
        self._store = store
        self._version = (0, -1, -1)
        """Version of the declarations that were read last, and up to which sequence they were
        released."""
        self._notified_version = (0, -1)
        """Version of the last notification."""
        self._pinned: dict[str, Pinned] = {}
        self._rows: dict[str, str] = {}
        """Names of rows by node id."""
        self._revoked: frozenset[str] = frozenset()
        self._follower: TailFollower | None = None
        self._look: asyncio.Handle | None = None
        self._unread: tuple[int, int] | None = None
        """Version of the declarations for which some holders of links could not be notified."""
        self._again: asyncio.Handle | None = None
        self.on_change: list[Callable[[], None]] = []
        """Called when a declaration has changed, perhaps one of the cluster."""

    # --- what is asked ----------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """Time for checking the validity of certificates."""
        return instant(self._runtime.clock.wall_us())

    def of(self, fingerprint: str) -> Pinned | None:
        """Return the owner of a certificate; None: it is not trusted."""
        self._refresh()
        return self._pinned.get(fingerprint)

    def is_revoked(self, fingerprint: str) -> bool:
        """True if a certificate is revoked, whatever else names it."""
        self._refresh()
        return fingerprint in self._revoked

    def pins_of(self, node: str) -> frozenset[str]:
        """Return the trusted certificates of a node; empty: it has no row, or none in it."""
        self._refresh()
        return frozenset(one for one, pinned in self._pinned.items() if pinned.node == node)

    def row_of(self, node: str) -> str | None:
        """Return the name of a node's row, whatever its certificate."""
        self._refresh()
        return self._rows.get(node)

    def admits_unknown(self) -> bool:
        """True if an unknown node may connect: a join token is usable, or its use is not released
        yet. A node that has used it may come again."""
        with self._committer.begin_transaction() as tx:
            usable = join_tokens.any_usable(tx, self._store)
        # If no declaration is pending, the released state says the same.
        if usable or self._committer.ledger.state.catalog_version <= self._committer.commit_index:
            return usable
        with self._committer.begin_released_read() as tx:
            return join_tokens.any_usable(tx, self._store)

    # --- what changes -----------------------------------------------------------------------------

    def start_notifying(self) -> None:
        """Call `on_change` at each change from now on, until `close`."""
        self._notified_version = self._declared
        self._follow()

    def close(self) -> None:
        """Stop the notifications."""
        if self._follower is not None:
            self._follower.leave()
            self._follower = None
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._forget_unread()

    def _follow(self) -> None:
        tail = self._committer.tail
        self._follower = tail.follow(tail.commit_index, self._wake)
        self._drain(self._follower)

    def _wake(self) -> None:
        """Schedule a check in a loop iteration of its own: this is called in the middle of a
        release."""
        if self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._on_checked)

    def _on_checked(self) -> None:
        self._look = None
        if self._follower is None:
            return
        self._drain(self._follower)
        # Compare with the last notification, not with the last read: `_refresh` may have read
        # the change between its commit and its release.
        if (version := self._declared) not in (self._notified_version, self._unread):
            self._notify_holders(version)

    def _notify_holders(self, version: tuple[int, int]) -> None:
        self._forget_unread()
        for changed in self.on_change:
            try:
                changed()
            except EngineUnreadable as error:
                self._runtime.report_error(type(self).__name__, error)
                self._unread = version
        if self._unread is None:
            self._notified_version = version
        else:  # links without trust may still be open: notify all again soon
            self._again = self._runtime.loop.call_later(AGAIN_SECONDS, self._notify_again)

    def _notify_again(self) -> None:
        self._notify_holders(self._declared)

    def _forget_unread(self) -> None:
        self._unread = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _drain(self, follower: TailFollower) -> None:
        """Read the tail to its end; only the fact of news matters."""
        try:
            while follower.take(1 << 62):
                pass
        except FellBehind:
            self._follow()

    @property
    def _declared(self) -> tuple[int, int]:
        """Version of all declarations. Includes the generation, because a rolled-back sequence is
        reused."""
        return self._committer.generation, self._committer.ledger.state.catalog_version

    def _refresh(self) -> None:
        """Read the declarations, if they have changed. An unreleased commit revokes trust at once,
        but gives none: it may be rolled back."""
        generation, declared = self._declared
        # Part of the version: a release changes the result without a new declaration.
        released = min(declared, self._committer.commit_index)
        if self._version == (version := (generation, declared, released)):
            return
        with self._committer.begin_transaction() as tx:
            self._revoked, rows = _revoked(tx), replicas.every(tx)
        self._rows = {row.node: row.name for row in rows if row.node is not None}
        pinned = _pinned(rows, self._revoked)
        if released < declared:
            with self._committer.begin_released_read() as tx:
                shown = _pinned(replicas.every(tx), _revoked(tx))
            pinned = {one: pinned[one] for one in pinned.keys() & shown.keys()}
        self._pinned = pinned
        self._version = version


def _pinned(rows: Sequence[Replica], revoked: frozenset[str]) -> dict[str, Pinned]:
    """Return the trusted certificates of the given rows, by fingerprint."""
    return {
        fingerprint: Pinned(row.name, row.node, expires)
        for row in rows
        for fingerprint, expires in row.certificates.items()
        if fingerprint not in revoked
    }


def _revoked(tx: Transaction) -> frozenset[str]:
    return frozenset(one.certificate for some in replicas.each_revocation(tx) for one in some)


# --- requests of other nodes ----------------------------------------------------------------------


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
