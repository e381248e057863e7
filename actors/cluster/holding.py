"""Holding the lead: the lease is renewed, sets are asked for, and it is heard when it is over.

Nothing here decides: what follows from what was answered is said by the leadership itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple

import structlog

from actors.cluster.courses import doubt
from actors.cluster.leadership import Leadership
from actors.cluster.lease import RENEWED_IN, Lease
from actors.cluster.member import NOT_COORDINATING, Member
from actors.cluster.tasks import end
from actors.commits import Committer, Stall
from protocol.agreement import Agreed, Agreement, LeaseLapsed, NotAnswered
from protocol.doors import Clock
from protocol.errors import DiskFull, Refusal, StatementTimeout
from storage.cluster_file import Cluster
from storage.tickets import CommitTicket

log = structlog.get_logger("cluster")

WATCH_SECONDS: Final = 10.0
"""How long a request waits for the agreement to change."""
PAUSE_SECONDS: Final = 1.0
"""How long is waited for an etcd that does not answer."""
WAITS_SECONDS: Final = 1.0
"""How often it is looked who has waited for too long."""
STALLS_SECONDS: Final = 0.25
"""How often it is looked whether anything is released."""
READS_SECONDS: Final = 3.0
"""Who only reads waits for so long, and BEHIND, for what is on its way while nothing is released:
where another has just taken the lead followers are there in a moment."""
DECLARED_SECONDS: Final = 0.25
"""How often it is looked whether this node is declared to lead still."""
AGAIN_PART: Final = 20
"""A renewal that was not answered is sent again after this part of the lease."""
TOLD_SECONDS: Final = 60.0
"""How often it is told what is released, while nothing is a reason to tell it sooner. Each time is
a revision of etcd, which keeps all of them unless it is told otherwise, and one that was emptied
has to come beyond as many before anybody leads."""


class _Known(NamedTuple):
    """The newest known state of the agreement."""

    memory: Cluster
    """The same, as the file of the node holds it."""
    insync: int
    """The revision of the set, which nobody else changes while this node leads."""


class Holding:
    """One lead, while it is held. On the loop only.

    :param agreement: the door, which another policy may have moved
    :param settled: called once the first frame of its epoch is released
    :param compare: compares the states of those who follow with this one's, after that
    """

    def __init__(
        self,
        clock: Clock,
        committer: Committer,
        member: Member,
        agreement: Callable[[], Agreement],
        leadership: Leadership,
        settled: Callable[[], Awaitable[None]],
        compare: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._clock = clock
        self._committer = committer
        self._member = member
        self._memory = member.memory
        self._agreement = agreement
        self._leadership = leadership
        self._settled = settled
        self._compare = compare
        self._seen = 0
        """The revision that was looked at last."""
        self._told_us = clock.boottime_us()
        """When it was told last what is released, by the clock that no suspension stops."""
        self._released, self._since_us = committer.released_upto, clock.monotonic_us()
        """What is released, and since when nothing more is that is on the disk here."""
        self._silent = False
        """Whether it was said that etcd does not answer."""

    async def until_over(self, own: CommitTicket) -> str:
        """Hold it; answers why it is over.

        :param own: of the first frame of its epoch
        """
        try:
            return await _first(
                self._renew(), self._ask_for_sets(), self._watch(), self._settle(own),
                self._declared(), self._end_waits(), self._look_for_stalls(),
            )  # fmt: skip
        finally:
            self._committer.stall = None

    async def _settle(self, own: CommitTicket) -> str:
        try:
            await self._committer.released(own)
        except Refusal as refusal:
            return refusal.message
        self._leadership.tells_soon.set()
        await self._settled()
        await self._compare()
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def _declared(self) -> str:
        """Rule 8: lead as long as this node is declared to. What it has committed is answered
        before it gives its lead up, the row among it that says so."""
        member, committer = self._member, self._committer
        while not self._leadership.gives_up or committer.released_upto < committer.committed:
            await asyncio.sleep(DECLARED_SECONDS)
            member.look_at_rows()
            self._leadership.gives_up = not member.coordinates
        return NOT_COORDINATING

    async def _end_waits(self) -> str:
        """Rule 1: what can't be released, since followers are lost or etcd is silent, stays on its
        way; who asked for it hears that its outcome is unknown."""
        committer, marks = self._committer, deque[tuple[int, int]]()
        committed = 0
        while True:
            await asyncio.sleep(WAITS_SECONDS)
            seconds = self._leadership.policy.release_seconds
            now_us = self._clock.monotonic_us()
            began_us = now_us - int(seconds * 1_000_000)
            marks.append((now_us, committer.committed))
            while marks[0][0] <= began_us:
                committed = marks.popleft()[1]
            if committed > committer.released_upto:
                why = f"those who have to hold it did not say in {seconds:.0f} s that they do"
                committer.end_waits(committed, began_us, StatementTimeout(why))

    async def _look_for_stalls(self) -> str:
        """Where nothing is released for want of followers or of etcd, say so: nobody who only reads
        has to wait for what is on its way."""
        committer, leadership = self._committer, self._leadership
        while True:
            await asyncio.sleep(STALLS_SECONDS)
            before = leadership.stalled
            found = leadership.look_for_stall(
                self._member.nodes, self._member.name_of, is_late=self._is_late()
            )
            if found is not None:
                committer.stall = Stall(shows_all=leadership.is_settled)
                waits_us = leadership.policy.behind_us + int(READS_SECONDS * 1_000_000)
                committer.end_reads(self._clock.monotonic_us() - waits_us, found.refusal())
                if before is None:
                    log.warning("releases nothing", waits_for=found.why)
            elif before is not None:
                committer.stall = None
                log.info("releases again")

    def _is_late(self) -> bool:
        """Whether something has been on the disk here for longer than it takes to go on without who
        has fallen silent."""
        committer, now_us = self._committer, self._clock.monotonic_us()
        released = committer.released_upto
        lacks_none = committer.durable_upto <= released
        if released != self._released or lacks_none or self._leadership.is_stuck:
            self._released, self._since_us = released, now_us
        behind_us = self._leadership.policy.behind_us
        return now_us - self._since_us > 2 * behind_us + int(WAITS_SECONDS * 1_000_000)

    def _unanswered(self, what: str, why: str) -> None:
        """Into the log, once for each silence."""
        if not self._silent:
            self._silent = True
            log.warning(what, why=why)

    async def _renew(self) -> str:
        """Rule 4: a third of the lease, by the clock that no suspension stops, and the deadline
        counts from when the request was sent. Rule 9: what is released is told with it."""
        soon = self._leadership.tells_soon
        while True:
            lease = self._leadership.lease
            wait_us = lease.renew_us - self._clock.boottime_us()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait_us, 0) / 1_000_000):
                    await soon.wait()
            at_once = soon.is_set()
            soon.clear()
            known = self._known
            sent_us = self._clock.boottime_us()
            try:
                async with asyncio.timeout(lease.seconds / RENEWED_IN):
                    if lease.is_over(sent_us):
                        # An etcd that hears and is not heard would keep the lease, and everybody
                        # else from the lead, for a node that takes nothing by it.
                        await self._agreement().look()
                        sent_us = self._clock.boottime_us()
                    agreed = await self._renewed(lease, at_once)
            except LeaseLapsed:
                return "its lease has lapsed"
            except (NotAnswered, TimeoutError) as silence:
                self._unanswered(
                    "the lease was not renewed", str(silence) or "etcd does not answer"
                )
                await asyncio.sleep(lease.seconds / AGAIN_PART)
                if at_once:
                    soon.set()
            else:
                why = await self._why_over(known, agreed)
                if why is not None:
                    return why
                self._leadership.lease, self._silent = lease.renewed(sent_us), False
                self._leadership.heard_told(agreed)

    async def _renewed(self, lease: Lease, at_once: bool) -> Agreed:
        """Renew a lease, and what is agreed meanwhile: a leader of etcd that is cut off answers a
        renewal by itself. So a majority is asked too, and only what it says shows that the lease is
        worth something. Both at once: an etcd whose disk is slow has the time for each."""
        renewing = asyncio.ensure_future(self._agreement().renew(lease.id))
        telling = asyncio.ensure_future(self._tell(at_once))
        try:
            await asyncio.gather(renewing, telling)  # which hears the fault of either, and of both
            return telling.result()
        finally:
            await end(renewing, telling)

    async def _tell(self, at_once: bool) -> Agreed:
        """What is agreed. Where it is time to, what is released is told with the same request."""
        released = self._leadership.untold(self._committer.history())
        now_us = self._clock.boottime_us()
        is_due = at_once or now_us - self._told_us >= TOLD_SECONDS * 1_000_000
        if released is None or not is_due:
            return await self._agreement().look()
        answer = await self._agreement().tell(self._leadership.epoch, released)
        self._told_us = now_us
        return answer.agreed

    async def _ask_for_sets(self) -> str:
        """Rule 2: whoever is silent is out of the set in etcd before anything is released without
        it, and whoever holds everything comes in."""
        while True:
            look_s = self._leadership.policy.behind_us / 4_000_000  # it may have been amended
            asked = self._leadership.asks(self._member.nodes)
            if asked is None:
                self._leadership.news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(look_s):
                        await self._leadership.news.wait()
                continue
            revision, members = asked
            known = self._known
            try:
                answer = await self._agreement().change(self._leadership.epoch, revision, members)
            except NotAnswered as silence:
                # It stays under way: reading the set would end nothing, for it may still arrive.
                self._unanswered("a change of the set was not answered", str(silence))
                await asyncio.sleep(look_s)
                continue
            why = await self._why_over(known, answer.agreed)
            if why is not None:
                return why
            if not self._leadership.answered(answer):
                return "another node leads"
            insync = self._leadership.leading.insync
            log.info("in sync", members=sorted(insync.members), done=answer.done)
            with suppress(DiskFull):  # it is remembered with the next that is
                await self._memory.hears(answer.agreed)

    async def _watch(self) -> str:
        """Hear of it when somebody else leads."""
        while True:
            known = self._known
            try:
                agreed = await self._agreement().changed(self._seen, WATCH_SECONDS)
            except NotAnswered:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._seen = agreed.revision
            why = await self._why_over(known, agreed)
            if why is not None:
                return why

    # --- what etcd answers ------------------------------------------------------------------------

    @property
    def _known(self) -> _Known:
        """To be taken before a question: its answer may be overtaken by one to another."""
        return _Known(self._memory.now, self._leadership.leading.insync.revision)

    async def _why_over(self, known: _Known, agreed: Agreed) -> str | None:
        """Judge an answer of etcd, whatever was asked; None: this node leads on.

        :param known: taken before that was asked
        """
        why = doubt(known.memory, agreed)
        if why is not None:
            return why
        if agreed.lead is None:
            return "its lease has lapsed"
        if agreed.lead.epoch != self._leadership.epoch:
            return "another node leads"
        insync = agreed.insync
        if insync is None or insync.revision < known.insync:
            # Its revision has grown past what was heard since it was set back.
            with suppress(DiskFull):
                await self._memory.doubts()
            return f"the agreement was set back: its set is one of before revision {known.insync}"
        self._memory.sees(agreed)
        return None


async def _first(*ways: Coroutine[Any, Any, str]) -> str:
    """What the first of some answers; the others are ended."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task in done)
    finally:
        await end(*tasks)
