"""Groups: members that share a topic's messages between them.

A message is handed out to one member, who has until its deadline to acknowledge it; otherwise it is
handed out again. So work is done at least once: write its effect and the acknowledgement in one
`BEGIN … COMMIT` where it must not be done twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self

from storeclient.batches import Batches
from storeclient.errors import Cancelled, OutcomeUnknown, Refused, StoreError, Unreachable
from storeclient.messages import Ask, Message, Run, given, message_fields
from storeclient.names import quote_name
from storeclient.values import duration

Seconds = float | timedelta

TAKE_WAIT: Final = timedelta(seconds=60)
"""How long one TAKE of a consumer waits at the node before it asks again."""
BATCH: Final = 250
"""Receipts in one request at most: a node does so many at once, more in turns."""
EXTENSIONS: Final = 3
"""How often a consumer that extends does so within a deadline."""
RETRY_FIRST_SECONDS: Final = 0.05
RETRY_MOST_SECONDS: Final = 5.0
GIVEN_BACK: Final = "given back: its consumer stopped before it was worked on"


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of receipts."""

    done: int
    """Acknowledged, given back, extended or given up, as was asked."""
    stale: int
    """Too late: their messages were handed out again, acknowledged before, trimmed, or the group
    was moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncHandOut(Message):
    """A message that was handed out, until it is settled."""

    receipt: str
    attempt: int
    """How often it has been handed out, this time included."""
    deadline: datetime
    """When it may be handed out to another, by the node's log time."""
    member: str | None
    _owner: _Owner = field(repr=False, compare=False)

    async def ack(self) -> bool:
        """It is done, durably so when this returns; False: too late, and another may do it too.

        Of a consumer, acknowledgements made at one time travel together: when only some of them
        were too late, the node does not say which, and this is True for all. `consumer.stale`
        counts them.
        """
        return await self._owner.ack(self)

    async def nack(self, *, delay: Seconds | None = None, error: str | None = None) -> bool:
        """Hand it out again, after `delay` or else the group's backoff; False: it was too late.

        :param error: kept with it, and in a dead letter's `dead-error`
        """
        return await self._owner.nack(self, delay, error)

    async def extend(self, by: Seconds) -> bool:
        """Let the deadline be `by` from now; False: it was too late."""
        return await self._owner.extend(self, by)

    async def give_up(self, *, error: str | None = None) -> bool:
        """Make it a dead letter at once; False: it was too late."""
        return await self._owner.give_up(self, error)


class _Owner(Protocol):
    async def ack(self, hand_out: AsyncHandOut) -> bool: ...
    async def nack(
        self, hand_out: AsyncHandOut, delay: Seconds | None, error: str | None
    ) -> bool: ...
    async def extend(self, hand_out: AsyncHandOut, by: Seconds) -> bool: ...
    async def give_up(self, hand_out: AsyncHandOut, error: str | None) -> bool: ...


