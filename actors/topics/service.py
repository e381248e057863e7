"""The topics of the node: what each has to come, one timer for all, what commits bring, who waits.

- A topic with nothing to come costs nothing: no actor, no timer, no look. `Topics` keeps one
  `TopicSchedule` for each topic that has something to come, and one timer for all of them. An actor
  is started when the time has come, and goes when it has nothing to do for a while. A topic that is
  dropped takes all of that with it once the drop is on the disk, and a node that leads no more
  drops all of it: another leader may give an id to another topic (`storage/ids.py`).
- These times are a service, not what makes anything right: TAKE judges deadlines exactly, by
  itself. So they are kept apart a little, save where somebody waits.
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

from actors.commits import NODE, Committer
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Slices, Supervised, tell
from actors.topics.due import (
    DUE,
    PAUSE_US,
    SECOND_US,
    TopicActor,
    TopicSchedule,
    Work,
    due_times,
    present,
)
from actors.topics.metrics import Scrape, TopicFigures
from actors.topics.waiting import Hear, Waits
from protocol.requests import Caller
from protocol.rights import READ, Verbs
from protocol.values import Tick, unpaced
from storage import catalog, keys
from storage.engine import EngineUnreadable
from storage.groups import Group, find_group
from storage.hand_outs import HandOuts
from storage.keys import Range
from storage.layers import Layer
from storage.tickets import CommitTicket
from storage.topics import Topic, each_topic, find_topic
from storage.transactions import Transaction

APART_US: Final = SECOND_US // 20
"""How often a topic is looked after at most, where nobody waits, …"""
APART_EACH_US: Final = SECOND_US // 1_000
"""… unless more topics have something to come: then so much for each of them. A look takes some
0.3 ms, so that however many they are, all together take a third of the loop at most, …"""
APART_MOST_US: Final = SECOND_US
"""… and no topic is left alone for longer than this."""
LONGEST_S: Final = 3_600.0
"""The longest that the timer is set for: a deadline may be a thousand years away."""
IDLE_US: Final = 60 * SECOND_US
"""An actor with nothing to do for longer than this goes. Longer than any pause: it knows them."""
STALE: Final = 64
"""Entries of the agenda that may have been overtaken by earlier ones, beyond as many as count."""
BEGUN_AT_ONCE: Final = 64
"""Topics whose time has come that are begun with in one turn of the loop."""
REMEMBERED: Final = 1_000
"""Topics for which it is remembered when they were last looked after; more if that was just now."""
FIGURES_NEED: Final[Verbs] = READ
"""What a caller needs on a topic to see its figures in /metrics."""


class Topics:
    """The topics of the node, as far as they are more than what is stored; on the loop only."""

    def __init__(
        self, runtime: Runtime, committer: Committer, roles: Roles, rights: Rights
    ) -> None:
        self.runtime = runtime
        self.committer = committer
        self.roles = roles
        self.rights = rights
        self.waits = Waits(self._listen)
        """Scripts that wait for messages, or for an index."""
        self._hear: Hear | None = None
        """Whoever wants to hear of commits beside this."""
        self._leads = False
        """True if this node does what time brings to topics, and keeps schedules for it."""
        self._leads_ended = 0
        """How often that has ended."""
        self.schedules: dict[int, TopicSchedule] = {}
        """By the topic's id."""
        self.begun = 0
        """How often an actor was given work."""
        self._agenda: list[tuple[int, int]] = []
        """Times and topics; an entry counts as long as the topic's schedule says the same."""
        self._worked_us: dict[int, int] = {}
        self.refusals: dict[int, tuple[int, Topic]] = {}
        """How often what was due was refused, by the topic's id; since the start."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._stopping = False
        self._parting: set[asyncio.Task[None]] = set()
        committer.on_following.append(self.rest)

    # --- start and end --------------------------------------------------------------------------

    async def begin(self) -> None:
        """Look at every topic for what there is to come, in slices."""
        self._leads, leads_ended = True, self._leads_ended
        self._listen(self._hear)
        with self.committer.begin() as tx:
            slices = Slices(self.runtime.clock, tx.pause)
            for _ in self._expect_all(tx):
                await slices.tick()
                if self._leads_ended != leads_ended:
                    return

    def _expect_all(self, tx: Transaction) -> Iterator[None]:
        """Look at every topic for what there is to come, with a step for each database, topic and
        group. One that can't be read is due at once: its actor says so, and rests."""
        for database in catalog.every_database(tx, unpaced):
            yield
            for topic in each_topic(tx, database, unpaced):
                try:
                    for at_us in due_times(tx, topic):
                        if at_us is not None:
                            self.expects(topic, at_us)
                        yield
                except EngineUnreadable:
                    self.expects(topic, self.committer.ledger.log_time())

    def rest(self) -> None:
        """Another node leads: what time brings is its to do. `begin` looks at all of them again."""
        if self._stopping:
            return  # `stop` ends the actors
        self._leads, self._leads_ended = False, self._leads_ended + 1
        schedules, self.schedules = self.schedules, {}
        for schedule in schedules.values():
            schedule.void = True
            self._part(schedule)
        self._agenda.clear()
        self._worked_us.clear()
        self.refusals.clear()
        self._disarm()
        self._listen(self._hear)
        self.waits.look_again()

    def drain(self) -> None:
        """Whoever waits is answered with what there is, and nobody waits from here on."""
        self.waits.drain()

    async def stop(self) -> None:
        """Stop every actor."""
        self._stopping = True
        self.drain()
        self._disarm()
        for place in self.places():
            await place.stop()
        await asyncio.gather(*self._parting)

    def places(self) -> list[Supervised[TopicActor]]:
        """Actors that have, or lately had, something to do."""
        return [one.place for one in self.schedules.values() if one.place is not None]

    @property
    def working(self) -> bool:
        """True if any actor has work and has not reported its end."""
        return any(schedule.working for schedule in self.schedules.values())

    # --- what is to come ------------------------------------------------------------------------

    def expects(self, topic: Topic, at_us: int, *, exact: bool = False) -> None:
        """There is something to do for a topic at that log time, or soon after it.

        :param exact: somebody waits for it
        """
        if not self._leads:
            return
        if not exact:
            at_us = max(at_us, self._worked_us.get(topic.id, 0) + self._apart_us())
        schedule = self.schedules.get(topic.id)
        if schedule is None:
            schedule = self.schedules[topic.id] = TopicSchedule(topic)
        elif schedule.due_us is not None and schedule.due_us <= at_us:
            return
        schedule.due_us = at_us
        heappush(self._agenda, (at_us, topic.id))
        self._tidy()
        self._arm()

    def _tidy(self) -> None:
        """Where most of the agenda has been overtaken, keep of it what counts."""
        if len(self._agenda) > 2 * len(self.schedules) + STALE:
            self._agenda = [(at_us, id) for id, at_us in self.due().items()]
            heapify(self._agenda)

    def _apart_us(self) -> int:
        return min(max(APART_US, APART_EACH_US * len(self.schedules)), APART_MOST_US)

    def due(self) -> dict[int, int]:
        """When topics will be looked after, by their ids: log time."""
        return {id: one.due_us for id, one in self.schedules.items() if one.due_us is not None}

    def expected_us(self, topic: int) -> int | None:
        """When the topic of that id will be looked after: log time; None: there is no need."""
        schedule = self.schedules.get(topic)
        return schedule.due_us if schedule is not None else None

    def declarations_changed(self) -> None:
        """Topics or groups were dropped, or what may be done with them has changed."""
        self.waits.look_again()

    def roles_changed(self) -> None:
        """The node may write again, or not any more; or it drains."""
        if not self.roles.words:
            self.waits.end()
        self.waits.look_again()
        now_us = self.committer.ledger.log_time()
        for id in self.due():
            self.expects(self.schedules[id].topic, now_us)

    def is_awaited(self, tx: Transaction, group: Group) -> bool:
        """Whether somebody waits for what becomes of a group's deadlines: to take from it, or for
        its dead letters."""
        if self.waits.is_taken_from(group.topic.id, group.id):
            return True
        if group.dead_letter is None or group.deliveries is None:
            return False
        dead = find_topic(tx, group.topic.database, group.dead_letter)
        return dead is not None and self.waits.is_awaited(dead.id)

    def refused(self, schedule: TopicSchedule) -> None:
        """What was due on a topic was refused."""
        if not schedule.void:
            topic = schedule.topic
            self.refusals[topic.id] = self._refused(topic.id) + 1, topic

    def _refused(self, topic: int) -> int:
        return self.refusals[topic][0] if topic in self.refusals else 0

    def worked(
        self, schedule: TopicSchedule, next_us: int | None, began_us: int, *, awaited: bool
    ) -> None:
        """A topic's actor has done what there was to do.

        :param next_us: when there will be something; None: not as far as one can see
        :param began_us: when it began
        :param awaited: whether somebody waits for that
        """
        if schedule.void:
            return
        topic = schedule.topic
        if schedule.on_the_way:  # which has an end of its own, and the actor stays for it
            if next_us is not None:
                self.expects(topic, next_us)
            return
        schedule.working = False
        if schedule.gone:  # and what it found to come it has found before
            self._forget(topic.id)
            return
        if len(self._worked_us) > REMEMBERED:
            ago_us = began_us - APART_MOST_US
            self._worked_us = {id: us for id, us in self._worked_us.items() if us > ago_us}
        self._worked_us[topic.id] = began_us
        if next_us is not None:
            # What is due already, and was not done, waits for something else than time.
            self.expects(topic, next_us, exact=awaited and next_us > began_us)
        if schedule.due_us is None:
            self.schedules.pop(topic.id, None)
        if schedule.due_us is None or schedule.due_us > began_us + IDLE_US:
            self._part(schedule)

    def begin_again(self, schedule: TopicSchedule) -> None:
        """An actor takes the place of one that failed, and left what it had to do."""
        schedule.on_the_way = False
        self.expects_for(schedule, self.committer.ledger.log_time() + PAUSE_US)

    def expects_for(self, schedule: TopicSchedule, at_us: int, *, exact: bool = False) -> None:
        """As `expects`, for a topic's actor."""
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
        self._timer = self.runtime.loop.call_later(min(wait_s, LONGEST_S), self.keep_time)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def keep_time(self) -> None:
        """Begin with the topics whose time has come; the timer's own call."""
        self._disarm()
        now_us = self.committer.ledger.log_time()
        begun = 0
        while self._agenda and self._agenda[0][0] <= now_us and begun < BEGUN_AT_ONCE:
            at_us, id = heappop(self._agenda)
            schedule = self.schedules.get(id)
            if schedule is None or schedule.due_us != at_us:
                continue
            schedule.due_us = None
            self._begin(schedule)
            begun += 1
        self._arm()

    def _begin(self, schedule: TopicSchedule) -> None:
        self.begun += 1
        if schedule.place is None:
            replaces = chain((False,), repeat(True))
            schedule.place = Supervised(
                lambda: TopicActor.start(self.runtime, self, schedule, next(replaces)),
                refoldable=True,
            )
        schedule.working = schedule.on_the_way = True
        tell(schedule.place.ref, Work())

    # --- what commits bring ---------------------------------------------------------------------

    def _listen(self, hear: Hear | None) -> None:
        self._hear = hear
        self.committer.ledger.heard = self._heard if self._leads else hear

    def _heard(self, layer: Layer) -> None:
        """A commit is in flight: those who want to hear of it, and what it drops, whatever way."""
        if layer.ranges:
            gone = [each for each in layer.ranges if keys.touches(*each, (keys.TOPIC_LAST,))]
            if gone:  # once that is on the disk: a full one takes it back
                ticket = self.committer.ticket(layer.sequence)
                self.committer.when_released(ticket, partial(self._dropped, gone))
        if self._hear is not None:
            self._hear(layer)

    def _dropped(self, ranges: list[Range], lost: BaseException | None) -> None:
        """Topics are gone, and what they had to come with them; there may be thousands, of a
        database."""
        if lost is not None:
            return
        for start, end in ranges:
            for id in self._known(start, end):
                schedule = self.schedules.get(id)
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
        """Topics of which anything is known here, and whose last positions stood in a range."""
        alone = len(start) == keys.RECORD_PREFIX_BYTES  # then it is that of one topic
        ids = {keys.group_at(start)[0]} if alone else {*self.schedules, *self.refusals}
        found = []
        for id in ids:
            schedule, refused = self.schedules.get(id), self.refusals.get(id)
            topic = schedule.topic if schedule is not None else refused[1] if refused else None
            if topic is not None and start <= topic.last < end:
                found.append(id)
        return found

    def published(self, topic: Topic, *, over: bool | None = None) -> None:
        """A commit has brought messages.

        :param over: whether the topic holds more than it should; None: not known
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
        """A commit has removed messages, and with them perhaps what was in flight."""
        for group in self.waits.taken_from(topic.id):
            self.waits.may_take(topic.id, group)

    def may_take(self, group: Group) -> None:
        """A commit has brought back messages of a group, or made room for more in flight."""
        self.waits.may_take(group.topic.id, group.id)

    def count_from_now(self, late: Sequence[HandedOut]) -> tuple[CommitTicket, Callable[[], None]]:
        """Give what an answer hands out the whole of its deadline, which the disk has used up: a
        commit of its own. Answers what the answer now waits for, and what then tells it so.

        :raises Refusal: it can't be done
        """
        told: list[tuple[dict[str, Any], datetime]] = []
        with self.committer.begin() as tx:
            for each in late:
                topic = present(tx, each.group.topic)
                group = find_group(tx, topic, each.group.name) if topic is not None else None
                if group is None or group.id != each.group.id:
                    continue
                receipts = [message["receipt"] for message in each.messages]
                out = HandOuts(tx, group).count_from_now(receipts)
                until = tx.now + timedelta(microseconds=group.deadline_us)
                told += [(one, until) for one in each.messages if one["position"] in out]
                self.expects(group.topic, tx.now_us + group.deadline_us)
            tx.passes = True  # what is not prolonged now is spent unseen
            ticket = self.committer.commit(tx, NODE, reason=DUE)

        def tell() -> None:
            for message, until in told:
                message["deadline"] = until

        return ticket, tell

    # --- figures --------------------------------------------------------------------------------

    def figures(self, caller: Caller, tick: Tick) -> tuple[list[TopicFigures], CommitTicket | None]:
        """What a caller may see of topics, for /metrics, and what an answer that shows it waits
        for; nothing of a node that may show it nothing.

        :param tick: called for each thing that is read: others may commit meanwhile
        """
        if not self.roles.answers(caller):
            return [], None
        with self.committer.begin() as tx:
            tx.pause()
            every = self.rights.topics(tx, caller, FIGURES_NEED, tick)
            found = Scrape(tx, self._refused, tick).figures(every)
        return found, tx.ticket


@dataclass(frozen=True, slots=True)
class HandedOut:
    """Messages that an answer hands out."""

    group: Group
    messages: list[dict[str, Any]]
    """As they are answered."""
