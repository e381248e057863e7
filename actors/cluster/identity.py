"""Certificate of this node: made, published in its row, shown to other nodes, renewed.

A certificate made by the node lasts a year. A month before its end the next one is made and put
into the row beside it. Half a month later it is shown, if the row has it. A supplied certificate is
shown as soon as the row has it. The leader writes its own row. A follower asks the leader, over a
link that still shows the known certificate.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from actors.cluster.membership import Peering
from actors.commits.committer import NODE, Committer
from actors.runtime import LoopActor, Runtime, Supervised, ThreadActor, ask, handles, tell
from protocol import limits
from protocol.environment import Rng
from protocol.errors import NotWritable, Refusal
from protocol.links import LinkClosed, Refused, Renew, Renewed
from protocol.requests import Request
from protocol.values import instant
from storage.catalog import replicas
from storage.catalog.replicas import Replica
from storage.engine.engine import EngineUnreadable
from storage.faults import StoreFault
from storage.files import peer_file
from storage.files.directory import StoreDirectory
from storage.files.peer_file import Identities, Identity
from storage.txn.transaction import Transaction

log = structlog.get_logger("peers")

RENEWAL: Final = timedelta(days=limits.PEER_RENEWAL_DAYS)
SHOWN: Final = timedelta(days=limits.PEER_SHOWN_DAYS)
ANSWER_SECONDS: Final = 30.0
"""Timeout of the leader's answer (s); its commit may wait for followers."""
_REASON: Final = "this node's certificate"


@dataclass(frozen=True, slots=True)
class LoadIdentities(Request[Identities]):
    """Load the certificates of this directory; make them at the first start with peers."""

    node: str


@dataclass(frozen=True, slots=True)
class PrepareIdentity(Request[Identities]):
    """Make the next certificate, beside the shown one."""

    node: str
    shown: Identity


@dataclass(frozen=True, slots=True)
class SaveIdentities(Request[None]):
    """Save the certificates for the next start."""

    identities: Identities


class IdentityActor(ThreadActor):
    """Thread that makes keys and writes the file PEER."""

    def __init__(self, runtime: Runtime, directory: StoreDirectory, rng: Rng) -> None:
        super().__init__(runtime)
        self._directory = directory
        self._rng = rng

    @handles(LoadIdentities)
    def load(self, message: LoadIdentities) -> Identities:
        """Load the file.

        :raises StoreDamaged: the file is corrupt
        :raises OSError: the disk failed
        """
        now = instant(self.runtime.clock.wall_us())
        return peer_file.current_identities(self._directory, message.node, now, self._rng)

    @handles(PrepareIdentity)
    def prepare(self, message: PrepareIdentity) -> Identities:
        """Make and save the next certificate. :raises OSError: the disk failed"""
        now = instant(self.runtime.clock.wall_us())
        made = peer_file.make(message.node, now, self._rng)
        found = Identities(message.shown, made)
        # Durable before any row names it: a crash must not lose the key of a trusted certificate.
        peer_file.save(self._directory, found)
        return found

    @handles(SaveIdentities)
    def save(self, message: SaveIdentities) -> None:
        """Save the certificates, if they have changed.

        :raises StoreDamaged: the file is corrupt
        :raises OSError: the disk failed
        """
        # Each hourly check comes here: the file is written only on a change.
        if peer_file.load(self._directory) != message.identities:
            peer_file.save(self._directory, message.identities)


@dataclass(frozen=True, slots=True)
class CheckCertificate:
    """Run a check now: the time has come, or a declaration has changed."""


