"""What this node is to its cluster: for everybody on the loop who asks before doing something.

`role.py` has the roles, `coordination.py` moves the node from one to the next; nothing here waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from actors.cluster.follow_task import FollowTask
from actors.cluster.followers import Followers, lagging
from actors.cluster.leadership import Leadership
from actors.cluster.memory import Memory
from actors.cluster.role import Alone, Follower, Founder, Leader, Life, Role, Waiting
from actors.cluster.shippings import BEAT_SECONDS
from actors.cluster.sync_status import SyncStatus, stranded
from actors.commits import Committer
from actors.rights import Rights
from actors.roles import Roles
from protocol import limits
from protocol.doors import Clock
from protocol.errors import Busy, NotWritable
from protocol.failover import Policy
from protocol.node_roles import COORDINATING
from protocol.requests import Caller, HeldUp, Unready
from protocol.values import Value
from storage import failover, replicas
from storage.failover import Kept
from storage.joining import Source
from storage.replicas import Replica

NOT_TOLD: Final = (
    "this node was started, and has not heard yet what was released: it answers once it is attached"
    " to who leads, and shows what it may have shown before. INFO FOR NODE says what it waits for"
)
NOT_COORDINATING: Final = (
    "this node is declared coordinating no more, and gives its lead up: another takes it that is"
)
NOT_IN_FORCE: Final = (
    "the store came with a failover policy that is not in force here: DEFINE FAILOVER puts one into"
    " force, DROP FAILOVER has the node go on alone"
)
FOUNDING: Final = "the failover policy is coming into force"
ETCD_AWAY: Final = (
    "etcd is out of reach: this node may not know whether it still leads. It goes on once etcd"
    " answers at the addresses of VIA"
)
_SILENT_US: Final = limits.CLUSTER_SILENT_SECONDS * 1_000_000


class Figures(NamedTuple):
    """What is counted of a cluster, as this node knows it."""

    leads: bool
    epoch: int
    lease_seconds: float
    """What is left of the lease that it leads by."""
    followers: int
    """That are attached."""
    lags: tuple[tuple[str, int], ...]
    """By follower, how many commits it lacks."""
    in_sync: bool
    """Whether it follows, and has all that was released."""
    held_up: bool
    """Whether no changes come to be in its cluster, as far as it knows."""


class Member:
    """On the loop only.

    :param store: the store's id
    :param memory: what it has to remember of its cluster
    :param copy_anew: has the next start copy the store, from one of some nodes
    :param only_looks: whether it is there for a command that looks at a store, follows nobody and
        leads nobody: what it finds to be released is what it shows
    """

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        roles: Roles,
        rights: Rights,
        store: str,
        memory: Memory,
        copy_anew: Callable[[Sequence[Source]], Awaitable[None]],
        only_looks: bool,
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._roles = roles
        self._rights = rights
        self.store = store
        self.memory = memory
        self.copy_anew = copy_anew
        self.only_looks = only_looks
        self.begins_anew = asyncio.Event()
        """Set once what the directory holds is no store any more: its node has to be started again,
        and copies the store first."""
        self.kept: Kept | None = None
        """The policy, as it was last looked at."""
        alone = memory.stands is None
        self._role: Role = Alone() if alone else Waiting()
        self._heard_us: int | None = None
        """Monotonic time of the last word of a leader in earlier roles; None: there was none."""
        self.why = "" if alone else "the node has just been started"
        """Why it waits."""
        self.lacks = False
        """Whether that is since it lacks what it held: it goes on following whom it followed."""
        self._was_told = alone or only_looks
        self._by_row: tuple[str, ...] = ()
        """The roles that this node's row names: those of a node that was told none itself."""
        self.commits_policy = False
        """Whether a commit is the one that a policy comes into force with."""
        self.followers = Followers()
        """Of a node that others copy, as long as no policy stands."""
        self.agreement_faults: tuple[str, ...] = ()
        """What is known to be wrong with where the nodes agree, in words."""
        self.news = asyncio.Event()
        """Set, while a policy comes into force, when a follower was heard of."""

    # --- what it is -------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """Its id."""
        return self._roles.node_id

    @property
    def role(self) -> Role:
        """See `role.py`."""
        return self._role

    def become(self, role: Role) -> None:
        """Take another role. What is known of leaders outlives the one before."""
        self.note_told()
        self._heard_us = self._leader_heard_us
        self._role = role

    @property
    def life(self) -> Life:
        """The word for its role."""
        return self._role.life

    @property
    def leadership(self) -> Leadership | None:
        """By which it leads, or is about to; None: it does not."""
        return self._role.leadership

    @property
    def follow_task(self) -> FollowTask | None:
        """With which it follows another node; None: it follows none."""
        return self._role.follow_task

    @property
    def _leader_heard_us(self) -> int | None:
        """Return the monotonic time of the last word of a leader; None: none since the start.
        Where it leads, or is alone, no other node knows more."""
        role = self._role
        if isinstance(role, Alone | Leader):
            return self._clock.monotonic_us()
        if isinstance(role, Follower) and role.follow_task.was_attached:
            return role.follow_task.heard_us
        return self._heard_us

    def is_silent(self, for_us: int) -> bool:
        """True if it has heard no leader for so long."""
        heard_us = self._leader_heard_us
        return heard_us is None or self._clock.monotonic_us() - heard_us >= for_us

    @property
    def is_told(self) -> bool:
        """True if it shows, since it was started, all that it may have shown before."""
        self.note_told()
        return self._was_told

    def note_told(self) -> None:
        """Look whether it knows that by now: it does for good, also when whom it follows is gone
        before anybody asks."""
        if not self._was_told:
            leads = self.leadership is not None and self.leadership.is_settled
            follows = self.follow_task is not None and self.follow_task.is_told
            self._was_told = leads or follows

    @property
    def policy(self) -> Policy | None:
        """The one in force, or that comes into force. One that another store was given, which a
        backup brought, is not."""
        kept, stands = self.kept, self.memory.stands
        if stands is None:
            return None
        return stands.policy(None if kept is None or kept.store != self.store else kept.policy)

    def is_in_force(self, kept: Kept) -> bool:
        """Whether a policy that is kept was put into force, for this store."""
        stands = self.memory.stands
        return kept.store == self.store and stands is not None and not stands.founds

    @property
    def coordinates(self) -> bool:
        """Rule 8: whether it was declared to take the lead, to itself or by its row. A restored
        copy has the rows of the cluster, none of them its own, and no roles: it leads nothing."""
        return self._coordinates(self._by_row)

    def _coordinates(self, by_row: tuple[str, ...]) -> bool:
        declared = self._roles.declared
        return COORDINATING in (by_row if declared is None else declared)

    @property
    def standing(self) -> SyncStatus | None:
        """How it stands to whom it follows; None: it follows nobody."""
        return None if self.follow_task is None else self.follow_task.standing

    @property
    def is_stranded(self) -> bool:
        """Whether it shows what is not in its leader's history."""
        return self.standing is SyncStatus.STRANDED

    @property
    def waits_for(self) -> str | None:
        """What it waits for, and what helps; None: nothing."""
        if self.is_stranded:
            return self.stranded
        if self.leadership is not None:
            stalled = self.leadership.stalled
            if stalled is not None:
                return stalled.why
            return ETCD_AWAY if self.leadership.may_be_over else None
        if self.life is Life.ALONE:
            return None if self.kept is None else NOT_IN_FORCE
        waits = self.is_unled or self.lacks or self.life is Life.FOUNDING
        return self.why or None if waits else None

    @property
    def is_unled(self) -> bool:
        """Whether nobody leads that it knows of: who was followed is followed still, and is not
        there."""
        if self.life is not Life.FOLLOWING:
            return self.life is Life.WAITING
        return bool(self.why) and not self._is_attached

    @property
    def _is_attached(self) -> bool:
        return self.follow_task is not None and self.follow_task.is_attached

    @property
    def held_up(self) -> HeldUp | None:
        """Why no changes come to be in its cluster, as far as it knows."""
        leadership = self.leadership
        if self.life is Life.LEADING and leadership is not None:
            if leadership.stalled is not None:
                return leadership.stalled.held_up
            return "etcd" if leadership.may_be_over else None
        lost = self.life is Life.FOLLOWING and not self._is_attached
        return "leader" if lost or self.life is Life.WAITING else None

    def name_of(self, node: str) -> str:
        """What to call a node, for people: by its row and its id."""
        row = self.row_of(node)
        return f"node {node}" if row is None else f"{row.name} ({node})"

    @property
    def unready(self) -> Unready | None:
        """Why, by its cluster, the node should get no traffic."""
        if self.is_stranded:
            return "stranded"
        return None if self.is_told else "opening"

    def look_at_rows(self) -> None:
        """See what the store says by now: the policy, and what this node's own row has it do."""
        with self._committer.begin() as tx:
            self.kept = failover.find(tx)
            row = _row_of(replicas.every(tx), self.node)
        in_cluster = self.memory.stands is not None
        self._roles.check_told = self.check_answering if in_cluster else None
        self._by_row = _roles_of(row)

    def row_of(self, node: str) -> Replica | None:
        """The row of a node; None: it has none."""
        with self._committer.begin() as tx:
            return _row_of(replicas.every(tx), node)

    @property
    def others(self) -> list[Replica]:
        """The rows of others."""
        with self._committer.begin() as tx:
            return [row for row in replicas.every(tx) if row.node != self.node]

    @property
    def nodes(self) -> frozenset[str]:
        """Those that belong here by what is committed: rows name them, and what they show was not
        revoked. The link of one that was is there until that is released, and its row stays."""
        with self._committer.begin() as tx:
            rows = [row for row in replicas.every(tx) if not replicas.is_shut_out(tx, row)]
        return frozenset(row.node for row in rows if row.node is not None)

    def note_faults(self, faults: tuple[str, ...]) -> None:
        """See what is known to be wrong with where the nodes agree."""
        self.agreement_faults = faults

    # --- those who follow it ----------------------------------------------------------------------

    @property
    def ships_in(self) -> int | None:
        """The epoch in which others may follow it; None: none may, as while it stops."""
        if self._committer.follows:
            return None
        if self.life in (Life.ALONE, Life.FOUNDING):
            return self._committer.ledger.epoch
        return self.leadership.epoch if self.life is Life.LEADING and self.leadership else None

    @property
    def beat_seconds(self) -> float:
        """How often a follower is told something at least, to be heard of in time."""
        # Who leads goes by a policy before the rows say so, and may amend it under its followers.
        policy = self.policy if self.leadership is None else self.leadership.policy
        return BEAT_SECONDS if policy is None else min(BEAT_SECONDS, policy.behind_us / 4_000_000)

    def check_copied(self) -> None:
        """:raises NotWritable: it is not the one to copy the store from"""
        if self.ships_in is None:
            raise self.not_leading()

    def attached(self, node: str, upto: int) -> None:
        """A follower has come: its log agrees with this one up to here."""
        if self.leadership is not None:
            self.leadership.attached(node, upto)
        else:
            self.followers = self.followers.attached(node, upto, self._clock.monotonic_us())
            self._changed()

    def heard(self, node: str, synced: int, applied: int, heard_us: int) -> None:
        """A follower says how far it is; see `Leadership.heard`."""
        if self.leadership is not None:
            self.leadership.heard(node, synced, applied, heard_us)
        else:
            self.followers = self.followers.heard(node, synced, applied, heard_us)
            self._changed()

    @property
    def round(self) -> int:
        """The newest number that followers are to say back; 0: none."""
        return 0 if self.leadership is None else self.leadership.rounds.number

    def said(self, node: str, number: int) -> None:
        """A follower has said such a number back."""
        if self.leadership is not None:
            self.leadership.rounds.heard(node, number)

    def left(self, node: str) -> None:
        """A follower is attached no more."""
        if self.leadership is not None:
            self.leadership.left(node)
        else:
            self.followers = self.followers.left(node)

    def _changed(self) -> None:
        if self.life is Life.FOUNDING:
            self._committer.release_more()
            self.news.set()

    # --- what is asked before something is done ---------------------------------------------------

    def check_writable(self) -> None:
        """Whether this node takes changes: what the committer asks before each.

        :raises NotWritable: its roles say no, or somebody else leads; `leader` has the endpoints of
            who does, as far as is known
        :raises Busy: a policy is coming into force
        """
        role = self._role
        if isinstance(role, Alone):
            self.check_roles()
            if self.kept is not None and not self.commits_policy:
                # Rule 8: what was restored has its topology, and is no cluster's member.
                raise NotWritable(NOT_IN_FORCE, leader=[])
            return
        if isinstance(role, Founder):
            if not self.commits_policy:
                raise Busy(FOUNDING)
            return
        if isinstance(role, Leader):
            if role.leadership.gives_up:
                raise NotWritable(NOT_COORDINATING, leader=[])
            if not role.leadership.may_be_over:
                self.check_roles()
                return
            raise NotWritable(ETCD_AWAY, leader=[])
        raise self.not_leading()

    def not_leading(self, what: str = "") -> NotWritable:
        """What whoever asks this node hears of what only a leader does.

        :param what: that is, where it is no change
        """
        if self.is_stranded:
            why = f"another node leads the store. {self.stranded}"
        elif self.life is Life.FOLLOWING and not self.is_unled:
            why = "another node leads the store: this one reads only"
        else:
            says_so = self.why.startswith("nobody leads")
            why = self.why if says_so else f"nobody leads that this node knows of: {self.why}"
        told = f"{what}; {why}" if what else why
        return NotWritable(told, leader=list(self.leader_endpoints))

    @property
    def stranded(self) -> str:
        """What is said at a node that is, and what helps."""
        found = "" if self.follow_task is None else self.name_of(self.follow_task.node)
        return stranded(found or "whom it followed")

    def check_replicated(self) -> None:
        """Rule 1. :raises NotEnoughReplicas: what is written now could not be released"""
        if self.leadership is not None:
            self.leadership.check_replicated()

    def check_answering(self, caller: Caller | None) -> None:
        """Whether this node knows enough of what was released to show it.

        :param caller: None: somebody who need not be a store-wide owner
        :raises Busy: rule 5: it has just been started; or it has heard nothing for so long that
            whoever asks may have lost the right to
        """
        if not self.is_told:
            raise Busy(self.stranded if self.is_stranded else NOT_TOLD)
        if self.only_looks or not self.is_silent(_SILENT_US):
            return
        with self._committer.begin() as tx:
            owns = caller is not None and self._rights.owns_all(tx, caller)
        if not owns:
            raise Busy(
                f"this node has not heard from who leads for {limits.CLUSTER_SILENT_SECONDS} s: it"
                " answers owners of the store alone, for it may not know whose rights have ended"
            )

    @property
    def leader_endpoints(self) -> tuple[str, ...]:
        """Where clients reach who leads; none: nobody does that is known of."""
        return () if self.leader is None or self.is_unled else self.endpoints_of(self.leader)

    def endpoints_of(self, node: str) -> tuple[str, ...]:
        """Where clients reach a node; none: no row says so."""
        row = self.row_of(node)
        return () if row is None else row.endpoints

    def check_roles(self) -> None:
        """:raises NotWritable: this node's roles let it take no changes"""
        self._roles.check_writable()

    @property
    def leader(self) -> str | None:
        """The id of who leads, or is copied, or did so last; None: nobody that is known of."""
        if self.life is Life.LEADING or self.life is Life.ALONE:
            return self.node
        return self.follow_task.node if self.follow_task is not None else None

    # --- what is shown ----------------------------------------------------------------------------

    @property
    def all_followers(self) -> Followers:
        """Those who follow it, whether or not a policy stands."""
        return self.followers if self.leadership is None else self.leadership.followers

    def lag_of(self, synced: int) -> int:
        """How many commits who has so many on its disk lacks."""
        return max(0, self._committer.durable_upto - synced)

    def info(self) -> dict[str, Value]:
        """What INFO FOR NODE says of it."""
        leadership, followers, follow_task = self.leadership, self.all_followers, self.follow_task
        return {
            "life": str(self.life),
            "waits_for": self.waits_for,
            "leader": self.leader,
            "coordinates": self._coordinates(_roles_of(self.row_of(self.node))),
            "lease": None if leadership is None else self._lease_left(leadership),
            "followers": len(followers.linked),
            "furthest_lag": followers.furthest_lag(self._committer.durable_upto),
            "upstream": None if self.standing is None else str(self.standing),
            "upstream_silent": None if follow_task is None else self._silent(follow_task),
            "upstream_why": None if follow_task is None else follow_task.why,
            "etcd_faults": list(self.agreement_faults),
        }

    @property
    def figures(self) -> Figures | None:
        """What /metrics shows; None: it is in no cluster, and nobody follows it."""
        leadership, followers = self.leadership, self.all_followers
        if self.life is Life.ALONE and not followers.by_node:
            return None
        left_us = 0 if leadership is None else leadership.lease.ends_us - self._clock.boottime_us()
        return Figures(
            leads=self.life is Life.LEADING,
            epoch=self._committer.ledger.epoch,
            lease_seconds=max(left_us, 0) / 1_000_000,
            followers=len(followers.linked),
            lags=tuple(lagging(followers, self.nodes, self._committer.durable_upto)),
            in_sync=self.standing is SyncStatus.IN_SYNC,
            held_up=self.held_up is not None,
        )

    def _silent(self, follow_task: FollowTask) -> Value:
        return timedelta(microseconds=follow_task.silent_us(self._clock.monotonic_us()))

    def _lease_left(self, leadership: Leadership) -> Value:
        left_us = leadership.lease.ends_us - self._clock.boottime_us()
        return timedelta(microseconds=max(left_us, 0))


def _roles_of(row: Replica | None) -> tuple[str, ...]:
    return () if row is None or row.roles is None else row.roles


def _row_of(rows: list[Replica], node: str) -> Replica | None:
    return next((row for row in rows if row.node == node), None)
