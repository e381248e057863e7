"""Simulation of replication: three whole nodes that follow one another, from one seed.

This module decides which node leads and which frames are released; in production `actors/cluster/`
does.

The rules are: a leader releases only frames that all three have synced, and nothing before its own
first frame. A new leader has every released frame. A follower's log is cut where it diverges from
its leader's. After every step these invariants are checked:

- nothing that was shown anywhere changes or disappears;
- a follower of a node's log receives each frame once and in order;
- states, declarations and answers are equal at equal sequences;
- a paused transaction reads one snapshot;
- acknowledged writes stay.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import actors.cluster.role
import actors.commits.following
import actors.store
import storage.txn.replay
from actors.cluster.log_matching import last_common_frame
from actors.cluster.role import Alone
from actors.commits.committer import released_at_once
from actors.commits.tail import TailFollower
from actors.node import Node, start
from protocol import limits
from protocol.errors import NotWritable, Refusal, UnknownOutcome
from storage.catalog import places
from storage.catalog import tables as catalog_tables
from storage.engine.state_hash import state_hash
from storage.files import cluster_file
from storage.files.cluster_file import ClusterState
from storage.files.directory import StoreDirectory
from storage.formats.keys import Pair
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction
from tests import leaks
from tests.actors.nodes import prepare, run, settings, simulated_environment
from tests.simulation import loop as stepped
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import LoopClock, SeededRng
from tests.simulation.world import LossyEngine, SmallLog
from tests.storage.books import is_part_settled
from tests.storage.index_entries import all_differences

NODES: Final = 3
AWAY: Final = NotWritable("this node follows another one")
EVERYTHING: Final = (b"\0\1", b"\xff")


class InvariantViolated(AssertionError):
    """An invariant is violated."""


@dataclass(eq=False)
class FollowedMember:
    """A node of the three."""

    name: str
    disk: SimulatedDisk
    engine: LossyEngine
    node: Node | None = None
    ear: TailFollower | None = None
    """Listener to released frames, as a feed is."""
    reader: tuple[Transaction, list[Pair]] | None = None
    """A paused transaction, and the pairs that it has read."""
    sent: int = 0
    """Newest sequence that its leader has sent."""
    receiving: asyncio.Future[int] | None = None

    @property
    def here(self) -> Node:
        assert self.node is not None
        return self.node


def _takes_changes(member: actors.cluster.role.ClusterMember) -> None:
    if member.committer.follows:
        raise AWAY.also()


class Cluster3:
    """A cluster of three nodes. `run` runs it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.members: list[FollowedMember] = []
        self.leader: FollowedMember | None = None
        self.epoch = 1
        self.own = 0
        """The first frame of the leader's epoch."""
        self.acknowledged: dict[str, int] = {}
        self.truth: dict[int, bytes] = {}
        """Digests of the frames that were shown."""
        self.states: dict[int, str] = {}
        self.told: dict[int, Any] = {}
        """Declarations and answers, by the sequence of the snapshot."""
        self.asked: list[tuple[int, asyncio.Future[Any]]] = []
        self.sure: set[int] = set()
        """Markers that were acknowledged, …"""
        self.never: set[int] = set()
        """… and those that were refused."""
        self.markers = 0
        self.figures = Counter[str]()

    # --- beginning ------------------------------------------------------------------------------

    def run(self, steps: int = 400) -> Counter[str]:
        """Run the cluster and check it."""
        chance = random.Random(self.chance.random())

        def latency() -> float:
            return chance.choice((0, 0, 0.0002, 0.001, 0.004, 0.02))

        with (
            patch.object(limits, "RECEIVED_BYTES", self.chance.choice([2_000, 20_000, 1 << 20])),
            patch.object(actors.commits.following, "READ_BYTES", 3_000),
            patch.object(storage.txn.replay, "RECORDS_A_STEP", self.chance.choice([3, 256])),
            patch.object(storage.formats.effects, "EFFECTS_A_STEP", self.chance.choice([4, 512])),
            patch.object(storage.formats.effects, "LONG_BYTES", self.chance.choice([600, 65_536])),
            patch.object(actors.store, "Log", SmallLog),
            # What decides in production stands aside.
            patch.object(actors.cluster.role.ClusterMember, "check_writable", _takes_changes),
            patch.object(
                actors.cluster.role.ClusterMember, "check_replicated", lambda _member: None
            ),
            patch.object(actors.cluster.role.ClusterMember, "check_answering", lambda *_: None),
        ):
            try:
                stepped.run(self._main(steps), self.chance.randrange(1 << 30), latency)
            except BaseException:
                leaks.end_greenlets()
                leaks.leaked_actors()  # what broke is left as it is
                raise
        return self.figures

    async def _main(self, steps: int) -> None:
        loop = asyncio.get_running_loop()
        self.clock = LoopClock(loop, tick_us=self.chance.choice([0, 300]))
        first = SimulatedDisk()
        node = await start(settings(), self._environment(first, LossyEngine()))
        await prepare(node)
        await run(node, "DEFINE TOPIC q; DEFINE TABLE m;")
        await node.stop()
        directory = StoreDirectory.open("/store", first, self.clock, SeededRng(1), create=False)
        cluster_file.save(directory, ClusterState(coordinating=True))
        directory.close()
        for name in "abc"[:NODES]:
            member = FollowedMember(name, SimulatedDisk(first.image()), LossyEngine())
            self.members.append(member)
            await self._start(member)
        await self._elect()
        acts = (
            [self._write] * 20 + [self._send] * 40 + [self._hear] * 10 + [self._pass] * 20
            + [self._read] * 10 + [self._pause] * 6 + [self._elect] * 2 + [self._crash] * 2
            + [self._depose] * 1
        )  # fmt: skip
        for _ in range(steps):
            await self.chance.choice(acts)()
            self._check()
        await self._end()

    def _environment(self, disk: SimulatedDisk, engine: LossyEngine) -> Any:
        seed = self.chance.randrange(1 << 30)
        return simulated_environment("stepped", disk, engine, seed, self.clock)

    async def _start(self, member: FollowedMember) -> None:
        member.node = node = await start(settings(), self._environment(member.disk, member.engine))
        # What coordinates is the test.
        await node.cluster.stop()
        node.member._role = Alone()
        node.roles.check_told = None
        assert node.committer.follows
        member.ear = node.committer.tail.follow(node.committer.commit_index, lambda: None)
        self._check_one(member)

    # --- what happens ---------------------------------------------------------------------------

    def _some(self) -> FollowedMember | None:
        running = [one for one in self.members if one.node is not None]
        return self.chance.choice(running) if running else None

    def _script(self) -> str:
        chance = self.chance
        n, x = chance.randrange(12), chance.randrange(9)
        return chance.choice(
            [f"UPSERT t:{n} SET a = {x}, b = 'b{x}'"] * 6
            + [f"UPDATE t:{n} SET a = {x + 1}", f"DELETE t:{n}", f"UPSERT u:{n} SET a = t:{x}"]
            + [f"DELETE v RETURN NONE; INSERT INTO v $rows; UPDATE v SET n = {x} RETURN NONE"] * 2
            + [f"BEGIN; DELETE t; UPSERT t:{n} SET a = {x}; UPSERT u:{n} SET a = {x}; COMMIT"]
            + [
                "DEFINE INDEX OVERWRITE i ON t FIELDS a",
                "DROP INDEX i ON t",
                "DELETE v RETURN NONE",
            ]
            + ["DEFINE INDEX OVERWRITE j ON v FIELDS n, k", f"PUBLISH INTO q VALUES [{x}]"]
            + [f"DEFINE FIELD OVERWRITE b ON t TYPE any DEFAULT {x}", "DROP FIELD b ON t"]
            + [f"DEFINE TABLE OVERWRITE w COMMENT 'w{x}'; UPSERT w:{n} SET x = 1", "DROP TABLE w"]
            + [f"DEFINE USER OVERWRITE bo ROLE viewer PASSWORD 'much too long {x}'"]
        )

    async def _write(self) -> None:
        """Run a script on the leader, without waiting for its answer."""
        if self.leader is None:
            return
        self.markers += 1
        rows = [{"id": n, "n": n, "k": n} for n in range(self.chance.choice([2, 40]))]
        script = f"UPSERT m:{self.markers} SET x = 1; {self._script()}"
        asked = asyncio.ensure_future(run(self.leader.here, script, {"rows": rows}))
        self.asked.append((self.markers, asked))
        for _ in range(self.chance.randrange(60)):
            await asyncio.sleep(0)

    async def _send(self) -> None:
        """Send a follower some frames, or a heartbeat."""
        leader = self.leader
        member = self._some()
        if leader is None or member is None or member is leader:
            return
        if member.name not in self.acknowledged or member.receiving is None:
            await self._attach(member, leader)
        log = leader.here.store.parts.log
        upto = min(leader.here.committer.log_upto, member.sent + self.chance.randrange(12))
        frames = list(log.reader.read(member.sent + 1, upto)) if upto > member.sent else []
        committer, released = member.here.committer, leader.here.committer.commit_index
        member.receiving = committer.receive(frames, released)
        if self.chance.random() < 0.6:
            committer.show(released)
        member.sent = max(member.sent, upto)
        member.receiving.add_done_callback(self._hears(member, leader, self.epoch))

    def _hears(
        self, member: FollowedMember, leader: FollowedMember, epoch: int
    ) -> Callable[[asyncio.Future[int]], None]:
        def heard(done: asyncio.Future[int]) -> None:
            if done.cancelled() or done.exception() is not None:
                return
            if self.leader is leader and self.epoch == epoch and member.name in self.acknowledged:
                before = self.acknowledged[member.name]
                self.acknowledged[member.name] = max(before, done.result())
                leader.here.committer.release_more()

        return heard

    async def _attach(self, member: FollowedMember, leader: FollowedMember) -> None:
        theirs, ours = leader.here.committer.history(), member.here.committer.history()
        agree = last_common_frame(ours, theirs)
        self.figures["cuts"] += agree < member.here.committer.log_upto
        await member.here.committer.cut(agree)
        if member.here.committer.log_upto != agree:
            raise InvariantViolated("a log goes on behind its cut")
        member.sent = self.acknowledged[member.name] = agree
        leader.here.committer.release_more()

    async def _hear(self) -> None:
        """Send a follower the commit index."""
        member = self._some()
        if self.leader is not None and member is not None and member.receiving is not None:
            member.here.committer.show(self.leader.here.committer.commit_index)

    async def _pass(self) -> None:
        """Let time pass, so that all nodes go on."""
        await asyncio.sleep(self.chance.choice([0, 0.001, 0.02, 1.5]))

    async def _pause(self) -> None:
        """Pause, resume or end a reading transaction."""
        member = self._some()
        if member is None:
            return
        if member.reader is None:
            tx = member.here.committer.begin_transaction()
            found = [pair for step in tx.scan(*EVERYTHING) for pair in step]
            tx.pause()
            member.reader = tx, found
            return
        tx, before = member.reader
        found = [pair for step in tx.scan(*EVERYTHING) for pair in step]
        if found != before:
            raise InvariantViolated("who paused reads another moment")
        if self.chance.random() < 0.5:
            self._end_reader(member)

    def _end_reader(self, member: FollowedMember) -> None:
        if member.reader is not None:
            member.reader[0].release()
            member.reader = None

    async def _read(self) -> None:
        """Compare declarations (through the catalog cache) and indexed reads with other nodes."""
        member = self._some()
        if member is None:
            return
        committer = member.here.committer
        with committer.begin_transaction() as tx:
            if tx.sequence > committer.commit_index:
                return
            place = places.database(tx, places.namespace(tx, "a"), "b")
            tables = [catalog_tables.find_table(tx, place, name) for name in ("t", "v", "w")]
            seen: Any = [
                table and (table.id, table.comment, table.fields, table.indexes) for table in tables
            ]
            seen.append(tx.users_version <= tx.sequence)
            at = tx.sequence
        self.figures["read"] += 1
        if self.told.setdefault(at, seen) != seen:
            raise InvariantViolated(f"what is declared at {at} differs: {self.told[at]} and {seen}")

    # --- election -------------------------------------------------------------------------------

    async def _depose(self) -> None:
        if self.leader is None:
            return
        committer = self.leader.here.committer
        committer.releasable = released_at_once
        await committer.begin_following(AWAY)
        if committer.committed != committer.commit_index:
            raise InvariantViolated("who was deposed keeps what was not released")
        self.leader = None
        self.acknowledged.clear()

    async def _elect(self) -> None:
        """Elect another leader, which has everything released, as all three do."""
        await self._depose()
        member = self._some()
        if member is None:
            return
        self.epoch += self.chance.randrange(1, 3)
        self.leader = member
        self.acknowledged = {}
        self.own = 1 << 60
        committer = member.here.committer
        member.receiving = None

        def releasable(synced_seq: int) -> int:
            known = [
                self.acknowledged.get(one.name, 0) for one in self.members if one is not member
            ]
            upto = min([synced_seq, *known])
            return max(committer.commit_index, upto if upto >= self.own else 0)

        committer.releasable = releasable
        try:
            ticket: CommitTicket = await committer.begin_leading(self.epoch)
        except UnknownOutcome:
            self.leader = None
            return
        self.own = ticket.sequence
        self.figures["leaders"] += 1
        for one in self.members:
            one.receiving = None

    async def _crash(self) -> None:
        """Crash a machine, perhaps with much in flight, and start it again."""
        for _ in range(self.chance.choice([0, 6])):
            await self._send()
            await asyncio.sleep(0)
        member = self._some()
        if member is None:
            return
        node = member.here
        if member is self.leader:
            self.leader = None
            self.acknowledged.clear()
        self.acknowledged.pop(member.name, None)
        left = member.disk.killed()
        left.cut_power(self.chance)
        engine = member.engine.after_crash(self.chance)
        self._end_reader(member)
        member.node = member.ear = member.receiving = None
        node.fail(RuntimeError("the machine died"))
        await node.stop()
        member.disk, member.engine = left, engine
        self.figures["crashes"] += 1
        await self._start(member)

    # --- what must come of it -------------------------------------------------------------------

    def _check(self) -> None:
        for member in self.members:
            if member.node is not None:
                self._check_one(member)
        for marker, asked in [one for one in self.asked if one[1].done()]:
            self.asked.remove((marker, asked))
            self._answered(marker, asked)

    def _answered(self, marker: int, asked: asyncio.Future[Any]) -> None:
        error = asked.exception()
        refusal = error if error is not None else asked.result().refusal
        if refusal is None:
            self.sure.add(marker)
            self.figures["sure"] += 1
        elif isinstance(refusal, UnknownOutcome):
            self.figures["unknown"] += 1
        elif not isinstance(refusal, Refusal):
            raise InvariantViolated(f"an answer failed: {refusal}") from error
        elif isinstance(refusal, NotWritable) and "committed" not in refusal.detail:
            self.never.add(marker)

    def _check_one(self, member: FollowedMember) -> None:
        committer = member.here.committer
        assert member.ear is not None
        for frame in member.ear.take(1 << 30):
            digest = self.truth.setdefault(frame.sequence, frame.digest())
            if digest != frame.digest():
                raise InvariantViolated(f"{member.name} was shown another frame {frame.sequence}")
            self.figures["shown"] += 1
        if member.ear.position != committer.commit_index:
            raise InvariantViolated(
                f"{member.name} hears {member.ear.position} of {committer.commit_index}"
            )
        if committer.ledger.state.flight.write_sets or is_part_settled(committer.ledger):
            return
        at, found = member.engine.applied, state_hash(member.engine)
        if at != committer.commit_index:
            raise InvariantViolated(f"the state of {member.name} stands at {at}")
        if self.states.setdefault(at, found) != found:
            raise InvariantViolated(f"the state of {member.name} at {at} is another one")

    async def _end(self) -> None:
        """Let all nodes converge; no acknowledged write may be missing."""
        await self._elect()
        leader = self.leader
        assert leader is not None
        for _ in range(2_000):
            for member in self.members:
                if member is not leader and member.name not in self.acknowledged:
                    await self._attach(member, leader)
                if member is not leader:
                    upto = leader.here.committer.log_upto
                    frames = list(leader.here.store.parts.log.reader.read(member.sent + 1, upto))
                    released = leader.here.committer.commit_index
                    done = member.here.committer.receive(frames, released)
                    member.here.committer.show(released)
                    done.add_done_callback(self._hears(member, leader, self.epoch))
                    member.sent = upto
            await asyncio.sleep(0.01)
            self._check()
            ends = {one.here.committer.commit_index for one in self.members}
            if ends == {leader.here.committer.committed}:
                break
        else:
            raise InvariantViolated(f"they do not come together: {ends}")
        await asyncio.gather(*(asked for _, asked in self.asked), return_exceptions=True)
        self._check()
        for member in self.members:
            self._end_reader(member)
            with member.here.committer.begin_transaction() as tx:
                if wrong := all_differences(tx):
                    raise InvariantViolated(f"indexes of {member.name}: {wrong[:3]}")
            answer = await run(member.here, "SELECT VALUE record::id(id) FROM m")
            assert answer.refusal is None, answer.refusal
            rows: Any = answer.results[-1].value
            held = set(rows)
            if not self.sure <= held:
                raise InvariantViolated(f"{member.name} has lost {self.sure - held}")
            if held & self.never:
                raise InvariantViolated(f"{member.name} has what was refused: {held & self.never}")
        for member in self.members:
            with suppress(Refusal):
                await member.here.stop()
