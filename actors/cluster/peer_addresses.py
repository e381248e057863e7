"""The addresses of other nodes, and the certificates that are expected there.

By their rows as they stand here, or where one was when the store was copied from it. A node that
was away may find nobody there: the other has moved, or shows a certificate since that was in no row
then. So whoever is not found for long is asked for, of others that this node knows. What they say
is tried beside what stands here, and kept in memory alone: the log has it once it has come.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import structlog

from actors.cluster.address_hints import ask_around
from actors.cluster.member import Member
from actors.cluster.peering import Peering
from protocol.doors import Clock
from protocol.links import Leads, Link, LinkClosed, Links, Way
from storage.cluster_file import Upstream
from storage.joining import Source

log = structlog.get_logger("cluster")

LOST_US: Final = 30_000_000
"""For so long it is looked for where it is known to be, before others are asked."""


class Place(NamedTuple):
    """Where a node may be."""

    address: str
    pins: frozenset[str]
    """Of these it shows one."""


class PeerAddresses:
    """On the loop only."""

    def __init__(self, clock: Clock, member: Member, peering: Peering) -> None:
        self._clock = clock
        self._member = member
        self._peering = peering
        self._lost_us: dict[str, int] = {}
        """By node, since when it is not found; or when others were last asked for it."""
        self._told: dict[str, Place] = {}
        """By node, where others have said that it is, and it was."""

    @property
    def leader(self) -> Leads | None:
        """Where who leads is, for who asks this node; None: it leads itself, or knows of nobody."""
        leader = self._member.leader
        return None if leader in (None, self._member.node) else self._leads(leader)

    @property
    def way(self) -> Way:
        """What others are told who ask."""
        member = self._member
        leads = self._leads(member.node) if member.ships_in is not None else self.leader
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
        """A link with a node.

        :param upstream: where it was when the store was copied from it
        :raises LinkClosed: there is none
        """
        links = await self._peering.opened_links()
        places = self._places(node, upstream)
        why = LinkClosed(f"no row says where node {node} is reached")
        for place in places:
            try:
                return await self._linked(links, node, place)
            except LinkClosed as closed:
                why = closed
        if self._is_shut_out(node):
            raise LinkClosed(f"what node {node} shows was revoked")
        told = await self._ask(links, node) if not places or self._is_lost(node) else None
        if told is None or told in places:
            raise why
        link = await self._linked(links, node, told)
        log.info("a node was found where others say that it is", node=node, address=told.address)
        self._told[node] = told
        return link

    async def source(self, node: str, upstream: Upstream | None) -> Source | None:
        """A node, for who copies the store from it; None: nobody knows where it is.

        :param upstream: as of `connect`
        """
        places, links = self._places(node, upstream), self._peering.links
        if not places and links is not None:  # it has no row
            told = await self._ask(links, node)
            places = [] if told is None else [told]
        pins = frozenset[str]().union(*(place.pins for place in places))
        return Source(node, tuple(place.address for place in places), tuple(pins)) if pins else None

    # --- how --------------------------------------------------------------------------------------

    def _places(self, node: str, upstream: Upstream | None) -> list[Place]:
        """Where it may be, as far as that is known here."""
        row = self._member.row_of(node)
        pins = frozenset(self._peering.trust.pins_of(node))
        addresses = [] if row is None else [row.peer]
        if upstream is not None:
            addresses += upstream.peers
            pins = pins or frozenset({upstream.fingerprint})
        found = [Place(address, pins) for address in dict.fromkeys(addresses)]
        if node in self._told:
            found.append(self._told[node])
        return [self._trusted(place) for place in found]

    def _trusted(self, place: Place) -> Place:
        """Expect nothing that was revoked, whoever has named it, and whenever."""
        is_revoked = self._peering.trust.is_revoked
        return place._replace(pins=frozenset(pin for pin in place.pins if not is_revoked(pin)))

    async def _linked(self, links: Links, node: str, place: Place) -> Link:
        """:raises LinkClosed: it is not there"""
        link = await links.connect(place.address, place.pins)
        if link.peer.node != node:
            link.close("another node was meant")
            raise LinkClosed(f"another node answers at {place.address} than the one that leads")
        self._lost_us.pop(node, None)
        return link

    def _is_shut_out(self, node: str) -> bool:
        """Whether its row here had certificates, and none is trusted: then nobody else is asked for
        one, who may not have heard of that."""
        row = self._member.row_of(node)
        return bool(row and row.certificates) and not self._peering.trust.pins_of(node)

    def _is_lost(self, node: str) -> bool:
        """Whether it is not found for long, or for as long again since others were asked."""
        now_us = self._clock.monotonic_us()
        if now_us - self._lost_us.setdefault(node, now_us) < LOST_US:
            return False
        self._lost_us[node] = now_us
        return True

    async def _ask(self, links: Links, node: str) -> Place | None:
        """Where others say that it is, if it leads."""
        others = [row for row in self._member.others if row.node != node]
        found = await ask_around(links, others, self._peering.trust.pins_of, node)
        return None if found is None else self._trusted(Place(found.peer, frozenset(found.pins)))
