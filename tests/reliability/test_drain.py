"""R18: SIGTERM while slow scripts run."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storeclient import Client, StoreError
from surfaces.command.stopping import STAGES
from tests.processes import PASSWORD, USER, NodeProcess, run
from tests.reliability import faulty
from tests.sweeps import parts

DRAINS = 24
GROUPS = 12
CLIENTS = 4
SLOW = """
    FOR $i IN 1..=40000 { LET $x = $i * 2; };
    CREATE done SET client = $client;
    RETURN 'finished';
"""

Figure = Callable[[str, object], None]


class SlowClient(threading.Thread):
    """Runs one slow script, over the wire or HTTP, and keeps the answer, or why there is none."""

    def __init__(self, node: NodeProcess, token: str, number: int) -> None:
        super().__init__()
        self.node, self.token, self.number = node, token, number
        self.value: object = None
        self.sequence = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.value, self.sequence = self._over_wire() if self.number % 2 else self._over_http()
        except (OSError, StoreError) as error:
            self.error = error

    def _over_http(self) -> tuple[object, int]:
        body = {"script": SLOW, "params": {"client": self.number}, "ns": "a", "db": "b"}
        headers = {"Authorization": f"Bearer {self.token}"}
        reply = self.node.request("POST", "/script", body, headers, user=None)
        assert reply.status == 200, reply.body
        return reply.json["results"][-1]["value"], reply.json["seq"]

    def _over_wire(self) -> tuple[object, int]:
        host, port = self.node.address("wire")
        with Client(f"{host}:{port}", token=self.token, ns="a", db="b") as client:
            answer = client.run(SLOW, {"client": self.number})
            return answer.value, answer.seq

    @property
    def finished(self) -> bool:
        return self.value == "finished"


def stages(lines: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Number and name of each stage, as the log has them."""
    return [(line["stage"], line["does"]) for line in lines if line["event"] == "stopping"]


def running(node: NodeProcess) -> int:
    """How many scripts run, the one that asks not counted."""
    answer = node.script("INFO FOR RUNNING")
    return len(answer["results"][0]["value"]) - 1


def prepared(directory: Path) -> NodeProcess:
    node = NodeProcess(directory).start()
    node.script(
        "DEFINE NAMESPACE IF NOT EXISTS a; USE NAMESPACE a; DEFINE DATABASE IF NOT EXISTS b;"
        "USE a.b; DEFINE TABLE IF NOT EXISTS done"
    )
    return node


def drain(node: NodeProcess, signals: int) -> tuple[list[SlowClient], int]:
    """Stop a node while every client waits for its script."""
    token = node.request("POST", "/session", {"user": USER, "password": PASSWORD}, user=None)
    clients: list[SlowClient] = []
    while running(node) < CLIENTS:
        for _ in range(CLIENTS - sum(client.is_alive() for client in clients)):
            clients.append(SlowClient(node, token.json["token"], len(clients)))
            clients[-1].start()
    waiting = sum(client.is_alive() for client in clients)
    for _ in range(signals):
        node.signal(signal.SIGTERM)
    for client in clients:
        client.join()
    return clients, waiting


@pytest.mark.parametrize("group", parts(GROUPS, always=1))
def test_drain_cuts_nothing_off(tmp_path: Path, group: int, figure: Figure) -> None:
    directory = tmp_path / "store"
    waited = 0
    for number in range(DRAINS // GROUPS):
        node = prepared(directory)
        clients, waiting = drain(node, signals=1 + (group * (DRAINS // GROUPS) + number) % 3)
        assert node.wait() == 0
        assert [client.error for client in clients if client.error] == []
        assert all(client.finished for client in clients)
        assert stages(node.lines) == list(enumerate(STAGES, 1))
        waited += waiting
        sequence = max(client.sequence for client in clients)

        before = {path.name for path in (directory / "log").iterdir()}
        health = run(str(directory), "--health")
        assert (health.returncode, health.stderr) == (0, "")
        assert re.search(rf"sequence {sequence}\b", health.stdout), health.stdout
        assert {path.name for path in (directory / "log").iterdir()} == before
    assert waited > 0
    figure(
        f"R18 drains, group {group + 1} of {GROUPS}",
        f"{DRAINS // GROUPS}, {waited} scripts in flight at the signal, 0 cut off",
    )


def test_a_signal_after_the_close_changes_nothing(tmp_path: Path) -> None:
    """A supervisor that asks twice must not turn an orderly end into one by a signal."""
    stays = tmp_path / "store.lingers"
    stays.touch()
    more = {faulty.FAULTS: "lingers"}
    node = NodeProcess(tmp_path / "store", more=more, module=faulty.MODULE).start()
    node.signal()
    assert node.wait_line("lingering") is not None
    node.signal()
    node.signal(signal.SIGINT)
    stays.unlink()
    assert node.wait() == 0
