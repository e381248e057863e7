"""What a leader knows of its followers: how far each is, and when it was last heard of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from actors.cluster.leading import Leading


@dataclass(frozen=True, slots=True)
class Follower:
    """One of them, as it said last."""

    synced: int
    """The last frame that is on its disk."""
    applied: int
    """The last that it shows."""
    heard_us: int
    """When it said so, on the monotonic clock."""
    linked: bool = True
    """Whether it is attached at the moment."""


ATTACHES_US: Final = 500_000
"""For so long who led before may take to attach to who leads now, however long it was not heard: it
has given its lead up, say, and was followed by nobody."""
_NOBODY: Final = Follower(0, 0, 0, linked=False)


@dataclass(frozen=True, slots=True)
class Followers:
    """All that have attached to this leader, by the ids of their nodes."""

    by_node: Mapping[str, Follower] = field(default_factory=dict)

    @classmethod
    def begun(
        cls, members: frozenset[str], now_us: int, followed: Mapping[str, int], behind_us: int
    ) -> Followers:
        """Those of a leader that begins: it has heard of nobody, and gives each member of the set
        as long as one that has fallen silent in this moment.

        :param followed: whom it followed until now, and when it heard of it last: mostly who led
            before and is gone. It has been waited for while its lease lapsed, and has only the time
            that it takes to attach
        """
        earliest_us = now_us - max(behind_us - ATTACHES_US, 0)

        def heard_us(node: str) -> int:
            return max(followed.get(node, now_us), earliest_us)

        return cls({node: Follower(0, 0, heard_us(node), linked=False) for node in members})

    def attached(self, node: str, agree: int, now_us: int) -> Followers:
        """One came, or came back: its log agrees with this one's up to here. What it said before is
        forgotten."""
        return self._with(node, Follower(agree, 0, now_us))

    def heard(self, node: str, synced: int, applied: int, now_us: int) -> Followers:
        """One says how far it is."""
        return self._with(node, Follower(synced, applied, now_us))

    def left(self, node: str) -> Followers:
        """One is attached no more. What it holds it still holds."""
        found = self.by_node.get(node)
        return self if found is None else self._with(node, replace(found, linked=False))

    def recent(self, now_us: int, behind_us: int) -> frozenset[str]:
        """Those that were heard of within so long, whether or not they are attached still."""
        return frozenset(
            node for node, one in self.by_node.items() if now_us - one.heard_us <= behind_us
        )

    @property
    def linked(self) -> frozenset[str]:
        """Those that are attached."""
        return frozenset(node for node, one in self.by_node.items() if one.linked)

    def holding(self, upto: int) -> frozenset[str]:
        """Those that hold all up to a frame."""
        return frozenset(node for node, one in self.by_node.items() if one.synced >= upto)

    def held_by(self, nodes: frozenset[str], upto: int) -> int:
        """The last frame up to one that all of some nodes hold."""
        return min([upto, *(self._of(node).synced for node in nodes)])

    def shown_by(self, nodes: frozenset[str], upto: int) -> bool:
        """Whether all of some nodes show all up to a frame."""
        return all(self._of(node).applied >= upto for node in nodes)

    def furthest_lag(self, committed: int) -> int | None:
        """How many commits the one that is furthest behind lacks; None: nobody is attached."""
        lags = [committed - one.synced for one in self.by_node.values() if one.linked]
        return max(0, *lags) if lags else None

    def _of(self, node: str) -> Follower:
        return self.by_node.get(node, _NOBODY)

    def _with(self, node: str, one: Follower) -> Followers:
        return Followers({**self.by_node, node: one})


def wanted(
    leading: Leading, followers: Followers, trusted: frozenset[str], now_us: int, behind_us: int
) -> frozenset[str] | None:
    """The set that a leader should ask for now; None: it has what it needs, or may ask for none.

    Who is silent goes first, since nothing is released until then, or who lacks what all others in
    the set hold. One of them at a time: each change is an answer of its own. All of them together
    where none may go alone: one who stayed would have to know of the policy that lets them go.

    :param trusted: the nodes that belong to the cluster, by its rows: others are no members
    """
    recent = followers.recent(now_us, behind_us) & trusted
    leaving = [
        member
        for member in sorted(leading.members - {leading.node})
        if member not in recent or leading.has_gone_back(member)
    ]
    for gone in [*([member] for member in leaving), leaving]:
        if leading.may_remove(*gone):
            return leading.members.difference(gone)
    for node in sorted(recent & followers.linked):
        if leading.may_add(node):
            return leading.members | {node}
    return None


def replicating(leading: Leading, followers: Followers, now_us: int, behind_us: int) -> int:
    """How many followers of the set were heard of within BEHIND: whether a commit would be released
    is not asked of anybody else."""
    recent = followers.recent(now_us, behind_us)
    return sum(member in recent for member in leading.members if member != leading.node)


def lagging(
    followers: Followers, named: Collection[str], committed: int
) -> Iterator[tuple[str, int]]:
    """By node, the commits that it lacks.

    :param named: the nodes that rows name: one that was dropped lacks nothing that anybody misses
    """
    for node, one in sorted(followers.by_node.items()):
        if node in named:
            yield node, max(0, committed - one.synced)
