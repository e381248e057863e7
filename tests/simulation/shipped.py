"""Simulation of log shipping: three whole nodes over links that fail, from one seed.

The world and its invariants are those of `followed.py`. Here the node's own code
(`actors/cluster/`) ships frames from leader to follower, over a model of the network. Links break,
messages wait in a one-way cut and arrive late, and a node restarts while its old links are still
open at the others.
"""

from __future__ import annotations

import asyncio
from functools import partial

from actors.cluster.durable_state import ClusterFileActor, SaveCluster
from actors.cluster.log_matching import SyncStatus
from actors.cluster.replica_receiver import LeaderConnector
from actors.cluster.replica_senders import ReplicaSender
from actors.cluster.state_check import StateComparison
from actors.runtime import ask, stop
from protocol.links import VERSION, Attach, Hello, Link
from storage.files.cluster_file import ClusterState
from tests.simulation.environment import SeededRng
from tests.simulation.followed import Cluster3, FollowedMember, InvariantViolated
from tests.simulation.links import LinksModel, ModelLinks, Weather

WEATHERS = ((0.0001, 0.002), (0.0001, 0.05), (0.02, 0.02))
"""Least and greatest latency of messages, seconds."""
COMES_TOGETHER = 10_000
"""Limit on the convergence, hundredths of a second: a dead link is closed after 30 seconds."""


class KeptEpochs:
    """Epochs that a node has promised, in its CLUSTER file."""

    def __init__(self, member: FollowedMember) -> None:
        parts, kept = member.here.store.parts, member.here.store.cluster
        assert kept is not None
        self._kept: ClusterState = kept
        self.actor = ClusterFileActor.start(member.here.runtime, parts.directory)
        self._saving = asyncio.Lock()

    @property
    def promised(self) -> int:
        return self._kept.promised

    async def promise(self, epoch: int) -> None:
        async with self._saving:
            if epoch > self._kept.promised:
                promised = self._kept._replace(promised=epoch)
                await ask(self.actor, SaveCluster(promised))
                self._kept = promised


class VolatileState:
    """Volatile state of a member, lost in a crash."""

    def __init__(self, member: FollowedMember, door: ModelLinks) -> None:
        self.epochs = KeptEpochs(member)
        self.door = door
        self.follows: LeaderConnector | None = None
        self.following: asyncio.Task[None] | None = None
        self.replica_senders: dict[ReplicaSender, asyncio.Task[None]] = {}
        self.comparing: asyncio.Task[None] | None = None

    async def rest(self) -> None:
        """Stop following and shipping."""
        tasks = [each for each in (self.following, self.comparing) if each is not None]
        tasks += self.replica_senders.values()
        self.follows = self.following = self.comparing = None
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
                raise ended


