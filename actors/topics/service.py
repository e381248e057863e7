"""Topics of the node: schedules, one timer for all, effects of commits, waiting consumers.

- An idle topic costs nothing: no actor, no timer, no check. `TopicService` keeps one
  `TopicSchedule` for each topic with future work, and one timer for all of them. An actor starts
  when work is due, and ends after some idle time. A dropped topic takes all of that with it once
  the drop is on the disk. A node that loses the lead drops all schedules: another leader may give
  an id to another topic (`storage/txn/ids.py`).
- Correctness does not depend on these times: TAKE checks ack deadlines exactly, by itself. So runs
  are kept apart a little, unless a consumer waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

from actors.commits.committer import NODE, Committer
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Slices, Supervised, tell
from actors.topics.due import (
    DUE,
    PAUSE_US,
    SECOND_US,
    StartDueWork,
    TopicActor,
    TopicSchedule,
    due_times,
    present,
)
from actors.topics.metrics import Scrape, TopicFigures
from actors.topics.waiting import OnPendingCommit, TopicWaits
from protocol.requests import Caller
from protocol.rights import READ, Verbs
from protocol.values import Tick, unpaced
from storage.catalog import places as catalog_places
from storage.engine.engine import EngineUnreadable
from storage.formats import keys
from storage.formats.keys import Range
from storage.topics.deliveries import acks
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import Group, find_group
from storage.topics.topics import Topic, each_topic, find_topic
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction
from storage.txn.write_set import WriteSet

APART_US: Final = SECOND_US // 20
"""Shortest interval (µs) between runs for a topic without waiting consumers, …"""
APART_EACH_US: Final = SECOND_US // 1_000
"""… unless more topics have schedules: then this much (µs) for each. A run takes some 0.3 ms, so
that all topics together take a third of the loop at most, …"""
APART_MOST_US: Final = SECOND_US
"""… and no topic waits longer than this (µs)."""
LONGEST_S: Final = 3_600.0
"""Longest setting of the timer (s): a deadline may be a thousand years away."""
IDLE_US: Final = 60 * SECOND_US
"""Idle time (µs) after which an actor ends. Longer than any retry pause, which only it knows."""
STALE: Final = 64
"""Obsolete entries of the agenda that are tolerated, beyond as many as the valid ones."""
BEGUN_AT_ONCE: Final = 64
"""Topics with due work that are started in one iteration of the loop."""
REMEMBERED: Final = 1_000
"""Topics whose last run is remembered; more if it was just now."""
FIGURES_NEED: Final[Verbs] = READ
"""Privilege on a topic to see its figures in /metrics."""


class TopicService:
    """Run-time state of the node's topics, beyond the stored one. On the loop only."""

    def __init__(
        self, runtime: Runtime, committer: Committer, roles: Roles, rights: Rights
    ) -> None:
        self.runtime = runtime
        self.committer = committer
        self.roles = roles
        self.rights = rights
        self.waits = TopicWaits(self._listen)
        """Scripts that wait for messages, or for an index."""
        self._further_callback: OnPendingCommit | None = None
        """Further callback for pending commits."""
        self._leads = False
        """True if this node does due work of topics, and keeps schedules for it."""
        self._leads_ended = 0
        """Times that the lead was lost."""
        self.schedules: dict[int, TopicSchedule] = {}
        """Schedules by the topic's id."""
        self.begun = 0
        """Times that an actor was given work."""
        self._agenda: list[tuple[int, int]] = []
        """Heap of log times and topic ids; an entry is valid as long as the topic's schedule has
        that time."""
        self._worked_us: dict[int, int] = {}
        self.refusals: dict[int, tuple[int, Topic]] = {}
        """Refusals of due work since the start, by the topic's id."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._stopping = False
        self._parting: set[asyncio.Task[None]] = set()
        committer.on_lead_lost.append(self.drop_schedules)

    # --- start and end --------------------------------------------------------------------------

    async def start_leading(self) -> None:
        """Schedule every topic's due work, in slices. This node leads."""
        # Before the first pause: commits during the scan schedule their own work.
        self._leads, leads_ended = True, self._leads_ended
        self._listen(self._further_callback)
        with self.committer.begin_transaction() as tx:
            slices = Slices(self.runtime.clock, tx.pause)
            for _ in self._expect_all(tx):
                await slices.tick()
                # The lead was lost in a pause, maybe taken again by a later call.
                if self._leads_ended != leads_ended:
                    return

    def _expect_all(self, tx: Transaction) -> Iterator[None]:
        """Schedule the next work of every topic, with a step for each database, topic and group. A
        topic that can't be read is due at once: its actor reports it, and pauses."""
        for database in catalog_places.every_database(tx, unpaced):
            yield
            for topic in each_topic(tx, database, unpaced):
                try:
                    for at_us in due_times(tx, topic):
                        if at_us is not None:
                            self.expects(topic, at_us)
                        yield
                except EngineUnreadable:
                    self.expects(topic, self.committer.ledger.log_time())

    def drop_schedules(self) -> None:
        """Drop all schedules: another node leads and does due work. `start_leading` makes them
        again."""
        if self._stopping:
            return  # `stop` ends the actors
        self._leads, self._leads_ended = False, self._leads_ended + 1
        schedules, self.schedules = self.schedules, {}
        for schedule in schedules.values():
            # An actor may still report: a void schedule ignores it.
            schedule.void = True
            self._part(schedule)
        self._agenda.clear()
        self._worked_us.clear()
        self.refusals.clear()
        self._disarm()
        self._listen(self._further_callback)
        # Takers look again, and are refused: a follower delivers nothing.
        self.waits.look_again()

    def drain(self) -> None:
        """Answer all waiting consumers with the messages there are; no wait begins from here on."""
        self.waits.drain()

    async def stop(self) -> None:
        """Drain, and stop every actor."""
        self._stopping = True
        self.drain()
        self._disarm()
        for place in self.places():
            await place.stop()
        await asyncio.gather(*self._parting)

    def places(self) -> list[Supervised[TopicActor]]:
        """Return the places of actors that have, or lately had, work."""
        return [one.place for one in self.schedules.values() if one.place is not None]

    @property
    def working(self) -> bool:
        """True if any actor has work and has not reported its end."""
        return any(schedule.working for schedule in self.schedules.values())

    # --- schedules ------------------------------------------------------------------------------

    def expects(self, topic: Topic, at_us: int, *, exact: bool = False) -> None:
        """Schedule work for a topic at that log time, or soon after it.

        :param exact: True if a consumer waits for it
        """
        if not self._leads:
            return
        # No consumer waits: runs are kept apart, which bounds their share of the loop.
        if not exact:
            at_us = max(at_us, self._worked_us.get(topic.id, 0) + self._apart_us())
        schedule = self.schedules.get(topic.id)
        if schedule is None:
            schedule = self.schedules[topic.id] = TopicSchedule(topic)
        # An earlier entry stands: a run may be early, and then reports the next one.
        elif schedule.due_us is not None and schedule.due_us <= at_us:
            return
        schedule.due_us = at_us
        # The former entry stays in the heap, and is skipped when it comes up.
        heappush(self._agenda, (at_us, topic.id))
        self._tidy()
        self._arm()

    def _tidy(self) -> None:
        """Remove obsolete entries of the agenda once they prevail."""
        if len(self._agenda) > 2 * len(self.schedules) + STALE:
            self._agenda = [(at_us, id) for id, at_us in self.due().items()]
            heapify(self._agenda)

    def _apart_us(self) -> int:
        return min(max(APART_US, APART_EACH_US * len(self.schedules)), APART_MOST_US)

    def due(self) -> dict[int, int]:
        """Return log times of the next due work, by topic id."""
        return {id: one.due_us for id, one in self.schedules.items() if one.due_us is not None}

    def expected_us(self, topic: int) -> int | None:
        """Return log time of a topic's next due work; None: there is none."""
        schedule = self.schedules.get(topic)
        return schedule.due_us if schedule is not None else None

    def declarations_changed(self) -> None:
        """Wake all waits: topics, readers or groups were dropped."""
        self.waits.look_again()

    def roles_changed(self) -> None:
        """Wake all waits and run due work: the node accepts writes again, or no longer; or it
        drains."""
        if not self.roles.words:
            self.waits.end()
        self.waits.look_again()
        now_us = self.committer.ledger.log_time()
        for id in self.due():
            self.expects(self.schedules[id].topic, now_us)

    def is_awaited(self, tx: Transaction, group: Group) -> bool:
        """True if a consumer waits for expiry in a group, as a taker or for dead letters."""
        if self.waits.is_taken_from(group.topic.id, group.id):
            return True
        if group.dead_letter is None or group.deliveries is None:
            return False
        dead = find_topic(tx, group.topic.database, group.dead_letter)
        return dead is not None and self.waits.is_awaited(dead.id)

    def refused(self, schedule: TopicSchedule) -> None:
        """Count a refusal of a topic's due work."""
        if not schedule.void:
            topic = schedule.topic
            self.refusals[topic.id] = self._refused(topic.id) + 1, topic

    def _refused(self, topic: int) -> int:
        return self.refusals[topic][0] if topic in self.refusals else 0

    def worked(
        self, schedule: TopicSchedule, next_us: int | None, began_us: int, *, awaited: bool
    ) -> None:
        """Take the report of a topic's actor, which has done its work.

        :param next_us: log time of the next work; None: none as far as is known
        :param began_us: log time when it began
        :param awaited: True if a consumer waits for the next work
        """
        if schedule.void:
            return
        topic = schedule.topic
        if schedule.on_the_way:  # another `StartDueWork` message follows, with a report of its own
            if next_us is not None:
                self.expects(topic, next_us)
            return
        schedule.working = False
        if schedule.gone:  # its findings date from before the drop
            self._forget(topic.id)
            return
        if len(self._worked_us) > REMEMBERED:
            # Older runs bound nothing: no interval between runs is longer.
            ago_us = began_us - APART_MOST_US
            self._worked_us = {id: us for id, us in self._worked_us.items() if us > ago_us}
        self._worked_us[topic.id] = began_us
        if next_us is not None:
            # Work that is due already and was not done waits for something other than time.
            self.expects(topic, next_us, exact=awaited and next_us > began_us)
        if schedule.due_us is None:
            self.schedules.pop(topic.id, None)
        if schedule.due_us is None or schedule.due_us > began_us + IDLE_US:
            self._part(schedule)

    def reschedule_work(self, schedule: TopicSchedule) -> None:
        """Schedule the work that a failed actor has left to its replacement."""
        schedule.on_the_way = False
        self.expects_for(schedule, self.committer.ledger.log_time() + PAUSE_US)

    def expects_for(self, schedule: TopicSchedule, at_us: int, *, exact: bool = False) -> None:
        """Like `expects`, for a topic's actor."""
        if not schedule.void:
            self.expects(schedule.topic, at_us, exact=exact)

    def _part(self, schedule: TopicSchedule) -> None:
        place, schedule.place = schedule.place, None
        if place is None or self._stopping:
            return
        parting = asyncio.ensure_future(place.stop(), loop=self.runtime.loop)
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)

    def _arm(self) -> None:
        if not self._agenda or self._stopping:
            return
        at_us = self._agenda[0][0]
        if self._timer is not None:
            if self._timer_us <= at_us:
                return
            self._disarm()
        self._timer_us = at_us
        wait_s = max(at_us - self.committer.ledger.log_time(), 0) / 1_000_000
        self._timer = self.runtime.loop.call_later(min(wait_s, LONGEST_S), self.start_due_work)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def start_due_work(self) -> None:
        """Start due work of topics; called by the timer."""
        self._disarm()
        now_us = self.committer.ledger.log_time()
        begun = 0
        # The rest starts in later iterations: `_arm` below sets the timer to now.
        while self._agenda and self._agenda[0][0] <= now_us and begun < BEGUN_AT_ONCE:
            at_us, id = heappop(self._agenda)
            schedule = self.schedules.get(id)
            # Obsolete: scheduled for another time, or dropped.
            if schedule is None or schedule.due_us != at_us:
                continue
            schedule.due_us = None
            self._start_topic_work(schedule)
            begun += 1
        self._arm()

    def _start_topic_work(self, schedule: TopicSchedule) -> None:
        self.begun += 1
        if schedule.place is None:
            # The first start replaces none; each later one follows a failure.
            replaces = chain((False,), repeat(True))
            schedule.place = Supervised(
                lambda: TopicActor.start(self.runtime, self, schedule, next(replaces)),
                refoldable=True,
            )
        schedule.working = schedule.on_the_way = True
        tell(schedule.place.ref, StartDueWork())

    # --- effects of commits ---------------------------------------------------------------------

    def _listen(self, hear: OnPendingCommit | None) -> None:
        self._further_callback = hear
        self.committer.ledger.heard = self._on_pending_commit if self._leads else hear

    def _on_pending_commit(self, write_set: WriteSet) -> None:
        """Inspect a pending commit for dropped topics, by whatever statement, and pass it to the
        further callback."""
        if write_set.ranges:
            gone = [each for each in write_set.ranges if keys.touches(*each, (keys.TOPIC_LAST,))]
            if gone:  # once that is on the disk: a full disk rolls it back
                ticket = self.committer.ticket(write_set.sequence)
                self.committer.when_released(ticket, partial(self._dropped, gone))
        if self._further_callback is not None:
            self._further_callback(write_set)

    def _dropped(self, ranges: list[Range], lost: BaseException | None) -> None:
        """Forget dropped topics and their schedules; a dropped database may have thousands."""
        if lost is not None:
            return
        for start, end in ranges:
            for id in self._known(start, end):
                schedule = self.schedules.get(id)
                # Its actor is in a slice: `worked` forgets the topic at the end of it.
                if schedule is not None and schedule.working:
                    schedule.gone = True
                else:
                    self._forget(id)
        self._tidy()

    def _forget(self, topic: int) -> None:
        self._worked_us.pop(topic, None)
        self.refusals.pop(topic, None)
        schedule = self.schedules.pop(topic, None)
        if schedule is not None:
            schedule.void = True
            self._part(schedule)

    def _known(self, start: bytes, end: bytes) -> list[int]:
        """Return the ids of topics known here whose last positions stand in a key range."""
        # One dropped topic needs no look at all the others.
        alone = len(start) == keys.RECORD_PREFIX_BYTES  # the range is that of one topic
        ids = {keys.group_at(start)[0]} if alone else {*self.schedules, *self.refusals}
        found = []
        for id in ids:
            schedule, refused = self.schedules.get(id), self.refusals.get(id)
            topic = schedule.topic if schedule is not None else refused[1] if refused else None
            if topic is not None and start <= topic.last < end:
                found.append(id)
        return found

    def published(self, topic: Topic, *, over: bool | None = None) -> None:
        """Take note of a commit with new messages.

        :param over: True if the topic exceeds its size limit; None: not known
        """
        self.waits.published(topic.id)
        now_us = self.committer.ledger.log_time()
        if topic.keep_us is not None:
            self.expects(topic, now_us + topic.keep_us)
        if topic.max_bytes is not None and over is not False:
            self.expects(topic, now_us)
        if topic.dedup_us is not None:
            self.expects(topic, now_us + topic.dedup_us)

    def trimmed(self, topic: Topic) -> None:
        """Wake takers of a topic: a commit has removed messages, and maybe deliveries in flight."""
        for group in self.waits.taken_from(topic.id):
            self.waits.may_take(topic.id, group)

    def may_take(self, group: Group) -> None:
        """Wake takers of a group: a commit returned messages, or made room in flight."""
        self.waits.may_take(group.topic.id, group.id)

    def restart_deadlines(
        self, late: Sequence[DeliveredMessages]
    ) -> tuple[CommitTicket, Callable[[], None]]:
        """Restart the ack deadlines of deliveries in an answer that a slow disk has delayed, in a
        commit of its own. Return the ticket that the answer waits for, and a function that then
        writes the deadlines into it.

        :raises Refusal: the commit is refused
        """
        told: list[tuple[dict[str, Any], datetime]] = []
        with self.committer.begin_transaction() as tx:
            for each in late:
                topic = present(tx, each.group.topic)
                group = find_group(tx, topic, each.group.name) if topic is not None else None
                # Dropped meanwhile, maybe declared again: these receipts are stale.
                if group is None or group.id != each.group.id:
                    continue
                receipts = [message["receipt"] for message in each.messages]
                out = acks.restart_deadlines(DeliveryIndex(tx, group), receipts)
                until = tx.now + timedelta(microseconds=group.deadline_us)
                told += [(one, until) for one in each.messages if one["position"] in out]
                self.expects(group.topic, tx.now_us + group.deadline_us)
            tx.ignores_locks = (
                True  # past priority locks: a deadline not restarted now expires unseen
            )
            ticket = self.committer.commit(tx, NODE, reason=DUE)

        def tell() -> None:
            for message, until in told:
                message["deadline"] = until

        return ticket, tell

    # --- figures --------------------------------------------------------------------------------

    def figures(self, caller: Caller, tick: Tick) -> tuple[list[TopicFigures], CommitTicket | None]:
        """Return the topics' figures that a caller may see in /metrics, and the ticket to wait for.
        Empty on a node that may not answer the caller.

        :param tick: called for each item read: others may commit meanwhile
        """
        if not self.roles.answers(caller):
            return [], None
        with self.committer.begin_transaction() as tx:
            # The caller's `tick` may yield to the loop.
            tx.pause()
            every = self.rights.topics(tx, caller, FIGURES_NEED, tick)
            found = Scrape(tx, self._refused, tick).figures(every)
        return found, tx.ticket


@dataclass(frozen=True, slots=True)
class DeliveredMessages:
    """Messages that an answer delivers."""

    group: Group
    messages: list[dict[str, Any]]
    """Messages as they appear in the answer."""
