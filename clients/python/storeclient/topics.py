"""Topics: publish messages, read pages, keep a reader, join a consumer group.

Publishing, taking and settling are wire messages of their own; all else is statements. Refusals are
raised as for scripts, and a request that may have run is never repeated, except for reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from types import TracebackType
from typing import Any, Final, Self

from storeclient.answers import Answer
from storeclient.batches import Batches
from storeclient.errors import OutcomeUnknown, Refused, StoreError
from storeclient.groups import AsyncGroup
from storeclient.messages import AskTopic, Message, RunScript, given, message_fields
from storeclient.names import quote_name
from storeclient.outages import Pause, is_outage
from storeclient.rows import PendingRow, RequestPipeline
from storeclient.values import Seconds, duration

Headers = Mapping[str, str]

PAGE: Final = 1000
"""Messages per read request: the largest number that a node answers."""
LONGEST_WAIT: Final = 60.0
"""Time in seconds that one read of `follow` waits before it is repeated."""
BATCH: Final = 500
TOGETHER: Final = 250
"""Values per request: a node appends so many at once, more in slices."""
LONG_RUN: Final = 16
"""Length of a run of plain messages from which they share requests; a shorter one is sent one by
one, since a request of several delays those behind it."""


@dataclass(frozen=True, slots=True)
class Published:
    """Result of publishing a message."""

    position: int
    duplicate: bool = False
    """True if a message with the same id existed; `position` is that of the existing one."""


@dataclass(frozen=True, slots=True)
class ToPublish:
    """A message to publish; fields are the parameters of `AsyncTopic.publish`."""

    value: Any
    key: str | None = None
    id: str | None = None
    headers: Headers | None = None
    delay: Seconds | None = None


class AsyncTopic:
    """Handle of a topic. Made by `AsyncClient.topic(ns, db, name)`; nothing is sent before its
    first call.

    Times are seconds or timedeltas.
    """

    def __init__(self, run: RunScript, ask: AskTopic, name: str) -> None:
        self._run = run
        self._ask = ask
        self.name = name
        self._quoted = quote_name(name)

    def __repr__(self) -> str:
        return f"<AsyncTopic {self.name}>"

    async def publish(
        self,
        value: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
        at: datetime | None = None,
        expect: int | None = None,
    ) -> Published:
        """Append a message; durable when this returns.

        :param key: messages of one key keep their order in groups that are ordered by key
        :param id: deduplication: a second message with this id within the topic's DEDUP window is
            not appended. With an id publishing is idempotent, and may be repeated after an unknown
            outcome
        :param delay: groups deliver it only after that time; `at`: not before that time
        :param expect: refuse unless this is the topic's last position (optimistic concurrency)
        :raises errors.TooLarge, errors.Full, errors.AssertFailed: its size, the topic's BYTES with
            FULL REFUSE, `expect`
        """
        fields = _fields(ToPublish(value, key, id, headers, delay))
        found = await self._ask("publish", fields | given(at=at, expect=expect))
        return Published(found["position"], found["duplicate"])

    async def publish_many(
        self,
        values: Sequence[Any],
        *,
        key: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
        expect: int | None = None,
    ) -> range:
        """Append messages in one commit, atomically, and return their positions. Otherwise like
        `publish`."""
        fields = given(
            values=list(values),
            key=key,
            headers=None if headers is None else dict(headers),
            delay=duration(delay),
            expect=expect,
        )
        found = await self._ask("publish", fields)
        return range(found["first"], found["last"] + 1)

    def publisher(self, *, batch: int = BATCH, linger: Seconds = 0.0) -> AsyncPublisher:
        """Return a publisher that batches the messages of many tasks.

        :param batch: largest number of messages in a batch
        :param linger: longest wait of a batch for more messages. A busy publisher needs none: its
            batches fill while the previous one is sent
        """
        return AsyncPublisher(self, batch, linger)

    async def read(
        self, after: int = 0, limit: int = 100, *, wait: Seconds | None = None
    ) -> list[Message]:
        """Return messages after a position, oldest first, without moving any reader.

        :param limit: 1 to 1000; the node also ends a page at 8 MiB
        :param wait: longest wait for the first message, at most 300 seconds
        """
        text, params = f"READ FROM {self._quoted} AFTER $after LIMIT $limit", {"after": after}
        return await self._read(text, params, limit, wait)

    async def messages(self, after: int = 0, *, follow: bool = False) -> AsyncIterator[Message]:
        """Yield messages after a position, page by page.

        :param follow: continue without end with new messages, and wait for a node that is away once
            it has answered; otherwise stop at the end of the topic
        """
        pause, has_read = Pause(), False
        while True:
            try:
                page = await self.read(after, PAGE, wait=LONGEST_WAIT if follow else None)
            except StoreError as error:
                if not (follow and _passes(error, has_read)):
                    raise
                await pause.rest()
                continue
            pause.over()
            has_read = True
            for message in page:
                yield message
            if page:
                after = page[-1].position
            elif not follow:
                return

    def reader(self, name: str) -> AsyncReader:
        """Return a handle of a reader: a named cursor that the node stores."""
        return AsyncReader(self, name)

    def group(self, name: str) -> AsyncGroup:
        """Return a handle of a consumer group, whose members share the messages."""
        return AsyncGroup(self._run, self._ask, self.name, name)

    async def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR TOPIC: figures of the topic, its readers and groups."""
        answer = await self._run(f"INFO FOR TOPIC {self._quoted}", {}, repeatable=True)
        return dict(answer.value)

    async def _write(self, text: str, params: dict[str, Any]) -> Answer:
        return await self._run(text, params)

    async def _read(
        self, text: str, params: dict[str, Any], limit: int, wait: Seconds | None
    ) -> list[Message]:
        lasting = duration(wait)
        if lasting is not None:
            text += " WAIT $wait"
            params["wait"] = lasting
        params["limit"] = limit
        answer = await self._run(text, params, wait=lasting, repeatable=True)
        return [Message(**message_fields(one)) for one in answer.value]


