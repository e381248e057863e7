"""Consumer groups: members share the messages of a topic.

A message is delivered to one member, which must acknowledge it before its ack deadline (SQS
visibility timeout); otherwise it is delivered again. So delivery is at-least-once. `done` commits
the effect of a message together with its acknowledgement in one transaction, for effects that must
happen only once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from storeclient.answers import Answer, within
from storeclient.batches import Batches
from storeclient.errors import (
    Cancelled,
    OutcomeUnknown,
    Refused,
    StoreError,
    Thrown,
)
from storeclient.messages import AskTopic, Message, RunScript, given, message_fields
from storeclient.names import quote_name
from storeclient.outages import Pause, is_outage
from storeclient.values import Seconds, duration

T = TypeVar("T")

TAKE_WAIT: Final = timedelta(seconds=60)
"""Time that one TAKE of a consumer waits at the node before it is repeated."""
BATCH: Final = 250
"""Receipts per request: a node processes so many at once, more in slices."""
EXTENSIONS: Final = 3
"""Extensions per ack deadline of a consumer that extends."""
LEAST_PAUSE_SECONDS: Final = 0.05
"""Shortest pause between two extensions, however short the group's ack deadline."""
RECEIPT: Final = "storeclient_receipt"
STALE: Final = "storeclient: the receipt is stale"
GIVEN_BACK: Final = "given back: its consumer stopped before it was worked on"


