"""Leader state: the commit index and ISR changes. Immutable; each event returns a new value.

- A frame is released when it is synced here and acknowledged by all waited-for nodes, and only
  while the ISR has at least ACKS followers (commit index, Raft §5.3; ISR, Kafka).
- A member that is silent for too long is asked out of the ISR (shrink). Nothing is released without
  it before etcd has answered.
- A follower that holds every frame ever released is asked into the ISR (expand). After the leader's
  own first frame, that is every frame up to the commit index; before, every frame up to that first
  one.
- A member that holds less than the commit index runs on an older copy of its directory. It is asked
  out of the ISR, and rejoins as others do.
- Of a follower that has gone only the released frames count: it may come back on an older copy.
- While a change is unanswered, the members of the old and of the new ISR are waited for (the
  maximal ISR of KIP-497), and the old ISR is asked for. An answer to that settles which of both was
  written.
- Nothing counts as released before the leader's first frame of its own epoch is (Raft §5.4.2, §8).
- A leader that learns of another leader, or of a vacant lead, is deposed.

Followers: of each, the acknowledged frames and the last contact. `wanted` decides from it if the
leader asks to shrink or to expand the ISR.

Lease of the lead: the time for which the leader may assume that it still leads (Gray & Cheriton
1989). etcd counts from the arrival of a renewal, which is later than its sending. The deadline here
counts from the sending, less a tenth for clock drift. So it is over before another node can take
the lead.

Stalls: why a leader's commit index does not advance, as text with the remedy.

| held up by | meaning |
|---|---|
| followers | fewer than ACKS followers are recent: writes are refused |
| etcd | an ISR member is silent, and etcd, which has to remove it, does not answer |
| leader | this node knows of no leader |

`Leadership` feeds events to these pure values and holds them, from the election to the end. It is
never used again after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import structlog

from actors.cluster.log_matching import EpochHistory, frame_at
from actors.cluster.read_index import ReadIndexRounds
from protocol.agreement import AgreedState, CompareAndSetResult, InSyncReplicas, ReleasedFrame
from protocol.environment import Clock
from protocol.errors import BadRequest, NotEnoughReplicas
from protocol.failover import Policy
from protocol.requests import HeldUp

# --- commit index and ISR -------------------------------------------------------------------------


def may_take(agreed: AgreedState, node: str) -> bool:
    """True if a node may take the lead by the state in etcd: the lead is vacant, and the ISR has
    the node. The transaction compares the ISR again."""
    return agreed.lead is None and agreed.insync is not None and node in agreed.insync.members


class Deposed(Enum):
    """This node no longer leads, or can't know that it does."""

    DEPOSED = "deposed"


DEPOSED: Final = Deposed.DEPOSED


