"""Addresses of other nodes, and the certificates expected there.

They come from the replica rows, or from the time when the store was copied. A node that was away
may find an outdated address: the other has moved, or shows a certificate that its row did not have
then. So after a while it asks the other nodes it knows. Their answers are tried beside the known
addresses, and kept in memory only: the log will bring the same.

A node that was away while etcd moved asks the nodes of its replica rows for etcd's addresses too.
Those of the policy in its log do not answer. The newer policy stands in a part of the log that this
node lacks, and the leader that would send it is named in the unreachable etcd.

Their addresses are used only if they lead to the same etcd: it has the same cluster id, and its
revision has not gone back. If the policy here has only `https` addresses, so must theirs, because
passwords are sent there.

The result is kept in memory only. Once the log has caught up, its policy says the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from actors.cluster.membership import Peering
from actors.cluster.role import ClusterMember
from actors.runtime.tasks import end
from protocol.agreement import Agreement, NotAnswered
from protocol.environment import Clock
from protocol.errors import Refusal
from protocol.failover import Policy, check_url
from protocol.links import AskWay, Leads, Link, LinkClosed, Links, Way
from storage.catalog.failover import StoredPolicy
from storage.catalog.replicas import Replica
from storage.files.cluster_file import ClusterState, Upstream
from storage.files.joining_file import CopySource

# --- asking other nodes ---------------------------------------------------------------------------


SECONDS: Final = 5.0
"""Timeout of one request (s)."""

PinsOf = Callable[[str], Collection[str]]
"""Returns the fingerprints of the certificates that a node may show, by its id."""


async def ways(links: Links, rows: Iterable[Replica], pins_of: PinsOf) -> list[Way]:
    """Ask nodes, all at once, and return their answers. Unreachable nodes are left out.

    :param rows: replica rows of the nodes to ask
    """
    asked = [_said(links, row.peer, pins_of(row.node)) for row in rows if row.node is not None]
    # All at once, so that any number of dead nodes cost one timeout.
    return [way for way in await asyncio.gather(*asked) if way is not None]


async def ask_for_leader(
    links: Links, rows: Iterable[Replica], pins_of: PinsOf, leader: str
) -> Leads | None:
    """Return the address of the leader as another node reports it, or None if no node knows.

    :param rows: as in `ways`
    :param leader: id of the leader to look for
    """
    found = await ways(links, rows, pins_of)
    # Other nodes may still follow an earlier leader: only answers about this one count.
    return next((way.leader for way in found if way.leader and way.leads == leader), None)


async def _said(links: Links, address: str, pins: Collection[str]) -> Way | None:
    """Ask one node. None: it is unreachable, or does not know this request."""
    try:
        async with asyncio.timeout(SECONDS):
            link = await links.connect(address, pins)
            try:
                link.send(AskWay())
                answer = await link.receive()
            finally:
                link.close()
    except (LinkClosed, TimeoutError):
        return None
    return answer if isinstance(answer, Way) else None


# --- addresses of other nodes ---------------------------------------------------------------------


log = structlog.get_logger("cluster")

LOST_US: Final = 30_000_000
"""Time (µs) that a node is tried at its known addresses before other nodes are asked."""


class CandidateAddress(NamedTuple):
    """Possible address of a node."""

    address: str
    pins: frozenset[str]
    """Fingerprints: it has to show one of them."""


class PeerAddresses:
    """On the loop only."""

    def __init__(self, clock: Clock, member: ClusterMember, peering: Peering) -> None:
        self._clock = clock
        self._member = member
        self._peering = peering
        self._lost_us: dict[str, int] = {}
        """Monotonic time (µs), by node, since which it is unreachable, or at which others were last
        asked."""
        self._told: dict[str, CandidateAddress] = {}
        """Address, by node, at which it was found after another node named it."""

    @property
    def leader(self) -> Leads | None:
        """Address of the leader, for nodes that ask; None: this node leads, or knows no leader."""
        leader = self._member.leader
        return None if leader in (None, self._member.node) else self._leads(leader)

    @property
    def way(self) -> Way:
        """Answer to nodes that ask for the addresses of the leader and of etcd."""
        member = self._member
        leads = self._leads(member.node) if member.sender_epoch is not None else self.leader
        # A policy that is not in force here is of no use to other nodes.
        kept = member.kept if member.policy is not None else None
        return Way(
            via=[] if kept is None else list(kept.policy.via),
            since=None if kept is None else kept.since,
            leads="" if leads is None else leads.node,
            peer="" if leads is None else leads.peer,
            pins=[] if leads is None else list(leads.pins),
        )

    def _leads(self, node: str | None) -> Leads | None:
        row = None if node is None else self._member.row_of(node)
        if node is None or row is None:
            return None
        return Leads(node, row.peer, tuple(self._peering.trust.pins_of(node)))

    async def connect(self, node: str, upstream: Upstream | None) -> Link:
        """Return a link to a node.

        :param upstream: its address when the store was copied from it
        :raises LinkClosed: it can't be reached
        """
        links = await self._peering.opened_links()
        places = self._places(node, upstream)
        why = LinkClosed(f"no row has an address of node {node}")
        for place in places:
            try:
                return await self._linked(links, node, place)
            except LinkClosed as closed:
                why = closed
        if self._is_shut_out(node):
            raise LinkClosed(f"the certificate of node {node} was revoked")
        # At most every `LOST_US`, unless no address is known at all.
        told = await self._ask(links, node) if not places or self._is_lost(node) else None
        if told is None or told in places:
            raise why
        link = await self._linked(links, node, told)
        log.info(
            "a node was reached at an address reported by other nodes",
            node=node,
            address=told.address,
        )
        # Kept only after the node has proved itself there.
        self._told[node] = told
        return link

    async def source(self, node: str, upstream: Upstream | None) -> CopySource | None:
        """Return a node as a source for a copy of the store; None: its address is unknown.

        :param upstream: as in `connect`
        """
        places, links = self._places(node, upstream), self._peering.links
        if not places and links is not None:  # it has no row
            told = await self._ask(links, node)
            places = [] if told is None else [told]
        pins = frozenset[str]().union(*(place.pins for place in places))
        return (
            CopySource(node, tuple(place.address for place in places), tuple(pins))
            if pins
            else None
        )

    # --- how --------------------------------------------------------------------------------------

    def _places(self, node: str, upstream: Upstream | None) -> list[CandidateAddress]:
        """Return its possible addresses, as far as known here."""
        row = self._member.row_of(node)
        pins = frozenset(self._peering.trust.pins_of(node))
        addresses = [] if row is None else [row.peer]
        if upstream is not None:
            addresses += upstream.peers
            # A fingerprint from the time of the copy counts only while the rows name none.
            pins = pins or frozenset({upstream.fingerprint})
        found = [CandidateAddress(address, pins) for address in dict.fromkeys(addresses)]
        if node in self._told:
            found.append(self._told[node])
        return [self._trusted(place) for place in found]

    def _trusted(self, place: CandidateAddress) -> CandidateAddress:
        """Remove revoked certificates, whatever their source."""
        is_revoked = self._peering.trust.is_revoked
        return place._replace(pins=frozenset(pin for pin in place.pins if not is_revoked(pin)))

    async def _linked(self, links: Links, node: str, place: CandidateAddress) -> Link:
        """Connect to one address. :raises LinkClosed: it is not there"""
        link = await links.connect(place.address, place.pins)
        if link.peer.node != node:
            link.close("another node was meant")
            raise LinkClosed(f"the node that answers at {place.address} is not the leader")
        self._lost_us.pop(node, None)
        return link

    def _is_shut_out(self, node: str) -> bool:
        """True if its row here has certificates, and none is trusted. Other nodes are not asked for
        one then: they may not know of the revocation."""
        row = self._member.row_of(node)
        return bool(row and row.certificates) and not self._peering.trust.pins_of(node)

    def _is_lost(self, node: str) -> bool:
        """True if it has been unreachable for `LOST_US`, counted again from the last time others
        were asked."""
        now_us = self._clock.monotonic_us()
        if now_us - self._lost_us.setdefault(node, now_us) < LOST_US:
            return False
        self._lost_us[node] = now_us
        return True

    async def _ask(self, links: Links, node: str) -> CandidateAddress | None:
        """Ask other nodes for its address; they know it if it leads."""
        others = [row for row in self._member.others if row.node != node]
        found = await ask_for_leader(links, others, self._peering.trust.pins_of, node)
        return (
            None
            if found is None
            else self._trusted(CandidateAddress(found.peer, frozenset(found.pins)))
        )


# --- addresses of etcd ----------------------------------------------------------------------------


SILENT_US: Final = 30_000_000
"""Silence of etcd (µs) before other nodes are asked, and before the found addresses are given up.
"""


class AgreementLookup:
    """On the loop only.

    :param agreement: makes an etcd client from addresses
    :param ask: returns the answers of the other nodes
    """

    def __init__(
        self,
        clock: Clock,
        agreement: Callable[[Sequence[str]], Agreement],
        ask: Callable[[], Awaitable[Sequence[Way]]],
    ) -> None:
        self._clock = clock
        self._agreement = agreement
        self._ask = ask
        self._silent_us: int | None = None
        """Monotonic time since which etcd is silent, or at which other nodes were last asked (µs).
        """
        self._instead: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Replacement addresses, keyed by the addresses of the policy; one entry at most."""
        self._asking: asyncio.Future[None] | None = None

    def via(self, policy: Policy) -> tuple[str, ...]:
        """Return the addresses of etcd to use for a policy."""
        return self._instead.get(policy.via, policy.via)

    def on_answer(self) -> None:
        """Note that etcd has answered."""
        self._silent_us = None

    def silent(self, policy: Policy, kept: StoredPolicy | None, known: ClusterState) -> None:
        """Note that etcd has not answered; after `SILENT_US` ask other nodes.

        :param kept: the policy stored in this node's log
        :param known: the state of etcd as last seen
        """
        now_us = self._clock.monotonic_us()
        if self._silent_us is None:
            self._silent_us = now_us
        if self._asking is not None and self._asking.done():
            self._asking.result()  # raises a bug that ended the lookup
            self._asking = None
        if self._asking is not None or now_us - self._silent_us < SILENT_US:
            return
        self._silent_us = now_us
        if self._instead:
            self._instead = {}  # silent there too: try the addresses of the policy again
        elif kept is not None:
            self._asking = asyncio.ensure_future(self._ask_nodes(policy, kept, known))

    async def end(self) -> None:
        """Cancel a lookup under way."""
        if self._asking is not None:
            await end(self._asking)

    async def _ask_nodes(self, policy: Policy, kept: StoredPolicy, known: ClusterState) -> None:
        ways = await self._ask()
        since = {tuple(way.via): way.since for way in ways if way.since is not None}
        for via in sorted(since, key=since.__getitem__, reverse=True):
            # An older policy may name an etcd that was given up.
            if since[via] <= kept.since or not _may_be_asked(via, policy):
                continue
            try:
                agreed = await self._agreement(via).read()
            except NotAnswered:
                continue
            # Another etcd, or one that was set back, could elect a node that lacks commits.
            if known.agreement in (None, agreed.cluster) and agreed.revision >= known.revision:
                log.warning("using the etcd addresses reported by other nodes", via=via)
                self._instead = {policy.via: via}
                return
            log.warning(
                "another etcd cluster answers at the addresses reported by other nodes", via=via
            )


def _may_be_asked(via: tuple[str, ...], policy: Policy) -> bool:
    """True if these addresses are well-formed, new, and as encrypted as those of the policy."""
    try:
        found = tuple(map(check_url, via))
    except Refusal:
        return False
    if not via or found != via or via == policy.via:
        return False
    return _are_sealed(via) or not _are_sealed(policy.via)


def _are_sealed(via: tuple[str, ...]) -> bool:
    return all(url.startswith("https:") for url in via)
