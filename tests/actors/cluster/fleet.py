"""Nodes that ship to each other, with logs in memory and a network that fails, from one seed.

What ships and receives is the node's own code, and so is what decides on a release. A log is a
model behind the committer's border: what it has synced survives a crash, what it has taken and not
synced is lost in part. Who leads is said by the test, as etcd would: one who is in the set.

Checked all along, see `Fleet`: nothing released is ever lost, changed, or shown too early.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, cast

from actors.cluster.leader_state import LeaderState
from actors.cluster.log_matching import EpochEnd
from actors.cluster.replica_receiver import LeaderConnector, ReplicaReceiver
from actors.cluster.replica_senders import ReplicaSender
from actors.commits.committer import Committer
from actors.commits.tail import Tail
from actors.log_pins import Pin, Pins
from actors.log_reads import LogReads
from actors.runtime import Runtime
from protocol.agreement import InSyncReplicas
from protocol.errors import Diverged, Stranded
from protocol.links import VERSION, Attach, Hello, Link
from storage.formats.frames import Frame
from storage.log.segments import pruned
from tests.simulation.environment import LoopClock, SeededRng, SteppedScheduler
from tests.simulation.links import LinksModel

LONG: Final = 20_000
"""Hundredths of a second in which all should have come to pass: a silence is 3 000."""


class PromiseBroken(AssertionError):
    """A promise of the cluster was broken."""


def _raise(error: BaseException) -> None:
    raise error


class ModelLog:
    """A log behind the committer's border.

    :param syncs: how long a sync takes, in seconds
    :param shown: told each frame that is shown here, in order
    """

    def __init__(self, syncs: Callable[[], float], shown: Callable[[Frame], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._syncs = syncs
        self._shown = shown
        self.disk: list[Frame] = []
        self.pruned = 0
        """How many of them are there no more."""
        self.noted = 0
        """What the disk says to be released."""
        self.commit_index = 0
        self.follows = False
        """Who leads here ships no more once that is over."""
        self._told = 0
        self.releasable: Callable[[int], int] = lambda durable: durable
        self._taken: deque[tuple[list[Frame], int, asyncio.Future[int] | None]] = deque()
        self._syncing: asyncio.TimerHandle | None = None
        self.tail = Tail(0, _raise)
        self.stalled = False
        """Whether the disk takes nothing at the moment."""

    # --- the committer's border -------------------------------------------------------------------

    @property
    def synced_seq(self) -> int:
        return len(self.disk)

    log_upto = synced_seq

    def log_time(self) -> int:
        """It knows of none."""
        return 0

    def history(self) -> list[EpochEnd]:
        found: dict[int, EpochEnd] = {}
        for frame in self.disk:
            found[frame.epoch] = EpochEnd(frame.epoch, frame.sequence, frame.digest())
        return list(found.values())

    def receive(self, frames: list[Frame], released: int) -> asyncio.Future[int]:
        synced: asyncio.Future[int] = self._loop.create_future()
        if not frames and not self._taken:
            synced.set_result(len(self.disk))
            return synced
        if frames and frames[0].sequence != self._taken_upto + 1:
            raise Diverged(f"frame {frames[0].sequence} does not follow {self._taken_upto}")
        self._taken.append((frames, released, synced))
        self._sync_later()
        return synced

    @property
    def _taken_upto(self) -> int:
        return len(self.disk) + sum(len(frames) for frames, _, _ in self._taken)

    async def quiet(self) -> None:
        """Wait until all that was taken is on the disk."""
        while self._taken:
            await asyncio.sleep(0.001)

    async def find_end(self) -> int:
        await self.quiet()
        return self.log_upto

    async def cut(self, after: int) -> None:
        await self.quiet()
        if after < self.commit_index:
            raise Stranded(f"{self.commit_index} is shown, and the log would end at {after}")
        del self.disk[after:]
        self.noted = min(self.noted, after)
        self._told = self.commit_index

    def show(self, upto: int) -> None:
        """Show all up to a frame, each once it is on the disk."""
        self._told = max(self._told, upto)
        upto = max(min(self._told, self.synced_seq), self.commit_index)
        for frame in self.disk[self.commit_index : upto]:
            self._shown(frame)
        self.commit_index = upto

    # --- a leader's -------------------------------------------------------------------------------

    def lead(self) -> None:
        """What is not released is in flight again."""
        self.tail = Tail(self.commit_index, _raise)
        for frame in self.disk[self.commit_index :]:
            self.tail.add(frame)
        self.tail.advance(self.synced_seq, self.commit_index)

    def commit(self, epoch: int, body: bytes) -> int:
        """Write a frame; its sequence."""
        frame = Frame(self._taken_upto + 1, epoch, 0, 0, body)
        self.tail.add(frame)
        self._taken.append(([frame], self.commit_index, None))
        self._sync_later()
        return frame.sequence

    def release_more(self) -> None:
        upto = self.releasable(self.synced_seq)
        if upto > self.commit_index:
            self.show(upto)
        self.tail.advance(self.synced_seq, self.commit_index)

    # --- the disk ---------------------------------------------------------------------------------

    def _sync_later(self) -> None:
        if self._syncing is None:
            self._syncing = self._loop.call_later(self._syncs(), self._synced)

    def _synced(self) -> None:
        self._syncing = None
        if self.stalled:
            self._sync_later()
            return
        own = False
        while self._taken:
            frames, released, told = self._taken.popleft()
            assert not frames or frames[0].sequence == len(self.disk) + 1, "a gap in the log"
            self.disk += frames
            self.noted = max(self.noted, min(released, len(self.disk)))
            if told is None:
                own = True
            elif not told.done():
                told.set_result(len(self.disk))
        if own:
            self.release_more()
        else:
            self.show(self._told)

    def crash(self, lost: Callable[[int], int]) -> None:
        """Lose what is not synced; `lost` says how many batches of so many."""
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None
        for _ in range(len(self._taken) - lost(len(self._taken) + 1)):
            frames, released, _ = self._taken.popleft()
            self.disk += frames
            self.noted = max(self.noted, min(released, len(self.disk)))
        self._taken.clear()
        self.commit_index = self._told = self.noted
        self.releasable = lambda durable: durable


class ModelReads:
    """The log, read from a disk that takes its time."""

    def __init__(self, log: ModelLog, clock: LoopClock, delay: Callable[[], float]) -> None:
        self._log = log
        self._delay = delay
        self.pins = Pins(clock, 1)
        self.asked = 0

    @property
    def begins(self) -> int:
        return self._log.pruned + 1

    def pin(self, sequence: int) -> Pin:
        return self.pins.pin(sequence)

    async def frames(self, after: int, upto: int, bytes_max: int) -> list[Frame]:
        assert upto <= self._log.synced_seq
        self.asked += 1
        await asyncio.sleep(self._delay())
        if after < self._log.pruned:
            raise pruned(after + 1, self.begins)
        found, held = list[Frame](), 0
        for frame in self._log.disk[after:upto]:
            held += len(frame.body)
            if found and held > bytes_max:
                break
            found.append(frame)
        return found

    def prune(self, below: int) -> None:
        """Let go of what is before a frame, but for what is pinned."""
        self._log.pruned = self.pins.decide_prune(below) - 1


class ModelEpochs:
    """What was promised, on a disk that takes its time."""

    def __init__(self, delay: Callable[[], float]) -> None:
        self._delay = delay
        self.promised = 0

    async def promise(self, epoch: int) -> None:
        if epoch > self.promised:
            await asyncio.sleep(self._delay())
            self.promised = max(self.promised, epoch)


class ModelNode:
    """One node: its disk, and what it is at."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.name = name
        self.fleet = fleet
        self.log = ModelLog(fleet.short, partial(fleet.shows, name))
        self.clock = LoopClock(asyncio.get_running_loop())
        self.reads = ModelReads(self.log, self.clock, fleet.short)
        self.epochs = ModelEpochs(fleet.short)
        self.runtime = Runtime(
            SteppedScheduler(), self.clock, lambda _, error: _raise(error), _raise
        )
        self.door = fleet.network.node(
            name, lambda: Hello(VERSION, "store", name), name, lambda shown: shown, self._accept
        )
        self.attaching: LeaderConnector | None = None
        self._task: asyncio.Task[None] | None = None
        self.leading: LeaderState | None = None
        self.replica_senders: list[ReplicaSender] = []
        self._links: set[asyncio.Task[None]] = set()

    @property
    def committer(self) -> Committer:
        return cast(Committer, self.log)

    def follow(self, leader: str, epoch: int | None) -> None:
        """Attach to a node, and hold on to it."""
        self.attaching = LeaderConnector(
            self.runtime, SeededRng(self.fleet.random.randrange(1 << 30)), self.committer,
            self.epochs, lambda: self.door.connect(leader, [leader]), epoch,
        )  # fmt: skip
        self._task = asyncio.ensure_future(self.attaching.run())

    async def lead(self, epoch: int) -> None:
        """Take the lead."""
        await self.epochs.promise(epoch)
        await self.log.quiet()
        self.log.lead()
        own = self.log.commit(epoch, b"leads")
        members = InSyncReplicas(0, frozenset(self.fleet.members), 1)
        acks = len(members.members) - 1
        self.leading = LeaderState(self.name, epoch, acks, members, own)
        self.log.releasable = self._releasable

    def _releasable(self, durable: int) -> int:
        assert self.leading is not None
        self.leading = self.leading.on_synced(durable).release()
        return max(self.leading.released, self.log.commit_index)

    async def _accept(self, link: Link) -> None:
        asked = await link.receive()
        assert isinstance(asked, Attach)
        if self.leading is None:
            return
        shipping = self.fleet.shipping(
            self.runtime, self.committer, cast(LogReads, self.reads), link,
            self.leading.epoch, self._attached, self._heard,
        )  # fmt: skip
        self.replica_senders.append(shipping)
        task = asyncio.ensure_future(shipping.run(asked))
        self._links.add(task)
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
        finally:
            self._links.discard(task)
            self.replica_senders.remove(shipping)

    def _attached(self, node: str, upto: int) -> None:
        if self.leading is not None:
            self.leading = self.leading.attached(node, upto)
            self.log.release_more()

    def _heard(self, node: str, upto: int) -> None:
        if self.leading is not None:
            self.leading = self.leading.on_report(node, upto)
            self.log.release_more()

    def cut(self) -> None:
        """Break all its links."""
        for link in list(self.door.links):
            link.break_off("the test has broken it")

    async def rest(self) -> None:
        """Follow and lead no more."""
        for task in [*self._links, *([self._task] if self._task else [])]:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._task = self.attaching = self.leading = None
        self.log.releasable = lambda _: self.log.commit_index

    async def crash(self) -> None:
        """Lose all that is not on the disk."""
        self.cut()
        await self.rest()
        self.log.crash(self.fleet.random.randrange)


