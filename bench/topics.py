"""Rows about topics: published, taken and acknowledged, passed on, read. Beside NATS JetStream and
RabbitMQ, in one run; and beside themselves, with a backlog that grows.

The peers are driven through their usual client libraries, by more processes than the node is. The
notes say how busy the busiest driver was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from bench import jetstream, rabbitmq
from bench.drivers import DRIVER_BUSY, Measured
from bench.figures import NODE, Measure, Measurement, in_turns
from bench.node_queue import node_queue
from bench.nodes import NodeProcess, define_place
from bench.processes import NotStarted
from bench.queues import QueueSide
from bench.settings import Settings

PUBLISHED: Final = {(1, 1): 2_000, (32, 1): 9_600, (1, 100): 100, (8, 100): 800}
"""Publishers, messages per publish: requests of a round."""
TAKEN: Final = {(1, 1): 2_000, (32, 1): 9_600, (1, 100): 100, (32, 100): 640}
"""Workers, messages per take: requests of a round."""
GOALS: Final = {
    "topic-publish-1-100": "≥ 30 000 messages/s",
    "topic-publish-8-100": "≥ 30 000 messages/s",
    "topic-take-32-1": "≥ 10 000 messages/s",
    "topic-take-32-100": "≥ 10 000 messages/s",
}
PASSED_ON: Final = 500
READ: Final = 1_000_000
PAGE: Final = 1_000
ROUNDS_READ: Final = 2
"""Rounds of reads: a peer takes half a minute for each."""
BACKLOGS: Final = (10_000, 1_000_000)
DRAIN: Final = (8, 1_000)
"""Workers, and messages per take, to shrink a backlog."""

NAMES: Final = (
    *(f"topic-publish-{clients}-{batch}" for clients, batch in PUBLISHED),
    *(f"topic-take-{clients}-{batch}" for clients, batch in TAKEN),
    "topic-latency-p50", "topic-latency-p99", "topic-read", "topic-backlog",
)  # fmt: skip


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows."""
    if not any(map(wanted, NAMES)):
        return
    with ExitStack() as held:
        yield from _TopicSetup(settings, held).measured(wanted)


