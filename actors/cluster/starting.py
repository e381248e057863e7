"""How the parts of this room are put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

import structlog

from actors.backlog import Backlog
from actors.cluster.attaching import Attaching
from actors.cluster.carrying import Carrying
from actors.cluster.cluster_file import ClusterFileActor, CopyAnew, SaveCluster
from actors.cluster.comparing import Comparing
from actors.cluster.coordination import CoordinationActor, Ways
from actors.cluster.desk import Desk
from actors.cluster.directions import ask_around
from actors.cluster.member import Member
from actors.cluster.memory import Memory
from actors.cluster.peering import Peering
from actors.cluster.present import present
from actors.cluster.shipping import Shipping
from actors.cluster.shippings import Heard, Shippings, Ships
from actors.commits import Committer
from actors.log_reads import LogReads
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Supervised, ask
from protocol.agreement import Agreement
from protocol.doors import Rng
from protocol.links import Leads, Link, LinkClosed
from storage.cluster_file import Cluster, Upstream
from storage.directory import StoreDirectory
from storage.joining import Source

log = structlog.get_logger("cluster")

Agree = Callable[[Sequence[str], str], Agreement]
"""The door to what is agreed: from addresses, for a store by its id."""
Supervise = Callable[..., Supervised[Any]]


def begin_member(
    runtime: Runtime,
    committer: Committer,
    roles: Roles,
    rights: Rights,
    directory: StoreDirectory,
    cluster: Cluster | None,
    supervise: Supervise,
    only_looks: bool,
) -> Member:
    """What this node is to its cluster, before anybody coordinates: it takes changes as long as it
    is in none."""
    place = supervise(lambda: ClusterFileActor.start(runtime, directory), refoldable=True)

    async def save(changed: Cluster) -> None:
        await ask(place.ref, SaveCluster(changed))

    async def copy_anew(sources: Sequence[Source]) -> None:
        await ask(place.ref, CopyAnew(roles.node_id, sources))
        log.warning("the store is copied anew: the node begins again", sources=sources)
        member.begins_anew.set()

    memory = Memory(save, cluster)
    store = str(directory.store_id)
    member = Member(runtime.clock, committer, roles, rights, store, memory, copy_anew, only_looks)
    return member


def begin_coordination(
    runtime: Runtime,
    committer: Committer,
    member: Member,
    reads: LogReads,
    peering: Peering,
    backlog: Backlog,
    rng: Rng,
    agree: Agree,
    leads: Callable[[bool], Awaitable[None]],
    supervise: Supervise,
) -> Desk:
    """Who coordinates, from now on.

    :param backlog: what is carried to who leads while another does
    :param leads: told whether this node leads, when that changes
    """

    carrying = Carrying(runtime, committer)

    def ship(
        link: Link, epoch: int, attached: Heard, heard: Heard, beat: Callable[[], float]
    ) -> Ships:
        return Shipping(
            runtime, committer, reads, link, epoch, attached, heard, beat, lambda: member.round,
            partial(present, member, committer), carrying.keep,
        )  # fmt: skip

    def follow(node: str, upstream: Upstream | None, epoch: int | None) -> Attaching:
        connect = partial(_connect, member, peering, node, upstream)
        return Attaching(runtime, rng, committer, member.memory, connect, epoch, backlog)

    async def compare() -> None:
        await Comparing(runtime, committer, lambda: shippings).run()

    async def copy_anew(leader: str) -> bool:
        upstream = member.memory.now.upstream
        if upstream is not None and upstream.node != leader:
            upstream = None
        addresses, pins = await _reached(member, peering, leader, upstream)
        if not addresses or not pins:
            return False
        await member.copy_anew((Source(leader, addresses, tuple(pins)),))
        return True

    led_by = partial(_leader, member, peering)
    shippings = Shippings(runtime.clock, member, ship, led_by)
    member.look_at_rows()
    peering.accept = shippings.accept
    peering.leader = led_by
    ways = Ways(lambda via: agree(via, member.store), follow, leads, compare, copy_anew)
    place = supervise(
        lambda: CoordinationActor.start(runtime, committer, member, shippings, ways),
        refoldable=True,
    )
    return Desk(runtime.clock, committer, member, shippings, place)


def _leader(member: Member, peering: Peering) -> Leads | None:
    """Where who leads is reached, and what it may show; None: nobody does that is known of."""
    leader = member.leader
    row = None if leader is None else member.row_of(leader)
    if leader is None or leader == member.node or row is None:
        return None
    return Leads(leader, row.peer, tuple(peering.trust.pins_of(leader)))


async def _connect(member: Member, peering: Peering, node: str, upstream: Upstream | None) -> Link:
    """A link with who leads, where its row says it is, or others do; or where it was when the store
    was copied.

    :raises LinkClosed: there is none
    """
    links = peering.links
    if links is None:
        raise LinkClosed("this node was started without --peer: it links with no other")
    addresses, pins = await _reached(member, peering, node, upstream)
    why = LinkClosed(f"no row says where node {node} is reached")
    for address in addresses:
        try:
            link = await links.connect(address, pins)
        except LinkClosed as closed:
            why = closed
            continue
        if link.peer.node == node:
            return link
        link.close("another node was meant")
        why = LinkClosed(f"another node answers at {address} than the one that leads")
    raise why


async def _reached(
    member: Member, peering: Peering, node: str, upstream: Upstream | None
) -> tuple[tuple[str, ...], Collection[str]]:
    """The addresses at which a node may be, and what it shows there; nothing: nobody knows.

    :param upstream: where it was when the store was copied from it
    """
    row = member.row_of(node)
    pins: Collection[str] = peering.trust.pins_of(node)
    addresses: tuple[str, ...] = () if row is None else (row.peer,)
    if upstream is not None:
        addresses += tuple(each for each in upstream.peers if each not in addresses)
        pins = pins or (upstream.fingerprint,)
    if addresses or peering.links is None:
        return addresses, pins
    # It came while this node was away: its row is in a part of the log that is not here yet.
    found = await ask_around(peering.links, member.others, peering.trust.pins_of, node)
    return ((), ()) if found is None else ((found.peer,), found.pins)
