"""The leader: from a lead that was taken in etcd to its end.

`LeaderRole` promises the epoch, writes the first frame, and steps down; `LeadHolder` holds the lead
meanwhile: it renews the lease, asks for ISR changes, and notices the end. Here are the requests and
timers; the decisions are in `leader_state.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from actors.cluster.election import AcquiredLead, Election, distrust_reason
from actors.cluster.failover_policy import commit_policy
from actors.cluster.leader_state import RENEWED_IN, Leadership, LeadLease
from actors.cluster.replica_senders import ReplicaSenders
from actors.cluster.role import NOT_COORDINATING, ClusterMember, Elected, Leader, Waiting
from actors.commits.committer import NODE, Committer
from actors.commits.tickets import Stall
from actors.execution.late_answers import end_reads, end_waits
from actors.runtime.tasks import end
from protocol.agreement import AgreedState, Agreement, LeaseLapsed, NotAnswered
from protocol.environment import Clock
from protocol.errors import Busy, DiskFull, NotWritable, Refusal, StatementTimeout
from protocol.failover import Policy
from storage.files.cluster_file import ClusterState
from storage.txn.tickets import CommitTicket

log = structlog.get_logger("cluster")

WATCH_SECONDS: Final = 10.0
"""Timeout of one watch request to etcd (s)."""
PAUSE_SECONDS: Final = 1.0
"""Pause after a watch that etcd did not answer (s)."""
WAITS_SECONDS: Final = 1.0
"""Interval of checking for commits that have waited too long (s)."""
STALLS_SECONDS: Final = 0.25
"""Interval of checking whether the commit index advances (s)."""
READS_SECONDS: Final = 3.0
"""Time (s), beside BEHIND, that a read waits for pending commits while nothing is released: after
an election, followers attach within moments."""
DECLARED_SECONDS: Final = 0.25
"""Interval of checking whether this node is still declared coordinating (s)."""
AGAIN_PART: Final = 20
"""An unanswered renewal is sent again after this fraction of the lease (1/n)."""
TOLD_SECONDS: Final = 60.0
"""Interval of publishing the commit index in etcd, without an urgent reason (s). Each publication
is a revision that etcd keeps until compaction. An etcd that was emptied has to grow past all of
them before any node leads."""


@dataclass(frozen=True, slots=True)
class LeaderHooks:
    """Functions of the rest of the node that a leader uses.

    :ivar reach: returns the etcd client of a policy
    :ivar began: called once the first frame of the epoch has a sequence
    :ivar serves: called with True or False when this node starts or stops to serve as leader
    :ivar compare: compares the states of the followers with this one
    """

    reach: Callable[[Policy], Agreement]
    began: Callable[[], None]
    serves: Callable[[bool], Awaitable[None]]
    compare: Callable[[], Coroutine[Any, Any, None]]


class LeaderRole:
    """On the loop only."""

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        member: ClusterMember,
        replica_senders: ReplicaSenders,
        election: Election,
        hooks: LeaderHooks,
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._replica_senders = replica_senders
        self._election = election
        self._hooks = hooks
        self.serves = asyncio.Event()
        """Set while this node leads and its first frame is released."""
        self.stops = False
        """True if the node is stopping: it takes no lead."""

    async def lead(self, agreement: Agreement, taken: AcquiredLead) -> None:
        """Lead, from the promise of the epoch to the end.

        :raises Refusal: a local fault prevents it; the lead is given back
        """
        policy, lease, agreed, by_order = taken
        lead, insync = agreed.lead, agreed.insync
        assert lead is not None and insync is not None, "it was taken with both"
        member, committer, follow_task = self._member, self._committer, self._member.follow_task
        # Cluster rule 2: the previous leader has been waited for already, while its lease lapsed.
        followed = {} if follow_task is None else {follow_task.node: follow_task.heard_us}
        self._replica_senders.end_all()
        # Frames of an older leader are on the disk or discarded: none is written after the promise.
        await stop_following(member)
        try:
            # Cluster rule 5: promised on the disk before the first frame is written.
            await self._memory.promise(lead.epoch)
            await self._memory.remember_agreed(agreed)
        except DiskFull:
            await self._election.give_back(agreement, lease)
            raise
        leadership = Leadership(
            self._clock, member.node, policy, lease, lead.epoch, insync,
            committer.commit_index, committer.release_more, followed, by_order,
        )  # fmt: skip
        leadership.rounds.say = self._replica_senders.hurry
        # An ISR member that is away, and was not seen to go, may come back on an older copy.
        leadership.on_published(agreed)
        if leadership.unpublished(committer.history()) is not None:
            leadership.publish_soon.set()
        member.lacks = False
        member.become(Elected(leadership))
        committer.releasable = leadership.releasable
        try:
            why = await self._hold(leadership)
        except Refusal as refusal:  # the node stops, or its disk is full
            await self.step_down(leadership, refusal.message)
            await self._election.give_up(agreement, leadership)
            raise
        await self.step_down(leadership, why)
        if leadership.resigns:
            await self._election.give_up(self._hooks.reach(leadership.policy), leadership)

    async def _hold(self, leadership: Leadership) -> str:
        """Lead from the first frame on. Return the reason for the end.

        :raises Refusal: a local fault prevents it
        """
        member, committer = self._member, self._committer
        # Cluster rule 7: a frame of its own epoch precedes all that it commits.
        own = await committer.begin_leading(leadership.epoch)
        member.read_rows()
        policy = member.policy
        if policy is not None:
            leadership.adopt(policy._replace(acks=0) if leadership.by_order else policy)
        member.become(Leader(leadership))
        self._hooks.began()
        leadership.begun(own.sequence)
        members = sorted(leadership.leading.members)
        log.info("leads", epoch=leadership.epoch, own=own.sequence, insync=members)
        holding = LeadHolder(
            self._clock, committer, member, lambda: self._hooks.reach(leadership.policy),
            leadership, self._on_settled, self._hooks.compare,
        )  # fmt: skip
        return await holding.hold_until_over(own)

    async def _on_settled(self) -> None:
        """Start to serve: every frame ever released is shown here."""
        leadership, kept = self._member.leadership, self._member.policy
        if leadership is not None and leadership.by_order and leadership.policy != kept:
            # A new lineage: commit the policy with ACKS 0, so that a follower that is elected later
            # goes by it too.
            commit_policy(self._committer, self._member, leadership.policy, NODE)
        self.serves.set()
        await self._hooks.serves(True)

    async def step_down(self, leadership: Leadership, why: str) -> None:
        """Stop leading: another node leads, or may. No unreleased commit is answered any more."""
        member, committer = self._member, self._committer
        say = log.info if self.stops else log.warning
        say("leads no more", epoch=leadership.epoch, why=why)
        member.why = why
        member.become(Waiting())
        leadership.rounds.end(Busy(f"this node no longer leads: {why}"))
        shown = committer.commit_index
        # Syncs and acknowledgements that still arrive must release nothing by the old ISR.
        committer.releasable = lambda _durable: shown
        self.serves.clear()
        self._replica_senders.end_all()
        # Another leader releases or overwrites the unreleased frames.
        await committer.begin_following(NotWritable(why, leader=[]))
        await self._hooks.serves(False)


async def stop_following(member: ClusterMember) -> None:
    """End the follow task of this node, if there is one."""
    follow_task = member.follow_task
    # The role changes before the await: no request may use a task that is ending.
    member.become(Waiting())
    if follow_task is not None:
        await follow_task.end()


class _Known(NamedTuple):
    """Newest known state of etcd, taken before a request."""

    memory: ClusterState
    """This node's memory of it, as in the file CLUSTER."""
    insync: int
    """Revision of the ISR. No other node changes it while this node leads."""


