"""Whether a node still leads, asked of all who may have taken over: for reads that have to be of
the present whatever clocks do.

    begin → its number goes out with what each follower is told next → each says it back → done

A follower says a number back only while it has promised no later epoch, and whoever leads in one
has promised it before it releases anything. The next leader comes from the set. So once all of the
set have said a number back, nothing was released anywhere, when that round began, that is not
released here.

- A round serves those who came before it began, and nobody who came later: those of one turn of the
  loop share one.
- While a change of the set is not answered both sets are asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from protocol.errors import Refusal


class Rounds:
    """Those of one leadership; on the loop only.

    :param asked: who has to say a number back: all of the set but this node
    """

    def __init__(self, asked: Callable[[], frozenset[str]]) -> None:
        self._asked: Final = asked
        self.number = 0
        """The newest; it goes out with everything that is said to a follower."""
        self.say: Callable[[], None] = _nobody
        """Has something said to each follower soon."""
        self._heard: dict[str, int] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._begins = False
        self._ended: Refusal | None = None

    def begin(self) -> asyncio.Future[None]:
        """Done once all have answered a round that begins behind this. Raises what it was ended
        with: this node leads no more."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._ended is not None:
            done.set_exception(self._ended.also())
            return done
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()  # who waited for it has given up
        if not self._begins:
            self._begins = True
            self.number += 1
            loop.call_soon(self._go)
        self._waiting.append((self.number, done))
        return done

    def _go(self) -> None:
        self._begins = False
        if self._waiting:
            self.say()
            self.look()

    def heard(self, node: str, number: int) -> None:
        """A follower has said a number back."""
        if number > self._heard.get(node, 0):
            self._heard[node] = number
            self.look()

    def look(self) -> None:
        """See who has been answered; also when the set has changed. One that a change has taken out
        is asked no more: that it was written shows as well that this node led."""
        if not self._waiting or self._begins:
            return
        heard = self._heard
        upto = min((heard.get(node, 0) for node in self._asked()), default=self.number)
        while self._waiting and self._waiting[0][0] <= upto:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_result(None)

    def end(self, why: Refusal) -> None:
        """This node leads no more: nobody is told that it does."""
        self._ended = why
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_exception(why.also())


def _nobody() -> None:
    """There is nobody to say anything to."""
