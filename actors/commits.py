"""Commits on their way: taken from transactions, handed to the log, shown once they are durable.

`Committer` is what other actors on the loop use: `begin` a transaction, `commit` it without an
await, wait until its sequence is `durable`, then answer. The commits actor owns it and hears from
the log.

Invariants:

- No waiter is released before the log said that its sequence is on the disk.
- The engine holds no commit that the log does not hold durably.
- Once the log has failed nothing is committed and no waiter is released: each hears UnknownOutcome.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from pykka import ActorRef

from actors.batches import Batches
from actors.log import Append, Durable, LogFull, Mark
from actors.runtime import LoopActor, Runtime, handles, tell
from protocol.errors import DiskFull, Failed, Refusal, UnknownOutcome
from storage.effects import Attribution
from storage.frames import Frame
from storage.ledger import Ledger
from storage.transactions import Transaction

Told = Callable[[BaseException | None], None]
"""Hears why a commit did not become durable, or None when it did."""

IDLE_SECONDS: Final = 1.0
"""A log without a new commit for so long gets a mark."""


@dataclass(frozen=True, slots=True)
class SettleMore:
    """Said to the commits actor by itself: more is durable than went to the engine at once."""


class Committer:
    """Transactions for everybody on the loop. See the head of the file."""

    ledger: Ledger
    _commits: ActorRef[Any]
    _log: ActorRef[Any]

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.generation = 1
        """How often what was in flight had to be taken back, from 1. See `durable`."""
        self._withdrawn: list[tuple[int, int]] = []
        """First generation of a run of them, and what was durable at the end of each."""
        self._released = 0
        self._waiters: dict[int, list[Told]] = {}
        self._lost: BaseException | None = None
        self.on_withdraw: list[Callable[[], None]] = []
        """Called when what was in flight was taken back. Whoever has seen it and found that there
        was nothing to do may find something now."""
        self._settling = False
        self._batches = Batches(runtime, self._send)
        self._idle: asyncio.TimerHandle | None = None
        self.unflushed_bytes = 0
        """Log written since the state was last flushed."""

    def attach(self, ledger: Ledger, commits: ActorRef[Any], log: ActorRef[Any]) -> None:
        """Begin work on a ledger that has replayed the log."""
        self.ledger = ledger
        self._commits = commits
        self._log = log
        self._released = ledger.durable_upto

    @property
    def sequence(self) -> int:
        """The newest durable sequence: what probes and answers show."""
        return self._released

    @property
    def committed(self) -> int:
        """The newest sequence given out."""
        return self.ledger.committed

    def begin(self) -> Transaction:
        """A transaction on the state as it is now, commits in flight included."""
        return self.ledger.begin()

    def prepare(self, transaction: Transaction) -> Iterator[None]:
        """Encode what a large transaction changes, in steps; nothing more may be changed then."""
        return self.ledger.prepare(transaction)

    def commit(self, transaction: Transaction, attribution: Attribution) -> int:
        """Take a transaction's effects; never waits.

        Answers the sequence whose durability an answer must wait for: the transaction's own, the
        newest one in flight it saw when it changed nothing, or 0.

        :raises Conflict: somebody else committed to what it read
        :raises Failed: the log has failed
        """
        if self._lost is not None:
            raise Failed("the log has failed: the node takes nothing more")
        before = self.ledger.committed
        try:
            return self.ledger.commit(transaction, attribution)
        except Refusal:
            raise
        except BaseException as error:
            # Before its sequence was given out a bug costs one answer. After that the ledger holds
            # something that the log may never get.
            if self.ledger.committed != before:
                self.lose(error)
            raise

    def is_durable(self, sequence: int, generation: int) -> bool:
        """Whether there is nothing to wait for; see `durable`."""
        return sequence <= self._released and generation == self.generation

    def durable(self, sequence: int, generation: int) -> asyncio.Future[None]:
        """Done once all up to `sequence` is on the disk.

        :param generation: `generation` as it was before the first of the commits waited for. When
            the disk is full commits are taken back and their sequences given again: this tells
            the commit that was meant from another that got its number.
        :raises UnknownOutcome: the log failed first: it may be there after the next start, or not
        :raises DiskFull: there was no room; it will not be there
        """
        future: asyncio.Future[None] = self._runtime.loop.create_future()

        def told(lost: BaseException | None) -> None:
            if future.done():
                return
            if lost is None:
                future.set_result(None)
            else:
                future.set_exception(lost)

        self.tell_durable(sequence, generation, told)
        return future

    def tell_durable(self, sequence: int, generation: int, told: Told) -> None:
        """Call `told` once all up to `sequence` is on the disk, with what `durable` would raise,
        or None; at once when that is known. For answers by the thousand, which need no turn of the
        loop each: those of one batch are told in one.
        """
        if self.was_taken_back(sequence, generation):
            told(DiskFull("no room for the log: the commit was taken back"))
        elif sequence <= self._released:
            told(None)
        elif self._lost is not None:
            told(_unknown(sequence))
        else:
            self._waiters.setdefault(sequence, []).append(told)

    def was_taken_back(self, sequence: int, generation: int) -> bool:
        """Whether a full disk has undone a commit that was given this sequence in `generation`."""
        if generation == self.generation:
            return False
        at = bisect_right(self._withdrawn, generation, key=itemgetter(0)) - 1
        return sequence > self._withdrawn[at][1]

    # --- called by the ledger -----------------------------------------------------------------

    def hand_over(self, frame: Frame) -> None:
        """Give a commit to the log, with others of its time. :raises Busy: too many wait"""
        self._batches.add(frame)

    def _send(self, batch: list[Frame]) -> None:
        tell(self._log, Append(batch, self.generation))

    def hand_over_rest(self) -> None:
        """Give the log what is still being gathered: it is going to be closed."""
        self._batches.send_all()

    # --- called by the commits actor ----------------------------------------------------------

    def settle(self, upto: int, written_bytes: int) -> None:
        """All up to `upto` is on the disk: to the engine with it, and its waiters may answer."""
        if self._lost is not None:
            return
        self._batches.returned()
        self.ledger.mark_durable(upto)
        self._settle_part()
        self.unflushed_bytes += written_bytes
        before, self._released = self._released, upto
        self._look_at_flight()
        waiters = self._waiters
        for sequence in range(before + 1, upto + 1):
            for told in waiters.pop(sequence, ()):
                self._tell(told, None)

    def _settle_part(self) -> None:
        """Bring a part of what is durable to the engine; the rest after others had their turn."""
        if self.ledger.settle() and not self._settling:
            self._settling = True
            tell(self._commits, SettleMore())

    def settle_more(self) -> None:
        """The turn for the rest has come."""
        self._settling = False
        if self._lost is None:
            self._settle_part()

    def withdraw(self, generation: int, refusal: Refusal) -> None:
        """The disk is full: what is in flight never happened."""
        if generation != self.generation:
            return
        self.generation += 1
        if not self._withdrawn or self._withdrawn[-1][1] != self._released:
            self._withdrawn.append((generation, self._released))
        self.ledger.withdraw()
        self._batches.withdraw()
        self._fail_waiters(lambda _: refusal)
        self._look_at_flight()
        for look_again in self.on_withdraw:
            look_again()

    def lose(self, error: BaseException) -> None:
        """The log or the ledger has failed: nothing more is taken or answered."""
        if self._lost is None:
            self._lost = error
            self._batches.withdraw()
            self._fail_waiters(_unknown)
            self.close()

    def finish(self) -> None:
        """Bring all that is durable to the engine: the node stops. :raises EngineFailed:"""
        while self._lost is None and self.ledger.settle():
            pass
        self.close()

    def close(self) -> None:
        """Stop what runs by itself."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _fail_waiters(self, error: Any) -> None:
        waiters, self._waiters = self._waiters, {}
        for sequence, waiting in waiters.items():
            for told in waiting:
                self._tell(told, error(sequence))

    def _tell(self, told: Told, lost: BaseException | None) -> None:
        try:
            told(lost)
        except Exception as error:  # a bug of one waiter's is not the others'
            self._runtime.noticed(type(self).__name__, error)

    def _look_at_flight(self) -> None:
        if self._idle is None and self.ledger.committed == self._released:
            self._arm(self._released)

    def _arm(self, sequence: int) -> None:
        self._idle = self._runtime.loop.call_later(IDLE_SECONDS, self._mark_when_idle, sequence)

    def _mark_when_idle(self, seen: int) -> None:
        if self.ledger.committed == seen:
            self._idle = None
            tell(self._log, Mark())
        else:
            self._arm(self.ledger.committed)


def _unknown(sequence: int) -> UnknownOutcome:
    return UnknownOutcome(
        f"the log failed while commit {sequence} was on its way: it may have happened",
        sequence=sequence,
    )


class CommitsActor(LoopActor):
    """Hears from the log. A failure here is the node's: see `Committer.lose`."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        super().__init__(runtime)
        self._committer = committer

    @handles(Durable)
    def durable(self, message: Durable) -> None:
        """The log has synced."""
        self._committer.settle(message.upto, message.written_bytes)

    @handles(LogFull)
    def full(self, message: LogFull) -> None:
        """The log had no room."""
        self._committer.withdraw(message.generation, message.refusal)

    @handles(SettleMore)
    def settle_more(self, _message: SettleMore) -> None:
        """The rest of something large."""
        self._committer.settle_more()

    def on_stop(self) -> None:
        """Nothing is on its way any more: the log has stopped before."""
        self._committer.finish()