class LeadHolder:
    """Holds one lead. On the loop only.

    :param agreement: returns the etcd client, which a new policy may have changed
    :param settled: called once the first frame of the epoch is released
    :param compare: compares the states of the followers with this one, after that
    """

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        member: ClusterMember,
        agreement: Callable[[], Agreement],
        leadership: Leadership,
        settled: Callable[[], Awaitable[None]],
        compare: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._agreement = agreement
        self._leadership = leadership
        self._on_settled = settled
        self._compare = compare
        self._seen = 0
        """Revision of etcd that the watch returned last."""
        self._published_us = clock.boottime_us()
        """Boot time (µs) at which the commit index was last published."""
        self._released, self._since_us = committer.commit_index, clock.monotonic_us()
        """Commit index, and the monotonic time since which it lags behind this disk (µs)."""
        self._silent = False
        """True if the silence of etcd was logged."""

    async def hold_until_over(self, own: CommitTicket) -> str:
        """Hold the lead. Return the reason for its end.

        :param own: ticket of the first frame of the epoch
        :raises Refusal: that frame can't be written: another node should lead
        """
        try:
            return await _first(
                self._renew(), self._request_isr_changes(), self._watch(),
                self._wait_for_first_release(own), self._watch_declaration(), self._end_waits(),
                self._report_stalls(),
            )  # fmt: skip
        finally:
            self._committer.stall = None

    async def _wait_for_first_release(self, own: CommitTicket) -> str:
        """Serve from the release of the first frame on.

        :raises Refusal: the frame was rolled back, as on a full disk
        """
        await self._committer.released(own)
        # Once etcd has this frame, a member whose older directory lacks it can't be elected.
        self._leadership.publish_soon.set()
        await self._on_settled()
        await self._compare()
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def _watch_declaration(self) -> str:
        """Cluster rule 8: lead while this node is declared coordinating. Before giving up, release
        all commits, including the one that changes the declaration."""
        member, committer = self._member, self._committer
        while not self._leadership.resigns or committer.commit_index < committer.committed:
            await asyncio.sleep(DECLARED_SECONDS)
            member.read_rows()
            self._leadership.resigns = not member.coordinates
        return NOT_COORDINATING

    async def _end_waits(self) -> str:
        """Cluster rule 1: commits that can't be released, for want of followers or etcd, stay
        pending. Their waiters get UnknownOutcome after a timeout."""
        committer, marks = self._committer, deque[tuple[int, int]]()
        committed = 0
        while True:
            await asyncio.sleep(WAITS_SECONDS)
            seconds = self._leadership.policy.release_seconds
            now_us = self._clock.monotonic_us()
            began_us = now_us - int(seconds * 1_000_000)
            # One mark a second: the newest one before `began_us` shows which commits are overdue.
            marks.append((now_us, committer.committed))
            while marks[0][0] <= began_us:
                committed = marks.popleft()[1]
            if committed > committer.commit_index:
                why = f"the followers did not acknowledge it within {seconds:.0f} s"
                end_waits(committer, committed, began_us, StatementTimeout(why))

    async def _report_stalls(self) -> str:
        """Report stalls: while nothing is released, readers need not wait for pending commits."""
        committer, leadership = self._committer, self._leadership
        while True:
            await asyncio.sleep(STALLS_SECONDS)
            before = leadership.stalled
            found = leadership.update_stall(
                self._member.nodes, self._member.name_of, is_late=self._is_late()
            )
            if found is not None:
                committer.stall = Stall(shows_all=leadership.is_settled)
                waits_us = leadership.policy.behind_us + int(READS_SECONDS * 1_000_000)
                end_reads(committer, self._clock.monotonic_us() - waits_us, found.refusal())
                if before is None:
                    log.warning("releases nothing", waits_for=found.why)
            elif before is not None:
                committer.stall = None
                log.info("releases again")

    def _is_late(self) -> bool:
        """True if frames have been on this disk, unreleased, for longer than removing a silent
        member takes."""
        committer, now_us = self._committer, self._clock.monotonic_us()
        released = committer.commit_index
        # Any progress restarts the time. Too few followers is a stall with a cause of its own.
        lacks_none = committer.synced_seq <= released
        if released != self._released or lacks_none or self._leadership.lacks_followers:
            self._released, self._since_us = released, now_us
        behind_us = self._leadership.policy.behind_us
        # BEHIND until a member counts as silent, and as much again for its removal in etcd.
        return now_us - self._since_us > 2 * behind_us + int(WAITS_SECONDS * 1_000_000)

    def _warn_of_silence(self, what: str, why: str) -> None:
        """Log a warning, once for each silence of etcd."""
        if not self._silent:
            self._silent = True
            log.warning(what, why=why)

    async def _renew(self) -> str:
        """Cluster rule 4: renew at a third of the lease, on the boot-time clock; the deadline
        counts from the sending. Cluster rule 9: publish the commit index with the renewal."""
        soon = self._leadership.publish_soon
        while True:
            lease = self._leadership.lease
            wait_us = lease.renew_us - self._clock.boottime_us()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait_us, 0) / 1_000_000):
                    await soon.wait()
            at_once = soon.is_set()
            # Cleared before the request: a reason that comes during it causes another publication.
            soon.clear()
            known = self._known
            sent_us = self._clock.boottime_us()
            try:
                # Bounded, so that a lost answer leaves time for another attempt within the lease.
                async with asyncio.timeout(lease.seconds / RENEWED_IN):
                    if lease.is_over(sent_us):
                        # Renew only if etcd can be heard. If requests arrive and answers are lost,
                        # renewals would keep the lease, and other nodes from leading, in vain.
                        await self._agreement().read()
                        sent_us = self._clock.boottime_us()
                    agreed = await self._renewed(lease, at_once)
            except LeaseLapsed:
                return "its lease has expired"
            except (NotAnswered, TimeoutError) as silence:
                self._warn_of_silence(
                    "the lease was not renewed", str(silence) or "etcd does not answer"
                )
                await asyncio.sleep(lease.seconds / AGAIN_PART)
                if at_once:
                    soon.set()
            else:
                why = await self._end_reason(known, agreed)
                if why is not None:
                    return why
                # Only a trusted answer that still names this lead extends the deadline.
                self._leadership.lease, self._silent = lease.renewed(sent_us), False
                self._leadership.on_published(agreed)

    async def _renewed(self, lease: LeadLease, at_once: bool) -> AgreedState:
        """Renew the lease and return the state in etcd.

        A partitioned etcd leader answers a renewal by itself. So a quorum is asked too, and only
        that answer proves that the lease is valid. Both requests go out together, so that a slow
        etcd disk has the full time for each.
        """
        renewing = asyncio.ensure_future(self._agreement().renew(lease.id))
        telling = asyncio.ensure_future(self._publish_commit_index(at_once))
        try:
            await asyncio.gather(renewing, telling)  # retrieves the exceptions of both
            return telling.result()
        finally:
            await end(renewing, telling)

    async def _publish_commit_index(self, at_once: bool) -> AgreedState:
        """Return the state in etcd; if due, publish the commit index in the same request."""
        released = self._leadership.unpublished(self._committer.history())
        now_us = self._clock.boottime_us()
        is_due = at_once or now_us - self._published_us >= TOLD_SECONDS * 1_000_000
        if released is None or not is_due:
            return await self._agreement().read()
        answer = await self._agreement().report_released(self._leadership.epoch, released)
        self._published_us = now_us
        return answer.agreed

    async def _request_isr_changes(self) -> str:
        """Cluster rule 2: ask for ISR changes. A silent member is removed in etcd before anything
        is released without it; a node that holds everything is added."""
        while True:
            look_s = self._leadership.policy.behind_us / 4_000_000  # the policy may change
            asked = self._leadership.asks(self._member.nodes)
            if asked is None:
                self._leadership.news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(look_s):
                        await self._leadership.news.wait()
                continue
            revision, members = asked
            known = self._known
            try:
                answer = await self._agreement().change(self._leadership.epoch, revision, members)
            except NotAnswered as silence:
                # The change stays under way: reading the ISR settles nothing, for the request may
                # still arrive.
                self._warn_of_silence(
                    "a change of the in-sync replicas was not answered", str(silence)
                )
                await asyncio.sleep(look_s)
                continue
            why = await self._end_reason(known, answer.agreed)
            if why is not None:
                return why
            if not self._leadership.on_answer(answer):
                return "another node leads"
            insync = self._leadership.leading.insync
            log.info("in sync", members=sorted(insync.members), done=answer.done)
            with suppress(DiskFull):  # the next change that is saved includes this one
                await self._memory.remember_agreed(answer.agreed)

    async def _watch(self) -> str:
        """Watch etcd for another leader."""
        while True:
            known = self._known
            try:
                agreed = await self._agreement().changed(self._seen, WATCH_SECONDS)
            except NotAnswered:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._seen = agreed.revision
            why = await self._end_reason(known, agreed)
            if why is not None:
                return why

    # --- what etcd answers ------------------------------------------------------------------------

    @property
    def _known(self) -> _Known:
        """Take it before a request: the answer may be overtaken by that to another request."""
        return _Known(self._memory.now, self._leadership.leading.insync.revision)

    async def _end_reason(self, known: _Known, agreed: AgreedState) -> str | None:
        """Return the reason why the leadership is over by an answer of etcd; None: it goes on.

        :param known: taken before the request
        """
        why = distrust_reason(known.memory, agreed)
        if why is not None:
            return why
        if agreed.lead is None:
            return "its lease has expired"
        if agreed.lead.epoch != self._leadership.epoch:
            return "another node leads"
        insync = agreed.insync
        if insync is None or insync.revision < known.insync:
            # It was set back, and its revision has since grown past the one seen.
            with suppress(DiskFull):
                await self._memory.doubts()
            return f"etcd was set back: its in-sync replicas are of before revision {known.insync}"
        # Only a trusted answer may raise the revision that later answers are compared with.
        self._memory.note_revision(agreed)
        return None


async def _first(*ways: Coroutine[Any, Any, str]) -> str:
    """Return the result of the first coroutine that ends, and cancel the others."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Several may end at once: the order of the arguments decides.
        return next(task.result() for task in tasks if task in done)
    finally:
        await end(*tasks)