@dataclass(frozen=True, slots=True)
class Settled:
    """Result of an operation on receipts."""

    done: int
    """Receipts that were acknowledged, returned, extended or dead-lettered, as requested."""
    stale: int
    """Receipts that were too late: their messages were delivered again, already acknowledged,
    trimmed, or the group was moved."""
    stale_receipts: tuple[str, ...] = ()
    """The stale receipts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncDelivery(Message):
    """A delivered message, until it is settled."""

    receipt: str
    attempt: int
    """Number of deliveries, including this one."""
    deadline: datetime
    """Ack deadline, by the node's log time: after it the message may be delivered to another
    member."""
    member: str | None
    _owner: _Owner = field(repr=False, compare=False)

    async def ack(self) -> bool:
        """Acknowledge the message, durably when this returns. False: too late, and another member
        may process it too.

        A consumer batches concurrent acknowledgements, and repeats them after an outage.

        :raises OutcomeUnknown: the connection broke, and the message is no longer delivered to this
            member. Either the acknowledgement succeeded or the deadline passed. The consumer
            continues
        """
        return await self._owner.ack(self)

    async def done(self, script: str, params: Mapping[str, Any] | None = None) -> Answer | None:
        """Commit the message's effect and its acknowledgement in one transaction; see
        `AsyncGroup.done`."""
        return await self._owner.done(self, script, params)

    async def nack(self, *, delay: Seconds | None = None, error: str | None = None) -> bool:
        """Return the message for redelivery, after `delay` or else the group's backoff. False: too
        late.

        :param error: stored with the message, and in a dead letter's `dead-error`
        """
        return await self._owner.nack(self, delay, error)

    async def extend(self, by: Seconds) -> bool:
        """Set the ack deadline to `by` from the present. False: too late."""
        return await self._owner.extend(self, by)

    async def give_up(self, *, error: str | None = None) -> bool:
        """Make the message a dead letter immediately. False: too late."""
        return await self._owner.give_up(self, error)


class _Owner(Protocol):
    async def ack(self, delivery: AsyncDelivery) -> bool: ...
    async def done(
        self, delivery: AsyncDelivery, script: str, params: Mapping[str, Any] | None
    ) -> Answer | None: ...
    async def nack(
        self, delivery: AsyncDelivery, delay: Seconds | None, error: str | None
    ) -> bool: ...
    async def extend(self, delivery: AsyncDelivery, by: Seconds) -> bool: ...
    async def give_up(self, delivery: AsyncDelivery, error: str | None) -> bool: ...


class AsyncGroup:
    """Handle of a group. Made by `AsyncTopic.group(name)`; sends nothing before its first call."""

    def __init__(self, run: RunScript, ask: AskTopic, topic: str, name: str) -> None:
        self._run = run
        self._ask = ask
        self._topic = topic
        self._on = f"{quote_name(name)} ON {quote_name(topic)}"
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} on {self._topic}>"

    async def take(
        self, count: int = 1, *, member: str | None = None, wait: Seconds | None = None
    ) -> list[AsyncDelivery]:
        """Take messages for processing.

        :param count: 1 to 1000; the node also stops at 8 MiB
        :param member: name of the consumer, shown to operators
        :param wait: longest wait for the first message, at most 300 seconds
        """
        return await self._take(count, member, duration(wait), _Single(self))

    async def _take(
        self,
        count: int,
        member: str | None,
        wait: timedelta | None,
        owner: _Owner,
        stop: asyncio.Future[None] | None = None,
    ) -> list[AsyncDelivery]:
        fields = given(group=self.name, count=count, member=member, wait=wait)
        answer = await self._ask("take", fields, wait=wait, stop=stop)
        return [
            AsyncDelivery(
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
        """Return a consumer: an endless iterator of messages.

            async with group.messages() as messages:
                async for message in messages:
                    await work(message.value)
                    await message.ack()

        :param prefetch: messages taken ahead; the ack deadline of each runs from then on
        :param extend: extend the deadlines of all held messages until they are settled, for work
            that takes longer than the group's ack deadline
        """
        return AsyncConsumer(self, prefetch, member, extend)

    async def done(
        self, message: AsyncDelivery, script: str, params: Mapping[str, Any] | None = None
    ) -> Answer | None:
        """Run a script and acknowledge a message, in one transaction. The effect of the message is
        committed exactly once, whatever fails, and however often it is delivered.

            await group.done(message, "UPDATE $id SET paid = true", {"id": order})

        After a broken connection it is repeated automatically: the second run finds a stale receipt
        and changes nothing. For messages of a consumer it also waits for a node that is away, see
        `AsyncConsumer`.

        :param script: any statements except BEGIN, COMMIT and CANCEL; they are atomic
        :returns: the script's results. None: the receipt was stale and nothing was changed. Another
            member has or had the message, or an earlier attempt of this call succeeded
        :raises Refused: see `AsyncClient.run`; nothing was changed, and the message stays delivered
        :raises ValueError: a parameter has a reserved name
        """
        return await message._owner.done(message, script, params)

    async def _done(
        self, message: AsyncDelivery, script: str, params: Mapping[str, Any] | None
    ) -> Answer | None:
        given = dict(params or {})
        if RECEIPT in given:
            raise ValueError(f"parameter {RECEIPT!r} is reserved: `done` passes the receipt in it")
        # On the script's first line, so that its line numbers stay valid.
        before = (
            f"BEGIN; LET ${RECEIPT}_ack = ACK {quote_name(self._topic)} AS {quote_name(self.name)}"
            f" RECEIPTS [${RECEIPT}];"
            f" IF ${RECEIPT}_ack.stale > 0 {{ THROW '{STALE}' }}; "
        )
        text = f"{before}{script}\n;COMMIT"
        try:
            answer = await self._run(text, given | {RECEIPT: message.receipt}, repeatable=True)
        except Refused as error:
            if isinstance(error, Thrown) and error.detail.get("value") == STALE:
                return None
            _locate(error, len(before))
            raise
        return replace(answer, results=within(answer.results, 3))

    async def ack(self, receipts: Sequence[str]) -> Settled:
        """Acknowledge messages. :param receipts: 1 to 10 000"""
        return await self._resolve_receipts("ack", "acked", receipts)

    async def nack(
        self,
        receipts: Sequence[str],
        *,
        delay: Seconds | None = None,
        error: str | None = None,
    ) -> Settled:
        """Return messages for redelivery; see `AsyncDelivery.nack`."""
        return await self._resolve_receipts(
            "nack", "nacked", receipts, delay=duration(delay), error=error
        )

    async def extend(self, receipts: Sequence[str], by: Seconds) -> Settled:
        """Set the ack deadlines to `by` from the present."""
        return await self._resolve_receipts("extend", "extended", receipts, by=duration(by))

    async def give_up(self, receipts: Sequence[str], *, error: str | None = None) -> Settled:
        """Make the messages dead letters immediately."""
        return await self._resolve_receipts("give_up", "given_up", receipts, error=error)

    async def _resolve_receipts(
        self, op: str, done: str, receipts: Sequence[str], **clauses: Any
    ) -> Settled:
        fields = given(group=self.name, receipts=list(receipts), **clauses)
        found = await self._ask(op, fields)
        return Settled(found[done], found["stale"], tuple(found.get("stale_receipts", ())))

    async def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR GROUP."""
        return dict((await self._run(f"INFO FOR GROUP {self._on}", {}, repeatable=True)).value)


