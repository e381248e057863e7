"""Addresses of other nodes, and the certificates expected there.

They come from the replica rows, or from the time when the store was copied. A node that was away
may find an outdated address: the other has moved, or shows a certificate that its row did not have
then. So after a while it asks the other nodes it knows. Their answers are tried beside the known
addresses, and kept in memory only: the log will bring the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import structlog

from actors.cluster.address_hints import ask_for_leader
from actors.cluster.member import ClusterMember
from actors.cluster.peering import Peering
from protocol.environment import Clock
from protocol.links import Leads, Link, LinkClosed, Links, Way
from storage.files.cluster_file import Upstream
from storage.files.joining_file import CopySource

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