@dataclass(frozen=True, slots=True)
class LeaderState:
    """State of one leadership, from its first frame on."""

    node: str
    """Id of this node, made with its directory."""
    epoch: int
    acks: int
    """Number of followers that must hold each released frame."""
    insync: InSyncReplicas
    """The ISR, as etcd last answered."""
    own: int
    """Sequence of the first frame of this epoch."""
    synced: int = 0
    """Last frame synced on this disk."""
    held: tuple[tuple[str, int], ...] = ()
    """Last frame that each follower has acknowledged to this leader."""
    asked: frozenset[str] | None = None
    """The ISR of an unanswered change."""
    released: int = 0
    """Commit index: the last frame that this leader has released."""
    acks_before: int = 0
    """ACKS of an earlier policy, at least …"""
    amended: int = 0
    """… which counts for nodes without this frame: the newest policy is in it or before it."""

    # --- what it may release ----------------------------------------------------------------------

    @property
    def members(self) -> frozenset[str]:
        """The ISR, this node included."""
        return self.insync.members | {self.node}

    @property
    def waited_for(self) -> frozenset[str]:
        """Nodes that have to hold a frame before its release: those of the old and the new ISR
        while a change is unanswered, since the next leader may come from either."""
        return self.members | (self.asked or frozenset())

    @property
    def fewest(self) -> int:
        """Smallest possible size of the ISR: an unanswered change may be in force."""
        return min(len(self.members), len(self.asked or self.members))

    @property
    def is_enough(self) -> bool:
        """True if the ISR has ACKS followers. Checked again at release, since members may have left
        after the commit."""
        return len(self.members) >= 1 + self.acks

    @property
    def releasable(self) -> int:
        """Highest frame that may be released now."""
        if not self.is_enough:
            return self.released
        acknowledged = dict(self.held)
        # A member that has not attached to this leader counts as holding nothing.
        others = (acknowledged.get(each, 0) for each in self.waited_for if each != self.node)
        upto = min([self.synced, *others])
        # Raft §5.4.2: the commit index of earlier leaders is not known here. The release of its own
        # first frame releases every frame before it.
        return max(self.released, upto) if upto >= self.own else self.released

    @property
    def is_settled(self) -> bool:
        """True if its own first frame is released: it knows the commit index, and may serve
        linearizable reads."""
        return self.released >= self.own

    # --- what it hears ----------------------------------------------------------------------------

    def on_synced(self, sequence: int) -> LeaderState:
        """Note that all frames up to one are synced here."""
        return replace(self, synced=max(self.synced, sequence))

    def on_report(self, follower: str, sequence: int) -> LeaderState:
        """Note that a follower has synced all frames up to one of this log."""
        known = dict(self.held)
        known[follower] = max(known.get(follower, 0), sequence)
        return replace(self, held=tuple(sorted(known.items())))

    def attached(self, follower: str, sequence: int) -> LeaderState:
        """Note that a follower has attached, and up to which frame both logs agree. Drops its
        earlier acknowledgements."""
        # Not the maximum: a truncated log, or an older copy, may hold less than it acknowledged.
        known = dict(self.held) | {follower: sequence}
        return replace(self, held=tuple(sorted(known.items())))

    def left(self, follower: str) -> LeaderState:
        """Note that a follower has gone. Frames that it acknowledged, and that are not released
        yet, no longer count."""
        # It may come back on an older copy of its directory. By the released frames, published in
        # etcd when it goes, such a copy is kept from the lead (cluster rule 9); nothing protects
        # frames released later on the word of a disk that may be gone.
        known = dict(self.held)
        if known.get(follower, 0) <= self.released:
            return self
        known[follower] = self.released
        return replace(self, held=tuple(sorted(known.items())))

    def release(self) -> LeaderState:
        """Advance the commit index as far as allowed."""
        return replace(self, released=self.releasable)

    # --- shrinking and expanding the ISR ----------------------------------------------------------

    def may_add(self, follower: str) -> bool:
        """True if a follower may be asked into the ISR: it holds every frame ever released.

        A new leader does not know the commit index. But it held all released frames before its own
        first one, and so does each follower that holds that frame. So a returning follower can
        restore the ISR's size when another member that would have to hold that frame is gone.
        """
        holds_all = dict(self.held).get(follower, -1) >= max(self.released, self.own)
        return self.asked is None and follower not in self.members and holds_all

    def has_gone_back(self, member: str) -> bool:
        """True if a member reports less than the commit index.

        Nothing is released without it, so it did hold those frames: its directory is an older copy.
        """
        held = dict(self.held).get(member)
        return member in self.insync.members and held is not None and held < self.released

    def may_remove(self, *gone: str) -> bool:
        """True if the given members may be asked out of the ISR.

        A smaller ISR than ACKS demands could release nothing, and any remaining member may have to
        lead.
        """
        left = self.members.difference(gone)
        are_others = bool(gone) and self.node in left and self.members.issuperset(gone)
        # A remaining member without the newest policy would lead by an earlier one, with its ACKS.
        least = self.acks if self._all_know(left) else max(self.acks, self.acks_before)
        return self.asked is None and are_others and len(left) >= 1 + least

    def _all_know(self, nodes: frozenset[str]) -> bool:
        """True if all given nodes have the present policy in their logs."""
        held = dict(self.held) | {self.node: self.synced}
        return all(held.get(node, 0) >= self.amended for node in nodes)

    def changes(self) -> Iterator[frozenset[str]]:
        """Yield each ISR that may be asked for now, from the followers heard of."""
        for follower, _ in self.held:
            if self.may_add(follower):
                yield self.members | {follower}
        for member in sorted(self.members):
            if self.may_remove(member):
                yield self.members - {member}

    def asks(self, members: frozenset[str]) -> LeaderState:
        """Note that an ISR was asked for, conditional on `epoch` and `insync.revision`."""
        assert self.asked is None, "a change is under way"
        return replace(self, asked=members)

    @property
    def again(self) -> frozenset[str]:
        """The ISR to ask for when an answer is missing: the old one. After either write, the other
        one is refused. Reading the ISR settles nothing, because the first request may still arrive.
        """
        return self.members

    def on_answer(self, answer: CompareAndSetResult) -> LeaderState | Deposed:
        """Handle the answer to the newest change, done or refused. Answers to earlier changes are
        not awaited."""
        agreed = answer.agreed
        if agreed.lead is None or agreed.lead.epoch != self.epoch or agreed.insync is None:
            return DEPOSED
        # Done or refused, it is settled: all requests name one revision, so just one was written.
        return replace(self, insync=agreed.insync, asked=None)


