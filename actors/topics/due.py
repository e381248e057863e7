"""What time brings to one topic: hand-outs are taken back, messages and ids go. Done by one actor,
in slices, each a commit of its own.

What is refused is logged, counted and tried again after growing pauses, a group's work without
holding up that of another. Nothing is kept here but what the store says too: a failed actor is
replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from actors.commits import NODE, Committer
from actors.runtime import REST_SECONDS, LoopActor, Runtime, Supervised, handles
from protocol import limits
from protocol.errors import (
    Conflict,
    DiskFull,
    Draining,
    Failed,
    NotEnoughReplicas,
    NotWritable,
    Refusal,
    TooLarge,
    UnknownOutcome,
)
from protocol.requests import Request
from protocol.values import unpaced
from storage import catalog
from storage.engine import EngineUnreadable
from storage.groups import Group, each, find_group, groups
from storage.hand_outs import HandOuts
from storage.messages import Messages
from storage.tickets import NO_COMMIT, CommitTicket
from storage.topics import Topic, find_topic
from storage.transactions import Transaction

if TYPE_CHECKING:
    from actors.topics.service import Topics

log = structlog.get_logger("topics")

SECOND_US: Final = 1_000_000
PAUSE_US: Final = SECOND_US
"""When work that was refused is tried again. The pause doubles each time, …"""
PAUSE_MOST_US: Final = 32 * SECOND_US
"""… up to this."""
UNWRITABLE_US: Final = 60 * SECOND_US
"""When a node that takes no writes looks again whether it does."""
UNREADABLE_US: Final = int(REST_SECONDS * SECOND_US)
"""When work is tried again for which a part of the state could not be read."""
SWEPT_IDS: Final = 256
"""Ids forgotten in one commit."""
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


@dataclass(eq=False, slots=True)
class TopicSchedule:
    """What is to come for one topic, and the actor that does it."""

    topic: Topic
    due_us: int | None = None
    """When the topic will be looked after: log time; None: there is no need."""
    place: Supervised[TopicActor] | None = None
    """The actor's, while it has something to do or lately had."""
    working: bool = False
    """True if the actor has work and has not reported its end."""
    on_the_way: bool = False
    """True if it was told of more work and has not heard it yet."""
    gone: bool = False
    """True if the topic was dropped while the actor worked."""
    void: bool = False
    """True once the topic was dropped, or this node led no more: what the actor reports is void."""


