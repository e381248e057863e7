"""A store on a disk that lets nobody write any more, though it shows room: of its inodes, or of
somebody's quota. Round after round, with stops, kills and starts in that state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.processes import START_SECONDS, NodeProcess, StartFailed
from tests.reliability import faulty, workload
from tests.reliability.test_disk_full import LOOKS, RIG_ERRORS, wait_until_writable
from tests.reliability.workload import Broken, Promises

CAUGHT = (*RIG_ERRORS, StartFailed)
"""What a planted fault is seen by."""


class Takes(Protocol):
    """Somebody else, who needs what there is."""

    def take(self, leave: int) -> None:
        """All but so many bytes."""

    def give_back(self) -> None:
        """All of it."""


@dataclass
class Rounds:
    """The whole of it on one disk.

    :ivar leaves: what somebody leaves in each round, in bytes
    :ivar ready: waits until a round may begin
    """

    store: Path
    somebody: Takes
    leaves: Sequence[int]
    padding: int = 0
    ready: Callable[[NodeProcess], None] = wait_until_writable
    reads: int = 0
    starts: int = 0

    def run(self, faults: str) -> Promises:
        """All rounds, and the end. :raises Broken: a promise was not kept"""
        promises = Promises()

        def process() -> NodeProcess:
            return NodeProcess(self.store, more={faulty.FAULTS: faults}, module=faulty.MODULE)

        node = process().start()
        try:
            workload.setup(node)
            with workload.writing(node, promises, scripts=20, padding=self.padding) as writers:
                for writer in writers:
                    writer.join(START_SECONDS)
            for number, leave in enumerate(self.leaves):
                self.ready(node)
                self.somebody.take(leave)
                self._refused(node, promises, number)
                if number:  # stopped or killed in that state, and started in it
                    if number % 2:
                        node.kill()
                    else:
                        stopped(node)
                    self.somebody.take(0)
                    node = process().start()
                    self.starts += 1
                    promises.compare(workload.records(node))
                    answer = node.script("CREATE one:never SET mark = 'never'", **workload.PLACE)
                    if answer.get("error", {}).get("code") != "DiskFull":
                        raise Broken(f"without room, after a start: {answer}")
                self.somebody.give_back()
            self.ready(node)
            self.somebody.take(0)
            stopped(node)
        finally:
            node.end()
        self.somebody.give_back()
        workload.settle(promises, self.store, None)
        return promises

    def _refused(self, node: NodeProcess, promises: Promises, number: int) -> None:
        """Every client writes until it hears no; reads go on."""
        with workload.writing(node, promises, seed=number, padding=self.padding) as writers:
            for writer in writers:
                writer.join(3 * START_SECONDS)  # Btrfs writes a tree down at each refusal
                assert not writer.is_alive(), "there is no end of the room"
        codes = {code for writer in writers for code in writer.codes}
        if codes != {"DiskFull"}:
            raise Broken(f"without room the clients heard {codes}")
        looked = time.monotonic()
        while time.monotonic() < looked + LOOKS:  # checkpoints are due once a second here
            promises.compare(workload.records(node))
            self.reads += 1

    def told(self, promises: Promises) -> str:
        return (
            f"{len(self.leaves)}, {len(promises.acknowledged)} acknowledged,"
            f" {len(promises.refused)} refused, {self.reads} whole reads and {self.starts} starts"
            " meanwhile; 0 lost"
        )


def stopped(node: NodeProcess) -> None:
    """Stop it in order. :raises Broken: it says that it could not"""
    if (code := node.stop()) != 0:
        raise Broken(f"without room the node left with {code}: {node.lines[-4:]}")