class _TopicSetup:
    """A node with a topic, and the peers that are installed."""

    def __init__(self, settings: Settings, held: ExitStack) -> None:
        self._settings = settings
        node = held.enter_context(NodeProcess(settings.directory / "topics"))
        with node.client() as client:
            define_place(client)
        self._node = node_queue(node)
        self._peers: list[QueueSide] = []
        self._atomic: list[QueueSide] = []
        self._gaps: list[str] = []
        self._start_jetstream(held)
        self._start_rabbitmq(held)

    def _start_jetstream(self, held: ExitStack) -> None:
        if (gap := jetstream.missing()) is not None:
            self._gaps.append(f"NATS JetStream: {gap}")
            return
        for number, name in enumerate(jetstream.SYNC_INTERVALS):
            directory = self._settings.directory / f"jetstream{number}"
            try:
                queue = held.enter_context(jetstream.jetstream(directory, name))
            except NotStarted as error:
                self._gaps.append(f"{name}: {error}")
                continue
            self._peers.append(queue)
            if name == jetstream.SYNCED:
                self._atomic.append(jetstream.atomic(queue))

    def _start_rabbitmq(self, held: ExitStack) -> None:
        if (gap := rabbitmq.missing()) is not None:
            self._gaps.append(f"RabbitMQ: {gap}")
            return
        try:
            directory = self._settings.directory / "rabbitmq"
            self._peers.append(held.enter_context(rabbitmq.rabbitmq(directory)))
        except NotStarted as error:
            self._gaps.append(f"RabbitMQ: {error}")

    def measured(self, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
        """Measure the rows."""
        for (clients, batch), requests in PUBLISHED.items():
            if wanted(name := f"topic-publish-{clients}-{batch}"):
                yield self._publish(name, clients, batch, requests)
        for (clients, batch), requests in TAKEN.items():
            if wanted(name := f"topic-take-{clients}-{batch}"):
                yield self._take(name, clients, batch, requests)
        if wanted("topic-latency-p50") or wanted("topic-latency-p99"):
            yield from self._latency()
        if wanted("topic-read"):
            yield self._read()
        if wanted("topic-backlog"):
            yield self._backlog()

    # --- published and taken --------------------------------------------------------------------

    def _publish(self, name: str, clients: int, batch: int, requests: int) -> Measurement:
        who = _count(clients, "publisher")
        work = f"publish {_count(batch, 'message')} of 128 bytes at a time, synced, {who}"
        row = self._row(name, f"{work}, in messages", "/s", GOALS.get(name, ""))
        sides = [self._node, *self._peers, *(self._atomic if batch > 1 else ())]

        def publish(queue: QueueSide) -> Measured:
            queue.refill(0)
            return queue.run(queue.publish, clients, self._settings.scaled(requests), batch)

        return self._in_turns(row, sides, publish, batch)

    def _take(self, name: str, clients: int, batch: int, requests: int) -> Measurement:
        who = _count(clients, "worker")
        work = f"take {_count(batch, 'message')} at a time and acknowledge, {who}, in messages"
        row = self._row(name, work, "/s", GOALS.get(name, ""))
        asked = max(self._settings.scaled(requests) // clients, 1) * clients

        def take(queue: QueueSide) -> Measured:
            queue.refill(asked * batch)
            return queue.run(queue.take, clients, asked, batch)

        return self._in_turns(row, [self._node, *self._peers], take, batch)

    def _in_turns(
        self,
        row: Measurement,
        queues: list[QueueSide],
        work: Callable[[QueueSide], Measured],
        batch: int,
    ) -> Measurement:
        found: dict[str, list[Measured]] = {queue.name: [] for queue in queues}

        def measure(queue: QueueSide) -> float:
            measured = work(queue)
            found[queue.name].append(measured)
            return measured.rate * batch

        measures: dict[str, Measure] = {queue.name: partial(measure, queue) for queue in queues}
        row.sides = in_turns(self._settings.rounds, measures)
        _say(row, found, batch)
        return row

    # --- passed on ------------------------------------------------------------------------------

    def _latency(self) -> Iterator[Measurement]:
        """Measure both rows, with the same messages."""
        asked = self._settings.scaled(PASSED_ON)
        found: dict[str, list[Measured]] = {}

        def measure(queue: QueueSide) -> float:
            queue.refill(0)
            measured = queue.run(queue.pass_on, 1, asked)
            found.setdefault(queue.name, []).append(measured)
            return measured.p50_ms

        queues = [self._node, *self._peers]
        halves = in_turns(
            self._settings.rounds, {queue.name: partial(measure, queue) for queue in queues}
        )
        work = "from before a message is published until a worker that waits has it, at rest"
        middle = self._row("topic-latency-p50", f"{work}, p50", "ms")
        middle.sides = halves
        late = self._row("topic-latency-p99", f"{work}, p99", "ms")
        late.sides = {name: [one.p99_ms for one in all_[1:]] for name, all_ in found.items()}
        yield from (middle, late)

    # --- read -----------------------------------------------------------------------------------

    def _read(self) -> Measurement:
        pages = max(self._settings.scaled(READ) // PAGE, 1)
        work = f"read {pages * PAGE:,} messages from the first on, {PAGE:,} a page, 1 reader"
        row = self._row("topic-read", f"{work}, in messages", "/s")
        # Syncing makes no difference to a reader: one of the two streams is enough.
        queues = [self._node]
        for queue in self._peers:
            if queue.read is None:
                row.gaps.append(f"{queue.name}: can't be read without taking from it")
            elif queue.name != jetstream.SYNCED:
                queues.append(replace(queue, name="JetStream"))
        for queue in queues:
            queue.refill(pages * PAGE)
        fewer = replace(self._settings, rounds=min(self._settings.rounds, ROUNDS_READ))
        found: dict[str, list[Measured]] = {queue.name: [] for queue in queues}

        def measure(queue: QueueSide) -> float:
            assert queue.read is not None
            measured = queue.run(queue.read, 1, pages)
            found[queue.name].append(measured)
            return measured.rate * PAGE

        row.sides = in_turns(
            fewer.rounds, {queue.name: partial(measure, queue) for queue in queues}
        )
        _say(row, found, PAGE)
        return row

    # --- a backlog ------------------------------------------------------------------------------

    def _backlog(self) -> Measurement:
        """Measure takes under a backlog: their cost must depend neither on waiting nor on done
        messages."""
        work = "take one message and acknowledge it, 1 worker, with so many waiting"
        row = Measurement("topic-backlog", work, "/s", "more", "flat")
        for backlog in map(self._settings.scaled, BACKLOGS):
            self._node.refill(backlog)
            self._taken_singly(row, f"{backlog:,} waiting")
        few, many = map(self._settings.scaled, BACKLOGS)
        workers, batch = DRAIN
        done = max((many - few) // (workers * batch), 1) * workers * batch
        self._node.refill(done + few)
        self._node.run(self._node.take, workers, done // batch, batch)
        self._taken_singly(row, f"{few:,} waiting, {done:,} acknowledged before")
        return row

    def _taken_singly(self, row: Measurement, side: str) -> None:
        rounds = self._settings.rounds
        asked = self._settings.scaled(BACKLOGS[0] // 2) // (rounds + 1) or 1
        found = [self._node.run(self._node.take, 1, asked) for _ in range(rounds + 1)][1:]
        row.sides[side] = [measured.rate for measured in found]
        row.notes.append(f"{side}: node computes {_middle(found).node_cpu_us:.0f} µs for each")

    def _row(self, name: str, work: str, unit: str, goal: str = "") -> Measurement:
        return Measurement(
            name, work, unit, "less" if unit == "ms" else "more", goal, gaps=[*self._gaps]
        )


def _say(row: Measurement, found: Mapping[str, list[Measured]], batch: int) -> None:
    """Describe the median round of each side; the first of each was the warm-up."""
    for name, measured in found.items():
        middle = _middle(measured[1:])
        told = f"{name}: p50 {middle.p50_ms:.2f} ms, p99 {middle.p99_ms:.2f} ms a request"
        if name == NODE:
            told += f", node computes {middle.node_cpu_us / batch:.1f} µs a message"
        busy = max(one.driver_busy for one in measured[1:])
        told += f", drivers busy {busy:.0%}"
        row.notes.append(told + (": too slow a driver" if busy > DRIVER_BUSY else ""))


def _middle(found: list[Measured]) -> Measured:
    return sorted(found, key=lambda measured: measured.rate)[len(found) // 2]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
