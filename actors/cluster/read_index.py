"""Read index rounds (Raft §6.4): a leader confirms that it still leads, for linearizable reads.

They do not depend on clocks.

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
from collections import deque
from collections.abc import Callable
from typing import Final

from protocol.errors import Refusal


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
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
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
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()  # its caller has given up
        if not self._begins:
            self._begins = True
            self.number += 1
            # One message to each follower serves all requests of this loop iteration.
            loop.call_soon(self._go)
        self._waiting.append((self.number, done))
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
        while self._waiting and self._waiting[0][0] <= upto:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_result(None)

    def end(self, why: Refusal) -> None:
        """Fail all rounds: this node no longer leads."""
        self._ended = why
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_exception(why.also())


def _nobody() -> None:
    """Send nothing: there are no followers yet."""
