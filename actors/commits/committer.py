"""The door through which everything is changed, and where answers wait until they may be shown.

`begin` a transaction, `commit` it without an await, wait until its promise is `released`, then
answer. Nobody else commits, says who a change is by, or decides whether the node takes it.

Invariants:

- No waiter is released before the log said that its sequence is on the disk.
- The engine holds no commit that is not released.
- Once the log has failed nothing is committed and no waiter is released: each hears UnknownOutcome.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

from pykka import ActorRef

from actors.commits.arrivals import Arrivals
from actors.commits.barriers import Barriers
from actors.commits.batches import Batches
from actors.commits.tail import Tail
from actors.commits.waiters import Waiter
from actors.log import Append, Mark
from actors.runtime import Runtime, tell
from protocol import limits
from protocol.errors import Busy, DiskFull, Failed, NotWritable, Refusal, UnknownOutcome
from storage import keys
from storage.effects import Attribution, only_removes
from storage.entries import Entry
from storage.frames import Frame
from storage.ledger import Ledger
from storage.reserve import disk_full
from storage.transactions import Transaction

Told = Callable[[BaseException | None], None]
"""Hears why a commit was not released, or None when it was."""

STALL_SECONDS: Final = 0.01
"""How often a state that takes nothing is asked again."""
IDLE_SECONDS: Final = 1.0
"""A log without a new commit for so long gets a mark."""


class Who(Protocol):
    """Who changes the store: a caller, or the node itself."""

    @property
    def user(self) -> str:
        """The user's name."""

    @property
    def surface(self) -> str:
        """How the change came."""


class By(NamedTuple):
    """A `Who` and nothing else, for a caller whose session was opened on another surface."""

    user: str
    surface: str


NODE: Final = By("node", "node")
"""The node itself: what time brings, what it builds, what it sets up."""


class Promise(NamedTuple):
    """What an answer waits for; see `Committer.released`."""

    sequence: int
    """All up to here has to be released. 0: nothing has to be."""
    generation: int
    """`Committer.generation` when that sequence was given or seen. When the disk is full commits
    are taken back and their sequences given again: this tells the commit that was meant from
    another that got its number."""


@dataclass(frozen=True, slots=True)
class SettleMore:
    """Said to the commits actor by itself: more is released than went to the engine at once."""