# --- followers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FollowerProgress:
    """Progress of one follower, by its last message."""

    synced: int
    """Last frame synced on its disk."""
    applied: int
    """Last frame that it shows."""
    heard_us: int
    """Time of that message on the monotonic clock (µs)."""
    linked: bool = True
    """True while it is attached."""


ATTACHES_US: Final = 500_000
"""Time (µs) that the previous leader has to attach to this one, however long it has been silent. It
may have given up its lead, and then had no link here."""
_NOBODY: Final = FollowerProgress(0, 0, 0, linked=False)


@dataclass(frozen=True, slots=True)
class Followers:
    """All followers that have attached to this leader, by node id."""

    by_node: Mapping[str, FollowerProgress] = field(default_factory=dict)

    @classmethod
    def begun(
        cls, members: frozenset[str], now_us: int, followed: Mapping[str, int], behind_us: int
    ) -> Followers:
        """Return the followers of a new leadership: each ISR member counts as heard just now.

        :param followed: the leader that this node followed, with the time of its last message. It
            is most likely gone, and was waited for while its lease lapsed. So it has only
            `ATTACHES_US` left
        """
        # No member begins with a longer silence: each has `ATTACHES_US`, or a shorter BEHIND.
        earliest_us = now_us - max(behind_us - ATTACHES_US, 0)

        def heard_us(node: str) -> int:
            return max(followed.get(node, now_us), earliest_us)

        return cls({node: FollowerProgress(0, 0, heard_us(node), linked=False) for node in members})

    def attached(self, node: str, agree: int, now_us: int) -> Followers:
        """Note that a follower has attached, again or for the first time; earlier reports are
        dropped.

        :param agree: last frame that both logs share
        """
        # Its first report says which frames it shows: until then it counts as showing none.
        return self._with(node, FollowerProgress(agree, 0, now_us))

    def on_report(self, node: str, synced: int, applied: int, now_us: int) -> Followers:
        """Note a follower's progress report."""
        return self._with(node, FollowerProgress(synced, applied, now_us))

    def left(self, node: str) -> Followers:
        """Note that a follower has detached. Its last reports stay: `LeaderState.left` decides
        which of its frames count."""
        found = self.by_node.get(node)
        return self if found is None else self._with(node, replace(found, linked=False))

    def recent(self, now_us: int, behind_us: int) -> frozenset[str]:
        """Return the nodes with a message within `behind_us`, attached or not."""
        return frozenset(
            node for node, one in self.by_node.items() if now_us - one.heard_us <= behind_us
        )

    @property
    def linked(self) -> frozenset[str]:
        """Nodes that are attached."""
        return frozenset(node for node, one in self.by_node.items() if one.linked)

    def holding(self, upto: int) -> frozenset[str]:
        """Return the nodes that have synced all frames up to one."""
        return frozenset(node for node, one in self.by_node.items() if one.synced >= upto)

    def held_by(self, nodes: frozenset[str], upto: int) -> int:
        """Return the last frame, at most `upto`, that all given nodes have synced."""
        return min([upto, *(self._of(node).synced for node in nodes)])

    def shown_by(self, nodes: frozenset[str], upto: int) -> bool:
        """True if all given nodes show all frames up to one."""
        return all(self._of(node).applied >= upto for node in nodes)

    def furthest_lag(self, committed: int) -> int | None:
        """Return the largest lag of an attached follower, in commits; None: none is attached."""
        lags = [committed - one.synced for one in self.by_node.values() if one.linked]
        return max(0, *lags) if lags else None

    def _of(self, node: str) -> FollowerProgress:
        return self.by_node.get(node, _NOBODY)

    def _with(self, node: str, one: FollowerProgress) -> Followers:
        return Followers({**self.by_node, node: one})


