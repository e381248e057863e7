"""Linearizable reads: the sequence that a node has to show first (read index, Raft §6.4).

| its role | read index |
|---|---|
| `Alone`, `Founder` before the file CLUSTER exists | its own commit index: no other node releases |
| `Leader` | its commit index, after a round to the ISR confirms that it leads (`read_index.py`) |
| `Follower` | asks its leader, which does the same |
| `Follower` with a link just lost, `Waiting` since just now, `Elected` | waits for a leader |
| any other | refuses: no leader is known |

A link ends when a policy comes into force, when another node takes the lead, or when a packet is
lost. The next link is there within moments, and a client could only repeat its request. So the read
waits.
"""

from __future__ import annotations

import asyncio
from typing import Final

from actors.cluster.leadership import Leadership
from actors.cluster.member import FOUNDING, ClusterMember
from actors.cluster.role import Alone, Elected, Follower, Founder, Leader, Waiting
from actors.commits import Committer
from protocol.environment import Clock
from protocol.errors import Busy

SILENT_SECONDS: Final = 3.0
"""Time without a leader (s) after which a node refuses: another node may know more."""
LOOK_SECONDS: Final = 0.02
"""Interval of checks for a leader while a read waits (s)."""
_SILENT_US: Final = int(SILENT_SECONDS * 1_000_000)


class LinearizableReads:
    """On the loop only."""

    def __init__(self, clock: Clock, member: ClusterMember, committer: Committer) -> None:
        self._clock = clock
        self._member = member
        self._committer = committer
        self._attaching: asyncio.Task[None] | None = None
        """Polls for a leader, for all waiting reads."""

    def ask(self) -> int | asyncio.Future[int]:
        """Return the read index, or a future of it: a node that shows it shows everything released
        anywhere before this call.

        :raises Busy: this node knows or reaches no leader; the future may fail with it too
        """
        role = self._member.role
        if isinstance(role, Leader):
            return asyncio.ensure_future(_leader_read_index(role.leadership, self._committer))
        if isinstance(role, Follower) or self._expects_leader:
            return asyncio.ensure_future(self._read_index_of_next_leader())
        # Before the file CLUSTER is written, no other node can lead: no round is needed.
        if isinstance(role, Alone) or (
            isinstance(role, Founder) and self._member.memory.stored is None
        ):
            return self._committer.commit_index
        raise self._no_leader()

    async def _read_index_of_next_leader(self) -> int:
        # Each wait may end in another role, so the role is read again after it.
        while not isinstance(role := self._member.role, Leader):
            if isinstance(role, Follower):
                try:
                    return await role.follow_task.request_read_index()
                except Busy:
                    # Not attached, or the link ended before the answer: a leader may be there soon.
                    if not self._expects_leader:
                        raise
            elif not self._expects_leader:
                raise self._no_leader()
            await self._wait_for_leader()
        return await _leader_read_index(role.leadership, self._committer)

    def _no_leader(self) -> Busy:
        member = self._member
        why = FOUNDING if isinstance(member.role, Founder) else "this node follows no leader"
        return Busy(f"cannot serve a linearizable read: {member.why or why}")

    @property
    def _expects_leader(self) -> bool:
        """True if a leader is likely to be there in a moment."""
        member, role = self._member, self._member.role
        if isinstance(role, Follower):
            silent_us = role.follow_task.silent_us(self._clock.monotonic_us())
            return silent_us < _SILENT_US and not member.is_stranded
        if isinstance(role, Waiting):
            return not member.is_silent(_SILENT_US)
        return isinstance(role, Elected)

    @property
    def _has_leader(self) -> bool:
        role = self._member.role
        return isinstance(role, Leader) or (
            isinstance(role, Follower) and role.follow_task.is_attached
        )

    async def _wait_for_leader(self) -> None:
        """Return once there is a leader, or once waiting is useless."""
        if self._attaching is None or self._attaching.done():
            self._attaching = asyncio.create_task(self._check_leader())
        # One poll serves all waiting reads: a cancelled read must not end it.
        await asyncio.shield(self._attaching)

    async def _check_leader(self) -> None:
        while self._expects_leader and not self._has_leader:
            await asyncio.sleep(LOOK_SECONDS)


async def _leader_read_index(leadership: Leadership, committer: Committer) -> int:
    await leadership.rounds.start_round()
    own = leadership.own
    if own is None:
        raise Busy(
            "this node has just taken the lead and does not know the commit index yet: try again"
        )
    # Cluster rule 7: its first frame comes after everything that earlier leaders have released.
    return max(own, committer.commit_index)