def _locate(error: Refused, before: int) -> None:
    """Shift the position of an error into the caller's script, in front of which stand three
    statements of `before` characters."""
    if error.statement is not None:
        error.statement = max(error.statement - 3, 1)
    if error.line == 1 and error.column is not None:
        error.column = max(error.column - before, 1)


class _Single:
    """Settles deliveries of `take`, each receipt by itself."""

    def __init__(self, group: AsyncGroup) -> None:
        self._group = group

    async def ack(self, delivery: AsyncDelivery) -> bool:
        return bool((await self._group.ack([delivery.receipt])).done)

    async def done(
        self, delivery: AsyncDelivery, script: str, params: Mapping[str, Any] | None
    ) -> Answer | None:
        return await self._group._done(delivery, script, params)

    async def nack(self, delivery: AsyncDelivery, delay: Seconds | None, error: str | None) -> bool:
        return bool((await self._group.nack([delivery.receipt], delay=delay, error=error)).done)

    async def extend(self, delivery: AsyncDelivery, by: Seconds) -> bool:
        return bool((await self._group.extend([delivery.receipt], by)).done)

    async def give_up(self, delivery: AsyncDelivery, error: str | None) -> bool:
        return bool((await self._group.give_up([delivery.receipt], error=error)).done)


def _unsure() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the connection broke during the acknowledgement, and the node no longer has"
        " the message: it may have been acknowledged or expired"
    )


