"""Due work of one topic: expiry of ack deadlines, message retention, deduplication ids.

One actor does it in slices, each a commit of its own. Refused work is logged, counted and retried
after growing pauses; a refusal for one group does not hold up another. The actor holds nothing that
the store does not have too: a failed actor is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from actors.commits.committer import NODE, Committer
from actors.execution.blocking import CallbackWait
from actors.runtime import REST_SECONDS, LoopActor, Runtime, handles
from actors.topics.schedules import (
    PAUSE_US,
    SECOND_US,
    StartDueWork,
    TopicSchedule,
    TopicSchedules,
)
from actors.topics.waiting import TopicWaits
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
from protocol.values import unpaced
from storage.catalog import places
from storage.engine.engine import EngineUnreadable
from storage.topics.deliveries import expiry
from storage.topics.deliveries.index import DeliveryIndex
from storage.topics.groups import Group, each, find_group, groups
from storage.topics.messages import TopicMessages
from storage.topics.topics import Topic, find_topic
from storage.txn.tickets import NO_COMMIT, CommitTicket
from storage.txn.transaction import Transaction

log = structlog.get_logger("topics")

PAUSE_MOST_US: Final = 32 * SECOND_US
"""Longest pause before refused work is retried (µs): it doubles each time up to this."""
UNWRITABLE_US: Final = 60 * SECOND_US
"""Interval at which a node that takes no writes checks again."""
UNREADABLE_US: Final = int(REST_SECONDS * SECOND_US)
"""Pause before work is retried that met an unreadable part of the state."""
SWEPT_IDS: Final = 256
"""Deduplication ids forgotten in one commit."""
DUE: Final = "due"
"""Reason of commits that the node makes by itself because of time."""
ALL: Final = -1
RETENTION: Final = 0
"""Parts of an actor's work that belong to no group."""
OF_THE_NODE: Final = (DiskFull, Failed, UnknownOutcome)
"""Refusals that say nothing about a topic; their cause is logged already."""


