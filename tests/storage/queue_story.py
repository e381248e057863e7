"""Random work on topics and groups against `queue_model.Model`.

A story runs transactions of one or several operations, some of them pausing while others commit,
with the log becoming durable bit by bit and the process dying now and then. What a transaction
that commits has answered must be what the model answers that does the same at the moment of the
commit, and all that is stored must be what the model holds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from protocol.errors import Conflict, Refusal
from protocol.values import unpaced
from storage.catalog import places
from storage.catalog.places import Database, IfExists
from storage.formats import keys
from storage.formats.effects import Attribution
from storage.topics import groups, messages, topics
from storage.topics.deliveries import acks, expiry, fetch
from storage.topics.deliveries import group as group_deliveries
from storage.topics.deliveries.delivery import unpacked
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import Group, state_of
from storage.topics.messages import PublishResult, TopicMessages
from storage.topics.topics import END, START, StartPosition, Topic
from storage.txn.appends import HEAD, NUMBER
from storage.txn.transaction import Transaction
from tests.receipts import settled
from tests.storage.books import digests
from tests.storage.engines import EngineHome
from tests.storage.ledger_story import LedgerStory
from tests.storage.queue_model import (
    OUT,
    PARKED,
    WAITING,
    GroupModel,
    QueueModel,
    TopicModel,
    UnfinishedMessage,
)

BY = Attribution("ana", "wire test", "PUBLISH")
TOPICS = ("t", "u", "dead")
GROUPS = {"t": ("g", "h"), "u": ("g",), "dead": ("g",)}
SECOND = 1_000_000

Real = Callable[[Transaction], Any]
Meant = Callable[[QueueModel], Any]


@dataclass
class QueueStep:
    """An operation that was done, what it answered, and how the model does it."""

    said: str
    answer: Any
    meant: Meant


@dataclass
class OpenTransaction:
    """A transaction at work."""

    tx: Transaction
    began: int
    steps: list[QueueStep] = field(default_factory=list)


class QueueStory(LedgerStory):
    """Random history, decided by `seed`."""

    def __init__(self, seed: int, store: EngineHome | None = None, steps: int = 120) -> None:
        super().__init__(seed, store, steps)
        self.states: list[QueueModel] = [QueueModel()]
        self.open: list[OpenTransaction] = []
        self.receipts: list[tuple[str, str, str]] = []
        """Of topic and group: given out once."""
        self._declare()

    def run(self) -> None:
        together = [self._together] * self.random.choice((6, 12, 60))
        acts = [self._alone] * 30 + together + [self._durable] * 6 + [self._crash, self._withdraw]
        for _ in range(self.steps):
            self.random.choice(acts)()
            if self.random.random() < 0.6:
                self.clock.advance(self.random.choice((1, 7, 400_000, SECOND, 2 * SECOND)))
        self._pause_all()
        for running in list(self.open):
            self._end(running)
        self.ledger.durable(self.ledger.state.committed, digests(self.frames))
        self._check()
        self._check_replay()

    # --- declarations ---------------------------------------------------------------------------

    def _declare(self) -> None:
        choose = self.random.choice
        model = copy.deepcopy(self.states[-1])
        with self.ledger.begin_transaction() as tx:
            place = places.define_namespace(tx, "n")
            database = places.define_database(tx, place, "d")
            for number, name in enumerate(TOPICS, 1):
                made = TopicModel(
                    number,
                    keep=choose((None, None, 5 * SECOND)),
                    max_bytes=choose((None, None, 900)),
                    largest=choose((8 << 20, 120)),
                    dedup=choose((None, SECOND, 3 * SECOND)),
                    full=choose(("DROP", "REFUSE")),
                )
                model.topics[name] = made
                topics.define_topic(
                    tx, database, name, keep_us=made.keep, max_bytes=made.max_bytes,
                    largest=made.largest, dedup_us=made.dedup, full=made.full,  # type: ignore[arg-type]
                )  # fmt: skip
            for name, names in GROUPS.items():
                for number, group in enumerate(names, 1):
                    one = model.topics[name].groups[group] = GroupModel(
                        number,
                        deadline=choose((SECOND, 3 * SECOND)),
                        in_flight=choose((2, 5, 1000)),
                        deliveries=choose((None, 1, 2, 3)),
                        dead_letter=choose((None, "dead"))
                        if name != "dead"
                        else choose((None, "u")),
                        backoff=choose(((), (SECOND,), (0, 2 * SECOND, 5 * SECOND))),
                        ordered=choose((False, True)),
                    )
                    self._define_group(tx, database, name, group, one)
            self._committed(tx, model)

    def _define_group(
        self, tx: Transaction, database: Database, topic: str, name: str, one: GroupModel
    ) -> Group:
        return groups.define_group(
            tx, topics.topic(tx, database, topic), name, deadline_us=one.deadline,
            in_flight=one.in_flight, deliveries=one.deliveries, dead_letter=one.dead_letter,
            backoff_us=one.backoff, ordered=one.ordered, taken=IfExists.OVERWRITE,
        )  # fmt: skip

    # --- transactions ---------------------------------------------------------------------------

    def _alone(self) -> None:
        """A transaction of one or a few operations, with nobody beside it."""
        self._pause_all()
        running = self._begin()
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            self._do(running)
        self._end(running)

    def _together(self) -> None:
        """A step of one of several transactions that pause for each other."""
        if len(self.open) < 3 and self.random.random() < 0.4:
            self._pause_all()
            self._begin()
        elif self.open:
            running = self.random.choice(self.open)
            for other in self.open:
                if other is not running:
                    other.tx.pause()
            if self.random.random() < 0.3:
                self._end(running)
            else:
                self._do(running)
                running.tx.pause()

    def _pause_all(self) -> None:
        for running in self.open:
            running.tx.pause()

    def _begin(self) -> OpenTransaction:
        tx = self.ledger.begin_transaction()
        running = OpenTransaction(tx, tx.sequence)
        self.open.append(running)
        return running

    def _do(self, running: OpenTransaction) -> None:
        said, real, meant = self._operation()
        before = dict(running.tx.own.writes)
        try:
            answer = real(running.tx)
        except Refusal as refusal:
            answer = type(refusal).__name__
            assert running.tx.own.writes == before, f"a refusal of {said} has changed something"
        running.steps.append(QueueStep(said, answer, meant))

    def _end(self, running: OpenTransaction) -> None:
        self.open.remove(running)
        tx = running.tx
        others = self.ledger.state.committed > running.began
        wrote = bool(tx.size)
        try:
            if self.random.random() < 0.2:
                for _ in self.ledger.prepare(tx):
                    pass
            self.ledger.commit(tx, BY)
        except Conflict:
            assert tx.paused, "a conflict without anybody beside it"
            assert others, "a conflict without another commit"
            tx.release()
            self.conflicts += 1
            return
        # What only reads has seen one state, as it was when it began.
        model = copy.deepcopy(self.states[-1 if wrote else running.began])
        model.begin(tx.now_us, tx.released)
        for step in running.steps:
            self._compare(step, model)
        if wrote:
            self._keep(model)

    def _compare(self, step: QueueStep, model: QueueModel) -> None:
        before = copy.deepcopy(model)
        try:
            meant = step.meant(model)
        except Refusal as refusal:
            meant = type(refusal).__name__
            model.__dict__.update(before.__dict__)
        answer = step.answer
        if isinstance(answer, PublishResult):
            answer = answer.first, answer.count, answer.duplicate
        assert answer == meant, f"{step.said}: answered {answer!r}, not {meant!r}"

    def _committed(self, tx: Transaction, model: QueueModel) -> None:
        self.ledger.commit(tx, BY)
        self._keep(model)

    def _keep(self, model: QueueModel) -> None:
        model.commit(self.frames[-1].time, self.frames[-1].sequence)
        self.states.append(model)
        assert len(self.states) == self.ledger.state.committed + 1 == len(self.frames) + 1
        self.commits += 1
        if self.random.random() < 0.3:
            self._check()

    # --- operations -----------------------------------------------------------------------------

    def _topic(self, tx: Transaction, name: str) -> Topic:
        place = places.namespace(tx, "n")
        return topics.topic(tx, places.database(tx, place, "d"), name)

    def _hand_outs(self, tx: Transaction, topic: str, name: str) -> DeliveryIndex:
        return DeliveryIndex(tx, groups.group(tx, self._topic(tx, topic), name))

    def _operation(self) -> tuple[str, Real, Meant]:
        kinds = (
            [self._publish] * 14 + [self._take] * 14 + [self._ack] * 8 + [self._nack] * 5
            + [self._extend] * 3 + [self._give_up] * 2 + [self._lapse] * 3 + [self._move]
            + [self._read] * 4 + [self._trim] + [self._retain] * 3 + [self._sweep] * 2
            + [self._redrive] * 2 + [self._reader] * 3 + [self._settings] + [self._figures] * 2
        )  # fmt: skip
        return self.random.choice(kinds)()

    def _some_topic(self) -> str:
        return self.random.choice(("t", "t", "t", "u", "dead"))

    def _some_group(self) -> tuple[str, str]:
        topic = self._some_topic()
        return topic, self.random.choice(GROUPS[topic])

    def _publish(self) -> tuple[str, Real, Meant]:
        choose, topic = self.random.choice, self._some_topic()
        values = [self.random.randrange(1000) for _ in range(choose((1, 1, 2, 5)))]
        if self.random.random() < 0.1:
            values = ["x" * 100]  # type: ignore[list-item]
        key = choose((None, "a", "a", "b", "ab"))
        id = choose((None, "1", "2")) if len(values) == 1 else None
        headers = choose((None, {}, {"h": "1", "dead-error": "old"}))
        last = self.states[-1].topics[topic].last
        expect = choose((None, None, None, None, last, last - 1))
        delay = choose((None, None, None, 0, SECOND, 3 * SECOND))

        def due(now: int) -> int:
            return 0 if delay is None else now + delay

        return (
            f"publish {topic} {values} key={key} id={id} delay={delay} expect={expect}",
            lambda tx: TopicMessages(tx, self._topic(tx, topic)).publish(
                values, key=key, id=id, headers=headers, due_us=due(tx.now_us), expect=expect
            ),
            lambda model: model.publish(topic, values, key, id, headers, due(model.now), expect),
        )

    def _take(self) -> tuple[str, Real, Meant]:
        topic, name = self._some_group()
        count, member = self.random.choice((1, 1, 2, 3, 10)), self.random.choice((None, "m"))

        def real(tx: Transaction) -> Any:
            taken = fetch.take(self._hand_outs(tx, topic, name), count, member)
            self.receipts += [(topic, name, answer["receipt"]) for answer in taken]
            return taken

        return (
            f"take {count} {topic} {name}",
            real,
            lambda model: model.take(topic, name, count, member),
        )

    def _some_receipts(self) -> tuple[str, str, list[str]]:
        topic, name = self._some_group()
        mine = [receipt for *whose, receipt in self.receipts if whose == [topic, name]]
        newest = mine[-self.random.choice((1, 3, 12)) :]
        count = self.random.choice((1, 2, 20))
        some = self.random.sample(newest, min(count, len(newest)))
        if self.random.random() < 0.2:
            some += [receipt for *_, receipt in self.random.sample(self.receipts, 1 if some else 0)]
        return topic, name, some

    def _ack(self) -> tuple[str, Real, Meant]:
        topic, name, receipts = self._some_receipts()

        def meant(model: QueueModel) -> Any:
            stale = model.stale(topic, name, receipts)
            model.ack(topic, name, receipts)
            return settled("acked", len(receipts) - len(stale), stale)

        return (
            f"ack {topic} {name} {receipts}",
            lambda tx: acks.ack(self._hand_outs(tx, topic, name), receipts),
            meant,
        )

    def _nack(self) -> tuple[str, Real, Meant]:
        topic, name, receipts = self._some_receipts()
        delay = self.random.choice((None, None, 0, 2 * SECOND))
        error = self.random.choice((None, "bad"))

        def meant(model: QueueModel) -> Any:
            stale = model.stale(topic, name, receipts)
            model.nack(topic, name, receipts, delay, error)
            return settled("nacked", len(receipts) - len(stale), stale)

        return (
            f"nack {topic} {name} {receipts} {delay}",
            lambda tx: acks.nack(self._hand_outs(tx, topic, name), receipts, delay, error),
            meant,
        )

    def _extend(self) -> tuple[str, Real, Meant]:
        topic, name, receipts = self._some_receipts()
        by = self.random.choice((1, SECOND, 4 * SECOND))

        def meant(model: QueueModel) -> Any:
            stale = model.stale(topic, name, receipts)
            model.extend(topic, name, receipts, by)
            return settled("extended", len(receipts) - len(stale), stale)

        return (
            f"extend {topic} {name} {receipts} {by}",
            lambda tx: acks.extend(self._hand_outs(tx, topic, name), receipts, by),
            meant,
        )

    def _give_up(self) -> tuple[str, Real, Meant]:
        topic, name, receipts = self._some_receipts()

        def meant(model: QueueModel) -> Any:
            stale = model.stale(topic, name, receipts)
            model.give_up(topic, name, receipts, "worse")
            return settled("given_up", len(receipts) - len(stale), stale)

        return (
            f"give up {topic} {name} {receipts}",
            lambda tx: acks.give_up(self._hand_outs(tx, topic, name), receipts, "worse"),
            meant,
        )

    def _lapse(self) -> tuple[str, Real, Meant]:
        topic, name = self._some_group()
        return (
            f"expire_overdue {topic} {name}",
            lambda tx: expiry.expire(self._hand_outs(tx, topic, name)),
            lambda model: model.expire_overdue(topic, name),
        )

    def _some_place(self, topic: str) -> StartPosition:
        last = self.states[-1].topics[topic].last
        back = self.random.choice((0, SECOND, 5 * SECOND))
        return self.random.choice(
            (
                START,
                END,
                StartPosition("AFTER", self.random.randint(0, last + 1)),
                StartPosition("TIME", self.clock.wall_us() - back),
            )
        )

    def _move(self) -> tuple[str, Real, Meant]:
        topic, name = self._some_group()
        place = self._some_place(topic)
        return (
            f"move {topic} {name} {place}",
            lambda tx: group_deliveries.move(self._hand_outs(tx, topic, name), place),
            lambda model: model.move(topic, name, place),
        )

    def _read(self) -> tuple[str, Real, Meant]:
        topic = self._some_topic()
        after = self.random.randint(0, self.states[-1].topics[topic].last)
        limit = self.random.choice((1, 3, 100))
        return (
            f"read {topic} after {after} limit {limit}",
            lambda tx: TopicMessages(tx, self._topic(tx, topic)).read(after, limit),
            lambda model: model.read(topic, after, limit),
        )

    def _trim(self) -> tuple[str, Real, Meant]:
        topic = self._some_topic()
        one = self.states[-1].topics[topic]
        before = self.random.randint(one.trimmed, one.last + 2)
        return (
            f"trim {topic} before {before}",
            lambda tx: sum(TopicMessages(tx, self._topic(tx, topic)).trim(before)),
            lambda model: model.trim(topic, before),
        )

    def _retain(self) -> tuple[str, Real, Meant]:
        topic = self._some_topic()
        return (
            f"retain {topic}",
            lambda tx: TopicMessages(tx, self._topic(tx, topic)).trim_due()[0],
            lambda model: model.trim_due(topic),
        )

    def _sweep(self) -> tuple[str, Real, Meant]:
        topic = self._some_topic()
        return (
            f"sweep {topic}",
            lambda tx: TopicMessages(tx, self._topic(tx, topic)).sweep_ids(100)[0],
            lambda model: model.sweep_ids(topic),
        )

    def _redrive(self) -> tuple[str, Real, Meant]:
        limit = self.random.choice((1, 3, 100))
        return (
            f"redrive {limit}",
            lambda tx: (
                messages.redrive(tx, self._topic(tx, "dead"), self._topic(tx, "t"), limit).moved
            ),
            lambda model: model.redrive("dead", "t", limit),
        )

    def _reader(self) -> tuple[str, Real, Meant]:
        topic = self._some_topic()
        place = self._some_place(topic)

        def real(tx: Transaction) -> Any:
            there = TopicMessages(tx, self._topic(tx, topic))
            position = there.define_reader("r", place, IfExists.OVERWRITE)
            return position, there.reader("r"), there.lag(position)

        def meant(model: QueueModel) -> Any:
            one = model.topics[topic]
            position = one.readers["r"] = model.position_at(topic, place)
            return position, position, one.last - max(position, one.trimmed)

        return f"reader {topic} {place}", real, meant

    def _settings(self) -> tuple[str, Real, Meant]:
        topic, name = self._some_group()
        ordered, in_flight = self.random.choice((True, False)), self.random.choice((1, 3, 1000))
        keep, size = self.random.choice((None, 2 * SECOND)), self.random.choice((None, 900, 90))

        def real(tx: Transaction) -> Any:
            there = self._topic(tx, topic)
            topics.alter_topic(tx, replace(there, keep_us=keep, max_bytes=size))
            one = groups.group(tx, there, name)
            groups.define_group(
                tx, there, name, deadline_us=one.deadline_us, in_flight=in_flight,
                deliveries=one.deliveries, dead_letter=one.dead_letter,
                backoff_us=one.backoff_us, ordered=ordered, taken=IfExists.OVERWRITE,
            )  # fmt: skip

        def meant(model: QueueModel) -> Any:
            model.alter(topic, keep, size)
            one = model.topics[topic].groups[name]
            one.in_flight = in_flight
            if one.ordered != ordered:
                one.ordered = ordered
                model.move(topic, name, StartPosition("AFTER", one.committed))

        return f"settings {topic} {name} {ordered} {in_flight} {keep} {size}", real, meant

    def _figures(self) -> tuple[str, Real, Meant]:
        topic = self._some_topic()
        return (
            f"figures {topic}",
            lambda tx: short(TopicMessages(tx, self._topic(tx, topic)).figures(unpaced)),
            lambda model: meant_figures(model, topic, model.now, model.released),
        )

    # --- the log --------------------------------------------------------------------------------

    def _durable(self) -> None:
        self._pause_all()
        upto = self.random.randint(self.ledger.synced_seq, self.ledger.state.committed)
        if self.random.random() < 0.6:
            self.ledger.durable(upto, digests(self.frames, upto))
        else:
            self.ledger.mark_durable(upto, digests(self.frames, upto))
            self.ledger.release(self.random.randint(self.ledger.state.commit_index, upto))
            self.ledger.apply_next()
        if self.random.random() < 0.3:
            self.store.engine.flush()

    def _crash(self) -> None:
        for running in self.open:
            running.tx.release()
        self.open.clear()
        self._die(least=1)
        self._check()

    def _withdraw(self) -> None:
        """The log has no room: what is not durable never happened."""
        self._pause_all()
        end = max(self.ledger.synced_seq, 1)
        if end > self.ledger.synced_seq:
            return  # the declarations stay
        for running in [each for each in self.open if each.began > end]:
            running.tx.release()
            self.open.remove(running)
        self.ledger.roll_back()
        del self.frames[end:], self.states[end + 1 :]
        self._check()

    # --- what is stored -------------------------------------------------------------------------

    def _check(self) -> None:
        """All that is stored is what the model holds."""
        self._pause_all()
        model = self.states[-1]
        with self.ledger.begin_transaction() as tx:
            for name, one in model.topics.items():
                topic = self._topic(tx, name)
                there = TopicMessages(tx, topic)
                assert short(there.figures(unpaced)) == meant_figures(
                    model, name, tx.now_us, tx.released
                ), name
                held = there.read(0, 1000)
                assert held == model.read(name, 0, 1000), name
                times = [answer["at"] for answer in held]
                assert times == sorted(times), "time falls"
                check_topic(tx, topic)
                stored = {
                    key[len(topic.ids) :].decode(): NUMBER.unpack_from(row)[0]
                    for pairs in tx.scan(*keys.within(topic.ids))
                    for key, row in pairs
                }
                assert stored == {id: position for id, (position, _) in one.ids.items()}, name
                for group in groups.groups(tx, topic):
                    assert rows_of(tx, group) == one.groups[group.name].rows, (name, group.name)
                    assert state_of(tx, group)[0].cursor == one.groups[group.name].cursor


def short(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures that move."""
    shared = [
        {
            name: one[name]
            for name in (
                "name", "handed_out", "committed", "lag", "pending", "waiting", "in_flight",
                "width", "redelivered",
                "dead_lettered", "epoch",
            )
        }
        for one in figures["groups"]
    ]  # fmt: skip
    kept = ("messages", "first_position", "last_position", "readers", "lag")
    return {name: figures.get(name) for name in (*kept, "bytes")} | {"groups": shared}


