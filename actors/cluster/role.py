"""Role of this node in its cluster, one value that includes its leadership or its follow task.

So neither exists without the role.

| role | life | meaning |
|---|---|---|
| `Alone` | alone | in no cluster; or copied by other nodes while no policy is in force |
| `Founder` | founding | its first failover policy is coming into force: commits are refused |
| `Waiting` | waiting | in a cluster, with no leader to follow |
| `Elected` | waiting | has the lead, and has not written its first frame yet |
| `Leader` | leading | has the lead, or has lost it and may not know yet |
| `Follower` | following | receives the frames of a leader, or of the node it was copied from |

`coordinator.py` moves the node from one to the next, by these steps alone (`ROLE_STEPS`):

| from | to | when |
|---|---|---|
| `Alone` | `Founder` | DEFINE FAILOVER puts a first policy into force |
| `Founder` | `Alone` | it failed before the file CLUSTER was written |
| `Founder` | `Waiting` | it has the lead and etcd its ISR; or another node leads |
| `Waiting` | `Waiting` | for another reason |
| `Waiting` | `Follower` | another node leads, or the node it was copied from is there |
| `Waiting` | `Elected` | it took the lead, and its promise of the epoch is on the disk |
| `Elected` | `Leader` | its first frame has a sequence; it serves once that frame is released |
| `Elected` | `Waiting` | the frame was refused, as by a full disk: it gives the lead back |
| `Leader` | `Waiting` | the lease is over, etcd names another or is distrusted, or it resigned |
| `Follower` | `Waiting` | it ends its link: to follow another leader, or to lead |

A stranded follower stays one, and so does one that needs a copy. A leader that is no longer
declared coordinating resigns: it writes no more, and steps down once all its commits are released.

`ClusterMember` holds the role, and checks before a write, a read or an answer. Nothing here waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from actors.cluster.durable_state import DurableState
from actors.cluster.leader_state import Followers, Leadership
from actors.cluster.log_matching import SyncStatus, stranded
from actors.cluster.replica_receiver import FollowTask
from actors.cluster.replica_senders import BEAT_SECONDS
from actors.commits.committer import Committer
from actors.rights import Rights
from actors.roles import Roles
from protocol import limits
from protocol.environment import Clock
from protocol.errors import Busy, NotWritable
from protocol.failover import Policy
from protocol.node_roles import COORDINATING
from protocol.requests import Caller, HeldUp, Unready
from storage.catalog import failover, replicas
from storage.catalog.failover import StoredPolicy
from storage.catalog.replicas import Replica
from storage.files.joining_file import CopySource

# --- roles ----------------------------------------------------------------------------------------


class RoleName(StrEnum):
    """Name of a role in INFO FOR NODE."""

    ALONE = "alone"
    FOUNDING = "founding"
    LEADING = "leading"
    FOLLOWING = "following"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Alone:
    """In no cluster, or copied by other nodes while no failover policy is in force."""

    life = RoleName.ALONE
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Founder:
    """Puts the first policy into force. Once the file CLUSTER exists, etcd may hold the ISR, and
    another node may lead."""

    life = RoleName.FOUNDING
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Follows no node, and has no followers."""

    life = RoleName.WAITING
    leadership = follow_task = None


@dataclass(frozen=True, slots=True)
class Elected:
    """Has the lead, and releases nothing yet."""

    leadership: Leadership
    # To clients it still waits: no frame of its epoch exists.
    life = RoleName.WAITING
    follow_task = None


@dataclass(frozen=True, slots=True)
class Leader:
    """Has the lead; its leadership decides the commit index."""

    leadership: Leadership
    life = RoleName.LEADING
    follow_task = None


@dataclass(frozen=True, slots=True)
class Follower:
    """Follows a leader. A task that has ended means that the node is stranded or needs a copy."""

    follow_task: FollowTask
    life = RoleName.FOLLOWING
    leadership = None


Role = Alone | Founder | Waiting | Elected | Leader | Follower

ROLE_STEPS: Final[dict[type[Role], frozenset[type[Role]]]] = {
    Alone: frozenset({Founder}),
    Founder: frozenset({Alone, Waiting}),
    Waiting: frozenset({Waiting, Follower, Elected}),
    Elected: frozenset({Leader, Waiting}),
    Leader: frozenset({Waiting}),
    Follower: frozenset({Waiting}),
}
"""Roles that may come next, by role: the table at the head of this file."""


