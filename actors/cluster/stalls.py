"""What a leader waits for that releases nothing for now, in words that say what helps.

| held up by | what it is |
|---|---|
| followers | fewer are heard of than ACKS wants: writes are refused |
| etcd | one of the set is silent, and etcd does not answer, which has to take it out |
| leader | nobody leads that this node knows of |
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from actors.cluster.leading import Leading
from protocol.errors import NotEnoughReplicas
from protocol.failover import Policy
from protocol.requests import HeldUp


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing is released."""

    held_up: HeldUp
    why: str
    """What it waits for, and what helps."""
    followers: int
    """That are in the set, and are heard of."""
    acks: int

    def refusal(self) -> NotEnoughReplicas:
        """What those hear who would have to wait for what is on its way."""
        return NotEnoughReplicas(
            f"what this rests on is not released: this node waits for {self.why}. Nothing was"
            " written",
            followers=self.followers,
            acks=self.acks,
        )


def stall(
    leading: Leading,
    policy: Policy,
    recent: frozenset[str],
    trusted: frozenset[str],
    name: Callable[[str], str],
    *,
    is_late: bool,
) -> Stalled | None:
    """Why nothing is released; None: all goes on, or will in a moment.

    :param recent: who was heard of within BEHIND
    :param trusted: nodes that belong here: those outside of the set may come back into it
    :param name: what to call a node by its id
    :param is_late: whether something has been on the disk here for so long that it should have been
        released: who is silent should have left the set by then
    """
    others = leading.waited_for - {leading.node}
    silent, heard = others - recent, len((leading.members & recent) - {leading.node})
    within = f"heard of within BEHIND, {policy.behind_us / 1_000_000:g} s"
    if heard < policy.acks:
        away = (others | trusted) - recent - {leading.node}
        missing = _named(away, name) if away else "followers that hold all there is"
        one = f"{heard} follower{' is' if heard == 1 else 's are'}"
        why = (
            f"{missing}: {one} {within}, and ACKS is {policy.acks}. It goes on by itself once"
            f" enough are there; where they are gone for good, DEFINE FAILOVER with fewer ACKS,"
            f" {heard} at most, has it go on without them"
        )
        return Stalled("followers", why, heard, policy.acks)
    if not is_late:
        return None
    if silent:
        why = (
            f"etcd, to take {_named(silent, name)} out of the set, not {within}: it goes on once"
            " etcd answers, or they are back"
        )
        return Stalled("etcd", why, heard, policy.acks)
    return Stalled(
        "followers",
        f"{_named(others, name)} to have on disk what is committed",
        heard,
        policy.acks,
    )


def _named(nodes: Collection[str], name: Callable[[str], str]) -> str:
    return ", ".join(sorted(map(name, nodes)))
