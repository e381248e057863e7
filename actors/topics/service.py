"""Topics of the node, beyond the stored ones: effects of commits, waiting consumers, due work.

`TopicWaits` has the waiting scripts, `TopicSchedules` the times of due work, and a `TopicActor`
does that of one topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pykka import ActorRef

from actors.commits.committer import NODE, Committer
from actors.rights import Rights
from actors.roles import Roles
from actors.runtime import Runtime, Slices
from actors.topics.due import DUE, TopicActor, due_times, present
from actors.topics.metrics import Scrape, TopicFigures
from actors.topics.schedules import TopicSchedule, TopicSchedules
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
from storage.topics.topics import Topic, each_topic
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction
from storage.txn.write_set import WriteSet

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
        self._leads_ended = 0
        """Times that the lead was lost."""
        self._stopping = False
        self.schedules = TopicSchedules(runtime, committer, self._start_actor)
        committer.on_lead_lost.append(self.drop_schedules)

    # --- start and end ----------------------------------------------------------------------------

    async def start_leading(self) -> None:
        """Schedule every topic's due work, in slices. This node leads."""
        # Before the first pause: commits during the scan schedule their own work.
        self.schedules.leads, leads_ended = True, self._leads_ended
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
                            self.schedules.expects(topic, at_us)
                        yield
                except EngineUnreadable:
                    self.schedules.expects(topic, self.committer.ledger.log_time())

    def drop_schedules(self) -> None:
        """Drop all schedules: another node leads and does due work. `start_leading` makes them
        again."""
        if self._stopping:
            return  # `stop` ends the actors
        self._leads_ended += 1
        self.schedules.drop()
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
        await self.schedules.stop()

    def _start_actor(self, schedule: TopicSchedule, replaces: bool) -> ActorRef[TopicActor]:
        return TopicActor.start(
            self.runtime, self.committer, self.schedules, self.waits, schedule, replaces
        )

    # --- declarations, roles ----------------------------------------------------------------------

    def declarations_changed(self) -> None:
        """Wake all waits: topics, readers or groups were dropped."""
        self.waits.look_again()

    def roles_changed(self) -> None:
        """Wake all waits and run due work: the node accepts writes again, or no longer; or it
        drains."""
        if not self.roles.words:
            self.waits.end()
        self.waits.look_again()
        self.schedules.expect_all()

    # --- effects of commits -----------------------------------------------------------------------

    def _listen(self, hear: OnPendingCommit | None) -> None:
        self._further_callback = hear
        self.committer.ledger.heard = self._on_pending_commit if self.schedules.leads else hear

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
        if lost is None:
            self.schedules.forget(ranges)

    def published(self, topic: Topic, *, over: bool | None = None) -> None:
        """Take note of a commit with new messages.

        :param over: True if the topic exceeds its size limit; None: not known
        """
        self.waits.published(topic.id)
        self.schedules.published(topic, over=over)

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
                self.schedules.expects(group.topic, tx.now_us + group.deadline_us)
            tx.ignores_locks = (
                True  # past priority locks: a deadline not restarted now expires unseen
            )
            ticket = self.committer.commit(tx, NODE, reason=DUE)

        def tell() -> None:
            for message, until in told:
                message["deadline"] = until

        return ticket, tell

    # --- figures ----------------------------------------------------------------------------------

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
            found = Scrape(tx, self.schedules.refusals, tick).figures(every)
        return found, tx.ticket


@dataclass(frozen=True, slots=True)
class DeliveredMessages:
    """Messages that an answer delivers."""

    group: Group
    messages: list[dict[str, Any]]
    """Messages as they appear in the answer."""