# --- the member -----------------------------------------------------------------------------------


NOT_TOLD: Final = (
    "this node was started and does not know the commit index yet: it answers once it is"
    " connected to the leader, for it must not show less than before. INFO FOR NODE shows what"
    " it waits for"
)
NOT_COORDINATING: Final = (
    "this node is no longer declared coordinating and gives up its lead to one that is"
)
NOT_IN_FORCE: Final = (
    "the store was copied with a failover policy that is not in force here: put one into force"
    " with DEFINE FAILOVER, or go on alone with DROP FAILOVER"
)
FOUNDING: Final = "the failover policy is coming into force"
ETCD_AWAY: Final = (
    "etcd does not answer, so this node may not know if it still leads. It goes on once etcd"
    " answers at the addresses of VIA"
)
_SILENT_US: Final = limits.CLUSTER_SILENT_SECONDS * 1_000_000


class ClusterMember:
    """On the loop only.

    :param store: id of the store
    :param memory: durable cluster memory
    :param copy_anew: has the next start copy the store, from one of the given nodes
    :param only_looks: True for a command that only reads a store: it neither follows nor leads, and
        shows the released state it finds
    """

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        roles: Roles,
        rights: Rights,
        store: str,
        memory: DurableState,
        copy_anew: Callable[[Sequence[CopySource]], Awaitable[None]],
        only_looks: bool,
    ) -> None:
        self.clock = clock
        self.committer = committer
        self._roles = roles
        self._rights = rights
        self.store = store
        self.memory = memory
        self.copy_anew = copy_anew
        self.only_looks = only_looks
        self.begins_anew = asyncio.Event()
        """Set once the directory counts as no store any more: the node has to restart, and copies
        the store first."""
        self.kept: StoredPolicy | None = None
        """The stored policy, as last read."""
        alone = memory.stored is None
        # Even a former leader waits after a restart: only etcd knows who leads.
        self._role: Role = Alone() if alone else Waiting()
        self._heard_us: int | None = None
        """Monotonic time of the last message of a leader in earlier roles (µs); None: there was
        none."""
        self.why = "" if alone else "the node was just started"
        """Reason why it waits."""
        self.lacks = False
        """True if this replica lost frames it once acknowledged. It keeps following its leader."""
        self._had_caught_up = alone or only_looks
        self._by_row: tuple[str, ...] = ()
        """Roles in this node's row; they count unless the node has roles of its own."""
        self.commits_policy = False
        """True during the commit that puts a policy into force."""
        self.followers = Followers()
        """Followers of this node while no policy is in force."""
        self.agreement_faults: tuple[str, ...] = ()
        """Known faults of etcd, as text."""
        self.news = asyncio.Event()
        """Set when a follower reports while a policy comes into force."""

    # --- what it is -------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """Id of this node."""
        return self._roles.node_id

    @property
    def role(self) -> Role:
        """Current role."""
        return self._role

    def become(self, role: Role) -> None:
        """Take another role. The knowledge about leaders is kept."""
        steps = ROLE_STEPS[type(self._role)]
        assert type(role) in steps, f"no step from {self._role} to {role}"
        # Both are answers of the old role: read before it is replaced.
        self.note_caught_up()
        self._heard_us = self._leader_heard_us
        self._role = role

    @property
    def life(self) -> RoleName:
        """Name of its role."""
        return self._role.life

    @property
    def leadership(self) -> Leadership | None:
        """Present leadership, from the election on; None: it does not lead."""
        return self._role.leadership

    @property
    def leading(self) -> Leadership | None:
        """Present leadership, from its first frame on; None: it does not lead."""
        return self._role.leadership if isinstance(self._role, Leader) else None

    @property
    def is_elected(self) -> bool:
        """True if it has the lead, and has not written its first frame yet."""
        return isinstance(self._role, Elected)

    @property
    def is_waiting(self) -> bool:
        """True if it has no leader to follow."""
        return isinstance(self._role, Waiting)

    @property
    def releases_alone(self) -> bool:
        """True if no other node can release a commit of this store.

        A founder does until the file CLUSTER is written: then etcd may name another leader.
        """
        role = self._role
        return isinstance(role, Alone) or (isinstance(role, Founder) and self.memory.stored is None)

    @property
    def follow_task(self) -> FollowTask | None:
        """Task that follows another node; None: it follows none."""
        return self._role.follow_task

    @property
    def _leader_heard_us(self) -> int | None:
        """Monotonic time of the last message of a leader (µs); None: none since the start. While it
        leads, or is alone, that is the present time: no other node knows more."""
        role = self._role
        if isinstance(role, Alone | Leader):
            return self.clock.monotonic_us()
        if isinstance(role, Follower) and role.follow_task.was_attached:
            return role.follow_task.heard_us
        return self._heard_us

    def is_silent(self, for_us: int) -> bool:
        """True if no leader was heard for so long."""
        heard_us = self._leader_heard_us
        return heard_us is None or self.clock.monotonic_us() - heard_us >= for_us

    @property
    def has_caught_up(self) -> bool:
        """True if it shows every frame that it may have shown before its restart."""
        self.note_caught_up()
        return self._had_caught_up

    def note_caught_up(self) -> None:
        """Check whether `has_caught_up` has become true. It stays so, even if the followed leader
        is gone before the next check."""
        if not self._had_caught_up:
            leads = self.leadership is not None and self.leadership.is_settled
            follows = self.follow_task is not None and self.follow_task.has_caught_up
            self._had_caught_up = leads or follows

    @property
    def policy(self) -> Policy | None:
        """The policy in force, or coming into force. A policy of another store, brought by a
        backup, does not count."""
        kept, stands = self.kept, self.memory.stored
        if stands is None:
            return None
        return stands.policy(None if kept is None or kept.store != self.store else kept.policy)

    def is_in_force(self, kept: StoredPolicy) -> bool:
        """True if a stored policy was put into force, for this store."""
        stands = self.memory.stored
        return kept.store == self.store and stands is not None and not stands.founds

    @property
    def coordinates(self) -> bool:
        """Cluster rule 8: True if it was declared coordinating, on itself or by its row.

        A restored copy has the rows of the cluster, but none of its own, and no roles: it never
        leads.
        """
        return self._coordinates(self._by_row)

    @property
    def is_declared_coordinating(self) -> bool:
        """Like `coordinates`, but by the present row, not by that of the last iteration."""
        return self._coordinates(_roles_of(self.row_of(self.node)))

    def _coordinates(self, by_row: tuple[str, ...]) -> bool:
        declared = self._roles.declared
        return COORDINATING in (by_row if declared is None else declared)

    @property
    def sync_status(self) -> SyncStatus | None:
        """Sync status of this node; None: it follows no node."""
        return None if self.follow_task is None else self.follow_task.sync_status

    @property
    def is_stranded(self) -> bool:
        """True if it shows frames that are not in its leader's history."""
        return self.sync_status is SyncStatus.STRANDED

    @property
    def no_leader(self) -> str:
        """Reason why it knows of no leader."""
        founds = isinstance(self._role, Founder)
        return self.why or (FOUNDING if founds else "this node follows no leader")

    @property
    def waits_for(self) -> str | None:
        """Reason why it waits, with the remedy; None: it does not wait."""
        if self.is_stranded:
            return self.stranded
        if self.leadership is not None:
            stalled = self.leadership.stalled
            if stalled is not None:
                return stalled.why
            return ETCD_AWAY if self.leadership.may_be_over else None
        if self.life is RoleName.ALONE:
            return None if self.kept is None else NOT_IN_FORCE
        waits = self.is_unled or self.lacks or self.life is RoleName.FOUNDING
        return self.why or None if waits else None

    @property
    def is_unled(self) -> bool:
        """True if it knows of no leader. It keeps following the last one, which is not there."""
        if self.life is not RoleName.FOLLOWING:
            return self.life is RoleName.WAITING
        return bool(self.why) and not self._is_attached

    @property
    def _is_attached(self) -> bool:
        return self.follow_task is not None and self.follow_task.is_attached

    @property
    def held_up(self) -> HeldUp | None:
        """Cause why its cluster accepts no changes, as far as it knows; None: it does."""
        leadership = self.leadership
        if self.life is RoleName.LEADING and leadership is not None:
            if leadership.stalled is not None:
                return leadership.stalled.held_up
            return "etcd" if leadership.may_be_over else None
        lost = self.life is RoleName.FOLLOWING and not self._is_attached
        return "leader" if lost or self.life is RoleName.WAITING else None

    def name_of(self, node: str) -> str:
        """Return the display name of a node: its row and its id."""
        row = self.row_of(node)
        return f"node {node}" if row is None else f"{row.name} ({node})"

    @property
    def unready(self) -> Unready | None:
        """Reason of the cluster against sending traffic to this node; None: there is none."""
        if self.is_stranded:
            return "stranded"
        return None if self.has_caught_up else "opening"

    def read_rows(self) -> None:
        """Read the policy and this node's own row from the store."""
        # Pending commits are included: a leader goes by its newest declarations at once.
        with self.committer.begin_transaction() as tx:
            self.kept = failover.find(tx)
            row = _row_of(replicas.every(tx), self.node)
        in_cluster = self.memory.stored is not None
        # Each answer is checked, but only on a node in a cluster.
        self._roles.check_told = self.check_answering if in_cluster else None
        self._by_row = _roles_of(row)

    def row_of(self, node: str) -> Replica | None:
        """Return the row of a node, or None."""
        with self.committer.begin_transaction() as tx:
            return _row_of(replicas.every(tx), node)

    @property
    def others(self) -> list[Replica]:
        """Rows of the other nodes."""
        with self.committer.begin_transaction() as tx:
            return [row for row in replicas.every(tx) if row.node != self.node]

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes of the cluster by committed state: those with a row, and no revoked certificate.
        The link of a revoked node lasts until the revocation is released; its row stays."""
        with self.committer.begin_transaction() as tx:
            # Pending revocations count: a revoked node must not join the ISR before their release.
            rows = [row for row in replicas.every(tx) if not replicas.is_shut_out(tx, row)]
        return frozenset(row.node for row in rows if row.node is not None)

    def note_faults(self, faults: tuple[str, ...]) -> None:
        """Store the known faults of etcd."""
        self.agreement_faults = faults

    # --- those who follow it ----------------------------------------------------------------------

    @property
    def sender_epoch(self) -> int | None:
        """Epoch in which other nodes may follow it; None: none may, as while it stops."""
        # A node that stops keeps its role, but its committer follows already.
        if self.committer.follows:
            return None
        if self.life in (RoleName.ALONE, RoleName.FOUNDING):
            return self.committer.ledger.epoch
        # An elected node sends nothing before its own first frame has a sequence.
        return self.leadership.epoch if self.life is RoleName.LEADING and self.leadership else None

    @property
    def beat_seconds(self) -> float:
        """Interval of heartbeats to followers (s), short enough to find silent ones in time."""
        # A leader uses a policy before its commit is visible, and may replace it while it leads.
        policy = self.policy if self.leadership is None else self.leadership.policy
        return BEAT_SECONDS if policy is None else min(BEAT_SECONDS, policy.behind_us / 4_000_000)

    def check_copied(self) -> None:
        """Check that the store may be copied from this node. :raises NotWritable: it may not"""
        if self.sender_epoch is None:
            raise self.not_leading()

    def attached(self, node: str, upto: int) -> None:
        """Note that a follower has attached, and up to which frame both logs agree."""
        if self.leadership is not None:
            self.leadership.attached(node, upto)
        else:
            self.followers = self.followers.attached(node, upto, self.clock.monotonic_us())
            self._changed()

    def on_report(self, node: str, synced: int, applied: int, heard_us: int) -> None:
        """Note a follower's progress report; see `Leadership.on_report`."""
        if self.leadership is not None:
            self.leadership.on_report(node, synced, applied, heard_us)
        else:
            self.followers = self.followers.on_report(node, synced, applied, heard_us)
            self._changed()

    @property
    def round(self) -> int:
        """Number of the newest read index round, which followers echo; 0: none."""
        return 0 if self.leadership is None else self.leadership.rounds.number

    def said(self, node: str, number: int) -> None:
        """Note that a follower has echoed a round number."""
        if self.leadership is not None:
            self.leadership.rounds.on_report(node, number)

    def left(self, node: str) -> None:
        """Note that a follower has detached."""
        if self.leadership is not None:
            self.leadership.left(node)
        else:
            self.followers = self.followers.left(node)

    def _changed(self) -> None:
        # Only a founder's commit index depends on these followers.
        if self.life is RoleName.FOUNDING:
            self.committer.release_more()
            self.news.set()

    # --- what is asked before something is done ---------------------------------------------------

    def check_writable(self) -> None:
        """Check that this node accepts changes; called before each commit.

        :raises NotWritable: its roles forbid it, or another node leads; `leader` has the client
            endpoints of the leader, if known
        :raises Busy: a policy is coming into force
        """
        role = self._role
        if isinstance(role, Alone):
            self.check_roles()
            if self.kept is not None and not self.commits_policy:
                # Cluster rule 8: a restored store has the topology, and is no member of the
                # cluster.
                raise NotWritable(NOT_IN_FORCE, leader=[])
            return
        if isinstance(role, Founder):
            if not self.commits_policy:
                raise Busy(FOUNDING)
            return
        if isinstance(role, Leader):
            if role.leadership.resigns:
                raise NotWritable(NOT_COORDINATING, leader=[])
            # Cluster rule 4: after the deadline another node may lead, and this commit may be lost.
            if not role.leadership.may_be_over:
                self.check_roles()
                return
            raise NotWritable(ETCD_AWAY, leader=[])
        raise self.not_leading()

    def not_leading(self, what: str = "") -> NotWritable:
        """Return the refusal of an operation that only the leader may do.

        :param what: the operation, unless it is a change
        """
        if self.is_stranded:
            why = f"another node leads the store. {self.stranded}"
        elif self.life is RoleName.FOLLOWING and not self.is_unled:
            why = "another node leads the store: this one is read-only"
        else:
            says_so = self.why.startswith("no node leads")
            why = self.why if says_so else f"no node is known to lead: {self.why}"
        told = f"{what}; {why}" if what else why
        return NotWritable(told, leader=list(self.leader_endpoints))

    @property
    def stranded(self) -> str:
        """Message of a stranded node, with the remedy."""
        found = "" if self.follow_task is None else self.name_of(self.follow_task.node)
        return stranded(found or "its former leader")

    def check_replicated(self) -> None:
        """Check cluster rule 1. :raises NotEnoughReplicas: too few recent followers to release a
        commit"""
        if self.leadership is not None:
            self.leadership.check_replicated()

    def check_answering(self, caller: Caller | None) -> None:
        """Check that this node may answer: it knows enough of the commit index.

        :param caller: None: a caller that need not be a store-wide owner
        :raises Busy: it was just started (cluster rule 5); or it has heard no leader for so long
            that the caller may have lost its privileges
        """
        if not self.has_caught_up:
            raise Busy(self.stranded if self.is_stranded else NOT_TOLD)
        if self.only_looks or not self.is_silent(_SILENT_US):
            return
        # Read last: this check precedes each answer, and a long silence is rare.
        with self.committer.begin_transaction() as tx:
            owns = caller is not None and self._rights.owns_all(tx, caller)
        if not owns:
            raise Busy(
                "this node has had no message from the leader for"
                f" {limits.CLUSTER_SILENT_SECONDS} s: it answers only owners of the store, for it"
                " may not know which rights have ended"
            )

    @property
    def leader_endpoints(self) -> tuple[str, ...]:
        """Client endpoints of the leader; empty: none is known."""
        return () if self.leader is None or self.is_unled else self.endpoints_of(self.leader)

    def endpoints_of(self, node: str) -> tuple[str, ...]:
        """Return the client endpoints of a node; empty: it has no row."""
        row = self.row_of(node)
        return () if row is None else row.endpoints

    def check_roles(self) -> None:
        """Check this node's roles. :raises NotWritable: they allow no changes"""
        self._roles.check_writable()

    @property
    def leader(self) -> str | None:
        """Id of the leader, or of the node it was copied from, present or last; None: none is
        known."""
        if self.life is RoleName.LEADING or self.life is RoleName.ALONE:
            return self.node
        return self.follow_task.node if self.follow_task is not None else None

    # --- what is shown ----------------------------------------------------------------------------

    @property
    def all_followers(self) -> Followers:
        """All followers, whether or not a policy is in force."""
        return self.followers if self.leadership is None else self.leadership.followers

    def lag_of(self, synced: int) -> int:
        """Return the lag, in commits, of a follower that has synced so much."""
        return max(0, self.committer.synced_seq - synced)


def _roles_of(row: Replica | None) -> tuple[str, ...]:
    return () if row is None or row.roles is None else row.roles


def _row_of(rows: list[Replica], node: str) -> Replica | None:
    return next((row for row in rows if row.node == node), None)
