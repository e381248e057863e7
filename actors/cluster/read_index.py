"""Linearizable reads: the sequence that a node has to show first (read index, Raft §6.4).

| its role | read index |
|---|---|
| `Alone`, `Founder` before the file CLUSTER exists | its own commit index: no other node releases |
| `Leader` | its commit index, after a round to the ISR confirms that it leads |
| `Follower` | asks its leader, which does the same |
| `Follower` with a link just lost, `Waiting` since just now, `Elected` | waits for a leader |
| any other | refuses: no leader is known |

A link ends when a policy comes into force, when another node takes the lead, or when a packet is
lost. The next link is there within moments, and a client could only repeat its request. So the read
waits.

A leader confirms by a round that it still leads. Rounds do not depend on clocks.

    begin → its number goes to each follower with the next message → each echoes it → done

A follower echoes a number only while it has promised no later epoch. A new leader comes from the
ISR, and has promised its epoch before it releases anything. So once the whole ISR has echoed a
number, this leader's commit index was the newest anywhere when the round began.

- A round serves requests made before it began, and none after. The requests of one loop iteration
  share a round.
- While an ISR change is unanswered, the members of the old and of the new ISR are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from actors.commits.committer import Committer
from actors.execution.blocking import FutureWait, NumberedQueue, raise_error
from protocol.environment import Clock
from protocol.errors import Busy, Refusal

# --- rounds ---------------------------------------------------------------------------------------


class ReadIndexRounds:
    """Rounds of one leadership; on the loop only.

    :param asked: returns the nodes that have to echo: the ISR without this node
    """

    def __init__(self, asked: Callable[[], frozenset[str]]) -> None:
        self._asked: Final = asked
        self.number = 0
        """Newest round; sent with every message to a follower."""
        self.say: Callable[[], None] = _nobody
        """Sends a message to each follower soon."""
        self._heard: dict[str, int] = {}
        self._waiting = NumberedQueue(raise_error)
        self._begins = False
        self._ended: Refusal | None = None

    def start_round(self) -> asyncio.Future[None]:
        """Return a future that is done once all have echoed a round begun after this call. It fails
        with the reason of `end` if this node no longer leads."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._ended is not None:
            done.set_exception(self._ended.also())
            return done
        if not self._begins:
            self._begins = True
            self.number += 1
            # One message to each follower serves all requests of this loop iteration.
            loop.call_soon(self._go)
        wait = FutureWait(done)
        self._waiting.block(wait, self.number)
        done.add_done_callback(lambda _: wait.cancel())  # its caller may give up
        return done

    def _go(self) -> None:
        self._begins = False
        if self._waiting:
            self.say()
            self.complete_rounds()

    def on_report(self, node: str, number: int) -> None:
        """Note that a follower has echoed a number."""
        if number > self._heard.get(node, 0):
            self._heard[node] = number
            self.complete_rounds()

    def complete_rounds(self) -> None:
        """Complete the answered rounds; called when the ISR has changed too.

        A removed member is no longer asked: the write that removed it also proves that this node
        led.
        """
        if not self._waiting or self._begins:
            return
        on_report = self._heard
        # A leader alone in the ISR needs no echo: no other member could be elected.
        # The slowest node decides. Numbers only grow, so an echo answers all earlier rounds too.
        upto = min((on_report.get(node, 0) for node in self._asked()), default=self.number)
        self._waiting.unblock_upto(upto)

    def end(self, why: Refusal) -> None:
        """Fail all rounds: this node no longer leads."""
        self._ended = why
        self._waiting.fail(0, lambda _: why.also())


def _nobody() -> None:
    """Send nothing: there are no followers yet."""


# --- reads ----------------------------------------------------------------------------------------


SILENT_SECONDS: Final = 3.0
"""Time without a leader (s) after which a node refuses: another node may know more."""
LOOK_SECONDS: Final = 0.02
"""Interval of checks for a leader while a read waits (s)."""
_SILENT_US: Final = int(SILENT_SECONDS * 1_000_000)


class ReadingLeadership(Protocol):
    """A leadership, as reads see it: `Leadership`."""

    @property
    def rounds(self) -> ReadIndexRounds:
        """Its read index rounds."""

    @property
    def own(self) -> int | None:
        """Sequence of its first frame; None: not written yet."""


class ReadingFollowTask(Protocol):
    """A link to the leader, as reads see it: `FollowTask`."""

    @property
    def is_attached(self) -> bool:
        """True while this node is attached."""

    def silent_us(self, now_us: int) -> int:
        """Return the time since the leader's last message (µs)."""

    async def request_read_index(self) -> int:
        """Ask the leader for its read index. :raises Busy: it can't be asked, or gave no answer"""


class ReadingMember(Protocol):
    """The role of this node, as reads see it: `ClusterMember`."""

    @property
    def leading(self) -> ReadingLeadership | None:
        """Its leadership, in the role `Leader`."""

    @property
    def follow_task(self) -> ReadingFollowTask | None:
        """Its link, in the role `Follower`."""

    @property
    def is_elected(self) -> bool:
        """True in the role `Elected`."""

    @property
    def is_waiting(self) -> bool:
        """True in the role `Waiting`."""

    @property
    def releases_alone(self) -> bool:
        """True if no other node can release a commit of this store."""

    @property
    def no_leader(self) -> str:
        """Reason why it knows of no leader."""

    @property
    def is_stranded(self) -> bool:
        """True if it shows frames that are not in its leader's history."""

    def is_silent(self, for_us: int) -> bool:
        """True if no leader was heard for so long."""


class LinearizableReads:
    """On the loop only."""

    def __init__(self, clock: Clock, member: ReadingMember, committer: Committer) -> None:
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
        member = self._member
        if member.leading is not None:
            return asyncio.ensure_future(_leader_read_index(member.leading, self._committer))
        if member.follow_task is not None or self._expects_leader:
            return asyncio.ensure_future(self._read_index_of_next_leader())
        # No other node can lead: no round is needed.
        if member.releases_alone:
            return self._committer.commit_index
        raise self._no_leader()

    async def _read_index_of_next_leader(self) -> int:
        # Each wait may end in another role, so the role is read again after it.
        while (leadership := self._member.leading) is None:
            follow_task = self._member.follow_task
            if follow_task is not None:
                try:
                    return await follow_task.request_read_index()
                except Busy:
                    # Not attached, or the link ended before the answer: a leader may be there soon.
                    if not self._expects_leader:
                        raise
            elif not self._expects_leader:
                raise self._no_leader()
            await self._wait_for_leader()
        return await _leader_read_index(leadership, self._committer)

    def _no_leader(self) -> Busy:
        return Busy(f"cannot serve a linearizable read: {self._member.no_leader}")

    @property
    def _expects_leader(self) -> bool:
        """True if a leader is likely to be there in a moment."""
        member, follow_task = self._member, self._member.follow_task
        if follow_task is not None:
            silent_us = follow_task.silent_us(self._clock.monotonic_us())
            return silent_us < _SILENT_US and not member.is_stranded
        if member.is_waiting:
            return not member.is_silent(_SILENT_US)
        return member.is_elected

    @property
    def _has_leader(self) -> bool:
        member = self._member
        return member.leading is not None or (
            member.follow_task is not None and member.follow_task.is_attached
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


async def _leader_read_index(leadership: ReadingLeadership, committer: Committer) -> int:
    await leadership.rounds.start_round()
    own = leadership.own
    if own is None:
        raise Busy(
            "this node has just taken the lead and does not know the commit index yet: try again"
        )
    # Cluster rule 7: its first frame comes after everything that earlier leaders have released.
    return max(own, committer.commit_index)
