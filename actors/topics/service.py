"""The topics of the node: what each has to come, one timer for all, what commits bring, who waits.

- A topic with nothing to come costs nothing: no actor, no timer, no look. `Topics` keeps one
  entry, a time, for each topic that has something to come, and one timer for all of them. An actor
  is started when the time has come, and goes when it has nothing to do for a while. A topic that is
  dropped takes all of that with it once the drop is on the disk.
- These times are a service, not what makes anything right: TAKE judges deadlines exactly, by
  itself. So they are kept apart a little, save where somebody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

from actors.commits import NODE, Committer
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Supervised, tell
from actors.topics.due import DUE, PAUSE_US, SECOND_US, TopicActor, Work, next_us, present
from actors.topics.metrics import TopicFigures, figures_of
from actors.topics.waiting import Hear, Waits
from protocol import limits
from protocol.requests import Caller
from protocol.rights import READ, Verbs
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
        """Scripts that wait for messages."""
        self._hear: Hear | None = None
        """Whoever wants to hear of commits beside this."""
        self._has_led = False
        """Whether anything may be known here of topics, which is to go when they do."""
        self.places: dict[int, Supervised[TopicActor]] = {}
        """Actors that have, or lately had, something to do; by the topic's id."""
        self.begun = 0
        """How often an actor was given work."""
        self.working: dict[int, Topic] = {}
        """Topics, by their ids, whose actors have work and have not reported its end."""
        self._on_the_way: set[int] = set()
        """Of these, those whose actors have been told of more work and have not heard it yet."""
        self._gone: set[int] = set()
        """Of those that work, the ones that were dropped meanwhile."""
        self._due: dict[int, tuple[int, Topic]] = {}
        self._agenda: list[tuple[int, int]] = []
        """Times and topics; an entry counts as long as `_due` says the same."""
        self._worked_us: dict[int, int] = {}
        self.refusals: dict[int, tuple[int, Topic]] = {}
        """How often what was due was refused, by the topic's id; since the start."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._stopping = False
        self._parting: set[asyncio.Task[None]] = set()

    # --- start and end --------------------------------------------------------------------------

    async def begin(self) -> None:
        """Look at every topic for what there is to come, in slices."""
        self._has_led = True
        self._listen(self._hear)
        until_us = self.runtime.clock.monotonic_us() + limits.SLICE_US
        with self.committer.begin() as tx:
            for topic in _all(tx):
                at_us = self._next_us(tx, topic)
                if at_us is not None:
                    self.expects(topic, at_us)
                if self.runtime.clock.monotonic_us() >= until_us:
                    tx.pause()
                    await asyncio.sleep(0)
                    until_us = self.runtime.clock.monotonic_us() + limits.SLICE_US

    def _next_us(self, tx: Transaction, topic: Topic) -> int | None:
        """As `next_us`; at once where that can't be read: the topic's actor says so, and rests."""
        try:
            return next_us(tx, topic)
        except EngineUnreadable:
            return self.committer.ledger.log_time()

    def rest(self) -> None:
        """Another node leads: what time brings is its to do. `begin` looks at all of them again."""
        self._due.clear()
        self._agenda.clear()
        self._disarm()
        self.waits.look_again()

    def drain(self) -> None:
        """Whoever waits is answered with what there is, and nobody waits from here on."""
        self.waits.drain()

    async def stop(self) -> None:
        """Stop every actor."""
        self._stopping = True
        self.drain()
        self._disarm()
        for place in list(self.places.values()):
            await place.stop()
        await asyncio.gather(*self._parting)

    # --- what is to come ------------------------------------------------------------------------

    def expects(self, topic: Topic, at_us: int, *, exact: bool = False) -> None:
        """There is something to do for a topic at that log time, or soon after it.

        :param exact: somebody waits for it
        """
        if not exact:
            at_us = max(at_us, self._worked_us.get(topic.id, 0) + self._apart_us())
        due = self._due.get(topic.id)
        if due is not None and due[0] <= at_us:
            return
        self._due[topic.id] = at_us, topic
        heappush(self._agenda, (at_us, topic.id))
        self._tidy()
        self._arm()

    def _tidy(self) -> None:
        """Where most of the agenda has been overtaken, keep of it what counts."""
        if len(self._agenda) > 2 * len(self._due) + STALE:
            self._agenda = [(at_us, id) for id, (at_us, _) in self._due.items()]
            heapify(self._agenda)

    def _apart_us(self) -> int:
        return min(max(APART_US, APART_EACH_US * len(self._due)), APART_MOST_US)

    def expected_us(self, topic: int) -> int | None:
        """When the topic of that id will be looked after: log time; None: there is no need."""
        due = self._due.get(topic)
        return due[0] if due is not None else None

    def declarations_changed(self) -> None:
        """Topics or groups were dropped, or what may be done with them has changed."""
        self.waits.look_again()

    def roles_changed(self) -> None:
        """The node may write again, or not any more; or it drains."""
        if not self.roles.words:
            self.waits.end()
        self.waits.look_again()
        for at_us, topic in list(self._due.values()):
            self.expects(topic, min(at_us, self.committer.ledger.log_time()))

    def is_awaited(self, tx: Transaction, group: Group) -> bool:
        """Whether somebody waits for what becomes of a group's deadlines: to take from it, or for
        its dead letters."""
        if self.waits.is_taken_from(group.topic.id, group.id):
            return True
        if group.dead_letter is None or group.deliveries is None:
            return False
        dead = find_topic(tx, group.topic.database, group.dead_letter)
        return dead is not None and self.waits.is_awaited(dead.id)

    def refused(self, topic: Topic) -> None:
        """What was due on a topic was refused."""
        self.refusals[topic.id] = self._refused(topic.id) + 1, topic

    def _refused(self, topic: int) -> int:
        return self.refusals[topic][0] if topic in self.refusals else 0

    def worked(self, topic: Topic, next_us: int | None, began_us: int, *, awaited: bool) -> None:
        """A topic's actor has done what there was to do.

        :param next_us: when there will be something; None: not as far as one can see
        :param began_us: when it began
        :param awaited: whether somebody waits for that
        """
        if topic.id in self._on_the_way:  # which has an end of its own, and the actor stays for it
            if next_us is not None:
                self.expects(topic, next_us)
            return
        self.working.pop(topic.id, None)
        if topic.id in self._gone:  # and what it found to come it has found before
            self._gone.discard(topic.id)
            self._forget(topic.id)
            return
        if len(self._worked_us) > REMEMBERED:
            ago_us = began_us - APART_MOST_US
            self._worked_us = {id: us for id, us in self._worked_us.items() if us > ago_us}
        self._worked_us[topic.id] = began_us
        if next_us is not None:
            # What is due already, and was not done, waits for something else than time.
            self.expects(topic, next_us, exact=awaited and next_us > began_us)
        due = self.expected_us(topic.id)
        if due is None or due > began_us + IDLE_US:
            self._part(topic.id)

    def came(self, topic: Topic) -> None:
        """A topic's actor has heard of the work that it was told of."""
        self._on_the_way.discard(topic.id)

    def begin_again(self, topic: Topic) -> None:
        """An actor takes the place of one that failed, and left what it had to do."""
        self._on_the_way.discard(topic.id)
        self.expects(topic, self.committer.ledger.log_time() + PAUSE_US)

    def _part(self, topic: int) -> None:
        place = self.places.pop(topic, None)
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
            due = self._due.get(id)
            if due is None or due[0] != at_us:
                continue
            del self._due[id]
            self._begin(due[1])
            begun += 1
        self._arm()

    def _begin(self, topic: Topic) -> None:
        self.begun += 1
        self.working[topic.id] = topic
        place = self.places.get(topic.id)
        if place is None:
            replaces = chain((False,), repeat(True))
            place = self.places[topic.id] = Supervised(
                lambda: TopicActor.start(self.runtime, self, topic, next(replaces)),
                refoldable=True,
            )
        self._on_the_way.add(topic.id)
        tell(place.ref, Work())

    # --- what commits bring ---------------------------------------------------------------------

    def _listen(self, hear: Hear | None) -> None:
        self._hear = hear
        self.committer.ledger.heard = self._heard if self._has_led else hear

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
                if id in self.working:
                    self._gone.add(id)
                else:
                    self._forget(id)
        self._tidy()

    def _forget(self, topic: int) -> None:
        self._due.pop(topic, None)
        self._worked_us.pop(topic, None)
        self.refusals.pop(topic, None)
        self._part(topic)

    def _known(self, start: bytes, end: bytes) -> list[int]:
        """Topics of which anything is known here, and whose last positions stood in a range."""
        alone = len(start) == keys.RECORD_PREFIX_BYTES  # then it is that of one topic
        ids = {keys.group_at(start)[0]} if alone else {*self._due, *self.working, *self.refusals}
        found = []
        for id in ids:
            due, refused = self._due.get(id), self.refusals.get(id)
            topic = due[1] if due is not None else self.working.get(id)
            if topic is None and refused is not None:
                topic = refused[1]
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

    async def figures(self, caller: Caller) -> list[TopicFigures]:
        """What a caller may see of every topic, for /metrics; nothing of a node that may show it
        nothing.

        :raises Refusal: the disk is full
        :raises TimeoutError: it takes longer than `limits.METRICS_WAIT_SECONDS`
        """
        if not self.roles.answers(caller):
            return []
        committer = self.committer
        with committer.begin() as tx:
            found = [each async for each in self._figures(tx, caller)]
        async with asyncio.timeout(limits.METRICS_WAIT_SECONDS):
            await committer.released(tx.ticket)
        return found

    async def _figures(self, tx: Transaction, caller: Caller) -> AsyncIterator[TopicFigures]:
        clock = self.runtime.clock
        until_us = clock.monotonic_us() + limits.SLICE_US
        for topic in self.rights.topics(tx, caller, FIGURES_NEED):
            if topic is not None:
                yield figures_of(tx, topic, self._refused(topic.id))
            if clock.monotonic_us() >= until_us:
                tx.pause()
                await asyncio.sleep(0)
                until_us = clock.monotonic_us() + limits.SLICE_US


@dataclass(frozen=True, slots=True)
class HandedOut:
    """Messages that an answer hands out."""

    group: Group
    messages: list[dict[str, Any]]
    """As they are answered."""


def _all(tx: Transaction) -> Iterator[Topic]:
    for database in catalog.every_database(tx):
        yield from each_topic(tx, database)
