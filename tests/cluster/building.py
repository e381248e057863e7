"""Builds a secured cluster from nothing, with public statements only, as an administrator would."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.cluster import processes
from tests.cluster.asking import ClusterClient, NodeRefused, ResultUnknown
from tests.cluster.plan import ETCD, ClusterPlan, NodeAt

ROLES: Final = "serving, writable, coordinating"
ANSWER_SECONDS: Final = 30.0
"""Timeout of each step, seconds: long enough for a busy machine."""


def build(plan: ClusterPlan, said: Callable[[str], None]) -> None:
    """Start all processes and form a cluster, or resume an interrupted build.

    A completed step is not repeated; one whose answer did not come is sent again.

    :raises processes.NotStarted: a step was not done in time, even when it was repeated
    """
    plan.save()
    start_what_lacks(plan)
    said(f"etcd at http://127.0.0.1:{plan.etcd}")
    first, *others = plan.nodes
    asker = ClusterClient(plan, ANSWER_SECONDS)
    if processes.pid_of(plan, first.name) is None:
        processes.start_node(plan, first)
    _until(lambda: _is_declared(asker, first, others), "the replicas were not declared in time")
    said(f"{first.name} runs, and {len(plan.nodes)} replicas are declared")
    for node in others:
        _until(partial(_has_joined, asker, first, node), f"{node.name} has not joined")
        said(f"{node.name} has joined with its token")
    _until(
        lambda: _follow(asker, first, len(others)) or asker.leader() not in (None, first),
        f"not all nodes follow the leader: {plan.directory}/*.log",
    )
    _until(
        lambda: _is_in_force(asker, first), "the failover policy did not come into force in time"
    )
    _until(lambda: asker.leader() is not None, "no node took the lead in time")
    # The others become followers by the policy: earlier writes may be refused.
    _until(lambda: all(map(asker.is_in_sync, plan.nodes)), "not all nodes are in sync")
    disks = plan.failover.acks + 1
    said(f"failover is on: each write is on {disks} disks before it is answered")


def start_what_lacks(plan: ClusterPlan) -> None:
    """Start the network and etcd if they do not run.

    :raises processes.NotStarted: one does not come up
    """
    if processes.pid_of(plan, processes.NETWORK) is None:
        (plan.directory / "network.ready").unlink(missing_ok=True)
        processes.start_network(plan)
    if processes.pid_of(plan, ETCD) is None:
        processes.start_etcd(plan)


def join_again(plan: ClusterPlan, node: NodeAt) -> None:
    """Drop a node that does not run, and have it join with an empty directory.

    :raises processes.NotStarted: a step was not done in time, even when it was repeated
    """
    asker = ClusterClient(plan, ANSWER_SECONDS)
    shutil.rmtree(plan.directory / node.name)
    _until(partial(_is_declared_anew, asker, node), f"{node.name} was not declared in time")

    def has_joined() -> bool:
        leader = asker.leader()
        return leader is not None and _has_joined(asker, leader, node)

    _until(has_joined, f"{node.name} has not joined")


def _is_declared_anew(asker: ClusterClient, node: NodeAt) -> bool:
    """True once the replica of a node waits for it to join; else take the next step."""
    leader = asker.leader()
    if leader is None:
        return False
    rows = {row["name"]: row for row in asker.value(leader, "INFO FOR CLUSTER")["replicas"]}
    if node.name not in rows:
        asker.script(leader, _row(node) + f" ROLES {ROLES}")
    elif not rows[node.name]["waits"]:
        asker.script(leader, f"DROP REPLICA {node.name}")
    else:
        return True
    return False


def name_leader(plan: ClusterPlan) -> str:
    """Have the node with the longest log lead, after etcd was lost, and put the policy into force
    again. Return its name.

    :raises processes.NotStarted: a step was not done in time, even when it was repeated
    """
    asker = ClusterClient(plan, ANSWER_SECONDS)

    def leads() -> bool:
        if asker.leader() is not None:
            return True
        longest = max(plan.nodes, key=partial(_log_ends, asker))
        asker.script(longest, "DEFINE NODE LEADS STORE FORCE REASON 'etcd was emptied'")
        return asker.leader() is not None

    _until(leads, "no node leads although one was named")

    def is_in_force() -> bool:
        leader = asker.leader()
        if leader is None:
            return False
        asker.script(leader, plan.failover.defined_via(plan.etcd_endpoint))
        return True

    _until(is_in_force, "the failover policy did not come into force again")
    found = asker.leader()
    return "a node" if found is None else found.name


def _log_ends(asker: ClusterClient, node: NodeAt) -> tuple[int, int]:
    ends = asker.value(node, "INFO FOR NODE")["log_ends"]
    return ends["epoch"], ends["sequence"]


def _until(done: Callable[[], bool], what: str) -> None:
    """Repeat a step until it is done.

    :raises processes.NotStarted: it never was; the last answer says why
    """
    last = ""

    def holds() -> bool:
        nonlocal last
        try:
            return done()
        except (NodeRefused, ResultUnknown) as error:
            last = f" ({error})"
            return False

    try:
        processes.wait_for(holds, what)
    except processes.NotStarted as error:
        advice = "the machine may be too busy; run make cluster again to continue"
        raise processes.NotStarted(f"{error}{last}: {advice}") from error


def _is_declared(asker: ClusterClient, first: NodeAt, others: list[NodeAt]) -> bool:
    """True once the replicas are declared; a late answer may have declared them already."""
    rows = {row["name"] for row in asker.value(first, "INFO FOR CLUSTER")["replicas"]}
    if not rows >= {node.name for node in (first, *others)}:
        declare(asker, first, others)
    return True


def _has_joined(asker: ClusterClient, first: NodeAt, node: NodeAt) -> bool:
    """True if the node runs; otherwise start it, with a join token if its replica has not joined
    yet."""
    plan, words = asker.plan, tuple[str, ...]()
    if processes.pid_of(plan, node.name) is not None:
        return True
    rows = asker.value(first, "INFO FOR CLUSTER")["replicas"]
    if any(row["name"] == node.name and row["waits"] for row in rows):
        token = asker.value(first, f"CREATE JOIN TOKEN FOR {node.name}")["token"]
        path = plan.directory / f"{node.name}.token"
        path.touch(mode=0o600)
        path.write_text(token)
        words = "--join", str(path)
    processes.start_node(plan, node, *words)
    return True


def declare(asker: ClusterClient, first: NodeAt, others: list[NodeAt]) -> None:
    """Declare the replicas, in one transaction. The first names the id of its node; the others have
    yet to join."""
    id = asker.value(first, "INFO FOR NODE")["id"]
    rows = [_row(first) + f" NODE '{id}' ROLES {ROLES}"]
    rows += [_row(node) + f" ROLES {ROLES}" for node in others]
    asker.script(first, "BEGIN; " + "; ".join(rows) + "; COMMIT")


def _row(node: NodeAt) -> str:
    return (
        f"DEFINE REPLICA {node.name} PEER '127.0.0.1:{node.outside}'"
        f" ENDPOINTS '127.0.0.1:{node.wire}', '127.0.0.1:{node.http}'"
    )


def _follow(asker: ClusterClient, first: NodeAt, count: int) -> bool:
    return bool(asker.value(first, "INFO FOR NODE")["followers"] == count)


def _is_in_force(asker: ClusterClient, first: NodeAt) -> bool:
    plan = asker.plan
    if asker.leader() is not None:
        return True  # an answer that came too late had done it, and by now another may lead
    asker.script(first, plan.failover.defined_via(plan.etcd_endpoint))
    return True
