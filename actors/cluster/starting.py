"""Wiring of the cluster package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import structlog

from actors.backlog import Backlog
from actors.cluster import address_hints
from actors.cluster.attaching import LeaderConnector
from actors.cluster.cluster_file import ClusterFileActor, CopyAnew, SaveCluster
from actors.cluster.coordination import CoordinationActor, CoordinationHooks
from actors.cluster.durable_state import DurableState
from actors.cluster.entry_forwarding import EntryForwarding
from actors.cluster.linearizable_reads import LinearizableReads
from actors.cluster.member import ClusterMember
from actors.cluster.peer_addresses import PeerAddresses
from actors.cluster.peering import Peering
from actors.cluster.replica_sender import ReplicaSender
from actors.cluster.replica_senders import FollowerSender, Heard, ReplicaSenders
from actors.cluster.service import ClusterService
from actors.cluster.state_check import StateComparison
from actors.commits import Committer
from actors.log_reads import LogReads
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Supervised, ask
from protocol.agreement import Agreement
from protocol.environment import Rng
from protocol.links import Link, Way
from storage.files.cluster_file import ClusterState, Upstream
from storage.files.directory import StoreDirectory
from storage.files.joining_file import CopySource

log = structlog.get_logger("cluster")

Agree = Callable[[Sequence[str], str], Agreement]
"""Makes an etcd client from addresses and the id of a store."""
Supervise = Callable[..., Supervised[Any]]


def begin_member(
    runtime: Runtime,
    committer: Committer,
    roles: Roles,
    rights: Rights,
    directory: StoreDirectory,
    cluster: ClusterState | None,
    supervise: Supervise,
    only_looks: bool,
) -> ClusterMember:
    """Make this node a cluster member, before coordination starts. In no cluster, it accepts
    changes at once."""
    place = supervise(lambda: ClusterFileActor.start(runtime, directory), refoldable=True)

    async def save(changed: ClusterState) -> None:
        await ask(place.ref, SaveCluster(changed))

    async def copy_anew(sources: Sequence[CopySource]) -> None:
        # The mark is durable before the node restarts, so a crash here has the same effect.
        await ask(place.ref, CopyAnew(roles.node_id, sources))
        log.warning("the store is copied anew: the node begins again", sources=sources)
        member.begins_anew.set()

    memory = DurableState(save, cluster)
    store = str(directory.store_id)
    member = ClusterMember(
        runtime.clock, committer, roles, rights, store, memory, copy_anew, only_looks
    )
    return member


def begin_coordination(
    runtime: Runtime,
    committer: Committer,
    member: ClusterMember,
    reads: LogReads,
    peering: Peering,
    backlog: Backlog,
    rng: Rng,
    agree: Agree,
    leads: Callable[[bool], Awaitable[None]],
    supervise: Supervise,
) -> ClusterService:
    """Start coordination.

    :param backlog: entries to forward to the leader, while another node leads
    :param leads: called with True or False when this node starts or stops to lead
    """

    # One for all links: the rate limit of a follower outlives its link.
    forwarding = EntryForwarding(runtime, committer)
    present = LinearizableReads(runtime.clock, member, committer)

    def ship(
        link: Link, epoch: int, attached: Heard, heard: Heard, beat: Callable[[], float]
    ) -> FollowerSender:
        return ReplicaSender(
            runtime, committer, reads, link, epoch, attached, heard, beat, lambda: member.round,
            present.ask, forwarding.keep,
        )  # fmt: skip

    def follow(node: str, upstream: Upstream | None, epoch: int | None) -> LeaderConnector:
        connect = partial(peer_addresses.connect, node, upstream)
        return LeaderConnector(runtime, rng, committer, member.memory, connect, epoch, backlog)

    async def compare() -> None:
        await StateComparison(runtime, committer, lambda: replica_senders).run()

    async def copy_anew(leader: str) -> bool:
        # The address from the time of the copy is of that node, and of no other leader.
        upstream = member.memory.now.upstream
        if upstream is not None and upstream.node != leader:
            upstream = None
        source = await peer_addresses.source(leader, upstream)
        if source is not None:
            await member.copy_anew((source,))
        return source is not None

    async def ask_way() -> list[Way]:
        if peering.links is None:
            return []
        return await address_hints.ways(peering.links, member.others, peering.trust.pins_of)

    # The functions above use these two, and run only later.
    peer_addresses = PeerAddresses(runtime.clock, member, peering)
    replica_senders = ReplicaSenders(runtime.clock, member, ship, lambda: peer_addresses.way)
    # Before the first link and the first iteration: both go by policy and roles.
    member.read_rows()
    peering.accept = replica_senders.accept
    peering.leader = lambda: peer_addresses.leader
    ways = CoordinationHooks(
        lambda via: agree(via, member.store), follow, leads, compare, copy_anew, ask_way
    )
    # A successor of a failed actor first steps down from the lead it finds (`live`).
    place = supervise(
        lambda: CoordinationActor.start(runtime, committer, member, replica_senders, ways),
        refoldable=True,
    )
    return ClusterService(runtime.clock, member, replica_senders, present, place)
