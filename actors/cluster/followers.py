"""Progress of each follower as the leader knows it: acknowledged frames and last contact.

`wanted` decides from it if the leader asks to shrink or to expand the ISR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from actors.cluster.leader_state import LeaderState


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
        """Note that a follower has detached; its synced frames still count."""
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
