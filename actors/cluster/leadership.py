"""Leadership of this node, from election to end: its commit index, followers and requested ISR.

The decisions are pure functions in `leader_state.py` and `followers.py`; this class feeds them
events and holds their state. It is used from `begun` until another node leads, and never again
after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from actors.cluster.followers import Followers, recent_isr_followers, wanted
from actors.cluster.following import EpochHistory, frame_at
from actors.cluster.leader_state import Deposed, LeaderState
from actors.cluster.lease import LeadLease
from actors.cluster.read_index import ReadIndexRounds
from actors.cluster.stalls import StallCause, stall
from protocol.agreement import AgreedState, CompareAndSetResult, InSyncReplicas, ReleasedFrame
from protocol.environment import Clock
from protocol.errors import BadRequest, NotEnoughReplicas
from protocol.failover import Policy

log = structlog.get_logger("cluster")

_NOT_BEGUN: Final = 1 << 62
"""Sequence above that of every frame."""
_UNKNOWN: Final = 1 << 30
"""Number above that of all followers: no member leaves the ISR before the remaining ones have the
policy."""


class Leadership:
    """On the loop only.

    :param lease: lease of the lead
    :param released: last frame shown here
    :param changed: called when the commit index may advance
    :param followed: the node that this node followed so far, with the monotonic time of its last
        message (µs)
    :param by_order: True if it begins a lineage, with this node alone
    """

    def __init__(
        self,
        clock: Clock,
        node: str,
        policy: Policy,
        lease: LeadLease,
        epoch: int,
        insync: InSyncReplicas,
        released: int,
        changed: Callable[[], None],
        followed: Mapping[str, int],
        by_order: bool,
    ) -> None:
        self._clock = clock
        self.policy = policy
        self.lease = lease
        # Nothing is released until its own first frame has a sequence: see `begun`.
        self._leading = LeaderState(
            node, epoch, policy.acks, insync, own=_NOT_BEGUN, released=released
        )
        self._policies: list[tuple[Policy, int, int]] = []
        """Earlier policies of this leadership, oldest first."""
        self._changed = changed
        self.by_order = by_order
        others = self._leading.members - {node}
        self.followers = Followers.begun(others, clock.monotonic_us(), followed, policy.behind_us)
        self.news = asyncio.Event()
        """Set when there may be an ISR change to ask for."""
        self.rounds = ReadIndexRounds(lambda: self._leading.waited_for - {node})
        self.publish_soon = asyncio.Event()
        """Set when the commit index should be published in etcd before the next renewal is due."""
        self._published: ReleasedFrame | None = None
        """Published commit index, as last read from etcd."""
        self._unwanted: list[tuple[frozenset[str], Callable[[], bool]]] = []
        """Nodes kept out of the ISR, each with a function that returns True when that ends."""
        self.stalled: StallCause | None = None
        """Reason why nothing is released, as of the last check; None: no stall."""
        self.resigns = False
        """True if the lead is given up once all commits are released; no more are accepted."""

    # --- what it is -------------------------------------------------------------------------------

    @property
    def leading(self) -> LeaderState:
        """Current leader state."""
        return self._leading

    @property
    def epoch(self) -> int:
        """Leader epoch."""
        return self._leading.epoch

    @property
    def own(self) -> int | None:
        """Sequence of the first frame of its epoch; None: not written yet."""
        own = self._leading.own
        return None if own == _NOT_BEGUN else own

    @property
    def is_settled(self) -> bool:
        """True if the first frame of its epoch is released."""
        return self._leading.is_settled

    @property
    def may_be_over(self) -> bool:
        """True if the lease is over, so that another node may lead: reads go on, commits are
        refused."""
        return self.lease.is_over(self._clock.boottime_us())

    def check_replicated(self) -> None:
        """Cluster rule 1: check that enough followers are recent for a commit to be released.

        :raises NotEnoughReplicas: fewer than ACKS
        """
        found = self._replicating(self.policy)
        if found < self.policy.acks:
            raise NotEnoughReplicas(
                f"only {found} of the followers in sync have answered recently, but ACKS is"
                f" {self.policy.acks}: nothing was written. INFO FOR NODE shows which are missing",
                followers=found,
                acks=self.policy.acks,
            )

    @property
    def lacks_followers(self) -> bool:
        """True if too few followers are recent for a new commit to be released."""
        return not self.has_enough_followers(self.policy)

    def update_stall(
        self, trusted: frozenset[str], name: Callable[[str], str], *, is_late: bool
    ) -> StallCause | None:
        """Update and return `stalled`.

        :param trusted, name, is_late: as for `stalls.stall`
        """
        recent = self.followers.recent(self._clock.monotonic_us(), self.policy.behind_us)
        self.stalled = stall(self._leading, self.policy, recent, trusted, name, is_late=is_late)
        return self.stalled

    def check_removable(self, nodes: frozenset[str]) -> None:
        """Check that the given nodes may leave the ISR.

        :raises NotEnoughReplicas: the rest would be too small
        :raises BadRequest: this node is one of them
        """
        if self._leading.node in nodes:
            raise BadRequest(
                "the leader cannot be dropped: stop this node, and drop it once another leads"
            )
        left = self._leading.members - nodes
        if len(left) < 1 + self.policy.acks and left != self._leading.members:
            raise NotEnoughReplicas(
                f"only {len(left) - 1} followers would be left in sync, but ACKS is"
                f" {self.policy.acks}: wait until another follower is in sync, or DEFINE FAILOVER"
                " with fewer ACKS",
                followers=len(left) - 1,
                acks=self.policy.acks,
            )

    def adopt(self, policy: Policy) -> None:
        """Use the policy of this log, released or not, because the previous leader may have used
        it. Called before anything is released."""
        self.policy = policy
        self._leading = replace(self._leading, acks=policy.acks)

    def amend(self, policy: Policy) -> Callable[[], None]:
        """Use another policy; return a function that restores the one before. The lease keeps its
        length until the next election.

        If ACKS decreases, the ISR does not shrink that far before all remaining members have the
        policy in their logs (`amended`). Any of them may lead next; under the old policy it could
        never release anything.

        :raises NotEnoughReplicas: the ISR is too small for it
        """
        found = self._leading.fewest - 1
        if found < policy.acks:
            raise NotEnoughReplicas(
                f"only {found} followers are in sync, but ACKS would be {policy.acks}: INFO FOR"
                " NODE shows the status of each",
                followers=found,
                acks=policy.acks,
            )
        leading, depth = self._leading, len(self._policies)
        self._policies.append((self.policy, leading.acks_before, leading.amended))
        # Once its first frame is released, all members have its present policy in their logs.
        before_it = 0 if leading.is_settled else leading.acks_before
        # No log holds the policy yet: `amended` sets its sequence after the commit.
        self._use_policy(policy, max(leading.acks, before_it), _NOT_BEGUN)

        def restore_policy() -> None:
            if len(self._policies) > depth:  # else an earlier one was rolled back, and this with it
                before = self._policies[depth]
                del self._policies[depth:]
                self._use_policy(*before)

        return restore_policy

    def _use_policy(self, policy: Policy, acks_before: int, amended: int) -> None:
        self.policy = policy
        self._leading = replace(
            self._leading, acks=policy.acks, acks_before=acks_before, amended=amended
        )
        self._changed()

    def has_enough_followers(self, policy: Policy) -> bool:
        """True if enough followers are recent for a policy."""
        return self._replicating(policy) >= policy.acks

    def _replicating(self, policy: Policy) -> int:
        now_us = self._clock.monotonic_us()
        return recent_isr_followers(self._leading, self.followers, now_us, policy.behind_us)

    def amended(self, sequence: int) -> None:
        """Note the frame that holds the policy in use."""
        self._leading = replace(self._leading, amended=sequence)
        self.news.set()

    # --- what it releases -------------------------------------------------------------------------

    def begun(self, own: int) -> None:
        """Note the first frame of the epoch.

        A node that holds it has this leader's policy in its log. Of other nodes that is unknown, as
        are the policies of earlier leaders.
        """
        self._leading = replace(self._leading, own=own, acks_before=_UNKNOWN, amended=own)
        self._changed()

    def releasable(self, durable: int) -> int:
        """Advance the commit index and return it; the committer calls this.

        :param durable: last frame synced on this disk
        """
        self._leading = self._leading.on_synced(durable).release()
        return self._leading.released

    def unpublished(self, history: EpochHistory) -> ReleasedFrame | None:
        """Return the commit index to publish in etcd; None: it is published already.

        :param history: epoch history of this node's log
        """
        released = frame_at(history, self._leading.released)
        return None if released == self._published else released

    def on_published(self, agreed: AgreedState) -> None:
        """Note the published commit index in an answer of etcd."""
        self._published = agreed.released

    # --- whom it hears ----------------------------------------------------------------------------

    def attached(self, node: str, agree: int) -> None:
        """Note that a follower has attached.

        :param agree: last frame that both logs share
        """
        self._leading = self._leading.attached(node, agree)
        self.followers = self.followers.attached(node, agree, self._clock.monotonic_us())
        if self._leading.has_gone_back(node):
            # Commits that it had acknowledged are released, and can't be rolled back. The commit
            # index in etcd bars it from the lead until it holds them again, in the ISR or out.
            released = self._leading.released
            log.error(
                "a member of the set lacks what was released",
                node=node, holds=agree, released=released,
                why="an older copy of its directory was put back, or its disk has lost writes",
            )  # fmt: skip
            self.publish_soon.set()
        self._changed()
        self.news.set()

    def on_report(self, node: str, synced: int, applied: int, heard_us: int) -> None:
        """Note a follower's progress report.

        :param heard_us: monotonic time since which it owes nothing. A follower that answers but
            syncs nothing counts as silent
        """
        self._leading = self._leading.on_report(node, synced)
        before = self.followers
        self.followers = before.on_report(node, synced, applied, heard_us)
        self._changed()
        # A report wakes the ISR check only for a node outside: it may now be eligible. Members are
        # checked on a timer (`holding.py`).
        if node not in self._leading.members:
            self.news.set()

    def left(self, node: str) -> None:
        """Note that a follower has detached."""
        self.followers = self.followers.left(node)
        if node in self._leading.members:
            # Nothing that it has not acknowledged is released until it is back, or out of the ISR.
            # So an older copy of its directory will lack the commit index published here.
            self.publish_soon.set()

    # --- shrinking and expanding the ISR ----------------------------------------------------------

    def keep_out_of_isr(self, nodes: frozenset[str], is_over: Callable[[], bool]) -> None:
        """Cluster rule 2: remove nodes from the ISR, and keep them out until their rows are gone or
        their certificates revoked.

        :param is_over: returns True when the statement that removes them has ended. If it was
            committed, they no longer belong to the cluster from that moment; otherwise they may
            rejoin
        """
        self._unwanted.append((nodes, is_over))
        self.news.set()

    def _eligible_nodes(self, trusted: frozenset[str]) -> frozenset[str]:
        """Return the nodes of the cluster that no statement is removing."""
        self._unwanted = [one for one in self._unwanted if not one[1]()]
        return trusted.difference(*(nodes for nodes, _ in self._unwanted))

    def asks(self, trusted: frozenset[str]) -> tuple[int, frozenset[str]] | None:
        """Return the ISR to ask for, and the revision it is conditional on; None: no change.

        :param trusted: nodes of the cluster: `ClusterMember.nodes`
        """
        leading = self._leading
        trusted = self._eligible_nodes(trusted)
        if leading.asked is not None:
            # Cluster rule 2: the last change is unanswered. It stays under way, and old and new ISR
            # are waited for, until a later write is answered.
            return leading.insync.revision, leading.again
        members = wanted(
            leading, self.followers, trusted, self._clock.monotonic_us(),
            self.policy.behind_us,
        )  # fmt: skip
        if members is None:
            return None
        self._leading = leading.asks(members)
        return leading.insync.revision, members

    def on_answer(self, answer: CompareAndSetResult) -> bool:
        """Handle the answer to the last ISR change. False: this node no longer leads."""
        found = self._leading.on_answer(answer)
        if isinstance(found, Deposed):
            return False
        self._leading = found
        self._changed()
        self.rounds.complete_rounds()
        return True