class TopicActor(LoopActor):
    """Does the due work of one topic.

    :param replaces: True if it replaces an actor that failed
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        schedules: TopicSchedules,
        waits: TopicWaits,
        schedule: TopicSchedule,
        replaces: bool,
    ) -> None:
        super().__init__(runtime)
        self._committer = committer
        self._schedules = schedules
        self._waits = waits
        self._schedule = schedule
        self._topic = schedule.topic
        self._replaces = replaces
        self._working = False
        self._told_us: int | None = None
        """Log time of a `StartDueWork` message that the slice at hand may have missed."""
        self._swept_to = b""
        """Every deduplication id before this place is forgotten."""
        self._trims = limits.TRIM_MESSAGES
        """Messages removed in one commit; reduced after a commit was too large."""
        self._refused: dict[int, _RefusedWork] = {}
        """Work refused last time, by the group's id, RETENTION or ALL."""

    def on_start(self) -> None:
        """Resume the work that a failed predecessor has left."""
        if self._replaces:
            self._schedules.reschedule_work(self._schedule)

    @handles(StartDueWork)
    async def work(self, _message: StartDueWork) -> None:
        """Do all due work in slices; after each, pause as long as it took."""
        self._schedule.on_the_way = False
        if self._working:
            # No second run beside this one: it looks at the noted time in the end.
            self._told_us = self._committer.ledger.log_time()
            return
        self._working = True
        ledger = self._committer.ledger
        began_us = ledger.log_time()
        done = _Done(more=True)
        try:
            while done.more:
                # Before the slice: a message that comes during its awaits is kept.
                self._told_us = None
                done = await self._slice()
            # A message during the slice may concern parts it had done before: run again.
            done.expects(self._told_us)
        except NotWritable:
            done.next_us = began_us + UNWRITABLE_US
        except (NotEnoughReplicas, Draining):  # reported by the node's log and INFO FOR NODE
            done.next_us = began_us + PAUSE_US
        except Refusal as refusal:  # no room on the disk, or the node is on its way down
            done.next_us = self._refuse(ALL, "all of it", refusal)
        except EngineUnreadable as error:
            done.next_us = self._leave(ALL, error)
        else:
            self._refused.pop(ALL, None)
        finally:
            self._working = False
        self._schedules.worked(self._schedule, done.next_us, began_us, awaited=done.awaited)

    async def _slice(self) -> _Done:
        """Do some of each kind of work, if it is due."""
        committer, now_us = self._committer, self._monotonic_us
        began_us, worked_us = now_us(), 0
        done = _Done()
        self._try(RETENTION, "retention", done, self._retain)
        for group in self._groups(done):
            # No transaction is open between groups, so the loop may run others here.
            if now_us() - began_us >= limits.SLICE_US:
                worked_us += now_us() - began_us
                await asyncio.sleep(0)
                began_us = now_us()
            self._try(
                group.id, f"group {group.name}", done, partial(self._expire_deliveries, group)
            )
        worked_us += now_us() - began_us
        # A commit that was rolled back raises here, and the work is tried again.
        await committer.released(done.ticket)
        # After the release: ids of a commit that is rolled back are to be forgotten again.
        self._swept_to = max(self._swept_to, done.swept_to)
        if done.wrote:
            # A rest as long as the work: half of the loop at most.
            await asyncio.sleep(worked_us / 1_000_000)
        return done

    def _try(self, part: int, name: str, done: _Done, work: Callable[[_Done], None]) -> None:
        """Do a part of the work, unless it was refused just now. A refusal of it holds up no other
        part.

        :raises NotWritable, NotEnoughReplicas, Draining, Failed: no part would be accepted
        """
        refused = self._refused.get(part)
        if refused is not None and refused.until_us > self._committer.ledger.log_time():
            done.expects(refused.until_us)
            return
        try:
            work(done)
        except (NotWritable, NotEnoughReplicas, Draining, Failed):
            # Refusals of the node, not of this part.
            raise
        except Conflict:
            # Blocked by another transaction's priority lock: no refusal, retried when that goes.
            self._committer.priority_locks.block(CallbackWait(self._on_lock_released))
        except Refusal as refusal:
            done.expects(self._refuse(part, name, refusal))
            if part == RETENTION and isinstance(refusal, TooLarge):
                # Large messages fill a commit early: fewer at a time, and never none.
                self._trims = max(self._trims // 8, 1)
        except EngineUnreadable as error:
            done.expects(self._leave(part, error))
        else:
            self._refused.pop(part, None)

    def _on_lock_released(self, _lost: BaseException | None) -> None:
        at_us = self._committer.ledger.log_time()
        self._schedules.expects_for(self._schedule, at_us, exact=True)

    def _leave(self, part: int, error: EngineUnreadable) -> int:
        """Report that a part of the work met unreadable state. Return log time of the retry."""
        self.runtime.report_error(type(self).__name__, error)
        return self._pause(part, UNREADABLE_US).until_us

    def _pause(self, part: int, pause_us: int) -> _RefusedWork:
        """Note that a part of the work could not be done, and when it is retried."""
        refused = self._refused.setdefault(part, _RefusedWork())
        refused.times += 1
        refused.until_us = self._committer.ledger.log_time() + pause_us
        self._schedules.refused(self._schedule)
        return refused

    def _refuse(self, part: int, name: str, refusal: Refusal) -> int:
        """Note that a part of the work was refused. Return log time of the retry."""
        before = self._refused.get(part)
        # The shift is bounded: an unbounded one would grow with every refusal.
        pause_us = min(PAUSE_US << min(before.times if before else 0, 16), PAUSE_MOST_US)
        refused = self._pause(part, pause_us)
        if not isinstance(refusal, OF_THE_NODE):
            log.warning(
                "due work of a topic was refused",
                topic=self._topic.path,
                part=name,
                code=refusal.code,
                reason=refusal.message,
                times=refused.times,
                again_in_seconds=pause_us / SECOND_US,
            )
        return refused.until_us

    def _groups(self, done: _Done) -> list[Group]:
        """Return the topic's groups, and note if any consumer waits for one of them."""
        with self._committer.begin_transaction() as tx:
            topic = self._present(tx)
            found = [] if topic is None else groups(tx, topic)
            done.awaited = any(self._waits.is_expiry_awaited(tx, group) for group in found)
            done.rest_on(self._committer, tx.ticket)
        return found

    def _retain(self, done: _Done) -> None:
        """Remove messages beyond the limits of age and size, and forget deduplication ids."""
        with self._committer.begin_transaction() as tx:
            topic = self._present(tx)
            if topic is None:
                done.rest_on(self._committer, tx.ticket)
                return
            messages = TopicMessages(tx, topic)
            trimmed, more = messages.trim_due(self._trims)
            forgotten, last = messages.sweep_ids(SWEPT_IDS, self._swept_to)
            due_us = (
                # Read before the commit, through the changes of this transaction.
                messages.next_trim_us(),
                messages.next_id_us(max(self._swept_to, last)),
            )
            done.end(self._committer, tx)
        if trimmed:
            self._waits.trimmed(self._topic.id)
        # A full share of ids: more may be left.
        done.more = more or forgotten == SWEPT_IDS
        done.swept_to = last
        for at_us in due_us:
            done.expects(at_us)

    def _expire_deliveries(self, group: Group, done: _Done) -> None:
        """Expire deliveries of a group whose ack deadline has passed."""
        waited = self._waits.is_taken_from(self._topic.id, group.id)
        with self._committer.begin_transaction() as tx:
            topic = self._present(tx)
            found = find_group(tx, topic, group.name) if topic is not None else None
            # A group declared again under this name has deliveries of its own.
            if found is None or found.id != group.id:
                done.rest_on(self._committer, tx.ticket)
                return
            index = DeliveryIndex(tx, found)
            expiry.expire(index)
            due_us = index.next_due_us(ready=waited)
            done.end(self._committer, tx)
        done.expects(due_us)
        done.more = done.more or index.more
        # A message may be ready by time alone, without a change: a taker in line looks.
        if index.wakes or waited:
            self._waits.may_take(found.topic.id, found.id)
        if index.dead is not None:
            self._waits.published(index.dead.id)
            self._schedules.published(index.dead)

    def _present(self, tx: Transaction) -> Topic | None:
        return present(tx, self._topic)


@dataclass(slots=True)
class _RefusedWork:
    """Record of a refused part of the work."""

    times: int = 0
    """Refusals in a row."""
    until_us: int = 0
    """Log time before which it is not tried again."""


@dataclass(slots=True)
class _Done:
    """Result of a slice of a topic's actor."""

    more: bool = False
    next_us: int | None = None
    """Log time of the next work, as far as is known."""
    ticket: CommitTicket = NO_COMMIT
    """Its last commit, or the last pending one that it saw: its findings are valid only once that
    is released."""
    wrote: bool = False
    """True if it has made a commit."""
    swept_to: bytes = b""
    """Place of the last deduplication id that it has forgotten."""
    awaited: bool = False
    """True if a consumer waits for the next work."""

    def end(self, committer: Committer, tx: Transaction) -> None:
        """Commit one of its transactions."""
        if tx.size:
            self.wrote = True
        self.rest_on(committer, committer.commit(tx, NODE, reason=DUE))

    def rest_on(self, committer: Committer, ticket: CommitTicket) -> None:
        """Add a ticket that the findings rest on. They are valid, "nothing left" above all, only
        once all that was read is released: a pending drop may be rolled back."""
        if not committer.was_rolled_back(self.ticket):  # else all of the slice is refused
            self.ticket = committer.merge(self.ticket, ticket)

    def expects(self, at_us: int | None) -> None:
        """Note that there will be work at that log time."""
        if at_us is not None and (self.next_us is None or at_us < self.next_us):
            self.next_us = at_us


def present(tx: Transaction, topic: Topic) -> Topic | None:
    """Return a topic as it is declared now; None: it was dropped."""
    database = topic.database
    namespace = places.find_namespace(tx, database.namespace.name)
    within = places.find_database(tx, namespace, database.name) if namespace else None
    found = find_topic(tx, within, topic.name) if within is not None else None
    return found if found is not None and found.id == topic.id else None


def due_times(tx: Transaction, topic: Topic) -> Iterator[int | None]:
    """Yield the log times of the next work of a topic without waiting consumers: of its messages,
    of each of its groups, which may be many. None: there is none."""
    messages = TopicMessages(tx, topic)
    yield messages.next_trim_us()
    yield messages.next_id_us()
    for group in each(tx, topic, unpaced):
        yield DeliveryIndex(tx, group).next_due_us(ready=False)