def wanted(
    leading: LeaderState, followers: Followers, trusted: frozenset[str], now_us: int, behind_us: int
) -> frozenset[str] | None:
    """Return the ISR, shrunk or expanded, that the leader should ask for now; None: no change is
    needed, or possible.

    Silent members leave first, since nothing is released until then; also members that lack frames
    which all others hold. One member at a time, since each change gets its own answer. If none may
    leave alone, all leave together: a member that stays might not know the policy that lets them
    go.

    :param trusted: nodes of the cluster by its rows; other nodes are no members
    """
    # A node without a row, or with all certificates revoked, leaves the ISR like a silent one.
    recent = followers.recent(now_us, behind_us) & trusted
    leaving = [
        member
        for member in sorted(leading.members - {leading.node})
        if member not in recent or leading.has_gone_back(member)
    ]
    for gone in [*([member] for member in leaving), leaving]:
        if leading.may_remove(*gone):
            return leading.members.difference(gone)
    # Only attached nodes: a detached one would delay every release from its first moment on.
    for node in sorted(recent & followers.linked):
        if leading.may_add(node):
            return leading.members | {node}
    return None


def recent_isr_followers(
    leading: LeaderState, followers: Followers, now_us: int, behind_us: int
) -> int:
    """Return the number of ISR followers with a message within BEHIND; no other node counts for
    ACKS."""
    recent = followers.recent(now_us, behind_us)
    return sum(member in recent for member in leading.members if member != leading.node)


def follower_lags(
    followers: Followers, named: Collection[str], committed: int
) -> Iterator[tuple[str, int]]:
    """Yield the lag of each follower, in commits, by node id.

    :param named: nodes that have a row: the lag of a dropped node does not matter
    """
    for node, one in sorted(followers.by_node.items()):
        if node in named:
            yield node, max(0, committed - one.synced)


# --- lease ----------------------------------------------------------------------------------------


RENEWED_IN: Final = 3
"""A lease is renewed after this fraction of it (1/n), so that two renewals may be lost."""
SPARED: Final = 10
"""Fraction at its end (1/n) that is not relied on."""
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LeadLease:
    """Lease of the lead. Times are on the boot-time clock, which also runs during suspension."""

    id: int
    seconds: int
    sent_us: int
    """Sending time of the newest answered request (µs)."""

    @property
    def renew_us(self) -> int:
        """Time of the next renewal (µs)."""
        return self.sent_us + self.seconds * _SECOND_US // RENEWED_IN

    @property
    def ends_us(self) -> int:
        """Deadline (µs): from then on the leader assumes that it no longer leads."""
        return self.sent_us + self.seconds * _SECOND_US * (SPARED - 1) // SPARED

    def is_over(self, now_us: int) -> bool:
        """True if another node may lead by now, as far as this node knows."""
        return now_us >= self.ends_us

    def renewed(self, sent_us: int) -> LeadLease:
        """Note that a renewal sent at this time was answered."""
        # An answer to an older renewal never moves the deadline back.
        return replace(self, sent_us=max(self.sent_us, sent_us))


# --- stalls ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StallCause:
    """Cause of a stall: nothing is released."""

    held_up: HeldUp
    why: str
    """Text: the condition it waits for, and the remedy."""
    followers: int
    """Number of recent followers in the ISR."""
    acks: int

    def refusal(self) -> NotEnoughReplicas:
        """Return the refusal of requests that would have to wait for pending commits."""
        return NotEnoughReplicas(
            f"a commit that this depends on is not released: this node waits for {self.why}."
            " Nothing was written",
            followers=self.followers,
            acks=self.acks,
        )


