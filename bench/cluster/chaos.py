"""Load, faults, and the judgement of what became of it.

Writers create records with numbers that nobody uses twice, move money between accounts and count.
Beside them nodes are killed and paused, links are cut, etcd goes away. In the end all is whole
again, and every node has to hold every record that was acknowledged, no money may have come or
gone, every acknowledged step of the counter is in it, and the states of all nodes are the same.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.cluster import processes
from bench.cluster.asking import PLACE, Asker, Refused, Unknown
from bench.cluster.plan import ETCD, LEASE_SECONDS, NodeAt, Plan

ACCOUNTS: Final = 10
EACH: Final = 1_000
PAUSE_SECONDS: Final = 0.05
"""Between two tries of a writer that was refused."""

PREPARE: Final = f"""
DEFINE NAMESPACE IF NOT EXISTS chaos; DEFINE DATABASE IF NOT EXISTS chaos.chaos; USE chaos.chaos;
DEFINE TABLE IF NOT EXISTS seen; DEFINE TABLE IF NOT EXISTS account;
DEFINE TABLE IF NOT EXISTS step;
FOR $n IN 0..{ACCOUNTS} {{ UPSERT account:[$n] SET money = {EACH} }};
UPSERT step:1 SET count = 0; DELETE seen
"""
MOVE: Final = """
BEGIN; UPDATE account:[$from] SET money -= $much; UPDATE account:[$to] SET money += $much; COMMIT
"""


class Wrong(Exception):
    """A promise does not hold; the text says which."""


@dataclass
class Told:
    """What the writers heard."""

    acknowledged: set[int] = field(default_factory=set)
    unknown: int = 0
    refused: int = 0
    steps: int = 0
    """Acknowledged steps of the counter, …"""
    perhaps: int = 0
    """… and those of which nobody knows."""
    last: float = field(default_factory=time.monotonic)
    """When something was acknowledged last."""
    _gap: float = 0.0

    def acknowledge(self) -> None:
        """Something was acknowledged."""
        now = time.monotonic()
        self._gap, self.last = max(self._gap, now - self.last), now

    def longest(self) -> float:
        """The longest time without an acknowledgement since this was asked last, in seconds."""
        gap, self._gap = self._gap, 0.0
        return gap


class Writers:
    """So many threads that write, wherever somebody leads."""

    def __init__(self, plan: Plan, seed: int, count: int = 4) -> None:
        self.told = Told()
        self._asker = Asker(plan)
        self._plan = plan
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._next = 0
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(seed + number),), daemon=True)
            for number in range(count)
        ]

    def begin(self) -> None:
        """Write from now on."""
        for thread in self._threads:
            thread.start()

    def end(self) -> Told:
        """Write no more; what was heard."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        return self.told

    def _write(self, chance: random.Random) -> None:
        node = chance.choice(self._plan.nodes)
        while not self._over.is_set():
            try:
                self._one(chance, node)
            except Refused:
                with self._lock:
                    self.told.refused += 1
                node = chance.choice(self._plan.nodes)
                time.sleep(PAUSE_SECONDS)
            except Unknown:
                node = chance.choice(self._plan.nodes)

    def _one(self, chance: random.Random, node: NodeAt) -> None:
        kind = chance.random()
        if kind < 0.6:
            with self._lock:
                self._next += 1
                number = self._next
            self._ask(node, "CREATE seen:[$n] SET n = $n RETURN NONE", {"n": number})
            with self._lock:
                self.told.acknowledged.add(number)
        elif kind < 0.8:
            source, to = chance.sample(range(ACCOUNTS), 2)
            self._ask(node, MOVE, {"from": source, "to": to, "much": chance.randrange(20)})
        else:
            try:
                self._ask(node, "UPDATE step:1 SET count += 1 RETURN NONE", {})
            except Unknown:
                with self._lock:
                    self.told.perhaps += 1
                raise
            with self._lock:
                self.told.steps += 1

    def _ask(self, node: NodeAt, text: str, params: dict[str, object]) -> None:
        try:
            self._asker.script(node, text, params=params, **PLACE)
        except Unknown:
            with self._lock:
                self.told.unknown += 1
            raise
        with self._lock:
            self.told.acknowledge()