class AsyncPublisher:
    """Publishes messages of many tasks in batches. Made by `AsyncTopic.publisher`.

        async with topic.publisher() as publisher:
            positions = await asyncio.gather(*(publisher.publish(one) for one in work))

    Messages are appended in the order of the calls, even across a change of the leader. Each has
    its own outcome: a message that is refused, or cannot be sent, does not change the order of the
    others. So a message is not retried if a node refused it while a later one was appended, nor if
    it may have been appended.
    """

    def __init__(self, topic: AsyncTopic, batch: int, linger: Seconds) -> None:
        lasting = duration(linger)
        assert lasting is not None
        self._topic = topic
        self._batches: Batches[ToPublish, Published] = Batches(
            self._send, batch, lasting.total_seconds()
        )

    async def publish(
        self,
        value: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
    ) -> Published:
        """Publish a message with the next batch; see `AsyncTopic.publish`."""
        return await self._batches.put(ToPublish(value, key, id, headers, delay))

    async def _send(self, batch: Sequence[ToPublish]) -> list[Published | Exception]:
        """Send the requests of a batch concurrently, except for those after one with several
        messages. If that one is refused, its messages are retried one by one, and keep their place.
        """
        outcomes: list[Published | Exception] = []
        parts = _parts(batch)
        while parts:
            end = next((n for n, part in enumerate(parts, 1) if len(part) > 1), len(parts))
            now, parts = parts[:end], parts[end:]
            places = RequestPipeline(len(now)).places
            for found in await asyncio.gather(*map(self._part, now, places)):
                outcomes += found
            broken = next((one for one in outcomes if _is_broken(one)), None)
            if broken is not None:  # the outcome of the rest is unknown
                return outcomes + [broken] * (len(batch) - len(outcomes))
        return outcomes

    async def _part(
        self, part: Sequence[ToPublish], place: PendingRow
    ) -> list[Published | Exception]:
        try:
            if len(part) > 1:
                return await self._together(part, place)
            return [await self._alone(part[0], place)]
        finally:
            place.over()

    async def _together(
        self, part: Sequence[ToPublish], place: PendingRow
    ) -> list[Published | Exception]:
        fields = {"values": [one.value for one in part]}
        try:
            found = await self._topic._ask("publish", fields, place=place)
        except (Refused, TypeError, ValueError) as error:
            if _is_broken(error):  # UnknownOutcome: all of them may have been appended
                return [error] * len(part)
            # One was refused or can't be sent, and none was appended: retry one by one.
            return [await self._alone(one, place) for one in part]
        except Exception as error:
            return [error] * len(part)
        place.done()
        return [Published(position) for position in range(found["first"], found["last"] + 1)]

    async def _alone(self, message: ToPublish, place: PendingRow) -> Published | Exception:
        try:
            found = await self._topic._ask("publish", _fields(message), place=place)
        except Exception as error:  # reported as the outcome of this message
            return error
        place.done()
        return Published(found["position"], found["duplicate"])

    async def drained(self) -> None:
        """Wait until all published messages have an outcome."""
        await self._batches.drained()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.drained()


