"""From nothing to a secured cluster, by public statements alone: what a person would type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.cluster import processes
from bench.cluster.asking import Asker, Refused, Unknown
from bench.cluster.plan import NodeAt, Plan

ROLES: Final = "serving, writable, coordinating"
ANSWER_SECONDS: Final = 30.0
"""How long each step is waited for: a machine that does much else takes its time."""


def build(plan: Plan, said: Callable[[str], None]) -> None:
    """Start everything and make a cluster of it. :raises processes.NotStarted:"""
    plan.save()
    processes.start_network(plan)
    processes.start_etcd(plan)
    said(f"etcd at http://127.0.0.1:{plan.etcd}")
    first, *others = plan.nodes
    processes.start_node(plan, first)
    asker = Asker(plan, ANSWER_SECONDS)
    declare(asker, first, others)
    said(f"{first.name} runs, and {len(plan.nodes)} rows are declared")
    for node in others:
        token = asker.value(first, f"CREATE JOIN TOKEN FOR {node.name}")["token"]
        path = plan.directory / f"{node.name}.token"
        path.touch(mode=0o600)
        path.write_text(token)
        processes.start_node(plan, node, "--join", str(path))
        said(f"{node.name} has joined with its token")
    processes.wait_for(
        lambda: _follow(asker, first, len(others)), f"not all follow: {plan.directory}/*.log"
    )
    processes.wait_for(lambda: _is_in_force(asker, first), "the policy does not come into force")
    processes.wait_for(lambda: asker.leader() is not None, "nobody took the lead")
    disks = plan.failover.acks + 1
    said(f"failover is on: each write is on {disks} disks before it is answered")


def declare(asker: Asker, first: NodeAt, others: list[NodeAt]) -> None:
    """The rows, in one transaction. The first says which node it is; the others wait for theirs."""
    id = asker.value(first, "INFO FOR NODE")["id"]
    rows = [_row(first) + f" NODE '{id}' ROLES {ROLES}"]
    rows += [_row(node) + f" ROLES {ROLES}" for node in others]
    asker.script(first, "BEGIN; " + "; ".join(rows) + "; COMMIT")


def _row(node: NodeAt) -> str:
    return (
        f"DEFINE REPLICA {node.name} PEER '127.0.0.1:{node.outside}'"
        f" ENDPOINTS '127.0.0.1:{node.wire}', '127.0.0.1:{node.http}'"
    )


def _follow(asker: Asker, first: NodeAt, count: int) -> bool:
    try:
        told = asker.value(first, "INFO FOR NODE")
    except (Refused, Unknown):
        return False
    return bool(told["followers"] == count)


def _is_in_force(asker: Asker, first: NodeAt) -> bool:
    plan = asker.plan
    if asker.leader() is not None:
        return True  # an answer that came too late had done it, and by now another may lead
    try:
        asker.script(first, plan.failover.defined_via(plan.etcd_endpoint))
    except Refused as error:
        if error.code not in ("NotEnoughReplicas", "Busy", "NotWritable"):
            raise  # a follower may not be in sync yet, or the lead just go on; nothing else passes
        return False
    except Unknown:
        return False  # it goes on, and answers the next one
    return True