class Faults:
    """What is done to a cluster. Each method does one thing and undoes it."""

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._asker = Asker(plan)

    def one(self) -> str:
        """Do one of them, chosen by chance; its name."""
        name = self._chance.choice(
            [one for one in vars(Faults) if not one.startswith("_") and one != "one"]
        )
        act: Callable[[], None] = getattr(self, name)
        act()
        return name

    def leader_killed(self) -> None:
        """SIGKILL of who leads."""
        self._killed(self._leader())

    def follower_killed(self) -> None:
        """SIGKILL of another."""
        self._killed(self._chance.choice(self._others()))

    def leader_paused(self) -> None:
        """SIGSTOP for longer than the lease."""
        node = self._leader()
        processes.send(self._plan, node.name, signal.SIGSTOP)
        time.sleep(LEASE_SECONDS * 2)
        processes.send(self._plan, node.name, signal.SIGCONT)

    def leader_cut_off(self) -> None:
        """Nothing goes in or out of who leads, to nodes and etcd."""
        name = self._leader().name
        ends = [one.name for one in self._plan.nodes if one.name != name] + [ETCD]
        self._cut([(name, end) for end in ends] + [(end, name) for end in ends])

    def leader_from_etcd(self) -> None:
        """Who leads can't reach etcd, and reaches the others."""
        name = self._leader().name
        self._cut([(name, ETCD), (ETCD, name)])

    def one_way(self) -> None:
        """Nothing comes from one node to another."""
        one, other = self._chance.sample(self._plan.nodes, 2)
        self._cut([(one.name, other.name)])

    def etcd_killed(self) -> None:
        """etcd is away for longer than a lease."""
        processes.end(self._plan, ETCD)
        time.sleep(LEASE_SECONDS * 1.5)
        processes.start_etcd(self._plan)

    def all_killed(self) -> None:
        """Everybody at once."""
        for node in self._plan.nodes:
            processes.send(self._plan, node.name, signal.SIGKILL)
        for node in self._plan.nodes:
            processes.end(self._plan, node.name)
            processes.start_node(self._plan, node)

    def rolling_restart(self) -> None:
        """Each is stopped in order and started again, once the one before is in sync."""
        for node in self._plan.nodes:
            processes.end(self._plan, node.name, signal.SIGTERM)
            processes.start_node(self._plan, node)
            processes.wait_for(
                lambda: self._asker.is_in_sync(node),  # noqa: B023
                f"{node.name} does not come to be in sync",
            )

    def _leader(self) -> NodeAt:
        return self._asker.leader() or self._chance.choice(self._plan.nodes)

    def _others(self) -> Sequence[NodeAt]:
        leader = self._leader()
        return [node for node in self._plan.nodes if node != leader]

    def _killed(self, node: NodeAt) -> None:
        processes.end(self._plan, node.name)
        time.sleep(self._chance.uniform(0, LEASE_SECONDS))
        processes.start_node(self._plan, node)

    def _cut(self, pairs: Sequence[tuple[str, str]]) -> None:
        processes.cut(self._plan, pairs)
        time.sleep(self._chance.uniform(0.5, LEASE_SECONDS * 2))
        processes.cut(self._plan, [])


def run(plan: Plan, minutes: float, seed: int, said: Callable[[str], None]) -> str:
    """Do it all; what there is to tell. :raises Wrong: a promise does not hold"""
    asker, chance = Asker(plan), random.Random(seed)
    leader = _writable(plan, asker)
    asker.script(leader, PREPARE)
    writers, faults = Writers(plan, seed), Faults(plan, chance)
    gaps: dict[str, list[float]] = {}
    writers.begin()
    ends = time.monotonic() + minutes * 60
    try:
        while time.monotonic() < ends:
            time.sleep(chance.uniform(0.5, 3))
            writers.told.longest()
            name = faults.one()
            healed = time.monotonic()
            processes.wait_for(
                lambda: writers.told.last > healed,  # noqa: B023
                f"nobody writes again after {name}",
            )
            gap = writers.told.longest()
            gaps.setdefault(name, []).append(gap)
            said(f"{name}: at most {gap:.1f} s without a write")
    finally:
        told = writers.end()
    kinds = "\n".join(
        f"{len(each)} × {name}: at most {max(each):.1f} s without a write"
        for name, each in sorted(gaps.items())
    )
    return (
        f"{kinds}\n{len(told.acknowledged)} records and {told.steps} steps acknowledged,"
        f" {told.unknown} with an unknown end, {told.refused} refusals\n{judge(plan, told)}"
    )


def judge(plan: Plan, told: Told) -> str:
    """What became of it, on every node. :raises Wrong:"""
    asker = Asker(plan)
    last = asker.value(_writable(plan, asker), "CREATE seen:[0] SET n = 0; INFO FOR STATE", **PLACE)
    upto = int(last["sequence"])
    states: dict[int, set[str]] = {}
    for node in plan.nodes:
        processes.wait_for(
            lambda: _stands(asker, node) >= upto,  # noqa: B023
            f"{node.name} does not come to {upto}",
        )
        found = set(asker.value(node, "SELECT VALUE n FROM seen", **PLACE))
        if lost := told.acknowledged - found:
            raise Wrong(f"{node.name} has lost {len(lost)} records: {sorted(lost)[:5]} …")
        money = asker.value(node, "SELECT VALUE sum(money) FROM ONLY account GROUP ALL", **PLACE)
        if money != ACCOUNTS * EACH:
            raise Wrong(f"{node.name} has {money} in its accounts, not {ACCOUNTS * EACH}")
        count = asker.value(node, "SELECT VALUE count FROM ONLY step:1", **PLACE)
        if not told.steps <= count <= told.steps + told.perhaps:
            raise Wrong(
                f"{node.name} counted {count}; {told.steps} were acknowledged, and"
                f" {told.perhaps} had an unknown end"
            )
        state = asker.value(node, "INFO FOR STATE")
        states.setdefault(state["sequence"], set()).add(state["hash"])
    if any(len(hashes) > 1 for hashes in states.values()):
        raise Wrong(f"states differ at one sequence: {states}")
    return f"{len(plan.nodes)} nodes hold all of it, and their states are the same"


def _writable(plan: Plan, asker: Asker) -> NodeAt:
    processes.wait_for(lambda: asker.leader() is not None, "nobody leads")
    found = asker.leader()
    assert found is not None
    return found


def _stands(asker: Asker, node: NodeAt) -> int:
    try:
        return int(asker.value(node, "INFO FOR STATE")["sequence"])
    except (Refused, Unknown):
        return -1
