"""Stalls: why a leader's commit index does not advance, as text with the remedy.

| held up by | meaning |
|---|---|
| followers | fewer than ACKS followers are recent: writes are refused |
| etcd | an ISR member is silent, and etcd, which has to remove it, does not answer |
| leader | this node knows of no leader |
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from actors.cluster.leader_state import LeaderState
from protocol.errors import NotEnoughReplicas
from protocol.failover import Policy
from protocol.requests import HeldUp


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
