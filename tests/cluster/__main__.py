"""`python -m tests.cluster up|status|kill|pause|resume|cut|heal|chaos|down`: see the Makefile."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

from tests.cluster import building, chaos, processes
from tests.cluster.asking import ClusterClient, NodeRefused, ResultUnknown, leads
from tests.cluster.faults import around
from tests.cluster.histories.clients import Wrong
from tests.cluster.plan import ENVIRONMENT, ETCD, ClusterPlan, NoCluster, NodeAt, draw, load
from tests.cluster.processes import NETWORK, NotStarted, pid_of

ROOT: Final = Path(__file__).parents[2]
LEADER: Final = "leader"
"""Stands for the leader, in place of a node's name."""


def main() -> int:
    """Run the command. Return 1 if it failed."""
    words = argparse.ArgumentParser(prog="python -m tests.cluster")
    words.add_argument(
        "act",
        choices=["up", "status", "kill", "pause", "resume", "cut", "heal", "chaos", "down"],
    )
    words.add_argument("--directory", type=Path, default=ROOT / "cluster")
    words.add_argument("--nodes", type=int, default=3)
    words.add_argument("--node", default="1", help="node to act on: 1, n1 or leader")
    words.add_argument("--minutes", type=float, default=5)
    words.add_argument("--seed", type=int, default=1)
    asked = words.parse_args()
    try:
        return do(asked, asked.directory.resolve())
    except (NoCluster, NotStarted, NodeRefused, ResultUnknown) as error:
        print(error, file=sys.stderr)
        return 1
    except Wrong as error:
        print(f"WRONG: {error}", file=sys.stderr)
        return 1


def do(asked: argparse.Namespace, directory: Path) -> int:
    if asked.act == "up":
        return up(directory, asked.nodes)
    plan = load(directory)
    if asked.act == "status":
        print(status(plan))
    elif asked.act == "chaos":
        print(chaos.run(plan, asked.minutes, asked.seed, print))
    elif asked.act == "down":
        down(plan)
    elif asked.act == "heal":
        processes.cut(plan, [])
        processes.delay(plan, [], 0)
        print(status(plan))
    else:
        node = ClusterClient(plan).leader() if asked.node == LEADER else plan.node(asked.node)
        if node is None:
            raise NoCluster("no node leads at the moment: `make cluster-status` shows the roles")
        if asked.act == "cut":
            processes.cut(plan, around(plan, node, ETCD))
        elif asked.act == "kill":
            processes.end(plan, node.name)
        elif asked.act == "pause":
            processes.send(plan, node.name, signal.SIGSTOP)
        elif pid_of(plan, node.name) is None:
            processes.start_node(plan, node)
        else:
            processes.send(plan, node.name, signal.SIGCONT)
        print(status(plan))
    return 0


def up(directory: Path, count: int) -> int:
    """Create a cluster, or start the existing one."""
    whole = directory / "whole"
    if whole.exists():
        plan = load(directory)
        plan.save()  # one that an earlier version has begun has less beside it
        again(plan)
    else:
        begun = (directory / "plan.json").exists()
        plan = load(directory) if begun else draw(directory, count)
        building.build(plan, print)
        whole.touch()
    print(told(plan))
    return 0


def again(plan: ClusterPlan) -> None:
    """Start the processes of a cluster that do not run."""
    building.start_what_lacks(plan)
    for node in plan.nodes:
        if pid_of(plan, node.name) is None:
            processes.start_node(plan, node)


def down(plan: ClusterPlan) -> None:
    """End all processes and remove the cluster."""
    for name in (*(node.name for node in plan.nodes), ETCD, NETWORK):
        processes.end(plan, name, signal.SIGTERM if name not in (ETCD, NETWORK) else signal.SIGKILL)
    shutil.rmtree(plan.directory)


def status(plan: ClusterPlan) -> str:
    """Return a line for each process, and one for cut links."""
    lines = [f"{node.name}: {_standing(plan, node)}" for node in plan.nodes]
    lines.append(f"etcd: {'runs' if pid_of(plan, ETCD) else 'does not run'}")
    alone = [node.name for node in plan.nodes if _is_cut_off(plan, node)]
    if alone:
        lines.append(f"cut off from all others: {', '.join(alone)} (make cluster-heal)")
    return "\n".join(lines)


def _standing(plan: ClusterPlan, node: NodeAt) -> str:
    """Describe the role of a node, as it reports."""
    number = node.name.removeprefix("n")
    if pid_of(plan, node.name) is None:
        return f"does not run (make cluster-resume N={number})"
    if processes.is_paused(plan, node.name):
        return f"is paused (make cluster-resume N={number})"
    asker = ClusterClient(plan)
    try:
        info = asker.value(node, "INFO FOR NODE")
        state = asker.value(node, "INFO FOR STATE")
    except (NodeRefused, ResultUnknown) as error:
        return str(error).removeprefix(f"{node.name} ")
    does = "leads" if leads(info) else info["upstream"] or info["life"]
    waits = f"; waiting for: {info['waits_for']}" if info["waits_for"] else ""
    return f"{does}, at sequence {state['sequence']}{waits}"


def _is_cut_off(plan: ClusterPlan, node: NodeAt) -> bool:
    return any(node.name in pair and ETCD in pair for pair in processes.cuts(plan))


def told(plan: ClusterPlan) -> str:
    """Describe how to connect to the cluster."""
    consoles = "\n".join(
        f"  {node.name}  console http://127.0.0.1:{node.http}/  wire 127.0.0.1:{node.wire}"
        for node in plan.nodes
    )
    return (
        f"{consoles}\n  user {plan.user}, password {plan.password}\n"
        f"  to set all of that in a shell:  . {plan.directory.name}/{ENVIRONMENT}\n"
        "  .venv/bin/storenode shell $N1                statements on n1\n"
        "  .venv/bin/python -m examples.cluster.count   writes numbers, and looks for them\n"
        "  make cluster-status, cluster-kill N=leader, cluster-resume N=1, cluster-pause N=1,"
        " cluster-cut N=1, cluster-heal, cluster-chaos MINUTES=5, cluster-down"
    )


if __name__ == "__main__":
    sys.exit(main())