def stall(
    leading: LeaderState,
    policy: Policy,
    recent: frozenset[str],
    trusted: frozenset[str],
    name: Callable[[str], str],
    *,
    is_late: bool,
) -> StallCause | None:
    """Return the cause of a stall; None: the commit index advances, or will within moments.

    :param recent: nodes with a message within BEHIND
    :param trusted: nodes of the cluster: those outside the ISR may rejoin it
    :param name: returns the display name of a node id
    :param is_late: True if frames have been on this disk, unreleased, for longer than removing a
        silent member takes
    """
    others = leading.waited_for - {leading.node}
    silent, heard = others - recent, len((leading.members & recent) - {leading.node})
    within = f"heard of within BEHIND, {policy.behind_us / 1_000_000:g} s"
    if heard < policy.acks:
        away = (others | trusted) - recent - {leading.node}
        missing = _named(away, name) if away else "followers with all commits"
        one = f"{heard} follower{' is' if heard == 1 else 's are'}"
        why = (
            f"{missing}: {one} {within}, and ACKS is {policy.acks}. It goes on by itself once"
            " enough followers answer; if they are lost, go on without them by DEFINE FAILOVER"
            f" with fewer ACKS, at most {heard}"
        )
        return StallCause("followers", why, heard, policy.acks)
    # The newest frames are always on their way: a short wait is no stall.
    if not is_late:
        return None
    # Enough others are recent for a removal. As a rule, only the answer of etcd is missing.
    if silent:
        why = (
            f"etcd, to remove {_named(silent, name)} from the in-sync replicas, not {within}: it"
            " goes on once etcd answers, or they are back"
        )
        return StallCause("etcd", why, heard, policy.acks)
    # All members answer, and at least one has not synced the frames yet.
    return StallCause(
        "followers",
        f"{_named(others, name)} to have the newest commits on disk",
        heard,
        policy.acks,
    )


def _named(nodes: Collection[str], name: Callable[[str], str]) -> str:
    return ", ".join(sorted(map(name, nodes)))


# --- one leadership -------------------------------------------------------------------------------


log = structlog.get_logger("cluster")

_NOT_BEGUN: Final = 1 << 62
"""Sequence above that of every frame."""
_UNKNOWN: Final = 1 << 30
"""Number above that of all followers: no member leaves the ISR before the remaining ones have the
policy."""


@dataclass(eq=False, slots=True)
class _ReplacedPolicy:
    """Policy that a leader used before the present one."""

    policy: Policy
    acks_before: int
    amended: int


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
        self._replaced: list[_ReplacedPolicy] = []
        """Policies that an unreleased one has replaced, oldest first."""
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

    def not_removed(self, nodes: frozenset[str]) -> NotEnoughReplicas:
        """Return the refusal if nodes are still in the ISR although their removal was requested."""
        gone = self._leading.members & nodes
        if self._leading.asked is None and gone and not self._leading.may_remove(*gone):
            left = self._leading.members - gone
            if len(left) < 1 + self.policy.acks:
                why = "other members have left meanwhile, and too few would be left"
            else:
                why = (
                    "those that would be left do not hold the newest failover policy yet, and an"
                    " earlier one asks for more ACKS: try again once they are in sync"
                )
        else:
            why = "etcd does not answer: try again once it does"
        return NotEnoughReplicas(f"the in-sync replicas could not be changed in time: {why}")

    def adopt(self, policy: Policy) -> None:
        """Use the policy of this log, released or not, because the previous leader may have used
        it. Called before anything is released."""
        self.policy = policy
        self._leading = replace(self._leading, acks=policy.acks)

    def amend(self, policy: Policy) -> Callable[[bool], None]:
        """Use another policy; return a function to call with True once its commit is released, or
        with False once it is rolled back: that restores the one before. The lease keeps its length
        until the next election.

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
        leading = self._leading
        before = _ReplacedPolicy(self.policy, leading.acks_before, leading.amended)
        self._replaced.append(before)
        # Once its first frame is released, all members have its present policy in their logs.
        before_it = 0 if leading.is_settled else leading.acks_before
        # No log holds the policy yet: `amended` sets its sequence after the commit.
        self._use_policy(policy, max(leading.acks, before_it), _NOT_BEGUN)

        def end_replacement(is_released: bool) -> None:
            # Else an earlier one was rolled back, and this with it; or a later one is released.
            if before not in self._replaced:
                return
            at = self._replaced.index(before)
            if is_released:
                del self._replaced[: at + 1]
            else:
                del self._replaced[at:]
                self._use_policy(before.policy, before.acks_before, before.amended)

        return end_replacement

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
        # checked on a timer (`leader.py`).
        if node not in self._leading.members:
            self.news.set()

    def left(self, node: str) -> None:
        """Note that a follower has detached."""
        self._leading = self._leading.left(node)
        self.followers = self.followers.left(node)
        # `waited_for`, not the ISR alone: an unanswered addition may be in force.
        if node in self._leading.waited_for:
            # Nothing more is released until it is back, or out of the ISR. So an older copy of its
            # directory will lack the commit index published here.
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