class Shipped(Cluster3):
    """A cluster of three nodes. `run` runs it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.network = LinksModel(seed)
        self.sides: dict[str, VolatileState] = {}
        self.figures |= {"attached": 0, "broken": 0, "compared": 0}
        self._by_hand = False

    async def _start(self, member: FollowedMember) -> None:
        await super()._start(member)
        name = member.name
        door = self.network.node(
            name, lambda: Hello(VERSION, "store", name), name, lambda shown: shown,
            partial(self._accept, member),
        )  # fmt: skip
        self.sides[name] = VolatileState(member, door)
        if self.leader is not None:
            self._follow(member, self.leader.name)

    def _follow(self, member: FollowedMember, leader: str) -> None:
        side, rng = self.sides[member.name], SeededRng(self.chance.randrange(1 << 30))
        side.follows = LeaderConnector(
            member.here.runtime, rng, member.here.committer, side.epochs,
            lambda: side.door.connect(leader, [leader]), self.epoch,
        )  # fmt: skip
        side.following = asyncio.ensure_future(side.follows.run())

    async def _accept(self, member: FollowedMember, link: Link) -> None:
        asked = await link.receive()
        if self.leader is not member or not isinstance(asked, Attach):
            return
        node, side = member.here, self.sides[member.name]
        shipping = ReplicaSender(
            node.runtime, node.committer, node.reads, link, self.epoch,
            partial(self._attached, member, self.epoch), partial(self._heard, member, self.epoch),
        )  # fmt: skip
        task = side.replica_senders[shipping] = asyncio.ensure_future(shipping.run(asked))
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            del side.replica_senders[shipping]

    def _attached(self, leader: FollowedMember, epoch: int, name: str, upto: int) -> None:
        if self.leader is leader and self.epoch == epoch:
            self.figures["attached"] += 1
            self.acknowledged[name] = upto
            leader.here.committer.release_more()

    def _heard(self, leader: FollowedMember, epoch: int, name: str, upto: int) -> None:
        if self.leader is leader and self.epoch == epoch:
            self.acknowledged[name] = max(upto, self.acknowledged.get(name, 0))
            leader.here.committer.release_more()

    # --- what happens ---------------------------------------------------------------------------

    async def _send(self) -> None:
        """Inject a fault into the network, or heal one."""
        if self._by_hand:
            await super()._send()
            return
        one, other = self.chance.sample(self.members, 2)
        draw = self.chance.random()
        if draw < 0.1:
            self.figures["broken"] += 1
            for link in list(self.sides[one.name].door.links):
                link.break_off("the test has broken it")
        elif draw < 0.2:
            self.network.cut(one.name, other.name)
        elif draw < 0.5:
            self.network.mend(one.name, other.name)
        elif draw < 0.6:
            breaks = self.chance.choice([0, 0, 0.01])
            self.network.weather = Weather(self.chance.choice(WEATHERS), breaks)
        for _ in range(self.chance.randrange(60)):
            await asyncio.sleep(0)

    async def _hear(self) -> None:
        """Let the leader compare states."""
        leader = self.leader
        if leader is None or self.chance.random() < 0.8:
            return
        side = self.sides[leader.name]
        if side.comparing is None or side.comparing.done():
            comparing = StateComparison(
                leader.here.runtime, leader.here.committer, lambda: list(side.replica_senders)
            )
            side.comparing = asyncio.ensure_future(comparing.compare())

    # --- election -------------------------------------------------------------------------------

    async def _depose(self) -> None:
        for side in self.sides.values():
            await side.rest()
        await super()._depose()

    async def _elect(self) -> None:
        await super()._elect()
        if self.leader is not None and not self._by_hand:
            await self.sides[self.leader.name].epochs.promise(self.epoch)
            for member in self.members:
                if member is not self.leader:
                    self._follow(member, self.leader.name)

    async def _crash(self) -> None:
        member = self._some()
        if member is None:
            return
        side = self.sides[member.name]
        await side.rest()
        await stop(side.epochs.actor)
        self.network.leave(member.name)
        chosen, self._some = self._some, lambda: member  # type: ignore[method-assign]
        try:
            await super()._crash()
        finally:
            self._some = chosen  # type: ignore[method-assign]

    # --- what must come of it -------------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        released = max(one.here.committer.commit_index for one in self.members)
        for one in self.members:
            if one.here.store.parts.log.state.last < released:
                raise InvariantViolated(
                    f"{one.name} does not hold all {released} that were released"
                )
        for side in self.sides.values():
            if side.follows is not None and side.follows.sync_status is SyncStatus.STRANDED:
                raise InvariantViolated(f"stranded: {side.follows.reason}")
            if side.following is not None and side.following.done():
                side.following.result()

    async def _end(self) -> None:
        self.network.weather = Weather()
        for one in self.members:
            for other in self.members:
                self.network.mend(one.name, other.name)
        if self.leader is None:
            await self._elect()
        await self._come_together()
        for side in self.sides.values():
            if side.comparing is not None:
                await side.comparing
                self.figures["compared"] += 1
        self._by_hand = True
        await super()._end()
        for side in self.sides.values():
            await stop(side.epochs.actor)

    async def _come_together(self) -> None:
        assert self.leader is not None
        for _ in range(COMES_TOGETHER):
            ends = {one.here.committer.commit_index for one in self.members}
            if ends == {self.leader.here.committer.committed}:
                return
            await asyncio.sleep(0.01)
            self._check()
        follows = {name: side.follows and side.follows.reason for name, side in self.sides.items()}
        raise InvariantViolated(f"they do not come together: {ends}, {follows}")
