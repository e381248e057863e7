"""One leadership of this node: what it releases, whom it hears, and which set it asks for.

What may be released and which set may be asked for is decided by `leading.py` and `followers.py`;
here the world is told to them, and they are listened to. It goes on from where `begun` says to when
somebody else leads, and is never gone on with after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from actors.cluster.followers import Followers, replicating, wanted
from actors.cluster.following import History, frame_at
from actors.cluster.leading import Deposed, Leading
from actors.cluster.lease import Lease
from actors.cluster.rounds import Rounds
from actors.cluster.stalls import Stalled, stall
from protocol.agreement import Agreed, Answered, InSync, Released
from protocol.doors import Clock
from protocol.errors import BadRequest, NotEnoughReplicas
from protocol.failover import Policy

log = structlog.get_logger("cluster")

_NOT_BEGUN: Final = 1 << 62
"""A sequence that no frame has."""
_UNKNOWN: Final = 1 << 30
"""More followers than there are: nobody leaves the set before those who stay know the policy."""


class Leadership:
    """On the loop only.

    :param lease: that the lead was taken with
    :param released: the last frame that is shown here
    :param changed: called when more may be released
    :param followed: whom this node followed until now, and when it heard of it last, on the
        monotonic clock
    :param by_order: whether a lineage begins with it, that is this node alone
    """

    def __init__(
        self,
        clock: Clock,
        node: str,
        policy: Policy,
        lease: Lease,
        epoch: int,
        insync: InSync,
        released: int,
        changed: Callable[[], None],
        followed: Mapping[str, int],
        by_order: bool,
    ) -> None:
        self._clock = clock
        self.policy = policy
        self.lease = lease
        # Until its own first frame has a sequence nothing is released: see `begun`.
        self._leading = Leading(node, epoch, policy.acks, insync, own=_NOT_BEGUN, released=released)
        self._policies: list[tuple[Policy, int, int]] = []
        """Earlier policies of this leadership, oldest first."""
        self._changed = changed
        self.by_order = by_order
        others = self._leading.members - {node}
        self.followers = Followers.begun(others, clock.monotonic_us(), followed, policy.behind_us)
        self.news = asyncio.Event()
        """Set when there may be another set to ask for."""
        self.rounds = Rounds(lambda: self._leading.waited_for - {node})
        self.tells_soon = asyncio.Event()
        """Set when what is released should be told in etcd before the next renewal is due."""
        self._told: Released | None = None
        """What stood there when it was last heard."""
        self._unwanted: list[tuple[frozenset[str], Callable[[], bool]]] = []
        """Nodes that are kept out whatever they say, and what tells whether that is over."""
        self.stalled: Stalled | None = None
        """Why nothing is released, as was last looked at; None: it is."""
        self.gives_up = False
        """Whether it is given up as soon as what was committed is released: nothing more is."""

    # --- what it is -------------------------------------------------------------------------------

    @property
    def leading(self) -> Leading:
        """As it stands."""
        return self._leading

    @property
    def epoch(self) -> int:
        """In which it leads."""
        return self._leading.epoch

    @property
    def own(self) -> int | None:
        """The sequence of the first frame of its epoch; None: it has none yet."""
        own = self._leading.own
        return None if own == _NOT_BEGUN else own

    @property
    def is_settled(self) -> bool:
        """Whether its own first frame is released."""
        return self._leading.is_settled

    @property
    def may_be_over(self) -> bool:
        """Whether somebody else may lead by now: reads go on, nothing is committed."""
        return self.lease.is_over(self._clock.boottime_us())

    def check_replicated(self) -> None:
        """Rule 1: with fewer followers than were promised nothing is written that could not be
        released. :raises NotEnoughReplicas:"""
        found = self._replicating(self.policy)
        if found < self.policy.acks:
            raise NotEnoughReplicas(
                f"{found} of the followers in sync were heard of lately, and ACKS is"
                f" {self.policy.acks}: nothing was written. INFO FOR NODE says which are missed",
                followers=found,
                acks=self.policy.acks,
            )

    @property
    def is_stuck(self) -> bool:
        """Whether what is written now could not be released."""
        return not self.hears_enough(self.policy)

    def look_for_stall(
        self, trusted: frozenset[str], name: Callable[[str], str], *, is_late: bool
    ) -> Stalled | None:
        """See whether it is `stalled`. :param trusted, name, is_late: as of `stalls.stall`"""
        recent = self.followers.recent(self._clock.monotonic_us(), self.policy.behind_us)
        self.stalled = stall(self._leading, self.policy, recent, trusted, name, is_late=is_late)
        return self.stalled

    def check_may_go(self, nodes: frozenset[str]) -> None:
        """Whether some nodes may leave the set.

        :raises NotEnoughReplicas: it would be too small
        :raises BadRequest: this node is one of them
        """
        if self._leading.node in nodes:
            raise BadRequest(
                "this node leads: who leads is dropped once another does. Stop this one, and drop"
                " it there"
            )
        left = self._leading.members - nodes
        if len(left) < 1 + self.policy.acks and left != self._leading.members:
            raise NotEnoughReplicas(
                f"{len(left) - 1} followers would be left in sync, and ACKS is {self.policy.acks}:"
                " have another node come into the set, or DEFINE FAILOVER with fewer ACKS",
                followers=len(left) - 1,
                acks=self.policy.acks,
            )

    def goes_by(self, policy: Policy) -> None:
        """Go by the policy that stands in the log here, whether or not it was released: the one who
        led before may have gone by it already. Before anything is released."""
        self.policy = policy
        self._leading = replace(self._leading, acks=policy.acks)

    def amend(self, policy: Policy) -> Callable[[], None]:
        """Go by another policy; answers how to go by the one before. The lease lasts as it did
        until the lead is taken another time.

        Where fewer followers are to hold everything, the set is not made that small before those
        who stay have it in their logs: `amended`. Whoever of them leads next may release by it
        then; by the policy before nothing would be released ever again.

        :raises NotEnoughReplicas: the set is too small for it
        """
        found = self._leading.fewest - 1
        if found < policy.acks:
            raise NotEnoughReplicas(
                f"{found} followers are in sync, and ACKS would be {policy.acks}: INFO FOR NODE"
                " says how each stands",
                followers=found,
                acks=policy.acks,
            )
        standing, depth = self._leading, len(self._policies)
        self._policies.append((self.policy, standing.acks_before, standing.amended))
        # Where all hold its own first frame they know what it goes by now.
        before_it = 0 if standing.is_settled else standing.acks_before
        self._go_by(policy, max(standing.acks, before_it), _NOT_BEGUN)

        def take_back() -> None:
            if len(self._policies) > depth:  # else one before it was, and this one with it
                before = self._policies[depth]
                del self._policies[depth:]
                self._go_by(*before)

        return take_back

    def _go_by(self, policy: Policy, acks_before: int, amended: int) -> None:
        self.policy = policy
        self._leading = replace(
            self._leading, acks=policy.acks, acks_before=acks_before, amended=amended
        )
        self._changed()

    def hears_enough(self, policy: Policy) -> bool:
        """Whether it has heard as many lately as a policy wants."""
        return self._replicating(policy) >= policy.acks

    def _replicating(self, policy: Policy) -> int:
        now_us = self._clock.monotonic_us()
        return replicating(self._leading, self.followers, now_us, policy.behind_us)

    def amended(self, sequence: int) -> None:
        """The policy that it goes by is in this frame."""
        self._leading = replace(self._leading, amended=sequence)
        self.news.set()

    # --- what it releases -------------------------------------------------------------------------

    def begun(self, own: int) -> None:
        """The first frame of its epoch has this sequence. Who holds that has the policy that this
        node goes by in its log; of nobody else is that known, nor what others went by before."""
        self._leading = replace(self._leading, own=own, acks_before=_UNKNOWN, amended=own)
        self._changed()

    def releasable(self, durable: int) -> int:
        """What may be released of what is durable here. The committer's question."""
        self._leading = self._leading.wrote(durable).release()
        return self._leading.released

    def untold(self, history: History) -> Released | None:
        """What is to be told in etcd to be released; None: it stands there.

        :param history: of the log here
        """
        released = frame_at(history, self._leading.released)
        return None if released == self._told else released

    def heard_told(self, agreed: Agreed) -> None:
        """What is agreed while this node leads."""
        self._told = agreed.released

    # --- whom it hears ----------------------------------------------------------------------------

    def attached(self, node: str, agree: int) -> None:
        """A follower has come: its log agrees up to here."""
        self._leading = self._leading.attached(node, agree)
        self.followers = self.followers.attached(node, agree, self._clock.monotonic_us())
        if self._leading.has_gone_back(node):
            # Nothing can be taken back of what it was waited for. What is told keeps it from the
            # lead until it holds that again, in the set or out of it.
            released = self._leading.released
            log.error(
                "a member of the set lacks what was released",
                node=node, holds=agree, released=released,
                why="an older copy of its directory was put back, or its disk has lost writes",
            )  # fmt: skip
            self.tells_soon.set()
        self._changed()
        self.news.set()

    def heard(self, node: str, synced: int, applied: int, heard_us: int) -> None:
        """A follower says how far it is.

        :param heard_us: since when it owes nothing, on the monotonic clock: who answers, and brings
            nothing to its disk, is as good as silent
        """
        self._leading = self._leading.heard(node, synced)
        before = self.followers
        self.followers = before.heard(node, synced, applied, heard_us)
        self._changed()
        if node not in self._leading.members:
            self.news.set()

    def left(self, node: str) -> None:
        """A follower is attached no more."""
        self.followers = self.followers.left(node)
        if node in self._leading.members:
            # Until it is back, or out of the set, nothing is released that it has not acknowledged.
            # So no copy that is older than this will hold all that is told now.
            self.tells_soon.set()

    # --- the set ----------------------------------------------------------------------------------

    def keeps_out(self, nodes: frozenset[str], is_over: Callable[[], bool]) -> None:
        """Rule 2: some nodes go, whatever they say, and don't come in before their rows are gone or
        their certificates are revoked.

        :param is_over: whether what lets them go has ended. Committed, and they belong here no more
            in that moment; or not, and they are taken in again
        """
        self._unwanted.append((nodes, is_over))
        self.news.set()

    def _wants(self, trusted: frozenset[str]) -> frozenset[str]:
        """Those nodes that belong here, and which nobody takes out."""
        self._unwanted = [one for one in self._unwanted if not one[1]()]
        return trusted.difference(*(nodes for nodes, _ in self._unwanted))

    def asks(self, trusted: frozenset[str]) -> tuple[int, frozenset[str]] | None:
        """The set to ask for now, and the revision that it is conditional on; None: nothing.

        :param trusted: nodes that belong here: `Member.nodes`
        """
        leading = self._leading
        trusted = self._wants(trusted)
        if leading.asked is not None:
            # Rule 2: the answer to the last change did not come. It stays under way, and both sets
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

    def answered(self, answer: Answered) -> bool:
        """The last change was answered. False: this node leads no more."""
        found = self._leading.answered(answer)
        if isinstance(found, Deposed):
            return False
        self._leading = found
        self._changed()
        self.rounds.look()
        return True
