"""Backups of a cluster, with real nodes and a real etcd."""

from __future__ import annotations

import base64
import http.client
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.actors.agreement.etcds import needs_etcd
from tests.cluster import building, processes
from tests.cluster.asking import ClusterClient
from tests.cluster.plan import ETCD, Failover, draw
from tests.cluster.processes import NETWORK
from tests.processes import PASSWORD, USER, environment, run
from tests.reliability.clusters import (
    BEHIND_SECONDS,
    LEASE_SECONDS,
    PLACE,
    Cluster,
    Member,
    cluster,
)

pytestmark = [needs_etcd, pytest.mark.hard, pytest.mark.timeout(300)]
COORDINATES = "DEFINE NODE ROLES serving, writable, coordinating"


def taken(member: Member, path: Path, query: str = "") -> Path:
    """What GET /backup of a node answers, as a file."""
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", member.at.http, timeout=60)
    try:
        connection.request("GET", f"/backup{query}", headers={"Authorization": f"Basic {pair}"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    assert answer.status == 200, body
    path.write_bytes(body)
    return path


def facts(path: Path) -> dict[str, str]:
    """What `--verify` says of a file."""
    said = run("--verify", str(path))
    assert said.returncode == 0, said
    return dict(word.split("=", 1) for word in said.stdout.split() if "=" in word)


def restored(directory: Path, path: Path) -> dict[str, str]:
    """Make a store of a file, or put a log on top of one; what the command says at its end."""
    said = run(str(directory), "--restore", str(path))
    assert said.returncode == 0, said
    found = re.search(r"up to sequence (\d+), .*state (\w+)", said.stdout)
    assert found is not None, said.stdout
    return {"sequence": found[1], "state": found[2]}


def snapshot_as_shown(member: Member, folder: Path) -> tuple[Path, dict[str, str], Any]:
    """A snapshot that no commit came before, what is said of it, and the state of its node then."""
    for attempt in range(50):
        shown = member.script("INFO FOR STATE")[-1]
        snapshot = taken(member, folder / f"{member.name} {attempt}.storesnap")
        told = facts(snapshot)
        if told["sequence"] == str(shown["sequence"]):
            return snapshot, told, shown
    raise AssertionError("something is committed without an end")


def test_every_node_gives_the_same_backup_and_says_where_its_log_stood(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        for number in range(30):
            found.write_until_taken(number)
        found.check()
        # That a backup was taken, and who signed in, has entries in the audit trail: commits.
        for each in (*found.followers(), found.led()):
            snapshot, told, shown = snapshot_as_shown(each, tmp_path)
            assert told["result"] == "whole" and int(told["sequence"]) >= 30
            made = restored(tmp_path / f"of {each.name}", snapshot)
            assert made["sequence"] == told["sequence"]
            assert made["state"] in str(shown), f"{made} is another state than {shown}"
            since = int(told["sequence"]) - 20  # a follower's log begins where it was copied
            query = f"?as=log&from={since}"
            log = facts(taken(each, tmp_path / f"{each.name}.storelog", query))
            assert log["result"] == "whole" and int(log["sequence"]) >= int(told["sequence"])
            place = taken(each, tmp_path / f"{each.name}.storeql", "?as=script")
            assert facts(place)["result"] == "whole"
            text = each.script("BACKUP SCRIPT OF a.b", **PLACE)[-1]
            assert text, "and as an answer"


def test_a_snapshot_of_one_node_and_the_log_of_another_are_one_history(tmp_path: Path) -> None:
    """Both are taken beside writes."""
    with cluster(tmp_path) as found:
        with found.written():
            found.until("some are taken", lambda: len(found.acknowledged) > 20)
            follower, other = found.followers()
            snapshot = taken(follower, tmp_path / "a.storesnap")
            upto = int(facts(snapshot)["sequence"])
            known = len(found.acknowledged)
            found.until("more are taken", lambda: len(found.acknowledged) > known + 20)
        found.check()
        query = f"?as=log&from={upto + 1}"
        logs = []
        for each in (other, found.led()):
            shown = str(each.value("INFO FOR STATE"))
            logs.append((taken(each, tmp_path / f"{each.name}.storelog", query), shown))
    for number, (log, shown) in enumerate(logs):
        directory = tmp_path / f"made {number}"
        assert restored(directory, snapshot)["sequence"] == str(upto)
        made = restored(directory, log)
        assert int(made["sequence"]) > upto + 20
        if number == 0:  # in the other one stands as well that it was taken
            assert made["state"] in shown


def test_a_follower_s_backup_becomes_a_new_cluster(tmp_path: Path) -> None:
    """What is the nodes' own is in none: neither roles nor endpoints nor whom it followed."""
    with cluster(tmp_path / "first") as found:
        for number in range(20):
            found.write_until_taken(number)
        found.check()
        follower = found.followers()[0]
        follower.script("DEFINE NODE ROLES serving, writable, coordinating ENDPOINTS 'of.old:1'")
        snapshot = taken(follower, tmp_path / "night.storesnap")
        old = follower.about["store"]
    drawn = draw(tmp_path / "second" / "cluster", 2)
    kept = {"PYTHONPYCACHEPREFIX": environment()["PYTHONPYCACHEPREFIX"]}
    plan = replace(
        drawn,
        nodes=tuple(replace(node, environment=kept) for node in drawn.nodes),
        user=USER,
        password=PASSWORD,
        failover=Failover(1, LEASE_SECONDS, BEHIND_SECONDS, "AUTO"),
    )
    plan.save()
    restored(plan.directory / "n1", snapshot)
    new, asker = Cluster(plan, set(found.acknowledged)), ClusterClient(plan)
    first, second = plan.nodes
    try:
        processes.start_network(plan)
        processes.start_etcd(plan)
        processes.start_node(plan, first)
        check_of_its_own(new.members[0], old)
        asker.script(first, "DROP REPLICA n1; DROP REPLICA n2; DROP REPLICA n3")
        building.declare(asker, first, [second])
        token = asker.value(first, "CREATE JOIN TOKEN FOR n2")["token"]
        path = plan.directory / "n2.token"
        path.write_text(token)
        processes.start_node(plan, second, "--join", str(path))
        defined = plan.failover.defined_via(plan.etcd_endpoint)
        new.until("it follows", lambda: new.members[0].about.get("followers") == 1)
        new.until("the policy is in force", lambda: not new.members[0].refusal(defined))
        new.led()
        new.write_until_taken(500)
        new.check()
        new.led().kill()
        new.until("the other shows all", lambda: _has(new, 500))
    finally:
        for name in ("n1", "n2", ETCD, NETWORK):
            processes.end(plan, name)


def check_of_its_own(member: Member, old: str) -> None:
    """What a restored node is before anybody has told it anything, and how it begins."""
    about = member.about
    assert about["store"] != old and about["life"] == "alone"
    assert about["endpoints"] == [] and "coordinating" not in about["roles"]
    belongs = member.script("INFO FOR CLUSTER")[-1]
    assert belongs["member"] is None
    assert [row["name"] for row in belongs["replicas"]] == ["n1", "n2", "n3"]
    assert member.refusal("CREATE t:new", **PLACE) == "NotWritable", "a policy came with it"
    member.script(f"{COORDINATES}; DROP FAILOVER")
    member.script("UPSERT t:499 SET n = 499", **PLACE)


def _has(found: Cluster, number: int) -> bool:
    return any(
        number in (each.value("SELECT VALUE n FROM t", **PLACE) or ()) for each in found.members
    )
