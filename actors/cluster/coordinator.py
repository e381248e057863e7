"""Coordinator: polls etcd and moves this node from one role to the next.

    alone ── DEFINE FAILOVER ──▶ founding ──▶ leading ◀──▶ waiting ◀──▶ following

Each iteration reads the declarations and the state in etcd, decides (`election.py`), and acts. A
leadership is one long iteration: it renews its lease, asks for ISR changes, and ends when another
node leads or the lease is over. A node in no cluster runs no iteration and has no timer.

The actor's requests come from statements, and from the node's start and stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from actors.cluster.diagnostics import Diagnostics
from actors.cluster.discovery import AgreementLookup
from actors.cluster.election import (
    AcquiredLead,
    ClaimAsFounder,
    ClaimByOrder,
    ClaimLead,
    Election,
    FollowLeader,
    FollowUpstream,
    LeadVacancy,
    NoteFounded,
    StayWaiting,
    TrustAgain,
    check_vacant,
    decide_role,
    distrust_reason,
    has_lead,
    leads_already,
    waits_with_lead,
    was_set_back,
)
from actors.cluster.failover_policy import ClusterBootstrap, PolicyReplacement, commit_policy
from actors.cluster.leader import LeaderHooks, LeaderRole, stop_following
from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_receiver import FollowsLeader, FollowTask
from actors.cluster.replica_senders import ReplicaSenders
from actors.cluster.role import ClusterMember, Follower, Founder, Waiting
from actors.commits.committer import Author, Committer
from actors.runtime import LoopActor, Runtime, handles, tell
from actors.runtime.tasks import end
from protocol.agreement import AgreedState, Agreement, InSyncReplicas, NotAnswered
from protocol.errors import (
    Busy,
    DiskFull,
    NotImplementedHere,
    NotWritable,
    Refusal,
    Unknown,
)
from protocol.failover import Policy
from protocol.links import Way
from protocol.requests import Request
from storage.files.cluster_file import ClusterState, Upstream
from storage.txn.tickets import CommitTicket

# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunIteration:
    """Run an iteration now: a condition that it may wait for has changed."""


@dataclass(frozen=True, slots=True)
class PutPolicyInForce(Request[CommitTicket | None]):
    """DEFINE FAILOVER: put a policy into force, or replace the present one.

    Answered with the commit whose release puts it into force; None: it is in force.
    """

    policy: Policy
    who: Author


@dataclass(frozen=True, slots=True)
class DropPolicy(Request[CommitTicket | None]):
    """DROP FAILOVER. Answered as `PutPolicyInForce`."""

    who: Author


@dataclass(frozen=True, slots=True)
class TakeLead(Request[None]):
    """DEFINE NODE LEADS STORE: take the vacant lead."""

    force: bool = False
    """True to begin a new lineage: all other members of the ISR are gone for good."""


@dataclass(frozen=True, slots=True)
class RemoveFromIsr(Request[None]):
    """Cluster rule 2: take nodes out of the ISR, before a statement shuts them out."""

    nodes: frozenset[str]
    is_over: Callable[[], bool]
    """Returns True when that statement has ended, committed or not."""


@dataclass(frozen=True, slots=True)
class GiveUpLead(Request[None]):
    """Give up the lead since the node stops: another node may lead at once, before the lease
    lapses."""


# --- the actor ------------------------------------------------------------------------------------


log = structlog.get_logger("cluster")

LOOK_SECONDS: Final = 1.0
"""Interval of reading the declarations, and of asking an unresponsive etcd again (s)."""
LEAD_SECONDS: Final = 20.0
"""Time that a statement waits for its effect (s)."""
ASKED_SECONDS: Final = 0.02
"""Interval of checking whether that effect has come (s)."""


@dataclass(frozen=True, slots=True)
class _Live:
    """Message of the actor to itself: start."""


@dataclass(frozen=True, slots=True)
class CoordinationHooks:
    """Functions of the rest of the node that the actor uses.

    :ivar agreement: makes an etcd client from the addresses of a policy
    :ivar follow: starts to follow a node, from its id, its first known address and the epoch
    :ivar leads: called with True or False when this node starts or stops to lead
    :ivar ask_way: asks other nodes for the addresses of the leader and of etcd
    :ivar copy_anew: has the next start fetch a snapshot copy from a node; False: its address is
        unknown
    :ivar compare: compares the states of the followers with this one, while it leads
    """

    agreement: Callable[[Sequence[str]], Agreement]
    follow: Callable[[str, Upstream | None, int | None], FollowsLeader]
    leads: Callable[[bool], Awaitable[None]]
    compare: Callable[[], Coroutine[Any, Any, None]]
    copy_anew: Callable[[str], Awaitable[bool]]
    ask_way: Callable[[], Awaitable[Sequence[Way]]]


@dataclass(slots=True, eq=False)
class _LeadRequest:
    """A request of a statement for the lead."""

    force: bool
    forestalled: NotWritable | None = None
    """Set when another node has taken the lead meanwhile."""


class CoordinationActor(LoopActor):
    """Runs the iterations, and handles the statements that change policy, lead or ISR."""

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        member: ClusterMember,
        replica_senders: ReplicaSenders,
        ways: CoordinationHooks,
    ) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._replica_senders = replica_senders
        self._ways = ways
        self._clock = runtime.clock
        self._woken = asyncio.Event()
        self._agreement: Agreement | None = None
        self._via: tuple[str, ...] = ()
        self._seen = 0
        """Revision of etcd that was handled last; 0: none."""
        self._asked: _LeadRequest | None = None
        """The newest request of a statement for the lead."""
        self._election = Election(runtime.clock, committer, member, self._wait)
        self._diagnostics = Diagnostics(member.note_faults)
        self._lookup = AgreementLookup(runtime.clock, ways.agreement, ways.ask_way)
        self._copied_anew = False
        """True if the next start copies the store."""
        self._said: str | None = None
        self._vacancy = LeadVacancy(runtime.clock)
        hooks = LeaderHooks(self._reach, self._note_leading, ways.leads, ways.compare)
        self._leader = LeaderRole(
            runtime.clock, committer, member, replica_senders, self._election, hooks
        )
        self._declaring = asyncio.Lock()
        """Held by a statement that changes the policy."""

    def on_start(self) -> None:
        """Start the iterations."""
        tell(self.actor_ref, _Live())

    @handles(RunIteration)
    def look_again(self, _message: RunIteration) -> None:
        """Run the next iteration at once."""
        self._woken.set()

    @handles(_Live)
    async def live(self, _message: _Live) -> None:
        """Run iterations until the actor is stopped."""
        member = self._member
        if member.leadership is not None:  # left by a predecessor that has failed
            await self._leader.step_down(member.leadership, "the coordination of this node failed")
        try:
            while True:
                self._woken.clear()
                try:
                    seconds = await self._run_iteration()
                except Refusal as refusal:  # a full disk, or a temporary refusal
                    if not self._leader.stops:
                        self._warn_once("held up", f"{refusal.code}: {refusal.message}")
                    seconds = LOOK_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._woken.wait()
        finally:
            if member.follow_task is not None:
                # The successor of this actor starts a follow task of its own.
                member.why = "the coordination of this node ended"
                await stop_following(member)
            await self._diagnostics.end()
            await self._lookup.end()

    # --- what statements ask for ------------------------------------------------------------------

    @handles(PutPolicyInForce)
    async def found(self, message: PutPolicyInForce) -> CommitTicket | None:
        """Handle DEFINE FAILOVER: return once this node leads by the policy, or has committed a
        replacement.

        A replacement is not waited for here, since its release may depend on the next policy.

        :raises BadRequest, Busy, NotEnoughReplicas, NotWritable: nothing has changed
        """
        member, policy = self._member, message.policy
        async with self._declaring:
            member.read_rows()
            stands = self._memory.stored
            if stands is not None and stands.founding is not None and stands.founds:
                if stands.founding.policy != policy:
                    raise Busy(
                        f"another policy is coming into force: {member.why}. Try again afterwards"
                    )
                # A repeated statement, as after a timeout, waits for the founding that it began.
                await self._ask_to_lead(founds=True)
                return None
            if stands is not None:
                known, door = self._memory.now.agreement, self._ways.agreement
                amending = PolicyReplacement(
                    self._committer, member, self._replica_senders, known, door
                )
                return await amending.amend(policy, message.who)
            member.check_roles()
            agreement = self._ways.agreement(policy.via)
            await ClusterBootstrap(
                self._clock, self._committer, member, self._replica_senders, policy, message.who
            ).begin_founding(agreement)
            await self._ask_to_lead(founds=True)
            return None

    @handles(DropPolicy)
    async def drop_policy(self, message: DropPolicy) -> CommitTicket | None:
        """Handle DROP FAILOVER: drop a policy that came with a backup, and stay alone.

        :raises Unknown: there is no policy
        :raises NotImplementedHere: the policy is in force
        :raises NotWritable: the node was never declared coordinating
        """
        member, committer = self._member, self._committer
        async with self._declaring:
            member.read_rows()
            if member.kept is None:
                raise Unknown("there is no failover policy", kind="failover")
            if self._memory.stored is not None:
                raise NotImplementedHere(
                    "a policy in force cannot be dropped, for nodes that miss the change would"
                    " still apply it: replace it with DEFINE FAILOVER"
                )
            member.check_roles()
            if not member.coordinates:
                raise NotWritable(
                    "this node was never declared coordinating: DEFINE NODE ROLES serving,"
                    " writable, coordinating",
                    leader=[],
                )
            return commit_policy(committer, member, None, message.who)

    @handles(TakeLead)
    async def take_lead(self, message: TakeLead) -> None:
        """Handle DEFINE NODE LEADS STORE: return once this node leads.

        :raises Unknown: no policy is in force
        :raises NotWritable: this node may not lead; the message says why
        :raises Busy: etcd does not answer, or this node does not lead in time
        """
        member = self._member
        member.read_rows()
        policy = member.policy
        if policy is None:
            raise Unknown("there is no failover policy in force", kind="failover")
        if has_lead(member, force=message.force):
            return
        known = self._memory.now
        try:
            agreed = await self._ways.agreement(self._lookup.via(policy)).read()
        except NotAnswered as silence:
            raise Busy(f"etcd does not answer, so nothing was changed: {silence}") from silence
        check_vacant(member, agreed, known, self._committer.history(), force=message.force)
        await self._ask_to_lead(force=message.force)

    async def _ask_to_lead(self, *, force: bool = False, founds: bool = False) -> None:
        """Request the lead and wait until this node leads.

        :param founds: a first policy comes into force by it, which can't be withdrawn: neither slow
            followers nor a later request end the wait
        :raises Busy: it does not lead in time, or another statement has requested the lead since
        """
        asked = self._asked = _LeadRequest(force)
        self._woken.set()
        try:
            async with asyncio.timeout(LEAD_SECONDS):
                while not self._leader.serves.is_set():
                    if asked.forestalled is not None:
                        raise asked.forestalled
                    if self._asked is not asked and not founds:
                        raise Busy("a later statement has asked for the lead")
                    if self._member.held_up == "followers" and not founds:
                        raise waits_with_lead(self._member)
                    await asyncio.sleep(ASKED_SECONDS)
        except TimeoutError:
            raise Busy(f"this node does not lead yet: {self._member.waits_for}") from None
        finally:
            if self._asked is asked:
                self._asked = None

    @handles(RemoveFromIsr)
    async def take_out(self, message: RemoveFromIsr) -> None:
        """Return once none of the given nodes is in the ISR: from then on nothing waits for them.

        :raises NotEnoughReplicas: too few members would be left, or it takes too long; the message
            has the cause
        :raises NotWritable: this node no longer leads, or leads again in a later epoch
        """
        leadership = self._member.leadership
        if leadership is None:
            return
        leadership.check_removable(message.nodes)
        # This asks for the removal. It also bars a node that still reports from joining again.
        leadership.keep_out_of_isr(message.nodes, message.is_over)
        try:
            async with asyncio.timeout(LEAD_SECONDS):
                # `waited_for`, not the ISR alone: an unanswered addition may be in force.
                while leadership.leading.waited_for & message.nodes:
                    await asyncio.sleep(ASKED_SECONDS)
                    if self._member.leadership is not leadership:
                        # The ISR belongs to a later leadership, perhaps of this very node.
                        raise self._member.not_leading("only the leader can remove nodes")
        except TimeoutError:
            raise leadership.not_removed(message.nodes) from None

    @handles(GiveUpLead)
    async def give_up_lead(self, _message: GiveUpLead) -> None:
        """Give up the lead at the end of the node. Nothing is committed any more at this point."""
        leadership, self._leader.stops = self._member.leadership, True
        if leadership is not None and self._agreement is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._election.give_up(self._agreement, leadership)

    # --- turns ------------------------------------------------------------------------------------

    async def _run_iteration(self) -> float | None:
        """Run one iteration. Return the delay before the next (s), or None to sleep until woken."""
        member = self._member
        member.read_rows()
        cluster = self._memory.stored
        if cluster is None or member.only_looks:
            return None
        if member.follow_task is not None:
            member.follow_task.check()
            member.note_caught_up()
        with suppress(DiskFull):  # the file CLUSTER keeps its copy of the policy then
            await self._memory.shows(self._committer.commit_index)
        policy = member.policy
        if policy is None:
            await self._follow_upstream(cluster)
            return LOOK_SECONDS
        # `known` is taken before the request. Otherwise an overtaken answer looks like a set-back.
        agreement, known = self._reach(policy), self._memory.now
        try:
            agreed = await self._wait_for_change(agreement)
            self._lookup.on_answer()
            member.read_rows()  # the policy may have changed during the wait
            await self._act_on(agreement, member.policy or policy, agreed, known)
        except NotAnswered as silence:
            # Other members have not learned of a vacancy either.
            self._vacancy.ends()
            self._warn_once("etcd does not answer", str(silence))
            if member.follow_task is None or not member.follow_task.is_attached:
                self._lookup.silent(policy, member.kept, known)
            if isinstance(member.role, Waiting | Founder):
                member.why = f"etcd does not answer: {silence}"
            return LOOK_SECONDS
        return 0

    def _reach(self, policy: Policy) -> Agreement:
        via = self._lookup.via(policy)
        if self._agreement is None or self._via != via:
            self._agreement, self._via = self._ways.agreement(via), via
            # Read first: a watch from a revision of the former addresses could miss the state here.
            self._seen = 0
            self._diagnostics.poll_door(self._agreement)
        return self._agreement

    async def _wait_for_change(self, agreement: Agreement) -> AgreedState:
        """Return the state in etcd once it has changed, or after `LOOK_SECONDS`."""
        # A statement waits for this iteration: read at once.
        if not self._seen or self._asked is not None:
            return await agreement.read()
        looking = asyncio.ensure_future(agreement.changed(self._seen, LOOK_SECONDS))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((looking, woken), return_when=asyncio.FIRST_COMPLETED)
            return looking.result() if looking.done() else await agreement.read()
        finally:
            await end(looking, woken)

    async def _act_on(
        self, agreement: Agreement, policy: Policy, agreed: AgreedState, known: ClusterState
    ) -> None:
        """Act on the state in etcd.

        :param known: this node's memory from before the request: a later answer may overtake it
        """
        member, asked, memory = self._member, self._asked, self._memory
        self._seen = agreed.revision
        coordinates = member.coordinates and not member.is_stranded and not self._leader.stops
        if asked is not None and agreed.lead is not None and agreed.lead.node != member.node:
            asked.forestalled = leads_already(member, agreed.lead, " since a later statement")
        yields = partial(self._vacancy.is_left, member)
        found = decide_role(
            known, agreed, member.node, self._committer.history(), coordinates=coordinates,
            asked=policy.promote == "AUTO" or asked is not None,
            forced=asked is not None and asked.force,
            yields=yields if asked is None else _never, name=member.name_of,
        )  # fmt: skip
        if isinstance(found, ClaimByOrder):
            await self._lead(agreement, await self._election.by_order(agreement, policy, agreed))
            return
        if isinstance(found, TrustAgain):
            log.warning(
                "trusts etcd again, since an operator has named a leader", lineage=agreed.lineage
            )
            await memory.adopt(agreed)
            return
        if was_set_back(known, agreed):
            await memory.doubts()
        if isinstance(found, NoteFounded):
            await memory.founded(agreed)
            return
        if isinstance(found, ClaimAsFounder):
            taken = await self._election.first(agreement, found.founding, agreed)
            await self._lead(agreement, taken)
            return
        if distrust_reason(known, agreed) is None and agreed.insync is not None:
            await memory.remember_agreed(agreed)
        if agreed.lead is not None:
            self._vacancy.ends()
        if isinstance(found, FollowLeader):
            member.lacks, member.why = False, ""
            await self._follow_leader(found.lead.node, None, found.lead.epoch)
            await self._request_copy(found.lead.node, agreed.insync)
        elif isinstance(found, FollowUpstream):
            await self._follow_leader(found.upstream.node, found.upstream, None)
        elif isinstance(found, ClaimLead):
            taken = await self._election.vacant(agreement, policy, found.insync)
            await self._lead(agreement, taken)
        else:
            self._wait(found)

    async def _lead(self, agreement: Agreement, taken: AcquiredLead | None) -> None:
        """Lead, if a lead was taken, until that is over."""
        if taken is not None:
            self._vacancy.ends()
            await self._leader.lead(agreement, taken)

    def _wait(self, found: StayWaiting) -> None:
        """Wait. A leader that this node follows is still followed: it may lead without etcd."""
        member = self._member
        if not isinstance(member.role, Follower | Founder):
            member.become(Waiting())
        member.why, member.lacks = found.why, found.lacks
        if found.distrust_reason:
            self._warn_once("nobody leads until an operator names a node", found.why)
        elif found.lacks:
            self._warn_once("this node does not take the lead", found.why)

    def _note_leading(self) -> None:
        """Log the reasons of the next wait again: this node leads meanwhile."""
        self._said = None

    def _warn_once(self, event: str, why: str) -> None:
        """Log a warning, once for each new reason."""
        if self._said != why:
            self._said = why
            log.warning(event, why=why)

    # --- following --------------------------------------------------------------------------------

    async def _follow_upstream(self, cluster: ClusterState) -> None:
        """Follow the node that the store was copied from, while no policy is in force."""
        if cluster.upstream is None:
            self._wait(
                StayWaiting(
                    "no failover policy is in force, and the store was not copied from another node"
                )
            )
            return
        await self._follow_leader(cluster.upstream.node, cluster.upstream, None)
        await self._request_copy(cluster.upstream.node, None)

    async def _follow_leader(self, node: str, upstream: Upstream | None, epoch: int | None) -> None:
        member = self._member
        follow_task = member.follow_task
        if follow_task is not None and (follow_task.node, follow_task.epoch) == (node, epoch):
            return
        if self._copied_anew:
            # A new leader may hold the missing log and add this node to the ISR, and the next start
            # would drop the frames of an ISR member.
            return
        await stop_following(member)
        # Another leader releases or overwrites the unreleased frames.
        await self._committer.begin_following(
            NotWritable(f"node {node} leads the store", leader=[])
        )
        log.info("follows", leader=node, epoch=epoch)
        follows = self._ways.follow(node, upstream, epoch)
        member.become(Follower(FollowTask(node, epoch, follows)))
        self._said = None

    async def _request_copy(self, leader: str, insync: InSyncReplicas | None) -> None:
        """Have the store copied again, if the leader's log no longer holds frames that this node
        lacks.

        Cluster rule 2: no frame is dropped before this node is out of the ISR in etcd.
        """
        member = self._member
        if member.sync_status is not SyncStatus.COPY_FAILED or self._copied_anew:
            return
        if insync is not None and member.node in insync.members:
            self._warn_once(
                "the store has to be copied anew", "this node is still one of the in-sync replicas"
            )
            return
        self._copied_anew = await self._ways.copy_anew(leader)
        if not self._copied_anew:
            self._warn_once(
                "the store has to be copied anew", f"no address of node {leader} is known"
            )


def _never(_members: frozenset[str]) -> bool:
    """A statement has ordered this node to lead: it leaves the lead to no other."""
    return False
