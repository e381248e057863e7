"""Leader state: the commit index and ISR changes. Immutable; each event returns a new value.

- A frame is released when it is synced here and acknowledged by all waited-for nodes, and only
  while the ISR has at least ACKS followers.
- A member that is silent for too long is asked out of the ISR (shrink). Nothing is released without
  it before etcd has answered.
- A follower that holds every frame ever released is asked into the ISR (expand). After the leader's
  own first frame, that is every frame up to the commit index; before, every frame up to that first
  one.
- A member that holds less than the commit index runs on an older copy of its directory. It is asked
  out of the ISR, and rejoins as others do.
- While a change is unanswered, the members of the old and of the new ISR are waited for, and the
  old ISR is asked for. An answer to that settles which of both was written.
- A leader that learns of another leader, or of a vacant lead, is deposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from protocol.agreement import AgreedState, CompareAndSetResult, InSyncReplicas


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
