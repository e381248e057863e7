"""Schedules of topics: when each has due work, one timer for all, and the actors that do the work.

An idle topic costs nothing: no actor, no timer, no check. There is one `TopicSchedule` for each
topic with future work. An actor starts when work is due, and ends after some idle time. A dropped
topic takes all of that with it once the drop is on the disk. A node that loses the lead drops all
schedules: another leader may give an id to another topic (`storage/txn/ids.py`).

Correctness does not depend on these times: TAKE checks ack deadlines exactly, by itself. So runs
are kept apart a little, unless a consumer waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

from pykka import ActorRef

from actors.commits.committer import Committer
from actors.runtime import LoopActor, Runtime, Supervised, tell
from protocol.requests import Request
from storage.formats import keys
from storage.formats.keys import Range
from storage.topics.topics import Topic

SECOND_US: Final = 1_000_000
PAUSE_US: Final = SECOND_US
"""Pause before refused work is retried, and before a failed actor's replacement works."""

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


@dataclass(frozen=True, slots=True)
class StartDueWork(Request[None]):
    """Start of due work, sent to a topic's actor."""


@dataclass(eq=False, slots=True)
class TopicSchedule:
    """Schedule of one topic, with its actor."""

    topic: Topic
    due_us: int | None = None
    """Log time of the next due work; None: there is none."""
    place: Supervised[LoopActor] | None = None
    """The actor, while it has something to do or lately had."""
    working: bool = False
    """True if the actor has work and has not reported its end."""
    on_the_way: bool = False
    """True if a `StartDueWork` message has been sent and the actor has not handled it yet."""
    gone: bool = False
    """True if the topic was dropped while the actor worked."""
    void: bool = False
    """True once the topic was dropped or the lead lost: the actor's reports are void."""