class AsyncGroup:
    """One group. Made by `AsyncTopic.group(name)`; nothing is asked before its first call."""

    def __init__(self, run: Run, ask: Ask, topic: str, name: str) -> None:
        self._run = run
        self._ask = ask
        self._on = f"{quote_name(name)} ON {quote_name(topic)}"
        self.name = name

    async def take(
        self, count: int = 1, *, member: str | None = None, wait: Seconds | None = None
    ) -> list[AsyncHandOut]:
        """Messages for this caller to work on.

        :param count: 1 to 1000; the node also stops at 8 MiB
        :param member: who takes them, for people to see
        :param wait: how long to wait for the first when there is none, at most 300 seconds
        """
        return await self._take(count, member, duration(wait), _Single(self))

    async def _take(
        self,
        count: int,
        member: str | None,
        wait: timedelta | None,
        owner: _Owner,
        stop: asyncio.Future[None] | None = None,
    ) -> list[AsyncHandOut]:
        fields = given(group=self.name, count=count, member=member, wait=wait)
        answer = await self._ask("take", fields, wait=wait, stop=stop)
        return [
            AsyncHandOut(
                **message_fields(one),
                receipt=one["receipt"],
                attempt=one["attempt"],
                deadline=one["deadline"],
                member=one["member"],
                _owner=owner,
            )
            for one in answer["messages"]
        ]

    def messages(
        self,
        *,
        prefetch: int = 32,
        member: str | None = None,
        extend: bool = False,
    ) -> AsyncConsumer:
        """Messages one by one, for ever, as they come.

            async with group.messages() as messages:
                async for message in messages:
                    await work(message.value)
                    await message.ack()

        :param prefetch: messages taken ahead; each has its deadline from then on
        :param extend: extend the deadlines of all that are held, again and again, until they are
            settled: for work that takes longer than the group's deadline
        """
        return AsyncConsumer(self, prefetch, member, extend)

    async def ack(self, receipts: Sequence[str]) -> Settled:
        """They are done. :param receipts: 1 to 10 000"""
        return await self._settle("ack", "acked", receipts)

    async def nack(
        self,
        receipts: Sequence[str],
        *,
        delay: Seconds | None = None,
        error: str | None = None,
    ) -> Settled:
        """Hand them out again; see `AsyncHandOut.nack`."""
        return await self._settle("nack", "nacked", receipts, delay=duration(delay), error=error)

    async def extend(self, receipts: Sequence[str], by: Seconds) -> Settled:
        """Let their deadlines be `by` from now."""
        return await self._settle("extend", "extended", receipts, by=duration(by))

    async def give_up(self, receipts: Sequence[str], *, error: str | None = None) -> Settled:
        """Make them dead letters at once."""
        return await self._settle("give_up", "given_up", receipts, error=error)

    async def _settle(self, op: str, done: str, receipts: Sequence[str], **clauses: Any) -> Settled:
        fields = given(group=self.name, receipts=list(receipts), **clauses)
        found = await self._ask(op, fields)
        return Settled(found[done], found["stale"])

    async def info(self) -> dict[str, Any]:
        """What INFO FOR GROUP answers."""
        return dict((await self._run(f"INFO FOR GROUP {self._on}", {}, repeatable=True)).value)


class _Single:
    """Settles what `take` answered: each receipt by itself."""

    def __init__(self, group: AsyncGroup) -> None:
        self._group = group

    async def ack(self, hand_out: AsyncHandOut) -> bool:
        return bool((await self._group.ack([hand_out.receipt])).done)

    async def nack(self, hand_out: AsyncHandOut, delay: Seconds | None, error: str | None) -> bool:
        return bool((await self._group.nack([hand_out.receipt], delay=delay, error=error)).done)

    async def extend(self, hand_out: AsyncHandOut, by: Seconds) -> bool:
        return bool((await self._group.extend([hand_out.receipt], by)).done)

    async def give_up(self, hand_out: AsyncHandOut, error: str | None) -> bool:
        return bool((await self._group.give_up([hand_out.receipt], error=error)).done)


