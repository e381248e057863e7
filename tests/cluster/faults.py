"""Faults that are injected into a cluster at random (nemesis). Each undoes itself and describes
itself.

Nodes are killed, paused, restarted and replaced; links are cut in one direction or both, and slow;
disks are full or slow; wall clocks jump; etcd is stopped, paused and emptied. Disks need strace and
root, clocks libfaketime: without them these kinds are left out, and named.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.cluster import building, processes, tracing
from tests.cluster.asking import ClusterClient
from tests.cluster.clocks import LIBRARY, Clock
from tests.cluster.plan import ETCD, ClusterPlan, NodeAt

Pair = tuple[str, str]
HOUR_SECONDS: Final = 3_600
CLOCK_JUMPED: Final = "clock_jumped"
"""Name of the fault after which the clocks of nodes may have differed."""


class Faults:
    """Kinds of faults, one per method.

    :ivar kinds: names of those that can be injected here
    :ivar left_out: names of the others
    """

    def __init__(self, plan: ClusterPlan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._asker = ClusterClient(plan)
        every = [one for one in vars(Faults) if not one.startswith("_") and one != "one"]
        unable = set[str]()
        if not tracing.is_available():
            unable |= {"disk_full", "slow_disk"}
        if LIBRARY is None:
            unable.add(CLOCK_JUMPED)
        self.kinds = [one for one in every if one not in unable]
        self.left_out = sorted(unable)
        self._next: list[str] = []
        """Kinds of this round that are left."""

    def one(self) -> tuple[str, str]:
        """Inject a random fault, each kind once before any comes again. Return its name and a
        description."""
        if not self._next:
            self._next = self._chance.sample(self.kinds, len(self.kinds))
        name = self._next.pop()
        act: Callable[[], str] = getattr(self, name)
        return name, act()

    def leader_killed(self) -> str:
        return self._killed(self._leader())

    def follower_killed(self) -> str:
        return self._killed(self._chance.choice(self._plan.others(self._leader())))

    def leader_paused(self) -> str:
        """Pause the leader (SIGSTOP) for longer than the lease."""
        return self._paused(self._leader().name)

    def follower_paused(self) -> str:
        """Pause a follower (SIGSTOP) for longer than the lease."""
        return self._paused(self._chance.choice(self._plan.others(self._leader())).name)

    def leader_cut_off(self) -> str:
        """Cut the leader off from nodes and etcd, in both directions (network partition)."""
        return self._cut(around(self._plan, self._leader(), ETCD))

    def leader_is_not_heard(self) -> str:
        """Cut all messages from the leader; it still receives (asymmetric partition)."""
        node = self._leader()
        return self._cut([pair for pair in around(self._plan, node, ETCD) if pair[0] == node.name])

    def leader_does_not_hear(self) -> str:
        """Cut all messages to the leader; it still sends (asymmetric partition)."""
        node = self._leader()
        return self._cut([pair for pair in around(self._plan, node, ETCD) if pair[1] == node.name])

    def leader_from_etcd(self) -> str:
        """Cut the leader off from etcd, but not from the other nodes."""
        name = self._leader().name
        return self._cut([(name, ETCD), (ETCD, name)])

    def one_way(self, link: Pair | None = None) -> str:
        """Cut the messages from one node to another.

        :param link: their names; None: any two nodes
        """
        one, other = self._chance.sample(self._plan.nodes, 2)
        return self._cut([link or (one.name, other.name)])

    def slow_links(self) -> str:
        """Delay all messages to and from one node, by up to a tenth of the time for which it may be
        silent.

        A write waits up to a fifth of that time for it, so a client that gives each node half a
        second still sees it accepted.
        """
        node = self._chance.choice(self._plan.nodes)
        late = self._chance.uniform(0.02, 0.1) * self._plan.failover.behind
        processes.delay(self._plan, around(self._plan, node, ETCD), late)
        time.sleep(self._plan.failover.lease * 2)
        processes.delay(self._plan, [], 0)
        return f"all links of {node.name} were delayed by {late * 1000:.0f} ms"

    def etcd_killed(self) -> str:
        """Stop etcd for longer than a lease."""
        processes.end(self._plan, ETCD)
        began = time.monotonic()
        time.sleep(self._plan.failover.lease * 1.5)
        processes.start_etcd(self._plan)
        return f"etcd was down for {time.monotonic() - began:.1f} s"

    def etcd_paused(self) -> str:
        """Pause etcd (SIGSTOP) for as long: its connections stay open, but it answers nothing."""
        return self._paused(ETCD)

    def etcd_emptied(self) -> str:
        """Empty etcd: no node leads until an operator names the one with the longest log."""
        processes.end(self._plan, ETCD)
        shutil.rmtree(self._plan.directory / ETCD)
        processes.start_etcd(self._plan)
        began = time.monotonic()
        processes.wait_for(lambda: self._asker.leader() is None, "a node leads by an empty etcd")
        name = building.name_leader(self._plan)
        for node in self._plan.nodes:
            self._wait_for_sync(node)
        return f"{name} was named; all were in sync after {time.monotonic() - began:.1f} s"

    def disk_full(self) -> str:
        """Refuse all writes of a node to its log, for lack of room."""
        node = self._chance.choice(self._plan.nodes)
        logs = sorted((self._plan.directory / node.name).rglob("*.storelog"))
        return self._injected(node, tracing.WRITES, "error=ENOSPC", logs, "full")

    def slow_disk(self) -> str:
        """Delay all syncs of a node, by up to a quarter of the time for which it may be silent."""
        node = self._chance.choice(self._plan.nodes)
        late_us = int(self._chance.uniform(0.05, 0.25) * self._plan.failover.behind * 1_000_000)
        late = f"delay_enter={late_us}"
        return self._injected(node, tracing.SYNCS, late, [], f"{late_us // 1_000} ms late")

    def clock_jumped(self) -> str:
        """Set the wall clock of a node by hours while it runs, and back again."""
        node = self._chance.choice(self._plan.nodes)
        clock, hours = Clock(self._plan.directory), self._chance.choice((-3, -1, 1, 2))
        self._restarted(replace(node, environment={**node.environment, **clock.environment()}))
        for offset in (hours, 0):
            clock.move(offset * HOUR_SECONDS)
            time.sleep(self._plan.failover.lease)
        self._restarted(node)
        return f"the clock of {node.name} was {hours:+d} h away"

    def follower_replaced(self) -> str:
        """Drop a follower, and have it join again with an empty directory (membership change)."""
        node = self._chance.choice(self._plan.others(self._leader()))
        began = time.monotonic()
        processes.end(self._plan, node.name)
        building.join_again(self._plan, node)
        self._wait_for_sync(node)
        return f"{node.name} was in sync again after {time.monotonic() - began:.1f} s"

    def all_killed(self) -> str:
        for node in self._plan.nodes:
            processes.send(self._plan, node.name, signal.SIGKILL)
        for node in self._plan.nodes:
            processes.end(self._plan, node.name)
        began = time.monotonic()
        for node in self._plan.nodes:
            processes.start_node(self._plan, node)
        return f"the last was up again after {time.monotonic() - began:.1f} s"

    def rolling_restart(self) -> str:
        """Stop and restart the nodes in order, each once the one before is in sync."""
        began = time.monotonic()
        for node in self._plan.nodes:
            self._restarted(node)
            self._wait_for_sync(node)
        return f"all were in sync again after {time.monotonic() - began:.1f} s"

    def _leader(self) -> NodeAt:
        return self._asker.leader() or self._chance.choice(self._plan.nodes)

    def _restarted(self, node: NodeAt) -> None:
        processes.end(self._plan, node.name, signal.SIGTERM)
        processes.start_node(self._plan, node)

    def _wait_for_sync(self, node: NodeAt) -> None:
        processes.wait_for(
            lambda: self._asker.is_in_sync(node), f"{node.name} does not get in sync"
        )

    def _injected(
        self, node: NodeAt, calls: Sequence[str], fault: str, files: Sequence[Path], told: str
    ) -> str:
        pid, seconds = processes.pid_of(self._plan, node.name), self._plan.failover.lease * 2
        if pid is None:
            raise processes.NotStarted(f"{node.name} does not run")
        with tracing.injected(pid, calls, fault, files):
            time.sleep(seconds)
        return f"the disk of {node.name} was {told} for {seconds} s"

    def _killed(self, node: NodeAt) -> str:
        processes.end(self._plan, node.name)
        began = time.monotonic()
        time.sleep(self._chance.uniform(0, self._plan.failover.lease))
        processes.start_node(self._plan, node)
        return f"{node.name} was up again after {time.monotonic() - began:.1f} s"

    def _paused(self, name: str) -> str:
        seconds = self._plan.failover.lease * 2
        processes.send(self._plan, name, signal.SIGSTOP)
        time.sleep(seconds)
        processes.send(self._plan, name, signal.SIGCONT)
        return f"{name} was paused for {seconds} s"

    def _cut(self, pairs: Sequence[Pair]) -> str:
        seconds = self._chance.uniform(0.5, self._plan.failover.lease * 2)
        processes.cut(self._plan, pairs)
        time.sleep(seconds)
        processes.cut(self._plan, [])
        return f"{', '.join(' → '.join(pair) for pair in pairs)} cut for {seconds:.1f} s"


def around(plan: ClusterPlan, node: NodeAt, *more: str) -> list[Pair]:
    """Return all links of a node to the others, in both directions.

    :param more: ends other than nodes
    """
    ends = [*(one.name for one in plan.others(node)), *more]
    return [(node.name, end) for end in ends] + [(end, node.name) for end in ends]
