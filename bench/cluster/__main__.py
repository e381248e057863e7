"""`python -m bench.cluster up|status|kill|pause|resume|cut|heal|chaos|down`: see the Makefile."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

from bench.cluster import building, chaos, processes
from bench.cluster.asking import Asker, Refused, Unknown, leads
from bench.cluster.plan import ETCD, NoCluster, Plan, draw, load
from bench.cluster.processes import NETWORK, NotStarted, pid_of

ROOT: Final = Path(__file__).parents[2]


def main() -> int:
    """What is asked for; 1 where it did not come out."""
    words = argparse.ArgumentParser(prog="python -m bench.cluster")
    words.add_argument(
        "act",
        choices=["up", "status", "kill", "pause", "resume", "cut", "heal", "chaos", "down"],
    )
    words.add_argument("--directory", type=Path, default=ROOT / "cluster")
    words.add_argument("--nodes", type=int, default=3)
    words.add_argument("--node", default="1", help="number or name of the one it is done to")
    words.add_argument("--minutes", type=float, default=5)
    words.add_argument("--seed", type=int, default=1)
    asked = words.parse_args()
    try:
        return do(asked, asked.directory.resolve())
    except (NoCluster, NotStarted, Refused, Unknown) as error:
        print(error, file=sys.stderr)
        return 1
    except chaos.Wrong as error:
        print(f"WRONG: {error}", file=sys.stderr)
        return 1


def do(asked: argparse.Namespace, directory: Path) -> int:
    """One act."""
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
    else:
        node = plan.node(asked.node)
        if asked.act == "cut":
            ends = [ETCD, *(one.name for one in plan.nodes if one != node)]
            processes.cut(plan, [pair for end in ends for pair in _both(node.name, end)])
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
    """A cluster, new, or the one that was there."""
    whole = directory / "whole"
    if whole.exists():
        plan = load(directory)
        again(plan)
    else:
        if (directory / "plan.json").exists():
            down(load(directory))  # one that was begun, and came to nothing
        plan = draw(directory, count)
        building.build(plan, print)
        whole.touch()
    print(told(plan))
    return 0


def again(plan: Plan) -> None:
    """Start what of a cluster does not run."""
    if pid_of(plan, NETWORK) is None:
        (plan.directory / "network.ready").unlink(missing_ok=True)
        processes.start_network(plan)
    if pid_of(plan, ETCD) is None:
        processes.start_etcd(plan)
    for node in plan.nodes:
        if pid_of(plan, node.name) is None:
            processes.start_node(plan, node)


def down(plan: Plan) -> None:
    """End everything and remove it."""
    for name in (*(node.name for node in plan.nodes), ETCD, NETWORK):
        processes.end(plan, name, signal.SIGTERM if name not in (ETCD, NETWORK) else signal.SIGKILL)
    shutil.rmtree(plan.directory)


def status(plan: Plan) -> str:
    """One line for each process."""
    lines = []
    asker = Asker(plan)
    for node in plan.nodes:
        if pid_of(plan, node.name) is None:
            lines.append(f"{node.name}: does not run")
            continue
        try:
            info = asker.value(node, "INFO FOR NODE")
            state = asker.value(node, "INFO FOR STATE")
        except (Refused, Unknown) as error:
            lines.append(f"{node.name}: {error}")
            continue
        does = "leads" if leads(info) else info["upstream"] or info["waits_for"] or info["life"]
        lines.append(f"{node.name}: {does}, at sequence {state['sequence']}")
    lines.append(f"etcd: {'runs' if pid_of(plan, ETCD) else 'does not run'}")
    return "\n".join(lines)


def told(plan: Plan) -> str:
    """How to use it."""
    consoles = "\n".join(
        f"  {node.name}  console http://127.0.0.1:{node.http}/  wire 127.0.0.1:{node.wire}"
        for node in plan.nodes
    )
    addresses = ",".join(f"127.0.0.1:{node.wire}" for node in plan.nodes)
    return (
        f"{consoles}\n  user {plan.user}, password {plan.password}\n"
        f'  from storeclient import Client; Client("{addresses}", user="{plan.user}", …)\n'
        "  make cluster-status, cluster-kill N=1, cluster-resume N=1, cluster-pause N=1,"
        " cluster-cut N=1, cluster-heal, cluster-chaos MINUTES=5, cluster-down"
    )


def _both(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


if __name__ == "__main__":
    sys.exit(main())
