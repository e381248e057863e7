"""Histories of records against a model, over lives of a node: records come, change, go and come
again, in transactions of one or many; tables are dropped and declared anew; old log is pruned; the
node is stopped, or killed and recovers its log. Whatever is asked, in any pages, is what the model
says, down to which field was changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from actors.checkpoints import CheckpointNow
from actors.node import Node, start
from actors.runtime import ask
from actors.scripts import history as statement
from protocol import limits
from storage.engine.memory import MemoryEngine
from storage.log.state import LogSizes
from storage.records import history
from tests.actors.nodes import prepare, run, settings, simulated_environment, value
from tests.actors.parts import play
from tests.simulation.disk import SimulatedDisk
from tests.sweeps import some_of

TABLES: Final = ("t", "u")
IDS: Final = (1, 2, 3)
NAMES: Final = ("a", "b", "c")
Record = tuple[str, int]


@dataclass
class Known:
    """One change, as the model has it."""

    seq: int
    action: str
    value: dict[str, Any] | None
    before: Known | None  # of the same record, in its present life

    @property
    def changed(self) -> set[str]:
        after = self.value or {}
        before = (self.before.value if self.before else None) or {}
        return {name for name in {*after, *before} if after.get(name) != before.get(name)}


@dataclass
class Model:
    """All changes of every record, oldest first."""

    random: Random
    changes: dict[Record, list[Known]] = field(default_factory=dict)

    def now(self, record: Record) -> dict[str, Any] | None:
        known = self.changes.get(record)
        return known[-1].value if known else None

    def note(self, record: Record, seq: int, after: dict[str, Any] | None) -> None:
        """A commit has made this of a record."""
        known = self.changes.setdefault(record, [])
        newest = known[-1] if known and known[-1].value is not None else None
        if newest is None and after is None:
            return
        action = "delete" if after is None else "update" if newest else "create"
        known.append(Known(seq, action, after, newest))

    def history(self, record: Record, before: int, most: int, begins: int) -> dict[str, Any]:
        """What is to be answered, and nothing else is right."""
        every = [one for one in reversed(self.changes.get(record, [])) if one.seq < before]
        kept = [one for one in every if one.seq >= begins]
        stopped, following = None if begins == 1 else "pruned", None
        if len(kept) > most:
            stopped, following = "limit", kept[most].seq + 1
        return {
            "entries": [
                (
                    one.seq,
                    one.action,
                    one.value,
                    one.changed
                    if one.action == "create" or (one.before and one.before.seq >= begins)
                    else None,
                )
                for one in kept[:most]
            ],
            "stopped": stopped,
            "next": following,
        }


class Story:
    """A node and its model, through everything."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.model = Model(self.random)
        self.asked = 0
        self.node: Node

    async def change(self) -> None:
        """One commit that changes some records, each perhaps several times."""
        random, made = self.random, dict[Record, dict[str, Any] | None]()
        statements = list[str]()
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            record = random.choice(TABLES), random.choice(IDS)
            present = made.get(record, self.model.now(record))
            name, number = random.choice(NAMES), random.randrange(3)
            address = f"{record[0]}:{record[1]}"
            if present is None:
                made[record] = {name: number}
                statements.append(f"CREATE {address} SET {name} = {number}")
            elif random.random() < 0.3:
                made[record] = None
                statements.append(f"DELETE {address}")
            else:
                if record in made or present.get(name) != number:
                    made[record] = {**present, name: number}
                statements.append(f"UPDATE {address} SET {name} = {number}")
        text = "; ".join(statements)
        answer = await run(self.node, f"BEGIN; {text}; COMMIT")
        assert answer.refusal is None, answer.refusal
        for record, after in made.items():
            self.model.note(record, answer.sequence, after)

    async def beside(self) -> None:
        """Commits that change none of them."""
        for _ in range(self.random.randrange(30)):
            await run(self.node, "CREATE v")

    async def renew(self) -> None:
        """A table goes, with the histories of its records."""
        name = self.random.choice(TABLES)
        await value(self.node, f"DROP TABLE {name}; DEFINE TABLE {name}")
        for number in IDS:
            self.model.changes.pop((name, number), None)

    async def prune(self) -> None:
        """The log lets go of what is older than some."""
        before, limits.LOG_FRAMES_KEPT = limits.LOG_FRAMES_KEPT, self.random.randrange(1, 120)  # type: ignore[misc]
        try:
            await ask(self.node.checkpoints, CheckpointNow())
        finally:
            limits.LOG_FRAMES_KEPT = before  # type: ignore[misc]

    async def look(self) -> None:
        """Ask for any record's history, from anywhere, in pages of any size."""
        random = self.random
        record = random.choice(TABLES), random.choice(IDS)
        newest = self.node.committer.committed
        before = random.choice((newest + 1, random.randrange(newest + 3)))
        most = random.choice((1, 2, 3, 100))
        reads = f"INFO FOR HISTORY OF {record[0]}:{record[1]}"
        while True:
            clauses = f" BEFORE {before} LIMIT {most}"
            if before == newest + 1 and random.random() < 0.5:
                clauses = f" LIMIT {most}"
            found = await value(self.node, reads + clauses)
            self.asked += 1
            if found["stopped"] == "budget" and not found["entries"]:
                assert found["next"] < before
                before = found["next"]
                continue
            begins = self.node.store.begins
            assert found["begins"] == begins
            shown = [
                (one["seq"], one["action"], one["value"], one["changed"] and set(one["changed"]))
                for one in found["entries"]
            ]
            shown = [
                (seq, action, kept, set() if changed == [] else changed)
                for seq, action, kept, changed in shown
            ]
            wanted = self.model.history(record, before, most, begins)
            if found["stopped"] == "budget":
                # Behind a creation: an earlier life is searched for where the next answer begins.
                # Or the search for a deletion took all frames that one answer may read.
                assert shown == wanted["entries"][: len(shown)]
                assert shown[-1][1] == "create" or newest - shown[0][0] > limits.HISTORY_FRAMES / 2
                rest = wanted["entries"][len(shown) :]
                assert found["next"] <= shown[-1][0] and all(one[0] < found["next"] for one in rest)
            else:
                assert shown == wanted["entries"], (record, before)
                assert (found["stopped"], found["next"]) == (wanted["stopped"], wanted["next"])
            if found["next"] is None:
                return
            before = found["next"]

    async def live(self, steps: int) -> None:
        """Do anything."""
        deeds = (self.change, self.change, self.change, self.look, self.look, self.look,
                 self.beside, self.renew, self.prune)  # fmt: skip
        weights = (9, 9, 9, 9, 9, 9, 5, 1, 3)
        for _ in range(steps):
            [deed] = self.random.choices(deeds, weights)
            await deed()


def lives(seed: int) -> Iterator[Story]:
    """One store through several lives; its story after each."""
    story, disk, engine = Story(seed), SimulatedDisk(), MemoryEngine()
    for life in range(4):

        async def live(life: int = life, disk: SimulatedDisk = disk) -> SimulatedDisk:
            node = story.node = await start(
                settings(), simulated_environment("stepped", disk, engine, seed + life)
            )
            try:
                assert node.store.log is not None
                node.store.log.state.sizes = LogSizes(segment_frames=8)
                if not life:
                    await prepare(node)
                await story.live(60)
                return disk if story.random.random() < 0.5 else disk.killed()
            finally:
                await node.stop()

        left = play("stepped", live, seed + life)
        if left is not disk:
            engine.crash()
        disk = left
        yield story


@pytest.mark.parametrize("seed", some_of(range(24), 6))
def test_histories_are_what_happened(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "FEW", 3)
    monkeypatch.setattr(history, "PART_CHANGES", 2)
    monkeypatch.setattr(history, "PART_FRAMES", 8)
    monkeypatch.setattr(history, "STRIDE", 4)
    monkeypatch.setattr(limits, "HISTORY_FRAMES", 60)
    for story in lives(seed):
        assert story.asked
