"""A leader: what it may release, and how the set of those in sync changes under it.

- A frame is released when it is synced here and acknowledged by all who are waited for, and only
  while the set is as large as was promised.
- A member that has been silent for too long is asked out of the set. Nothing is released without it
  before that is answered.
- A follower that holds all that was ever released is asked into the set: behind the leader's own
  first frame, that is all that it has released; before that, whoever holds that frame.
- A member that holds less than what was released is an older copy of itself: it is asked out of the
  set, and comes back in as others do.
- While what was asked for has no answer, both sets are waited for; the set that it had is asked for
  then, for an answer to that ends the doubt whichever of both was written.
- Whoever hears that another leads, or nobody, is deposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from protocol.agreement import Agreed, Answered, InSync


def may_take(agreed: Agreed, node: str) -> bool:
    """Whether a node may take the lead, as far as what is agreed goes: nobody has it, and the node
    is known to hold everything. That the set is the same still is a condition of the taking."""
    return agreed.lead is None and agreed.insync is not None and node in agreed.insync.members


class Deposed(Enum):
    """It does not lead any more, or may not know that it does."""

    DEPOSED = "deposed"


DEPOSED: Final = Deposed.DEPOSED


@dataclass(frozen=True, slots=True)
class Leading:
    """A leadership, from the frame that began it."""

    node: str
    """Who leads: the id made with its directory."""
    epoch: int
    acks: int
    """On how many followers everything must be that is released."""
    insync: InSync
    """As it was last answered."""
    own: int
    """The sequence of the first frame of this epoch."""
    synced: int = 0
    """The last frame that is on the disk here."""
    held: tuple[tuple[str, int], ...] = ()
    """By follower, the last frame that it has acknowledged to this leader."""
    asked: frozenset[str] | None = None
    """The set of a change that has not been answered."""
    released: int = 0
    """The last frame that this leader has released."""
    acks_before: int = 0
    """As many followers were promised, or more, by a policy …"""
    amended: int = 0
    """… that another has replaced, which is in this frame or before it."""

    # --- what it may release ----------------------------------------------------------------------

    @property
    def members(self) -> frozenset[str]:
        """Who is in the set, itself among them."""
        return self.insync.members | {self.node}

    @property
    def waited_for(self) -> frozenset[str]:
        """Who has to hold what is released. While a change has not been answered nobody knows which
        of both sets the next leader will come from."""
        return self.members | (self.asked or frozenset())

    @property
    def fewest(self) -> int:
        """How many are in the set at least: a change that has not been answered may be in force."""
        return min(len(self.members), len(self.asked or self.members))

    @property
    def is_enough(self) -> bool:
        """Whether the set is as large as was promised. It may have been when a commit came in, and
        be no more when that is to be released: it is asked again then."""
        return len(self.members) >= 1 + self.acks

    @property
    def releasable(self) -> int:
        """The last frame that may be released now."""
        if not self.is_enough:
            return self.released
        acknowledged = dict(self.held)
        others = (acknowledged.get(each, 0) for each in self.waited_for if each != self.node)
        upto = min([self.synced, *others])
        # What was released before it led is not known here: its own first frame says so of all
        # that stands before it.
        return max(self.released, upto) if upto >= self.own else self.released

    @property
    def is_settled(self) -> bool:
        """Whether its own first frame is released: it knows what is, and may answer reads as
        current."""
        return self.released >= self.own

    # --- what it hears ----------------------------------------------------------------------------

    def wrote(self, sequence: int) -> Leading:
        """All up to a frame is on the disk here."""
        return replace(self, synced=max(self.synced, sequence))

    def heard(self, follower: str, sequence: int) -> Leading:
        """A follower has all up to a frame on its disk, as this leader's log has it."""
        known = dict(self.held)
        known[follower] = max(known.get(follower, 0), sequence)
        return replace(self, held=tuple(sorted(known.items())))

    def attached(self, follower: str, sequence: int) -> Leading:
        """A follower came, or came back: its log agrees with this one up to here, and what it said
        before is forgotten."""
        known = dict(self.held) | {follower: sequence}
        return replace(self, held=tuple(sorted(known.items())))

    def release(self) -> Leading:
        """What may be released is."""
        return replace(self, released=self.releasable)

    # --- the set ----------------------------------------------------------------------------------

    def may_add(self, follower: str) -> bool:
        """Whether a set with a follower may be asked for: one that holds all that was ever
        released. A new leader does not know what was; it had all of it before its own first frame,
        and so has who holds that. So one that comes back makes the set large enough again, where
        another is gone that would have to hold that frame."""
        holds_all = dict(self.held).get(follower, -1) >= max(self.released, self.own)
        return self.asked is None and follower not in self.members and holds_all

    def has_gone_back(self, member: str) -> bool:
        """Whether a member has said that it holds less than what was released. Nothing is released
        without it, so it did hold that: the directory that it has now is an older one."""
        held = dict(self.held).get(member)
        return member in self.insync.members and held is not None and held < self.released

    def may_remove(self, *gone: str) -> bool:
        """Whether a set without some members may be asked for. One that is too small could release
        nothing, and whoever stays may have to lead."""
        left = self.members.difference(gone)
        are_others = bool(gone) and self.node in left and self.members.issuperset(gone)
        least = self.acks if self._all_know(left) else max(self.acks, self.acks_before)
        return self.asked is None and are_others and len(left) >= 1 + least

    def _all_know(self, nodes: frozenset[str]) -> bool:
        """Whether some nodes have the policy in their logs that stands now."""
        held = dict(self.held) | {self.node: self.synced}
        return all(held.get(node, 0) >= self.amended for node in nodes)

    def changes(self) -> Iterator[frozenset[str]]:
        """The sets that may be asked for now, of those it has heard of."""
        for follower, _ in self.held:
            if self.may_add(follower):
                yield self.members | {follower}
        for member in sorted(self.members):
            if self.may_remove(member):
                yield self.members - {member}

    def asks(self, members: frozenset[str]) -> Leading:
        """A set is asked for from now on, conditional on `epoch` and `insync.revision`."""
        assert self.asked is None, "a change is under way"
        return replace(self, asked=members)

    @property
    def again(self) -> frozenset[str]:
        """What to ask for when an answer did not come: the set it had. Whichever of both is written
        first, the other is refused; reading the set would tell nothing, for the first may still
        arrive."""
        return self.members

    def answered(self, answer: Answered) -> Leading | Deposed:
        """What it asked for last was written, or was not. Nobody waits for the answer to what was
        asked for before."""
        agreed = answer.agreed
        if agreed.lead is None or agreed.lead.epoch != self.epoch or agreed.insync is None:
            return DEPOSED
        return replace(self, insync=agreed.insync, asked=None)