def meant_figures(model: QueueModel, topic: str, now: int, released: int) -> dict[str, Any]:
    """The same, as the model has them at that time, so much of it released."""
    one = model.topics[topic]
    readers: list[dict[str, Any]] = [
        {"name": name, "position": position, "lag": one.last - max(position, one.trimmed)}
        for name, position in sorted(one.readers.items())
    ]
    shared = [
        {
            "name": name, "handed_out": group.handed_out, "committed": group.committed,
            "lag": one.last - group.committed, "in_flight": group.out_at(now, released),
            "width": max(group.handed_out - group.committed, 0), "redelivered": group.redelivered,
            "dead_lettered": group.dead_lettered, "epoch": group.epoch,
            "pending": group.pending(one),
            "waiting": group.pending(one) - group.out_at(now, released),
        }
        for name, group in sorted(one.groups.items())
    ]  # fmt: skip
    return {
        "messages": len(one.messages), "first_position": one.trimmed + 1, "last_position": one.last,
        "bytes": one.size if one.max_bytes is not None else None, "readers": readers,
        "lag": max((one["lag"] for one in (*readers, *shared)), default=0), "groups": shared,
    }  # fmt: skip


def rows_of(tx: Transaction, group: Group) -> dict[int, UnfinishedMessage]:
    """The hand-outs of a group as the model writes them."""
    found = {}
    for pairs in tx.scan(*keys.within(group.hand_outs)):
        for key, row in pairs:
            (position,) = NUMBER.unpack_from(key, len(group.hand_outs))
            one = unpacked(row)
            found[position] = UnfinishedMessage(
                one.state, one.attempt, one.due_us, one.member.decode(), one.error.decode(),
                one.key.decode() or None,
            )  # fmt: skip
    return found


