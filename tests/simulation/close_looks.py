"""Close looks at a cluster whose clients change schemas, indexes, and many records at once.

- What is declared, read through each node's cache of the catalog, is equal at equal sequences.
- A paused transaction reads one snapshot, whatever its node receives, cuts off or applies.
- In the end each index holds exactly what follows from the records.

Limits are small, so that frames are received, applied and built up in many parts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import actors.commits.following
import storage.formats.effects
import storage.txn.replay
from protocol import limits
from storage.catalog import places, tables
from storage.formats.keys import Pair
from storage.txn.transaction import Transaction
from tests.simulation.course import Course
from tests.simulation.members import SimulatedMember
from tests.simulation.processes import Process
from tests.simulation.promises import ClusterGuaranteeViolated
from tests.storage.index_entries import all_differences

TABLES: Final = "; DEFINE TABLE r; DEFINE TABLE u; DEFINE TABLE v; DEFINE TOPIC told"
EVERYTHING: Final = (b"\0\1", b"\xff")
LOOKS_EVERY_SECONDS: Final = 0.05


class CloseLooks:
    """Clients of one world that change much, and the looks at its nodes."""

    def __init__(self, world: Course) -> None:
        self.world = world
        self._chance = random.Random(world.seed)
        self._told: dict[int, Any] = {}
        """Declarations, by the sequence of the snapshot."""
        self._readers: dict[str, tuple[Process | None, Transaction, list[Pair]]] = {}
        """Paused transactions, and the pairs that they have read, by machine."""

    @contextmanager
    def small_limits(self) -> Iterator[None]:
        """Draw small limits for the nodes."""
        choice = self._chance.choice
        with ExitStack() as patches:
            for target, name, value in (
                (limits, "RECEIVED_BYTES", choice((2_000, 20_000, 1 << 20))),
                (limits, "COMPARE_SECONDS", 2),
                (actors.commits.following, "READ_BYTES", 3_000),
                (storage.txn.replay, "RECORDS_A_STEP", choice((3, 256))),
                (storage.formats.effects, "EFFECTS_A_STEP", choice((4, 512))),
                (storage.formats.effects, "LONG_BYTES", choice((600, 65_536))),
            ):
                patches.enter_context(patch.object(target, name, value))
            yield

    def _script(self) -> str:
        chance = self._chance
        n, x = chance.randrange(12), chance.randrange(9)
        return chance.choice(
            [f"UPSERT r:{n} SET a = {x}, b = 'b{x}'"] * 6
            + [f"UPDATE r:{n} SET a = {x + 1}", f"DELETE r:{n}", f"UPSERT u:{n} SET a = r:{x}"]
            + [f"DELETE v RETURN NONE; INSERT INTO v $rows; UPDATE v SET n = {x} RETURN NONE"] * 2
            + [f"BEGIN; DELETE r; UPSERT r:{n} SET a = {x}; UPSERT u:{n} SET a = {x}; COMMIT"]
            + ["DEFINE INDEX OVERWRITE i ON r FIELDS a", "DROP INDEX i ON r"]
            + ["DEFINE INDEX OVERWRITE j ON v FIELDS n, k", f"PUBLISH INTO told VALUES [{x}]"]
            + [f"DEFINE FIELD OVERWRITE b ON r TYPE any DEFAULT {x}", "DROP FIELD b ON r"]
            + [f"DEFINE TABLE OVERWRITE w COMMENT 'w{x}'; UPSERT w:{n} SET x = 1", "DROP TABLE w"]
            + [f"DEFINE USER OVERWRITE bo ROLE viewer PASSWORD 'much too long {x}'"]
            + ["DELETE v RETURN NONE"]
        )

    async def write_on(self) -> None:
        """Run scripts on whoever leads, for ever. What of them is refused does not matter."""
        while True:
            await asyncio.sleep(self._chance.choice((0.01, 0.05, 0.2, 1.0)))
            machine = self.world.some_leader()
            if machine is not None:
                count = self._chance.choice((2, 40))
                rows = [{"id": n, "n": n, "k": n} for n in range(count)]
                await machine.ask(self._script(), parameters={"rows": rows})

    async def look_on(self) -> None:
        """Look at some machine, for ever."""
        while True:
            await asyncio.sleep(LOOKS_EVERY_SECONDS)
            machine = self._chance.choice(self.world.machines)
            if machine.answers:
                self._look_at_declarations(machine)
                self._read_on(machine)

    def _look_at_declarations(self, machine: SimulatedMember) -> None:
        committer = machine.runs.committer
        with committer.begin_transaction() as tx:
            at = tx.sequence
            if at > committer.commit_index:
                return
            place = places.database(tx, places.namespace(tx, "a"), "b")
            found = [tables.find_table(tx, place, name) for name in ("r", "v", "w")]
            seen: Any = [one and (one.id, one.comment, one.fields, one.indexes) for one in found]
            seen.append(tx.users_version <= at)
        self.world.figures["declarations"] += 1
        if self._told.setdefault(at, seen) != seen:
            raise ClusterGuaranteeViolated(
                f"what is declared at {at} on {machine.name} differs: {self._told[at]} and {seen}"
            )

    def _read_on(self, machine: SimulatedMember) -> None:
        """Begin a transaction and pause it; or resume one, and end it now and then."""
        process, tx, before = self._readers.get(machine.name, (None, None, []))
        if tx is None or process is not machine.process:
            tx = machine.runs.committer.begin_transaction()
            found = [pair for step in tx.scan(*EVERYTHING) for pair in step]
            tx.pause()
            self._readers[machine.name] = machine.process, tx, found
            return
        self.world.figures["read on"] += 1
        if [pair for step in tx.scan(*EVERYTHING) for pair in step] != before:
            raise ClusterGuaranteeViolated(f"who paused on {machine.name} reads another moment")
        if self._chance.random() < 0.5:
            tx.release()
            del self._readers[machine.name]

    def forget(self, stays: int) -> None:
        """Forget what was declared after `stays`: a lineage was begun by force."""
        self._told = {at: seen for at, seen in self._told.items() if at <= stays}

    def end(self) -> None:
        """Check the indexes of all machines."""
        for machine in self.world.machines:
            process, tx, _ = self._readers.pop(machine.name, (None, None, []))
            if tx is not None and process is machine.process:
                tx.release()
            with machine.runs.committer.begin_transaction() as tx:
                if wrong := all_differences(tx):
                    raise ClusterGuaranteeViolated(f"indexes of {machine.name}: {wrong[:3]}")