class TopicSchedules:
    """Schedules by topic. On the loop only.

    :param start: starts the actor of a topic; with True, one that replaces a failed actor
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        start: Callable[[TopicSchedule, bool], ActorRef[Any]],
    ) -> None:
        self._runtime = runtime
        self._committer = committer
        self._start = start
        self.leads = False
        """True if this node does due work of topics, and keeps schedules for it."""
        self._schedules: dict[int, TopicSchedule] = {}
        """Schedules by the topic's id."""
        self.begun = 0
        """Times that an actor was given work."""
        self._agenda: list[tuple[int, int]] = []
        """Heap of log times and topic ids; an entry is valid as long as the topic's schedule has
        that time."""
        self._worked_us: dict[int, int] = {}
        self._refusals: dict[int, tuple[int, Topic]] = {}
        """Refusals of due work since the start, by the topic's id."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._stopping = False
        self._parting: set[asyncio.Task[None]] = set()

    # --- lead and end -----------------------------------------------------------------------------

    def drop(self) -> None:
        """Drop all: another node leads and does due work."""
        self.leads = False
        schedules, self._schedules = self._schedules, {}
        for schedule in schedules.values():
            # An actor may still report: a void schedule ignores it.
            schedule.void = True
            self._part(schedule)
        self._agenda.clear()
        self._worked_us.clear()
        self._refusals.clear()
        self._disarm()

    async def stop(self) -> None:
        """Stop every actor; none starts from here on."""
        self._stopping = True
        self._disarm()
        for place in self.places():
            await place.stop()
        await asyncio.gather(*self._parting)

    def places(self) -> list[Supervised[LoopActor]]:
        """Return the places of actors that have, or lately had, work."""
        return [one.place for one in self._schedules.values() if one.place is not None]

    @property
    def working(self) -> bool:
        """True if any actor has work and has not reported its end."""
        return any(schedule.working for schedule in self._schedules.values())

    # --- work to come -----------------------------------------------------------------------------

    def expects(self, topic: Topic, at_us: int, *, exact: bool = False) -> None:
        """Schedule work for a topic at that log time, or soon after it.

        :param exact: True if a consumer waits for it
        """
        if not self.leads:
            return
        # No consumer waits: runs are kept apart, which bounds their share of the loop.
        if not exact:
            at_us = max(at_us, self._worked_us.get(topic.id, 0) + self._apart_us())
        schedule = self._schedules.get(topic.id)
        if schedule is None:
            schedule = self._schedules[topic.id] = TopicSchedule(topic)
        # An earlier entry stands: a run may be early, and then reports the next one.
        elif schedule.due_us is not None and schedule.due_us <= at_us:
            return
        schedule.due_us = at_us
        # The former entry stays in the heap, and is skipped when it comes up.
        heappush(self._agenda, (at_us, topic.id))
        self._tidy()
        self._arm()

    def expect_all(self) -> None:
        """Schedule every topic that has a schedule for now: the node accepts writes again."""
        now_us = self._committer.ledger.log_time()
        for id in self.due():
            self.expects(self._schedules[id].topic, now_us)

    def published(self, topic: Topic, *, over: bool | None = None) -> None:
        """Schedule the work that a commit with new messages brings.

        :param over: True if the topic exceeds its size limit; None: not known
        """
        now_us = self._committer.ledger.log_time()
        if topic.keep_us is not None:
            self.expects(topic, now_us + topic.keep_us)
        if topic.max_bytes is not None and over is not False:
            self.expects(topic, now_us)
        if topic.dedup_us is not None:
            self.expects(topic, now_us + topic.dedup_us)

    def _tidy(self) -> None:
        """Remove obsolete entries of the agenda once they prevail."""
        if len(self._agenda) > 2 * len(self._schedules) + STALE:
            self._agenda = [(at_us, id) for id, at_us in self.due().items()]
            heapify(self._agenda)

    def _apart_us(self) -> int:
        return min(max(APART_US, APART_EACH_US * len(self._schedules)), APART_MOST_US)

    def due(self) -> dict[int, int]:
        """Return log times of the next due work, by topic id."""
        return {id: one.due_us for id, one in self._schedules.items() if one.due_us is not None}

    def expected_us(self, topic: int) -> int | None:
        """Return log time of a topic's next due work; None: there is none."""
        schedule = self._schedules.get(topic)
        return schedule.due_us if schedule is not None else None

    # --- reports of actors ------------------------------------------------------------------------

    def refused(self, schedule: TopicSchedule) -> None:
        """Count a refusal of a topic's due work."""
        if not schedule.void:
            topic = schedule.topic
            self._refusals[topic.id] = self.refusals(topic.id) + 1, topic

    def refusals(self, topic: int) -> int:
        """Return how often due work of a topic was refused since the start."""
        return self._refusals[topic][0] if topic in self._refusals else 0

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
            self._schedules.pop(topic.id, None)
        if schedule.due_us is None or schedule.due_us > began_us + IDLE_US:
            self._part(schedule)

    def reschedule_work(self, schedule: TopicSchedule) -> None:
        """Schedule the work that a failed actor has left to its replacement."""
        schedule.on_the_way = False
        self.expects_for(schedule, self._committer.ledger.log_time() + PAUSE_US)

    def expects_for(self, schedule: TopicSchedule, at_us: int, *, exact: bool = False) -> None:
        """Like `expects`, for a topic's actor."""
        if not schedule.void:
            self.expects(schedule.topic, at_us, exact=exact)

    def _part(self, schedule: TopicSchedule) -> None:
        place, schedule.place = schedule.place, None
        if place is None or self._stopping:
            return
        parting = asyncio.ensure_future(place.stop(), loop=self._runtime.loop)
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)

    # --- timer ------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if not self._agenda or self._stopping:
            return
        at_us = self._agenda[0][0]
        if self._timer is not None:
            if self._timer_us <= at_us:
                return
            self._disarm()
        self._timer_us = at_us
        wait_s = max(at_us - self._committer.ledger.log_time(), 0) / 1_000_000
        self._timer = self._runtime.loop.call_later(min(wait_s, LONGEST_S), self.start_due_work)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def start_due_work(self) -> None:
        """Start due work of topics; called by the timer."""
        self._disarm()
        now_us = self._committer.ledger.log_time()
        begun = 0
        # The rest starts in later iterations: `_arm` below sets the timer to now.
        while self._agenda and self._agenda[0][0] <= now_us and begun < BEGUN_AT_ONCE:
            at_us, id = heappop(self._agenda)
            schedule = self._schedules.get(id)
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
                lambda: self._start(schedule, next(replaces)),
                refoldable=True,
            )
        schedule.working = schedule.on_the_way = True
        tell(schedule.place.ref, StartDueWork())

    # --- dropped topics ---------------------------------------------------------------------------

    def forget(self, ranges: list[Range]) -> None:
        """Forget the topics whose last positions stand in key ranges: they were dropped. A dropped
        database may have thousands."""
        for start, end in ranges:
            for id in self._known(start, end):
                schedule = self._schedules.get(id)
                # Its actor is in a slice: `worked` forgets the topic at the end of it.
                if schedule is not None and schedule.working:
                    schedule.gone = True
                else:
                    self._forget(id)
        self._tidy()

    def _forget(self, topic: int) -> None:
        self._worked_us.pop(topic, None)
        self._refusals.pop(topic, None)
        schedule = self._schedules.pop(topic, None)
        if schedule is not None:
            schedule.void = True
            self._part(schedule)

    def _known(self, start: bytes, end: bytes) -> list[int]:
        """Return the ids of topics known here whose last positions stand in a key range."""
        # One dropped topic needs no look at all the others.
        alone = len(start) == keys.RECORD_PREFIX_BYTES  # the range is that of one topic
        ids = {keys.group_at(start)[0]} if alone else {*self._schedules, *self._refusals}
        found = []
        for id in ids:
            schedule, refused = self._schedules.get(id), self._refusals.get(id)
            topic = schedule.topic if schedule is not None else refused[1] if refused else None
            if topic is not None and start <= topic.last < end:
                found.append(id)
        return found