class RenewingActor(LoopActor):
    """Checks this node's certificate periodically and on request.

    :param file: actor that owns the file PEER
    """

    def __init__(
        self,
        runtime: Runtime,
        peering: Peering,
        committer: Committer,
        file: Supervised[IdentityActor],
    ) -> None:
        super().__init__(runtime)
        self._peering = peering
        self._committer = committer
        self._file = file
        self._next: asyncio.TimerHandle | None = None
        self._looking = self._again = False

    def on_start(self) -> None:
        """Run a check: a predecessor may have failed in the middle of one."""
        tell(self.actor_ref, CheckCertificate())

    @handles(CheckCertificate)
    async def check(self, _message: CheckCertificate) -> None:
        """Run a check; requests during it cause one more, even if it fails. A damaged file PEER is
        left for the operator: the shown certificate is in memory."""
        self._again = True
        if self._looking:
            return
        self._looking = True
        try:
            while self._again:
                self._again = False
                try:
                    await self._check_certificate()
                except (Refusal, LinkClosed, OSError, StoreFault) as why:
                    log.warning("the check of this node's certificate failed", why=str(why))
                except EngineUnreadable as error:
                    self.runtime.report_error(type(self).__name__, error)
        finally:
            self._looking = False
            if self._next is not None:
                self._next.cancel()
            self._next = self.after(limits.PEER_LOOK_SECONDS, self._wake)

    def _wake(self) -> None:
        tell(self.actor_ref, CheckCertificate())

    async def _check_certificate(self) -> None:
        peering = self._peering
        if peering.identities is None:
            return
        peering.check_expiry()
        await self._prepare(peering.identities)
        # Read after `_prepare`, which may have replaced it.
        has = peering.identities
        self._claim_row(has.shown)
        row = self._own_row()
        if row is None:
            return
        # Published before it is shown: other nodes refuse a certificate that no row has.
        for one in self._not_in_row(has, row):
            await self._publish_certificate(one, has.shown)
        await self._drop_earlier_certificates(has)
        await self._step(has)

    def _claim_row(self, shown: Identity) -> None:
        """Put this node's id into the row that names its certificate. If another node leads, the
        leader does it when this node links."""
        with suppress(NotWritable), self._committer.begin_transaction() as tx:
            row = self._row_in(tx) or self._row_by(tx, shown.fingerprint)
            if row is not None and row.node is None:
                node, expires = self._peering.node, shown.expires
                replicas.shown(tx, row, node, shown.fingerprint, expires)
                self._committer.commit(tx, NODE, reason=_REASON)

    def _row_by(self, tx: Transaction, fingerprint: str) -> Replica | None:
        """Return the row that names this certificate and has no node id yet."""
        rows = (row for row in replicas.every(tx) if row.node is None)
        return next((row for row in rows if fingerprint in replicas.trusted(tx, row)), None)

    async def _prepare(self, has: Identities) -> None:
        """Make the next certificate a month ahead."""
        ends = has.shown.expires - self._now
        if has.next is None and not self._peering.is_given and ends < RENEWAL:
            asked = PrepareIdentity(self._peering.node, has.shown)
            self._peering.identities = made = await ask(self._file.ref, asked)
            assert made.next is not None
            log.info("the next certificate is made", fingerprint=made.next.fingerprint)

    def _not_in_row(self, has: Identities, row: Replica) -> list[Identity]:
        """Return the certificates to put into this node's row.

        Once one made by this node was revoked, none of its own is added: the keys are in one file,
        so a thief has both. A supplied certificate is the operator's decision.
        """
        every = [one for one in (has.shown, has.next) if one is not None]
        left = [one for one in every if not self._is_revoked(one)]
        unknown = [one for one in left if one.fingerprint not in row.certificates]
        if len(left) == len(every) or self._peering.is_given:
            return unknown
        for one in unknown:
            log.warning(
                "this node's certificate was revoked: no certificate of the same file is put"
                " into its row",
                fingerprint=one.fingerprint,
            )
        return []

    def _is_revoked(self, one: Identity) -> bool:
        return self._peering.trust.is_revoked(one.fingerprint)

    async def _publish_certificate(self, one: Identity, shown: Identity) -> None:
        """Put a certificate of this node into its row, or ask the leader to."""
        try:
            with self._committer.begin_transaction() as tx:
                row = self._row_in(tx)
                if row is None:
                    return
                if shown.fingerprint in replicas.trusted(tx, row):
                    # Drop older ones first: a third certificate would displace the shown one.
                    row = replicas.shown(
                        tx, row, self._peering.node, shown.fingerprint, shown.expires
                    )
                replicas.renew(tx, row, one.fingerprint, one.expires)
                ticket = self._committer.commit(tx, NODE, reason=_REASON)
            # With a timeout: later checks close links of certificates that are revoked.
            await self._committer.released_in_time(ticket)
        except NotWritable:
            # The leader refuses links with an unknown certificate, so it can't be asked.
            if one is shown:
                log.warning(
                    "this node's row names another certificate than it shows: other nodes refuse"
                    " to link with it",
                    fingerprint=one.fingerprint,
                )
            else:
                await self._ask_leader(one)

    async def _ask_leader(self, one: Identity) -> None:
        leader, links = self._peering.leader(), self._peering.links
        if leader is None or links is None:
            return
        link = await links.connect(leader.peer, leader.pins)
        try:
            link.send(Renew(one.fingerprint, one.expires))
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await link.receive()
        except TimeoutError:
            raise LinkClosed("the leader did not answer in time") from None
        finally:
            link.close()
        if isinstance(answer, Refused):
            log.warning("the next certificate was refused", code=answer.code, why=answer.message)
        elif not isinstance(answer, Renewed):
            raise LinkClosed(f"the leader answered a certificate with {type(answer).__name__}")

    async def _drop_earlier_certificates(self, has: Identities) -> None:
        """Drop earlier certificates once the row has only the shown one."""
        row = self._own_row()
        if self._peering.is_given or row is None:
            return
        # The earlier key leaves the file only once no row names its certificate.
        if tuple(row.certificates) == (has.shown.fingerprint,):
            await ask(self._file.ref, SaveIdentities(has))

    async def _step(self, has: Identities) -> None:
        """Show the next certificate, once the row has it and its time has come."""
        peering, row = self._peering, self._own_row()
        if has.next is None or row is None or has.next.fingerprint not in row.certificates:
            return
        if self._is_revoked(has.next):
            return
        if not peering.is_given and has.shown.expires - self._now >= SHOWN:
            return
        # The clock has jumped, or no check ran for half a month: other nodes may know only the
        # first certificate, so keep its file.
        is_sudden = not peering.is_given and has.shown.expires <= self._now
        # Saved before it is shown: once other nodes have seen it, the row drops the first one.
        if not peering.is_given and not is_sudden:
            await ask(self._file.ref, SaveIdentities(Identities(has.next)))
        if peering.identities is not has:
            return  # another was supplied meanwhile: the next check handles it
        peering.show(Identities(has.next))
        log.info("another certificate is shown to other nodes", fingerprint=has.next.fingerprint)
        if is_sudden:
            return
        with suppress(NotWritable), self._committer.begin_transaction() as tx:
            shown, own = has.next, self._row_in(tx)
            if own is not None and shown.fingerprint in replicas.trusted(tx, own):
                replicas.shown(tx, own, peering.node, shown.fingerprint, shown.expires)
                self._committer.commit(tx, NODE, reason=_REASON)

    @property
    def _now(self) -> datetime:
        return instant(self.runtime.clock.wall_us())

    def _own_row(self) -> Replica | None:
        with self._committer.begin_transaction() as tx:
            return self._row_in(tx)

    def _row_in(self, tx: Transaction) -> Replica | None:
        return next((row for row in replicas.every(tx) if row.node == self._peering.node), None)


async def begin_renewing(
    runtime: Runtime,
    peering: Peering,
    committer: Committer,
    directory: StoreDirectory,
    listens_at: str,
    given: Identity | None,
) -> list[Supervised[Any]]:
    """Show a certificate, publish and renew it. Return the actors that do it.

    :param listens_at: address at which this node listens for others
    :param given: certificate to show; None: the one of its directory
    :raises StoreDamaged, OSError: reading the file PEER failed
    """
    file = Supervised(
        lambda: IdentityActor.start(runtime, directory, directory.rng), refoldable=True
    )
    if given is None:
        peering.show(await ask(file.ref, LoadIdentities(peering.node)))
    else:
        peering.is_given = True
        peering.show(Identities(given))
    peering.listens_at = listens_at
    peering.trust.start_notifying()
    renewing = Supervised(
        lambda: RenewingActor.start(runtime, peering, committer, file), refoldable=True
    )
    peering.renew_soon = lambda: tell(renewing.ref, CheckCertificate())
    peering.trust.on_change.append(peering.renew_soon)
    return [file, renewing]