class Fleet:
    """Nodes a, b and so on.

    :param members: who is in the set
    :param shipping: what ships, for planted faults; what receives is planted in `attaching`
    """

    def __init__(
        self,
        seed: int,
        names: str = "abc",
        members: str | None = None,
        shipping: type[ReplicaSender] = ReplicaSender,
        slowest: float = 0.05,
    ) -> None:
        self.random = random.Random(seed)
        self._slowest = slowest
        self.network = LinksModel(seed)
        self.members = names if members is None else members
        self.shipping = shipping
        self.released: list[Frame] = []
        """All that was ever shown by anybody, in order."""
        self.nodes = {name: ModelNode(self, name) for name in names}
        self.epoch = 0
        self.leader = ""
        self.committed = 0

    def short(self) -> float:
        """How long something takes: mostly a little, now and then much."""
        if self.random.random() < 0.05:
            return self.random.random() * self._slowest
        return self.random.random() * 0.002

    def __repr__(self) -> str:
        return ", ".join(
            f"{node.name} {node.log.commit_index} of {node.log.synced_seq}"
            f" {node.attaching.sync_status if node.attaching else 'leads'}"
            for node in self.nodes.values()
        )

    def __getitem__(self, name: str) -> ModelNode:
        return self.nodes[name]

    def shows(self, name: str, frame: Frame) -> None:
        """A node shows a frame."""
        at = frame.sequence - 1
        if at == len(self.released):
            if name != self.leader:
                raise PromiseBroken(
                    f"{name} shows frame {frame.sequence}, which nobody has released"
                )
            self.released.append(frame)
            self.check()
        elif self.released[at] != frame:
            raise PromiseBroken(f"{name} shows another frame {frame.sequence}")

    def check(self) -> None:
        """Each member holds, synced, everything ever released."""
        count = len(self.released)
        for name in self.members:
            if self.nodes[name].log.disk[:count] != self.released:
                raise PromiseBroken(f"{name} does not hold all {count} frames that were released")

    async def appoint(self, name: str) -> None:
        """A node of the set leads from now on, the others follow it; those before hear of it in
        their own time."""
        assert name in self.members
        before, self.leader = self.leader, name
        if before and self.nodes[before].leading is not None:
            await self.nodes[before].rest()
        self.epoch += self.random.randrange(1, 3)
        await self.nodes[name].rest()
        await self.nodes[name].lead(self.epoch)
        for other in self.nodes.values():
            if other.name != name:
                await other.rest()
                other.follow(name, self.epoch)

    def commit(self, size: int = 20) -> int:
        """The leader writes something."""
        self.committed += 1
        body = self.committed.to_bytes(8, "big") + bytes(max(size - 8, 0))
        return self.nodes[self.leader].log.commit(self.epoch, body)

    async def settled(self, upto: int | None = None) -> None:
        """Wait until all that was written is released, and shown by all."""
        log = self.nodes[self.leader].log
        wanted = log.tail.first + len(log.tail) - 1 if upto is None else upto
        for _ in range(LONG):
            if all(node.log.commit_index >= wanted for node in self.nodes.values()):
                return
            await asyncio.sleep(0.01)
        raise PromiseBroken(f"{wanted} is not shown by all: {self}")

    @property
    def links(self) -> int:
        """How many there are, each counted at both its ends."""
        return sum(len(node.door.links) for node in self.nodes.values())

    async def close(self) -> None:
        """Let it end in order."""
        for node in self.nodes.values():
            await node.rest()
        await asyncio.sleep(1)
        self.check()


Taking = type[ReplicaReceiver]
