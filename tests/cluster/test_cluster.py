"""The cluster that `make cluster` makes: what its judgement and its network are worth."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.actors.agreement.etcds import needs_etcd
from tests.architecture.sources import ROOT
from tests.cluster import __main__ as cluster_main
from tests.cluster import building, chaos, faults, processes, tracing
from tests.cluster.__main__ import again, down, status
from tests.cluster.asking import ClusterClient, NodeRefused, ResultUnknown, ScriptResults
from tests.cluster.faults import Faults
from tests.cluster.histories import clients
from tests.cluster.histories.clients import Clients, Probe, Wrong
from tests.cluster.histories.records import Records
from tests.cluster.network import Network
from tests.cluster.plan import ETCD, ClusterPlan, NoCluster, NodeAt, draw, load
from tests.cluster.processes import NotStarted

LEASES = {"n1": "0s", "n2": "2s", "n3": "0s"}
STATE = {"sequence": 9, "hash": "00"}


@pytest.fixture
def plan(tmp_path: Path) -> ClusterPlan:
    found = draw(tmp_path / "cluster", 3)
    found.save()
    return found


def test_a_plan_is_the_same_for_the_next_command(plan: ClusterPlan) -> None:
    assert load(plan.directory) == plan
    assert (plan.directory / "plan.json").stat().st_mode & 0o077 == 0
    assert plan.node("2") == plan.node("n2") == plan.nodes[1]
    with pytest.raises(NoCluster, match="the nodes are n1, n2, n3"):
        plan.node("4")
    with pytest.raises(NoCluster, match="make cluster"):
        load(plan.directory / "elsewhere")


def test_it_needs_nothing_but_a_python_and_a_node() -> None:
    """`make cluster` installs the node alone; -S leaves out all that is installed."""
    loads = "import tests.cluster.__main__, tests.cluster.network"
    subprocess.run([sys.executable, "-S", "-c", loads], cwd=ROOT, check=True)


# --- the judgement --------------------------------------------------------------------------------


class Answers(ClusterClient):
    """What the nodes say, without nodes: all is well, but for what a test says otherwise."""

    told: dict[str, dict[str, Any]]

    def ask(self, node: NodeAt, text: str, **fields: object) -> ScriptResults:
        said = {
            "SELECT VALUE n FROM seen": [1, 2, 3],
            "INFO FOR STATE": STATE,
            "INFO FOR NODE": {"lease": {"$dur": LEASES[node.name]}},
            **self.told.get(node.name, {}),
        }
        return ScriptResults([next(say for asks, say in said.items() if text == asks)], 9, None)


@pytest.fixture
def nodes_say(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    Answers.told = {}
    for module in (chaos, clients):
        monkeypatch.setattr(module, "ClusterClient", Answers)
    return Answers.told


def written(plan: ClusterPlan) -> Clients:
    """Clients to whom two records were acknowledged; of a third nobody knows."""
    records = Records()
    records.acknowledged, records.tried = {1, 2}, {1, 2, 3}
    return Clients(plan, [records], seed=1)


def test_what_is_right_is_told_so(plan: ClusterPlan, nodes_say: dict[str, dict[str, Any]]) -> None:
    assert "all 3 nodes hold all acknowledged writes" in chaos.judge(plan, written(plan))


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        ({"SELECT VALUE n FROM seen": [1, 3]}, r"n2 has lost 1 records: \[2\]"),
        ({"SELECT VALUE n FROM seen": [1, 2, 4]}, r"n2 has records that were never written: \[4\]"),
        ({"INFO FOR STATE": {"sequence": 9, "hash": "01"}}, "states differ at 9"),
    ],
)
def test_what_is_wrong_is_found(
    plan: ClusterPlan, nodes_say: dict[str, dict[str, Any]], says: dict[str, Any], wrong: str
) -> None:
    nodes_say["n2"] = says
    with pytest.raises(Wrong, match=wrong):
        chaos.judge(plan, written(plan))


def test_a_node_that_does_not_come_after_is_named(
    plan: ClusterPlan, nodes_say: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes.wait_for, "__defaults__", (0,))
    nodes_say["n3"] = {"INFO FOR STATE": {"sequence": 8, "hash": "00"}}
    with pytest.raises(processes.NotStarted, match="n3 does not reach sequence 9"):
        chaos.judge(plan, written(plan))


def test_the_status_says_what_each_node_waits_for(
    plan: ClusterPlan, nodes_say: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_main, "ClusterClient", Answers)
    monkeypatch.setattr(cluster_main, "pid_of", lambda *_: 1)
    monkeypatch.setattr(processes, "is_paused", lambda *_: False)
    monkeypatch.setattr(processes, "cuts", lambda _: [])
    none = {"$dur": "0s"}
    said: dict[str, dict[str, Any]] = {
        "n1": {"lease": none, "upstream": "in sync", "waits_for": "nobody leads", "life": "x"},
        "n2": {"lease": {"$dur": "2s"}, "upstream": None, "waits_for": "followers", "life": "x"},
        "n3": {"lease": none, "upstream": "in sync", "waits_for": None, "life": "x"},
    }
    nodes_say.update({name: {"INFO FOR NODE": info} for name, info in said.items()})
    assert status(plan).splitlines() == [
        "n1: in sync, at sequence 9; waiting for: nobody leads",
        "n2: leads, at sequence 9; waiting for: followers",
        "n3: in sync, at sequence 9",
        "etcd: runs",
    ]


def test_every_kind_of_fault_is_there_and_undoes_itself(
    plan: ClusterPlan, nodes_say: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut is whole again, and who was stopped runs."""
    did: list[str] = []
    monkeypatch.setattr(faults, "ClusterClient", Answers)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(processes, "send", lambda plan, name, number: did.append(number.name))
    monkeypatch.setattr(tracing, "is_available", lambda: True)
    monkeypatch.setattr(tracing, "injected", lambda *_: nullcontext())
    monkeypatch.setattr(processes, "pid_of", lambda *_: 1)
    monkeypatch.setattr(faults, "LIBRARY", "libfaketime.so.1")
    monkeypatch.setattr(building, "join_again", lambda plan, node: did.append("start_node"))
    monkeypatch.setattr(building, "name_leader", lambda plan: "n1")
    monkeypatch.setattr(shutil, "rmtree", lambda path: None)
    for name in ("end", "start_node", "start_etcd"):
        monkeypatch.setattr(processes, name, lambda *_, name=name: did.append(name))
    monkeypatch.setattr(processes, "wait_for", lambda holds, what: None)
    chance = Faults(plan, random.Random(1))
    seen = [chance.one()[0] for _ in range(19)]
    assert sorted(seen) == sorted(chance.kinds) and len({*seen}) == 19, "each comes once a round"
    assert json.loads(plan.cuts.read_text()) == json.loads(plan.late.read_text()) == []
    assert did.count("SIGSTOP") == did.count("SIGCONT") > 0
    assert did.count("end") == did.count("start_node") + did.count("start_etcd") > 0


