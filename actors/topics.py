"""Topics while the node runs: who waits for messages, and what has to be done without being asked.

Statements on topics work through the transactions of their scripts. What time brings by itself is
done by one actor for each topic, in slices, each a commit of its own: hand-outs whose deadline has
passed are taken back, messages that are too old or too many go, ids of DEDUP are forgotten, and
whoever waits for a message that is now to be handed out again is woken.

- A topic with nothing to come costs nothing: no actor, no timer, no look. `Topics` keeps one
  entry, a time, for each topic that has something to come, and one timer for all of them. An actor
  is started when the time has come, and goes when it has nothing to do for a while.
- These times are a service, not what makes anything right: TAKE judges deadlines exactly, by
  itself. So they are kept apart a little, save where somebody waits.
- What is refused is logged, counted and tried again after growing pauses, a group's work without
  holding up that of another.
- Nothing here is kept but what the store says too: a failed actor is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

import structlog

from actors.commits import NODE, Committer, Promise
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import LoopActor, Runtime, Supervised, handles, stop, tell
from actors.waiting import Waits
from protocol import limits
from protocol.errors import DiskFull, Failed, NotWritable, Refusal, TooLarge, UnknownOutcome
from protocol.requests import Caller, Request
from protocol.rights import READ, Verbs
from storage import catalog
from storage.groups import Group, find_group, groups
from storage.hand_outs import HandOuts
from storage.messages import Messages
from storage.topics import Topic, each_topic, find_topic
from storage.transactions import Transaction

log = structlog.get_logger("topics")

SECOND_US: Final = 1_000_000
APART_US: Final = SECOND_US // 20
"""How often a topic is looked after at most, where nobody waits, …"""
APART_EACH_US: Final = SECOND_US // 1_000
"""… unless more topics have something to come: then so much for each of them. A look takes some
0.3 ms, so that however many they are, all together take a third of the loop at most, …"""
APART_MOST_US: Final = SECOND_US
"""… and no topic is left alone for longer than this."""
PAUSE_US: Final = SECOND_US
"""When work that was refused is tried again. The pause doubles each time, …"""
PAUSE_MOST_US: Final = 32 * SECOND_US
"""… up to this."""
UNWRITABLE_US: Final = 60 * SECOND_US
"""When a node that takes no writes looks again whether it does."""
LONGEST_S: Final = 3_600.0
"""The longest that the timer is set for: a deadline may be a thousand years away."""
IDLE_US: Final = 60 * SECOND_US
"""An actor with nothing to do for longer than this goes. Longer than any pause: it knows them."""
BEGUN_AT_ONCE: Final = 64
"""Topics whose time has come that are begun with in one turn of the loop."""
REMEMBERED: Final = 1_000
"""Topics for which it is remembered when they were last looked after, or that work on them was
refused; more if that was just now."""
SWEPT_IDS: Final = 256
"""Ids forgotten in one commit."""
FIGURES_NEED: Final[Verbs] = READ
"""What a caller needs on a topic to see its figures in /metrics."""
DUE: Final = "due"
"""Why the node does by itself what time brings."""
ALL: Final = -1
RETENTION: Final = 0
"""Parts of an actor's work that belong to no group."""
OF_THE_NODE: Final = (DiskFull, Failed, UnknownOutcome)
"""Refusals that say nothing about a topic; what they come from is logged already."""


@dataclass(frozen=True, slots=True)
class Work(Request[None]):
    """Said to a topic's actor when its time has come."""


