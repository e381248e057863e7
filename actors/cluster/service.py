"""Cluster service: the interface of the cluster for statements and the node, and its wiring."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from actors.backlog import Backlog
from actors.cluster import discovery
from actors.cluster.coordinator import (
    CoordinationActor,
    CoordinationHooks,
    DropPolicy,
    GiveUpLead,
    PutPolicyInForce,
    RemoveFromIsr,
    RunIteration,
    TakeLead,
)
from actors.cluster.diagnostics import cluster_info, downstream
from actors.cluster.discovery import PeerAddresses
from actors.cluster.durable_state import ClusterFileActor, CopyAnew, DurableState, SaveCluster
from actors.cluster.membership import Peering
from actors.cluster.read_index import LinearizableReads
from actors.cluster.replica_receiver import LeaderConnector
from actors.cluster.replica_senders import (
    CopyProvider,
    EntryForwarding,
    FollowerSender,
    Heard,
    ReplicaSender,
    ReplicaSenders,
)
from actors.cluster.role import ClusterMember
from actors.cluster.state_check import StateComparison
from actors.commits.committer import Author, Committer
from actors.log_reads import LogReads
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Supervised, ask, stop, tell
from protocol.agreement import Agreement
from protocol.environment import Clock, Rng
from protocol.errors import Draining
from protocol.failover import Policy
from protocol.links import Link, Way
from protocol.values import Value
from storage.catalog.failover import StoredPolicy
from storage.files.cluster_file import ClusterState, Upstream
from storage.files.directory import StoreDirectory
from storage.files.joining_file import CopySource
from storage.txn.tickets import CommitTicket

# --- the interface --------------------------------------------------------------------------------


class ClusterService:
    """On the loop only.

    :param place: supervisor of the coordination actor
    """

    def __init__(
        self,
        clock: Clock,
        member: ClusterMember,
        replica_senders: ReplicaSenders,
        present: LinearizableReads,
        place: Supervised[CoordinationActor],
    ) -> None:
        self._clock = clock
        self._member = member
        self._replica_senders = replica_senders
        self._place = place
        self._present = present

    def copy_with(self, copies: CopyProvider) -> None:
        """Give copies of the store to nodes that join."""
        self._replica_senders.copies = copies

    def info(self) -> dict[str, Value]:
        """Return the cluster fields of INFO FOR NODE."""
        about = downstream(self._member, self._replica_senders, self._clock)
        return {**cluster_info(self._member), "downstream": about}

    def present(self) -> int | asyncio.Future[int]:
        """Return the read index, or a future of it. :raises Busy: see `read_index.py`"""
        return self._present.ask()

    def in_force(self, kept: StoredPolicy) -> bool:
        """True if a stored policy is in force on this node."""
        return self._member.is_in_force(kept)

    def define_failover(self, policy: Policy, who: Author) -> asyncio.Future[CommitTicket | None]:
        """Return a future that is done once this node leads by the policy, or has committed it.

        :raises: as `CoordinationActor.found`
        """
        return ask(self._place.ref, PutPolicyInForce(policy, who))

    def drop_failover(self, who: Author) -> asyncio.Future[CommitTicket | None]:
        """Return a future that is done once the removal is committed.

        :raises: as `CoordinationActor.drop_policy`
        """
        return ask(self._place.ref, DropPolicy(who))

    def lead(self, *, force: bool) -> asyncio.Future[None]:
        """Return a future that is done once this node leads.

        :raises: as `CoordinationActor.take_lead`
        """
        return ask(self._place.ref, TakeLead(force))

    @property
    def epoch(self) -> int | None:
        """Epoch of the present lead, to which a removal from the ISR applies; None: this node does
        not lead."""
        leadership = self._member.leadership
        return None if leadership is None else leadership.leading.epoch

    def take_out(
        self, nodes: Collection[str], is_over: Callable[[], bool]
    ) -> asyncio.Future[None] | None:
        """Take nodes out of the ISR, until the statement that drops their rows has ended.

        Return a future that is done once no release waits for them; None: none does.

        :raises BadRequest, NotEnoughReplicas, NotWritable: as `CoordinationActor.take_out`
        """
        leadership, gone = self._member.leadership, frozenset(nodes)
        if leadership is None or not gone:
            return None
        if leadership.leading.waited_for.isdisjoint(gone):
            # No release waits for these nodes, but one could enter the ISR during the statement.
            leadership.keep_out_of_isr(gone, is_over)
            return None
        return ask(self._place.ref, RemoveFromIsr(gone, is_over))

    async def stop(self) -> None:
        """Stop the coordination actor. The role of this node stays."""
        await stop(self._place.ref)

    async def give_up_lead(self) -> None:
        """Give up the lead since the node stops, so that another may lead at once."""
        with suppress(Draining):  # the actor has stopped
            await ask(self._place.ref, GiveUpLead())

    def look_again(self) -> None:
        """Trigger an iteration: the roles of this node have changed."""
        tell(self._place.ref, RunIteration())


# --- wiring ---------------------------------------------------------------------------------------


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
        return await discovery.ways(peering.links, member.others, peering.trust.pins_of)

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