class Committer:
    """Transactions for everybody on the loop. See the head of the file."""

    ledger: Ledger
    tail: Tail
    """The newest frames, for whoever follows."""
    check_writable: Callable[[], None]
    """Asks whether this node takes changes. `commit` does; who would do much for nothing, or wait,
    asks before. :raises NotWritable:"""
    _commits: ActorRef[Any]
    _log: ActorRef[Any]

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.generation = 1
        """How often what was in flight had to be taken back, from 1. See `Promise`."""
        self._withdrawn: list[tuple[int, int]] = []
        """First generation of a run of them, and what was durable at the end of each."""
        self.released_upto = 0
        """The newest sequence that may be shown: what probes and answers show."""
        self._waiters: dict[int, list[Told]] = {}
        self._lost: BaseException | None = None
        self.on_withdraw: list[Callable[[], None]] = []
        """Called when what was in flight was taken back. Whoever has seen it and found that there
        was nothing to do may find something now."""
        self.on_return: list[Callable[[], None]] = []
        """Called when the log has returned a batch, its answers said: the next one can go."""
        self._settling = False
        """Whether a turn to settle more is on its way."""
        self._stalled: asyncio.TimerHandle | None = None
        """Runs while the state takes nothing."""
        self._batches = Batches(runtime, self._send)
        self.barriers = Barriers(runtime)
        self.arrivals = Arrivals(self._noticed)
        """Who waits for sequences that nobody here may have given out yet."""
        self._idle: asyncio.TimerHandle | None = None
        self.unflushed_bytes = 0
        """Log written since the state was last flushed."""
        self.disk_full = False
        """Whether the log had no room when it was last given something."""
        self.has_room: Callable[[int], bool] = lambda _bytes: True
        """Whether a full disk seems to have room again for a commit of so many bytes."""

    def attach(
        self,
        ledger: Ledger,
        commits: ActorRef[Any],
        log: ActorRef[Any],
        check_writable: Callable[[], None],
    ) -> None:
        """Begin work on a ledger that has replayed the log."""
        self.ledger = self.barriers.ledger = ledger
        self.check_writable = check_writable
        self._commits = commits
        self._log = log
        self.released_upto = ledger.released_upto
        self.tail = Tail(ledger.committed, self._noticed)

    def not_writable(self) -> NotWritable | None:
        """Why this node takes no changes; None: it does."""
        try:
            self.check_writable()
        except NotWritable as refusal:
            return refusal
        return None

    @property
    def durable_upto(self) -> int:
        """The newest sequence that is on this node's disk."""
        return self.ledger.durable_upto

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

    def commit(
        self,
        transaction: Transaction,
        who: Who,
        statement: str | None = None,
        reason: str | None = None,
        entry: Entry | None = None,
    ) -> Promise:
        """Make the changes of a transaction a commit, and end it; never waits.

        :param who: whose change it is: a caller's, or `NODE`
        :param statement: its text with secrets taken out, or what statement it stands for
        :param reason: what the caller gave as REASON, or why the node does it
        :param entry: what the statement log or the audit trail is to keep of it; with one it is a
            commit though it changes nothing
        :returns: what its answer must wait for: the transaction's own sequence; for one that
            changed nothing the newest one in flight that it saw
        :raises NotWritable: the node takes no changes, and there are some
        :raises Conflict: somebody else committed to what it read; or another's barrier stands, and
            the transaction is `barred`: it may come again when `barriers.tell_gone` says so
        :raises Busy: too many commits wait for the log, or too much for the state
        :raises Failed: the log has failed
        """
        if self._lost is not None:
            raise Failed("the log has failed: the node takes nothing more")
        if transaction.size or entry is not None:
            self.check_writable()
            self._check_room()
        if transaction.paused and who is not NODE:
            # Nothing of a caller's is committed behind what took its right away meanwhile.
            transaction.rest_on(keys.user(who.user))
        before = self.ledger.committed
        try:
            attribution = Attribution(who.user, who.surface, statement, reason, entry)
            return Promise(self.ledger.commit(transaction, attribution), self.generation)
        except Refusal:
            raise
        except BaseException as error:
            # Before its sequence was given out a bug costs one answer. After that the ledger holds
            # something that the log may never get.
            if self.ledger.committed != before:
                self.lose(error)
            raise

    def _check_room(self) -> None:
        if self.ledger.flight.memory_bytes > limits.IN_FLIGHT_BYTES:
            raise Busy("the state has not taken what was committed before: the disk is slow")

    @property
    def log_is_busy(self) -> bool:
        """Whether the log has a batch: what is committed now is not given to it any sooner than
        what is committed when that returns (`on_return`)."""
        return self._batches.out

    # --- promises -----------------------------------------------------------------------------

    def promise(self, sequence: int) -> Promise:
        """What an answer waits for that has just seen this sequence in flight."""
        return Promise(sequence, self.generation)

    def is_released(self, promise: Promise) -> bool:
        """Whether there is nothing to wait for. False may mean that it was taken back."""
        return promise.sequence <= self.released_upto and promise.generation == self.generation

    def released(self, promise: Promise) -> asyncio.Future[None]:
        """Done once all that was promised may be shown.

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

        self.when_released(promise, told)
        return future

    def when_released(self, promise: Promise, told: Told) -> None:
        """Call `told` once all that was promised may be shown, with what `released` would raise,
        or None; at once when that is known. For answers by the thousand, which need no turn of the
        loop each: those of one batch are told in one. An answer that waits for as long as the disk
        takes is a `Waiter`, which others can see and end.
        """
        sequence = promise.sequence
        if self.was_taken_back(promise):
            told(DiskFull("no room for the log: the commit was taken back"))
        elif sequence <= self.released_upto:
            told(None)
        elif self._lost is not None:
            told(_unknown(sequence))
        else:
            self._waiters.setdefault(sequence, []).append(told)

    def stop_waiting(self, promise: Promise, told: Told) -> bool:
        """Tell `told` nothing of what was promised. False: it has been told already."""
        waiters = self._waiters.get(promise.sequence, [])
        if told not in waiters:
            return False
        waiters.remove(told)
        return True

    @property
    def waiters(self) -> Iterator[Waiter]:
        """The answers that wait and can be ended."""
        for waiters in self._waiters.values():
            for told in waiters:
                if isinstance(told, Waiter):
                    yield told

    def monotonic_us(self) -> int:
        """The clock of `at`."""
        return self._runtime.clock.monotonic_us()

    def at(self, at_us: int, act: Callable[[], None]) -> asyncio.TimerHandle:
        """Have something done at a moment of the monotonic clock."""
        wait_us = at_us - self._runtime.clock.monotonic_us()
        return self._runtime.loop.call_later(max(wait_us, 0) / 1_000_000, act)

    def was_taken_back(self, promise: Promise) -> bool:
        """Whether a full disk has undone a commit that was promised."""
        if promise.generation == self.generation:
            return False
        at = bisect_right(self._withdrawn, promise.generation, key=itemgetter(0)) - 1
        return promise.sequence > self._withdrawn[at][1]

    # --- called by the ledger -----------------------------------------------------------------

    def hand_over(self, frame: Frame) -> None:
        """Give a commit to the log, with others of its time.

        :raises Busy: too many wait
        :raises DiskFull: it adds something, and the disk is full. What is refused here takes back
            nothing that is in flight: who makes room on a full disk is not disturbed by those who
            go on trying to write
        """
        if self.disk_full and not (self.has_room(len(frame.body)) or only_removes(frame.body)):
            raise disk_full()
        self._batches.add(frame)
        self.tail.add(frame)

    def _send(self, batch: list[Frame]) -> None:
        tell(self._log, Append(batch, self.generation, self.released_upto))

    def hand_over_rest(self) -> None:
        """Give the log what is still being gathered: it is going to be closed."""
        self._batches.send_all()

    # --- called by the commits actor ----------------------------------------------------------

    def durable(
        self, upto: int, written_bytes: int, digests: list[bytes], reserved: bool = False
    ) -> None:
        """All up to `upto` is on the disk. Nobody else has to hold it: so it is released.

        :param reserved: there was no other room than the reserve
        """
        if self._lost is not None:
            return
        self.disk_full = reserved
        self._batches.returned()
        self.ledger.mark_durable(upto, digests)
        self.unflushed_bytes += written_bytes
        self._look_at_flight()
        self._release(upto)
        for go_on in self.on_return:
            go_on()

    def _release(self, upto: int) -> None:
        """All up to `upto` may be shown: to the engine with it, and its waiters may answer."""
        self.ledger.release(upto)
        self._settle_part()
        before, self.released_upto = self.released_upto, upto
        self.tail.advance(self.ledger.durable_upto, upto)
        waiters = self._waiters
        for sequence in range(before + 1, upto + 1):
            for told in waiters.pop(sequence, ()):
                self._tell(told, None)
        self.arrivals.reached(upto)

    def _settle_part(self) -> None:
        """Bring a part of what is released to the engine; the rest after others had their turn.

        Nothing, as long as the engine would make a writer wait: this is the thread that everybody
        waits for. What is not settled stays in flight, where every read finds it.
        """
        if not self.ledger.may_settle:
            if self._stalled is None:
                self._stalled = self._runtime.loop.call_later(STALL_SECONDS, self._look_again)
            return
        if self.ledger.settle() and not self._settling:
            self._settling = True
            tell(self._commits, SettleMore())

    def _look_again(self) -> None:
        self._stalled = None
        if not self._settling:
            self._settling = True
            tell(self._commits, SettleMore())  # what fails is the actor's to tell

    @property
    def unsettled_bytes(self) -> int:
        """What is in flight because the state takes nothing: it needs room on the disk yet. May be
        read from another thread."""
        return self.ledger.flight.bytes if self._stalled is not None else 0

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
        self.disk_full = True
        durable = self.ledger.durable_upto
        if not self._withdrawn or self._withdrawn[-1][1] != durable:
            self._withdrawn.append((generation, durable))
        self.ledger.withdraw()
        self._batches.withdraw()
        self.tail.withdraw()
        self._fail_waiters(durable, lambda _: refusal)
        self._look_at_flight()
        for look_again in self.on_withdraw:
            look_again()

    def lose(self, error: BaseException) -> None:
        """The log or the ledger has failed: nothing more is taken or answered."""
        if self._lost is None:
            self._lost = error
            self._batches.withdraw()
            self._fail_waiters(0, _unknown)
            self.close()

    def finish(self) -> None:
        """Bring all that is released to the engine: the node stops. :raises EngineFailed:"""
        while self._lost is None and self.ledger.settle():
            pass
        self.close()

    def close(self) -> None:
        """Stop what runs by itself."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self.barriers.close()

    def _fail_waiters(self, after: int, error: Callable[[int], BaseException]) -> None:
        for sequence in [each for each in self._waiters if each > after]:
            for told in self._waiters.pop(sequence):
                self._tell(told, error(sequence))

    def _tell(self, told: Told, lost: BaseException | None) -> None:
        try:
            told(lost)
        except Exception as error:  # a bug of one waiter's is not the others'
            self._noticed(error)

    def _noticed(self, error: BaseException) -> None:
        self._runtime.noticed(type(self).__name__, error)

    def _look_at_flight(self) -> None:
        if self._idle is None and self.ledger.committed == self.ledger.durable_upto:
            self._arm(self.ledger.committed)

    def _arm(self, sequence: int) -> None:
        self._idle = self._runtime.loop.call_later(IDLE_SECONDS, self._mark_when_idle, sequence)

    def _mark_when_idle(self, seen: int) -> None:
        if self.ledger.committed == seen:
            self._idle = None
            tell(self._log, Mark(self.released_upto))
        else:
            self._arm(self.ledger.committed)


def _unknown(sequence: int) -> UnknownOutcome:
    return UnknownOutcome(
        f"the log failed while commit {sequence} was on its way: it may have happened",
        sequence=sequence,
    )