class AsyncConsumer:
    """Endless iterator of a group's messages. Made by `AsyncGroup.messages`; see there.

    It prefetches, and resumes by itself after a broken connection, and while a node is away, busy,
    full or read-only. Messages in a lost answer are delivered again after their ack deadline.
    Acknowledgements and extensions are repeated likewise, until `stop`. Other errors end it and are
    raised where it is iterated over, and so is the failure to reach a node at the first attempt.
    `stop`, or leaving `async with`, returns prefetched messages that were not iterated over. This
    counts as an attempt of those messages, like each delivery. A group with DELIVERIES 1 makes them
    dead letters, so its consumers should prefetch 1.
    """

    def __init__(self, group: AsyncGroup, prefetch: int, member: str | None, extend: bool) -> None:
        if prefetch < 1:
            raise ValueError("prefetch must be at least 1")
        self._group = group
        self._single = _Single(group)
        self._prefetch = prefetch
        self._member = member
        self._extend = extend
        self._ready: deque[AsyncDelivery] = deque()
        self._held: dict[str, float] = {}
        """Unsettled messages that were iterated over, by receipt, with the loop time of their
        explicit extension or 0. Empty unless `extend` is set."""
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._has_taken = False
        """True once a TAKE was answered: from then on a node that is away is waited for."""
        self._acks: Batches[str, bool] = Batches(self._send_acks, BATCH)
        self.stale = 0
        """Acknowledgements that came too late."""

    def __repr__(self) -> str:
        return f"<AsyncConsumer of {self._group!r}: {len(self._ready)} taken ahead>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        self._start_prefetch()
        while True:
            if self._stopping is not None and self._stopping.done():
                raise StopAsyncIteration
            if self._ready:
                delivery = self._ready.popleft()
                self._room.set()
                if self._extend:
                    self._held[delivery.receipt] = 0.0
                return delivery
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    def _start_prefetch(self) -> None:
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
        pause = Pause()
        while not stopping.done():
            room = self._prefetch - len(self._ready)
            # Refill by half: few large requests instead of one per message.
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
            except StoreError as error:
                known = self._has_taken or (isinstance(error, Refused) and error.retry)
                if not (known and is_outage(error)):
                    raise
                await pause.rest(stopping)
                continue
            pause.over()
            self._has_taken = True
            self._ready += found
            self._changed.set()

    async def _keep_extending(self) -> None:
        stopping = self._stopping
        assert stopping is not None
        deadline: timedelta | None = None
        pause = Pause()
        while not stopping.done():
            try:
                if deadline is None:
                    deadline = (await self._group.info())["deadline"]
                    assert deadline is not None
                else:
                    await self._extend_all(deadline)
            except StoreError as error:
                # The prefetching task raises permanent errors: it knows if the node ever answered.
                if not is_outage(error):
                    raise
                await pause.rest(stopping)
                continue
            pause.over()
            between = max(deadline.total_seconds() / EXTENSIONS, LEAST_PAUSE_SECONDS)
            await asyncio.wait((stopping,), timeout=between)

    async def _extend_all(self, deadline: timedelta) -> None:
        """Extend all held messages, and drop those that are no longer delivered to this consumer.
        Such a message was acknowledged in a script, or has expired in an outage and is delivered
        again. An explicit extension that lasts longer is kept."""
        until = asyncio.get_running_loop().time() + deadline.total_seconds()
        held = (receipt for receipt, by_hand in self._held.items() if by_hand < until)
        receipts = [*held, *(one.receipt for one in self._ready)]
        for begin in range(0, len(receipts), BATCH):
            settled = await self._group.extend(receipts[begin : begin + BATCH], deadline)
            if settled.stale_receipts:
                gone = set(settled.stale_receipts)
                self._ready = deque(one for one in self._ready if one.receipt not in gone)
                for receipt in gone:
                    self._held.pop(receipt, None)
                self._room.set()

    async def _through_outages(self, work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """Run an idempotent operation until the node is available. Return its result, and whether
        an earlier attempt may have succeeded. After `stop` there is one last attempt."""
        pause, unsure = Pause(), False
        while True:
            try:
                return await work(), unsure
            except StoreError as error:
                stopping = self._stopping
                if stopping is None or stopping.done() or not is_outage(error):
                    raise
                unsure = unsure or isinstance(error, OutcomeUnknown)
            await pause.rest(stopping)

    # --- settling ---------------------------------------------------------------------------------

    async def ack(self, delivery: AsyncDelivery) -> bool:
        """Acknowledge in a batch; see `AsyncDelivery.ack`."""
        try:
            return await self._acks.put(delivery.receipt)
        finally:
            self._held.pop(delivery.receipt, None)

    async def _send_acks(self, receipts: Sequence[str]) -> list[bool | Exception]:
        settled, unsure = await self._through_outages(lambda: self._group.ack(receipts))
        stale = Counter(settled.stale_receipts)
        outcomes: list[bool | Exception] = []
        for receipt in reversed(receipts):  # of duplicates the first one counts
            if not stale[receipt]:
                outcomes.append(True)
                continue
            stale[receipt] -= 1
            if unsure:
                outcomes.append(_unsure())
            else:
                self.stale += 1
                outcomes.append(False)
        outcomes.reverse()
        return outcomes

    async def done(
        self, delivery: AsyncDelivery, script: str, params: Mapping[str, Any] | None
    ) -> Answer | None:
        """Commit effect and acknowledgement; see `AsyncDelivery.done`."""
        answer, _ = await self._through_outages(lambda: self._group._done(delivery, script, params))
        self._held.pop(delivery.receipt, None)
        return answer

    async def nack(self, delivery: AsyncDelivery, delay: Seconds | None, error: str | None) -> bool:
        """Return for redelivery; see `AsyncDelivery.nack`."""
        self._held.pop(delivery.receipt, None)
        return await self._single.nack(delivery, delay, error)

    async def extend(self, delivery: AsyncDelivery, by: Seconds) -> bool:
        """Extend the ack deadline; see `AsyncDelivery.extend`."""
        span, receipt = duration(by), delivery.receipt
        if receipt in self._held and span is not None:
            self._held[receipt] = asyncio.get_running_loop().time() + span.total_seconds()
        try:
            return await self._single.extend(delivery, by)
        except BaseException:
            if receipt in self._held:
                self._held[receipt] = 0.0  # the extension may have failed
            raise

    async def give_up(self, delivery: AsyncDelivery, error: str | None) -> bool:
        """Make a dead letter; see `AsyncDelivery.give_up`."""
        self._held.pop(delivery.receipt, None)
        return await self._single.give_up(delivery, error)

    # --- stopping ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Take no more messages, return those not iterated over, and wait for pending
        acknowledgements. The iteration ends. Stopping twice is fine."""
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
            # The error of the block is raised instead; messages expire and are redelivered.
