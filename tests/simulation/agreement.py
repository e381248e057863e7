"""Model of etcd for a cluster: the shared state that nodes agree on.

It counts revisions as etcd does: one number for every write, and also for the end of a lease. Each
node has its own client with a link to the model. The creator of a link draws the fate of each
request and answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeVar

from protocol.agreement import (
    AgreedState,
    Agreement,
    CompareAndSetResult,
    InSyncReplicas,
    LeaderEntry,
    LeaseLapsed,
    NotAnswered,
    ReleasedFrame,
    ReleaseReport,
)

GIVES_UP_SECONDS: Final = 5.0
T = TypeVar("T")


class Fate(Enum):
    """Fault that a request meets."""

    ANSWERED = auto()
    REFUSED = auto()
    """It was not sent."""
    LOST = auto()
    """It was sent, and lost before it was done."""
    UNHEARD = auto()
    """It was done, and its answer was lost."""
    LATE = auto()
    """It is done after its client has given up."""
    FAULTY = auto()
    """The client fails, by a bug of its own."""


def _answered() -> tuple[Fate, float]:
    return Fate.ANSWERED, 0.0


Link = Callable[[], tuple[Fate, float]]
"""Draws the fate of the next request, and its duration, seconds."""


@dataclass
class AgreementModel:
    cluster: str = "model"
    revision: int = 1
    lead: LeaderEntry | None = None
    insync: InSyncReplicas | None = None
    lineage: int = 0
    told: ReleaseReport | None = None
    known_faults: tuple[str, ...] = ()
    _lead_lease: int = 0
    _leases: dict[int, tuple[int, asyncio.TimerHandle]] = field(default_factory=dict)
    _granted: int = 0
    _newest: int = 1
    """Revision of the newest write that wakes watchers."""
    _written: asyncio.Event = field(default_factory=asyncio.Event)

    def door(self, link: Link = _answered) -> ModelAgreement:
        return ModelAgreement(self, link)

    @property
    def agreed(self) -> AgreedState:
        return AgreedState(
            self.cluster, self.revision, self.lead, self.insync, self.lineage, self.told
        )  # fmt: skip

    def grant(self, seconds: int) -> int:
        self._granted += 1
        self._begin(self._granted, seconds)
        return self._granted

    def renew(self, lease: int) -> int:
        seconds, timer = self._need(lease)
        timer.cancel()
        self._begin(lease, seconds)
        return seconds

    def end(self, lease: int) -> None:
        """End a lease, by expiry or revocation."""
        if lease in self._leases:
            self._leases.pop(lease)[1].cancel()
            if self.lead is not None and self._lead_lease == lease:
                self.lead = None
                self._write()

    def found(self, members: frozenset[str]) -> CompareAndSetResult:
        if self.insync is not None:
            return CompareAndSetResult(False, self.agreed)
        self.insync = InSyncReplicas(0, members, self._write())
        return CompareAndSetResult(True, self.agreed)

    def take_lead(self, node: str, lease: int, insync: int) -> CompareAndSetResult:
        if self.lead is not None or self._insync_revision != insync:
            return CompareAndSetResult(False, self.agreed)
        self._need(lease)
        self.lead, self._lead_lease = LeaderEntry(node, self._write()), lease
        return CompareAndSetResult(True, self.agreed)

    def change(self, epoch: int, insync: int, members: frozenset[str]) -> CompareAndSetResult:
        if self.lead is None or self.lead.epoch != epoch or self._insync_revision != insync:
            return CompareAndSetResult(False, self.agreed)
        self.insync = InSyncReplicas(epoch, members, self._write())
        return CompareAndSetResult(True, self.agreed)

    def begin_lineage(self, epoch: int, insync: int, node: str) -> CompareAndSetResult:
        answer = self.change(epoch, insync, frozenset({node}))
        if answer.done:
            self.lineage = epoch
        return CompareAndSetResult(answer.done, self.agreed)

    def report_released(self, epoch: int, released: ReleasedFrame) -> CompareAndSetResult:
        if self.lead is None or self.lead.epoch != epoch:
            return CompareAndSetResult(False, self.agreed)
        self.revision += 1
        self.told = ReleaseReport(released, self.revision)
        return CompareAndSetResult(True, self.agreed)

    def grow(self, by: int) -> AgreedState:
        self.revision += by - 1
        self._write()
        return self.agreed

    def set_back(self, kept: AgreedState, cluster: str | None = None) -> None:
        """Restore an older state, as from a backup: no node leads, and no lease is left.

        :param cluster: new id of the cluster; None: the same id
        """
        for _, timer in self._leases.values():
            timer.cancel()
        self._leases.clear()
        self.cluster, self.lead = cluster or self.cluster, None
        self.revision, self.insync, self.told = kept.revision, kept.insync, kept.told
        self.lineage = kept.lineage
        self._newest = kept.revision

    async def written_after(self, revision: int) -> None:
        """Wait for a write after a revision; published sequences (`report_released`) don't
        count."""
        while min(self._newest, self.revision) <= revision:
            await self._written.wait()

    @property
    def _insync_revision(self) -> int:
        return 0 if self.insync is None else self.insync.revision

    def _need(self, lease: int) -> tuple[int, asyncio.TimerHandle]:
        if lease not in self._leases:
            raise LeaseLapsed(f"lease {lease:x} has lapsed")
        return self._leases[lease]

    def _begin(self, lease: int, seconds: int) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self.end, lease, context=Context())
        self._leases[lease] = seconds, timer

    def _write(self) -> int:
        self.revision += 1
        self._newest = self.revision
        self._written.set()
        self._written = asyncio.Event()
        return self.revision


class ModelAgreement(Agreement):
    def __init__(self, model: AgreementModel, link: Link) -> None:
        self._model = model
        self._link = link

    async def read(self) -> AgreedState:
        return await self._ask(lambda: self._model.agreed)

    async def grant(self, seconds: int) -> int:
        return await self._ask(lambda: self._model.grant(seconds))

    async def renew(self, lease: int) -> int:
        return await self._ask(lambda: self._model.renew(lease))

    async def revoke(self, lease: int) -> None:
        await self._ask(lambda: self._model.end(lease))

    async def found(self, members: frozenset[str]) -> CompareAndSetResult:
        return await self._ask(lambda: self._model.found(members))

    async def take_lead(self, node: str, lease: int, insync: int) -> CompareAndSetResult:
        return await self._ask(lambda: self._model.take_lead(node, lease, insync))

    async def change(self, epoch: int, insync: int, members: frozenset[str]) -> CompareAndSetResult:
        return await self._ask(lambda: self._model.change(epoch, insync, members))

    async def begin_lineage(self, epoch: int, insync: int, node: str) -> CompareAndSetResult:
        return await self._ask(lambda: self._model.begin_lineage(epoch, insync, node))

    async def report_released(self, epoch: int, released: ReleasedFrame) -> CompareAndSetResult:
        return await self._ask(lambda: self._model.report_released(epoch, released))

    async def grow(self, by: int) -> AgreedState:
        return await self._ask(lambda: self._model.grow(by))

    async def changed(self, after: int, seconds: float) -> AgreedState:
        await _within(self._model.written_after(after), seconds)
        return await self.read()

    async def faults(self) -> tuple[str, ...]:
        return await self._ask(lambda: self._model.known_faults)

    async def close(self) -> None:
        pass

    async def _ask(self, work: Callable[[], T]) -> T:
        fate, seconds = self._link()
        if fate is Fate.FAULTY:
            raise RuntimeError("a fault of what coordinates")
        if fate is Fate.REFUSED:
            await asyncio.sleep(seconds / 2)
            raise NotAnswered("the link is cut", perhaps=False)
        # In transit a request belongs to no process: it arrives even if its client is paused.
        loop, way = asyncio.get_running_loop(), Context()
        answer: asyncio.Future[T] = loop.create_future()
        if fate is Fate.LATE:
            loop.call_later(GIVES_UP_SECONDS + seconds, _unheard, work, context=way)
        elif fate is Fate.UNHEARD:
            loop.call_later(seconds / 2, _unheard, work, context=way)
        elif fate is Fate.ANSWERED:
            loop.call_later(seconds / 2, _answer, work, answer, seconds / 2, context=way)
        try:
            async with asyncio.timeout(GIVES_UP_SECONDS):
                return await answer
        except TimeoutError:
            raise NotAnswered("there was no answer", perhaps=True) from None


def _answer(work: Callable[[], T], answer: asyncio.Future[T], seconds: float) -> None:
    """Do the request and send its answer."""
    loop = asyncio.get_running_loop()
    try:
        told = work()
    except LeaseLapsed as lapsed:
        loop.call_later(seconds, _lapsed, answer, lapsed, context=Context())
    else:
        loop.call_later(seconds, _told, answer, told, context=Context())


def _told(answer: asyncio.Future[T], told: T) -> None:
    if not answer.done():
        answer.set_result(told)


def _lapsed(answer: asyncio.Future[T], lapsed: LeaseLapsed) -> None:
    if not answer.done():
        answer.set_exception(lapsed)


def _unheard(work: Callable[[], object]) -> None:
    with suppress(LeaseLapsed):
        work()


async def _within(waited_for: Awaitable[None], seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waited_for