def _fields(message: ToPublish) -> dict[str, Any]:
    """Return the fields of the operation for one message."""
    headers = message.headers
    return {"value": message.value} | given(
        key=message.key,
        id=message.id,
        headers=None if headers is None else dict(headers),
        delay=duration(message.delay),
    )


def _parts(batch: Sequence[ToPublish]) -> list[list[ToPublish]]:
    """Split a batch into requests: long runs of messages with only a value share one, all others
    are sent one by one."""
    parts: list[list[ToPublish]] = []
    for is_plain, group in groupby(batch, _is_plain):
        run = list(group)
        size = TOGETHER if is_plain and len(run) >= LONG_RUN else 1
        parts += [run[begin : begin + size] for begin in range(0, len(run), size)]
    return parts


def _is_broken(outcome: Published | Exception) -> bool:
    """True if the outcome of a request is unknown, or no request can be sent."""
    known = isinstance(outcome, Refused) and not isinstance(outcome, OutcomeUnknown)
    return isinstance(outcome, StoreError) and not known


def _is_plain(message: ToPublish) -> bool:
    return (message.key, message.id, message.headers, message.delay) == (None,) * 4


class AsyncReader:
    """Handle of a reader of a topic: reads from its stored position, which moves only on `commit`.

    reader = topic.reader("audit")
    await reader.define()
    for message in await reader.read():
        ...
    await reader.commit(message.position)
    """

    def __init__(self, topic: AsyncTopic, name: str) -> None:
        self._topic = topic
        self.name = name
        self._of = f"{quote_name(name)} ON {topic._quoted}"

    def __repr__(self) -> str:
        return f"<AsyncReader {self.name} on {self._topic.name}>"

    async def define(self, at: int | datetime | None = None, *, end: bool = False) -> None:
        """Declare the reader, unless it exists.

        :param at: position that counts as read, or a time before the first message to read. None:
            the start of the topic, or its `end`
        """
        text, params = f"DEFINE READER IF NOT EXISTS {self._of}", {}
        if end:
            text += " AT END"
        elif at is not None:
            text += f" AT {_place(at)}"
            params = {"at": at}
        await self._topic._write(text, params)

    async def read(self, limit: int = 100, *, wait: Seconds | None = None) -> list[Message]:
        """Return messages after its position, which does not move. Otherwise like
        `AsyncTopic.read`."""
        text = f"READ FROM {self._topic._quoted} AS {quote_name(self.name)} LIMIT $limit"
        return await self._topic._read(text, {}, limit, wait)

    async def commit(self, position: int) -> None:
        """Move the reader to a position: all messages up to there are processed."""
        await self._topic._write(f"COMMIT READER {self._of} AT $at", {"at": position})

    async def move(self, at: int | datetime) -> None:
        """Move the reader to any position. :param at: see `define`"""
        await self._topic._write(f"ALTER READER {self._of} SET POSITION {_place(at)}", {"at": at})

    async def messages(self, *, follow: bool = False) -> AsyncIterator[Message]:
        """Yield messages one by one. Processed ones are committed at the end of a page, and when
        the loop is left. A consumer that fails while it processes a message, or is killed, gets
        some again (at-least-once).

        :param follow: see `AsyncTopic.messages`
        """
        pause, has_read = Pause(), False
        while True:
            try:
                page = await self.read(PAGE, wait=LONGEST_WAIT if follow else None)
            except StoreError as error:
                if not (follow and _passes(error, has_read)):
                    raise
                await pause.rest()
                continue
            pause.over()
            has_read, done = True, 0
            try:
                for message in page:
                    yield message
                    done = message.position
            except BaseException:  # the caller's loop was left early
                if done:
                    await self.commit(done)
                raise
            if page:
                await self._commit_surely(page[-1].position, follow)
            if not page and not follow:
                return

    async def _commit_surely(self, position: int, follow: bool) -> None:
        """Commit a processed page. This is idempotent, so a following reader waits for the node."""
        pause = Pause()
        while True:
            try:
                return await self.commit(position)
            except StoreError as error:
                if not (follow and is_outage(error)):
                    raise
            await pause.rest()

    async def drop(self) -> None:
        """Drop the reader."""
        await self._topic._write(f"DROP READER {self._of}", {})


def _passes(error: StoreError, has_read: bool) -> bool:
    """True if a reader that follows goes on. Before its first answer only a refusal with `retry`
    lets it."""
    known = has_read or (isinstance(error, Refused) and error.retry)
    return known and is_outage(error)


def _place(at: int | datetime) -> str:
    return "TIME $at" if isinstance(at, datetime) else "$at"