def check_topic(tx: Transaction, topic: Topic) -> None:
    """What is stored of a topic fits together, whatever has happened."""
    there = [pair for pairs in tx.scan(*keys.within(topic.messages)) for pair in pairs]
    positions = [NUMBER.unpack_from(key, len(topic.messages))[0] for key, _ in there]
    figures = TopicMessages(tx, topic)
    assert positions == list(range(figures.first, figures.last + 1)), "positions are dense"
    assert figures.held.size == sum(len(row) for _, row in there), "bytes are exact"
    times = [HEAD.unpack_from(row)[0] for _, row in there]
    assert times == sorted(times), "time falls"
    ids = _all(tx, topic.ids)
    by_time = _all(tx, topic.id_times)
    assert {
        NUMBER.pack(NUMBER.unpack_from(row, 8)[0]) + id for id, row in ids.items()
    } == by_time.keys(), "the two indexes of ids agree"
    for group in groups.groups(tx, topic):
        check_group(tx, group)


def check_group(tx: Transaction, group: Group) -> None:
    """What is stored of a group fits together."""
    state, _ = state_of(tx, group)
    rows = {NUMBER.unpack(key)[0]: unpacked(row) for key, row in _all(tx, group.hand_outs).items()}
    out = {n: row for n, row in rows.items() if row.state == OUT}
    waiting = {n: row for n, row in rows.items() if row.state == WAITING}
    parked = {n: row for n, row in rows.items() if row.state == PARKED}
    assert (state.hand_outs, state.out, state.parked) == (len(rows), len(out), len(parked))
    assert state.committed == (min(rows) - 1 if rows else state.cursor), "committed"
    assert all(n <= state.cursor for n in rows)
    last = TopicMessages(tx, group.topic).last
    assert TopicMessages(tx, group.topic).first - 1 <= state.cursor <= last
    entries: dict[bytes, list[int]] = {}
    for position, row in out.items():
        entries.setdefault(HEAD.pack(row.due_us, row.batch), []).append(position)
        assert row.batch <= position
    stored = _all(tx, group.deadlines)
    assert stored.keys() == entries.keys(), "the index of deadlines"
    for key, row_of in stored.items():
        count = int.from_bytes(row_of[:4], "big")
        assert count == len(entries[key])
        assert int.from_bytes(row_of[4:], "big") >= max(entries[key])
        assert NUMBER.unpack_from(key)[0] >= state.deadlines_from_us
        for position in entries[key]:
            assert count == 1 or not out[position].flags
    ready = _all(tx, group.ready)
    assert ready.keys() == {HEAD.pack(row.due_us, n) for n, row in waiting.items()}
    assert all(NUMBER.unpack_from(key)[0] >= state.ready_from_us for key in ready)
    _check_keys(tx, group, {n: row.key for n, row in rows.items() if row.key}, parked.keys())


def _check_keys(tx: Transaction, group: Group, held: dict[int, bytes], parked: Any) -> None:
    heads: dict[bytes, bytes] = {}
    behind: set[bytes] = set()
    for key in set(held.values()):
        mine = sorted(n for n, other in held.items() if other == key)
        heads[key + b"\0"] = NUMBER.pack(mine[0]) + (len(mine) - 1).to_bytes(4, "big")
        behind |= {key + b"\0" + NUMBER.pack(n) for n in mine[1:]}
        assert mine[0] not in parked
        assert all(n in parked for n in mine[1:])
    if group.ordered:
        assert _all(tx, group.heads) == heads, "the heads of keys"
        assert _all(tx, group.parked).keys() == behind, "what is parked"
    else:
        assert not held


def _all(tx: Transaction, prefix: bytes) -> dict[bytes, bytes]:
    return {
        key[len(prefix) :]: row for pairs in tx.scan(*keys.within(prefix)) for key, row in pairs
    }