def test_the_longest_time_without_a_write_counts_from_the_fault_on(plan: ClusterPlan) -> None:
    probe = Probe(plan)
    probe._times = [1.0, 5.0, 6.0, 9.5, 10.0]
    assert probe.longest(since=5.5) == 3.5
    assert probe.longest(since=0.0) == 4.0
    assert probe.last == 10.0


def test_who_has_no_lease_left_leads_no_more(
    plan: ClusterPlan, nodes_say: dict[str, dict[str, Any]]
) -> None:
    assert Answers(plan).leader() == plan.nodes[1]


def test_what_was_not_reached_was_not_done(plan: ClusterPlan) -> None:
    with pytest.raises(NodeRefused, match="NotReached"):
        ClusterClient(plan).script(plan.nodes[0], "RETURN 1")


# --- the network ----------------------------------------------------------------------------------


TALKER = """
import socket, sys
talks = None
for line in sys.stdin:
    talks = talks or socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    talks.sendall(line.encode())
    print(talks.recv(100).decode(), end="", flush=True)
"""


class Talker:
    """A process that says lines to etcd's place in the network, and what comes back."""

    def __init__(self, plan: ClusterPlan, name: str) -> None:
        words = [sys.executable, "-c", TALKER, str(plan.etcd_outside), str(plan.directory)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        (plan.directory / f"{name}.pid").write_text(str(self.process.pid))

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    async def hear(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.to_thread(self.process.stdout.readline)).decode().strip()

    def end(self) -> None:
        with self.process:
            self.process.kill()


LATE_SECONDS = 0.3


async def test_a_cut_holds_bytes_back_one_way_and_healing_brings_them(plan: ClusterPlan) -> None:
    heard: list[bytes] = []
    over: list[bool] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(100):
                heard.append(data.strip())
                writer.write(data)
        writer.close()
        over.append(True)

    async def cut(*pairs: tuple[str, str]) -> None:
        processes.cut(plan, pairs)
        while network._cut != frozenset(pairs):
            await asyncio.sleep(0.001)

    async def late(*pairs: tuple[str, str]) -> None:
        processes.delay(plan, pairs, LATE_SECONDS)
        while network._late != dict.fromkeys(pairs, LATE_SECONDS):
            await asyncio.sleep(0.001)

    network = Network(plan)
    server = await asyncio.start_server(echo, "127.0.0.1", plan.etcd)
    carries = asyncio.create_task(network.run())
    while not (plan.directory / "network.ready").exists():
        await asyncio.sleep(0.001)
    one, other = Talker(plan, "n1"), Talker(plan, "n2")
    try:
        one.say("a")
        assert await one.hear() == "a"
        await cut(("n1", ETCD))
        one.say("b")
        other.say("c")
        assert await other.hear() == "c"
        assert heard == [b"a", b"c"]
        await cut(("n2", ETCD), (ETCD, "n1"))
        while heard != [b"a", b"c", b"b"]:
            await asyncio.sleep(0.001)
        answer = asyncio.create_task(one.hear())
        other.say("d")
        await asyncio.sleep(0)
        assert not answer.done() and heard[-1] == b"b"
        await cut()
        assert (await answer, await other.hear()) == ("b", "d")
        await late(("n1", ETCD), (ETCD, "n1"))
        began = time.monotonic()
        one.say("e")
        assert await one.hear() == "e"
        assert time.monotonic() - began >= 2 * LATE_SECONDS
        await late()
    finally:
        one.end()
        other.end()
        while len(over) < 2:
            await asyncio.sleep(0.001)
        carries.cancel()
        await asyncio.wait([carries])
        server.close()


# --- making one -----------------------------------------------------------------------------------


class Slow(ClusterClient):
    """Nodes of a crowded machine: the first two answers to each statement come too late, to one
    that was not done and to one that was."""

    rows: list[dict[str, Any]]
    leads: list[str]
    asked: dict[str, int]
    in_sync: list[bool]
    """What followers say of that next, once somebody leads."""

    def ask(self, node: NodeAt, text: str, **fields: object) -> ScriptResults:
        times = self.asked[text] = self.asked.get(text, 0) + 1
        if times == 1:
            raise ResultUnknown(f"{node.name} did not answer: timed out")
        value = self._done(node, text)
        if times == 2:
            raise ResultUnknown(f"{node.name} did not answer: timed out")
        return ScriptResults([value], 1, None)

    def _done(self, node: NodeAt, text: str) -> Any:
        if text.startswith("BEGIN"):
            assert not self.rows, "they are declared already"
            self.rows.extend(
                {"name": each.name, "waits": each.name != "n1"} for each in self.plan.nodes
            )
        elif text.startswith("DEFINE FAILOVER"):
            assert not self.leads, "it is in force"
            self.leads.append("n2")  # the lead just goes on
        elif text.startswith("CREATE JOIN TOKEN"):
            return {"token": "n.t"}
        elif text == "INFO FOR NODE":
            lease = "2s" if node.name in self.leads else "0s"
            followers = len(Started.names & {"n2", "n3"})
            upstream = "in sync" if self.leads and self.in_sync.pop(0) else "catching up"
            return {
                "id": "i", "followers": followers, "lease": {"$dur": lease}, "upstream": upstream
            }  # fmt: skip
        elif text == "INFO FOR CLUSTER":
            return {"replicas": [dict(row) for row in self.rows]}
        return None


class Started:
    """What runs, without running it."""

    names: ClassVar[set[str]] = set()

    def __init__(self, asker: Slow, breaks: int) -> None:
        self.asker = asker
        self.breaks = breaks
        """After so many starts somebody ends the command."""
        Started.names = set()

    def network(self, _plan: ClusterPlan) -> None:
        self._start("network")

    def etcd(self, _plan: ClusterPlan) -> None:
        self._start(ETCD)

    def node(self, _plan: ClusterPlan, node: NodeAt, *words: str) -> None:
        row = next((one for one in self.asker.rows if one["name"] == node.name), {"waits": False})
        assert row["waits"] == bool(words), "a token is brought by whose row waits"
        row["waits"] = False
        self._start(node.name)

    def pid_of(self, _plan: ClusterPlan, name: str) -> int | None:
        return 1 if name in self.names else None

    def _start(self, name: str) -> None:
        assert name not in self.names, "it runs"
        self.names.add(name)
        self.breaks -= 1
        if not self.breaks:
            raise NotStarted(f"{name} does not come up")


@pytest.mark.parametrize("breaks", range(6))
def test_a_cluster_is_made_where_every_answer_comes_late(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch, breaks: int
) -> None:
    """Typed again, the command goes on where it was ended."""
    asker = Slow(plan)
    came = [*[False] * 6, *[True] * 1_000]
    for name, value in (("rows", []), ("leads", []), ("asked", {}), ("in_sync", came)):
        object.__setattr__(asker, name, value)
    started, said = Started(asker, breaks), list[str]()
    monkeypatch.setattr(building, "ClusterClient", lambda *_: asker)
    monkeypatch.setattr(processes, "start_network", started.network)
    monkeypatch.setattr(processes, "start_etcd", started.etcd)
    monkeypatch.setattr(processes, "start_node", started.node)
    monkeypatch.setattr(processes, "pid_of", started.pid_of)
    if breaks:
        with pytest.raises(NotStarted, match="does not come up"):
            building.build(plan, said.append)
        object.__setattr__(asker, "asked", {})
    building.build(plan, said.append)
    assert started.names == {"network", ETCD, "n1", "n2", "n3"} and asker.leads == ["n2"]
    assert False not in came, "all have come to follow by the policy"
    assert said[-1].startswith("failover is on")


def test_what_is_never_answered_is_said_with_what_helps(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(ClusterClient):
        def ask(self, node: NodeAt, text: str, **fields: object) -> ScriptResults:
            raise ResultUnknown(f"{node.name} did not answer: timed out")

    started = Started(Slow(plan), 0)
    monkeypatch.setattr(building, "ClusterClient", Silent)
    monkeypatch.setattr(processes, "pid_of", lambda *_: 1)
    monkeypatch.setattr(processes, "wait_for", partial(processes.wait_for, seconds=0.1))
    with pytest.raises(
        NotStarted, match=r"did not answer: timed out\): .* run make cluster again to continue"
    ):
        building.build(plan, print)
    assert not started.names


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.hard
@pytest.mark.timeout(600)
@needs_etcd
def test_chaos_breaks_nothing(tmp_path: Path, figure: Callable[[str, object], None]) -> None:
    plan = draw(tmp_path / "cluster", 3)
    try:
        building.build(plan, print)
        figure("chaos in a cluster", chaos.run(plan, 2, 1, print))
        assert "n1" in status(plan)
        processes.end(plan, "n2")
        assert "n2: does not run" in status(plan)
        again(plan)
        assert "does not run" not in status(plan)
    finally:
        down(plan)
    assert not plan.directory.exists()