class Topics:
    """The topics of the node, as far as they are more than what is stored; on the loop only."""

    def __init__(
        self, runtime: Runtime, committer: Committer, roles: Roles, rights: Rights
    ) -> None:
        self.runtime = runtime
        self.committer = committer
        self.roles = roles
        self.rights = rights
        self.waits = Waits()
        """Scripts that wait for messages."""
        self.places: dict[int, Supervised[TopicActor]] = {}
        """Actors that have, or lately had, something to do; by the topic's id."""
        self.begun = 0
        """How often an actor was given work."""
        self.working: set[int] = set()
        """Topics, by their ids, whose actors have work and have not reported its end."""
        self._due: dict[int, tuple[int, Topic]] = {}
        self._agenda: list[tuple[int, int]] = []
        """Times and topics; an entry counts as long as `_due` says the same."""
        self._worked_us: dict[int, int] = {}
        self.refusals: dict[int, int] = {}
        """How often what was due was refused, by the topic's id; since the start."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._stopping = False
        self._parting: set[asyncio.Task[None]] = set()

    # --- start and end --------------------------------------------------------------------------

    async def begin(self) -> None:
        """Look at every topic for what there is to come, in slices."""
        until_us = self.runtime.clock.monotonic_us() + limits.SLICE_US
        with self.committer.begin() as tx:
            for topic in _all(tx):
                at_us = next_us(tx, topic)
                if at_us is not None:
                    self.expects(topic, at_us)
                if self.runtime.clock.monotonic_us() >= until_us:
                    tx.pause()
                    await asyncio.sleep(0)
                    until_us = self.runtime.clock.monotonic_us() + limits.SLICE_US

    def drain(self) -> None:
        """Whoever waits is answered with what there is, and nobody waits from here on."""
        self.waits.drain()

    async def stop(self) -> None:
        """Stop every actor."""
        self._stopping = True
        self.drain()
        self._disarm()
        for place in list(self.places.values()):
            await stop(place.ref)
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
        self._arm()

    def _apart_us(self) -> int:
        return min(max(APART_US, APART_EACH_US * len(self._due)), APART_MOST_US)

    def expected_us(self, topic: int) -> int | None:
        """When the topic of that id will be looked after: log time; None: there is no need."""
        due = self._due.get(topic)
        return due[0] if due is not None else None

    def look(self) -> None:
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
        self.refusals[topic.id] = self.refusals.get(topic.id, 0) + 1

    def worked(self, topic: Topic, next_us: int | None, began_us: int, *, awaited: bool) -> None:
        """A topic's actor has done what there was to do.

        :param next_us: when there will be something; None: not as far as one can see
        :param began_us: when it began
        :param awaited: whether somebody waits for that
        """
        self.working.discard(topic.id)
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

    def begin_again(self, topic: Topic) -> None:
        """An actor takes the place of one that failed, and left what it had to do."""
        self.expects(topic, self.committer.ledger.log_time() + PAUSE_US)

    def _part(self, topic: int) -> None:
        place = self.places.pop(topic, None)
        if place is None or self._stopping:
            return
        parting = asyncio.ensure_future(stop(place.ref), loop=self.runtime.loop)
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
        self.working.add(topic.id)
        place = self.places.get(topic.id)
        if place is None:
            replaces = chain((False,), repeat(True))
            place = self.places[topic.id] = Supervised(
                lambda: TopicActor.start(self.runtime, self, topic, next(replaces)),
                refoldable=True,
            )
        tell(place.ref, Work())

    # --- what commits bring ---------------------------------------------------------------------

    def published(
        self, topic: Topic, last: int = limits.INT_MAX, *, over: bool | None = None
    ) -> None:
        """A commit has brought messages.

        :param last: up to that position, if it is known
        :param over: whether the topic holds more than it should; None: not known
        """
        self.waits.published(topic.id, last)
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

    def count_from_now(self, late: Sequence[HandedOut]) -> tuple[Promise, Callable[[], None]]:
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
            promise = self.committer.commit(tx, NODE, reason=DUE)

        def tell() -> None:
            for message, until in told:
                message["deadline"] = until

        return promise, tell

    # --- figures --------------------------------------------------------------------------------

    async def figures(self, caller: Caller) -> list[TopicFigures]:
        """What a caller may see of every topic, for /metrics. :raises Refusal: the disk is full"""
        committer = self.committer
        generation = committer.generation
        with committer.begin() as tx:
            found = [each async for each in self._figures(tx, caller)]
            saw = tx.saw
        await committer.released(Promise(saw, generation))
        return found

    async def _figures(self, tx: Transaction, caller: Caller) -> AsyncIterator[TopicFigures]:
        clock = self.runtime.clock
        until_us = clock.monotonic_us() + limits.SLICE_US
        for topic in self.rights.topics(tx, caller, FIGURES_NEED):
            if topic is not None:
                yield _figures(tx, topic, self.refusals.get(topic.id, 0))
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


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What /metrics shows of a group."""

    name: str
    lag: int
    in_flight: int
    redelivered: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What /metrics shows of a topic."""

    namespace: str
    database: str
    name: str
    messages: int
    last_position: int
    readers: tuple[tuple[str, int], ...]
    """Names and lags."""
    groups: tuple[GroupFigures, ...]
    refused: int
    """How often what was due on it was refused."""


def _figures(tx: Transaction, topic: Topic, refused: int) -> TopicFigures:
    messages = Messages(tx, topic)
    found = []
    for group in groups(tx, topic):
        figures = HandOuts(tx, group).figures()
        found.append(
            GroupFigures(
                group.name,
                figures["lag"],
                figures["in_flight"],
                figures["redelivered"],
                figures["dead_lettered"],
            )
        )
    return TopicFigures(
        topic.database.namespace.name,
        topic.database.name,
        topic.name,
        messages.count,
        messages.last,
        tuple((name, messages.lag(position)) for name, position in messages.readers()),
        tuple(found),
        refused,
    )


class TopicActor(LoopActor):
    """Does what time brings to one topic.

    :param replaces: whether there was one before it, which failed
    """

    def __init__(self, runtime: Runtime, owner: Topics, topic: Topic, replaces: bool) -> None:
        super().__init__(runtime)
        self._owner = owner
        self._committer = owner.committer
        self._topic = topic
        self._replaces = replaces
        self._working = False
        self._swept_to = b""
        """Before this place no id is remembered."""
        self._trims = limits.TRIM_MESSAGES
        """Messages that it removes in one commit; fewer once that was too large for one."""
        self._refused: dict[int, _Refused] = {}
        """What was refused last time, by the group's id; RETENTION, and ALL of it."""

    def on_start(self) -> None:
        """What an actor before this one has left is not lost."""
        if self._replaces:
            self._owner.begin_again(self._topic)

    @handles(Work)
    async def work(self, _message: Work) -> None:
        """Do all that is due, in slices, resting after each as long as it took."""
        if self._working:
            return
        self._working = True
        owner, ledger = self._owner, self._committer.ledger
        began_us = ledger.log_time()
        done = _Done(more=True)
        try:
            while done.more:
                done = await self._slice()
        except NotWritable:
            done.next_us = began_us + UNWRITABLE_US
        except Refusal as refusal:  # no room on the disk, or the node is on its way down
            done.next_us = self._pause(ALL, "all of it", refusal)
        else:
            self._refused.pop(ALL, None)
        finally:
            self._working = False
        owner.worked(self._topic, done.next_us, began_us, awaited=done.awaited)

    async def _slice(self) -> _Done:
        """Some of each kind of work, if it is due."""
        committer, now_us = self._committer, self._monotonic_us
        generation, began_us, worked_us = committer.generation, now_us(), 0
        done = _Done()
        self._try(RETENTION, "retention", done, self._retain)
        for group in self._groups(done):
            if now_us() - began_us >= limits.SLICE_US:
                worked_us += now_us() - began_us
                await asyncio.sleep(0)
                began_us = now_us()
            self._try(group.id, f"group {group.name}", done, partial(self._take_back, group))
        worked_us += now_us() - began_us
        if done.sequence:
            await committer.released(Promise(done.sequence, generation))
        self._swept_to = max(self._swept_to, done.swept_to)
        if done.wrote:
            await asyncio.sleep(worked_us / 1_000_000)
        return done

    def _try(self, part: int, name: str, done: _Done, work: Callable[[_Done], None]) -> None:
        """Do a part of the work, unless it was refused just now. Where it is refused, all else goes
        on. :raises NotWritable, Failed: no part of it would be taken"""
        refused = self._refused.get(part)
        if refused is not None and refused.until_us > self._committer.ledger.log_time():
            done.expects(refused.until_us)
            return
        try:
            work(done)
        except (NotWritable, Failed):
            raise
        except Refusal as refusal:
            done.expects(self._pause(part, name, refusal))
            if part == RETENTION and isinstance(refusal, TooLarge):
                self._trims = max(self._trims // 8, 1)
        else:
            self._refused.pop(part, None)

    def _pause(self, part: int, name: str, refusal: Refusal) -> int:
        """Note that a part of the work was refused; log time when it is to be tried again."""
        refused = self._refused.setdefault(part, _Refused())
        pause_us = min(PAUSE_US << min(refused.times, 16), PAUSE_MOST_US)
        refused.times += 1
        refused.until_us = self._committer.ledger.log_time() + pause_us
        self._owner.refused(self._topic)
        if not isinstance(refusal, OF_THE_NODE):
            log.warning(
                "what is due on a topic was refused",
                topic=self._topic.path,
                part=name,
                code=refusal.code,
                reason=refusal.message,
                times=refused.times,
                again_in_seconds=pause_us / SECOND_US,
            )
        return refused.until_us

    def _groups(self, done: _Done) -> list[Group]:
        """The topic's groups, and whether somebody waits for one of them."""
        with self._committer.begin() as tx:
            topic = self._present(tx)
            found = [] if topic is None else groups(tx, topic)
            done.awaited = any(self._owner.is_awaited(tx, group) for group in found)
        return found

    def _retain(self, done: _Done) -> None:
        """Remove messages that are too old or too much, and forget ids."""
        with self._committer.begin() as tx:
            topic = self._present(tx)
            if topic is None:
                return
            messages = Messages(tx, topic)
            trimmed, more = messages.trim_due(self._trims)
            forgotten, last = messages.sweep_ids(SWEPT_IDS, self._swept_to)
            due_us = (
                messages.next_trim_us(),
                messages.next_id_us(max(self._swept_to, last)),
            )
            done.end(self._committer, tx)
        done.trimmed, done.more = trimmed, more or forgotten == SWEPT_IDS
        done.swept_to = last
        for at_us in due_us:
            done.expects(at_us)

    def _take_back(self, group: Group, done: _Done) -> None:
        """Take back hand-outs of a group whose deadline has passed."""
        waited = self._owner.waits.is_taken_from(self._topic.id, group.id)
        with self._committer.begin() as tx:
            topic = self._present(tx)
            found = find_group(tx, topic, group.name) if topic is not None else None
            if found is None or found.id != group.id:
                return
            hand_outs = HandOuts(tx, found)
            hand_outs.lapse()
            due_us = hand_outs.next_due_us(ready=waited)
            done.end(self._committer, tx)
        done.expects(due_us)
        done.more = done.more or hand_outs.more
        if hand_outs.wakes or waited or done.trimmed:
            self._owner.may_take(found)
        if hand_outs.dead is not None:
            self._owner.published(hand_outs.dead)

    def _present(self, tx: Transaction) -> Topic | None:
        return present(tx, self._topic)


@dataclass(slots=True)
class _Refused:
    """Work that was refused."""

    times: int = 0
    """How often in a row."""
    until_us: int = 0
    """Log time before which it is not tried again."""


@dataclass(slots=True)
class _Done:
    """What a slice of a topic's actor has done."""

    more: bool = False
    trimmed: int = 0
    """Messages removed."""
    next_us: int | None = None
    """When there will be something to do, as far as one can see."""
    sequence: int = 0
    """Its last commit, or the last in flight that it saw: what it found to come is so only once
    that is released. 0: none."""
    wrote: bool = False
    """Whether it has made a commit."""
    swept_to: bytes = b""
    """The place of the last id that it has forgotten."""
    awaited: bool = False
    """Whether somebody waits for what is to come."""

    def end(self, committer: Committer, tx: Transaction) -> None:
        """End one of its transactions."""
        if tx.size:
            self.wrote = True
        promise = committer.commit(tx, NODE, reason=DUE)
        self.sequence = max(self.sequence, promise.sequence)

    def expects(self, at_us: int | None) -> None:
        """There will be something at that time."""
        if at_us is not None and (self.next_us is None or at_us < self.next_us):
            self.next_us = at_us


def present(tx: Transaction, topic: Topic) -> Topic | None:
    """A topic as it is declared now; None when it was dropped."""
    database = topic.database
    namespace = catalog.find_namespace(tx, database.namespace.name)
    within = catalog.find_database(tx, namespace, database.name) if namespace else None
    found = find_topic(tx, within, topic.name) if within is not None else None
    return found if found is not None and found.id == topic.id else None


def next_us(tx: Transaction, topic: Topic) -> int | None:
    """Log time when there will be something to do for a topic that nobody waits for; None: there
    is nothing to come."""
    done = _Done()
    messages = Messages(tx, topic)
    done.expects(messages.next_trim_us())
    done.expects(messages.next_id_us())
    for group in groups(tx, topic):
        done.expects(HandOuts(tx, group).next_due_us(ready=False))
    return done.next_us


def _all(tx: Transaction) -> Iterator[Topic]:
    for namespace in catalog.namespaces(tx):
        for database in catalog.databases(tx, namespace):
            yield from each_topic(tx, database)