class AsyncConsumer:
    """Messages of a group as they come. Made by `AsyncGroup.messages`; see there.

    It takes ahead, and goes on by itself after a broken connection, with a node that comes back or
    is busy: what was handed out in an answer that got lost comes again after its deadline. Other
    errors end it, as does a node that can't be reached in the first place, and are
    raised to whoever iterates. `stop`, or leaving `async with`, gives back what was taken and not
    yet iterated over. That counts as an attempt of those messages, as each hand-out does: a group
    whose DELIVERIES is 1 makes dead letters of them, so let its consumers prefetch 1.
    """

    def __init__(self, group: AsyncGroup, prefetch: int, member: str | None, extend: bool) -> None:
        if prefetch < 1:
            raise ValueError("at least one message is taken at a time")
        self._group = group
        self._single = _Single(group)
        self._prefetch = prefetch
        self._member = member
        self._extend = extend
        self._ready: deque[AsyncHandOut] = deque()
        self._held: dict[str, AsyncHandOut] = {}
        """Iterated over and not settled, by receipt; only where they are extended."""
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._has_taken = False
        """Whether a TAKE was answered: from then on a node that is away is waited for."""
        self._acks: Batches[str, bool] = Batches(self._send_acks, BATCH)
        self.stale = 0
        """Acknowledgements that came too late."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncHandOut:
        self._begin()
        while True:
            if self._stopping is not None and self._stopping.done():
                raise StopAsyncIteration
            if self._ready:
                hand_out = self._ready.popleft()
                self._room.set()
                if self._extend:
                    self._held[hand_out.receipt] = hand_out
                return hand_out
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    def _begin(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
            self._start(self._take_ahead())
            if self._extend:
                self._start(self._keep_extending())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(self._guarded(work)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._failure = error
            self._changed.set()

    async def _take_ahead(self) -> None:
        stopping = self._stopping
        assert stopping is not None
        pause = RETRY_FIRST_SECONDS
        while not stopping.done():
            room = self._prefetch - len(self._ready)
            # Few large requests rather than one for each message.
            if room < (self._prefetch + 1) // 2:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                found = await self._group._take(
                    min(room, 1000), self._member, TAKE_WAIT, self, stopping
                )
            except Cancelled:
                if not stopping.done():
                    raise
                return
            except (OutcomeUnknown, Refused, Unreachable) as error:
                if not (error.retry if isinstance(error, Refused) else self._has_taken):
                    raise
                await asyncio.wait((stopping,), timeout=pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, RETRY_MOST_SECONDS)
                continue
            pause, self._has_taken = RETRY_FIRST_SECONDS, True
            self._ready += found
            self._changed.set()

    async def _keep_extending(self) -> None:
        stopping = self._stopping
        assert stopping is not None
        deadline: timedelta = (await self._group.info())["deadline"]
        while not stopping.done():
            await asyncio.wait((stopping,), timeout=deadline.total_seconds() / EXTENSIONS)
            receipts = [*self._held, *(one.receipt for one in self._ready)]
            for begin in range(0, len(receipts), BATCH):
                try:
                    await self._group.extend(receipts[begin : begin + BATCH], deadline)
                except OutcomeUnknown:
                    break  # the next one may come in time

    # --- settling ---------------------------------------------------------------------------------

    async def ack(self, hand_out: AsyncHandOut) -> bool:
        """`AsyncHandOut.ack`."""
        self._held.pop(hand_out.receipt, None)
        return await self._acks.put(hand_out.receipt)

    async def _send_acks(self, receipts: Sequence[str]) -> list[bool]:
        settled = await self._group.ack(receipts)
        self.stale += settled.stale
        return [settled.done > 0] * len(receipts)

    async def nack(self, hand_out: AsyncHandOut, delay: Seconds | None, error: str | None) -> bool:
        """`AsyncHandOut.nack`."""
        self._held.pop(hand_out.receipt, None)
        return await self._single.nack(hand_out, delay, error)

    async def extend(self, hand_out: AsyncHandOut, by: Seconds) -> bool:
        """`AsyncHandOut.extend`."""
        return await self._single.extend(hand_out, by)

    async def give_up(self, hand_out: AsyncHandOut, error: str | None) -> bool:
        """`AsyncHandOut.give_up`."""
        self._held.pop(hand_out.receipt, None)
        return await self._single.give_up(hand_out, error)

    # --- stopping ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Take nothing more, give back what was not iterated over, and wait for the
        acknowledgements under way. Whoever iterates comes to the end. Harmless when done twice."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
        if not self._stopping.done():
            self._stopping.set_result(None)
        self._changed.set()
        self._room.set()
        await asyncio.gather(*self._tasks)
        await self._acks.drained()
        back = [self._ready.popleft().receipt for _ in range(len(self._ready))]
        for begin in range(0, len(back), BATCH):
            await self._group.nack(back[begin : begin + BATCH], delay=0, error=GIVEN_BACK)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.stop()
        except StoreError:
            if error is None:
                raise
            # The block's own error is the one to hear of; messages come again by their deadline.
