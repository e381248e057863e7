"""Chaos test: load, faults, and a check of the outcome, as in Jepsen.

Clients write and read all kinds of `histories`. Meanwhile `faults.py` breaks nodes, links, disks,
clocks and etcd. In the end all faults are healed. Then every client's history must be valid,
every node must hold all acknowledged writes, and all nodes must have the same state.

For each fault the report shows how long no node accepted a write, from its beginning until it was
healed and a write was accepted. The client that measures this gives each node in turn half a
second, so it waits for an election, not for a paused node.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from tests.cluster import processes
from tests.cluster.asking import ClusterClient, NodeRefused, ResultUnknown
from tests.cluster.faults import CLOCK_JUMPED, Faults
from tests.cluster.histories.banks import Bank
from tests.cluster.histories.clients import PATIENCE_SECONDS, Clients, Wrong
from tests.cluster.histories.counters import Counters
from tests.cluster.histories.history import OperationHistory
from tests.cluster.histories.locks import Locks
from tests.cluster.histories.records import Records
from tests.cluster.histories.registers import Registers
from tests.cluster.histories.topics import TopicHistory
from tests.cluster.plan import ClusterPlan, NodeAt


def every_history() -> Sequence[OperationHistory]:
    """Return a new history of each kind."""
    return Records(), Registers(), Counters(), Bank(), Locks(), TopicHistory()


def run(plan: ClusterPlan, minutes: float, seed: int, said: Callable[[str], None]) -> str:
    """Run the test. Return the report.

    :raises Wrong: an invariant is violated
    """
    chance = random.Random(seed)
    clients, faults = Clients(plan, every_history(), seed), Faults(plan, chance)
    clients.define(writable(plan))
    gaps: dict[str, list[float]] = defaultdict(list)
    if faults.left_out:
        said(f"left out, since they need strace and root, or libfaketime: {faults.left_out}")
    clients.begin()
    ends = time.monotonic() + minutes * 60
    try:
        while time.monotonic() < ends:
            time.sleep(chance.uniform(0.5, 3))
            began = time.monotonic()
            name, done = faults.one()
            if name == CLOCK_JUMPED:
                clients.clocks_differ()
            gap = written_again(clients, began, name)
            gaps[name].append(gap)
            said(f"{name}: {done}; {gap:.1f} s without a write")
    finally:
        clients.end()
    kinds = "\n".join(
        f"{len(each)} × {name}: at most {max(each):.1f} s without a write"
        for name, each in sorted(gaps.items())
    )
    return f"{kinds}\n{judge(plan, clients)}"


def written_again(clients: Clients, began: float, name: str) -> float:
    """Wait until a write is accepted. Return the longest time without one since a fault began."""
    healed = time.monotonic()
    processes.wait_for(lambda: clients.probe.last > healed, f"no write was accepted after {name}")
    return clients.probe.longest(began)


def judge(plan: ClusterPlan, clients: Clients) -> str:
    """Check every node after the clients have stopped. Return the report.

    :raises Wrong: an invariant is violated
    """
    upto = level(plan)
    wrong = clients.judge(writable(plan))
    wrong += differing(plan)
    if wrong:
        raise Wrong("\n".join(wrong))
    return (
        f"{clients.figures}\nall {len(plan.nodes)} nodes hold all acknowledged writes, the"
        f" histories are consistent, and the states are equal from {upto} on"
    )


def level(plan: ClusterPlan) -> int:
    """Wait until all nodes have applied the leader's newest sequence. Return that sequence."""
    asker = ClusterClient(plan, PATIENCE_SECONDS)
    upto = 0

    def is_said() -> bool:
        nonlocal upto
        upto = _stands(asker, writable(plan))
        return upto > 0  # not: the lead moves, say

    processes.wait_for(is_said, "no leader reports its sequence")
    for node in plan.nodes:
        processes.wait_for(
            lambda: _stands(asker, node) >= upto,  # noqa: B023
            f"{node.name} does not reach sequence {upto}",
        )
    return upto


def differing(plan: ClusterPlan) -> list[str]:
    """Describe states that differ between nodes at the same sequence.

    :raises processes.NotStarted: the nodes are never all at one sequence
    """
    asker = ClusterClient(plan, PATIENCE_SECONDS)
    states: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def are_compared() -> bool:
        for node in plan.nodes:
            try:
                state = asker.value(node, "INFO FOR STATE")
            except (NodeRefused, ResultUnknown):
                return False  # the lead moves, say: it is asked again
            states[state["sequence"]][state["hash"]].add(node.name)
        return any(
            {name for names in hashes.values() for name in names} == {n.name for n in plan.nodes}
            for hashes in states.values()
        )

    processes.wait_for(are_compared, "the nodes never reach the same sequence")
    return [
        f"states differ at {sequence}: {dict(hashes)}"
        for sequence, hashes in states.items()
        if len(hashes) > 1
    ]


def writable(plan: ClusterPlan) -> NodeAt:
    """Wait for a leader and return it."""
    asker = ClusterClient(plan)
    processes.wait_for(lambda: asker.leader() is not None, "no node leads: see make cluster-status")
    found = asker.leader()
    return writable(plan) if found is None else found


def _stands(asker: ClusterClient, node: NodeAt) -> int:
    try:
        return int(asker.value(node, "INFO FOR STATE")["sequence"])
    except (NodeRefused, ResultUnknown):
        return -1