class TopicActor(LoopActor):
    """Does what time brings to one topic.

    :param replaces: whether there was one before it, which failed
    """

    def __init__(
        self, runtime: Runtime, owner: Topics, schedule: TopicSchedule, replaces: bool
    ) -> None:
        super().__init__(runtime)
        self._owner = owner
        self._committer = owner.committer
        self._schedule = schedule
        self._topic = schedule.topic
        self._replaces = replaces
        self._working = False
        self._told_us: int | None = None
        """When it was given work that the slice at hand may have missed: log time."""
        self._swept_to = b""
        """Before this place no id is remembered."""
        self._trims = limits.TRIM_MESSAGES
        """Messages that it removes in one commit; fewer once that was too large for one."""
        self._refused: dict[int, _Refused] = {}
        """What was refused last time, by the group's id; RETENTION, and ALL of it."""

    def on_start(self) -> None:
        """What an actor before this one has left is not lost."""
        if self._replaces:
            self._owner.begin_again(self._schedule)

    @handles(Work)
    async def work(self, _message: Work) -> None:
        """Do all that is due, in slices, resting after each as long as it took."""
        self._schedule.on_the_way = False
        if self._working:
            self._told_us = self._committer.ledger.log_time()
            return
        self._working = True
        owner, ledger = self._owner, self._committer.ledger
        began_us = ledger.log_time()
        done = _Done(more=True)
        try:
            while done.more:
                self._told_us = None
                done = await self._slice()
            # What this slice had looked at before is looked at again, as soon as any work may be.
            done.expects(self._told_us)
        except NotWritable:
            done.next_us = began_us + UNWRITABLE_US
        except (NotEnoughReplicas, Draining):  # which the node's log and INFO FOR NODE say
            done.next_us = began_us + PAUSE_US
        except Refusal as refusal:  # no room on the disk, or the node is on its way down
            done.next_us = self._refuse(ALL, "all of it", refusal)
        except EngineUnreadable as error:
            done.next_us = self._leave(ALL, error)
        else:
            self._refused.pop(ALL, None)
        finally:
            self._working = False
        owner.worked(self._schedule, done.next_us, began_us, awaited=done.awaited)

    async def _slice(self) -> _Done:
        """Some of each kind of work, if it is due."""
        committer, now_us = self._committer, self._monotonic_us
        began_us, worked_us = now_us(), 0
        done = _Done()
        self._try(RETENTION, "retention", done, self._retain)
        for group in self._groups(done):
            if now_us() - began_us >= limits.SLICE_US:
                worked_us += now_us() - began_us
                await asyncio.sleep(0)
                began_us = now_us()
            self._try(group.id, f"group {group.name}", done, partial(self._take_back, group))
        worked_us += now_us() - began_us
        await committer.released(done.ticket)
        self._swept_to = max(self._swept_to, done.swept_to)
        if done.wrote:
            await asyncio.sleep(worked_us / 1_000_000)
        return done

    def _try(self, part: int, name: str, done: _Done, work: Callable[[_Done], None]) -> None:
        """Do a part of the work, unless it was refused just now. Where it is refused, all else goes
        on. :raises NotWritable, NotEnoughReplicas, Draining, Failed: no part of it would be
        taken"""
        refused = self._refused.get(part)
        if refused is not None and refused.until_us > self._committer.ledger.log_time():
            done.expects(refused.until_us)
            return
        try:
            work(done)
        except (NotWritable, NotEnoughReplicas, Draining, Failed):
            raise
        except Conflict:
            # Somebody's barrier stands in its way, which is no refusal: it comes when that goes.
            self._committer.barriers.tell_gone(self._barrier_gone)
        except Refusal as refusal:
            done.expects(self._refuse(part, name, refusal))
            if part == RETENTION and isinstance(refusal, TooLarge):
                self._trims = max(self._trims // 8, 1)
        except EngineUnreadable as error:
            done.expects(self._leave(part, error))
        else:
            self._refused.pop(part, None)

    def _barrier_gone(self) -> None:
        at_us = self._committer.ledger.log_time()
        self._owner.expects_for(self._schedule, at_us, exact=True)

    def _leave(self, part: int, error: EngineUnreadable) -> int:
        """What a part of the work needs can't be read; log time when it is to be tried again."""
        self.runtime.noticed(type(self).__name__, error)
        return self._pause(part, UNREADABLE_US).until_us

    def _pause(self, part: int, pause_us: int) -> _Refused:
        """Note that a part of the work could not be done."""
        refused = self._refused.setdefault(part, _Refused())
        refused.times += 1
        refused.until_us = self._committer.ledger.log_time() + pause_us
        self._owner.refused(self._schedule)
        return refused

    def _refuse(self, part: int, name: str, refusal: Refusal) -> int:
        """Note that a part of the work was refused; log time when it is to be tried again."""
        before = self._refused.get(part)
        pause_us = min(PAUSE_US << min(before.times if before else 0, 16), PAUSE_MOST_US)
        refused = self._pause(part, pause_us)
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
            done.rest_on(self._committer, tx.ticket)
        return found

    def _retain(self, done: _Done) -> None:
        """Remove messages that are too old or too much, and forget ids."""
        with self._committer.begin() as tx:
            topic = self._present(tx)
            if topic is None:
                done.rest_on(self._committer, tx.ticket)
                return
            messages = Messages(tx, topic)
            trimmed, more = messages.trim_due(self._trims)
            forgotten, last = messages.sweep_ids(SWEPT_IDS, self._swept_to)
            due_us = (
                messages.next_trim_us(),
                messages.next_id_us(max(self._swept_to, last)),
            )
            done.end(self._committer, tx)
        if trimmed:
            self._owner.trimmed(self._topic)
        done.more = more or forgotten == SWEPT_IDS
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
                done.rest_on(self._committer, tx.ticket)
                return
            hand_outs = HandOuts(tx, found)
            hand_outs.lapse()
            due_us = hand_outs.next_due_us(ready=waited)
            done.end(self._committer, tx)
        done.expects(due_us)
        done.more = done.more or hand_outs.more
        if hand_outs.wakes or waited:
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
    next_us: int | None = None
    """When there will be something to do, as far as one can see."""
    ticket: CommitTicket = NO_COMMIT
    """Its last commit, or the last in flight that it saw: what it found to come is so only once
    that is released."""
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
        self.rest_on(committer, committer.commit(tx, NODE, reason=DUE))

    def rest_on(self, committer: Committer, ticket: CommitTicket) -> None:
        """What one of its transactions has found, that there is nothing any more above all, is so
        only once all that it saw is released: a drop in flight may be taken back."""
        if not committer.was_taken_back(self.ticket):  # else all of the slice is refused
            self.ticket = committer.merge(self.ticket, ticket)

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


def due_times(tx: Transaction, topic: Topic) -> Iterator[int | None]:
    """Log times when there will be something to do for a topic that nobody waits for: for its
    messages and for each of its groups, of which there may be very many. None: nothing to come."""
    messages = Messages(tx, topic)
    yield messages.next_trim_us()
    yield messages.next_id_us()
    for group in each(tx, topic, unpaced):
        yield HandOuts(tx, group).next_due_us(ready=False)
